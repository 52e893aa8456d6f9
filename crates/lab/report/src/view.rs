//! What the table, the plots and the verdict all look at: metrics, and a cell's entry in each.

use std::collections::{BTreeMap, BTreeSet};

use midspan_scenario::record::{CutRecord, Measurement, PageRecord, Record, Variant, VideoRecord};
use midspan_scenario::summary::{
    CellSummary, Counts, CutSummary, Gain, Summary, VariantSummary, Verdict,
};
use midspan_scenario::{Direction, Scenario, Stats, Workload};

use crate::number::{Quantity, shortest};

/// Something that runs measure, one number or several a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// What the receiving application read in a time.
    Goodput,
    /// How equal the flows' shares are.
    Fairness,
    /// How long packets waited on the access link, on the mean.
    Queueing,
    /// The same at the 95th percentile.
    Queueing95,
    /// How long the proxy held the data, on the mean.
    Held,
    /// The same at the 95th percentile.
    Held95,
    /// What came in while feedback was cut.
    CutGoodput,
    /// For how long nothing came in, at worst.
    CutSilence,
    /// How long the data waited before feedback was cut.
    CutBefore,
    /// At the end of the cut.
    CutDuring,
    /// And once feedback was back.
    CutAfter,
    /// Until the receiving application had the last byte.
    Received,
    /// Until the initiator's connection had closed in order.
    Closed,
    /// Until the sender's last byte was acknowledged.
    Acknowledged,
    /// Until a web page's object was there.
    Object,
    /// What a web page's sender was allowed to send.
    SendingRate,
    /// Packets of a web page that a policer dropped.
    Policed,
    /// Segments of a web page that its sender's TCP sent again.
    Retransmitted,
    /// Videos that satisfied their users, of a hundred.
    Satisfied,
    /// Until a video played.
    Start,
    /// How often a video stood still.
    Stalls,
    /// For how long in all.
    Stalled,
}

impl Metric {
    /// What the scenario's workloads measure, the most honest first.
    pub(crate) fn all_of(scenario: &Scenario, summary: &Summary) -> Vec<Metric> {
        let has = |wanted: fn(&Workload) -> bool| {
            scenario.cells().iter().any(|cell| wanted(&cell.spec.workload))
        };
        let mut metrics = Vec::new();
        if has(|workload| matches!(workload, Workload::Bulk(_))) {
            metrics.push(Metric::Goodput);
        }
        if has_cells(scenario) && metrics.contains(&Metric::Goodput) {
            metrics.push(Metric::Fairness);
        }
        if has_radio_queue(scenario) {
            metrics.extend([Metric::Queueing, Metric::Queueing95]);
        }
        if has_radio_queue(scenario) || sets_read_ahead(scenario) {
            let mut variants = summary.cells.iter().flat_map(|cell| &cell.variants);
            if variants.any(|variant| variant.held.is_some()) {
                metrics.extend([Metric::Held, Metric::Held95]);
            }
        }
        if scenario.cells().iter().any(|cell| cell.spec.cuts().is_some()) {
            metrics.extend([Metric::CutGoodput, Metric::CutSilence]);
            metrics.push(Metric::CutBefore);
            // Records of before it was measured lack it.
            let mut variants = summary.cells.iter().flat_map(|cell| &cell.variants);
            let measured = |cuts: &CutSummary| cuts.during_s.is_some();
            if variants.any(|variant| variant.cuts.as_ref().is_some_and(measured)) {
                metrics.push(Metric::CutDuring);
            }
            metrics.push(Metric::CutAfter);
        }
        if has(|workload| matches!(workload, Workload::Transfer(_))) {
            metrics.extend([Metric::Received, Metric::Closed, Metric::Acknowledged]);
        }
        if has(|workload| matches!(workload, Workload::Page(_))) {
            metrics.push(Metric::Received);
            if !has_cells(scenario) {
                metrics.extend([Metric::Object, Metric::SendingRate]);
                metrics.extend([Metric::Policed, Metric::Retransmitted]);
            }
        }
        if has(|workload| matches!(workload, Workload::Video(_))) {
            metrics.extend([Metric::Satisfied, Metric::Start, Metric::Stalls, Metric::Stalled]);
            metrics.push(Metric::Received);
        }
        metrics
    }

    /// Whether flows that send for a time have it, and not transfers.
    pub(crate) fn is_of_bulk(self) -> bool {
        matches!(
            self,
            Metric::Goodput
                | Metric::Fairness
                | Metric::Queueing
                | Metric::Queueing95
                | Metric::Held
                | Metric::Held95
                | Metric::CutGoodput
                | Metric::CutSilence
                | Metric::CutBefore
                | Metric::CutDuring
                | Metric::CutAfter
        )
    }

    pub(crate) fn quantity(self) -> Quantity {
        match self {
            Metric::Goodput | Metric::CutGoodput | Metric::SendingRate => Quantity::Rate,
            Metric::Fairness => Quantity::Index,
            Metric::Policed | Metric::Retransmitted | Metric::Satisfied | Metric::Stalls => {
                Quantity::Count
            }
            Metric::Queueing
            | Metric::Queueing95
            | Metric::Held
            | Metric::Held95
            | Metric::CutSilence
            | Metric::CutBefore
            | Metric::CutDuring
            | Metric::CutAfter
            | Metric::Received
            | Metric::Closed
            | Metric::Acknowledged
            | Metric::Object
            | Metric::Start
            | Metric::Stalled => Quantity::Duration,
        }
    }

    /// In a few words, for titles.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Metric::Goodput => "Goodput",
            Metric::Fairness => "Jain's fairness index",
            Metric::Queueing => "Queueing delay, mean",
            Metric::Queueing95 => "Queueing delay, 95th percentile",
            Metric::Held => "Time in the proxy, mean",
            Metric::Held95 => "Time in the proxy, 95th percentile",
            Metric::CutGoodput => "Goodput while feedback is cut",
            Metric::CutSilence => "Longest silence while feedback is cut",
            Metric::CutBefore => "Queueing delay before a cut, 95th percentile",
            Metric::CutDuring => "Queueing delay at the end of a cut, 95th percentile",
            Metric::CutAfter => "Queueing delay after a cut, 95th percentile",
            Metric::Received => "Time to last byte received",
            Metric::Closed => "Time to orderly close",
            Metric::Acknowledged => "Time to last byte acknowledged",
            Metric::Object => "Time to an object of a page",
            Metric::SendingRate => "Sending rate, median",
            Metric::Policed => "Packets dropped by the policer",
            Metric::Retransmitted => "Segments retransmitted by the server",
            Metric::Satisfied => "Videos that satisfied, %",
            Metric::Start => "Time until a video played",
            Metric::Stalls => "Times that a video stood still",
            Metric::Stalled => "Time that a video stood still",
        }
    }

    /// What exactly is measured, in a sentence.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Metric::Goodput => {
                "What the receiving application read per second, warm-up left out, all flows \
                 together."
            }
            Metric::Fairness => {
                "Over the goodput of all flows: 1 if all have the same, 1 over their number if one has \
                 everything."
            }
            Metric::Queueing | Metric::Queueing95 => {
                "Of the data's packets on the access link: from coming to it until having left it, less \
                 its fixed delay. Transmission is in it."
            }
            Metric::Held | Metric::Held95 => {
                "From when the proxy's kernel had the data in order on one leg until it was first sent on the other: \
                 the buffers of both sockets and its own."
            }
            Metric::CutGoodput => "What the receiving application read per second over each cut.",
            Metric::CutSilence => "For how long it read nothing at worst, over each cut.",
            Metric::CutBefore => {
                "Of the data's packets over the second before each cut of feedback."
            }
            Metric::CutDuring => {
                "Of the data's packets over the last second of each cut of feedback."
            }
            Metric::CutAfter => {
                "Of the data's packets over the second that begins three periods after each cut of \
                 feedback."
            }
            Metric::Received => {
                "From the call of connect until the receiving application had read the last byte: \
                 the honest end-to-end time."
            }
            Metric::Closed => {
                "From the call of connect until the initiator's connection had closed in order, \
                 both directions."
            }
            Metric::Acknowledged => {
                "From the call of connect until the sender's TCP had its last byte acknowledged. \
                 A proxy acknowledges before the far application has anything."
            }
            Metric::Object => {
                "From the request of an object that the page's document names until the client had it, \
                 over all objects."
            }
            Metric::SendingRate => {
                "The median over a page's time of the rate that the sender's congestion control allowed, \
                 in bits of payload. Controls that set none have none."
            }
            Metric::Policed => "Packets to the UE that a policer dropped while a page was fetched.",
            Metric::Retransmitted => "Over a run's pages, by TCP_INFO of the server's connections.",
            Metric::Satisfied => {
                "Of a run's videos: began within eight seconds, and stood still no more than three times \
                 and no longer than two seconds in all."
            }
            Metric::Start => "From being told to play until there was enough to begin.",
            Metric::Stalls => "After it had begun, for want of data.",
            Metric::Stalled => "After it had begun, for want of data, in all.",
        }
    }

    /// The gain that belongs to this metric. It is computed end to end, so the times that a proxy
    /// may cut short by acknowledging early have none.
    pub(crate) fn gain(self, summary: &VariantSummary) -> Option<Gain> {
        match self {
            Metric::Goodput | Metric::Received => summary.gain,
            Metric::Fairness
            | Metric::Queueing
            | Metric::Queueing95
            | Metric::Held
            | Metric::Held95
            | Metric::CutGoodput
            | Metric::CutSilence
            | Metric::CutBefore
            | Metric::CutDuring
            | Metric::CutAfter
            | Metric::Closed
            | Metric::Acknowledged
            | Metric::Object
            | Metric::SendingRate
            | Metric::Policed
            | Metric::Retransmitted
            | Metric::Satisfied
            | Metric::Start
            | Metric::Stalls
            | Metric::Stalled => None,
        }
    }

    fn stats(self, summary: &VariantSummary) -> Option<Stats> {
        match self {
            Metric::Goodput => summary.goodput_bps,
            Metric::Fairness => summary.fairness,
            Metric::Queueing => Some(summary.queueing?.mean_s),
            Metric::Queueing95 => Some(summary.queueing?.p95_s),
            Metric::Held => Some(summary.held?.mean_s),
            Metric::Held95 => Some(summary.held?.p95_s),
            Metric::CutGoodput => Some(summary.cuts?.goodput_bps),
            Metric::CutSilence => Some(summary.cuts?.silence_s),
            Metric::CutBefore => summary.cuts?.before_s,
            Metric::CutDuring => summary.cuts?.during_s,
            Metric::CutAfter => summary.cuts?.after_s,
            Metric::Received => Some(summary.transfers?.received_s),
            Metric::Closed => Some(summary.transfers?.closed_s),
            Metric::Acknowledged => Some(summary.transfers?.acknowledged_s),
            Metric::Object => summary.pages?.object_s,
            Metric::SendingRate => summary.pages?.rate_bps,
            Metric::Policed => Some(summary.pages?.policed),
            Metric::Retransmitted => summary.pages.and(summary.sender_retransmits),
            Metric::Satisfied => Some(summary.videos?.satisfied),
            Metric::Start => summary.videos?.start_s,
            Metric::Stalls => Some(summary.videos?.stalls),
            Metric::Stalled => Some(summary.videos?.stalled_s),
        }
    }

    /// The numbers that one run gave.
    fn values(self, run: &Measurement, direction: Direction) -> Vec<f64> {
        let times = |time: fn(&midspan_scenario::record::TransferRecord) -> f64| {
            run.transfers.iter().map(time).collect()
        };
        let waited = |value: fn(&midspan_scenario::record::DelayRecord) -> f64| {
            run.queueing(direction).map(value).into_iter().collect()
        };
        let held = |micros: fn(&midspan_scenario::record::DelayRecord) -> f64| {
            run.held.as_ref().map(|held| micros(held) / 1e6).into_iter().collect()
        };
        let of_cuts =
            |value: fn(&CutRecord) -> Option<f64>| run.cuts.iter().filter_map(value).collect();
        let of_videos = |value: fn(&VideoRecord) -> f64| run.videos.iter().map(value).collect();
        match self {
            Metric::Goodput if run.transfers.is_empty() => vec![run.goodput_bps],
            Metric::Goodput => Vec::new(),
            Metric::Fairness => run.fairness().into_iter().collect(),
            Metric::Queueing => waited(|delay| delay.mean_us / 1e6),
            Metric::Queueing95 => waited(|delay| delay.p95_us / 1e6),
            Metric::Held => held(|held| held.mean_us),
            Metric::Held95 => held(|held| held.p95_us),
            Metric::CutGoodput => of_cuts(|cut| Some(cut.goodput_bps)),
            Metric::CutSilence => of_cuts(|cut| Some(cut.silence_s)),
            Metric::CutBefore => of_cuts(CutRecord::before95_s),
            Metric::CutDuring => of_cuts(CutRecord::during95_s),
            Metric::CutAfter => of_cuts(CutRecord::after95_s),
            Metric::Received => times(|transfer| transfer.received_s),
            Metric::Closed => times(|transfer| transfer.closed_s),
            Metric::Acknowledged => times(|transfer| transfer.acknowledged_s),
            Metric::Object => run.pages.iter().flat_map(|page| page.objects_s.clone()).collect(),
            Metric::SendingRate => {
                run.pages.iter().filter_map(PageRecord::median_rate_bps).collect()
            }
            Metric::Policed => run.pages.iter().map(|page| page.policed() as f64).collect(),
            Metric::Retransmitted if run.pages.is_empty() => Vec::new(),
            Metric::Retransmitted => vec![run.sender_retransmits as f64],
            Metric::Satisfied => run.satisfied().into_iter().collect(),
            Metric::Start => run.videos.iter().filter_map(|video| video.start_s).collect(),
            Metric::Stalls => of_videos(|video| f64::from(video.stalls)),
            Metric::Stalled => of_videos(|video| video.stalled_s),
        }
    }
}

/// Whether it is a question how much a relay holds.
fn sets_read_ahead(scenario: &Scenario) -> bool {
    scenario.cells().iter().any(|cell| cell.spec.relay.read_ahead.is_some())
}

/// Whether data waits for a cellular link, so that how long it does is worth a table.
fn has_radio_queue(scenario: &Scenario) -> bool {
    scenario.cells().iter().any(|cell| {
        matches!(cell.spec.workload, Workload::Bulk(_))
            && (cell.spec.cells.is_some() || cell.spec.path.access.traces().next().is_some())
    })
}

fn has_cells(scenario: &Scenario) -> bool {
    scenario.cells().iter().any(|cell| cell.spec.cells.is_some())
}

/// What there is to show for one variant in one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Entry {
    /// Trusted numbers.
    Measured(Stats),
    /// Too many runs were untrusted, its own or its cell's: no number is given.
    NotMeasurable,
    /// No run came to a trusted end.
    NoTrustedRun,
    /// Not run yet, not run in this cell, or not what its workload measures.
    Absent,
}

impl Entry {
    /// What `summary`, of a variant in a cell, has to show of `metric`.
    pub(crate) fn of(summary: Option<&VariantSummary>, metric: Metric) -> Entry {
        let Some(summary) = summary else { return Entry::Absent };
        if summary.counts.total() == 0 {
            return Entry::Absent;
        }
        if summary.verdict == Verdict::NotMeasurable {
            return Entry::NotMeasurable;
        }
        match metric.stats(summary) {
            Some(stats) => Entry::Measured(stats),
            None if summary.counts.measured == 0 => Entry::NoTrustedRun,
            None => Entry::Absent,
        }
    }

    /// In a table, instead of a number.
    pub(crate) fn instead(&self) -> &'static str {
        match self {
            Entry::Measured(_) | Entry::Absent => "–",
            Entry::NotMeasurable => "n/m",
            Entry::NoTrustedRun => "failed",
        }
    }

    /// In a plot, instead of a bar.
    pub(crate) fn spelled_out(&self) -> &'static str {
        match self {
            Entry::Measured(_) | Entry::Absent => "not run",
            Entry::NotMeasurable => "not measurable here",
            Entry::NoTrustedRun => "no run succeeded",
        }
    }
}

/// Each number that the measured runs of `variant` in a cell gave, in the runs' order. Of a run
/// that was repeated only the last record counts.
pub(crate) fn run_values(
    scenario: &Scenario,
    records: &[Record],
    labels: &BTreeMap<String, String>,
    variant: Variant,
    metric: Metric,
) -> Vec<f64> {
    let cell = scenario.cells().iter().find(|cell| cell.labels == *labels);
    let Some(direction) = cell.map(|cell| cell.spec.workload.direction()) else {
        return Vec::new();
    };
    let runs: BTreeMap<u32, &Record> = records
        .iter()
        .filter(|record| record.cell == *labels && record.variant == variant)
        .map(|record| (record.repetition, record))
        .collect();
    let measured = runs.values().filter_map(|record| record.measurement());
    let values = measured.flat_map(|run| metric.values(run, direction));
    values.filter(|value| value.is_finite()).collect()
}

/// A paper's number on a plot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    /// As the paper states it.
    Stated(f64),
    /// The paper states a gain: that multiple of the number without a proxy, the paper's if it
    /// states one, else ours.
    FromGain(f64),
}

impl Mark {
    /// Where it stands.
    pub(crate) fn value(self) -> f64 {
        match self {
            Mark::Stated(value) | Mark::FromGain(value) => value,
        }
    }
}

/// What a paper reports for one variant in one cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Paper {
    /// Goodput in bit/s, as stated.
    pub(crate) goodput: Option<f64>,
    /// Factor over no proxy, as stated.
    pub(crate) gain: Option<f64>,
    /// What the scenario says of these numbers.
    pub(crate) notes: Vec<String>,
}

impl Paper {
    pub(crate) fn of(summary: &VariantSummary) -> Paper {
        let reported = &summary.reported;
        Paper {
            goodput: reported.iter().find_map(|one| one.goodput).map(|rate| rate.as_bps() as f64),
            gain: reported.iter().find_map(|one| one.gain),
            notes: reported.iter().filter_map(|one| one.note.clone()).collect(),
        }
    }

    /// The goodput in Mbit/s, as the paper prints it.
    pub(crate) fn goodput_text(&self) -> Option<String> {
        self.goodput.map(|bps| shortest(bps / 1e6))
    }

    /// The gain, as the paper prints it.
    pub(crate) fn gain_text(&self) -> Option<String> {
        self.gain.map(|gain| format!("{} x", shortest(gain)))
    }

    /// `paper: 949 Mbit/s, gain 7 x`, and its notes.
    pub(crate) fn in_words(&self) -> String {
        let numbers = [
            self.goodput_text().map(|goodput| format!("{goodput} Mbit/s")),
            self.gain_text().map(|gain| format!("gain {gain}")),
        ];
        let mut parts: Vec<String> = numbers.into_iter().flatten().collect();
        parts.extend(self.notes.iter().cloned());
        format!("paper: {}", parts.join(", "))
    }

    /// Whether there is a number.
    pub(crate) fn has_number(&self) -> bool {
        self.goodput.is_some() || self.gain.is_some()
    }

    /// Where the paper's mark stands on a plot of goodput.
    pub(crate) fn mark(&self, cell: &CellSummary) -> Option<Mark> {
        let baseline = || {
            let none = cell.variant(Variant::None)?;
            let ours = match Entry::of(Some(none), Metric::Goodput) {
                Entry::Measured(stats) => Some(stats.mean),
                _ => None,
            };
            Paper::of(none).goodput.or(ours)
        };
        let stated = self.goodput.map(Mark::Stated);
        stated.or_else(|| Some(Mark::FromGain(self.gain? * baseline()?)))
    }
}

/// A cell's point on every axis, in words: `0.5 % loss, 1 ms proxy rtt (upload)`. Empty without a
/// sweep.
pub(crate) fn cell_name(scenario: &Scenario, labels: &BTreeMap<String, String>) -> String {
    let points = || scenario.axes.iter().filter_map(|axis| Some((axis, labels.get(&axis.name)?)));
    let (directions, others): (Vec<_>, Vec<_>) =
        points().partition(|(axis, _)| axis.name == DIRECTION);
    let others: Vec<String> =
        others.iter().map(|(axis, label)| format!("{label} {}", axis_name(&axis.name))).collect();
    let mut name = others.join(", ");
    for (_, direction) in directions {
        let space = if name.is_empty() { "" } else { " " };
        name.push_str(&format!("{space}({direction})"));
    }
    name
}

/// The axis whose labels need no name beside them: `upload`, `download`.
pub(crate) const DIRECTION: &str = "direction";

/// An axis' name as prose.
pub(crate) fn axis_name(axis: &str) -> String {
    axis.replace('_', " ")
}

/// Who sends, if it is the same in all of the scenario's cells.
pub(crate) fn common_direction(scenario: &Scenario) -> Option<Direction> {
    let mut directions = scenario.cells().iter().map(|cell| cell.spec.workload.direction());
    let first = directions.next()?;
    directions.all(|direction| direction == first).then_some(first)
}

/// What must be said of runs that gave no number: one sentence for each cell and cause.
pub(crate) fn troubles(scenario: &Scenario, summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    for cell in &summary.cells {
        let name = cell_name(scenario, &cell.labels);
        if cell.verdict == Verdict::NotMeasurable {
            let reasons = cell.variants.iter().flat_map(|variant| &variant.untrusted_reasons);
            let place = if name.is_empty() { String::new() } else { format!("{name}: ") };
            sentences.push(format!("{place}{}", not_measurable(cell.counts, reasons)));
            if cell.counts.failed > 0 {
                let reasons = cell.variants.iter().flat_map(|variant| &variant.failed_reasons);
                let failed = kind(cell.counts.failed, cell.counts.total(), "failed", reasons);
                sentences.push(format!("{place}{failed}"));
            }
            continue;
        }
        for variant in &cell.variants {
            let place = [name.as_str(), variant_name(variant.variant)];
            let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
            if let Some(what) = trouble(variant) {
                sentences.push(format!("{}: {what}", place.join(", ")));
            }
        }
    }
    sentences
}

/// `not measurable here: 3 of 9 runs untrusted: emulator p99 lateness 240 us`.
pub(crate) fn not_measurable<'a>(
    counts: Counts,
    reasons: impl IntoIterator<Item = &'a String>,
) -> String {
    format!(
        "not measurable here: {} of {} runs untrusted{}",
        counts.untrusted,
        counts.total(),
        listed(reasons)
    )
}

fn trouble(variant: &VariantSummary) -> Option<String> {
    let counts = variant.counts;
    let kinds = [
        (counts.untrusted, "untrusted", &variant.untrusted_reasons),
        (counts.failed, "failed", &variant.failed_reasons),
    ];
    let said: Vec<String> = kinds
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, name, reasons)| kind(count, counts.total(), name, reasons))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// `2 of 9 runs failed: address already in use`.
fn kind<'a>(
    count: u32,
    total: u32,
    name: &str,
    reasons: impl IntoIterator<Item = &'a String>,
) -> String {
    format!("{count} of {total} runs {name}{}", listed(reasons))
}

/// One of `reasons` after a colon, and how many others there are.
fn listed<'a>(reasons: impl IntoIterator<Item = &'a String>) -> String {
    let all: BTreeSet<&str> = reasons.into_iter().map(String::as_str).collect();
    let Some(first) = all.first() else { return String::new() };
    match all.len() - 1 {
        0 => format!(": {first}"),
        1 => format!(": {first}; and one more reason like it"),
        more => format!(": {first}; and {more} more reasons like it"),
    }
}

/// What a reader calls a variant.
pub(crate) fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::None => "no proxy",
        Variant::Midspan => "Midspan",
        Variant::Haproxy => "HAProxy",
    }
}
