//! What this machine can do, and what will be missing because of what.

use std::fs;
use std::path::Path;

use midspan_emu::Backend;
use midspan_relay::{Config, FirstWindow, Interception, InterceptionError};
use midspan_sys::netlink::Netlink;
use midspan_sys::netns::Netns;
use midspan_sys::{sysctl, userns};
use midspan_units::Span;

use crate::machine;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub subject: &'static str,
    /// How it is.
    pub state: State,
    /// What was seen.
    pub seen: String,
    /// What follows, and what to do about it; empty where all is well.
    pub consequence: &'static str,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// Something that is not needed is missing.
    Missing,
    /// Something that is needed is missing.
    Broken,
}

/// Looks at this machine. The calling process must already be in the user namespace in which it
/// would run the lab, if it needs one; `unprivileged` says whether it does.
pub fn examine(unprivileged: Result<bool, String>) -> Vec<Finding> {
    vec![
        privileges(&unprivileged),
        namespaces(),
        links(),
        steering(),
        nftables(),
        congestion_controls(),
        routes(),
        retransmission_timeout(),
        initial_windows(),
        bpf(),
        program("haproxy", "-v", "runs have no HAProxy to compare with; install `haproxy`"),
        program("iperf3", "--version", "the iperf3 tests are skipped; install `iperf3`"),
        program("curl", "--version", "the curl tests are skipped; install `curl`"),
    ]
}

fn privileges(unprivileged: &Result<bool, String>) -> Finding {
    let subject = "privileges";
    match unprivileged {
        Ok(false) => Finding { subject, state: State::Good, seen: "root".into(), consequence: "" },
        Ok(true) => Finding {
            subject,
            state: State::Good,
            seen: "ordinary user, in a user namespace of its own".into(),
            consequence: "lab and demo run; emulated links are a little less punctual without \
                          real-time priority; a relay for other machines needs root",
        },
        Err(error) => Finding {
            subject,
            state: State::Broken,
            seen: format!("ordinary user, and no user namespace ({error})"),
            consequence: "nothing runs: be root, or allow unprivileged user namespaces \
                          (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                          kernel.apparmor_restrict_unprivileged_userns=0)",
        },
    }
}

fn namespaces() -> Finding {
    let subject = "network namespaces";
    match Netns::create() {
        Ok(_) => Finding { subject, state: State::Good, seen: "yes".into(), consequence: "" },
        Err(error) => Finding {
            subject,
            state: State::Broken,
            seen: error.to_string(),
            consequence: "the lab cannot run; the relay can",
        },
    }
}

fn links() -> Finding {
    let subject = "emulated links";
    match Backend::available() {
        Backend::Tun => {
            Finding { subject, state: State::Good, seen: "over TUN".into(), consequence: "" }
        }
        Backend::Packet => Finding {
            subject,
            state: State::Good,
            seen: "over packet sockets (/dev/net/tun cannot be opened)".into(),
            consequence: "links carry less before they drop; runs say so when they do",
        },
    }
}

fn steering() -> Finding {
    let subject = "steering by BPF";
    let state_and_words = match midspan_relay::prove_steering() {
        Ok(()) => (State::Good, "what is steered arrives".to_owned(), ""),
        Err(midspan_relay::Error::Interception(InterceptionError::Taken)) => {
            (State::Good, "a relay is running here".to_owned(), "")
        }
        Err(error) => (
            State::Missing,
            error.to_string(),
            "the relay uses nftables, which does not notice when it hangs and knows no policy",
        ),
    };
    let (state, seen, consequence) = state_and_words;
    Finding { subject, state, seen, consequence }
}

fn nftables() -> Finding {
    let subject = "nftables with TPROXY";
    let probe = || -> Result<String, String> {
        let version = machine::version("nft", "--version").ok_or("program `nft` not found")?;
        let netns = Netns::create().map_err(|error| error.to_string())?;
        let clients = "10.0.0.0/8".parse().map_err(|_| "the probe's own prefix is wrong")?;
        let install = || Interception::install(&Config::new(vec![clients])).map(drop);
        let installed = netns.run(install).map_err(|error| error.to_string())?;
        installed.map_err(|error| error.to_string())?;
        Ok(version)
    };
    match probe() {
        Ok(seen) => Finding { subject, state: State::Good, seen, consequence: "" },
        Err(seen) => Finding {
            subject,
            state: State::Broken,
            seen,
            consequence: "where BPF cannot steer the relay cannot take connections, and HAProxy is not \
                          compared with; install `nftables` and use a kernel \
                          with CONFIG_NFT_TPROXY and CONFIG_NFT_SOCKET",
        },
    }
}

/// What connections to UEs have that no option of a socket gives.
fn retransmission_timeout() -> Finding {
    let least = sysctl::get("net.ipv4.tcp_rto_min_us").ok().and_then(|us| us.trim().parse().ok());
    let can_change = least.is_some();
    let least = least.map_or(Span::from_millis(200), Span::from_micros);
    Finding {
        subject: "retransmission timeout",
        state: State::Good,
        seen: format!("{least} at least"),
        consequence: if can_change {
            ""
        } else {
            "before Linux 6.11 the relay cannot have 1 s towards UEs: set `rto_min 1s` on the routes to \
             them, or what is only late there is sent twice (docs/explanation/relay.md, \"Before a radio network\")"
        },
    }
}

fn initial_windows() -> Finding {
    let attached = FirstWindow::attach();
    let may = attached.is_ok();
    Finding {
        subject: "initial windows by BPF",
        state: if may { State::Good } else { State::Missing },
        seen: attached.map_or_else(|error| error.to_string(), |_| "yes".to_owned()),
        consequence: if may {
            ""
        } else {
            "pages' connections to UEs begin with the kernel's window, however many at once"
        },
    }
}

fn congestion_controls() -> Finding {
    let subject = "congestion controls";
    let available = sysctl::get("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    let has_cubic = available.split_whitespace().any(|name| name == "cubic");
    Finding {
        subject,
        state: if has_cubic { State::Good } else { State::Missing },
        seen: available,
        consequence: if has_cubic { "" } else { "scenarios that use CUBIC fail" },
    }
}

fn routes() -> Finding {
    let subject = "routes";
    let named = Netlink::open().and_then(|mut netlink| netlink.routes_with_congestion_control());
    let named = named.unwrap_or_default();
    let Some((first, control)) = named.first() else {
        let seen = "none names a congestion control".into();
        return Finding { subject, state: State::Good, seen, consequence: "" };
    };
    let more =
        if named.len() > 1 { format!(", and {} more", named.len() - 1) } else { String::new() };
    Finding {
        subject,
        state: State::Missing,
        seen: format!("{first} names `congctl {control}`{more}"),
        consequence: "on the way to clients it comes before the relay's own congestion control, whatever \
                      `client_leg.congestion_control` says; take it off the route",
    }
}

fn bpf() -> Finding {
    let subject = "BPF with type information";
    let has_btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    let root = userns::is_root() && fs::read_dir("/sys/fs/bpf").is_ok();
    Finding {
        subject,
        state: if has_btf { State::Good } else { State::Missing },
        seen: match (has_btf, root) {
            (true, true) => "yes".into(),
            (true, false) => "yes, but not for this user".into(),
            (false, _) => "no /sys/kernel/btf/vmlinux".into(),
        },
        consequence: if has_btf { "" } else { "BPF programs cannot be loaded" },
    }
}

fn program(name: &'static str, flag: &str, consequence: &'static str) -> Finding {
    match machine::version(name, flag) {
        Some(seen) => Finding { subject: name, state: State::Good, seen, consequence: "" },
        None => Finding {
            subject: name,
            state: State::Missing,
            seen: "not installed".into(),
            consequence,
        },
    }
}
