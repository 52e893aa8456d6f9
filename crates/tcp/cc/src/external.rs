//! Controls of the caller's: what they are told, and what they answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use midspan_units::Rate;

use crate::ffi;
use crate::{Connection, Control, Kind, Sample, State};

/// Window, threshold and rate, as the stack has them before a call and is to have them after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Packets that may be in flight. Kept within 1 and [`Control::CWND_MOST`].
    pub cwnd: u32,
    /// The threshold of slow start, in packets; [`Control::SSTHRESH_INFINITE`] before any loss.
    pub ssthresh: u32,
    /// As [`Control::pacing_rate`] has it; less than a byte a second is none.
    pub pacing_rate: Option<Rate>,
}

/// What the stack asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Call<'a> {
    /// [`Control::established`].
    Established,
    /// [`Control::measure`].
    Measure(&'a Sample),
    /// [`Control::on_ack`].
    Ack(&'a Sample),
    /// [`Control::on_reduction`], to this state: to set the threshold.
    Reduction(State),
    /// [`Control::on_reduced`].
    Reduced,
    /// [`Control::on_undo`]: to set the window.
    Undo,
    /// [`Control::on_transmit_start`].
    TransmitStart,
    /// [`Control::on_restart`].
    Restart,
}

/// What decides in a control of the caller's. For the same calls it must decide the same, or runs cannot be repeated; it
/// has no way to fail.
pub trait Decide: Send {
    /// Who changes the window. Always the same.
    fn kind(&self) -> Kind;

    /// The stack asks, in `state`: changes `window` as it likes.
    fn decide(
        &mut self,
        window: &mut Window,
        connection: &Connection,
        state: State,
        call: Call<'_>,
    );
}

/// Makes what decides for one connection when that is established, of a seed.
pub type Maker = Arc<dyn Fn(u64) -> Box<dyn Decide> + Send + Sync>;

/// The controls of the caller's, by their names.
pub type Externals = BTreeMap<String, Maker>;

/// The control of one connection.
pub(crate) struct External {
    name: Arc<str>,
    make: Maker,
    seed: u64,
    /// Once the connection is established.
    decide: Option<Box<dyn Decide>>,
}

impl External {
    pub(crate) fn new(name: &str, make: &Maker, seed: u64) -> External {
        External { name: name.into(), make: make.clone(), seed, decide: None }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn kind(&self) -> Kind {
        self.decide.as_ref().map_or(Kind::Window, |decide| decide.kind())
    }

    /// Asks it; answers with the threshold of a reduction, or the window of an undo.
    pub(crate) fn call(
        &mut self,
        cc: &mut ffi::Cc,
        connection: &Connection,
        state: State,
        call: Call<'_>,
    ) -> u32 {
        let External { make, seed, decide, .. } = self;
        let decide = decide.get_or_insert_with(|| make(*seed));
        let mut window = Window {
            cwnd: cc.cwnd,
            ssthresh: cc.ssthresh,
            pacing_rate: Control::rate_of(cc.pacing_rate),
        };
        decide.decide(&mut window, connection, state, call);
        cc.pacing_rate = window.pacing_rate.map_or(0, |rate| rate.as_bps() / 8);
        cc.ssthresh = window.ssthresh;
        match call {
            Call::Reduction(_) => window.ssthresh,
            // The stack takes the answer.
            Call::Undo => window.cwnd,
            _ => {
                cc.cwnd = window.cwnd;
                window.cwnd
            }
        }
    }
}

impl Clone for External {
    /// For another connection, which is not established yet.
    fn clone(&self) -> External {
        External::new(&self.name, &self.make, self.seed)
    }
}
