//! The places where the relay is looked at from outside.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use midspan_config::Config;
use midspan_threads::Privileges;
use tokio::sync::oneshot;

use crate::admin::{self, AdminSocket};
use crate::error::ObserveError;
use crate::http;
use crate::source::Source;

/// Where the relay is looked at from outside: places taken, nothing answered yet.
#[derive(Debug, Default)]
pub struct Listeners {
    metrics: Option<TcpListener>,
    admin: Option<AdminSocket>,
}

impl Listeners {
    /// Takes the places that are configured.
    ///
    /// # Errors
    /// The first that cannot be had.
    pub fn open(config: &Config) -> Result<Listeners, ObserveError> {
        let mut listeners = Listeners::default();
        if let Some(metrics) = &config.metrics {
            let at = metrics.listen;
            let listener = TcpListener::bind(at).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            let listener = listener.map_err(|error| ObserveError::Metrics { at, error })?;
            listeners.metrics = Some(listener);
        }
        if let Some(admin) = &config.admin {
            let path = admin.socket.clone();
            let socket = AdminSocket::open(&path);
            listeners.admin = Some(socket.map_err(|error| ObserveError::Admin { path, error })?);
        }
        Ok(listeners)
    }

    /// Begins to answer, in a thread of its own, which keeps these privileges.
    ///
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub fn serve(
        self,
        source: Arc<dyn Source>,
        privileges: Privileges,
    ) -> Result<Served, ObserveError> {
        if self.metrics.is_none() && self.admin.is_none() {
            return Ok(Served(None));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (metrics, admin) = {
            // Where the listeners are to be watched.
            let _inside = runtime.enter();
            let metrics = self.metrics.map(tokio::net::TcpListener::from_std).transpose()?;
            let admin = self.admin.map(|socket| {
                tokio::net::UnixListener::from_std(socket.listener)
                    .map(|listener| (listener, socket.name))
            });
            (metrics, admin.transpose()?)
        };
        let serve = async move {
            if let Some(listener) = metrics {
                tokio::spawn(http::serve(listener, source.clone()));
            }
            let mut _name = None;
            if let Some((listener, name)) = admin {
                _name = Some(name);
                tokio::spawn(admin::serve(listener, source));
            }
            // Dropping the other end says it as well.
            let _ = stopped.await;
        };
        let thread = std::thread::Builder::new().name("relay-observe".into()).spawn(move || {
            privileges.lower();
            runtime.block_on(serve);
        })?;
        Ok(Served(Some((stop, thread))))
    }
}

/// Answers to who looks from outside. Dropping this ends it.
#[derive(Debug, Default)]
pub struct Served(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Drop for Served {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
