use std::fmt;

macro_rules! verdicts {
    ($($(#[$doc:meta])+ $name:ident $label:literal,)+) => {
        /// What became of a new connection, or of a packet. The order is that of `enum verdict` in
        /// `bpf/record.h`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Verdict {
            $($(#[$doc])+ $name,)+
        }

        impl Verdict {
            /// All of them, in order.
            pub const ALL: &[Verdict] = &[$(Verdict::$name,)+];

            /// What it is called in logs and metrics.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Verdict::$name => $label,)+
                }
            }
        }
    };
}

verdicts! {
    /// New connections given to the relay.
    Split "split",
    /// New connections held until their server has answered: they are split then, or passed.
    Held "held",
    /// New connections whose SYN was shown to this host's rules: they are held then, or what these make of them.
    Consulted "consulted",
    /// New connections of no client that is served.
    PassClient "pass_client",
    /// New connections passed for their server's address.
    PassServer "pass_server",
    /// New connections passed for their server's port.
    PassPort "pass_port",
    /// New connections passed for their DSCP.
    PassDscp "pass_dscp",
    /// New connections whose segments are signed, which only their ends can do (TCP-MD5, RFC 2385; TCP-AO, RFC 5925).
    PassSigned "pass_signed",
    /// New connections to this host itself, or to where it does not forward.
    PassLocal "pass_local",
    /// New connections left alone for comparison.
    PassHoldout "pass_holdout",
    /// New connections passed because what is steered was found not to arrive.
    PassUnproven "pass_unproven",
    /// New connections passed because no live relay takes any.
    PassNoRelay "pass_no_relay",
    /// New connections passed because the relay's limits or queues are full.
    PassFull "pass_full",
    /// New connections passed because their client has as many split as it may.
    PassClientFull "pass_client_full",
    /// New connections passed because their client opens too many.
    PassRate "pass_rate",
    /// New connections passed because this host's rules send them elsewhere (DNAT).
    PassTranslated "pass_translated",
    /// New connections passed because what their server answers may not come by this host.
    PassAsymmetric "pass_asymmetric",
    /// New connections passed because they were steered once and did not arrive.
    PassUnreached "pass_unreached",
    /// New connections passed because the server, asked first, refused or has not answered.
    PassUnconfirmed "pass_unconfirmed",
    /// SYNs sent again of connections that were passed.
    PassAgain "pass_again",
    /// Packets given to the relay's sockets, as the kernel has merged them.
    Steered "steered",
    /// ICMP errors given to the relay's sockets.
    SteeredIcmp "steered_icmp",
    /// New connections that the kernel refused to give to the listener.
    NotSteered "not_steered",
    /// Fragments of TCP segments of connections that are not known to be split, which are passed.
    Fragment "fragment",
    /// Acknowledgements of SYN cookies, which open a connection.
    Cookie "cookie",
    /// New connections that came while a former one with the same addresses was in TIME-WAIT here.
    Reopened "reopened",
    /// Prefixes of servers found to answer by another way than through this host.
    Asymmetric "asymmetric",
    /// Connections that there was no room to account for.
    Unaccounted "unaccounted",
    /// Ended connections whose record was lost because user space was slow to take it.
    RecordLost "record_lost",
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// How often each verdict was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts(pub(crate) [u64; Verdict::ALL.len()]);

impl Counts {
    /// How often this one was given.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.0[verdict as usize]
    }

    /// Every verdict with its count.
    pub fn entries(&self) -> impl Iterator<Item = (Verdict, u64)> + '_ {
        Verdict::ALL.iter().copied().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_the_programs() {
        let header = include_str!("../bpf/record.h");
        let body = header.split_once("enum verdict {").unwrap().1.split_once("VERDICTS").unwrap().0;
        let names = body.lines().filter_map(|line| {
            let name = line.trim().split(',').next()?;
            let is_name =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            is_name.then(|| name.to_lowercase())
        });
        let labels: Vec<_> = Verdict::ALL.iter().map(|verdict| verdict.label()).collect();
        assert_eq!(names.collect::<Vec<_>>(), labels);
    }
}
