//! Who is who: certificates from files, mutual TLS 1.3 under QUIC, and what of it is refused.

mod audit;
mod dev;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, version::TLS13};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use audit::{Audit, AuditCounts};
pub use dev::{DevSet, Issued};

/// The protocol's name in the TLS handshake (ALPN): another version would have another.
const ALPN: &[u8] = b"midspan-assist/1";

/// A connection whose other end is silent for so long is over.
const IDLE: Duration = Duration::from_secs(5);

/// Which files say who this end is and whom it believes. All PEM; read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// This end's certificate, with those that lead to the authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that other ends must be signed by.
    pub authority: PathBuf,
    /// Lists of revoked certificates (CRL), signed by the authority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revocation_lists: Vec<PathBuf>,
}

/// A file that does not say who is who.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// It cannot be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What is in it is not what is wanted.
    #[error("{}: {said}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong, and what would be right.
        said: String,
    },
}

/// What the files hold.
#[derive(Debug)]
pub struct Loaded {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    authority: PathBuf,
    certificate: PathBuf,
}

impl Identity {
    /// Reads all files.
    ///
    /// # Errors
    /// The first that is not usable.
    pub fn load(&self) -> Result<Loaded, IdentityError> {
        let chain: Vec<CertificateDer<'static>> = items(&self.certificate, "a certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|_| content(&self.key, "has no private key in PEM"))?;
        let mut roots = RootCertStore::empty();
        for certificate in items(&self.authority, "a certificate")? {
            roots
                .add(certificate)
                .map_err(|error| content(&self.authority, format!("not an authority: {error}")))?;
        }
        let mut lists = Vec::new();
        for path in &self.revocation_lists {
            lists.extend(items(path, "a list of revoked certificates")?);
        }
        Ok(Loaded {
            chain,
            key,
            roots: roots.into(),
            lists,
            authority: self.authority.clone(),
            certificate: self.certificate.clone(),
        })
    }

    /// When the files were last changed: something else than before means to load again.
    pub fn changed(&self) -> Vec<Option<SystemTime>> {
        let files = [&self.certificate, &self.key, &self.authority];
        files.into_iter().chain(&self.revocation_lists).map(|path| modified(path)).collect()
    }
}

/// When a file was last changed; None if it is not there.
pub fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

impl Loaded {
    /// Tells certificates that may be let in from others.
    ///
    /// # Errors
    /// When authorities and revocation lists do not fit together.
    pub fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, IdentityError> {
        WebPkiClientVerifier::builder_with_provider(self.roots.clone(), provider())
            .with_crls(self.lists.clone())
            .build()
            .map_err(|error| content(&self.authority, error))
    }

    /// The daemon's end of QUIC.
    ///
    /// # Errors
    /// When key and certificate do not fit.
    pub fn server(&self, audit: &Audit) -> Result<ServerConfig, IdentityError> {
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| content(&self.certificate, error))?
            .with_client_cert_verifier(self.verifier()?)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| content(&self.certificate, error))?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would bring its certificate along unverified, revoked or not.
        tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        tls.max_early_data_size = 0;
        let quic = QuicServerConfig::try_from(Arc::new(tls))
            .map_err(|error| content(&self.certificate, error))?;
        let mut config = ServerConfig::with_crypto(audit.server(quic));
        config.transport_config(Arc::new(transport(None)));
        config.migration(true);
        Ok(config)
    }

    /// A sender's end.
    ///
    /// # Errors
    /// When key and certificate do not fit.
    pub fn client(&self, audit: &Audit) -> Result<ClientConfig, IdentityError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots.clone(), provider())
            .with_crls(self.lists.clone())
            .build()
            .map_err(|error| content(&self.authority, error))?;
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| content(&self.certificate, error))?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| content(&self.certificate, error))?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.resumption = rustls::client::Resumption::disabled();
        let quic = QuicClientConfig::try_from(Arc::new(tls))
            .map_err(|error| content(&self.certificate, error))?;
        let mut config = ClientConfig::new(audit.client(quic));
        config.transport_config(Arc::new(transport(Some(IDLE / 4))));
        Ok(config)
    }
}

/// What both ends ask of QUIC. Feedback is small, of use only while it is new, and bounded by what
/// is registered; the first window has room for a period of a thousand UEs, and what does not get
/// out in time makes room for what is newer.
fn transport(keep_alive: Option<Duration>) -> TransportConfig {
    let mut congestion = CubicConfig::default();
    congestion.initial_window(FIRST_WINDOW);
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .keep_alive_interval(keep_alive)
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(STREAM_WINDOW))
        .datagram_send_buffer_size(DATAGRAM_BUFFER)
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
        .congestion_controller_factory(Arc::new(congestion));
    transport
}

const FIRST_WINDOW: u64 = 128 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;
const DATAGRAM_BUFFER: usize = 1 << 20;

/// The certificate that the other end of a connection has shown.
#[derive(Debug, Clone)]
pub struct Peer {
    chain: Vec<CertificateDer<'static>>,
    /// SHA-256 of its certificate, in hexadecimal.
    pub fingerprint: String,
    /// The DNS names in it.
    pub names: Vec<String>,
}

impl Peer {
    /// None if it has shown none, which the handshake does not let happen.
    pub fn of(connection: &quinn::Connection) -> Option<Peer> {
        let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        let first = chain.first()?;
        let names = webpki::EndEntityCert::try_from(first)
            .map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect())
            .unwrap_or_default();
        Some(Peer { fingerprint: fingerprint(first), names, chain: *chain })
    }

    /// Whether the certificate would be let in now: its time may be over, or it may be revoked.
    pub fn is_still_good(&self, verifier: &dyn ClientCertVerifier) -> bool {
        let Some((first, rest)) = self.chain.split_first() else { return false };
        verifier.verify_client_cert(first, rest, UnixTime::now()).is_ok()
    }
}

/// SHA-256 of a certificate, in hexadecimal.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|error| IdentityError::Read { path: path.to_owned(), error })
}

fn content(path: &Path, said: impl ToString) -> IdentityError {
    IdentityError::Content { path: path.to_owned(), said: said.to_string() }
}

/// All PEM items of one kind in a file; at least one.
fn items<T: PemObject>(path: &Path, wanted: &str) -> Result<Vec<T>, IdentityError> {
    let items = T::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<T>, _>>()
        .map_err(|error| content(path, format!("wanted {wanted} in PEM: {error}")))?;
    if items.is_empty() {
        return Err(content(path, format!("has not {wanted} in PEM")));
    }
    Ok(items)
}
