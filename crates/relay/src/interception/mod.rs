//! Steering connections to the relay: nftables rules, and the routing that makes their packets
//! local.
//!
//! Neither outlives the relay. The rules stand in a table that the kernel ties to its *owner*, an
//! `nft` process that the relay keeps alive: however the relay ends, its end of the pipe to that
//! process closes, the process ends, and the kernel removes the table. The routing rule and route
//! apply only to packets that the table has marked; should they be left behind by a kill, they do
//! nothing, and the next relay takes them over instead of adding a second pair.

mod nft;
mod rules;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_sys::netlink::{Family, Netlink};
use midspan_sys::sysctl;

use crate::config::Config;
use nft::Nft;

/// Interception rules in force. Dropping this removes them.
#[derive(Debug)]
pub struct Interception {
    nft: Nft,
    families: Vec<Family>,
    mark: u32,
}

/// How long the rules of a relay that was killed a moment ago may take to go.
const LAST_OF_THE_KILLED: Duration = Duration::from_secs(1);

/// Why connections cannot be intercepted.
#[derive(Debug, thiserror::Error)]
pub enum InterceptionError {
    /// The `nft` program could not be started.
    #[error("the nft program could not be started: {0} (is nftables installed?)")]
    Start(#[source] io::Error),
    /// The `nft` program did not take the rules.
    #[error("nft refused the interception rules: {0}")]
    Refused(String),
    /// Another relay has its rules in this network namespace.
    #[error("another relay intercepts connections here already (nftables table `inet midspan`)")]
    Taken,
    /// Marked packets cannot be routed to this host.
    #[error("packets cannot be routed to the relay: {0}")]
    Routing(#[source] io::Error),
}

impl Interception {
    /// Puts the rules in force, in the calling thread's network namespace: new TCP connections
    /// from `config.clients`, but for those to this host or to port `config.port`, go to
    /// `config.port` here. Call this from a thread that lives as long as the rules should: they
    /// end with it.
    ///
    /// # Errors
    /// When `nft` is missing or refuses, another relay has its rules here, or CAP_NET_ADMIN is
    /// missing. Nothing is left behind then.
    pub fn install(config: &Config) -> Result<Interception, InterceptionError> {
        let clients = IpNet::aggregate(&config.clients);
        let mut nft = Nft::start().map_err(InterceptionError::Start)?;
        let table = rules::table(&clients, config.port, config.mark);
        let patience = Instant::now() + LAST_OF_THE_KILLED;
        loop {
            match nft.run(&table) {
                Err(InterceptionError::Taken) if Instant::now() < patience => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => break result?,
            }
        }
        let wanted = |family| clients.iter().any(|prefix| family_of(prefix) == family);
        let families = [Family::Inet, Family::Inet6].into_iter().filter(|&f| wanted(f)).collect();
        let installed = Interception { nft, families, mark: config.mark };
        installed.route().map_err(InterceptionError::Routing)?;
        warn_of_obstacles(&installed.families);
        Ok(installed)
    }

    /// Takes no new connections any more; those that the relay has still reach it.
    ///
    /// # Errors
    /// When the `nft` process has died, and with it all rules.
    pub fn take_no_more(&mut self) -> Result<(), InterceptionError> {
        self.nft.run(rules::TAKE_NO_MORE)
    }

    /// Becomes readable when the process that owns the rules dies unasked, and they with it.
    pub(crate) fn lost(&self) -> BorrowedFd<'_> {
        self.nft.output().as_fd()
    }

    fn route(&self) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        self.families.iter().try_for_each(|&family| netlink.add_local_delivery(family, self.mark))
    }

    fn unroute(&self) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        self.families
            .iter()
            .try_for_each(|&family| netlink.remove_local_delivery(family, self.mark))
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        // First the rules: without them nothing is marked, and the routing is idle.
        self.nft.end();
        if let Err(error) = self.unroute() {
            tracing::error!(%error, "the routing rule of mark {:#x} could not be removed", self.mark);
        }
    }
}

fn family_of(prefix: &IpNet) -> Family {
    match prefix {
        IpNet::V4(_) => Family::Inet,
        IpNet::V6(_) => Family::Inet6,
    }
}

/// Settings that are the operator's, and that would make the rules useless.
fn warn_of_obstacles(families: &[Family]) {
    let is = |name: &str, value: &str| sysctl::get(name).is_ok_and(|set| set == value);
    if families.contains(&Family::Inet) {
        if is("net.ipv4.ip_forward", "0") {
            tracing::warn!(
                "net.ipv4.ip_forward is 0: what the relay does not take is not forwarded"
            );
        }
        // Strict: the answer of a server must come in where packets to it go out, mark or not.
        if is("net.ipv4.conf.all.rp_filter", "1") {
            tracing::warn!(
                "net.ipv4.conf.all.rp_filter is 1 (strict): intercepted packets may be dropped; 0 or 2 would do"
            );
        }
    }
    if families.contains(&Family::Inet6) && is("net.ipv6.conf.all.forwarding", "0") {
        tracing::warn!(
            "net.ipv6.conf.all.forwarding is 0: what the relay does not take is not forwarded"
        );
    }
}
