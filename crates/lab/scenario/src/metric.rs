//! What runs measure. A metric is a row of [`METRICS`]: summaries, tables, reports, papers' figures and
//! `docs/reference/results.md` are made from it, so that a new one is a new row.

use midspan_units::number::Quantity;
use serde::{Serialize, Serializer};

use crate::record::{BulkRecord, CutRecord, DelayRecord, Measurement, PageRecord};
use crate::summary::{Gain, Summary, VariantSummary};
use crate::{CellSpec, Direction, Scenario, Workload};

/// Something that runs measure, one number or several a run. Two are the same if their names are.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// What descriptions of papers' figures and addresses of pages call it, in kebab case; unique.
    pub name: &'static str,
    /// Where `summary.json` has it in a variant: a key, or one of an object and one in it with a dot between; unique.
    pub key: &'static str,
    /// In a few words, for titles.
    pub title: &'static str,
    /// What exactly is measured, in a sentence.
    pub meaning: &'static str,
    /// How its numbers are written.
    pub quantity: Quantity,
    /// Which of two numbers is the better one.
    pub better: Better,
    /// What its numbers are numbers of.
    pub sample: Sample,
    /// Which reports have a table of it.
    pub shown: Shown,
    /// Its column in the table of runs, and that one's unit; only of what is one number a run and the same in either direction.
    pub column: Option<(&'static str, &'static str)>,
    /// What a comparison of an axis' points calls it; none if they are not compared by it.
    pub compared: Option<&'static str>,
    /// Whether the gain over no proxy stands beside it. It is computed end to end, so the times that a proxy may cut short by
    /// acknowledging early have none.
    pub has_gain: bool,
    /// The numbers that one run gave, whose data went in a direction.
    values: fn(&Measurement, Direction) -> Vec<f64>,
}

/// Which of two numbers is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The greater.
    More,
    /// The lesser.
    Less,
}

/// What a metric's numbers are numbers of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Flows that send for a time.
    Runs,
    /// Transfers, pages and videos.
    Transfers,
}

/// Which reports have a table of a metric.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    /// Those on scenarios that answer yes.
    Of(fn(&Scenario) -> bool),
    /// Of these, those in which a run has measured it.
    IfMeasured(fn(&Scenario) -> bool),
    /// None: other figures are made of it.
    Never,
}

impl PartialEq for Metric {
    fn eq(&self, other: &Metric) -> bool {
        self.name == other.name
    }
}

impl Eq for Metric {}

/// Its name.
impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl Metric {
    /// What most rows have in common: a time of transfers, which nothing else is made of.
    const ROW: Metric = Metric {
        name: "",
        key: "",
        title: "",
        meaning: "",
        quantity: Quantity::Duration,
        better: Better::Less,
        sample: Sample::Transfers,
        shown: Shown::Never,
        column: None,
        compared: None,
        has_gain: false,
        values: |_, _| Vec::new(),
    };

    /// The same of flows that send for a time.
    const OF_RUNS: Metric = Metric { sample: Sample::Runs, ..Metric::ROW };

    /// The one with this name.
    pub fn named(name: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// Those that a report on `scenario` has tables of, the most honest first.
    pub fn shown_in(scenario: &Scenario, summary: &Summary) -> Vec<&'static Metric> {
        METRICS.iter().filter(|metric| metric.is_shown_in(scenario, summary)).collect()
    }

    fn is_shown_in(&self, scenario: &Scenario, summary: &Summary) -> bool {
        match self.shown {
            Shown::Of(wanted) => wanted(scenario),
            Shown::IfMeasured(wanted) => {
                let mut variants = summary.cells.iter().flat_map(|cell| &cell.variants);
                wanted(scenario) && variants.any(|variant| variant.stats(self).is_some())
            }
            Shown::Never => false,
        }
    }

    /// The numbers that one run gave, whose data went in this direction; none if it does not measure this.
    pub fn values(&self, run: &Measurement, direction: Direction) -> Vec<f64> {
        (self.values)(run, direction)
    }

    /// The gain that stands beside it, if one does.
    pub fn gain(&self, summary: &VariantSummary) -> Option<Gain> {
        summary.gain.filter(|_| self.has_gain)
    }

    /// How many times as good `one` is as `other`.
    pub fn factor(&self, one: f64, other: f64) -> f64 {
        match self.better {
            Better::More => one / other,
            Better::Less => other / one,
        }
    }
}

/// See [`METRICS`].
pub const GOODPUT: Metric = Metric {
    name: "goodput",
    key: "goodput_bps",
    title: "Goodput",
    meaning: "What the receiving application read per second, warm-up left out, all flows together.",
    quantity: Quantity::Rate,
    better: Better::More,
    shown: Shown::Of(has_bulk),
    column: Some(("goodput_bps", "bit/s")),
    compared: Some("goodput"),
    has_gain: true,
    values: |run, _| each(run.bulk(), |bulk| bulk.goodput_bps),
    ..Metric::OF_RUNS
};

/// See [`METRICS`].
pub const ACKNOWLEDGED_RATE: Metric = Metric {
    name: "acknowledged-rate",
    key: "acknowledged_bps",
    title: "Rate acknowledged to the sender",
    meaning: "What the next hop's TCP acknowledged per second, with a proxy the proxy's: what a sender sees.",
    quantity: Quantity::Rate,
    better: Better::More,
    column: Some(("acknowledged_bps", "bit/s")),
    values: |run, _| each(run.bulk(), |bulk| bulk.acknowledged_bps),
    ..Metric::OF_RUNS
};

/// See [`METRICS`].
pub const QUEUEING: Metric = Metric {
    name: "queueing",
    key: "queueing.mean_s",
    title: "Queueing delay, mean",
    meaning: QUEUEING_MEANING,
    shown: Shown::Of(has_radio_queue),
    values: |run, direction| of_queue(run, direction, |_, delay| delay.mean_us / 1e6),
    ..Metric::OF_RUNS
};

/// See [`METRICS`].
pub const QUEUEING95: Metric = Metric {
    name: "queueing95",
    key: "queueing.p95_s",
    title: "Queueing delay, 95th percentile",
    meaning: QUEUEING_MEANING,
    shown: Shown::Of(has_radio_queue),
    compared: Some("95 % delay, inverse"),
    values: |run, direction| of_queue(run, direction, |_, delay| delay.p95_us / 1e6),
    ..Metric::OF_RUNS
};

const QUEUEING_MEANING: &str = "Of the data's packets on the access link: from coming to it until \
                                having left it, less its fixed delay. Transmission is in it.";

/// See [`METRICS`]. The `natcp` paper, section 1.
pub const POWER: Metric = Metric {
    name: "power",
    key: "queueing.power",
    title: "Power, Mbit/s over mean queueing delay in s",
    meaning: "Goodput over the mean queueing delay, in bit/s per second.",
    quantity: Quantity::Count,
    better: Better::More,
    compared: Some("power"),
    values: |run, direction| {
        of_queue(run, direction, |bulk, delay| bulk.goodput_bps / (delay.mean_us / 1e6))
    },
    ..Metric::OF_RUNS
};

/// See [`METRICS`].
pub const POWER95: Metric = Metric {
    name: "power95",
    key: "queueing.power95",
    title: "Power at the 95th percentile",
    meaning: "Goodput over the 95th percentile of the queueing delay, in bit/s per second.",
    compared: Some("power at 95 %"),
    values: |run, direction| {
        of_queue(run, direction, |bulk, delay| bulk.goodput_bps / (delay.p95_us / 1e6))
    },
    ..POWER
};

/// See [`METRICS`].
pub const RECEIVED: Metric = Metric {
    name: "received",
    key: "transfers.received_s",
    title: "Time to last byte received",
    meaning: "From the call of connect until the receiving application had read the last byte: \
              the honest end-to-end time.",
    shown: Shown::Of(|scenario| has(scenario, |spec| !matches!(spec.workload, Workload::Bulk(_)))),
    has_gain: true,
    values: |run, _| each(run.transfers(), |transfer| transfer.received_s),
    ..Metric::ROW
};

/// See [`METRICS`].
pub const RETRANSMITTED: Metric = Metric {
    name: "retransmitted",
    key: "sender_retransmits",
    title: "Segments retransmitted by the server",
    meaning: "Over a run's pages, by TCP_INFO of the server's connections.",
    quantity: Quantity::Count,
    shown: Shown::Of(has_pages),
    values: |run, _| vec![run.sender_retransmits as f64],
    ..Metric::ROW
};

/// All metrics, in the order in which reports have them.
pub static METRICS: &[Metric] = &[
    GOODPUT,
    ACKNOWLEDGED_RATE,
    Metric {
        name: "fairness",
        key: "fairness",
        title: "Jain's fairness index",
        meaning: "Over the goodput of all flows: 1 if all have the same, 1 over their number if one has \
                  everything.",
        quantity: Quantity::Index,
        better: Better::More,
        shown: Shown::Of(|scenario| has_bulk(scenario) && has_cells(scenario)),
        column: Some(("fairness", "")),
        values: |run, _| run.bulk().and_then(BulkRecord::fairness).into_iter().collect(),
        ..Metric::OF_RUNS
    },
    QUEUEING,
    QUEUEING95,
    POWER,
    POWER95,
    Metric {
        name: "held",
        key: "held.mean_s",
        title: "Time in the proxy, mean",
        meaning: HELD_MEANING,
        shown: Shown::IfMeasured(asks_what_is_held),
        values: |run, _| each(held(run), |held| held.mean_us / 1e6),
        ..Metric::OF_RUNS
    },
    Metric {
        name: "held95",
        key: "held.p95_s",
        title: "Time in the proxy, 95th percentile",
        meaning: HELD_MEANING,
        shown: Shown::IfMeasured(asks_what_is_held),
        values: |run, _| each(held(run), |held| held.p95_us / 1e6),
        ..Metric::OF_RUNS
    },
    Metric {
        name: "cut-goodput",
        key: "cuts.goodput_bps",
        title: "Goodput while feedback is cut",
        meaning: "What the receiving application read per second over each cut.",
        quantity: Quantity::Rate,
        better: Better::More,
        shown: Shown::Of(has_cuts),
        values: |run, _| each(cuts(run), |cut| cut.goodput_bps),
        ..Metric::OF_RUNS
    },
    Metric {
        name: "cut-silence",
        key: "cuts.silence_s",
        title: "Longest silence while feedback is cut",
        meaning: "For how long it read nothing at worst, over each cut.",
        shown: Shown::Of(has_cuts),
        values: |run, _| each(cuts(run), |cut| cut.silence_s),
        ..Metric::OF_RUNS
    },
    Metric {
        name: "cut-before",
        key: "cuts.before_s",
        title: "Queueing delay before a cut, 95th percentile",
        meaning: "Of the data's packets over the second before each cut of feedback.",
        shown: Shown::Of(has_cuts),
        values: |run, _| cuts(run).iter().filter_map(CutRecord::before95_s).collect(),
        ..Metric::OF_RUNS
    },
    Metric {
        name: "cut-during",
        key: "cuts.during_s",
        title: "Queueing delay at the end of a cut, 95th percentile",
        meaning: "Of the data's packets over the last second of each cut of feedback.",
        // Records of before it was measured lack it.
        shown: Shown::IfMeasured(has_cuts),
        values: |run, _| cuts(run).iter().filter_map(CutRecord::during95_s).collect(),
        ..Metric::OF_RUNS
    },
    Metric {
        name: "cut-after",
        key: "cuts.after_s",
        title: "Queueing delay after a cut, 95th percentile",
        meaning: "Of the data's packets over the second that begins three periods after each cut of \
                  feedback.",
        shown: Shown::Of(has_cuts),
        values: |run, _| cuts(run).iter().filter_map(CutRecord::after95_s).collect(),
        ..Metric::OF_RUNS
    },
    Metric {
        name: "satisfied",
        key: "videos.satisfied",
        title: "Videos that satisfied, %",
        meaning: "Of a run's videos: began within eight seconds, and stood still no more than three times \
                  and no longer than two seconds in all.",
        quantity: Quantity::Count,
        better: Better::More,
        shown: Shown::Of(has_videos),
        column: Some(("satisfied", "%")),
        values: |run, _| run.satisfied().into_iter().collect(),
        ..Metric::ROW
    },
    Metric {
        name: "start",
        key: "videos.start_s",
        title: "Time until a video played",
        meaning: "From being told to play until there was enough to begin.",
        shown: Shown::Of(has_videos),
        values: |run, _| run.videos().iter().filter_map(|video| video.start_s).collect(),
        ..Metric::ROW
    },
    Metric {
        name: "stalls",
        key: "videos.stalls",
        title: "Times that a video stood still",
        meaning: "After it had begun, for want of data.",
        quantity: Quantity::Count,
        shown: Shown::Of(has_videos),
        values: |run, _| each(run.videos(), |video| f64::from(video.stalls)),
        ..Metric::ROW
    },
    Metric {
        name: "stalled",
        key: "videos.stalled_s",
        title: "Time that a video stood still",
        meaning: "After it had begun, for want of data, in all.",
        shown: Shown::Of(has_videos),
        values: |run, _| each(run.videos(), |video| video.stalled_s),
        ..Metric::ROW
    },
    RECEIVED,
    Metric {
        name: "closed",
        key: "transfers.closed_s",
        title: "Time to orderly close",
        meaning: "From the call of connect until the initiator's connection had closed in order, \
                  both directions.",
        shown: Shown::Of(has_transfers),
        values: |run, _| each(run.transfers(), |transfer| transfer.closed_s),
        ..Metric::ROW
    },
    Metric {
        name: "acknowledged",
        key: "transfers.acknowledged_s",
        title: "Time to last byte acknowledged",
        meaning: "From the call of connect until the sender's TCP had its last byte acknowledged. \
                  A proxy acknowledges before the far application has anything.",
        shown: Shown::Of(has_transfers),
        values: |run, _| each(run.transfers(), |transfer| transfer.acknowledged_s),
        ..Metric::ROW
    },
    Metric {
        name: "connected",
        key: "transfers.connected_s",
        title: "Time to connect",
        meaning: "From the call of connect until it returned.",
        values: |run, _| each(run.transfers(), |transfer| transfer.connected_s),
        ..Metric::ROW
    },
    Metric {
        name: "object",
        key: "pages.object_s",
        title: "Time to an object of a page",
        meaning: "From the request of an object that the page's document names until the client had it, \
                  over all objects.",
        shown: Shown::Of(has_pages),
        values: |run, _| run.pages().iter().flat_map(|page| page.objects_s.clone()).collect(),
        ..Metric::ROW
    },
    Metric {
        name: "sending-rate",
        key: "pages.rate_bps",
        title: "Sending rate, median",
        meaning: "The median over a page's time of the rate that the sender's congestion control allowed, \
                  in bits of payload. Controls that set none have none.",
        quantity: Quantity::Rate,
        better: Better::More,
        shown: Shown::Of(has_pages),
        values: |run, _| run.pages().iter().filter_map(PageRecord::median_rate_bps).collect(),
        ..Metric::ROW
    },
    Metric {
        name: "policed",
        key: "pages.policed",
        title: "Packets dropped by the policer",
        meaning: "Packets to the UE that a policer dropped while a page was fetched.",
        quantity: Quantity::Count,
        shown: Shown::Of(has_pages),
        values: |run, _| each(run.pages(), |page| page.policed() as f64),
        ..Metric::ROW
    },
    RETRANSMITTED,
];

const HELD_MEANING: &str = "From when the proxy's kernel had the data in order on one leg until it was first sent on \
                            the other: the buffers of both sockets and its own.";

fn each<'a, T: 'a>(all: impl IntoIterator<Item = &'a T>, value: fn(&T) -> f64) -> Vec<f64> {
    all.into_iter().map(value).collect()
}

fn held(run: &Measurement) -> Option<&DelayRecord> {
    run.bulk()?.held.as_ref()
}

fn cuts(run: &Measurement) -> &[CutRecord] {
    run.bulk().map_or(&[], |bulk| &bulk.cuts)
}

/// What never waited has no power.
fn of_queue(
    run: &Measurement,
    direction: Direction,
    value: fn(&BulkRecord, &DelayRecord) -> f64,
) -> Vec<f64> {
    let values = run.bulk().zip(run.queueing(direction)).map(|(bulk, delay)| value(bulk, delay));
    values.into_iter().filter(|value| value.is_finite()).collect()
}

fn has(scenario: &Scenario, wanted: fn(&CellSpec) -> bool) -> bool {
    scenario.cells().iter().any(|cell| wanted(&cell.spec))
}

fn has_bulk(scenario: &Scenario) -> bool {
    has(scenario, |spec| matches!(spec.workload, Workload::Bulk(_)))
}

fn has_transfers(scenario: &Scenario) -> bool {
    has(scenario, |spec| matches!(spec.workload, Workload::Transfer(_)))
}

/// Pages whose single ones records tell of, which those of many users do not.
fn has_pages(scenario: &Scenario) -> bool {
    has(scenario, |spec| matches!(spec.workload, Workload::Page(_))) && !has_cells(scenario)
}

fn has_videos(scenario: &Scenario) -> bool {
    has(scenario, |spec| matches!(spec.workload, Workload::Video(_)))
}

fn has_cells(scenario: &Scenario) -> bool {
    has(scenario, |spec| spec.cells.is_some())
}

fn has_cuts(scenario: &Scenario) -> bool {
    has(scenario, |spec| spec.cuts().is_some())
}

/// Whether data waits for a cellular link, so that how long it does is worth a table.
fn has_radio_queue(scenario: &Scenario) -> bool {
    has(scenario, |spec| {
        matches!(spec.workload, Workload::Bulk(_))
            && (spec.cells.is_some() || spec.path.access.traces().next().is_some())
    })
}

/// Whether it is a question how much a relay holds.
fn asks_what_is_held(scenario: &Scenario) -> bool {
    has_radio_queue(scenario) || has(scenario, |spec| spec.relay.read_ahead.is_some())
}
