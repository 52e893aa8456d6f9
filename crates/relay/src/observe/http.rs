//! Metrics over HTTP.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::metrics;
use crate::shared::Monitor;

/// Connections at one time. One more ends the oldest: who asks now must not wait for who keeps a place.
const CONNECTIONS: usize = 16;
/// Bytes that are held of a request, at most.
const REQUEST: usize = 16 << 10;
/// How long a request may take to come, and a connection to last: scrapers come again.
const HEADER: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(300);
/// How long to wait when the system has no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers for as long as it is polled.
pub(super) async fn serve(listener: TcpListener, monitor: Monitor) {
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::with_capacity(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() == CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                open.push_back(tokio::spawn(answer(stream, monitor.clone())));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics failed");
                sleep(REST).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, monitor: Monitor) {
    let service = service_fn(move |request| {
        let response = respond(&request, &monitor);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_buf_size(REQUEST)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(CONNECTION, connection).await {
        tracing::debug!(%error, "a connection for metrics ended");
    }
}

fn respond(request: &Request<Incoming>, monitor: &Monitor) -> Response<Full<Bytes>> {
    let plain = |status, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    // HEAD gets the same; its body is not sent.
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics can only be read\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match metrics::expose(monitor) {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            let kind = HeaderValue::from_static(OPEN_METRICS);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be written\n"),
    }
}
