//! One run: one cell, one variant, one repetition, from nothing to a record.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use midspan_assist::agent::FeedbackMap;
use midspan_assist::now;
use midspan_batch::capture::{Captures, Place};
use midspan_batch::sweep::PlannedRun;
use midspan_emu::{Backend, Tap};
use midspan_path::Traces;
use midspan_scenario::record::{
    self, BulkRecord, CutRecord, CutWatch, LegRecord, Measurement, Outcome, Record, SCHEMA,
    TransferRecord, Variant, WorkloadRecord,
};
use midspan_scenario::{
    Cell, CellSpec, Cross, CutTimes, Direction, Objects, Scenario, ServiceHost, Workload,
};
use midspan_sys::sockdiag::TcpSocket;
use midspan_units::{ByteSize, Span};

use crate::assist::NetAssist;
use crate::capture::{Ends as LinkEnds, Recording};
use crate::legs;
use crate::links::{self, LinkReports};
use crate::mobile;
use crate::pages::{self, Observer};
use crate::proxy::Proxy;
use crate::topology::{Fittings, ShortestRtts, Topology};
use crate::traffic::{
    BulkPlan, BulkResult, CrossTraffic, Ends, PagePlan, SERVICE_PORT, TransferPlan,
};

/// What every run of a scenario shares.
#[derive(Debug)]
pub struct Runner<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The traces that its path names, read already.
    pub traces: &'a Traces,
    /// The program whose `relay` command is Midspan's relay.
    pub midspan: PathBuf,
    /// How links are carried.
    pub backend: Backend,
    /// Where the congestion controls have NetAssist's feedback from, if any do.
    pub feedback: Option<&'a FeedbackMap>,
}

impl Runner<'_> {
    /// Runs `variant` in `cell` once. A run that fails is a record too, which says why.
    pub fn run(&self, cell: &Cell, variant: Variant, repetition: u32) -> Record {
        self.run_recorded(&PlannedRun { cell, variant, repetition }, None).0
    }

    /// The same, and keeps its packets; answers what of these is missing as well, in a line each.
    pub fn run_recorded(
        &self,
        run: &PlannedRun<'_>,
        captures: Option<&Captures>,
    ) -> (Record, Vec<String>) {
        let PlannedRun { cell, variant, repetition } = *run;
        let seed = self.scenario.run_seed(cell, repetition);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let files = captures.map(|captures| self.files(captures, run)).unwrap_or_default();
        let whole = captures.is_some_and(|captures| captures.whole);
        let made = Recording::start(files, whole).map(|(recording, taps)| {
            // All that tells of packets is gone when this is over.
            let outcome = self.attempt(cell, variant, seed, taps);
            (outcome, recording.finish())
        });
        let (outcome, missing) = made.unwrap_or_else(|error| (Err(error), Vec::new()));
        let outcome = outcome.unwrap_or_else(|error| Outcome::Failed {
            reason: format!("{error:#}").replace('\n', " "),
        });
        let record = Record {
            schema: SCHEMA,
            scenario: self.scenario.name.clone(),
            digest: self.scenario.digest(),
            backend: record::Backend::Live,
            cell: cell.labels.clone(),
            variant,
            repetition,
            seed,
            started_unix_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
            outcome,
        };
        (record, missing)
    }

    /// The files of a run's packets, by link.
    fn files(&self, captures: &Captures, run: &PlannedRun<'_>) -> [LinkEnds; 2] {
        let file = |place| Some(captures.file(self.scenario, run, place));
        let [ue, mec_access, mec_wide, server] = Place::ROW.map(file);
        [[ue, mec_access], [mec_wide, server]]
    }

    fn attempt(
        &self,
        cell: &Cell,
        variant: Variant,
        seed: u64,
        taps: [Option<Tap>; 2],
    ) -> Result<Outcome> {
        let spec = &cell.spec;
        let fittings = Fittings { taps, cable: false };
        let topology = Topology::fitted(spec, variant, self.traces, seed, self.backend, fittings)?;
        let (host, address) = topology.service(spec.service.at);
        let mut proxy = Proxy::start(variant, &topology.mec, spec, address, &self.midspan)?;
        let assist = NetAssist::start(spec, &topology, self.traces, self.feedback)?;
        let ends = Ends {
            client: &topology.ue,
            source: None,
            server: host,
            address: SocketAddr::new(address.into(), SERVICE_PORT),
        };
        match &spec.cells {
            None => ends.meet().context("no connection could be made")?,
            Some(cells) => mobile::meet(cells, &topology)?,
        }
        legs::wait_until_none(&topology)?;
        topology.restart_statistics();
        let measured = match &spec.workload {
            _ if spec.cells.is_some() => mobile::run(spec, &topology, variant, seed),
            Workload::Bulk(bulk) => {
                let flows = bulk.flows as usize;
                let control = |flow| bulk.control_of(flow).map(str::to_owned);
                let plan = BulkPlan {
                    upload: bulk.direction == Direction::Upload,
                    time: bulk.time.into(),
                    warmup: bulk.warmup.into(),
                    stagger: bulk.stagger.into(),
                    controls: (0..flows).map(control).collect(),
                    // At most 1 KiB.
                    greeting: bulk.greeting.as_bytes() as usize,
                };
                run_bulk(&plan, spec, ends, &topology, variant)
            }
            Workload::Transfer(transfer) => {
                let plan = TransferPlan {
                    upload: transfer.direction == Direction::Upload,
                    bytes: transfer.size.as_bytes(),
                    count: transfer.count as usize,
                    deadline: Instant::now() + Duration::from(transfer.limit),
                };
                run_transfers(&plan, ends, &topology, variant)
            }
            Workload::Page(page) => {
                let sizes = page.objects.iter().flat_map(Objects::sizes);
                let plan = PagePlan {
                    document: page.document.as_bytes(),
                    objects: sizes.map(ByteSize::as_bytes).collect(),
                    count: page.count as usize,
                    deadline: Instant::now() + Duration::from(page.limit),
                };
                run_pages(&plan, &page.cross, ends, &topology, variant)
            }
            Workload::Video(_) => bail!("videos are only simulated: `--backend sim`"),
        };
        // A proxy that died explains what its connections say less clearly.
        if let Some(proxy) = &mut proxy {
            proxy.check()?;
        }
        let (mut measurement, reports) = measured?;
        measurement.feedback = assist.as_ref().map(NetAssist::record);
        if spec.cells.is_none() {
            legs::check_split(&measurement.legs, variant, spec.service.at)?;
        }
        Ok(judge(measurement, &reports, ShortestRtts::of(spec, variant)))
    }
}

/// The numbers, unless a link behaved otherwise than it was told to.
fn judge(measurement: Measurement, reports: &LinkReports, rtts: ShortestRtts) -> Outcome {
    match reports.distrust(rtts) {
        None => Outcome::Measured(measurement),
        Some(reason) => Outcome::Untrusted { reason, links: measurement.links },
    }
}

fn run_bulk(
    plan: &BulkPlan,
    spec: &CellSpec,
    ends: Ends<'_>,
    topology: &Topology,
    variant: Variant,
) -> Result<(Measurement, LinkReports)> {
    let mut look = None;
    let (measured, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let warm = || {
        topology.restart_statistics();
        measured.store(true, Ordering::Relaxed);
        Ok(())
    };
    let mut cuts = Vec::new();
    let meanwhile = |received: &dyn Fn() -> u64| cuts = watch_cuts(spec, plan, topology, received);
    let done = || {
        look = Some((topology.reports(), legs::standing(topology, variant)?));
        Ok(())
    };
    let upload = spec.workload.direction() == Direction::Upload;
    let splits = variant != Variant::None && spec.service.at == ServiceHost::Server;
    let Workload::Bulk(bulk) = &spec.workload else { bail!("the workload is not bulk") };
    let every = bulk.series.map(Duration::from);
    let (result, held, series) = thread::scope(|scope| {
        let watch = |every| legs::watch_series(topology, variant, every, &over);
        let series = every.map(|every| scope.spawn(move || watch(every)));
        let watch = || legs::watch_held(topology, upload, &measured, &over);
        let watch = splits.then(|| scope.spawn(watch));
        let result = plan.run(ends, warm, meanwhile, done);
        over.store(true, Ordering::Relaxed);
        let held = watch.map(|watch| watch.join().expect("it does not panic"));
        let series = series.map(|series| series.join().expect("it does not panic"));
        (result, held, series)
    });
    let BulkResult { start, end } = result?;
    let held = held.transpose()?.flatten();
    let (reports, legs) = look.context("the run ended before it was looked at")?;
    let seconds = end.at.duration_since(start.at).as_secs_f64();
    ensure!(seconds > 0.0, "nothing was measured: the warm-up filled the whole time");
    let bps = |bytes: u64| bytes as f64 * 8.0 / seconds;
    let pairs = end.received.iter().zip(&start.received);
    let flows_bps: Vec<f64> = pairs.map(|(end, start)| bps(end - start)).collect();
    let grown = |of: fn(&TcpSocket) -> u64| -> u64 {
        let pairs = end.senders.iter().zip(&start.senders);
        pairs.map(|(end, start)| of(end).saturating_sub(of(start))).sum()
    };
    let measurement = Measurement {
        measured_s: seconds,
        sender_retransmits: grown(|socket| socket.info.total_retrans.into()),
        workload: WorkloadRecord::Bulk(BulkRecord {
            goodput_bps: flows_bps.iter().sum(),
            acknowledged_bps: bps(grown(|socket| socket.info.bytes_acked)),
            flows_bps,
            held,
            cuts,
            series: series.transpose()?,
        }),
        legs,
        links: links::records(&reports, spec.workload.percentiles()),
        feedback: None,
    };
    Ok((measurement, reports))
}

/// What becomes of the flows around the cuts of feedback, in the time that is left. Ends with the last.
fn watch_cuts(
    spec: &CellSpec,
    plan: &BulkPlan,
    topology: &Topology,
    received: &dyn Fn() -> u64,
) -> Vec<CutRecord> {
    let Some((assist, cuts)) = spec.cuts() else { return Vec::new() };
    let epoch = topology.access_epoch();
    let age = || now().since(epoch);
    let wait_until = |at: Span| thread::sleep(at.saturating_sub(age()).into());
    let delays = |at: Span| {
        wait_until(at);
        topology.reports().access.down_delays
    };
    let left = plan.time.saturating_sub(plan.warmup);
    let from = age();
    let until = from + Span::from_nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
    let follow = |cut: CutTimes| {
        let earlier = delays(cut.before);
        let before = delays(cut.start).since(&earlier);
        let mut watch = CutWatch::start(age(), received());
        let mut follow_until = |end: Span| {
            while age() < end {
                wait_until((age() + CutWatch::LOOK).min(end));
                watch.look(age(), received());
            }
        };
        follow_until(cut.late);
        let earlier = delays(cut.late);
        follow_until(cut.end);
        let during = delays(cut.end).since(&earlier);
        let earlier = delays(cut.after);
        watch.record(&cut, &before, &during, &delays(cut.last).since(&earlier))
    };
    cuts.between(from, until, assist.period).into_iter().map(follow).collect()
}

fn run_transfers(
    plan: &TransferPlan,
    ends: Ends<'_>,
    topology: &Topology,
    variant: Variant,
) -> Result<(Measurement, LinkReports)> {
    let watch = legs::Watch::start(topology)?;
    let transfers = plan.run(ends)?;
    let reports = topology.reports();
    let legs = watch.finish(variant, transfers.len())?;
    let measurement = Measurement {
        measured_s: transfers.iter().map(|transfer: &TransferRecord| transfer.closed_s).sum(),
        sender_retransmits: sender_retransmits(&legs, plan.upload),
        workload: WorkloadRecord::Transfers(transfers),
        legs,
        links: links::records(&reports, false),
        feedback: None,
    };
    Ok((measurement, reports))
}

/// How long cross traffic runs before the first page: it is in congestion avoidance by then.
const CROSS_WARMUP: Duration = Duration::from_secs(3);

fn run_pages(
    plan: &PagePlan,
    cross: &Cross,
    ends: Ends<'_>,
    topology: &Topology,
    variant: Variant,
) -> Result<(Measurement, LinkReports)> {
    let server = topology.service(ServiceHost::Server);
    let control = cross.congestion_control.as_deref();
    let traffic = CrossTraffic::start(cross.flows, control, server, &topology.mec)?;
    if cross.flows > 0 {
        thread::sleep(CROSS_WARMUP);
        topology.restart_statistics();
    }
    let watch = legs::Watch::start(topology)?;
    let mut observer = Observer::new(topology, ends.server);
    let results = plan.run(ends, |page, after| observer.look(page, after))?;
    let reports = topology.reports();
    let connections: usize = results.iter().map(|page| page.connections).sum();
    let legs = watch.finish(variant, connections)?;
    drop(traffic);
    let sent = legs.iter().filter(|leg| leg.host != "ue" && leg.bytes_acked > 0).count();
    ensure!(sent >= connections, "{sent} of the server's {connections} connections ended in time");
    let transfers: Vec<TransferRecord> =
        results.iter().map(|page| pages::transfer(plan, page)).collect();
    let measurement = Measurement {
        measured_s: transfers.iter().map(|transfer| transfer.closed_s).sum(),
        sender_retransmits: sender_retransmits(&legs, false),
        workload: WorkloadRecord::Pages { transfers, pages: observer.records(&results) },
        legs,
        links: links::records(&reports, false),
        feedback: None,
    };
    Ok((measurement, reports))
}

/// By the sending application's own sockets; a service on the MEC sends from there.
fn sender_retransmits(legs: &[LegRecord], upload: bool) -> u64 {
    let is_sender = |leg: &&LegRecord| match upload {
        true => leg.host == "ue",
        false => leg.host == "server" || (leg.host == "mec" && leg.leg == "end-to-end"),
    };
    legs.iter().filter(is_sender).map(|leg| u64::from(leg.retransmits)).sum()
}
