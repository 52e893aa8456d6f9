//! Counts what QUIC itself refuses. A datagram that was forged, changed or cut does not pass its
//! authentication, and one that was replayed is dropped without a word: nothing above QUIC sees
//! either. So the keys that open a connection's packets are watched.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use midspan_assist_proto::{Seen, Window};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use quinn::{ConnectError, ConnectionId, Side};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;
use serde::{Deserialize, Serialize};

/// The counts of one end, all its connections together.
#[derive(Debug, Clone, Default)]
pub struct Audit(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    not_authentic: AtomicU64,
    replayed: AtomicU64,
}

/// What QUIC has refused so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditCounts {
    /// Packets of a connection that nobody with its keys wrote: forged, changed or cut.
    pub not_authentic: u64,
    /// Packets of a connection that had come before.
    pub replayed: u64,
}

impl Audit {
    /// The counts so far.
    pub fn counts(&self) -> AuditCounts {
        AuditCounts {
            not_authentic: self.0.not_authentic.load(Ordering::Relaxed),
            replayed: self.0.replayed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn server(&self, config: QuicServerConfig) -> Arc<dyn ServerConfig> {
        Arc::new(AuditedServer { config: Arc::new(config), audit: self.clone() })
    }

    pub(super) fn client(&self, config: QuicClientConfig) -> Arc<dyn ClientConfig> {
        Arc::new(AuditedClient { config: Arc::new(config), audit: self.clone() })
    }

    fn session(&self, session: Box<dyn Session>) -> Box<dyn Session> {
        Box::new(AuditedSession { session, audit: self.clone() })
    }

    /// Only the key that opens the other end's packets is watched.
    fn pair(&self, pair: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let key = pair.remote;
        let seen = Mutex::default();
        let remote = Box::new(AuditedKey { key, counters: self.0.clone(), seen });
        KeyPair { local: pair.local, remote }
    }
}

struct AuditedServer {
    config: Arc<QuicServerConfig>,
    audit: Audit,
}

impl ServerConfig for AuditedServer {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.config.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.config.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        self.audit.session(self.config.clone().start_session(version, params))
    }
}

struct AuditedClient {
    config: Arc<QuicClientConfig>,
    audit: Audit,
}

impl ClientConfig for AuditedClient {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.config.clone().start_session(version, server_name, params)?;
        Ok(self.audit.session(session))
    }
}

/// Passes everything on, and puts a watch on the keys of the application's packets. Those of the
/// handshake are left alone: whoever sees its first packet can write such ones.
struct AuditedSession {
    session: Box<dyn Session>,
    audit: Audit,
}

impl Session for AuditedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.session.write_handshake(buf)?;
        Some(Keys { header: keys.header, packet: self.audit.pair(keys.packet) })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys().map(|pair| self.audit.pair(pair))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}

struct AuditedKey {
    key: Box<dyn PacketKey>,
    counters: Arc<Counters>,
    seen: Mutex<Window>,
}

impl PacketKey for AuditedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let result = self.key.decrypt(packet, header, payload);
        if result.is_err() {
            self.counters.not_authentic.fetch_add(1, Ordering::Relaxed);
            return result;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.note(packet) == Seen::Replayed {
            self.counters.replayed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}
