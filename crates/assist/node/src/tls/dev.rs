use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SerialNumber,
};

/// An authority for development and tests, with certificates that it signs.
///
/// A network uses its own authority; this one's key lies in a file beside the certificates.
pub struct DevSet {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    next_serial: u64,
}

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Issued {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
    /// SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: String,
    serial: u64,
}

fn other(error: rcgen::Error) -> io::Error {
    io::Error::other(error)
}

impl DevSet {
    /// A new authority, good for a year.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn create() -> io::Result<DevSet> {
        let key = KeyPair::generate().map_err(other)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(other)?;
        params.distinguished_name.push(DnType::CommonName, "Midspan development authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = SystemTime::now();
        params.not_before = (now - DAY).into();
        params.not_after = (now + 365 * DAY).into();
        let certificate = params.self_signed(&key).map_err(other)?.pem();
        Ok(DevSet { issuer: Issuer::new(params, key), certificate, next_serial: 1 })
    }

    /// The authority's certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.certificate
    }

    /// Signs a certificate for a host, daemon or sender, with these DNS names or IP addresses, that
    /// is good from `from` until `until`.
    ///
    /// # Errors
    /// When a name is not one.
    pub fn issue(
        &mut self,
        names: &[&str],
        from: SystemTime,
        until: SystemTime,
    ) -> io::Result<Issued> {
        let key = KeyPair::generate().map_err(other)?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).map_err(other)?;
        params.distinguished_name.push(DnType::CommonName, names.first().map_or("", |name| name));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = from.into();
        params.not_after = until.into();
        let serial = self.next_serial;
        self.next_serial += 1;
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(&key, &self.issuer).map_err(other)?;
        Ok(Issued {
            fingerprint: super::fingerprint(certificate.der()),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            serial,
        })
    }

    /// The same for the next thirty days.
    ///
    /// # Errors
    /// When a name is not one.
    pub fn issue_now(&mut self, names: &[&str]) -> io::Result<Issued> {
        let now = SystemTime::now();
        // A little before now, for clocks that go after.
        self.issue(names, now - Duration::from_secs(300), now + 30 * DAY)
    }

    /// A list that revokes `certificates`, in PEM.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn revoke(&self, certificates: &[&Issued]) -> io::Result<String> {
        let now = SystemTime::now();
        let revoked = |issued: &&Issued| RevokedCertParams {
            serial_number: SerialNumber::from(issued.serial),
            revocation_time: now.into(),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: (now - Duration::from_secs(300)).into(),
            next_update: (now + 30 * DAY).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: certificates.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).map_err(other)?.pem().map_err(other)
    }

    /// Writes the set to files: `authority.pem`, and `NAME.pem` and `NAME.key` for each of `hosts`,
    /// a name for its files and the names in its certificate. Keys are readable by their owner
    /// alone. Answers what was written.
    ///
    /// # Errors
    /// When a file is there already, or cannot be written.
    pub fn write(
        &mut self,
        folder: &Path,
        hosts: &[(&str, Vec<&str>)],
    ) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder)?;
        let mut written = Vec::new();
        let mut put = |name: String, text: &str, mode: u32| {
            let path = folder.join(name);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).map_err(
                    |error| io::Error::new(error.kind(), format!("{}: {error}", path.display())),
                )?;
            file.write_all(text.as_bytes())?;
            written.push(path);
            Ok::<_, io::Error>(())
        };
        put("authority.pem".into(), &self.certificate.clone(), 0o644)?;
        for (name, names) in hosts {
            let issued = self.issue_now(names)?;
            put(format!("{name}.pem"), &issued.certificate, 0o644)?;
            put(format!("{name}.key"), &issued.key, 0o600)?;
        }
        Ok(written)
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);
