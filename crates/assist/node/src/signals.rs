use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::daemon::Error;

/// Ends with the first SIGTERM or SIGINT.
pub(crate) fn stop() -> Result<impl Future<Output = ()>, Error> {
    let catch = |kind| signal(kind).map_err(Error::system("signals"));
    let mut terminate = catch(SignalKind::terminate())?;
    let mut interrupt = catch(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
