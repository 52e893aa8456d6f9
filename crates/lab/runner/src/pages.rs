//! What is recorded of web pages: the client's times, and the path and the sender meanwhile.

use std::time::Duration;

use anyhow::{Context, Result};
use midspan_path::Counters;
use midspan_scenario::record::{PageRecord, PageSample, TransferRecord};
use midspan_sys::netns::Netns;
use midspan_sys::sockdiag;

use crate::topology::Topology;
use crate::traffic::{PagePlan, PageResult, SERVICE_PORT};

/// Looks at path and sender while pages are fetched.
pub(crate) struct Observer<'a> {
    topology: &'a Topology,
    server: &'a Netns,
    /// Of each page, with counts since the links were built.
    samples: Vec<Vec<PageSample>>,
}

/// Seconds from sample to sample.
const SAMPLE_S: f64 = 0.1;

impl<'a> Observer<'a> {
    /// `server` is where the pages come from.
    pub(crate) fn new(topology: &'a Topology, server: &'a Netns) -> Observer<'a> {
        Observer { topology, server, samples: Vec::new() }
    }

    /// Looks at `page`, which has been under way for `after`, and takes a sample when that is due.
    ///
    /// # Errors
    /// When the server's sockets cannot be listed.
    pub(crate) fn look(&mut self, page: usize, after: Duration) -> Result<()> {
        self.samples.resize_with(self.samples.len().max(page + 1), Vec::new);
        let taken = self.samples[page].len();
        if after.as_secs_f64() < SAMPLE_S * taken as f64 {
            return Ok(());
        }
        let access = self.topology.reports().access;
        let dropped =
            |counters: &Counters, cause| counters.dropped.get(cause).copied().unwrap_or_default();
        let sample = PageSample {
            at_s: after.as_secs_f64(),
            rate_bps: self.allowed_rate()?,
            policed: dropped(&access.down, "policer"),
            radio_lost: dropped(&access.down, "radio"),
            marked: access.up.marked,
        };
        self.samples[page].push(sample);
        Ok(())
    }

    /// What the control of the page's connection allows, in bits of payload per second: it is the
    /// socket's greatest pacing rate.
    fn allowed_rate(&self) -> Result<Option<f64>> {
        let sockets = self.server.run(sockdiag::tcp_sockets)?.context("cannot list TCP sockets")?;
        let mut of_page = sockets.iter().filter(|socket| socket.local.port() == SERVICE_PORT);
        let rate = of_page.next_back().map(|socket| socket.info.max_pacing_rate);
        Ok(rate.filter(|rate| *rate < u64::from(u32::MAX)).map(|rate| rate as f64 * 8.0))
    }

    /// The record of each page.
    pub(crate) fn records(self, results: &[PageResult]) -> Vec<PageRecord> {
        let since = |samples: Vec<PageSample>| {
            let Some(first) = samples.first().copied() else { return samples };
            let count = |now: u64, before: u64| now.saturating_sub(before);
            let relative = |sample: PageSample| PageSample {
                policed: count(sample.policed, first.policed),
                radio_lost: count(sample.radio_lost, first.radio_lost),
                marked: count(sample.marked, first.marked),
                ..sample
            };
            samples.into_iter().map(relative).collect()
        };
        let record = |(result, samples): (&PageResult, Vec<PageSample>)| PageRecord {
            document_s: result.times_s[0],
            objects_s: result.times_s[1..].to_vec(),
            samples: since(samples),
        };
        let samples = self.samples.into_iter().chain(std::iter::repeat_with(Vec::new));
        results.iter().zip(samples).map(record).collect()
    }
}

/// A page as a transfer of everything in it. The client sees nothing of the sender: the last byte
/// counts as acknowledged when the client had it.
pub(crate) fn transfer(plan: &PagePlan, page: &PageResult) -> TransferRecord {
    let response_s = page.times_s.iter().sum();
    TransferRecord {
        bytes: plan.document + plan.objects.iter().sum::<u64>(),
        connected_s: page.connected_s,
        acknowledged_s: response_s,
        closed_s: page.ended_s,
        received_s: response_s,
    }
}
