use midspan_units::Rate;

use crate::external::{Call, External, Maker};
use crate::ffi;
use crate::{Config, Connection, Feedback, Sample};

/// Who changes the window, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As with Linux's `cong_avoid`: the control grows the window, slow start included; the stack
    /// reduces it to the threshold (PRR, RFC 9937) and after a timeout.
    Window,
    /// As with Linux's `cong_control`: the control sets window and pacing rate throughout, recovery
    /// included; the stack does no PRR.
    Rate,
}

/// What the stack is doing about the window, as Linux has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing is wrong.
    Open = ffi::state::CC_OPEN,
    /// Duplicate acknowledgements or SACK, nothing held lost yet.
    Disorder = ffi::state::CC_DISORDER,
    /// Reducing the window because of ECN.
    Cwr = ffi::state::CC_CWR,
    /// Reducing it because of loss, and repairing that by fast retransmission.
    Recovery = ffi::state::CC_RECOVERY,
    /// After a retransmission timeout.
    Loss = ffi::state::CC_LOSS,
}

/// There is no control of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no congestion control is called `{name}`: there are {}", crate::names().collect::<Vec<_>>().join(", "))]
pub struct Unknown {
    /// The name asked for.
    pub name: String,
}

/// The congestion control of one connection.
///
/// It holds window, threshold and pacing rate. The stack asks for them after every call, and tells
/// of whatever it changes itself. In the order of a connection's life:
///
/// 1. [`Control::new`], [`established`](Control::established) when the handshake is over;
/// 2. [`measure`](Control::measure) with every acknowledgement that acknowledges something, in every
///    state, and [`on_ack`](Control::on_ack) with the same after the stack has marked losses and entered
///    or left recovery because of it;
/// 3. [`on_reduction`](Control::on_reduction) when loss, ECN-Echo or a timeout is to reduce the
///    window. The stack then does PRR towards [`ssthresh`](Control::ssthresh), or sets a window of
///    one packet after a timeout, with [`set_cwnd`](Control::set_cwnd) (after a timeout with either
///    [`Kind`]; PRR only with [`Kind::Window`]);
/// 4. [`on_reduced`](Control::on_reduced) when PRR is over (with [`Kind::Window`] the stack has set the
///    window to the threshold), [`on_undo`](Control::on_undo) when a reduction proves wrong, and
///    [`set_state`](Control::set_state) for every other change of state;
/// 5. [`on_alarm`](Control::on_alarm) before all that with an acknowledgement that bears the mark;
/// 6. [`on_send`](Control::on_send) before it sends;
/// 7. [`on_transmit_start`](Control::on_transmit_start) or [`on_restart`](Control::on_restart) when
///    sending begins again after a pause.
#[derive(Clone)]
pub struct Control {
    algorithm: Algorithm,
    cc: ffi::Cc,
    now_in: State,
    burst: Option<u32>,
}

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one")]
enum Algorithm {
    /// Of the table, with what it has noted of the connection.
    Compiled(&'static ffi::Algorithm, ffi::State),
    External(External),
}

impl Control {
    /// The window never grows beyond this, in packets.
    pub const CWND_MOST: u32 = ffi::CC_CWND_MOST;
    /// The threshold before there was any loss.
    pub const SSTHRESH_INFINITE: u32 = ffi::CC_SSTHRESH_INFINITE;

    /// The control called `name` (see [`names`](crate::names)), with a window of ten packets
    /// (RFC 6928).
    pub fn new(name: &str, config: &Config) -> Result<Self, Unknown> {
        let algorithm = ffi::algorithms()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| Unknown { name: name.to_owned() })?;
        Ok(Control::of(Algorithm::Compiled(algorithm, ffi::NO_STATE), config))
    }

    /// A control of the caller's, which is called `name`: `make` is asked for what decides when the connection is
    /// established, with `seed`. A clone is for another connection, and begins anew.
    pub fn external(name: &str, make: &Maker, seed: u64) -> Self {
        Control::of(Algorithm::External(External::new(name, make, seed)), &Config::default())
    }

    fn of(algorithm: Algorithm, config: &Config) -> Self {
        Control {
            algorithm,
            cc: ffi::Cc {
                cwnd: 10,
                ssthresh: Control::SSTHRESH_INFINITE,
                pacing_rate: 0,
                now_ns: 0,
                mss: 0,
                state: State::Open as u32,
                cwnd_most: Control::CWND_MOST,
                in_flight: 0,
                delivered: 0,
                delivered_ce: 0,
                lost: 0,
                snd_una: 0,
                snd_nxt: 0,
                srtt_us: 0,
                min_rtt_us: 0,
                config: config.into(),
            },
            now_in: State::Open,
            burst: None,
        }
    }

    /// The name it was made by.
    pub fn name(&self) -> &str {
        match &self.algorithm {
            Algorithm::Compiled(algorithm, _) => algorithm.name(),
            Algorithm::External(external) => external.name(),
        }
    }

    /// Who changes the window. With a control of the caller's not known before the connection is
    /// established: [`Kind::Window`] until then.
    pub fn kind(&self) -> Kind {
        match &self.algorithm {
            Algorithm::Compiled(algorithm, _) if algorithm.kind() == ffi::kind::CC_WINDOW => {
                Kind::Window
            }
            Algorithm::Compiled(..) => Kind::Rate,
            Algorithm::External(external) => external.kind(),
        }
    }

    /// The window: packets that may be in flight; at least 1.
    pub fn cwnd(&self) -> u32 {
        self.cc.cwnd
    }

    /// The threshold of slow start, in packets.
    pub fn ssthresh(&self) -> u32 {
        self.cc.ssthresh
    }

    /// With [`Kind::Rate`] the rate at which to send payload, or `None` for as fast as the window
    /// allows. With [`Kind::Window`] a rate never to exceed, or `None`: pace as you like.
    pub fn pacing_rate(&self) -> Option<Rate> {
        Control::rate_of(self.cc.pacing_rate)
    }

    /// Of bytes per second, of which 0 stand for none.
    pub(crate) fn rate_of(pacing_rate: u64) -> Option<Rate> {
        (pacing_rate > 0).then(|| Rate::from_bps(pacing_rate.saturating_mul(8)))
    }

    /// The least number of packets that go back to back where pacing would part them, or `None` for
    /// as many as the stack likes. As of the last [`on_send`](Control::on_send).
    pub fn burst(&self) -> Option<u32> {
        self.burst
    }

    /// The state that the stack told of last.
    pub fn state(&self) -> State {
        self.now_in
    }

    /// Whether the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.cc.cwnd < self.cc.ssthresh
    }

    /// The stack's own choice of window: PRR, after a timeout, after idleness, at the start.
    /// In packets; at least 1 is kept.
    pub fn set_cwnd(&mut self, packets: u32) {
        self.cc.cwnd = packets.clamp(1, Control::CWND_MOST);
    }

    /// The stack's own choice of threshold, when it undoes a reduction. In packets.
    pub fn set_ssthresh(&mut self, packets: u32) {
        self.cc.ssthresh = packets;
    }

    /// The connection is established; window and threshold are what the stack wants at the start.
    pub fn established(&mut self, connection: &Connection) {
        self.call(connection, Call::Established);
    }

    /// An acknowledgement that acknowledged something, before anything is made of it. Of the sample the
    /// delivery rate, and whether the window may grow, need not be there yet.
    pub fn measure(&mut self, connection: &Connection, sample: &Sample) {
        self.call(connection, Call::Measure(sample));
    }

    /// The same afterwards. A [`Kind::Window`] control grows the window unless the state is
    /// [`State::Cwr`] or [`State::Recovery`].
    pub fn on_ack(&mut self, connection: &Connection, sample: &Sample) {
        let reducing = matches!(self.now_in, State::Cwr | State::Recovery);
        if self.kind() == Kind::Rate || !reducing {
            self.call(connection, Call::Ack(sample));
        } else {
            connection.write_to(&mut self.cc);
        }
    }

    /// An acknowledgement that a base station has marked (TCP-ME's wireless loss alarm), and the
    /// receiver with ECN-Echo if `ece`. Before anything is made of it, as it may tell of a loss.
    pub fn on_alarm(&mut self, connection: &Connection, ece: bool) {
        self.measure(connection, &Sample { wla: true, ece, ..Sample::default() });
    }

    /// A reduction begins: `state` is [`State::Recovery`], [`State::Cwr`] or [`State::Loss`]. Sets
    /// the threshold and returns it. The window is the stack's to change (see [`Kind`]).
    pub fn on_reduction(&mut self, connection: &Connection, state: State) -> u32 {
        self.cc.ssthresh = self.call(connection, Call::Reduction(state)).max(1);
        self.set_state(connection, state);
        self.cc.ssthresh
    }

    /// A reduction because of loss or ECN is over: with [`Kind::Window`] the stack has set the window
    /// to the threshold. `state` is the one that follows.
    pub fn on_reduced(&mut self, connection: &Connection, state: State) {
        self.call(connection, Call::Reduced);
        self.set_state(connection, state);
    }

    /// The last reduction was a mistake: sets the window as it was, and returns it. The threshold
    /// is the stack's to put back. `state` is the one that follows.
    pub fn on_undo(&mut self, connection: &Connection, state: State) -> u32 {
        let cwnd = self.call(connection, Call::Undo);
        self.set_cwnd(cwnd);
        self.set_state(connection, state);
        self.cc.cwnd
    }

    /// The stack is in `state` now, for another reason than the above.
    pub fn set_state(&mut self, connection: &Connection, state: State) {
        self.now_in = state;
        self.cc.state = state as u32;
        connection.write_to(&mut self.cc);
        // What is of the caller's is told the state with whatever it is asked.
        if let Algorithm::Compiled(algorithm, of) = &mut self.algorithm {
            algorithm.event(of, &mut self.cc, ffi::event::CC_STATE);
            self.bound();
        }
    }

    /// The stack is about to send as much as window and pacing allow, both of which what the network
    /// says by now may change.
    pub fn on_send(&mut self, connection: &Connection, feedback: Option<&Feedback>) {
        connection.write_to(&mut self.cc);
        if let Algorithm::Compiled(algorithm, state) = &mut self.algorithm {
            let feedback = feedback.map_or(ffi::NO_FEEDBACK, Into::into);
            self.burst = algorithm.send(state, &mut self.cc, &feedback);
            self.bound();
        }
    }

    /// A packet is sent when none was in flight.
    pub fn on_transmit_start(&mut self, connection: &Connection) {
        self.call(connection, Call::TransmitStart);
    }

    /// The same, but after more than a retransmission timeout: the stack has reduced the window
    /// (RFC 2861) with [`set_cwnd`](Control::set_cwnd).
    pub fn on_restart(&mut self, connection: &Connection) {
        self.call(connection, Call::Restart);
    }

    /// Asks the algorithm; answers with what it answers, if it does.
    fn call(&mut self, connection: &Connection, call: Call<'_>) -> u32 {
        connection.write_to(&mut self.cc);
        let answer = match &mut self.algorithm {
            Algorithm::Compiled(algorithm, state) => algorithm.call(state, &mut self.cc, call),
            Algorithm::External(of) => of.call(&mut self.cc, connection, self.now_in, call),
        };
        self.bound();
        answer
    }

    /// A control of somebody else's may answer with any window.
    fn bound(&mut self) {
        self.set_cwnd(self.cc.cwnd);
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("name", &self.name())
            .field("cwnd", &self.cwnd())
            .field("ssthresh", &self.ssthresh())
            .field("pacing_rate", &self.pacing_rate())
            .field("state", &self.now_in)
            .finish_non_exhaustive()
    }
}
