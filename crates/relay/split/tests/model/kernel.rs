//! A model of the kernel's side of a split flow: two connections, watched edge-triggered, with their peers, and what is
//! held between them.

use std::cell::Cell;
use std::rc::Rc;

use midspan_split::{CopyMode, Failure, Flow, Leg, LegInfo, Legs, PerLeg, Read, Readiness, Write};
use midspan_units::Span;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Bytes of a buffer, a pipe, and a socket's send buffer.
const BUFFER: u64 = 8 << 10;
const PIPE: u64 = 48 << 10;
const SEND_BUFFER: u64 = 24 << 10;
/// The most that is held of a direction.
pub(crate) const LIMIT: u64 = 48 << 10;

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A FIN is not sent, though it is said to be.
    DropsFin,
    /// An empty buffer is not given back.
    LeaksBuffer,
    /// Who waits for the last acknowledgements is not looked at.
    ForgetsLook,
    /// A write is said to have taken a byte more than it did.
    LosesByte,
    /// Who has more to do gets no other turn.
    ForgetsTurn,
    /// The last segment of a handshake is not sent.
    KeepsHandshake,
}

/// A connection as a kernel has it, and its peer.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    pub(crate) connected: bool,
    pub(crate) refused: bool,
    /// The last segment of its handshake is kept back.
    pub(crate) in_handshake: bool,
    /// The peer has reset it.
    pub(crate) dead: bool,
    pub(crate) error: Option<Failure>,
    /// Bytes that the peer has sent, and that were read.
    pub(crate) arrived: u64,
    pub(crate) read: u64,
    /// The byte before which reading stops, until it was tried from there.
    pub(crate) mark: Option<u64>,
    pub(crate) fin: bool,
    /// Bytes given to it, and those that the peer has acknowledged.
    pub(crate) written: u64,
    pub(crate) acknowledged: u64,
    pub(crate) fin_sent: bool,
    pub(crate) fin_acknowledged: bool,
    /// A write was cut short: room is told of.
    pub(crate) no_space: bool,
    /// Something of what it is watched for has happened.
    pub(crate) edge: bool,
    pub(crate) masked: bool,
}

impl Tcp {
    pub(crate) fn has_room(&self) -> bool {
        self.written - self.acknowledged < SEND_BUFFER
    }

    /// What epoll would say now.
    pub(crate) fn level(&self) -> Readiness {
        Readiness {
            readable: (!self.masked && self.arrived > self.read) || self.fin || self.dead,
            writable: self.connected && self.has_room() || self.dead,
            urgent: !self.masked && self.mark.is_some(),
            read_closed: self.fin || self.dead,
            hung_up: self.dead || self.fin && self.fin_sent,
            failed: self.error.is_some(),
        }
    }

    /// Takes what is given, up to `held` bytes.
    fn take(&mut self, held: u64) -> Write {
        if self.dead {
            return Write::Failed(self.error.take().unwrap_or(Failure::BrokenPipe));
        }
        assert!(self.connected && !self.fin_sent, "nothing is written before or after");
        self.in_handshake = false;
        let bytes = held.min(SEND_BUFFER - (self.written - self.acknowledged));
        self.written += bytes;
        self.no_space = bytes < held;
        Write::Some { bytes, full: bytes < held }
    }
}

/// Where bytes of a direction are, by their place in what the peer sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelayBuffer {
    pub(crate) mode: Option<CopyMode>,
    /// How much of a buffer was ever used since it was empty.
    pub(crate) end: u64,
    pub(crate) held: (u64, u64),
}

impl RelayBuffer {
    pub(crate) fn held(&self) -> u64 {
        self.held.1 - self.held.0
    }
}

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) tcp: PerLeg<Tcp>,
    pub(crate) buffers: PerLeg<RelayBuffer>,
    /// Buffers and pipes that can still be had, by all flows together.
    pub(crate) free: Rc<Cell<u32>>,
    pub(crate) posts: bool,
    pub(crate) fault: Fault,
}

impl Kernel {
    pub(crate) fn give_back(&mut self, from: Leg) {
        if self.buffers[from].mode.take().is_some() {
            self.free.set(self.free.get() + 1);
        }
        self.buffers[from] = RelayBuffer::default();
    }

    /// Writes of what is held for a leg.
    pub(crate) fn send(&mut self, to: Leg) -> Write {
        let buffer = &mut self.buffers[to.other()];
        let tcp = &mut self.tcp[to];
        assert!(tcp.dead || tcp.written == buffer.held.0, "a byte is missing, or comes twice");
        let written = tcp.take(buffer.held());
        let Write::Some { mut bytes, full } = written else { return written };
        if self.fault == Fault::LosesByte && bytes > 1 {
            tcp.written -= 1;
            bytes -= 1;
            buffer.held.0 += 1;
        }
        buffer.held.0 += bytes;
        if buffer.held() == 0 {
            buffer.end = 0;
        }
        Write::Some { bytes: bytes + u64::from(self.fault == Fault::LosesByte && bytes > 1), full }
    }
}

impl Legs for Kernel {
    fn read(&mut self, from: Leg, mode: CopyMode, most: u64) -> Read {
        assert!(most > 0);
        if mode == CopyMode::Copy
            && self.buffers[from].mode == Some(CopyMode::Splice)
            && self.buffers[from].held() == 0
        {
            self.give_back(from);
        }
        let buffer = &mut self.buffers[from];
        if buffer.mode.is_none() {
            if self.free.get() == 0 {
                return Read::NoBuffer;
            }
            self.free.set(self.free.get() - 1);
            buffer.mode = Some(mode);
        }
        let copies = buffer.mode == Some(CopyMode::Copy);
        let tcp = &mut self.tcp[from];
        let room = match copies {
            true => most.min(BUFFER - buffer.end),
            false => most.min(PIPE.saturating_sub(buffer.held())),
        };
        if room == 0 {
            return Read::Full;
        }
        let until = match tcp.mark {
            Some(mark) if mark > tcp.read => mark,
            Some(_) if !copies => return Read::Mark,
            _ => tcp.arrived,
        };
        if tcp.arrived > tcp.read {
            tcp.mark = tcp.mark.filter(|&mark| mark > tcp.read);
            let bytes = room.min(until - tcp.read);
            if buffer.held() == 0 {
                buffer.held = (tcp.read, tcp.read);
            }
            assert_eq!(buffer.held.1, tcp.read);
            (buffer.held.1, buffer.end) = (buffer.held.1 + bytes, buffer.end + bytes);
            tcp.read += bytes;
            return Read::Some { bytes, dry: copies && bytes < room };
        }
        match tcp.error {
            _ if tcp.fin => Read::End,
            Some(_) => {
                tcp.error = None;
                Read::Failed
            }
            None if tcp.dead => Read::End,
            None => Read::Dry,
        }
    }

    fn write(&mut self, to: Leg, held: u64, _more: bool) -> Write {
        assert_eq!(held, self.buffers[to.other()].held());
        if self.posts && self.buffers[to.other()].mode == Some(CopyMode::Copy) {
            return Write::Posted;
        }
        self.send(to)
    }

    fn release_if_empty(&mut self, from: Leg) {
        if self.buffers[from].held() == 0 && self.fault != Fault::LeaksBuffer {
            self.give_back(from);
        }
    }

    fn discard(&mut self, from: Leg) {
        assert!(self.tcp[from.other()].dead, "held bytes are dropped, and could be delivered");
        self.give_back(from);
    }

    fn end_handshake(&mut self, leg: Leg) {
        self.tcp[leg].in_handshake = self.fault == Fault::KeepsHandshake;
    }

    fn shutdown(&mut self, to: Leg) -> Result<(), Failure> {
        let tcp = &mut self.tcp[to];
        tcp.in_handshake = false;
        if tcp.dead {
            return Err(Failure::Other);
        }
        assert!(!tcp.fin_sent, "a FIN is sent twice");
        tcp.fin_sent = self.fault != Fault::DropsFin;
        Ok(())
    }

    fn take_error(&mut self, leg: Leg) -> Option<Failure> {
        self.tcp[leg].error.take()
    }

    fn unread(&mut self, leg: Leg) -> u64 {
        self.tcp[leg].arrived - self.tcp[leg].read
    }

    fn unacknowledged(&mut self, leg: Leg) -> Option<u64> {
        let tcp = &self.tcp[leg];
        let fin = tcp.fin_sent && !tcp.fin_acknowledged;
        Some(tcp.written - tcp.acknowledged + u64::from(fin))
    }

    fn info(&mut self, leg: Leg) -> Option<LegInfo> {
        let acknowledged = self.tcp[leg].acknowledged;
        Some(LegInfo { acknowledged, round_trip: Span::from_millis(20) })
    }

    fn set_notsent_lowat(&mut self, _: Leg, _: Option<u64>) {}
}

impl Kernel {
    /// A flow's two connections: the client's is there, and the server's is being connected to.
    pub(crate) fn new(free: Rc<Cell<u32>>, posts: bool, fault: Fault) -> Kernel {
        let client = Tcp { connected: true, edge: true, ..Tcp::default() };
        let tcp = PerLeg { client, server: Tcp::default() };
        Kernel { tcp, buffers: PerLeg::default(), free, posts, fault }
    }

    /// The server answers, or refuses.
    pub(crate) fn answer(&mut self, refuses: bool) {
        let tcp = &mut self.tcp.server;
        if !tcp.connected && !tcp.refused {
            (tcp.connected, tcp.refused, tcp.edge) = (!refuses, refuses, true);
            tcp.in_handshake = !refuses;
            if refuses {
                (tcp.dead, tcp.error) = (true, Some(Failure::Other));
            }
        }
    }

    /// A leg's peer sends bytes, of which the last is urgent or not.
    pub(crate) fn peer_sends(&mut self, leg: Leg, bytes: u64, urgent: bool) {
        let tcp = &mut self.tcp[leg];
        if tcp.connected && !tcp.fin && !tcp.dead {
            tcp.arrived += bytes;
            if urgent {
                tcp.mark = Some(tcp.arrived - 1);
            }
            tcp.edge |= !tcp.masked;
        }
    }

    pub(crate) fn peer_closes(&mut self, leg: Leg) {
        let tcp = &mut self.tcp[leg];
        if tcp.connected && !tcp.dead && !tcp.fin {
            (tcp.fin, tcp.edge) = (true, true);
        }
    }

    /// Says whether it could.
    pub(crate) fn peer_resets(&mut self, leg: Leg) -> bool {
        let tcp = &mut self.tcp[leg];
        let can = tcp.connected && !tcp.dead && !(tcp.fin && tcp.fin_acknowledged);
        if can {
            let error = if tcp.fin { Failure::BrokenPipe } else { Failure::Reset };
            (tcp.dead, tcp.error, tcp.edge) = (true, Some(error), true);
            // Who has reset waits for nothing.
            tcp.in_handshake = false;
        }
        can
    }

    /// A leg's peer acknowledges up to so many bytes, and the FIN behind the last of them.
    pub(crate) fn peer_acknowledges(&mut self, leg: Leg, bytes: u64) {
        let tcp = &mut self.tcp[leg];
        if tcp.dead {
            return;
        }
        tcp.acknowledged += bytes.min(tcp.written - tcp.acknowledged);
        if tcp.acknowledged == tcp.written && tcp.fin_sent && !tcp.fin_acknowledged {
            (tcp.fin_acknowledged, tcp.edge) = (true, true);
        }
        if tcp.no_space && tcp.has_room() {
            (tcp.no_space, tcp.edge) = (false, true);
        }
    }

    /// Whether a leg is watched for what arrives.
    pub(crate) fn mask(&mut self, leg: Leg, masked: bool) {
        let tcp = &mut self.tcp[leg];
        tcp.masked = masked;
        // The kernel looks anew.
        tcp.edge |= tcp.level() != Readiness::default();
    }

    /// What must always be so of a flow of which so much has crossed.
    pub(crate) fn check(&self, flow: &Flow, is_over: bool) -> Result<(), TestCaseError> {
        for from in Leg::BOTH {
            let (to, buffer) = (from.other(), &self.buffers[from]);
            prop_assert_eq!(flow.total_received(from), self.tcp[from].read);
            prop_assert_eq!(flow.total_sent(to), self.tcp[to].written);
            prop_assert!(buffer.held() <= LIMIT);
            let is_kept = !is_over && buffer.mode.is_some();
            prop_assert!(!is_kept || buffer.held() > 0, "an empty buffer is kept");
            let is_dropped = is_over || self.tcp[to].dead;
            prop_assert!(is_dropped || buffer.held() == self.tcp[from].read - self.tcp[to].written);
            let whole = self.tcp[from].fin && self.tcp[to].written == self.tcp[from].arrived;
            let fin_sent = self.tcp[to].fin_sent;
            prop_assert!(!fin_sent || whole, "a FIN without one, or before the last byte");
        }
        Ok(())
    }

    /// Whether a leg's peer has all that the other one's has sent, its FIN included.
    pub(crate) fn has_all(&self, to: Leg) -> bool {
        let (from, to) = (&self.tcp[to.other()], &self.tcp[to]);
        to.acknowledged == from.arrived && to.fin_acknowledged == from.fin
    }

    /// What must be so of a flow that has ended in order, or because a leg was lost.
    pub(crate) fn check_end(&self, lost: Option<Leg>) -> Result<(), TestCaseError> {
        let Some(lost) = lost else {
            let tcp = &self.tcp;
            let all = |leg| self.has_all(leg) && tcp[leg].fin_acknowledged;
            prop_assert!(Leg::BOTH.into_iter().all(all), "it ended before it was delivered");
            return Ok(());
        };
        // All that came by it is delivered, if the other one is there, and was for more than an end.
        let is_nobody_there = self.tcp[lost.other()].dead || !self.tcp.server.connected;
        let is_nothing = lost == Leg::Client && self.tcp.client.arrived == 0;
        prop_assert!(is_nobody_there || is_nothing || self.has_all(lost.other()));
        Ok(())
    }
}
