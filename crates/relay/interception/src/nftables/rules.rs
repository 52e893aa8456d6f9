//! The nftables table, as text. One line each: `nft -i` runs a line as one transaction.

use ipnet::IpNet;
use midspan_config::Marks;

/// Ends the taking of new connections, and leaves the rest.
pub(super) const TAKE_NO_MORE: &str =
    "flush chain inet midspan take; flush chain inet midspan untrack";

/// Says whether the table is there, and in any case something.
pub(super) const PROBE: &str = "list chain inet midspan take";

/// The command that creates the whole table.
///
/// Chain `prerouting` decides, in this order:
/// 1. An ICMP error about a packet of one of the relay's sockets (a path that takes smaller ones
///    only, a host that cannot be reached) is for this host; the kernel finds the socket by what
///    the error quotes. It is addressed to the end in whose name the relay had sent.
/// 2. A SYN from a client goes to chain `take`, and so to the relay's listener, unless it is for
///    this host itself, or signed. This comes before the sockets: where a socket in TIME-WAIT has the SYN's
///    addresses, `tproxy` knows to give way to the new connection. Connections to the relay's own
///    port number are left alone: the relay would have to refuse them, being unable to tell them
///    from ones made to itself.
/// 3. Any other packet of one of the relay's transparent sockets is for this host. The listener
///    is such a socket too, bound to any address, and would attract all that is sent to its port
///    number anywhere; so for that port only sockets bound to an address count. (Not for every
///    port: the kernel can tell it of full sockets only, and those of an unfinished handshake or
///    in TIME-WAIT must not be missed.)
///
/// It is behind NAT, so that what a server has answered has the client's address again, and behind filters of reverse
/// paths, which would look for one by the mark.
///
/// Chains `legs` and `output`, before connection tracking, take clients' legs out of it (see `legs.rs`): what is taken
/// by 2, and what has a socket with a client's leg's mark. Sockets of unfinished handshakes and in TIME-WAIT have no mark
/// that could be asked for; the former are clients' legs all, and the latter count as such.
pub(super) fn table(clients: &[IpNet], port: u16, marks: Marks) -> String {
    let Marks { client: mark, outgoing, .. } = marks;
    let v4 = of_family(clients, |prefix| matches!(prefix, IpNet::V4(_)));
    let v6 = of_family(clients, |prefix| matches!(prefix, IpNet::V6(_)));
    // TCP-MD5 (RFC 2385) and TCP-AO (RFC 5925): only the ends can sign.
    let unsigned = "tcp option 19 missing tcp option 29 missing";
    let mut take = Vec::new();
    let mut lead = Vec::new();
    for (prefixes, version, nfproto) in [(v4, "ip", "ipv4"), (v6, "ip6", "ipv6")] {
        if prefixes.is_empty() {
            continue;
        }
        take.push(format!(
            "meta nfproto {nfproto} meta l4proto tcp meta mark set {mark:#x} \
             tproxy {version} to :{port} accept;"
        ));
        lead.push(format!(
            "tcp flags & (fin | syn | rst | ack) == syn tcp dport != {port} {unsigned} \
             {version} saddr {{ {} }} fib daddr type != local goto",
            prefixes.join(", ")
        ));
    }
    let lead =
        |to: &str| lead.iter().map(|rule| format!("{rule} {to};")).collect::<Vec<_>>().join(" ");
    let ours = |verdict: &str| {
        format!(
            "tcp dport != {port} socket transparent 1 {verdict}; \
             tcp dport {port} socket transparent 1 socket wildcard 0 {verdict};"
        )
    };
    format!(
        "add table inet midspan {{ flags owner; \
         chain take {{ {take} }}; \
         chain untrack {{ notrack accept; }}; \
         chain legs {{ \
         type filter hook prerouting priority raw; policy accept; \
         meta l4proto != tcp accept; \
         {untrack} \
         socket transparent 1 socket mark 0 accept; \
         {notrack} \
         }}; \
         chain output {{ type filter hook output priority raw; meta mark {outgoing:#x} notrack; }}; \
         chain prerouting {{ \
         type filter hook prerouting priority filter + 100; policy accept; \
         meta l4proto {{ 1, 58 }} socket transparent 1 meta mark set {mark:#x} accept; \
         meta l4proto != tcp accept; \
         {lead} \
         {deliver} \
         }}; }}",
        take = take.join(" "),
        untrack = lead("untrack"),
        notrack = ours("notrack"),
        lead = lead("take"),
        deliver = ours(&format!("meta mark set {mark:#x} accept")),
    )
}

fn of_family(clients: &[IpNet], is: impl Fn(&IpNet) -> bool) -> Vec<String> {
    clients.iter().filter(|prefix| is(prefix)).map(|prefix| prefix.trunc().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_with_rules_of_the_families_in_use_only() {
        let clients = ["10.1.2.3/8".parse().unwrap(), "192.0.2.0/24".parse().unwrap()];
        let table = table(&clients, 8742, Marks::from(0x4d53));
        assert!(!table.contains('\n'));
        assert!(table.contains("ip saddr { 10.0.0.0/8, 192.0.2.0/24 } fib"), "{table}");
        assert!(!table.contains("ip6"), "{table}");
    }
}
