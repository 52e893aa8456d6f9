use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;

use crate::intf::choice;

/// What is split, and what is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// By the client's address. The longest prefix that holds it decides; a client in none is left
    /// alone.
    pub clients: Vec<(IpNet, Choice)>,
    /// By the server's address, likewise. An address in none is left alone too, if any prefix here
    /// is to be split; else it is split.
    pub servers: Vec<(IpNet, Choice)>,
    /// Prefixes of servers that are asked before the client is answered. Of these and of `servers`, the
    /// longest that holds an address decides; these alone do not make others be left alone.
    pub confirm_servers: Vec<IpNet>,
    /// By the server's port: the first range that holds it decides. One in none is left alone if
    /// any range here is to be split; else it is split.
    pub ports: Vec<(RangeInclusive<u16>, Choice)>,
    /// Connections whose SYN has one of these code points, 0 to 63, are left alone.
    pub pass_dscp: Vec<u8>,
    /// Of a thousand clients this many are left alone for a slot, for comparison, chosen by a hash of their address and the
    /// slot; or of new connections, by their addresses and ports, where slots have no length.
    pub holdout_per_mille: u32,
    /// How long a slot of the holdout is. Zero: each connection is drawn by itself.
    pub holdout_slot: Duration,
    /// Whether how many are left alone is [decided](crate::Chances) by group of clients and server; where it is not, by
    /// `holdout_per_mille`. Takes slots that have a length.
    pub decides: bool,
    /// New connections per second of one client (of one /64 for IPv6) past which the rest is left
    /// alone, and how many may come at once. None: no limit.
    pub syn_rate: Option<(u32, u32)>,
    /// Half-open connections per listener past which new ones are left alone.
    pub half_open: u32,
    /// How long holes in what clients send on split connections are kept from them at most, in microseconds, where
    /// segments are known to come late by themselves. 0: not at all.
    pub reordering_hold_us: u32,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Give it to the relay.
    Split,
    /// Likewise, once the server has answered.
    Confirm,
    /// Likewise, unless the server has answered others lately.
    Learn,
    /// Leave it alone.
    Pass,
}

impl Choice {
    pub(crate) const fn splits(self) -> bool {
        matches!(self, Choice::Split | Choice::Confirm | Choice::Learn)
    }

    /// `enum choice`, as policies have it.
    pub(crate) const fn to_byte(self) -> u8 {
        let code = match self {
            Choice::Pass => choice::PASS,
            Choice::Split => choice::SPLIT_BY_POLICY,
            Choice::Confirm => choice::CONFIRM,
            Choice::Learn => choice::LEARN,
        };
        code as u8
    }
}

/// Of `enum choice`, as policies have it.
pub(crate) const SPLIT_ALWAYS: u8 = choice::SPLIT_ALWAYS as u8;

impl Policy {
    /// The servers' prefixes, and what becomes of all others as prefixes of length 0.
    pub(crate) fn all_servers(&self) -> Vec<(IpNet, Choice)> {
        let other = rest(self.servers.iter().map(|(_, choice)| *choice));
        let everything = ["0.0.0.0/0", "::/0"].iter().filter_map(|all| all.parse().ok());
        let mut all: Vec<_> = everything.map(|all: IpNet| (all, other)).collect();
        all.extend(self.servers.iter().copied());
        all.extend(self.confirm_servers.iter().map(|prefix| (*prefix, Choice::Confirm)));
        all
    }

    /// Which ports are split, a bit each, 64 to a word.
    pub(crate) fn port_words(&self) -> Vec<u64> {
        let other = rest(self.ports.iter().map(|(_, choice)| *choice));
        let splits = |port: u16| {
            let said = self.ports.iter().find(|(range, _)| range.contains(&port));
            said.map_or(other, |(_, choice)| *choice).splits()
        };
        let mut words = vec![0; (1 << 16) / 64];
        for port in (0..=u16::MAX).filter(|&port| splits(port)) {
            words[usize::from(port) / 64] |= 1 << (port % 64);
        }
        words
    }

    /// The code points that are left alone, a bit each.
    pub(crate) fn dscp_word(&self) -> u64 {
        self.pass_dscp.iter().fold(0, |word, point| word | 1 << (point & 63))
    }
}

/// What becomes of what no entry speaks of.
fn rest(mut said: impl Iterator<Item = Choice>) -> Choice {
    if said.any(Choice::splits) { Choice::Pass } else { Choice::Split }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_entries_everything_is_split() {
        let policy = Policy::default();
        assert!(policy.port_words().iter().all(|word| *word == u64::MAX));
        assert!(policy.all_servers().iter().all(|(_, choice)| choice.splits()));
    }

    #[test]
    fn exceptions_leave_the_rest_split_and_a_selection_leaves_it_alone() {
        let mut policy = Policy { ports: vec![(22..=22, Choice::Pass)], ..Policy::default() };
        let words = policy.port_words();
        assert_eq!((words[0] >> 22 & 1, words[0].count_ones()), (0, 63));
        policy.ports = vec![(443..=443, Choice::Split), (80..=80, Choice::Split)];
        let words = policy.port_words();
        assert_eq!(words.iter().map(|word| word.count_ones()).sum::<u32>(), 2);
        assert_eq!((words[1] >> 16 & 1, words[6] >> 59 & 1), (1, 1));
    }

    #[test]
    fn code_points_are_bits() {
        let policy = Policy { pass_dscp: vec![0, 46], ..Policy::default() };
        assert_eq!(policy.dscp_word(), 1 | 1 << 46);
    }
}
