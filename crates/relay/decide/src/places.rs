//! Where connections belong, in the words of the estimator, of the steering program and of people.

use core::net::{IpAddr, SocketAddr};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use ipnet::IpNet;
use midspan_gain::{Arm, Id, Place, Transfer, Unit};

use crate::chance::{Because, Chance, Of};
use crate::drawn::Drawn;

/// What is pinned to be split.
pub(crate) const SPLIT: Chance = Chance { per_mille: 0, because: Because::Pinned };

/// Groups of clients, and what is said of servers.
#[derive(Debug)]
pub(crate) struct Places {
    groups: Vec<IpNet>,
    always_split: Vec<IpNet>,
}

impl Places {
    pub(crate) fn new(groups: Vec<IpNet>, always_split: Vec<IpNet>) -> Places {
        Places { groups, always_split }
    }

    pub(crate) fn groups(&self) -> &[IpNet] {
        &self.groups
    }

    pub(crate) fn always_split(&self) -> &[IpNet] {
        &self.always_split
    }

    /// What a connection is to the estimator, which adds `since` to all times. `now`, if the connection is still open.
    pub(crate) fn transfer(
        &self,
        drawn: &Drawn,
        since: Duration,
        now: Option<Duration>,
    ) -> Transfer {
        let unsplit = f64::from(drawn.per_mille) / 1000.0;
        Transfer {
            place: self.place(drawn.client.ip(), drawn.server.ip()),
            subscriber: subscriber(drawn.client.ip()),
            key: key(drawn.client, drawn.server),
            arm: drawn.arm,
            probability: if drawn.arm == Arm::Split { 1.0 - unsplit } else { unsplit },
            slot: since + drawn.slot,
            start: since + drawn.start,
            bytes: drawn.up.bytes + drawn.down.bytes,
            completion: drawn.completed(now).map(|at| at.saturating_sub(drawn.start)),
        }
    }

    fn place(&self, client: IpAddr, server: IpAddr) -> Place {
        Place {
            group: self.group(client).map_or(Id(0), |(_, net)| id_of_group(net)),
            service: Id::of_address(server),
            prefix: Id::of_network(server),
        }
    }

    /// The longest that holds the address, with its place among them.
    fn group(&self, client: IpAddr) -> Option<(usize, IpNet)> {
        let all = self.groups.iter().copied().enumerate();
        all.filter(|(_, net)| net.contains(&client)).max_by_key(|(_, net)| net.prefix_len())
    }

    /// The group's number in the steering program; none if there is no such group any more.
    fn group_number(&self, group: Id) -> Option<u32> {
        if group == Id(0) {
            return Some(0);
        }
        let at = self.groups.iter().position(|&net| id_of_group(net) == group)?;
        u32::try_from(at + 1).ok()
    }

    /// What a unit is to the steering program.
    pub(crate) fn of(&self, unit: Unit) -> Vec<Of> {
        match unit {
            Unit::All => {
                let all = ["0.0.0.0/0", "::/0"].into_iter();
                all.filter_map(|net| net.parse().ok()).map(Of::Servers).collect()
            }
            Unit::Prefix(prefix) => vec![Of::Servers(network(prefix))],
            Unit::Service { service, .. } => vec![Of::Servers(service.to_address().into())],
            Unit::Place(Place { group, service, .. }) => {
                let group = self.group_number(group);
                let of = group.map(|group| Of::Place { group, server: service.to_address() });
                of.into_iter().collect()
            }
        }
    }

    /// What an operator has said of it.
    pub(crate) fn pinned(&self, unit: Unit) -> Option<Chance> {
        let net = match unit {
            Unit::All => return None,
            Unit::Prefix(prefix) => network(prefix),
            Unit::Service { service, .. } | Unit::Place(Place { service, .. }) => {
                service.to_address().into()
            }
        };
        self.always_split.iter().any(|always| always.contains(&net)).then_some(SPLIT)
    }

    /// What people call it.
    pub(crate) fn name(&self, unit: Unit) -> String {
        match unit {
            Unit::All => "all".into(),
            Unit::Prefix(prefix) => network(prefix).to_string(),
            Unit::Service { service, .. } => service.to_address().to_string(),
            Unit::Place(Place { group, service, .. }) => {
                let net = self.groups.iter().find(|&&net| id_of_group(net) == group);
                let group = net.map_or("others".into(), IpNet::to_string);
                format!("{} from {group}", service.to_address())
            }
        }
    }
}

/// One address, or one /64 of IPv6, which is one subscriber's.
fn subscriber(client: IpAddr) -> Id {
    let Id(number) = Id::of_address(client);
    if client.is_ipv4() { Id(number) } else { Id(number >> 64 << 64) }
}

fn key(client: SocketAddr, server: SocketAddr) -> u128 {
    let mut hasher = DefaultHasher::new();
    (client, server).hash(&mut hasher);
    hasher.finish().into()
}

/// The network of servers that a prefix is.
fn network(prefix: Id) -> IpNet {
    let address = prefix.to_address();
    let length = if address.is_ipv4() { Id::NETWORK_V4 } else { Id::NETWORK_V6 };
    IpNet::new(address, length).unwrap_or(IpNet::from(address))
}

/// Its network, and in the uppermost bits how long its hosts' part is, as networks of several lengths begin alike.
fn id_of_group(net: IpNet) -> Id {
    let hosts = u128::from(net.max_prefix_len() - net.prefix_len());
    Id(Id::of_address(net.network()).0 ^ (hosts << 120))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::Sent;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn places() -> Places {
        let groups = vec![net("10.0.0.0/8"), net("10.0.0.0/16"), net("2001:db8::/32")];
        Places::new(groups, vec![net("192.0.2.0/25")])
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn drawn() -> Drawn {
        Drawn {
            client: "10.0.3.4:40000".parse().unwrap(),
            server: "192.0.2.200:443".parse().unwrap(),
            arm: Arm::Unsplit,
            per_mille: 250,
            slot: seconds(60),
            start: seconds(65),
            up: Sent { bytes: 100, last: Some(seconds(66)), acknowledged: Some(seconds(67)) },
            down: Sent { bytes: 20_000, last: Some(seconds(69)), acknowledged: Some(seconds(70)) },
        }
    }

    #[test]
    fn what_was_drawn_is_a_transfer_of_its_place() {
        let transfer = places().transfer(&drawn(), seconds(6_000), None);
        assert_eq!((transfer.arm, transfer.probability), (Arm::Unsplit, 0.25));
        assert_eq!((transfer.slot, transfer.start), (seconds(6_060), seconds(6_065)));
        assert_eq!((transfer.bytes, transfer.completion), (20_100, Some(seconds(5))));
        let place = Unit::Place(transfer.place);
        assert_eq!(places().name(place), "192.0.2.200 from 10.0.0.0/16");
        let server = drawn().server.ip();
        assert_eq!(places().of(place), [Of::Place { group: 2, server }]);
        let service = place.parent().unwrap();
        assert_eq!(places().of(service), [Of::Servers(net("192.0.2.200/32"))]);
        let prefix = service.parent().unwrap();
        assert_eq!(places().of(prefix), [Of::Servers(net("192.0.2.0/24"))]);
        assert_eq!(places().of(Unit::All).len(), 2);
        let split = Drawn { arm: Arm::Split, ..drawn() };
        assert_eq!(places().transfer(&split, seconds(0), None).probability, 0.75);
    }

    #[test]
    fn what_is_open_has_taken_until_now_if_anything_is_on_its_way() {
        let took = |drawn: &Drawn, now| {
            places().transfer(drawn, seconds(0), Some(seconds(now))).completion
        };
        assert_eq!(took(&drawn(), 90), Some(seconds(5)));
        let mut busy = drawn();
        busy.down.last = Some(seconds(88));
        assert_eq!(took(&busy, 90), Some(seconds(25)));
        busy.down.acknowledged = None;
        assert_eq!(took(&busy, 90), Some(seconds(25)));
        let silent = Drawn { up: Sent::default(), down: Sent::default(), ..drawn() };
        assert_eq!(took(&silent, 90), None);
    }

    #[test]
    fn what_lies_in_a_pinned_prefix_is_split() {
        let unit = |server: &str| {
            let place = places().place("10.1.0.1".parse().unwrap(), server.parse().unwrap());
            Unit::Place(place).parent().unwrap()
        };
        assert_eq!(places().pinned(unit("192.0.2.7")), Some(SPLIT));
        assert_eq!(places().pinned(unit("192.0.2.200")), None);
        // Half of it is not.
        assert_eq!(places().pinned(unit("192.0.2.7").parent().unwrap()), None);
        assert_eq!(places().pinned(Unit::All), None);
    }

    #[test]
    fn groups_of_one_network_and_other_lengths_are_told_apart() {
        let all = [net("10.0.0.0/8"), net("10.0.0.0/16"), net("10.0.0.0/32"), net("::/0")];
        let ids: std::collections::BTreeSet<Id> = all.into_iter().map(id_of_group).collect();
        assert_eq!(ids.len(), 4);
        // Gone from the configuration.
        let place = Place { group: id_of_group(net("10.7.0.0/16")), service: Id(1), prefix: Id(0) };
        assert_eq!(places().of(Unit::Place(place)), []);
    }
}
