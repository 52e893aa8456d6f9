//! The program in force, and what the relay tells it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut,
    set_print,
};
use midspan_sys::netns::Netns;
use midspan_sys::shared::SharedBytes;
use midspan_sys::sysctl;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::account::{AccountsSource, OpenFlows};
use crate::attach::{Attachment, Side};
use crate::chances::Chances;
use crate::error::{Error, io_error};
use crate::held::HeldSource;
use crate::intf::{self, GENERATIONS, settings};
use crate::pins::{Pins, open_link};
use crate::policy::{Policy, SPLIT_ALWAYS};
use crate::slot::{Tally, WorkerSlot};
use crate::{LISTENERS_PER_SLOT, WORKERS};

/// Age of a worker's last beat at which it counts as dead.
const PATIENCE: Duration = Duration::from_millis(500);

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// What a relay is, to the program.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many workers it has.
    pub workers: usize,
    /// Packets to be delivered on this host get this firewall mark.
    pub mark: u32,
    /// Whether program and maps are pinned in the BPF file system, and taken over from there if
    /// another relay of this network namespace has left them or still uses them.
    pub pin: bool,
}

/// Rules of this host, as far as they concern the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// They may change addresses (NAT). An answer then may come in under other addresses than its connection's, and is
    /// not missed.
    pub translate: bool,
    /// They may decide what is forwarded, or where to: new connections are shown to them. That takes the program at the
    /// [exits](Steering::attach_exit), and somebody who takes [held SYNs](Steering::held).
    pub forward: bool,
}

/// The program, loaded, and attached where it was told to be. Dropping this detaches it, unless it was
/// [left](Steering::leave) to another relay; packets go on then as if it had never been.
#[derive(Debug)]
pub struct Steering {
    /// At ingress, by the interface's index.
    attachments: BTreeMap<u32, Attachment>,
    /// The same at egress.
    exits: BTreeMap<u32, Attachment>,
    reopen: Option<Link>,
    object: Object,
    pins: Option<Pins>,
    /// This relay's place among those that share the maps.
    generation: u32,
    options: Options,
    /// Whether the maps are another relay's, of before.
    adopted: bool,
    left: bool,
    /// The mark of the relay that these maps are still at work for.
    others_mark: Option<u32>,
}

impl Steering {
    /// Loads the program. It acts on nothing until it is attached, and gives this relay nothing but
    /// the connections of [`Steering::set_probe`] until it [takes over](Steering::take_over).
    ///
    /// # Errors
    /// When the kernel or the user's rights do not suffice.
    pub fn load(options: Options) -> Result<Steering, Error> {
        let workers = match u32::try_from(options.workers) {
            Ok(number) if number <= WORKERS => number,
            _ => return Err(Error::TooManyWorkers(options.workers)),
        };
        set_print(Some((PrintLevel::Debug, |_, said| {
            tracing::trace!("libbpf: {}", said.trim_end());
        })));
        let failed = |error: libbpf_rs::Error| Error::Load(io_error(&error));
        let mut object = ObjectBuilder::default().open_memory(OBJECT).map_err(failed)?;
        let pins = if options.pin { Some(Pins::here()?) } else { None };
        if let Some(pins) = &pins {
            pin_maps(&mut object, pins).map_err(failed)?;
        }
        let object = object.load().map_err(failed)?;
        let map_of_settings = map(&object, "settings")?;
        let before = map_of_settings.lookup(&ONLY, MapFlags::ANY).map_err(failed)?;
        let before = read_settings(before);
        let adopted = before.workers != [0; GENERATIONS as usize];
        let generation = if adopted { (before.generation + 1) % GENERATIONS } else { 0 };
        // The other relay's are left as they are.
        let mut shared = before;
        shared.workers[generation as usize] = workers;
        shared.patience_ns = PATIENCE.as_nanos() as u64;
        shared.half_open = shared.half_open.max(1);
        if !adopted {
            shared.mark = options.mark;
        }
        // Accounts that are there have their names by it.
        if shared.seed == 0 {
            shared.seed = std::process::id();
        }
        put(&map_of_settings, "settings", &ONLY, shared.as_bytes())?;
        Ok(Steering {
            attachments: BTreeMap::new(),
            exits: BTreeMap::new(),
            reopen: None,
            object,
            pins,
            generation,
            options,
            adopted,
            left: false,
            others_mark: adopted.then_some(before.mark),
        })
    }

    /// Whether it goes on with what another relay has left pinned, or still uses.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// The mark of the relay whose maps these are, until this one has [taken over](Steering::take_over).
    pub fn others_mark(&self) -> Option<u32> {
        self.others_mark
    }

    /// Attaches the program at the ingress of an interface, if it is not yet, for as long as
    /// this lives, or until `lasting` if it is pinned.
    ///
    /// # Errors
    /// When the link refuses it.
    pub fn attach(&mut self, index: u32, name: &str, lasting: bool) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Attach { interface: name.to_owned(), error };
        if self.reopen.is_none() {
            self.reopen = Some(self.attach_reopen().map_err(failed)?);
        }
        if !self.attachments.contains_key(&index) {
            let program = self.program("steer").map_err(failed)?;
            let pin = self.pins.as_ref().filter(|_| lasting).map(|pins| pins.link(index));
            let attachment = Attachment::new(&program, Side::Ingress, index, pin.as_deref());
            self.attachments.insert(index, attachment.map_err(failed)?);
        }
        Ok(())
    }

    /// Attaches the program at the egress of an interface, if it is not yet, where it sees what this host's
    /// [rules](Rules::forward) let through.
    ///
    /// # Errors
    /// When the link refuses it.
    pub fn attach_exit(&mut self, index: u32, name: &str) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Attach { interface: name.to_owned(), error };
        if !self.exits.contains_key(&index) {
            let program = self.program("leave").map_err(failed)?;
            let pin = self.pins.as_ref().map(|pins| pins.exit(index));
            let attachment = Attachment::new(&program, Side::Egress, index, pin.as_deref());
            self.exits.insert(index, attachment.map_err(failed)?);
        }
        Ok(())
    }

    fn attach_reopen(&self) -> io::Result<Link> {
        let here = Netns::current()?;
        let program = self.program("reopen")?;
        let pin = self.pins.as_ref().map(Pins::reopen);
        let inode = here.inode()? as u32;
        hold(pin.as_deref(), inode, &program, || {
            program.attach_netns(here.as_fd().as_raw_fd()).map_err(|error| io_error(&error))
        })
    }

    /// Forgets the attachments to interfaces that are not among these any more.
    pub fn retain(&mut self, present: &[u32]) {
        retain(&mut self.attachments, present, |index| Some(self.pins.as_ref()?.link(index)));
    }

    /// The same at egress.
    pub fn retain_exits(&mut self, present: &[u32]) {
        retain(&mut self.exits, present, |index| Some(self.pins.as_ref()?.exit(index)));
    }

    /// A worker's place. `listeners` are its own, IPv4 and IPv6, where it has them; each must listen
    /// already, be transparent, and be the only one of its address and port.
    ///
    /// # Errors
    /// When the kernel does not take a listener.
    pub fn slot(
        &self,
        worker: usize,
        listeners: [Option<BorrowedFd<'_>>; LISTENERS_PER_SLOT as usize],
    ) -> Result<WorkerSlot, Error> {
        let index = u32::try_from(worker).ok().filter(|index| *index < WORKERS);
        let index = self.generation * WORKERS + index.ok_or(Error::TooManyWorkers(worker))?;
        let map_of_listeners = self.map("listeners")?;
        for (family, listener) in (0..).zip(listeners) {
            let key = (index * LISTENERS_PER_SLOT + family).to_ne_bytes();
            match listener.map(|listener| listener.as_raw_fd() as u64) {
                Some(fd) => put(&map_of_listeners, "listeners", &key, &fd.to_ne_bytes())?,
                // Another relay's, that has had this place before.
                None => drop(map_of_listeners.delete(&key)),
            }
        }
        Ok(WorkerSlot {
            workers: self.map("workers")?,
            full_clients: self.map("full_clients")?,
            nearby: self.map("nearby")?,
            routes: self.map("routes")?,
            syn_records: self.map("syn_records")?,
            answering: self.map("answering")?,
            marked_servers: SharedBytes::of(
                self.map("marked_servers")?.as_fd(),
                intf::MARKED_SERVERS as usize,
            )
            .map_err(|error| Error::Map { map: "marked_servers", error })?,
            index,
        })
    }

    /// What counts the verdicts.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn tally(&self) -> Result<Tally, Error> {
        Ok(Tally { counts: self.map("counts")? })
    }

    /// What tells of SYNs that are held, and of acknowledgements that are to go again. Only one relay at a time may take it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn held(&self) -> Result<HeldSource, Error> {
        Ok(HeldSource {
            ring: self.map("held_syns")?,
            due_acks: self.map("due_reminders")?,
            generation: self.generation,
        })
    }

    /// What shows open connections.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn open_flows(&self) -> Result<OpenFlows, Error> {
        Ok(OpenFlows { flows: self.map("flows")? })
    }

    /// What says how often to split, by place.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn chances(&self) -> Result<Chances, Error> {
        Ok(Chances::new(self.map("groups")?, self.map("places")?, self.map("chances")?))
    }

    /// What tells of ended connections. Only one relay at a time may take it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn accounts(&self) -> Result<AccountsSource, Error> {
        Ok(AccountsSource { records: self.map("records")?, flows: self.map("flows")? })
    }

    /// Has new connections come to this relay, by this policy, and no longer to another.
    ///
    /// # Errors
    /// When a map does not take the policy.
    pub fn take_over(&mut self, policy: &Policy) -> Result<(), Error> {
        // Whom the other relay had counted as full.
        let full = self.map("full_clients")?;
        for client in full.keys().collect::<Vec<_>>() {
            let _ = full.delete(&client);
        }
        self.set_policy(policy)?;
        self.change_settings(|before| settings {
            suspended: 0,
            epoch: before.epoch.checked_add(1).unwrap_or(1),
            ..before
        })?;
        if let Some(pins) = &self.pins {
            pins.remove_others();
        }
        self.others_mark = None;
        Ok(())
    }

    /// Changes what is split, for new connections.
    ///
    /// # Errors
    /// When a map does not take the policy.
    pub fn set_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        self.write_prefixes("clients", policy.clients.clone())?;
        self.write_prefixes("servers", policy.all_servers())?;
        let ports = self.map("ports")?;
        for (index, word) in (0u32..).zip(policy.port_words()) {
            put(&ports, "ports", &index.to_ne_bytes(), &word.to_ne_bytes())?;
        }
        let (syn_rate, syn_burst) = policy.syn_rate.unwrap_or_default();
        // Without them a queue of half-open connections that is full takes no more.
        let syn_cookies = sysctl::get("net.ipv4.tcp_syncookies").is_ok_and(|value| value != "0");
        self.change_settings(|before| settings {
            pass_dscp: policy.dscp_word(),
            generation: self.generation,
            mark: self.options.mark,
            holdout: policy.holdout_per_mille,
            decides: policy.decides.into(),
            slot_ns: u64::try_from(policy.holdout_slot.as_nanos()).unwrap_or(u64::MAX),
            half_open: policy.half_open,
            reordering_hold_us: policy.reordering_hold_us,
            syn_rate,
            syn_burst,
            syn_cookies: syn_cookies.into(),
            ..before
        })
    }

    /// Says what rules this host has now. What was found of those of before holds no longer.
    ///
    /// # Errors
    /// When the map does not take it.
    pub fn set_rules(&mut self, rules: Rules) -> Result<(), Error> {
        let mut translated = false;
        self.change_settings(|before| {
            translated = before.translates != 0;
            settings {
                translates: rules.translate.into(),
                consults: rules.forward.into(),
                rules: before.rules.wrapping_add(1),
                ..before
            }
        })?;
        // Answers to connections that were translated before this was known came by under other addresses.
        if rules.translate && !translated {
            let routes = self.map("routes")?;
            for prefix in routes.keys().collect::<Vec<_>>() {
                let _ = routes.delete(&prefix);
            }
        }
        Ok(())
    }

    /// Says whether what is delivered on this host comes in by the loopback link, which rules for what comes in by others
    /// have nothing against.
    ///
    /// # Errors
    /// When the map does not take it.
    pub fn set_loopback(&mut self, by_loopback: bool) -> Result<(), Error> {
        self.change_settings(|before| settings { by_loopback: by_loopback.into(), ..before })
    }

    /// Has new connections pass, but for those of [probes](Steering::set_probe), or no longer. Those that are split already
    /// are steered all the same.
    ///
    /// # Errors
    /// When the map does not take it.
    pub fn suspend(&self, suspended: bool) -> Result<(), Error> {
        let by = if suspended { self.generation + 1 } else { 0 };
        self.change_settings(|before| settings { suspended: by, ..before })
    }

    /// Has SYNs that are held for this relay come back by this interface, at which the program must be attached.
    ///
    /// # Errors
    /// When the map does not take it.
    pub fn set_reinjector(&mut self, interface: u32) -> Result<(), Error> {
        self.change_settings(|mut before| {
            before.injectors[self.generation as usize] = interface;
            before
        })
    }

    fn change_settings(&self, change: impl FnOnce(settings) -> settings) -> Result<(), Error> {
        let map = self.map("settings")?;
        let before = map.lookup(&ONLY, MapFlags::ANY);
        let before =
            before.map_err(|error| Error::Map { map: "settings", error: io_error(&error) })?;
        put(&map, "settings", &ONLY, change(read_settings(before)).as_bytes())
    }

    /// Writes the prefixes of a policy, and removes those that are none any more.
    fn write_prefixes(
        &self,
        name: &'static str,
        prefixes: Vec<(IpNet, crate::Choice)>,
    ) -> Result<(), Error> {
        let map = self.map(name)?;
        let wanted: BTreeMap<Vec<u8>, u8> = prefixes
            .into_iter()
            .map(|(net, choice)| (intf::prefix::from(net).as_bytes().to_vec(), choice.to_byte()))
            .collect();
        for (prefix, choice) in &wanted {
            put(&map, name, prefix, &[*choice])?;
        }
        for other in map.keys().filter(|key| !wanted.contains_key(key)).collect::<Vec<_>>() {
            let choice = map.lookup(&other, MapFlags::ANY).ok().flatten();
            // A proof's, which goes by itself.
            if choice.is_some_and(|choice| choice.first() < Some(&SPLIT_ALWAYS)) {
                let _ = map.delete(&other);
            }
        }
        Ok(())
    }

    /// Has all connections of a client come to this relay whatever the policy, to prove that they
    /// arrive, or not any more.
    ///
    /// # Errors
    /// When the map is full, or the client was none.
    pub fn set_probe(&self, client: IpAddr, is_one: bool) -> Result<(), Error> {
        let clients = self.map("clients")?;
        let key = intf::prefix::from(IpNet::from(client));
        match is_one {
            true => {
                put(&clients, "clients", key.as_bytes(), &[SPLIT_ALWAYS + self.generation as u8])
            }
            false => clients
                .delete(key.as_bytes())
                .map_err(|error| Error::Map { map: "clients", error: io_error(&error) }),
        }
    }

    /// Leaves program, maps and attachments to the relay that has taken them over.
    pub fn leave(&mut self) {
        self.left = true;
        self.attachments.values_mut().chain(self.exits.values_mut()).for_each(Attachment::leave);
    }

    fn program(&self, name: &str) -> io::Result<ProgramMut<'_>> {
        let missing = || io::Error::other(format!("the object has no program `{name}`"));
        self.object.progs_mut().find(|program| program.name() == name).ok_or_else(missing)
    }

    fn map(&self, name: &'static str) -> Result<MapHandle, Error> {
        map(&self.object, name)
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if let Some(pins) = &self.pins
            && !self.left
            && self.others_mark.is_none()
        {
            pins.remove();
        }
    }
}

/// The key of the one entry of a map.
const ONLY: [u8; 4] = [0; 4];

/// As the map holds them: an array's, so that they are always there.
fn read_settings(bytes: Option<Vec<u8>>) -> settings {
    let found = bytes.and_then(|bytes| settings::read_from_bytes(&bytes).ok());
    found.unwrap_or_else(settings::new_zeroed)
}

/// Detaches what is at interfaces that are not among these any more.
fn retain(
    attachments: &mut BTreeMap<u32, Attachment>,
    present: &[u32],
    pin: impl Fn(u32) -> Option<PathBuf>,
) {
    attachments.retain(|index, _| {
        let stays = present.contains(index);
        if let (false, Some(pin)) = (stays, pin(*index)) {
            let _ = std::fs::remove_file(pin);
        }
        stays
    });
}

fn pin_maps(object: &mut OpenObject, pins: &Pins) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        let path = pins.map(&map.name().to_string_lossy());
        map.set_pin_path(path)?;
    }
    Ok(())
}

/// A link that holds `program` in its place: the one that is pinned there, whose program is exchanged
/// without a gap, or else one that `attach` makes, pinned then. `place` is what the link is at.
pub(crate) fn hold(
    pin: Option<&Path>,
    place: u32,
    program: &ProgramMut<'_>,
    attach: impl FnOnce() -> io::Result<Link>,
) -> io::Result<Link> {
    if let Some(mut link) = pin.and_then(|pin| open_link(pin, place)) {
        link.update_prog(program).map_err(|error| io_error(&error))?;
        return Ok(link);
    }
    let mut link = attach()?;
    if let Some(pin) = pin {
        link.pin(pin).map_err(|error| io_error(&error))?;
    }
    Ok(link)
}

fn map(object: &Object, name: &'static str) -> Result<MapHandle, Error> {
    let failed = |error| Error::Map { map: name, error };
    let found = object.maps().find(|map| map.name() == name);
    let found = found.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    MapHandle::try_from(&found).map_err(|error| failed(io_error(&error)))
}

pub(crate) fn put(
    map: &MapHandle,
    name: &'static str,
    key: &[u8],
    value: &[u8],
) -> Result<(), Error> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|error| Error::Map { map: name, error: io_error(&error) })
}

#[cfg(test)]
mod accounts;
#[cfg(test)]
mod choice;
#[cfg(test)]
mod frame;
#[cfg(test)]
mod packets;
