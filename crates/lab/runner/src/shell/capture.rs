//! Packets in files that Wireshark and the like read: classic pcap, with nanoseconds, of IP packets without a link layer.
//!
//! The format is two headers of fixed size (draft-ietf-opsawg-pcap), which is less than a library for it would bring along.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use midspan_emu::{End, Sight, Tap};
use midspan_sys::clock::monotonic;
use midspan_units::Time;

/// What to keep of which ends.
#[derive(Debug, Clone)]
pub struct Capture {
    /// A file for what the UE sends and receives, or a folder for a file of each end of both links.
    pub path: PathBuf,
    /// Whether packets are kept whole, and not their headers alone.
    pub whole: bool,
}

/// The files of the two ends of a link, the left one's first.
type Files = [Option<PathBuf>; 2];

impl Capture {
    /// The files of access and wide link.
    fn files(&self) -> [Files; 2] {
        if !self.is_folder() {
            return [[Some(self.path.clone()), None], [None, None]];
        }
        let file = |name: &str| Some(self.path.join(name));
        [[file("ue.pcap"), file("mec-access.pcap")], [file("mec-wide.pcap"), file("server.pcap")]]
    }

    fn is_folder(&self) -> bool {
        self.path.is_dir() || self.path.as_os_str().as_encoded_bytes().ends_with(b"/")
    }
}

/// Files that are being written.
#[derive(Debug)]
pub(crate) struct Captures(Vec<Writer>);

#[derive(Debug)]
struct Writer {
    missed: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
}

/// Packets that may wait to be written: a second at 1 Gbit/s.
const ROOM: usize = 100_000;

impl Captures {
    /// Begins the files, and answers what access and wide link are to tell of.
    pub(crate) fn start(capture: Option<&Capture>) -> Result<(Captures, [Option<Tap>; 2])> {
        let (mut writers, mut taps) = (Vec::new(), [None, None]);
        let Some(capture) = capture else { return Ok((Captures(writers), taps)) };
        let cannot = |path: &Path| format!("cannot write the capture {}", path.display());
        if capture.is_folder() {
            std::fs::create_dir_all(&capture.path).with_context(|| cannot(&capture.path))?;
        }
        for (tap, files) in taps.iter_mut().zip(capture.files()) {
            if files.iter().all(Option::is_none) {
                continue;
            }
            let open = |path: Option<PathBuf>| -> Result<Option<Pcap>> {
                let begin = |path: PathBuf| Pcap::begin(&path).with_context(|| cannot(&path));
                path.map(begin).transpose()
            };
            let [left, right] = files;
            let ends = [open(left)?, open(right)?];
            let (sender, from) = Tap::new(ROOM, capture.whole);
            let missed = sender.missed();
            let thread =
                thread::Builder::new().name("capture".into()).spawn(move || write(ends, &from))?;
            *tap = Some(sender);
            writers.push(Writer { missed, thread });
        }
        Ok((Captures(writers), taps))
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

fn write(mut ends: [Option<Pcap>; 2], from: &Receiver<Sight>) -> io::Result<()> {
    loop {
        let sight = match from.try_recv() {
            Ok(sight) => sight,
            Err(TryRecvError::Disconnected) => return Ok(()),
            // There is time now, and somebody may be reading along.
            Err(TryRecvError::Empty) => {
                ends.iter_mut().flatten().try_for_each(|pcap| pcap.file.flush())?;
                let Ok(sight) = from.recv() else { return Ok(()) };
                sight
            }
        };
        let [left, right] = &mut ends;
        let end = if sight.end == End::Left { left } else { right };
        if let Some(pcap) = end {
            pcap.add(&sight)?;
        }
    }
}

/// A file of packets.
struct Pcap {
    file: BufWriter<File>,
    /// What the wall clock shows when the kernel's monotonic clock is zero.
    epoch: Duration,
}

/// The number that a file with nanoseconds begins with.
const MAGIC: u32 = 0xa1b2_3c4d;
/// The format's version: 2.4.
const VERSION: [u16; 2] = [2, 4];
/// The longest packet that may be in the file.
const LONGEST: u32 = 65_535;
/// `LINKTYPE_RAW`: IPv4 or IPv6, as its first byte says.
const RAW: u32 = 101;

impl Pcap {
    fn begin(path: &Path) -> io::Result<Pcap> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&MAGIC.to_ne_bytes())?;
        VERSION.iter().try_for_each(|part| file.write_all(&part.to_ne_bytes()))?;
        // Between version and length: the time zone and the clock's accuracy, which everybody leaves at zero.
        [0, 0, LONGEST, RAW].iter().try_for_each(|word| file.write_all(&word.to_ne_bytes()))?;
        file.flush()?;
        Ok(Pcap { file, epoch: wall.saturating_sub(monotonic()) })
    }

    fn add(&mut self, sight: &Sight) -> io::Result<()> {
        let since = Duration::from_nanos(sight.at.since(Time::ZERO).as_nanos());
        let at = self.epoch + since;
        let words =
            [at.as_secs() as u32, at.subsec_nanos(), sight.bytes.len() as u32, sight.wire_bytes];
        words.iter().try_for_each(|word| self.file.write_all(&word.to_ne_bytes()))?;
        self.file.write_all(&sight.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_header_and_each_packet_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ue.pcap");
        let mut pcap = Pcap::begin(&path).unwrap();
        pcap.epoch = Duration::from_secs(1_000);
        let at = Time::ZERO + midspan_units::Span::from_millis(1_500);
        let bytes = vec![0x45; 20];
        pcap.add(&Sight { end: End::Left, at, wire_bytes: 1500, bytes }).unwrap();
        drop(pcap);
        let file = std::fs::read(path).unwrap();
        assert_eq!(file.len(), 24 + 16 + 20);
        let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(20)), (MAGIC, RAW));
        assert_eq!([word(24), word(28), word(32), word(36)], [1_001, 500_000_000, 20, 1_500]);
    }

    #[test]
    fn a_folder_has_a_file_for_each_end() {
        let folder = tempfile::tempdir().unwrap();
        let capture = Capture { path: folder.path().to_owned(), whole: false };
        let files: Vec<_> = capture.files().into_iter().flatten().flatten().collect();
        assert_eq!(files.len(), 4);
        let file = Capture { path: folder.path().join("one.pcap"), whole: false };
        assert_eq!(file.files()[0][0], Some(file.path.clone()));
        assert_eq!(file.files().into_iter().flatten().flatten().count(), 1);
    }
}
