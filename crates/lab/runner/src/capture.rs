//! Packets of emulated links, written to files while they pass.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use midspan_batch::capture::{CaptureFile, CaptureWriter};
use midspan_emu::{End, Sight, Tap};
use midspan_sys::clock::monotonic;
use midspan_units::Time;

/// The files of the two ends of a link, the left one's first.
pub(crate) type Ends = [Option<CaptureFile>; 2];

/// Files that are being written.
#[derive(Debug)]
pub(crate) struct Recording(Vec<Writer>);

#[derive(Debug)]
struct Writer {
    missed: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
}

/// Packets that may wait to be written: a second at 1 Gbit/s.
const ROOM: usize = 100_000;

impl Recording {
    /// Begins the files of access and wide link, and answers what these are to tell of: packets' headers, or them `whole`.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(crate) fn start(links: [Ends; 2], whole: bool) -> Result<(Recording, [Option<Tap>; 2])> {
        // What the wall clock shows when the kernel's monotonic clock is zero.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = wall.saturating_sub(monotonic());
        let (mut writers, mut taps) = (Vec::new(), [None, None]);
        for (tap, files) in taps.iter_mut().zip(links) {
            if files.iter().all(Option::is_none) {
                continue;
            }
            let open = |file: Option<CaptureFile>| {
                let begin = |file: CaptureFile| {
                    CaptureWriter::create(&file).with_context(|| {
                        format!("cannot write the capture {}", file.path.display())
                    })
                };
                file.map(begin).transpose()
            };
            let [left, right] = files;
            let ends = [open(left)?, open(right)?];
            let (sender, from) = Tap::new(ROOM, whole);
            let missed = sender.missed();
            let write = move || write(ends, &from, epoch);
            let thread = thread::Builder::new().name("capture".into()).spawn(write)?;
            *tap = Some(sender);
            writers.push(Writer { missed, thread });
        }
        Ok((Recording(writers), taps))
    }

    /// Waits until everything is written; the links must be gone. What went wrong, if something did.
    pub(crate) fn finish(self) -> Vec<String> {
        let mut said = Vec::new();
        for writer in self.0 {
            if let Err(error) = writer.thread.join().expect("it does not panic") {
                said.push(format!("the capture is not complete: {error}"));
            }
            match writer.missed.load(Ordering::Relaxed) {
                0 => {}
                missed => {
                    said.push(format!(
                        "the capture is not complete: {missed} packets are not in it"
                    ));
                }
            }
        }
        said
    }
}

fn write(
    mut ends: [Option<CaptureWriter>; 2],
    from: &Receiver<Sight>,
    epoch: Duration,
) -> io::Result<()> {
    loop {
        let sight = match from.try_recv() {
            Ok(sight) => sight,
            Err(TryRecvError::Disconnected) => break,
            // There is time now, and somebody may be reading along.
            Err(TryRecvError::Empty) => {
                ends.iter_mut().flatten().try_for_each(CaptureWriter::flush)?;
                let Ok(sight) = from.recv() else { break };
                sight
            }
        };
        let [left, right] = &mut ends;
        let end = if sight.end == End::Left { left } else { right };
        if let Some(writer) = end {
            let since = Duration::from(sight.at.since(Time::ZERO));
            writer.add(epoch + since, sight.wire_bytes, &sight.bytes)?;
        }
    }
    ends.iter_mut().flatten().try_for_each(CaptureWriter::flush)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ue.pcapng");
        std::fs::create_dir(&path).unwrap();
        let file = CaptureFile { path: path.clone(), interface: "ue".into(), comment: "".into() };
        let error = Recording::start([[Some(file), None], [None, None]], false).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write the capture {}", path.display()));
    }

    #[test]
    fn links_that_nobody_asks_for_have_no_tap() {
        let (recording, taps) = Recording::start(Default::default(), false).unwrap();
        assert!(taps.iter().all(Option::is_none) && recording.finish().is_empty());
    }
}
