//! A small HTTP server's connections: as many as it may have, none longer than it may take. What is answered is its
//! caller's to say.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Bytes that are held of a request, at most.
const REQUEST: usize = 16 << 10;
/// How long to wait when the system has no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);

/// What clients may take of a server.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at one time, at least 1. One more ends the oldest: who asks now must not wait for who keeps a place.
    pub connections: usize,
    /// How long a request may take to come.
    pub request: Duration,
    /// How long a connection may last.
    pub connection: Duration,
}

/// Has `answer` say what becomes of each request, for as long as it is polled. What a client does wrong ends its connection,
/// and nothing else.
pub async fn serve<A, F>(listener: TcpListener, bounds: Bounds, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::with_capacity(bounds.connections);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= bounds.connections
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                open.push_back(tokio::spawn(connection(stream, bounds, answer.clone())));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                sleep(REST).await;
            }
        }
    }
}

async fn connection<A, F>(stream: TcpStream, bounds: Bounds, answer: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(|request| {
        let response = answer(request);
        async { Ok::<_, Infallible>(response.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.request)
        .max_buf_size(REQUEST)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(bounds.connection, served).await {
        tracing::debug!(%error, "a connection ended");
    }
}
