//! An API that is asked again and again.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use midspan_assist_proto::Causal;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::{End, Format, SourceChannel, SourceConfig};

/// The longest answer.
const LONGEST: u64 = 16 << 20;

/// Asks `URL/queries/layer2_meas` once a period.
pub(super) struct Poll {
    agent: Agent,
    url: String,
    period: Duration,
}

impl Poll {
    pub(super) fn new(config: &SourceConfig) -> Result<Poll, String> {
        let base = config.url()?.trim_end_matches('/');
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(format!("`{base}` is not http://HOST or https://HOST"));
        }
        let mut settings = Agent::config_builder()
            .timeout_global(Some(Duration::from(config.trust.stall).max(Duration::from_secs(1))));
        if base.starts_with("https://") {
            let authority = config.authority.as_deref();
            let authority = authority.ok_or("`https` takes `authority`, a file of certificates")?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            settings = settings.tls_config(
                TlsConfig::builder()
                    .root_certs(RootCerts::Specific(Arc::new(certificates(authority)?)))
                    .unversioned_rustls_crypto_provider(provider)
                    .build(),
            );
        }
        Ok(Poll {
            agent: settings.build().into(),
            url: format!("{base}/queries/layer2_meas"),
            period: config.period.into(),
        })
    }

    pub(super) fn run(&self, channel: &mut SourceChannel<Causal>, format: &mut dyn Format) -> End {
        let mut next = Instant::now();
        loop {
            if let Err(end) = channel.check() {
                return end;
            }
            let answer = self.agent.get(&self.url).call().and_then(|mut response| {
                response.body_mut().with_config().limit(LONGEST).read_to_vec()
            });
            let end = match answer {
                Ok(body) => channel.record(&body, format),
                Err(error) => return End::Down(format!("{}: {error}", self.url)),
            };
            if let Err(end) = end {
                return end;
            }
            next = (next + self.period).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let in_file = |error: String| format!("{}: {error}", path.display());
    let pem = std::fs::read(path).map_err(|error| in_file(error.to_string()))?;
    let items = ureq::tls::parse_pem(&pem);
    let certificates: Result<Vec<_>, _> = items
        .filter_map(|item| match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(Ok(certificate)),
            Ok(_) => None,
            Err(error) => Some(Err(in_file(error.to_string()))),
        })
        .collect();
    match certificates {
        Ok(found) if found.is_empty() => Err(in_file("has no certificate in PEM".into())),
        other => other,
    }
}
