//! The relay's numbers as OpenMetrics text.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use midspan_observe::{Distribution, Histogram};
use midspan_split::Leg;
use procfs::process::{LimitValue, Process};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::measures::LegMeasures;
use crate::source::{Counter, Source};
use crate::treatment::{SIZES, Treatment, TreatmentSnapshot};

/// Whatever is known now, as text.
pub(crate) fn expose(source: &Arc<dyn Source>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Numbers(source.clone())));
    let mut text = String::with_capacity(32 << 10);
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Numbers(Arc<dyn Source>);

impl Collector for Numbers {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.program(&mut page)?;
        self.process(&mut page)?;
        self.reloads(&mut page)?;
        self.counters(&mut page)?;
        self.ended_flows(&mut page)?;
        self.verdicts(&mut page)?;
        self.decisions(&mut page)
    }
}

impl Numbers {
    /// When the relay started, as Unix time in seconds.
    fn started(&self) -> f64 {
        unix(self.0.started().wall)
    }

    fn program(&self, page: &mut Page<'_>) -> fmt::Result {
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        page.0
            .encode_descriptor("midspan_build", "The program that runs", None, MetricType::Info)?
            .encode_info(&labels)?;
        let start = self.started();
        let seconds = Some(Unit::Seconds);
        page.family(
            "midspan_relay_start_time",
            "When the relay started",
            seconds.clone(),
            &[Sample::bare(ConstGauge::new(start))],
        )?;
        let ages = self.0.heartbeat_ages().into_iter().enumerate().map(|(worker, age)| {
            Sample::of("worker", &worker.to_string(), ConstGauge::new(age.as_secs_f64()))
        });
        page.family(
            "midspan_relay_heartbeat_age",
            "Time since a worker last said that it lives",
            seconds,
            &ages.collect::<Vec<_>>(),
        )?;
        let limit = ConstGauge::new(i64::from(self.0.flow_limit()));
        page.family(
            "midspan_relay_flow_limit",
            "Flows that may be open at one time",
            None,
            &[Sample::bare(limit)],
        )
    }

    /// What any program of Prometheus' world tells of its process; what the kernel does not say is left out.
    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let Ok(process) = Process::myself() else { return Ok(()) };
        let (seconds, bytes) = (|| Some(Unit::Seconds), || Some(Unit::Bytes));
        if let Ok(stat) = process.stat() {
            let busy = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
            let busy = [Sample::bare(ConstCounter::new(busy))];
            page.family("process_cpu", "Processor time, user and system", seconds(), &busy)?;
            let resident = [Sample::bare(ConstGauge::new((stat.rss * procfs::page_size()) as i64))];
            page.family("process_resident_memory", "Resident memory", bytes(), &resident)?;
            let virtual_memory = [Sample::bare(ConstGauge::new(stat.vsize as i64))];
            page.family("process_virtual_memory", "Virtual memory", bytes(), &virtual_memory)?;
        }
        if let Ok(open) = process.fd_count() {
            let open = [Sample::bare(ConstGauge::new(open as i64))];
            page.family("process_open_fds", "Open file descriptors", None, &open)?;
        }
        if let Ok(limits) = process.limits()
            && let LimitValue::Value(most) = limits.max_open_files.soft_limit
        {
            let most = [Sample::bare(ConstGauge::new(most as i64))];
            page.family("process_max_fds", "Most open file descriptors", None, &most)?;
        }
        let start = [Sample::bare(ConstGauge::new(self.started()))];
        page.family("process_start_time", "When the process started", seconds(), &start)
    }

    /// How the configuration was read last, if it was read again.
    fn reloads(&self, page: &mut Page<'_>) -> fmt::Result {
        let reload = self.0.last_reload();
        let succeeded =
            [Sample::bare(ConstGauge::new(i64::from(reload.is_none_or(|last| last.succeeded))))];
        page.family(
            "midspan_relay_config_last_reload_successful",
            "Whether the configuration was taken when it was read last",
            None,
            &succeeded,
        )?;
        let at = reload.and_then(|last| last.success).unwrap_or(self.0.started().wall);
        let at = unix(at);
        page.family(
            "midspan_relay_config_last_reload_success_timestamp",
            "When the configuration was last read and taken",
            Some(Unit::Seconds),
            &[Sample::bare(ConstGauge::new(at))],
        )
    }

    /// Those of one family follow each other, as the format wants it.
    fn counters(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut families: Vec<(Family, Vec<Sample<u64>>)> = Vec::new();
        for Counter { name, help, value } in self.0.counters() {
            let (family, label) = Family::of(name, help);
            let labels = label.iter().map(|&(key, value)| (key, value.to_owned())).collect();
            let sample = Sample { labels, value };
            match families.iter_mut().find(|(known, _)| known.name == family.name) {
                Some((_, samples)) => samples.push(sample),
                None => families.push((family, vec![sample])),
            }
        }
        if let Some(log) = &flow_log(&*self.0) {
            families.extend(
                log.iter().copied().map(|(name, help, value)| {
                    (Family::of(name, help).0, vec![Sample::bare(value)])
                }),
            );
        }
        for (family, samples) in &families {
            let name = format!("midspan_relay_{}", family.name);
            let sample = |sample: &Sample<u64>| Sample {
                labels: sample.labels.clone(),
                value: ConstCounter::new(sample.value),
            };
            let gauge = |sample: &Sample<u64>| Sample {
                labels: sample.labels.clone(),
                value: ConstGauge::new(sample.value as i64),
            };
            let unit = family.is_bytes.then_some(Unit::Bytes);
            match family.is_gauge {
                true => page.family(
                    &name,
                    family.help,
                    unit,
                    &samples.iter().map(gauge).collect::<Vec<_>>(),
                )?,
                false => page.family(
                    &name,
                    family.help,
                    unit,
                    &samples.iter().map(sample).collect::<Vec<_>>(),
                )?,
            }
        }
        Ok(())
    }

    fn ended_flows(&self, page: &mut Page<'_>) -> fmt::Result {
        let workers = || self.0.observer().measures.iter();
        let legs = |of: fn(&LegMeasures) -> &Histogram| {
            Leg::BOTH
                .map(|leg| Sample::of_leg(leg, Total::of(workers().map(|one| of(&one.legs[leg])))))
        };
        let seconds = || Some(Unit::Seconds);
        page.family(
            "midspan_relay_connect",
            "Time that servers took to answer the connect",
            seconds(),
            &[Sample::bare(Total::of(workers().map(|one| &one.connect)))],
        )?;
        page.family(
            "midspan_relay_flow_duration",
            "Time from taking a flow to its end",
            seconds(),
            &[Sample::bare(Total::of(workers().map(|one| &one.duration)))],
        )?;
        page.family(
            "midspan_relay_leg_rtt",
            "Smoothed round-trip time at the end of a flow",
            seconds(),
            &legs(|leg| &leg.rtt),
        )?;
        page.family(
            "midspan_relay_leg_min_rtt",
            "Least round-trip time of a flow",
            seconds(),
            &legs(|leg| &leg.min_rtt),
        )?;
        page.family(
            "midspan_relay_leg_retransmitted",
            "Share of the bytes sent that was sent again",
            Some(Unit::Other("ratio".into())),
            &legs(|leg| &leg.retransmitted),
        )?;
        page.family(
            "midspan_relay_leg_delivery_rate",
            "Last measured rate of delivery to the peer",
            Some(Unit::Other("bytes_per_second".into())),
            &legs(|leg| &leg.delivery_rate),
        )?;
        let sums = |of: fn(&LegMeasures) -> u64| {
            Leg::BOTH.map(|leg| {
                let sum = workers().map(|one| of(&one.legs[leg])).sum::<u64>();
                Sample::of_leg(leg, ConstCounter::new(sum))
            })
        };
        page.family(
            "midspan_relay_leg_retransmitted",
            "Bytes sent again, of flows that have ended",
            Some(Unit::Bytes),
            &sums(|leg| leg.retransmitted_bytes.get()),
        )?;
        page.family(
            "midspan_relay_leg_retransmitted_segments",
            "Segments sent again, of flows that have ended",
            None,
            &sums(|leg| leg.retransmitted_segments.get()),
        )
    }

    fn verdicts(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(counts) = self.0.verdicts() else { return Ok(()) };
        let samples = counts.entries().map(|(verdict, count)| {
            Sample::of("verdict", verdict.label(), ConstCounter::new(count))
        });
        page.family(
            "midspan_steer_verdicts",
            "What became of new connections, and of packets, where BPF steers",
            None,
            &samples.collect::<Vec<_>>(),
        )?;
        self.treatments(page)
    }

    /// What was decided by what was learned.
    fn decisions(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(board) = self.0.board() else { return Ok(()) };
        let units = board.units().into_iter().map(|units| Sample {
            labels: vec![("level", units.level.into()), ("because", units.because.into())],
            value: ConstGauge::new(units.count as i64),
        });
        page.family(
            "midspan_decide_units",
            "Prefixes of servers, services, and services of groups of clients, by what was decided of them",
            None,
            &units.collect::<Vec<_>>(),
        )?;
        let transfers = board.transfers();
        let transfers = [
            ("counted", transfers.counted),
            ("learned", transfers.learned),
            ("late", transfers.late),
            ("full", transfers.full),
            ("unsettled", transfers.unsettled),
            ("empty", transfers.empty),
            ("useless", transfers.useless),
            ("lost", transfers.lost),
        ]
        .map(|(became, count)| Sample::of("became", became, ConstCounter::new(count)));
        page.family(
            "midspan_decide_transfers",
            "Connections that ended, to learn from, by what became of them",
            None,
            &transfers,
        )?;
        let Some(all) = board.of_all() else { return Ok(()) };
        let [least, most] = [all.interval.lower, all.interval.upper];
        let gains = [("estimate", all.gain), ("at_least", least), ("at_most", most)]
            .map(|(which, gain)| Sample::of("bound", which, ConstGauge::new(gain.exp())));
        page.family(
            "midspan_decide_gain",
            "How many times faster connections are if they are split, of all together",
            Some(Unit::Other("ratio".into())),
            &gains,
        )
    }

    /// What passed of connections, split or not.
    fn treatments(&self, page: &mut Page<'_>) -> fmt::Result {
        let counts = |of: fn(&TreatmentSnapshot) -> u64| {
            Treatment::ALL.map(|treatment| {
                let count =
                    ConstCounter::new(of(&self.0.observer().treatment_sums(treatment).snapshot()));
                Sample::of("treatment", treatment.label(), count)
            })
        };
        let seconds = |of: fn(&TreatmentSnapshot) -> u64| {
            Treatment::ALL.map(|treatment| {
                let busy = of(&self.0.observer().treatment_sums(treatment).snapshot()) as f64 / 1e9;
                Sample::of("treatment", treatment.label(), ConstCounter::new(busy))
            })
        };
        page.family(
            "midspan_steer_ended_connections",
            "Connections seen to end, split or not",
            None,
            &counts(|sums| sums.connections),
        )?;
        let bytes = || Some(Unit::Bytes);
        let up = "Payload from clients of connections that ended";
        page.family("midspan_steer_up", up, bytes(), &counts(|sums| sums.bytes_up))?;
        let down = "Payload to clients of connections that ended";
        page.family("midspan_steer_down", down, bytes(), &counts(|sums| sums.bytes_down))?;
        let time = || Some(Unit::Seconds);
        let up = "Time from the client's first payload until the server had acknowledged the last, of connections that ended";
        page.family("midspan_steer_up_busy", up, time(), &seconds(|sums| sums.busy_up_ns))?;
        let down = "Time from the server's first payload until the client had acknowledged the last, of connections that ended";
        page.family("midspan_steer_down_busy", down, time(), &seconds(|sums| sums.busy_down_ns))?;
        let completions = Treatment::ALL.map(|treatment| {
            let of_size =
                self.0.observer().treatment_sums(treatment).completions().iter().zip(SIZES);
            of_size.map(move |(times, (size, _))| Sample {
                labels: vec![("treatment", treatment.label().into()), ("size", size.into())],
                value: Total::of(std::iter::once(times)),
            })
        });
        page.family(
            "midspan_steer_completion",
            "Time from a connection's SYN until the client had acknowledged the last payload, by how much there was",
            time(),
            &completions.into_iter().flatten().collect::<Vec<_>>(),
        )
    }
}

fn unix(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn flow_log(source: &dyn Source) -> Option<[(&'static str, &'static str, u64); 2]> {
    let log = source.observer().flow_log.as_ref()?;
    Some([
        ("flow_log_entries", "Entries written to the flow log", log.written()),
        ("flow_log_lost", "Entries that the flow log has lost", log.lost()),
    ])
}

/// What counters are called together, without `midspan_relay_`, the unit and `_total`.
struct Family {
    name: &'static str,
    help: &'static str,
    is_gauge: bool,
    is_bytes: bool,
}

impl Family {
    /// A counter's family, and the label that tells it from the others.
    fn of(
        counter: &'static str,
        help: &'static str,
    ) -> (Family, Option<(&'static str, &'static str)>) {
        let family = |name, help| Family { name, help, is_gauge: false, is_bytes: false };
        let bytes = |name, help| Family { is_bytes: true, ..family(name, help) };
        let gauge = |name| Family { is_gauge: true, ..family(name, help) };
        for (prefix, name, help, label) in [
            ("refused_", "connections_refused", "Connections refused", "reason"),
            (
                "declined_",
                "offers_declined",
                "Connections whose client offered what was not taken",
                "offer",
            ),
        ] {
            if let Some(which) = counter.strip_prefix(prefix) {
                return (family(name, help), Some((label, which)));
            }
        }
        match counter {
            "accepted" => (family("flows_accepted", help), None),
            "active" => (gauge("flows_active"), None),
            "buffered" => (Family { is_bytes: true, ..gauge("buffered") }, None),
            "pipes" => (gauge("pipes_open"), None),
            "closed" | "connect_failed" | "connect_timed_out" | "reset_by_client"
            | "reset_by_server" | "idle" | "half_closed" | "stopped" | "inconsistent" => {
                (family("flows_ended", "Flows that have ended, by how"), Some(("how", counter)))
            }
            "bytes_from_client" => (bytes("received", "Bytes read"), Some(("leg", "client"))),
            "bytes_from_server" => (bytes("received", "Bytes read"), Some(("leg", "server"))),
            "bytes_to_client" => {
                (bytes("sent", "Bytes given to the kernel to send"), Some(("leg", "client")))
            }
            "bytes_to_server" => {
                (bytes("sent", "Bytes given to the kernel to send"), Some(("leg", "server")))
            }
            _ => (family(counter, help), None),
        }
    }
}

struct Sample<V> {
    labels: Vec<(&'static str, String)>,
    value: V,
}

impl<V> Sample<V> {
    fn bare(value: V) -> Self {
        Sample { labels: Vec::new(), value }
    }

    fn of(key: &'static str, label: &str, value: V) -> Self {
        Sample { labels: vec![(key, label.to_owned())], value }
    }

    fn of_leg(leg: Leg, value: V) -> Self {
        Sample::of("leg", &leg.to_string(), value)
    }
}

struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn family<V: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: &[Sample<V>],
    ) -> fmt::Result {
        let Some(first) = samples.first() else { return Ok(()) };
        let mut encoder =
            self.0.encode_descriptor(name, help, unit.as_ref(), first.value.metric_type())?;
        for sample in samples {
            if sample.labels.is_empty() {
                // There is no other, then.
                return sample.value.encode(encoder);
            }
            sample.value.encode(encoder.encode_family(&sample.labels)?)?;
        }
        Ok(())
    }
}

/// What several workers' histograms have counted.
struct Total(Distribution);

impl Total {
    fn of<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Self {
        Total(Histogram::total(histograms))
    }
}

impl EncodeMetric for Total {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let none = None::<&_>;
        encoder.encode_histogram::<[(&str, &str); 0]>(
            self.0.sum,
            self.0.count(),
            &self.0.buckets,
            none,
        )
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use midspan_split::Cause;

    use super::*;

    #[test]
    fn every_way_to_end_is_of_one_family() {
        let resets = Leg::BOTH.map(Cause::Reset);
        let others = [
            Cause::ConnectFailed,
            Cause::ConnectTimedOut,
            Cause::Idle,
            Cause::HalfClosed,
            Cause::Stopped,
            Cause::Inconsistent,
        ];
        for cause in resets.into_iter().chain(others) {
            let (family, label) = Family::of(cause.label(), "");
            assert_eq!((family.name, label), ("flows_ended", Some(("how", cause.label()))));
        }
    }

    #[test]
    fn what_has_no_family_is_one_of_its_own() {
        assert_eq!(Family::of("urgent", "Legs").0.name, "urgent");
        assert!(Family::of("active", "").0.is_gauge && Family::of("buffered", "").0.is_bytes);
    }
}
