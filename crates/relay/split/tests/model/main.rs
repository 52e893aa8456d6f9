//! What is decided, run against models: of the kernel's sockets, of limits, of time.

mod deferred_accept;
mod kernel;
mod net;
mod pump;
mod worker;
