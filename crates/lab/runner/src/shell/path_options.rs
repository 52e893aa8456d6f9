//! A path as options give it: a radio link with what it does to packets, and what lies behind it. Pure.

use midspan_path::{ElementSpec, LinkSpec, LossSpec, QueueSpec, RateSpec, Unit};
use midspan_scenario::{Bulk, CellSpec, Direction, Hosts, PathSpec, Relay, Service, Workload};
use midspan_units::{ByteSize, Rate, Share, Span};

/// What options say of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathOptions {
    /// Round trip from UE to server.
    pub rtt: Span,
    /// Rate of the radio link towards the server; none has no limit.
    pub up: Option<Rate>,
    /// Rate of the radio link towards the UE; none has no limit.
    pub down: Option<Rate>,
    /// Packets lost on the radio link, in each direction.
    pub loss: Share,
    /// What the queue before each rate holds; none is what the rate carries in a round trip.
    pub queue: Option<ByteSize>,
    /// Round trip from the UE to the relay, if there is one.
    pub relay: Option<Span>,
}

/// The least queue that is taken for a rate and a round trip: ten packets.
const LEAST_QUEUE: u64 = 15_000;

impl PathOptions {
    /// The same as a scenario has it. Rates, queues and losses are the access link's; the MEC stands where the relay is, and
    /// beside the server without one.
    ///
    /// # Errors
    /// In one line, what cannot be and what would be right.
    pub fn spec(&self) -> Result<CellSpec, String> {
        let near = self.relay.unwrap_or(self.rtt);
        if near > self.rtt {
            return Err(format!(
                "--relay {near}: the relay is on the way; give at most the round trip, {}",
                self.rtt
            ));
        }
        let far = self.rtt.saturating_sub(near);
        let radio = |rate: Option<Rate>| {
            let rate = rate.map(|rate| {
                let queue = QueueSpec { bytes: Some(self.queue_of(rate)), packets: None };
                ElementSpec::Rate(RateSpec { rate, queue, aqm: None })
            });
            let loss = LossSpec { share: self.loss, unit: Unit::Packet };
            let loss = (self.loss > Share::ZERO).then_some(ElementSpec::Loss(loss));
            rate.into_iter().chain(loss).chain(delay(near)).collect()
        };
        let access = LinkSpec { up: radio(self.up), down: radio(self.down) };
        // Where it is says nothing to who gave options.
        access.check().map_err(|error| error.problem)?;
        let wide = LinkSpec { up: delay(far).collect(), down: delay(far).collect() };
        Ok(CellSpec {
            path: PathSpec { access, wide },
            cells: None,
            hosts: Hosts::default(),
            relay: Relay::default(),
            assist: None,
            workload: Workload::Bulk(NOTHING),
            service: Service::default(),
        })
    }

    fn queue_of(&self, rate: Rate) -> ByteSize {
        let product = rate.bytes_in(self.rtt).as_bytes();
        self.queue.unwrap_or(ByteSize::from_bytes(product.max(LEAST_QUEUE)))
    }

    /// In a few words.
    pub fn describe(&self) -> String {
        let mut words = vec![format!("rtt {}", self.rtt)];
        let with_queue = |rate: Rate| format!("{rate} (queue {})", self.queue_of(rate));
        match (self.up, self.down) {
            (None, None) => {}
            (up, down) if up == down => words.extend(up.map(with_queue)),
            (up, down) => {
                words.extend(up.map(|rate| format!("up {}", with_queue(rate))));
                words.extend(down.map(|rate| format!("down {}", with_queue(rate))));
            }
        }
        if self.loss > Share::ZERO {
            words.push(format!("loss {} on the radio each way", self.loss));
        }
        words.join(", ")
    }
}

/// Half of a round trip, each way.
fn delay(rtt: Span) -> impl Iterator<Item = ElementSpec> {
    (rtt > Span::ZERO).then_some(ElementSpec::Delay(rtt / 2)).into_iter()
}

/// In a shell the user's programs are the workload.
const NOTHING: Bulk = Bulk {
    direction: Direction::Download,
    time: Span::from_secs(1),
    warmup: Span::ZERO,
    flows: 1,
    stagger: Span::ZERO,
    controls: Vec::new(),
    greeting: ByteSize::from_bytes(0),
    percentiles: false,
    series: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> PathOptions {
        PathOptions {
            rtt: Span::from_millis(60),
            up: "10 Mbit/s".parse().ok(),
            down: "50 Mbit/s".parse().ok(),
            loss: "1 %".parse().unwrap(),
            queue: None,
            relay: Some(Span::from_millis(1)),
        }
    }

    #[test]
    fn the_relay_divides_the_round_trip_and_the_radio_has_the_rest() {
        let spec = options().spec().unwrap();
        assert_eq!(spec.path.access.base_rtt(), Span::from_millis(1));
        assert_eq!(spec.path.wide.base_rtt(), Span::from_millis(59));
        let names = |elements: &[ElementSpec]| {
            elements.iter().map(ElementSpec::name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&spec.path.access.down), "rate loss delay");
        assert_eq!(names(&spec.path.wide.down), "delay");
        let ElementSpec::Rate(rate) = spec.path.access.up[0] else { panic!("{spec:?}") };
        // 10 Mbit/s for 60 ms.
        assert_eq!(rate.queue.bytes, Some(ByteSize::from_bytes(75_000)));
        let without = PathOptions { relay: None, ..options() }.spec().unwrap();
        assert_eq!(without.path.access.base_rtt(), Span::from_millis(60));
        assert_eq!(without.path.wide, LinkSpec::default());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let beyond =
            PathOptions { relay: Some(Span::from_millis(61)), ..options() }.spec().unwrap_err();
        assert!(beyond.contains("at most the round trip, 60 ms"), "{beyond}");
        let still = PathOptions { up: Some(Rate::from_bps(0)), ..options() }.spec().unwrap_err();
        assert!(still.contains("above zero"), "{still}");
    }

    #[test]
    fn a_few_words_say_it() {
        assert_eq!(
            options().describe(),
            "rtt 60 ms, up 10 Mbit/s (queue 75 KB), down 50 Mbit/s (queue 375 KB), loss 1 % on the radio each way"
        );
        let plain = PathOptions { rtt: Span::from_millis(5), ..PathOptions::default() };
        assert_eq!(plain.describe(), "rtt 5 ms");
    }
}
