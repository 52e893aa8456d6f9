//! Where a relay could stand, and how it could be set.

use std::fmt;

use midspan_scenario::Direction;
use midspan_split::defaults;
use midspan_units::{ByteSize, Span};
use serde::Serialize;

use crate::figures::{Figures, Refused, control};

/// A relay at a place, with its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Round trip from the UE; above zero, below that to the server.
    pub place: Span,
    /// Congestion control of the leg towards the UE.
    pub control: String,
    /// What the relay may hold of a flow in each direction (`buffer`).
    pub buffer: ByteSize,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.place, self.control, self.buffer)
    }
}

/// What is to be compared; what is first is preferred among equals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// Places, as round trips from the UE; none: a few, from the radio leg's end to the middle.
    pub places: Vec<Span>,
    /// Congestion controls of the leg towards the UE; none: the relay's own default, and CUBIC.
    pub controls: Vec<String>,
    /// The relay's buffers; none: its own default, a quarter of that, and four times as much.
    pub buffers: Vec<ByteSize>,
    /// Congestion control of the relay's host, which the leg towards the server has.
    pub host_control: String,
    /// `reordering_hold` of the relay.
    pub reordering_hold: Span,
}

impl Default for Tried {
    fn default() -> Tried {
        Tried {
            places: Vec::new(),
            controls: Vec::new(),
            buffers: Vec::new(),
            host_control: "cubic".into(),
            reordering_hold: defaults::REORDERING_HOLD,
        }
    }
}

/// More are compared for no purpose.
const MOST: usize = 100;

impl Tried {
    /// The candidates on the path of `figures`: at each place each control with the first buffer, and the first control
    /// with each buffer.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn candidates(&self, figures: &Figures) -> Result<Vec<Candidate>, Refused> {
        let places = self.places(figures)?;
        let controls = self.controls(figures);
        controls.iter().try_for_each(|name| control("--control", name))?;
        control("--relay-control", &self.host_control)?;
        if self.reordering_hold > Span::from_millis(50) {
            return Err(Refused::new("--reordering-hold", "at most 50 ms"));
        }
        let buffers = self.buffers();
        if let Some(buffer) =
            buffers.iter().find(|buffer| !(4096..=1 << 30).contains(&buffer.as_bytes()))
        {
            return Err(Refused::new("--buffer", format!("{buffer}; from 4 KiB to 1 GiB")));
        }
        let mut candidates = Vec::new();
        for place in places {
            let with_controls = controls.iter().map(|control| (control, buffers[0]));
            let with_buffers = buffers.iter().skip(1).map(|buffer| (&controls[0], *buffer));
            candidates.extend(
                with_controls.chain(with_buffers).map(|(control, buffer)| Candidate {
                    place,
                    control: control.clone(),
                    buffer,
                }),
            );
        }
        match candidates.len() {
            0..=MOST => Ok(candidates),
            many => Err(Refused::new(
                "--relay",
                format!("{many} candidates with `--control` and `--buffer`; at most {MOST}"),
            )),
        }
    }

    fn places(&self, figures: &Figures) -> Result<Vec<Span>, Refused> {
        let rtt = figures.rtt;
        let within = |figure, place: Span| match place > Span::ZERO && place < rtt {
            true => Ok(place),
            false => {
                let problem = format!("{place}; must be above 0 s, below the round trip of {rtt}");
                Err(Refused::new(figure, problem))
            }
        };
        if let Some(radio) = figures.radio_rtt {
            within("--radio-rtt", radio)?;
        }
        let mut places = Vec::new();
        for place in &self.places {
            let place = within("--relay", *place)?;
            if figures.radio_rtt.is_some_and(|radio| place < radio) {
                let radio = figures.radio_rtt.unwrap_or_default();
                let problem = format!("{place} is within the radio leg, which takes {radio}");
                return Err(Refused::new("--relay", problem));
            }
            places.push(place);
        }
        if places.is_empty() {
            let near = figures.radio_rtt.unwrap_or(rtt / 20);
            let behind = rtt.saturating_sub(near);
            places = [near, near + behind / 4, near + behind / 2].map(rounded).to_vec();
            places[0] = near;
        }
        let mut known = Vec::new();
        places.retain(|place| {
            let is_new = !known.contains(place);
            known.push(*place);
            is_new && *place > Span::ZERO
        });
        if places.is_empty() {
            return Err(Refused::new("--rtt", format!("{rtt} is too short to be divided")));
        }
        Ok(places)
    }

    /// Towards the UE a relay sends data of downloads alone.
    fn controls(&self, figures: &Figures) -> Vec<String> {
        let own = defaults::CLIENT_LEG_CONTROL.to_owned();
        match (&self.controls[..], figures.direction) {
            ([], Direction::Download) => vec![own, "cubic".to_owned()],
            ([], Direction::Upload) => vec![own],
            (controls, _) => controls.to_vec(),
        }
    }

    fn buffers(&self) -> Vec<ByteSize> {
        match &self.buffers[..] {
            [] => [defaults::BUFFER, defaults::BUFFER / 4, defaults::BUFFER * 4]
                .map(ByteSize::from_bytes)
                .to_vec(),
            buffers => buffers.to_vec(),
        }
    }
}

/// To a tenth of a millisecond, as nobody places a box closer; shorter ones as they are.
fn rounded(place: Span) -> Span {
    const STEP: u64 = 100_000;
    match place.as_nanos() {
        nanos @ 0..STEP => Span::from_nanos(nanos),
        nanos => Span::from_nanos(nanos / STEP * STEP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::figures;

    #[test]
    fn a_few_places_lie_between_the_radio_and_the_middle() {
        let places = |figures: &Figures| Tried::default().places(figures).unwrap();
        let millis = |tenths: [u64; 3]| tenths.map(|tenth| Span::from_micros(tenth * 100)).to_vec();
        assert_eq!(places(&figures()), millis([25, 143, 262]));
        let radio = Figures { radio_rtt: Some(Span::from_millis(10)), ..figures() };
        assert_eq!(places(&radio), millis([100, 200, 300]));
        let short = Figures { rtt: Span::from_micros(50), ..figures() };
        assert!(places(&short).iter().all(|place| *place < short.rtt));
    }

    #[test]
    fn what_a_relay_has_by_itself_comes_first() {
        let candidates = Tried::default().candidates(&figures()).unwrap();
        assert_eq!(candidates.len(), 12);
        assert_eq!(candidates[0].to_string(), "2.5 ms, ms_radio, 1 MiB");
        assert_eq!(candidates[1].to_string(), "2.5 ms, cubic, 1 MiB");
        let upload = Figures { direction: Direction::Upload, ..figures() };
        let candidates = Tried::default().candidates(&upload).unwrap();
        assert!(candidates.iter().all(|candidate| candidate.control == "ms_radio"));
        assert_eq!(candidates.len(), 9);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let tried = Tried { places: vec![Span::from_millis(50)], ..Tried::default() };
        assert_eq!(tried.candidates(&figures()).unwrap_err().figure, "--relay");
        let radio = Figures { radio_rtt: Some(Span::from_millis(10)), ..figures() };
        let tried = Tried { places: vec![Span::from_millis(5)], ..Tried::default() };
        assert!(tried.candidates(&radio).unwrap_err().to_string().contains("within the radio leg"));
        let tried = Tried { controls: vec!["fast".into()], ..Tried::default() };
        assert_eq!(tried.candidates(&figures()).unwrap_err().figure, "--control");
        let tried = Tried { buffers: vec![ByteSize::from_bytes(1)], ..Tried::default() };
        assert_eq!(tried.candidates(&figures()).unwrap_err().figure, "--buffer");
        let tried = Tried { reordering_hold: Span::from_millis(51), ..Tried::default() };
        assert_eq!(tried.candidates(&figures()).unwrap_err().figure, "--reordering-hold");
    }
}
