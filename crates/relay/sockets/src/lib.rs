//! How a leg's socket is made: set up as configured before anything can happen to it, listening for clients or on its way
//! to a server; and how connections are taken, with what their SYNs have said.
//!
//! What becomes of a connection is not decided here.

mod accept;
mod client_leg;
mod connect;
mod family;
mod first_window;
mod leg_stats;
mod listener;
mod options;
mod registered_controls;
mod syn_options;

pub use accept::{Connection, NotAccepted, accept, address_of, waiting};
pub use client_leg::LeastTimeout;
pub use connect::{
    begin_connect, bind_as, connect, connect_with_data_of, end_handshake, is_former, open,
};
pub use family::Family;
pub use first_window::first_window;
pub use leg_stats::leg_stats;
pub use listener::{ListenAddress, Listener, listen, reconfigure};
pub use options::{mark, probe};
pub use registered_controls::RegisteredControls;
pub use syn_options::SynOptions;
