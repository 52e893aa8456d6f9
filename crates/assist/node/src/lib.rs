//! NetAssist: the network tells senders what it knows.
//!
//! The [`daemon`] takes measurements from [`source`]s in, and sends feedback to the senders that
//! are registered; the [`agent`] keeps a sender registered and passes feedback on to its congestion
//! control. Both speak QUIC with certificates on either side ([`tls`]). What is decided is decided
//! in `midspan-assist-proto`.

pub mod agent;
mod clock;
pub mod config;
pub mod control;
pub mod daemon;
mod signals;
pub mod source;
pub mod tls;

pub use clock::now;
