//! The relay as a process between real network namespaces: a client, the box, a server.
//!
//! Without the right to create namespaces each test says that it was skipped.

mod accounts;
mod admin;
mod arrivals;
mod beside;
mod blind;
mod boundaries;
mod confirm;
mod death;
mod decide;
mod descriptors;
mod early_answer;
mod ends;
mod fast_open;
mod flood;
mod forward;
mod fragments;
mod garbage;
mod hand;
mod handshake;
mod hostile;
mod identity;
mod idle;
mod learned;
mod legs;
mod load;
mod mptcp;
mod observe;
mod outage;
mod peer;
mod port_reuse;
mod process;
mod proof;
mod proxy;
mod reload;
mod reordering;
mod replace;
mod service;
mod share;
mod signed;
mod soak;
mod steer;
mod storm;
mod vlan;
mod world;
