//! What options, logs and captures say, put together.

use std::fmt::Display;
use std::str::FromStr;

use anyhow::Result;
use midspan_advise::{Figures, Flows, HostBuffers, Known, Tried};
use midspan_scenario::Direction;
use midspan_units::{ByteSize, Rate, Share, Span};

use super::{Arguments, BuffersName, DirectionName, measured};
use crate::command::{BadInput, quantity};

/// The figures to go by, and where they come from.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) figures: Figures,
    pub(super) tried: Tried,
    /// What was measured; nothing without a log or a capture.
    pub(super) known: Known,
    /// By name those that come from a log or a capture.
    pub(super) measured: Vec<&'static str>,
}

impl Given {
    pub(super) fn of(arguments: &Arguments) -> Result<Given> {
        let known = measured::read(arguments)?;
        let mut measured = Vec::new();
        let rtt =
            chosen("rtt", quantity("--rtt", arguments.rtt.as_deref())?, known.rtt, &mut measured);
        let rate: Option<Rate> = chosen(
            "rate",
            quantity("--rate", arguments.rate.as_deref())?,
            known.rate,
            &mut measured,
        );
        let missing = |option: &str, example: &str| {
            let how = match arguments.flow_log.is_empty() && arguments.pcap.is_none() {
                true => ", or `--flow-log FILE` or `--pcap FILE` to take figures from",
                false => ": what was measured does not tell it",
            };
            BadInput::because(format!("{option} is missing; give `{option} {example}`{how}"))
        };
        let rtt: Span = rtt.ok_or_else(|| missing("--rtt", "60ms"))?;
        let rate = rate.ok_or_else(|| missing("--rate", "50Mbit/s"))?;
        // A radio leg that was measured on another path says nothing of this one.
        let known_radio = known.radio_rtt.filter(|radio| *radio < rtt);
        let radio_rtt = quantity("--radio-rtt", arguments.radio_rtt.as_deref())?;
        let radio_rtt = chosen("radio_rtt", radio_rtt, known_radio, &mut measured);
        let loss = quantity("--loss", arguments.loss.as_deref())?;
        let loss: Option<Share> = chosen("loss", loss, known.loss, &mut measured);
        let late = quantity("--late", arguments.late.as_deref())?;
        let late_by = quantity("--late-by", arguments.late_by.as_deref())?;
        let (known_late, known_by) = known.late.unzip();
        // Either both are given, or none.
        let known_late = known_late.filter(|_| late_by.is_none());
        let known_by = known_by.filter(|_| late.is_none());
        let late: Option<Share> = chosen("late", late, known_late, &mut measured);
        let late_by: Option<Span> = chosen("late_by", late_by, known_by, &mut measured);
        let direction = arguments.direction.map(|name| match name {
            DirectionName::Upload => Direction::Upload,
            DirectionName::Download => Direction::Download,
        });
        let direction = chosen("direction", direction, known.direction, &mut measured);
        let figures = Figures {
            rtt,
            radio_rtt,
            rate,
            wide_rate: quantity("--wide-rate", arguments.wide_rate.as_deref())?,
            queue: quantity("--queue", arguments.queue.as_deref())?,
            loss: loss.unwrap_or_default(),
            late: late.unwrap_or_default(),
            late_by: late_by.unwrap_or_default(),
            direction: direction.unwrap_or(Direction::Download),
            server_control: arguments.server_control.clone(),
            ue_control: arguments.ue_control.clone(),
            host_buffers: match arguments.host_buffers {
                BuffersName::Default => HostBuffers::Default,
                BuffersName::Max => HostBuffers::Max,
            },
            flows: flows(&arguments.size)?,
        };
        let own = Tried::default();
        let hold = quantity("--reordering-hold", arguments.reordering_hold.as_deref())?;
        let tried = Tried {
            places: list("--relay", &arguments.relay)?,
            controls: arguments.control.clone(),
            buffers: list("--buffer", &arguments.buffer)?,
            host_control: arguments.relay_control.clone(),
            reordering_hold: hold.unwrap_or(own.reordering_hold),
        };
        Ok(Given { figures, tried, known, measured })
    }
}

/// What is given goes before what was measured, which is noted.
fn chosen<T>(
    name: &'static str,
    given: Option<T>,
    known: Option<T>,
    measured: &mut Vec<&'static str>,
) -> Option<T> {
    if given.is_none() && known.is_some() {
        measured.push(name);
    }
    given.or(known)
}

fn list<T: FromStr<Err: Display>>(option: &str, texts: &[String]) -> Result<Vec<T>> {
    let values = texts.iter().map(|text| quantity(option, Some(text)));
    Ok(values.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Sizes, or times; bytes are tried first.
fn flows(texts: &[String]) -> Result<Flows> {
    let usual = [100_000, 1_000_000, 10_000_000, 100_000_000].map(ByteSize::from_bytes);
    if texts.is_empty() {
        return Ok(Flows::Sizes(usual.to_vec()));
    }
    let sizes: Result<Vec<ByteSize>, _> = texts.iter().map(|text| text.parse()).collect();
    if let Ok(sizes) = sizes {
        return Ok(Flows::Sizes(sizes));
    }
    let times: Result<Vec<Span>, _> = texts.iter().map(|text| text.parse()).collect();
    times.map(Flows::Times).map_err(|_| {
        let given = texts.join(",");
        BadInput::because(format!(
            "--size: `{given}` is neither sizes, such as `100KB,10MB`, nor times, such as `8s`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_sizes_or_times_but_not_both() {
        let of = |texts: &[&str]| {
            flows(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let sizes = of(&["100KB", "1 MiB"]).unwrap();
        assert_eq!(
            sizes,
            Flows::Sizes(vec![ByteSize::from_bytes(100_000), ByteSize::from_kib(1024)])
        );
        assert_eq!(of(&["8s"]).unwrap(), Flows::Times(vec![Span::from_secs(8)]));
        assert_eq!(of(&[]).unwrap().labels().len(), 4);
        for wrong in [&["8s", "1MB"][..], &["much"]] {
            assert!(of(wrong).unwrap_err().to_string().starts_with("--size: "));
        }
    }

    #[test]
    fn what_is_given_goes_before_what_was_measured() {
        let mut measured = Vec::new();
        assert_eq!(chosen("a", Some(1), Some(2), &mut measured), Some(1));
        assert_eq!(chosen("b", None, Some(2), &mut measured), Some(2));
        assert_eq!(chosen::<u8>("c", None, None, &mut measured), None);
        assert_eq!(measured, ["b"]);
    }
}
