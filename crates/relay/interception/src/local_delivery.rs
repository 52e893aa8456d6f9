//! The routing that makes packets with the relay's mark end at this host.
//!
//! Only packets that the interception has marked take it; should it be left behind by a kill, it does
//! nothing, and the next relay takes it over instead of adding a second one.

use ipnet::IpNet;
use midspan_config::Marks;
use midspan_sys::netlink::{Family, Netlink};
use midspan_sys::sysctl;

use crate::error::InterceptionError;

/// A routing rule and its table. Dropping this removes them.
#[derive(Debug)]
pub(crate) struct LocalDelivery {
    families: Vec<Family>,
    mark: u32,
}

impl LocalDelivery {
    /// For packets with [`Marks`] of `mark`, of the IP versions that these clients have.
    pub(crate) fn install(
        clients: &[IpNet],
        mark: u32,
    ) -> Result<LocalDelivery, InterceptionError> {
        let wanted = |family| clients.iter().any(|prefix| family_of(prefix) == family);
        let families = [Family::Inet, Family::Inet6].into_iter().filter(|&f| wanted(f)).collect();
        let delivery = LocalDelivery { families, mark };
        let add = || {
            let mut netlink = Netlink::open()?;
            let mut add = |&family: &_| {
                netlink.add_local_delivery(family, mark, &Marks::from(mark).delivered())
            };
            delivery.families.iter().try_for_each(&mut add)
        };
        add().map_err(InterceptionError::Routing)?;
        warn_of_obstacles(&delivery.families);
        Ok(delivery)
    }
}

impl LocalDelivery {
    /// Leaves it to another relay, if that has the same mark.
    pub(crate) fn leave(mut self, mark: u32) {
        if self.mark == mark {
            self.families.clear();
        }
    }
}

impl Drop for LocalDelivery {
    fn drop(&mut self) {
        let remove = || {
            let mut netlink = Netlink::open()?;
            let marks = Marks::from(self.mark).delivered();
            let mut remove = |&family: &_| netlink.remove_local_delivery(family, self.mark, &marks);
            self.families.iter().try_for_each(&mut remove)
        };
        if let Err(error) = remove() {
            tracing::error!(%error, "the routing rule of mark {:#x} could not be removed", self.mark);
        }
    }
}

/// What strict reverse path filters ask of the loopback link, to let in what is delivered by it: that packets with a mark
/// are looked up with it, and found to be local. Dropping this sets it back.
#[derive(Debug)]
pub(crate) struct Loopback {
    before: Vec<(&'static str, String)>,
}

const ASKED_OF_LOOPBACK: [&str; 2] =
    ["net.ipv4.conf.lo.src_valid_mark", "net.ipv4.conf.lo.accept_local"];

impl Loopback {
    pub(crate) fn prepare() -> Loopback {
        let set = |name| {
            let before = sysctl::get(name).ok().filter(|value| value != "1")?;
            match sysctl::set(name, "1") {
                Ok(()) => Some((name, before)),
                Err(error) => {
                    tracing::warn!(
                        "{error}: strict reverse path filters may drop what is intercepted"
                    );
                    None
                }
            }
        };
        Loopback { before: ASKED_OF_LOOPBACK.into_iter().filter_map(set).collect() }
    }

    /// Leaves it to another relay, which found it as it is.
    pub(crate) fn leave(mut self) {
        self.before.clear();
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        for (name, before) in &self.before {
            let _ = sysctl::set(name, before);
        }
    }
}

fn family_of(prefix: &IpNet) -> Family {
    match prefix {
        IpNet::V4(_) => Family::Inet,
        IpNet::V6(_) => Family::Inet6,
    }
}

/// Settings that are the operator's, and that would make interception useless.
fn warn_of_obstacles(families: &[Family]) {
    let is = |name: &str, value: &str| sysctl::get(name).is_ok_and(|set| set == value);
    if families.contains(&Family::Inet) && is("net.ipv4.ip_forward", "0") {
        tracing::warn!("net.ipv4.ip_forward is 0: what the relay does not take is not forwarded");
    }
    if families.contains(&Family::Inet6) && is("net.ipv6.conf.all.forwarding", "0") {
        tracing::warn!(
            "net.ipv6.conf.all.forwarding is 0: what the relay does not take is not forwarded"
        );
    }
}
