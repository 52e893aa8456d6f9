//! What a worker runs on: flows' connections, buffers, and what is posted of them.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use midspan_split::{
    Admission, Cause, ConnectAgain, CopyMode, Failure, Flow, Host, Key, Leg, LegInfo, Legs, Over,
    Read, Rules, Write,
};
use midspan_units::{Span, Time};

use crate::kernel::Kernel;

/// How long a server may take before it counts as silent.
pub(crate) const SILENCE: Span = Span::from_secs(3);

/// What a flow has beside what is decided of it.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) id: usize,
    pub(crate) kernel: Kernel,
    pub(crate) others: u8,
    /// Tries for which the client's port is in use.
    pub(crate) port_in_use: u8,
    /// Whether the server is asked at all.
    pub(crate) is_asked: bool,
    pub(crate) connected: bool,
    pub(crate) attempt: Attempt,
}

/// What must be known of the server that is being tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) since: Time,
    /// When it is given up.
    pub(crate) until: Time,
    /// Whether it is to be told that it is silent, and how often it was.
    pub(crate) tells_silence: bool,
    pub(crate) silences: u32,
}

/// What is decided about one flow, and what is posted of it.
struct Posting<'a> {
    key: Key,
    kernel: &'a mut Kernel,
    posted: &'a mut Vec<(Key, Leg)>,
}

impl Legs for Posting<'_> {
    fn read(&mut self, from: Leg, mode: CopyMode, most: u64) -> Read {
        self.kernel.read(from, mode, most)
    }

    fn write(&mut self, to: Leg, held: u64, more: bool) -> Write {
        let written = self.kernel.write(to, held, more);
        if written == Write::Posted {
            self.posted.push((self.key, to));
        }
        written
    }

    fn release_if_empty(&mut self, from: Leg) {
        self.kernel.release_if_empty(from);
    }

    fn discard(&mut self, from: Leg) {
        self.kernel.discard(from);
    }

    fn end_handshake(&mut self, leg: Leg) {
        self.kernel.end_handshake(leg);
    }

    fn shutdown(&mut self, to: Leg) -> Result<(), Failure> {
        self.kernel.shutdown(to)
    }

    fn take_error(&mut self, leg: Leg) -> Option<Failure> {
        self.kernel.take_error(leg)
    }

    fn unread(&mut self, leg: Leg) -> u64 {
        self.kernel.unread(leg)
    }

    fn unacknowledged(&mut self, leg: Leg) -> Option<u64> {
        self.kernel.unacknowledged(leg)
    }

    fn info(&mut self, leg: Leg) -> Option<LegInfo> {
        self.kernel.info(leg)
    }

    fn set_notsent_lowat(&mut self, to: Leg, most: Option<u64>) {
        self.kernel.set_notsent_lowat(to, most);
    }
}

/// What the worker runs on.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) now: Time,
    /// As they are now.
    pub(crate) rules: Rules,
    pub(crate) admission: Arc<Admission<u8>>,
    pub(crate) free: Rc<Cell<u32>>,
    pub(crate) posted: Vec<(Key, Leg)>,
    pub(crate) sending: Vec<(Key, Leg)>,
    /// Whether sends are tried.
    pub(crate) tries: bool,
    pub(crate) ended: Vec<(Connections, Flow, u8, Option<Cause>)>,
    /// What was last said of clients.
    pub(crate) full: HashMap<u8, bool>,
}

impl Net {
    /// One that begins now.
    pub(crate) fn attempt(&self) -> Attempt {
        let Rules { connect_timeout, tells_silence, .. } = self.rules;
        let until = self.now + connect_timeout;
        let tells_silence = tells_silence && connect_timeout > SILENCE;
        Attempt { since: self.now, until, tells_silence, silences: 0 }
    }
}

impl Host for Net {
    type Client = u8;
    type Flow = Connections;

    fn legs<'a>(&'a mut self, key: Key, flow: &'a mut Connections) -> impl Legs + 'a {
        Posting { key, kernel: &mut flow.kernel, posted: &mut self.posted }
    }

    fn connected(&mut self, _: Key, flow: &mut Connections) -> Result<(), Option<Failure>> {
        assert!(!flow.connected && flow.kernel.tcp.server.connected, "there is nobody");
        flow.connected = true;
        Ok(())
    }

    fn connect_to_next(&mut self, _: Key, flow: &mut Connections) -> bool {
        let is_another = flow.others > 0;
        if is_another {
            flow.others -= 1;
            flow.attempt = self.attempt();
            flow.kernel.tcp.server = Default::default();
        }
        is_another
    }

    fn connect_again(&mut self, _: Key, flow: &mut Connections) -> ConnectAgain {
        assert!(!flow.is_asked);
        match flow.port_in_use {
            0 => {
                flow.is_asked = true;
                ConnectAgain::Begun
            }
            tries => {
                flow.port_in_use = if tries == u8::MAX { tries } else { tries - 1 };
                ConnectAgain::InUse
            }
        }
    }

    fn is_silent(&mut self, flow: &mut Connections) {
        assert!(!flow.connected, "a server that has answered is silent");
        flow.attempt.silences += 1;
    }

    fn mask_reads(&mut self, _: Key, flow: &mut Connections, leg: Leg, masked: bool) -> bool {
        flow.kernel.mask(leg, masked);
        true
    }

    fn free_buffers(&self) -> u64 {
        self.free.get().into()
    }

    fn must_send(&self) -> bool {
        self.posted.len() > 3
    }

    fn send<'a>(&mut self, of: impl Fn(Key, Leg) -> Option<(&'a Connections, bool)>) -> usize {
        self.sending = std::mem::take(&mut self.posted);
        self.sending.retain(|&(key, to)| of(key, to).is_some());
        self.sending.len()
    }

    fn sent_for(&self, index: usize) -> (Key, Leg) {
        self.sending[index]
    }

    fn sent(&mut self, index: usize, flow: &mut Connections) -> Option<Write> {
        let (_, to) = self.sending[index];
        self.tries.then(|| flow.kernel.send(to))
    }

    fn ended(&mut self, over: Over<'_, Net>, cause: Option<Cause>) {
        let Over { flow, client, mut host, .. } = over;
        Leg::BOTH.into_iter().for_each(|leg| host.kernel.give_back(leg));
        self.ended.push((host, *flow, client, cause));
    }

    fn say_full(&mut self, client: u8) {
        self.full.insert(client, self.admission.is_full(&client));
    }
}
