use std::fmt;

use crate::intf::verdict;

macro_rules! verdicts {
    ($($(#[$doc:meta])+ $name:ident = $code:ident $label:literal,)+) => {
        /// What became of a new connection, or of a packet: `enum verdict` of `bpf/intf.h`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Verdict {
            $($(#[$doc])+ $name = verdict::$code,)+
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
    Split = SPLIT "split",
    /// New connections held until their server has answered: they are split then, or passed.
    Held = HELD "held",
    /// New connections whose SYN was shown to this host's rules: they are held then, or what these make of them.
    Consulted = CONSULTED "consulted",
    /// New connections of no client that is served.
    PassClient = PASS_CLIENT "pass_client",
    /// New connections passed for their server's address.
    PassServer = PASS_SERVER "pass_server",
    /// New connections passed for their server's port.
    PassPort = PASS_PORT "pass_port",
    /// New connections passed for their DSCP.
    PassDscp = PASS_DSCP "pass_dscp",
    /// New connections whose segments are signed, which only their ends can do (TCP-MD5, RFC 2385; TCP-AO, RFC 5925).
    PassSigned = PASS_SIGNED "pass_signed",
    /// New connections to this host itself, or to where it does not forward.
    PassLocal = PASS_LOCAL "pass_local",
    /// New connections left alone for comparison.
    PassHoldout = PASS_HOLDOUT "pass_holdout",
    /// New connections passed because what is steered was found not to arrive.
    PassUnproven = PASS_UNPROVEN "pass_unproven",
    /// New connections passed because no live relay takes any.
    PassNoRelay = PASS_NO_RELAY "pass_no_relay",
    /// New connections passed because the relay's limits or queues are full.
    PassFull = PASS_FULL "pass_full",
    /// New connections passed because their client has as many split as it may.
    PassClientFull = PASS_CLIENT_FULL "pass_client_full",
    /// New connections passed because their client opens too many.
    PassRate = PASS_RATE "pass_rate",
    /// New connections passed because this host's rules send them elsewhere (DNAT).
    PassTranslated = PASS_TRANSLATED "pass_translated",
    /// New connections passed because what their server answers may not come by this host.
    PassAsymmetric = PASS_ASYMMETRIC "pass_asymmetric",
    /// New connections passed because they were steered once and did not arrive.
    PassUnreached = PASS_UNREACHED "pass_unreached",
    /// New connections passed because the server, asked first, refused or has not answered.
    PassUnconfirmed = PASS_UNCONFIRMED "pass_unconfirmed",
    /// SYNs sent again of connections that were passed.
    PassAgain = PASS_AGAIN "pass_again",
    /// Packets given to the relay's sockets, as the kernel has merged them.
    Steered = STEERED "steered",
    /// ICMP errors given to the relay's sockets.
    SteeredIcmp = STEERED_ICMP "steered_icmp",
    /// New connections that the kernel refused to give to the listener.
    NotSteered = NOT_STEERED "not_steered",
    /// Fragments of TCP segments of connections that are not known to be split, which are passed.
    Fragment = FRAGMENT "fragment",
    /// Acknowledgements of SYN cookies, which open a connection.
    Cookie = COOKIE "cookie",
    /// New connections that came while a former one with the same addresses was in TIME-WAIT here.
    Reopened = REOPENED "reopened",
    /// Acknowledgements to clients that told of nothing but holes which may fill by themselves, and did not go.
    KeptBack = KEPT_BACK "acknowledgement_kept_back",
    /// Acknowledgements to clients that told of such holes too, and were shortened.
    ToldLess = TOLD_LESS "acknowledgement_shortened",
    /// Those of both that went again, by themselves, when they might tell more.
    ToldLater = TOLD_LATER "acknowledgement_sent_again",
    /// Prefixes of servers found to answer by another way than through this host.
    Asymmetric = ASYMMETRIC "asymmetric",
    /// Connections that there was no room to account for.
    Unaccounted = UNACCOUNTED "unaccounted",
    /// Ended connections whose record was lost because user space was slow to take it.
    RecordLost = RECORD_LOST "record_lost",
}

/// [`Verdict::ALL`] is by code, and has all of them.
const _: () = {
    let mut code = 0;
    while code < Verdict::ALL.len() {
        assert!(Verdict::ALL[code] as usize == code);
        code += 1;
    }
    assert!(code == verdict::VERDICTS as usize);
};

impl Verdict {
    /// None if the program has no such code.
    pub(crate) fn of_code(code: u32) -> Option<Verdict> {
        Verdict::ALL.get(code as usize).copied()
    }
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
