//! Which packet filter rules the calling thread's network namespace has.

use std::fs;
use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_GETCHAIN`.
const GET_CHAIN: u16 = 10 << 8 | 4;
/// `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_HOOK` and `NFTA_CHAIN_TYPE`
const CHAIN_TABLE: u16 = 1;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
/// `NFTA_HOOK_HOOKNUM`, within a chain's hook; `NF_INET_PRE_ROUTING` and `NF_INET_FORWARD`.
const HOOK_NUMBER: u16 = 1;
const PRE_ROUTING: u32 = 0;
const FORWARD: u32 = 2;
/// What an attribute's type has beside it (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
/// Bytes of a netlink message's header, and of netfilter's behind it (`struct nfgenmsg`).
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;
/// Where rules of the older kind are listed, if there are any: `iptables-legacy`.
const LEGACY: [&str; 2] =
    ["/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"];

/// A chain of rules, or all of a table of `iptables-legacy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The table's name.
    pub table: String,
    /// Whether it may change packets' addresses: its type is `nat`.
    pub translates: bool,
    /// Whether it decides what this host forwards.
    pub forwards: bool,
    /// Whether it may give what comes in another destination (DNAT).
    pub redirects: bool,
}

/// The chains of rules that there are, those of `iptables-legacy` included.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN. A kernel without nftables has none, and that is no error.
pub fn chains() -> io::Result<Vec<Chain>> {
    let mut chains: Vec<Chain> = LEGACY
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| text.lines().map(legacy).collect::<Vec<_>>())
        .collect();
    let mut socket = match Socket::new(NETLINK_NETFILTER) {
        Ok(socket) => socket,
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(chains),
        Err(error) => return Err(error),
    };
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = Vec::with_capacity(HEADER + FAMILY_HEADER);
    request.extend(((HEADER + FAMILY_HEADER) as u32).to_ne_bytes());
    request.extend(GET_CHAIN.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend([0; 8 + FAMILY_HEADER]);
    socket.send(&request, 0)?;
    loop {
        let (buffer, _) = socket.recv_from_full()?;
        let mut rest = buffer.as_slice();
        while let Some((kind, message, behind)) = split_message(rest) {
            match kind {
                NLMSG_DONE => return Ok(chains),
                NLMSG_ERROR => match error_of(message) {
                    // No such subsystem: its module is not there.
                    Some(libc::EINVAL | libc::EOPNOTSUPP) => return Ok(chains),
                    Some(code) => return Err(io::Error::from_raw_os_error(code)),
                    None => return Ok(chains),
                },
                _ => chains.extend(chain(message)),
            }
            rest = behind;
        }
    }
}

/// The first message's type and payload, and what is behind it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let payload = bytes.get(HEADER..length)?;
    let next = length.next_multiple_of(4).min(bytes.len());
    Some((kind, payload, &bytes[next..]))
}

/// What an NLMSG_ERROR says; none if that all went well.
fn error_of(message: &[u8]) -> Option<i32> {
    let code = i32::from_ne_bytes(*message.first_chunk()?);
    (code != 0).then_some(-code)
}

fn legacy(table: &str) -> Chain {
    let (nat, filter) = (table == "nat", table == "filter");
    Chain { table: table.to_owned(), translates: nat, forwards: filter, redirects: nat }
}

fn chain(message: &[u8]) -> Option<Chain> {
    let attributes: Vec<_> = Attributes(message.get(FAMILY_HEADER..)?).collect();
    let of = |wanted| attributes.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
    let text = |value: &[u8]| {
        String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
    };
    let kind = of(CHAIN_TYPE).map(text);
    let hook = of(CHAIN_HOOK).and_then(|hook| {
        let (_, number) = Attributes(hook).find(|(kind, _)| *kind == HOOK_NUMBER)?;
        Some(u32::from_be_bytes(*number.first_chunk()?))
    });
    let translates = kind.as_deref() == Some("nat");
    Some(Chain {
        table: of(CHAIN_TABLE).map(text)?,
        translates,
        forwards: kind.as_deref() == Some("filter") && hook == Some(FORWARD),
        redirects: translates && hook == Some(PRE_ROUTING),
    })
}

/// Netlink attributes, by type.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(*self.0.first_chunk()?));
        let kind = u16::from_ne_bytes(*self.0.get(2..)?.first_chunk()?);
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE_MASK, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_read_and_damage_survived() {
        let attribute = |kind: u16, value: &[u8]| {
            let length = 4 + value.len();
            let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            bytes.resize(length.next_multiple_of(4), 0);
            bytes
        };
        let of = |kind: &[u8], number: u32| {
            let hook = attribute(HOOK_NUMBER, &number.to_be_bytes());
            let parts = [
                attribute(CHAIN_TABLE, b"fw\0"),
                attribute(CHAIN_HOOK | 0x8000, &hook),
                attribute(CHAIN_TYPE, kind),
            ];
            [vec![1, 0, 0, 0], parts.concat()].concat()
        };
        let whole = of(b"nat\0", PRE_ROUTING);
        let chain_of = |translates, forwards, redirects| {
            Some(Chain { table: "fw".to_owned(), translates, forwards, redirects })
        };
        assert_eq!(chain(&whole), chain_of(true, false, true));
        assert_eq!(chain(&of(b"nat\0", 4)), chain_of(true, false, false));
        assert_eq!(chain(&of(b"filter\0", FORWARD)), chain_of(false, true, false));
        for cut in 0..whole.len() {
            chain(&whole[..cut]);
        }
        assert_eq!(chain(&[0; 8]), None);
    }
}
