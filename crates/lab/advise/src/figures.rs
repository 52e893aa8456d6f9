//! What is known of a path and of the flows that cross it.

use midspan_scenario::Direction;
use midspan_units::{ByteSize, Rate, Share, Span};
use serde::Serialize;

/// A path without a relay, and what crosses it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Round trip between UE and server, without queues; above zero.
    pub rtt: Span,
    /// Of that, the radio leg: the nearest to the UE that a relay can stand. None: not known.
    pub radio_rtt: Option<Span>,
    /// What the radio leg carries in each direction; above zero.
    pub rate: Rate,
    /// What the way behind the radio leg carries in each direction. None: never the limit.
    pub wide_rate: Option<Rate>,
    /// What the queue before each rate holds. None: what the rate carries in a round trip.
    pub queue: Option<ByteSize>,
    /// Share of the data's packets that the radio leg loses, independently.
    pub loss: Share,
    /// Share of the data's packets that the radio leg delivers late, overtaken by others.
    pub late: Share,
    /// By how much these are late.
    pub late_by: Span,
    /// Who sends the data.
    pub direction: Direction,
    /// Congestion control of the server.
    pub server_control: String,
    /// Congestion control of the UE.
    pub ue_control: String,
    /// TCP buffers of UE, server, and the relay's host.
    pub host_buffers: HostBuffers,
    /// What flows are to be fast.
    pub flows: Flows,
}

/// What a measurement found of a path; what it could not find is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Known {
    /// As [`Figures::rtt`].
    pub rtt: Option<Span>,
    /// As [`Figures::radio_rtt`].
    pub radio_rtt: Option<Span>,
    /// As [`Figures::rate`]; what flows got at their best, which the link's rate is at least.
    pub rate: Option<Rate>,
    /// As [`Figures::loss`].
    pub loss: Option<Share>,
    /// As [`Figures::late`], with [`Figures::late_by`].
    pub late: Option<(Share, Span)>,
    /// Who sent most.
    pub direction: Option<Direction>,
    /// What is to be known of how these were found, a line each.
    pub notes: Vec<String>,
}

/// How long flows are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flows {
    /// Transfers of these sizes, each on a connection of its own, timed from its beginning.
    Sizes(Vec<ByteSize>),
    /// Flows that send for so long; the first quarter does not count.
    Times(Vec<Span>),
}

/// The bounds of TCP's socket buffers, as scenario files name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HostBuffers {
    /// What Linux gives a machine with enough memory.
    Default,
    /// No limit that a connection could reach.
    Max,
}

/// A figure that cannot be, in one line: which, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{figure}: {problem}")]
pub struct Refused {
    /// The option that gives it.
    pub figure: &'static str,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Refused {
    pub(crate) fn new(figure: &'static str, problem: impl Into<String>) -> Refused {
        Refused { figure, problem: problem.into() }
    }
}

/// No round trip on earth is longer.
const LONGEST_RTT: Span = Span::from_secs(10);
/// More than this takes too long to simulate.
const MOST_BYTES: u64 = 4_000_000_000;
const MOST_TIME: Span = Span::from_secs(600);
/// A simulation of a faster link is one of the relay's processors.
const MOST_RATE: u64 = 10_000_000_000;
const LEAST_RATE: u64 = 10_000;
/// Beyond it TCP carries nothing worth the name, by any way.
const MOST_LOSS: f64 = 0.2;

impl Figures {
    /// Checks what does not depend on where a relay is to stand.
    ///
    /// # Errors
    /// The first figure that cannot be, or that cannot be simulated.
    pub fn check(&self) -> Result<(), Refused> {
        let within = |figure, rate: Rate| match rate.as_bps() {
            LEAST_RATE..=MOST_RATE => Ok(()),
            _ => Err(Refused::new(
                figure,
                format!("{rate} cannot be simulated; from 10 kbit/s to 10 Gbit/s can"),
            )),
        };
        if self.rtt == Span::ZERO || self.rtt > LONGEST_RTT {
            let rtt = self.rtt;
            return Err(Refused::new("--rtt", format!("{rtt}; must be above 0 s, at most 10 s")));
        }
        within("--rate", self.rate)?;
        self.wide_rate.map_or(Ok(()), |rate| within("--wide-rate", rate))?;
        for (figure, share) in [("--loss", self.loss), ("--late", self.late)] {
            if share.as_fraction() > MOST_LOSS {
                return Err(Refused::new(figure, format!("{share}; at most 20 %")));
            }
        }
        match (self.late > Share::ZERO, self.late_by > Span::ZERO) {
            (true, false) => {
                return Err(Refused::new("--late", "by how much? give `--late-by TIME` as well"));
            }
            (false, true) => {
                return Err(Refused::new("--late-by", "how many? give `--late SHARE` as well"));
            }
            _ if self.late_by > LONGEST_RTT => {
                return Err(Refused::new("--late-by", format!("{}; at most 10 s", self.late_by)));
            }
            _ => {}
        }
        control("--server-control", &self.server_control)?;
        control("--ue-control", &self.ue_control)?;
        self.flows.check()
    }

    /// What the queue before a rate holds: as given, or what the rate carries in a round trip, but ten packets at
    /// least.
    pub(crate) fn queue_of(&self, rate: Rate) -> ByteSize {
        const LEAST_QUEUE: u64 = 15_000;
        let product = rate.bytes_in(self.rtt).as_bytes();
        self.queue.unwrap_or(ByteSize::from_bytes(product.max(LEAST_QUEUE)))
    }
}

impl Flows {
    fn check(&self) -> Result<(), Refused> {
        let problem = match self {
            Flows::Sizes(sizes) if sizes.is_empty() => Some("no flows; give one size".to_owned()),
            Flows::Times(times) if times.is_empty() => Some("no flows; give one time".to_owned()),
            Flows::Sizes(sizes) => sizes
                .iter()
                .find(|size| !(1..=MOST_BYTES).contains(&size.as_bytes()))
                .map(|size| format!("{size}; from 1 B to 4 GB can be simulated")),
            Flows::Times(times) => times
                .iter()
                .find(|time| !(Span::from_millis(100)..=MOST_TIME).contains(*time))
                .map(|time| format!("{time}; from 100 ms to 10 min can be simulated")),
        };
        problem.map_or(Ok(()), |problem| Err(Refused::new("--size", problem)))
    }

    /// What each is called.
    pub fn labels(&self) -> Vec<String> {
        match self {
            Flows::Sizes(sizes) => sizes.iter().map(ToString::to_string).collect(),
            Flows::Times(times) => times.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Whether the simulator has a congestion control; it takes Linux's names and Midspan's own.
pub(crate) fn control(figure: &'static str, name: &str) -> Result<(), Refused> {
    if midspan_cc::names().any(|known| known == name.strip_prefix("ms_").unwrap_or(name)) {
        return Ok(());
    }
    let problem = midspan_units::wording::unknown("congestion control", name, midspan_cc::names());
    Err(Refused::new(figure, problem))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn figures() -> Figures {
        Figures {
            rtt: Span::from_millis(50),
            radio_rtt: None,
            rate: "50 Mbit/s".parse().unwrap(),
            wide_rate: None,
            queue: None,
            loss: Share::ZERO,
            late: Share::ZERO,
            late_by: Span::ZERO,
            direction: Direction::Download,
            server_control: "cubic".into(),
            ue_control: "cubic".into(),
            host_buffers: HostBuffers::Default,
            flows: Flows::Sizes(vec![ByteSize::from_bytes(1_000_000)]),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_name_of_its_option() {
        let share = |text: &str| text.parse::<Share>().unwrap();
        assert_eq!(figures().check(), Ok(()));
        let refused = [
            Figures { rtt: Span::ZERO, ..figures() },
            Figures { rate: Rate::from_bps(0), ..figures() },
            Figures { wide_rate: Some(Rate::from_bps(1)), ..figures() },
            Figures { loss: share("21 %"), ..figures() },
            Figures { late: share("1 %"), ..figures() },
            Figures { late_by: Span::from_millis(1), ..figures() },
            Figures { server_control: "cubik".into(), ..figures() },
            Figures { ue_control: "ms_".into(), ..figures() },
            Figures { flows: Flows::Sizes(Vec::new()), ..figures() },
            Figures { flows: Flows::Times(vec![Span::from_millis(1)]), ..figures() },
        ];
        let options = [
            "--rtt",
            "--rate",
            "--wide-rate",
            "--loss",
            "--late",
            "--late-by",
            "--server-control",
            "--ue-control",
            "--size",
            "--size",
        ];
        for (figures, option) in refused.iter().zip(options) {
            let refused = figures.check().unwrap_err();
            assert_eq!(refused.figure, option);
            assert!(!refused.to_string().contains('\n'));
        }
        assert_eq!(Figures { server_control: "ms_bbr3".into(), ..figures() }.check(), Ok(()));
    }

    #[test]
    fn the_queue_is_what_the_rate_carries_in_a_round_trip() {
        assert_eq!(figures().queue_of(figures().rate), ByteSize::from_bytes(312_500));
        let slow = Rate::from_bps(100_000);
        assert_eq!(figures().queue_of(slow), ByteSize::from_bytes(15_000));
        let given = Figures { queue: Some(ByteSize::from_kib(1)), ..figures() };
        assert_eq!(given.queue_of(slow), ByteSize::from_kib(1));
    }
}
