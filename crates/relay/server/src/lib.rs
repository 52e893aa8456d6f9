//! The split data plane: a transparent TCP relay with real sockets.
//!
//! Connections that the interception rules hand over are accepted in the name of the server that
//! the client wanted, connected onward from the client's own address and port, and relayed in both
//! directions. Every decision about a flow is [`midspan_split`]'s; this crate carries them out.
//!
//! [`run`] is the whole program. [`Relay`] is the same in parts, for who wants to look inside
//! while it runs, and [`Interception`] the rules alone.

mod command;
mod flow_observer;
mod hook;
mod inbox;
mod load;
mod monitor;
mod observation;
mod phase;
mod queries;
mod relay;
mod reload;
mod settings;
mod slot;
mod watchdog;
mod worker;
mod workers;

pub use midspan_config::{
    AddressesKind, AdminConfig, Config, ConfigError, DecideConfig, DecideMode, Dscp, FlowLogConfig,
    ForwardConfig, Handshake, InterceptionKind, LegConfig, LimitsConfig, LogConfig, MetricsConfig,
    PolicyConfig, Ports, ProxyConfig, ProxyVersion, ReadAheadKind, To,
};
pub use midspan_forward::check_here;
pub use midspan_interception::{Interception, InterceptionError};
pub use midspan_legs::Snapshot;
pub use midspan_steer::FirstWindow;
pub use midspan_succession::{READY, runs_this_program, take_over};
pub use midspan_telemetry::{ObserveError, Treatment, TreatmentSnapshot};

pub use load::load;
pub use monitor::Monitor;
pub use relay::{Error, Relay, Start, prove_steering, run};
