//! The file that keeps what was learned.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use midspan_gain::{Estimator, Settings, State};
use serde::{Deserialize, Serialize};

/// A file with what was learned. It is never half written.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    complained: AtomicBool,
}

#[derive(Serialize, Deserialize)]
struct Kept<S> {
    /// How long slots were, in seconds, by which the state counts.
    slot_s: f64,
    state: S,
}

impl File {
    pub(crate) fn new(path: &Path) -> File {
        File { path: path.to_owned(), complained: AtomicBool::new(false) }
    }

    /// What was learned before `now`. None if there is nothing, or nothing that can be used: that is put aside, and said.
    pub(crate) fn read(
        &self,
        settings: Settings,
        slot: Duration,
        now: Duration,
    ) -> Option<Estimator> {
        let failed = match self.try_read(settings, slot, now) {
            Ok(estimator) => return estimator,
            Err(failed) => failed,
        };
        let aside = self.beside("unusable");
        let put = fs::rename(&self.path, &aside);
        let aside = put.is_ok().then(|| aside.display().to_string());
        let path = self.path.display();
        tracing::warn!(%path, put_aside = aside, "what was learned is learned anew: {failed}");
        None
    }

    fn try_read(
        &self,
        settings: Settings,
        slot: Duration,
        now: Duration,
    ) -> Result<Option<Estimator>, String> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let kept: Kept<State> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let is_same = (kept.slot_s - slot.as_secs_f64()).abs() < 1e-6;
        if !is_same {
            return Err(format!("its slots are of {} s", kept.slot_s));
        }
        let estimator =
            Estimator::restore(settings, kept.state).map_err(|error| error.to_string())?;
        let current = now.as_nanos() / slot.as_nanos();
        if estimator.closed().is_some_and(|closed| u128::from(closed) > current) {
            return Err("it is of the future: the clock was set back".into());
        }
        Ok(Some(estimator))
    }

    /// Keeps what was learned. That it cannot be is said once.
    pub(crate) fn write(&self, estimator: &Estimator, slot: Duration) {
        let written = self.try_write(estimator, slot);
        let failed = written.is_err();
        if let Err(error) = written
            && !self.complained.load(Ordering::Relaxed)
        {
            let path = self.path.display();
            tracing::error!(%path, %error, "what was learned is not kept");
        }
        self.complained.store(failed, Ordering::Relaxed);
    }

    fn try_write(&self, estimator: &Estimator, slot: Duration) -> io::Result<()> {
        let kept = Kept { slot_s: slot.as_secs_f64(), state: estimator.state() };
        let new = self.beside("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".");
        name.push(ending);
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use midspan_gain::{Arm, Id, Observation, Place};

    use super::*;

    const SLOT: Duration = Duration::from_secs(10);

    fn learned() -> Estimator {
        let mut estimator = Estimator::new(Settings::default()).unwrap();
        for n in 0..200 {
            let observation = Observation {
                place: Place { group: Id(0), service: Id(1), prefix: Id(2) },
                subscriber: Id(n),
                slot: n as u64 / 20,
                arm: if n % 2 == 0 { Arm::Split } else { Arm::Unsplit },
                probability: 0.5,
                bytes: 20_000,
                connect_rtt: 1.0,
                completion: 0.1,
            };
            estimator.observe(&observation).unwrap();
            estimator.close(n as u64 / 20 - u64::from(n % 20 != 19 && n >= 20));
        }
        estimator
    }

    #[test]
    fn what_was_learned_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::new(&folder.path().join("decisions.json"));
        let read = || file.read(Settings::default(), SLOT, SLOT * 1000);
        assert!(read().is_none());
        let learned = learned();
        file.write(&learned, SLOT);
        let again = read().unwrap();
        assert_eq!(again.state(), learned.state());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_used_is_put_aside() {
        for (slot, now, text) in
            [(SLOT, SLOT * 1000, Some("{")), (SLOT * 2, SLOT * 1000, None), (SLOT, SLOT * 2, None)]
        {
            let folder = tempfile::tempdir().unwrap();
            let file = File::new(&folder.path().join("decisions.json"));
            file.write(&learned(), SLOT);
            if let Some(text) = text {
                fs::write(&file.path, text).unwrap();
            }
            assert!(file.read(Settings::default(), slot, now).is_none());
            assert!(!file.path.exists() && file.beside("unusable").exists());
        }
    }
}
