//! Where connections belong, in the words of the estimator, of the steering program and of people.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use midspan_gain::{Arm, Id, Place, Transfer, Unit};
use midspan_steer::{Because, Chance, Course, FlowRecord, Of, Verdict};

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

    pub(crate) fn always_split(&self) -> &[IpNet] {
        &self.always_split
    }

    /// What a connection is to the estimator; none if it was not drawn. `now` is the monotonic clock's time, as is what the
    /// record has, if the connection is still open.
    pub(crate) fn transfer(
        &self,
        record: &FlowRecord,
        since: Duration,
        now: Option<Duration>,
    ) -> Option<Transfer> {
        let drawn = record.holdout?;
        let arm = match record.verdict {
            Verdict::Split => Arm::Split,
            Verdict::PassHoldout => Arm::Unsplit,
            _ => return None,
        };
        let unsplit = f64::from(drawn.per_mille) / 1000.0;
        Some(Transfer {
            place: self.place(record.client.ip(), record.server.ip()),
            subscriber: subscriber(record.client.ip()),
            key: key(record.client, record.server),
            arm,
            probability: if arm == Arm::Split { 1.0 - unsplit } else { unsplit },
            slot: since + drawn.slot?,
            start: since + record.start,
            bytes: record.up.bytes + record.down.bytes,
            completion: completed(record, now).map(|at| at.saturating_sub(record.start)),
        })
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

/// When all that was sent was acknowledged, as far as one can see; now if it is not. None if nothing was sent.
fn completed(record: &FlowRecord, now: Option<Duration>) -> Option<Duration> {
    let ways = [record.up, record.down];
    let is_behind = |way: &Course| match (way.payload, way.acknowledged) {
        (Some((_, sent)), Some((_, acknowledged))) => sent > acknowledged,
        (sent, _) => sent.is_some(),
    };
    if let Some(now) = now
        && ways.iter().any(is_behind)
    {
        return Some(now);
    }
    ways.iter().filter_map(|way| way.acknowledged).map(|(_, last)| last).max()
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
    use midspan_steer::{Drawn, Ending};

    use super::*;

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

    fn record() -> FlowRecord {
        FlowRecord {
            client: "10.0.3.4:40000".parse().unwrap(),
            server: "192.0.2.200:443".parse().unwrap(),
            sequence: 1,
            verdict: Verdict::PassHoldout,
            start: seconds(65),
            holdout: Some(Drawn {
                per_mille: 250,
                because: Because::Unknown,
                slot: Some(seconds(60)),
            }),
            end: seconds(75),
            up: Course {
                bytes: 100,
                payload: Some((seconds(66), seconds(66))),
                acknowledged: Some((seconds(67), seconds(67))),
                finished: false,
            },
            down: Course {
                bytes: 20_000,
                payload: Some((seconds(67), seconds(69))),
                acknowledged: Some((seconds(68), seconds(70))),
                finished: false,
            },
            ending: Ending::Finished,
        }
    }

    #[test]
    fn a_record_is_a_transfer_of_its_place() {
        let transfer = places().transfer(&record(), seconds(6_000), None).unwrap();
        assert_eq!((transfer.arm, transfer.probability), (Arm::Unsplit, 0.25));
        assert_eq!((transfer.slot, transfer.start), (seconds(6_060), seconds(6_065)));
        assert_eq!((transfer.bytes, transfer.completion), (20_100, Some(seconds(5))));
        let place = Unit::Place(transfer.place);
        assert_eq!(places().name(place), "192.0.2.200 from 10.0.0.0/16");
        let server = record().server.ip();
        assert_eq!(places().of(place), [Of::Place { group: 2, server }]);
        let service = place.parent().unwrap();
        assert_eq!(places().of(service), [Of::Servers(net("192.0.2.200/32"))]);
        let prefix = service.parent().unwrap();
        assert_eq!(places().of(prefix), [Of::Servers(net("192.0.2.0/24"))]);
        assert_eq!(places().of(Unit::All).len(), 2);
        let undrawn = FlowRecord { holdout: None, ..record() };
        assert_eq!(places().transfer(&undrawn, seconds(0), None), None);
        let passed = FlowRecord { verdict: Verdict::PassFull, ..record() };
        assert_eq!(places().transfer(&passed, seconds(0), None), None);
    }

    #[test]
    fn what_is_open_has_taken_until_now_if_anything_is_on_its_way() {
        let took = |record: &FlowRecord, now| {
            places().transfer(record, seconds(0), Some(seconds(now))).unwrap().completion
        };
        assert_eq!(took(&record(), 90), Some(seconds(5)));
        let mut busy = record();
        busy.down.payload = Some((seconds(67), seconds(88)));
        assert_eq!(took(&busy, 90), Some(seconds(25)));
        busy.down.acknowledged = None;
        assert_eq!(took(&busy, 90), Some(seconds(25)));
        let silent = FlowRecord { up: Course::default(), down: Course::default(), ..record() };
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
