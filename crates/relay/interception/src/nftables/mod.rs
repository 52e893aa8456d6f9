//! nftables TPROXY rules.
//!
//! The rules stand in a table that the kernel ties to its *owner*, an `nft` process that the relay
//! keeps alive: however the relay ends, its end of the pipe to that process closes, the process
//! ends, and the kernel removes the table.

pub(crate) mod legs;
mod nft;
mod rules;

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_config::{Config, Marks};
use midspan_sys::sysctl;

use crate::beside::forbid_forward_rules;
use crate::error::InterceptionError;
use crate::local_delivery::LocalDelivery;
use crate::nftables::nft::Nft;

/// nftables rules in force. Dropping this removes them.
#[derive(Debug)]
pub struct Interception {
    nft: Nft,
    // Goes after the rules: without them nothing is marked, and the routing is idle.
    _delivery: LocalDelivery,
}

/// How long the rules of a relay that was killed a moment ago may take to go.
const LAST_OF_THE_KILLED: Duration = Duration::from_secs(1);

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
        forbid_forward_rules(config)?;
        let clients = IpNet::aggregate(&config.clients);
        let mut nft = Nft::start(rules::PROBE).map_err(InterceptionError::Start)?;
        let table = rules::table(&clients, config.port, Marks::of(config));
        let patience = Instant::now() + LAST_OF_THE_KILLED;
        loop {
            match nft.run(&table) {
                Err(InterceptionError::Taken) if Instant::now() < patience => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => break result?,
            }
        }
        let delivery = LocalDelivery::install(&clients, config.mark)?;
        advise();
        Ok(Interception { nft, _delivery: delivery })
    }

    /// Takes no new connections any more; those that the relay has still reach it.
    ///
    /// # Errors
    /// When the `nft` process has died, and with it all rules.
    pub fn take_no_more(&mut self) -> Result<(), InterceptionError> {
        self.nft.run(rules::TAKE_NO_MORE)
    }

    /// Becomes readable when the process that owns the rules dies unasked, and they with it.
    pub fn lost(&self) -> BorrowedFd<'_> {
        self.nft.output().as_fd()
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        self.nft.end();
    }
}

/// The kernel finds what a split connection has left in TIME-WAIT before it routes a packet, and
/// forwards none that has a socket. In BPF that is prevented (`steer.bpf.c`).
fn advise() {
    if sysctl::get("net.ipv4.tcp_early_demux").is_ok_and(|set| set == "1") {
        tracing::info!(
            "net.ipv4.tcp_early_demux is 1: an unsplit connection that uses the addresses of one \
             split less than a minute before is dropped by the kernel; 0 avoids it, and makes \
             forwarding faster"
        );
    }
}
