//! Curves of a real kernel beside our own runs, cell by cell.
//!
//! The curves come as CSV, one run a row, with the conditions of the run spelt out. A cell of a
//! scenario is matched with the row of the same conditions by what its path is made of, not by
//! labels. Matched are single unpaced uploads over a rate-limited queue, then loss or late packets,
//! then delay, with buffers that do not limit; nothing else has a row.

use midspan_path::{ElementSpec, LinkSpec, RateSpec, Unit};
use midspan_units::{ByteSize, Rate, Share, Span};
use serde::Serialize;
use std::collections::BTreeMap;

use crate::metric::{ACKNOWLEDGED_RATE, RETRANSMITTED};
use crate::record::Variant;
use crate::summary::{CellSummary, Summary, VariantSummary};
use crate::{Buffers, Bulk, CellSpec, Direction, Error, Scenario, ServiceHost, Stats, Workload};

/// One run of the reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it ran over.
    pub conditions: Conditions,
    /// How long it was measured, warm-up left out.
    pub measured: Span,
    /// What arrived at the far end of the sender's own connection.
    pub goodput: Rate,
    /// The sender's retransmissions in the measured time.
    pub retransmits: u64,
}

/// What a single upload ran over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conditions {
    /// Of the one link that limits.
    pub rate: Rate,
    /// What the queue before it holds.
    pub queue: ByteSize,
    /// From end to end, without queueing.
    pub rtt: Span,
    /// From the sender to the box in the middle, without queueing.
    pub access_rtt: Span,
    /// Share of data packets lost, independently.
    pub loss: Share,
    /// Share of data packets held back, independently.
    pub late: Share,
    /// For how long; zero if none are.
    pub late_by: Span,
    /// What the box in the middle did.
    pub route: Route,
    /// The control of the sender, and of the proxy's onward leg.
    pub congestion_control: String,
}

/// What the box in the middle did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// It routed.
    Direct,
    /// It split the connection.
    Proxy,
}

/// A scenario's results beside the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Every cell and variant that has a row, in the sweep's order.
    pub pairs: Vec<Pair>,
    /// Every cell and proxy for which the reference has a row both with and without.
    pub contests: Vec<Contest>,
}

/// One cell and variant beside its row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Axis -> label.
    pub labels: BTreeMap<String, String>,
    /// Which of our variants.
    pub variant: Variant,
    /// The sender's congestion control, by the name that it had here.
    pub control: String,
    /// The reference's row.
    pub theirs: Row,
    /// Ours of [`ACKNOWLEDGED_RATE`], bit/s; none if no run was measured.
    pub ours: Option<Stats>,
    /// Our mean over theirs.
    pub ratio: Option<f64>,
    /// Standard error to expect of the ratio from the number of losses alone, where losses set the
    /// rate: 1 over the root of each side's retransmissions. None on paths without randomness.
    pub sampling_error: Option<f64>,
}

/// Whether a proxy helps, as the reference has it and as we have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contest {
    /// Axis -> label.
    pub labels: BTreeMap<String, String>,
    /// Which of our proxies.
    pub variant: Variant,
    /// The reference's goodput with a proxy over that without.
    pub theirs: f64,
    /// Ours; none if either was not measured.
    pub ours: Option<f64>,
    /// Whether the same side wins in both, a tenth or less being a draw; two factors within a tenth
    /// of each other agree even if only one of them passes that mark.
    pub same_winner: Option<bool>,
    /// Whether the two factors are within half an order of magnitude.
    pub same_order: Option<bool>,
}

/// A difference up to this factor decides nothing.
const DRAW: f64 = 1.1;

/// Sets the results of `scenario` beside the `rows` of the reference.
pub fn compare(rows: &[Row], scenario: &Scenario, summary: &Summary) -> Comparison {
    let mut comparison = Comparison { pairs: Vec::new(), contests: Vec::new() };
    for (cell, results) in scenario.cells().iter().zip(&summary.cells) {
        let of = |variant: Variant| {
            let conditions = Conditions::of(&cell.spec, variant)?;
            rows.iter().find(|row| row.conditions.same_as(&conditions))
        };
        let mine = |variant| results.variant(variant);
        comparison.pairs.extend(cell.variants.iter().filter_map(|&variant| {
            let control = cell.spec.hosts.ue.congestion_control.clone();
            Some(Pair::of(control, results, mine(variant)?, of(variant)?))
        }));
        let proxies = cell.variants.iter().filter(|variant| **variant != Variant::None);
        comparison.contests.extend(proxies.filter_map(|&variant| {
            let none = mine(Variant::None);
            Some(Contest::of(results, mine(variant)?, of(variant)?, none, of(Variant::None)?))
        }));
    }
    comparison
}

impl Pair {
    fn of(control: String, cell: &CellSummary, ours: &VariantSummary, theirs: &Row) -> Pair {
        let stats = ours.stats(&ACKNOWLEDGED_RATE);
        let goodput = theirs.goodput.as_bps() as f64;
        let random = theirs.conditions.loss > Share::ZERO || theirs.conditions.late > Share::ZERO;
        let our_retransmits =
            ours.stats(&RETRANSMITTED).map(|stats| stats.mean * f64::from(stats.n));
        let sampling_error = our_retransmits.filter(|_| random).map(|ours| {
            let theirs = theirs.retransmits as f64;
            (1.0 / theirs.max(1.0) + 1.0 / ours.max(1.0)).sqrt()
        });
        Pair {
            labels: cell.labels.clone(),
            variant: ours.variant,
            control,
            theirs: theirs.clone(),
            ours: stats,
            ratio: stats.filter(|_| goodput > 0.0).map(|stats| stats.mean / goodput),
            sampling_error,
        }
    }
}

impl Contest {
    fn of(
        cell: &CellSummary,
        proxied: &VariantSummary,
        their_proxied: &Row,
        direct: Option<&VariantSummary>,
        their_direct: &Row,
    ) -> Contest {
        let mean = |summary: &VariantSummary| Some(summary.stats(&ACKNOWLEDGED_RATE)?.mean);
        let theirs = their_proxied.goodput.as_bps() as f64 / their_direct.goodput.as_bps() as f64;
        let ours = mean(proxied)
            .zip(direct.and_then(mean))
            .map(|(proxied, direct)| proxied / direct)
            .filter(|factor| factor.is_finite() && *factor > 0.0);
        let apart = |ours: f64| (ours / theirs).max(theirs / ours);
        Contest {
            labels: cell.labels.clone(),
            variant: proxied.variant,
            theirs,
            ours,
            same_winner: ours.map(|ours| winner(ours) == winner(theirs) || apart(ours) <= DRAW),
            same_order: ours.map(|ours| apart(ours) <= 10f64.sqrt()),
        }
    }
}

/// Who wins with this factor of proxy over direct; none in a draw.
fn winner(factor: f64) -> Option<Route> {
    if factor > DRAW {
        Some(Route::Proxy)
    } else if factor < 1.0 / DRAW {
        Some(Route::Direct)
    } else {
        None
    }
}

impl Conditions {
    /// The conditions of a cell, if they are of the kind that the reference has.
    pub fn of(spec: &CellSpec, variant: Variant) -> Option<Conditions> {
        let Workload::Bulk(Bulk { direction: Direction::Upload, flows: 1, .. }) = spec.workload
        else {
            return None;
        };
        let hosts = &spec.hosts;
        let limited = [&hosts.ue, &hosts.mec, &hosts.server]
            .into_iter()
            .any(|host| host.buffers != Buffers::MAX);
        // The relay's own choices: a buffer that is set limits, as a host's does.
        let legs = [&spec.relay.client_leg, &spec.relay.server_leg];
        let relay_limits = variant == Variant::Midspan
            && (spec.relay.buffer.is_some()
                || spec.relay.read_ahead.is_some()
                || legs.into_iter().any(|leg| {
                    leg.receive_buffer.or(leg.send_buffer).or(leg.notsent_lowat).is_some()
                }));
        let route = if variant == Variant::None { Route::Direct } else { Route::Proxy };
        let onward = match variant {
            Variant::None => &hosts.ue.congestion_control,
            Variant::Midspan => {
                let own = spec.relay.server_leg.congestion_control.as_ref();
                own.unwrap_or(&hosts.mec.congestion_control)
            }
            Variant::Haproxy => &hosts.mec.congestion_control,
        };
        let others = [&spec.path.access.down, &spec.path.wide.up, &spec.path.wide.down];
        let only_delays = others.into_iter().flatten().all(is_delay);
        if limited
            || relay_limits
            || !only_delays
            || *onward != hosts.ue.congestion_control
            || spec.service.at != ServiceHost::Server
        {
            return None;
        }
        let access = Access::of(&spec.path.access)?;
        let control = &hosts.ue.congestion_control;
        Some(Conditions {
            rate: access.rate,
            queue: access.queue,
            rtt: spec.path.access.base_rtt() + spec.path.wide.base_rtt(),
            access_rtt: spec.path.access.base_rtt(),
            loss: access.loss,
            late: access.late,
            late_by: if access.late == Share::ZERO { Span::ZERO } else { access.late_by },
            route,
            // Midspan's own stand for the kernel's of the same name.
            congestion_control: control.strip_prefix("ms_").unwrap_or(control).to_owned(),
        })
    }

    /// Whether these are the same conditions. Rates may differ by 2 %, since some count Ethernet's
    /// header and others do not.
    fn same_as(&self, other: &Conditions) -> bool {
        let rates = self.rate.as_mbps() / other.rate.as_mbps();
        let same_rate = Conditions { rate: other.rate, ..self.clone() };
        (0.98..1.02).contains(&rates) && same_rate == *other
    }
}

/// What the access link's data direction does.
struct Access {
    rate: Rate,
    queue: ByteSize,
    loss: Share,
    late: Share,
    late_by: Span,
}

impl Access {
    fn of(link: &LinkSpec) -> Option<Access> {
        let [ElementSpec::Rate(RateSpec { rate, queue, aqm: None }), rest @ ..] = &link.up[..]
        else {
            return None;
        };
        let mut access = Access {
            rate: *rate,
            queue: queue.bytes.filter(|_| queue.packets.is_none())?,
            loss: Share::ZERO,
            late: Share::ZERO,
            late_by: Span::ZERO,
        };
        for element in rest {
            match element {
                ElementSpec::Delay(_) => {}
                ElementSpec::Loss(loss)
                    if loss.unit == Unit::Packet && access.loss == Share::ZERO =>
                {
                    access.loss = loss.share;
                }
                ElementSpec::Late(late)
                    if late.unit == Unit::Packet && access.late == Share::ZERO =>
                {
                    (access.late, access.late_by) = (late.share, late.by);
                }
                _ => return None,
            }
        }
        Some(access)
    }
}

fn is_delay(element: &ElementSpec) -> bool {
    matches!(element, ElementSpec::Delay(_))
}

const HEADER: &str = "rate_mbps,queue_bytes,rtt_ms,access_rtt_ms,loss_pct,late_share_of_10000,\
                      late_ms,path,cc,seconds,goodput_kbps,retransmits";

/// Reads the reference's CSV. `file` only names it in errors.
///
/// # Errors
/// The first line that is not a row, or a header other than the expected one.
pub fn parse_csv(text: &str, file: &str) -> Result<Vec<Row>, Error> {
    let error = |line: usize, what: String| Error { file: file.to_owned(), line, what };
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    match lines.next() {
        Some((_, HEADER)) => {}
        _ => return Err(error(1, format!("not the reference's columns, which are `{HEADER}`"))),
    }
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| row(line).map_err(|what| error(number, what)))
        .collect()
}

fn row(line: &str) -> Result<Row, String> {
    let fields: Vec<&str> = line.split(',').collect();
    let &[rate, queue, rtt, access_rtt, loss, late, late_by, path, control, seconds, goodput, lost] =
        &fields[..]
    else {
        return Err(format!("{} columns; there must be 12", fields.len()));
    };
    let positive =
        [(rate, "rate_mbps"), (rtt, "rtt_ms"), (seconds, "seconds"), (goodput, "goodput_kbps")];
    for (text, column) in positive {
        if number(text, column)? == 0.0 {
            return Err(format!("{column} is {text}; it must be above zero"));
        }
    }
    if number(access_rtt, "access_rtt_ms")? > number(rtt, "rtt_ms")? {
        return Err(format!("access_rtt_ms is {access_rtt}; it is a part of rtt_ms, {rtt}"));
    }
    let conditions = Conditions {
        rate: Rate::from_bps(scaled(rate, "rate_mbps", 1e6)?),
        queue: ByteSize::from_bytes(scaled(queue, "queue_bytes", 1.0)?),
        rtt: Span::from_nanos(scaled(rtt, "rtt_ms", 1e6)?),
        access_rtt: Span::from_nanos(scaled(access_rtt, "access_rtt_ms", 1e6)?),
        loss: share(loss, "loss_pct", 100.0)?,
        late: share(late, "late_share_of_10000", 10_000.0)?,
        late_by: Span::from_nanos(scaled(late_by, "late_ms", 1e6)?),
        route: match path {
            "direct" => Route::Direct,
            "proxy" => Route::Proxy,
            _ => return Err(format!("`{path}` is not a path; `direct` or `proxy` is")),
        },
        congestion_control: control.to_owned(),
    };
    Ok(Row {
        conditions,
        measured: Span::from_nanos(scaled(seconds, "seconds", 1e9)?),
        goodput: Rate::from_bps(scaled(goodput, "goodput_kbps", 1e3)?),
        retransmits: scaled(lost, "retransmits", 1.0)?,
    })
}

fn scaled(text: &str, column: &str, factor: f64) -> Result<u64, String> {
    Ok((number(text, column)? * factor).round() as u64)
}

fn share(text: &str, column: &str, whole: f64) -> Result<Share, String> {
    let part = number(text, column)?;
    if part > whole {
        return Err(format!("{column} is {text}; at most {whole} is all of it"));
    }
    Ok(Share::from_fraction(part / whole))
}

fn number(text: &str, column: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("{column} is `{text}`; it must be a number, zero or more"))
}
