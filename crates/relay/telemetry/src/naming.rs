//! Where the key of the pseudonyms comes from.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use midspan_config::{AddressesKind, LogConfig};
use midspan_observe::{Naming, PseudonymKey};

use crate::error::ObserveError;

/// As it is configured.
pub(crate) fn of(config: &LogConfig) -> Result<Naming, ObserveError> {
    if config.addresses == AddressesKind::Plain {
        return Ok(Naming::Plain);
    }
    let key = match &config.key_file {
        None => random()?,
        Some(path) => kept(path)
            .map_err(|said| ObserveError::Key { path: path.clone(), said: said.to_string() })?,
    };
    Ok(Naming::Pseudonym(key))
}

fn random() -> io::Result<PseudonymKey> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(PseudonymKey::new(bytes))
}

/// Reads the key, or makes one where there is none.
fn kept(path: &Path) -> Result<PseudonymKey, Box<dyn std::error::Error>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.parse()?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = random()?;
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(key.to_text().as_bytes())?;
            tracing::info!(path = %path.display(), "made a key for pseudonyms");
            Ok(key)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_at(path: &Path) -> Result<Naming, ObserveError> {
        of(&LogConfig { key_file: Some(path.to_owned()), ..LogConfig::default() })
    }

    #[test]
    fn pseudonyms_outlast_a_run_with_a_key_file_and_only_then() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let client = "10.0.0.1:1".parse().unwrap();
        let first = key_at(&path).unwrap().of(client);
        assert_eq!(key_at(&path).unwrap().of(client), first);
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let run = || of(&LogConfig::default()).unwrap().of(client);
        assert_ne!(run(), run());
    }

    #[test]
    fn a_file_that_holds_no_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "secret").unwrap();
        let said = key_at(&path).unwrap_err().to_string();
        assert!(said.contains("32 hexadecimal") && said.contains("key"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
    }
}
