//! Connections, and what is refused before anything is looked at.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use midspan_http::Bounds;
use tokio::net::TcpListener;

use crate::answer::{Answer, answer};
use crate::folder::Folder;

/// A browser has a few connections for each page, and keeps them while it is open.
const BOUNDS: Bounds = Bounds {
    connections: 64,
    request: Duration::from_secs(10),
    connection: Duration::from_secs(24 * 3600),
};

/// Nothing from outside, and nothing of ours in others' frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// Answers for as long as it is polled. `is_local` says that it listens to this machine alone.
pub(crate) async fn serve(listener: TcpListener, folder: Arc<Folder>, is_local: bool) {
    let answer = move |request| respond(request, folder.clone(), is_local);
    midspan_http::serve(listener, BOUNDS, answer).await;
}

async fn respond(
    request: Request<Incoming>,
    folder: Arc<Folder>,
    is_local: bool,
) -> Response<Full<Bytes>> {
    if is_local && !names_this_machine(&request) {
        return response(Answer::trouble(
            403,
            "Not by this name",
            "Results are shown to this machine alone, as localhost or by its loopback address.",
        ));
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let what = "Results are looked at here, and not written to.";
        let mut refused = response(Answer::trouble(405, "Not that", what));
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    response(answer(folder, path, query).await)
}

/// Whether a request is for this machine by a name that no other site can have: a browser that was lured to a name of
/// somebody else's, which leads here, says that name.
fn names_this_machine(request: &Request<Incoming>) -> bool {
    let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = named.and_then(|host| host.parse::<hyper::http::uri::Authority>().ok())
    else {
        return false;
    };
    is_loopback(authority.host())
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(answer.text));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [
        (CONTENT_TYPE, answer.kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_names_are_not_this_machine() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "[::1]", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "localhost.example", "127.0.0.1.example", "10.0.0.1", "[::]", "evil"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
