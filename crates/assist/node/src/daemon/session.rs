//! One connection of a sender or UE: its handshake, its messages in, the answers out.

use std::time::Duration;

use midspan_assist_proto::{Frames, SessionId, ToDaemon, ToSender};
use quinn::{Connection, ConnectionError, Incoming, RecvStream, SendStream, VarInt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Close, Event};
use crate::tls::Peer;

/// How long a peer may take for its handshake, and for its first message.
const PATIENCE: Duration = Duration::from_secs(5);
/// Answers that may wait for a peer that does not read them.
const ANSWERS: usize = 1 << 16;

/// Why a connection did not become a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failed {
    CertificateExpired,
    CertificateRevoked,
    CertificateUnknownAuthority,
    CertificateBadSignature,
    CertificateMissing,
    CertificateOther,
    Handshake,
    /// No stream in time.
    Silent,
    /// As many are open as may be.
    TooMany,
}

impl Failed {
    pub(super) fn name(self) -> &'static str {
        match self {
            Failed::CertificateExpired => "certificate_expired",
            Failed::CertificateRevoked => "certificate_revoked",
            Failed::CertificateUnknownAuthority => "certificate_unknown_authority",
            Failed::CertificateBadSignature => "certificate_bad_signature",
            Failed::CertificateMissing => "certificate_missing",
            Failed::CertificateOther => "certificate_other",
            Failed::Handshake => "handshake",
            Failed::Silent => "silent",
            Failed::TooMany => "too_many",
        }
    }
}

/// A connection that may now be served.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) peer: Peer,
    pub(super) answers: mpsc::Sender<ToSender>,
}

/// Serves one connection from its first packet to its end.
pub(super) async fn serve(id: SessionId, incoming: Incoming, to: mpsc::Sender<Event>) {
    let opened = match timeout(PATIENCE, open(incoming)).await {
        Ok(opened) => opened,
        Err(_) => Err(Failed::Silent),
    };
    match opened {
        Ok((connection, peer, send, receive)) => {
            let (answers, outgoing) = mpsc::channel(ANSWERS);
            let opened = Opened { connection: connection.clone(), peer, answers };
            if to.send(Event::Opened(id, Box::new(opened))).await.is_err() {
                return;
            }
            let close = converse(id, &to, send, receive, outgoing).await;
            connection.close(close.code(), close.name().as_bytes());
            let _ = to.send(Event::Closed(id, close)).await;
        }
        Err(failed) => {
            let _ = to.send(Event::Failed(failed)).await;
        }
    }
}

async fn open(incoming: Incoming) -> Result<(Connection, Peer, SendStream, RecvStream), Failed> {
    let connecting = incoming.accept().map_err(|error| classify(&error))?;
    let connection = connecting.await.map_err(|error| classify(&error))?;
    let peer = Peer::of(&connection).ok_or(Failed::CertificateMissing)?;
    let (send, receive) = connection.accept_bi().await.map_err(|error| classify(&error))?;
    Ok((connection, peer, send, receive))
}

/// TLS alerts (RFC 8446, section 6) arrive as QUIC's crypto errors (RFC 9001, section 4.8).
fn classify(error: &ConnectionError) -> Failed {
    let code = match error {
        ConnectionError::TransportError(error) => u64::from(error.code),
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
        _ => return Failed::Handshake,
    };
    match code.checked_sub(0x100) {
        Some(45) => Failed::CertificateExpired,
        Some(44) => Failed::CertificateRevoked,
        Some(48) => Failed::CertificateUnknownAuthority,
        Some(51) => Failed::CertificateBadSignature,
        Some(116) => Failed::CertificateMissing,
        Some(42 | 43 | 46) => Failed::CertificateOther,
        _ => Failed::Handshake,
    }
}

/// Passes messages on and answers back, until something ends it.
async fn converse(
    id: SessionId,
    to: &mpsc::Sender<Event>,
    mut send: SendStream,
    mut receive: RecvStream,
    mut outgoing: mpsc::Receiver<ToSender>,
) -> Close {
    let incoming = async {
        let (mut frames, mut greeted) = (Frames::default(), false);
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let Ok(Some(count)) = receive.read(&mut buffer).await else { return Close::Left };
            let (mut messages, mut fault) = (Vec::new(), false);
            frames.feed(&buffer[..count], |frame| match ToDaemon::parse(frame) {
                Ok(message) if !fault => messages.push(message),
                _ => fault = true,
            });
            for message in messages {
                let hello = matches!(message, ToDaemon::Hello { .. });
                if hello == greeted {
                    return Close::Violation;
                }
                greeted = true;
                if to.send(Event::Message(id, message)).await.is_err() {
                    return Close::Stopped;
                }
            }
            if fault {
                return Close::Violation;
            }
        }
    };
    let answering = async {
        let mut batch = Vec::new();
        while outgoing.recv_many(&mut batch, 256).await > 0 {
            let bytes: Vec<u8> = batch.drain(..).flat_map(|answer| answer.encode()).collect();
            if send.write_all(&bytes).await.is_err() {
                return Close::Left;
            }
        }
        // The daemon has let go of the session, and has said why when it closed it.
        Close::Stopped
    };
    tokio::select! {
        close = incoming => close,
        close = answering => close,
    }
}

impl Close {
    /// What the other end is told.
    pub(super) fn code(self) -> VarInt {
        VarInt::from_u32(match self {
            Close::Left | Close::Stopped => 0,
            Close::Violation => 1,
            Close::Revoked => 2,
            Close::Deaf => 3,
            Close::TooMany => 4,
        })
    }

    /// The same for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Close::Left => "left",
            Close::Stopped => "stopped",
            Close::Violation => "violation",
            Close::Revoked => "revoked",
            Close::Deaf => "deaf",
            Close::TooMany => "too_many",
        }
    }
}
