//! Metrics over HTTP.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use midspan_http::Bounds;
use tokio::net::TcpListener;

use crate::source::Source;
use crate::{metrics, text_format};

/// Scrapers come again.
const BOUNDS: Bounds = Bounds {
    connections: 16,
    request: Duration::from_secs(5),
    connection: Duration::from_secs(300),
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const FRONT: &str = "Midspan relay. Its metrics are at /metrics: OpenMetrics, or Prometheus' text format for who accepts text/plain \
                     alone. docs/reference/metrics.md says what each means.\n";

/// Answers for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, source: Arc<dyn Source>) {
    let answer = move |request| std::future::ready(respond(&request, &source));
    midspan_http::serve(listener, BOUNDS, answer).await;
}

fn respond(request: &Request<Incoming>, source: &Arc<dyn Source>) -> Response<Full<Bytes>> {
    let plain = |status, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    let is_metrics = match request.uri().path() {
        "/metrics" => true,
        "/" => false,
        _ => return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    };
    // HEAD gets the same; its body is not sent.
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics can only be read\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    if !is_metrics {
        return plain(StatusCode::OK, FRONT);
    }
    match metrics::expose(source) {
        Ok(text) => {
            let (text, kind) = match wants_text(request.headers()) {
                true => (text_format::from_open_metrics(&text), TEXT),
                false => (text, OPEN_METRICS),
            };
            let mut response = Response::new(Full::from(text));
            let kind = HeaderValue::from_static(kind);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be written\n"),
    }
}

/// Whether the client accepts plain text, and does not name OpenMetrics: then it does not know that.
fn wants_text(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|accepted| accepted.to_str().ok());
    let kinds = accepted.flat_map(|accepted| accepted.split(',')).map(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().to_ascii_lowercase()
    });
    let (mut text, mut open_metrics) = (false, false);
    for kind in kinds {
        text |= kind == "text/plain";
        open_metrics |= kind == "application/openmetrics-text";
    }
    text && !open_metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_for_who_accepts_it_and_does_not_name_open_metrics() {
        let wants = |accepted: &[&str]| {
            let mut headers = HeaderMap::new();
            for accepted in accepted {
                headers.append(ACCEPT, HeaderValue::from_str(accepted).unwrap());
            }
            wants_text(&headers)
        };
        assert!(!wants(&[]));
        assert!(!wants(&["*/*"]));
        assert!(wants(&["text/plain"]));
        assert!(wants(&["text/html, Text/Plain;version=0.0.4;q=0.5", "*/*;q=0.1"]));
        // As Prometheus asks.
        assert!(!wants(&[
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
        ]));
    }
}
