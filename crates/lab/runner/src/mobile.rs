//! One run of a mobile network: its users on real TCP, its cells on the real clock.

use std::collections::HashSet;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use midspan_scenario::record::{Measurement, Variant};
use midspan_scenario::{CellSpec, Cells};
use midspan_sys::sockdiag;

use crate::links::{self, LinkReports};
use crate::topology::{Topology, server_address, ue_address};
use crate::traffic::{CrowdPlan, CrowdResult, Ends, SERVICE_PORT, Standing};

/// Users who try to reach a server before that is given up: some are out of reach of all cells.
const TRIES: usize = 3;

/// Makes a connection that carries nothing to each server, as [`Ends::meet`] does, by a user whose connections are split.
///
/// # Errors
/// When a server is reached by nobody.
pub(crate) fn meet(cells: &Cells, topology: &Topology) -> Result<()> {
    for server in 0..cells.servers {
        let is_its = |user: &u32| cells.server_of(*user) == server && cells.splits(*user);
        let meet = |user: u32| {
            Ends {
                client: &topology.ue,
                source: Some(ue_address(user).into()),
                server: &topology.server,
                address: SocketAddr::from((server_address(server), SERVICE_PORT)),
            }
            .meet()
        };
        let mut tries = (0..cells.total()).filter(is_its).take(TRIES).map(meet);
        let first = tries.next().unwrap_or(Ok(()));
        let met = first.or_else(|error| tries.find(Result::is_ok).unwrap_or(Err(error)));
        met.with_context(|| format!("no connection to server {server} could be made"))?;
    }
    Ok(())
}

/// Runs the workload of all users.
///
/// # Errors
/// When a connection breaks that counts, or was split where it should not be or the other way round.
pub(crate) fn run(
    spec: &CellSpec,
    topology: &Topology,
    variant: Variant,
    seed: u64,
) -> Result<(Measurement, LinkReports)> {
    let cells = spec.cells.as_ref().context("there are no cells")?;
    let plan = CrowdPlan {
        workload: &spec.workload,
        cells,
        seed,
        ue: &topology.ue,
        server: &topology.server,
    };
    let mut reports = None;
    let inspect = |standing: &[Standing]| check_split(cells, topology, variant, standing);
    let done = || reports = Some(topology.reports());
    let CrowdResult { measured_s, sender_retransmits, workload } =
        plan.run(|| topology.restart_statistics(), inspect, done)?;
    let reports = reports.context("the run ended before it was looked at")?;
    let measurement = Measurement {
        measured_s,
        sender_retransmits,
        workload,
        // There are too many.
        legs: Vec::new(),
        links: links::records(&reports, spec.workload.percentiles()),
        feedback: None,
    };
    Ok((measurement, reports))
}

/// Refuses a run in which the relay let a connection pass that it should split, or split one that should pass.
fn check_split(
    cells: &Cells,
    topology: &Topology,
    variant: Variant,
    standing: &[Standing],
) -> Result<()> {
    let sockets = topology.mec.run(sockdiag::tcp_sockets)?.context("cannot list TCP sockets")?;
    let peers: HashSet<SocketAddr> = sockets.iter().map(|socket| socket.remote).collect();
    for (user, address) in standing {
        let expected = variant != Variant::None && cells.splits(*user as u32);
        let ended = peers.contains(address);
        let was = if ended { "ended" } else { "did not end" };
        ensure!(
            ended == expected,
            "a connection of user {user} {was} at the MEC, unlike the variant and `clients` say"
        );
    }
    Ok(())
}
