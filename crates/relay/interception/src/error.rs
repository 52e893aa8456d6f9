use std::io;

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
    #[error("another relay intercepts connections here already")]
    Taken,
    /// Marked packets cannot be routed to this host.
    #[error("packets cannot be routed to the relay: {0}")]
    Routing(#[source] io::Error),
    /// BPF cannot steer here.
    #[error(transparent)]
    Steer(#[from] midspan_steer::Error),
    /// The policy takes BPF, which cannot be had.
    #[error("{0}; `policy`, `handshake` and `limits.syn_rate` take it, so nftables cannot step in")]
    PolicyTakesBpf(#[source] midspan_steer::Error),
    /// There is nothing to take over.
    #[error(
        "the relay that runs here cannot be replaced, as BPF does not steer to it or is not pinned: \
         stop it first"
    )]
    NotReplaceable,
    /// SYNs cannot be held until their server has answered.
    #[error(
        "SYNs cannot be held, which the confirmed handshake takes, and rules of this host for what it forwards \
         (`forward_rules`): {0}"
    )]
    Inject(#[source] io::Error),
    /// Rules would be bypassed.
    #[error(
        "table `{0}` has rules for what this host forwards, which connections that nftables hands to the relay would \
         not meet: BPF has them asked (`interception = \"bpf\"`), or say `forward_rules = \"ignore\"`"
    )]
    ForwardRules(String),
    /// An interface of `interfaces` is not there.
    #[error(
        "interface `{0}` is not there; `interfaces` names those whose packets are to be steered"
    )]
    NoInterface(String),
    /// All clients are of IPv6, which this host has not.
    #[error("`clients` has prefixes of IPv6 only, and net.ipv6.conf.all.disable_ipv6 is 1")]
    NoIpv6,
    /// Nothing can be proven.
    #[error(
        "it cannot be proven that what is steered to the relay arrives: {0} (`prove = false` goes without)"
    )]
    NoProof(#[source] io::Error),
    /// What is steered to the relay does not arrive.
    #[error("{0}")]
    Unproven(String),
}
