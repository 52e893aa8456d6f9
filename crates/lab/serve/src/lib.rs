//! `midspan lab serve`: a folder of results over HTTP, to be looked at and never written to.
//!
//! `folder` reads what is there, as it grows; `answer` says what an address shows; `http` keeps connections. What pages
//! look like is decided in [`midspan_report::browse`].

mod answer;
pub mod folder;
mod http;
mod locks;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::folder::Folder;

/// Answers at `listener` until Ctrl-C or SIGTERM, then returns at once, whoever is still being answered. Calls `ready` when
/// all is set up.
///
/// # Errors
/// When the system has no descriptors or threads for it.
pub fn run(folder: Folder, listener: TcpListener, ready: impl FnOnce()) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let is_local = listener.local_addr()?.ip().is_loopback();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        ready();
        tokio::select! {
            () = http::serve(listener, Arc::new(folder), is_local) => {}
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
        Ok(())
    });
    // Pages that are being made are not waited for.
    runtime.shutdown_background();
    served
}
