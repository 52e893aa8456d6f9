//! How many new connections are left alone, by group of clients and server.

use std::collections::BTreeMap;

use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use midspan_decide::{Because, Chance, Of};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Error;
use crate::intf::{self, because};
use crate::steering::put;

/// What the program calls it.
const fn code(because: Because) -> u16 {
    (match because {
        Because::ByPolicy => because::BY_POLICY,
        Because::Unknown => because::UNKNOWN,
        Because::Fine => because::FINE,
        Because::Harm => because::HARM,
        Because::Pinned => because::PINNED,
    }) as u16
}

/// One that no program of this version has written was told.
pub(crate) const fn because_of(code: u16) -> Because {
    match code as because::Type {
        because::UNKNOWN => Because::Unknown,
        because::FINE => Because::Fine,
        because::HARM => Because::Harm,
        because::PINNED => Because::Pinned,
        _ => Because::ByPolicy,
    }
}

/// Says to the program how many new connections are left alone. What is said holds from the next slot of the holdout on,
/// as a client keeps its lot for a slot.
#[derive(Debug)]
pub struct Chances {
    groups: MapHandle,
    places: MapHandle,
    servers: MapHandle,
    /// What the maps have.
    said: BTreeMap<Of, intf::chance>,
}

impl Chances {
    /// What another relay has said before goes on to hold until this one says otherwise.
    pub(crate) fn new(groups: MapHandle, places: MapHandle, servers: MapHandle) -> Self {
        let mut said = BTreeMap::new();
        let entries = |map: &MapHandle| {
            let keys: Vec<_> = map.keys().collect();
            let value = |key: &Vec<u8>| map.lookup(key, MapFlags::ANY).ok().flatten();
            keys.into_iter().filter_map(|key| Some((value(&key)?, key))).collect::<Vec<_>>()
        };
        for (value, key) in entries(&places) {
            if let Ok(place) = intf::place::read_from_bytes(&key)
                && let Ok(chance) = intf::chance::read_from_bytes(&value)
            {
                said.insert(Of::Place { group: place.group, server: place.server.into() }, chance);
            }
        }
        for (value, key) in entries(&servers) {
            if let Ok(prefix) = intf::prefix::read_from_bytes(&key)
                && let Ok(chance) = intf::chance::read_from_bytes(&value)
                && let Some(prefix) = prefix.to_net()
            {
                said.insert(Of::Servers(prefix), chance);
            }
        }
        Chances { groups, places, servers, said }
    }

    /// Which clients are treated alike: the first group is number 1. The longest prefix that holds an address decides.
    ///
    /// # Errors
    /// When the map does not take them.
    pub fn set_groups(&self, groups: &[IpNet]) -> Result<(), Error> {
        let wanted: BTreeMap<Vec<u8>, u32> = groups
            .iter()
            .zip(1..)
            .map(|(net, number)| (intf::prefix::from(*net).as_bytes().to_vec(), number))
            .collect();
        for other in self.groups.keys().filter(|key| !wanted.contains_key(key)).collect::<Vec<_>>()
        {
            let _ = self.groups.delete(&other);
        }
        wanted
            .iter()
            .try_for_each(|(net, number)| put(&self.groups, "groups", net, &number.to_ne_bytes()))
    }

    /// Says what is decided, all of it, from slot `from` on. Of what is not among it any more nothing is.
    ///
    /// # Errors
    /// When a map takes no more. What it has is in force then.
    pub fn set(&mut self, decided: &BTreeMap<Of, Chance>, from: u64) -> Result<(), Error> {
        let gone: Vec<Of> =
            self.said.keys().filter(|of| !decided.contains_key(of)).copied().collect();
        for of in gone {
            let _ = match of {
                Of::Servers(net) => self.servers.delete(intf::prefix::from(net).as_bytes()),
                Of::Place { .. } => self.places.delete(place(of).as_bytes()),
            };
            self.said.remove(&of);
        }
        for (&of, &chance) in decided {
            let before = self.said.get(&of).copied();
            if before
                .is_some_and(|before| holds(&before) == (chance.per_mille, code(chance.because)))
            {
                continue;
            }
            let (before, because_before) = match before {
                Some(before) if before.from_slot >= from => (before.before, before.because_before),
                Some(before) => holds(&before),
                // What held of it until now is what holds of what it is in.
                None => {
                    self.around(of).map_or((chance.per_mille, code(chance.because)), |around| {
                        if around.from_slot >= from {
                            (around.before, around.because_before)
                        } else {
                            holds(&around)
                        }
                    })
                }
            };
            let value = intf::chance {
                from_slot: from,
                before,
                after: chance.per_mille,
                because_before,
                because_after: code(chance.because),
            };
            match of {
                Of::Servers(net) => {
                    let key = intf::prefix::from(net);
                    put(&self.servers, "chances", key.as_bytes(), value.as_bytes())?;
                }
                Of::Place { .. } => {
                    put(&self.places, "places", place(of).as_bytes(), value.as_bytes())?;
                }
            }
            self.said.insert(of, value);
        }
        Ok(())
    }

    /// What is said of the closest that contains it.
    fn around(&self, of: Of) -> Option<intf::chance> {
        let (mut net, is_whole) = match of {
            Of::Servers(net) => (net, false),
            Of::Place { server, .. } => (IpNet::from(server), true),
        };
        if !is_whole {
            net = net.supernet()?;
        }
        loop {
            if let Some(chance) = self.said.get(&Of::Servers(net)) {
                return Some(*chance);
            }
            net = net.supernet()?;
        }
    }
}

fn place(of: Of) -> intf::place {
    match of {
        Of::Place { group, server } => intf::place { server: server.into(), group },
        Of::Servers(net) => intf::place { server: net.network().into(), group: 0 },
    }
}

/// What is in force once its slot has begun.
const fn holds(chance: &intf::chance) -> (u16, u16) {
    (chance.after, chance.because_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_of_the_program() {
        let all =
            [Because::ByPolicy, Because::Unknown, Because::Fine, Because::Harm, Because::Pinned];
        for because in all {
            assert_eq!(because_of(code(because)), because);
        }
        assert_eq!(because_of(u16::MAX), Because::ByPolicy);
    }
}
