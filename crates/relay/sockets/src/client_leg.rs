//! What the client's leg has that no option of a socket gives: a least retransmission timeout that is longer than Linux's.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::{Duration, Instant};

use midspan_config::Config;
use midspan_split::defaults;
use midspan_sys::sysctl;
use midspan_units::Span;

/// What a TCP socket has when it is made, and those that a listener accepts have of that. An option of the socket
/// (TCP_RTO_MIN_US, TCP_BPF_RTO_MIN) takes no more than Linux's 200 ms.
const RTO_MIN: &str = "net.ipv4.tcp_rto_min_us";
const LINUX: Span = Span::from_millis(200);
/// By whose name relays of a network namespace take turns at changing it.
const TURN: &[u8] = b"midspan-rto-min";
/// How long one waits for its turn, in which others make their listeners.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has listeners that are made meanwhile give the client's legs the least retransmission timeout of the configuration,
/// as long as this lives. So does any other socket that somebody makes in this network namespace in that moment.
#[derive(Debug)]
pub struct LeastTimeout {
    before: Option<String>,
    /// After that is set back.
    _turn: Option<UnixListener>,
}

impl LeastTimeout {
    /// Sets it in the calling thread's network namespace.
    pub fn set(config: &Config) -> LeastTimeout {
        let kept = LeastTimeout { before: None, _turn: None };
        let asked = config.client_leg.rto_min;
        if asked.is_none() && config.clients.is_empty() {
            return kept;
        }
        let Some(turn) = turn() else {
            tracing::warn!("{RTO_MIN} is another relay's to change: clients have the host's");
            return kept;
        };
        let changed = sysctl::get(RTO_MIN).and_then(|before| {
            let Some(least) = wanted(asked, &before) else { return Ok(None) };
            sysctl::set(RTO_MIN, &least.as_micros().to_string()).map(|()| Some(before))
        });
        match changed {
            Ok(before) => LeastTimeout { before, _turn: Some(turn) },
            Err(error) => {
                let said = "the least retransmission timeout towards clients is the route's, or Linux's 200 ms";
                match (asked, error.kind()) {
                    (None, ErrorKind::NotFound) => {
                        tracing::info!("{said}: it takes Linux 6.11 to change it");
                    }
                    (None, _) => tracing::info!("{said}: {error}"),
                    (Some(_), _) => tracing::warn!("{said}, and not `rto_min`: {error}"),
                }
                kept
            }
        }
    }
}

impl Drop for LeastTimeout {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = sysctl::set(RTO_MIN, before)
        {
            tracing::error!("{error}: it stays as it was for clients");
        }
    }
}

/// What to change it to, from what it is `before`, in microseconds: what is asked for, or else the relay's own, unless
/// somebody has changed it already. None if it is to stay.
fn wanted(asked: Option<Span>, before: &str) -> Option<Span> {
    let before = before.parse().ok().map(Span::from_micros);
    let by_default = (before == Some(LINUX)).then_some(defaults::CLIENT_LEG_RTO_MIN);
    asked.or(by_default).filter(|least| Some(*least) != before)
}

/// Waits for the turn, which ends with what is answered, however this process ends.
fn turn() -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(TURN).ok()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match UnixListener::bind_addr(&name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            turn => return turn.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_has_set_is_changed_only_on_request() {
        let own = defaults::CLIENT_LEG_RTO_MIN;
        let asked = Span::from_millis(300);
        assert_eq!(wanted(None, "200000"), Some(own));
        assert_eq!(wanted(None, "400000"), None);
        assert_eq!(wanted(Some(asked), "400000"), Some(asked));
        assert_eq!(wanted(Some(asked), "300000"), None);
        assert_eq!(wanted(None, "what"), None);
    }
}
