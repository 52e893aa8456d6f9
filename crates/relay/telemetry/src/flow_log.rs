//! The flow log's file, and the thread that writes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use midspan_config::FlowLogConfig;
use midspan_observe::Entry;
use midspan_threads::Privileges;

use crate::error::ObserveError;

/// Entries that wait to be written, at most.
const QUEUE: usize = 4096;
/// How long entries are collected, so that the workers need not wake the writer for each.
const COLLECT: Duration = Duration::from_millis(50);

/// Where entries are handed over to be written. Nobody waits for it.
#[derive(Debug)]
pub struct FlowLog {
    queue: SyncSender<Message>,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    written: AtomicU64,
    lost: AtomicU64,
    reopen: AtomicBool,
}

#[expect(clippy::large_enum_variant, reason = "what is rare may be large")]
enum Message {
    Entry(Entry),
    /// Look what else is to be done.
    Wake,
    End,
}

impl FlowLog {
    /// Opens the file, and begins to write to it in a thread that keeps these privileges.
    pub(crate) fn open(
        config: &FlowLogConfig,
        privileges: Privileges,
    ) -> Result<FlowLog, ObserveError> {
        let failed = |error| ObserveError::FlowLog { path: config.path.clone(), error };
        let (queue, messages) = sync_channel(QUEUE);
        let state = Arc::new(State::default());
        let writer = Writer {
            output: Output::open(config).map_err(failed)?,
            state: state.clone(),
            lines: Vec::new(),
            held: 0,
        };
        let thread = thread::Builder::new()
            .name("relay-flow-log".into())
            .spawn(move || {
                privileges.lower();
                writer.run(&messages);
            })
            .map_err(failed)?;
        Ok(FlowLog { queue, state, thread: Mutex::new(Some(thread)) })
    }

    /// Hands an entry over, or drops and counts it if too many wait.
    pub(crate) fn add(&self, entry: Entry) {
        if self.queue.try_send(Message::Entry(entry)).is_err() {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has the file opened anew by its name, after what was added before.
    pub fn reopen(&self) {
        self.state.reopen.store(true, Ordering::Release);
        // A full queue wakes the writer as well.
        let _ = self.queue.try_send(Message::Wake);
    }

    /// Entries written so far.
    pub(crate) fn written(&self) -> u64 {
        self.state.written.load(Ordering::Relaxed)
    }

    /// Entries dropped so far: too many waited, or the file could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Writes what was added so far, and ends.
    pub fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && self.queue.send(Message::End).is_ok()
        {
            let _ = thread.join();
        }
    }
}

struct Writer {
    output: Output,
    state: Arc<State>,
    /// What is to be written next, and how many entries that is.
    lines: Vec<u8>,
    held: u64,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let mut goes_on = self.take(first);
            while goes_on && let Ok(next) = messages.try_recv() {
                goes_on = self.take(next);
            }
            self.write();
            if self.state.reopen.swap(false, Ordering::Acquire)
                && let Err(error) = self.output.reopen()
            {
                tracing::error!(path = %self.output.path.display(), %error, "the flow log goes on in the old file");
            }
            if !goes_on {
                return;
            }
            thread::sleep(COLLECT);
        }
    }

    /// False if that was the last.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Entry(entry) => {
                self.lines.extend_from_slice(entry.to_json().as_bytes());
                self.lines.push(b'\n');
                self.held += 1;
                if self.lines.len() >= 1 << 18 {
                    self.write();
                }
            }
            Message::Wake => {}
            Message::End => return false,
        }
        true
    }

    fn write(&mut self) {
        if self.held == 0 {
            return;
        }
        let count = match self.output.write(&self.lines) {
            Ok(()) => &self.state.written,
            Err(error) => {
                let said = "the flow log cannot be written; what is lost is counted";
                self.output.complain(&error, said);
                &self.state.lost
            }
        };
        count.fetch_add(self.held, Ordering::Relaxed);
        self.lines.clear();
        self.held = 0;
    }
}

/// The file, with its size and its predecessors.
struct Output {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    keep: u32,
    /// A write failed halfway: what comes next begins a line of its own.
    torn: bool,
    complained: bool,
}

impl Output {
    fn open(config: &FlowLogConfig) -> io::Result<Output> {
        let file = open(&config.path)?;
        Ok(Output {
            size: file.metadata()?.len(),
            file,
            path: config.path.clone(),
            max_size: config.max_size.map_or(u64::MAX, |size| size.as_bytes()),
            keep: config.keep,
            torn: false,
            complained: false,
        })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let renewed = self.renew(lines.len() as u64);
        if let Err(error) = &renewed {
            // What is written to a file without a name is lost.
            if self.file.metadata()?.nlink() == 0 {
                return renewed;
            }
            self.complain(error, "the flow log goes on in the old file");
        }
        if self.torn {
            self.file.write_all(b"\n")?;
        }
        self.torn = true;
        self.file.write_all(lines)?;
        self.torn = false;
        self.complained &= renewed.is_err();
        self.size += lines.len() as u64;
        Ok(())
    }

    /// Has the file be the one that its name stands for, with room for so much.
    fn renew(&mut self, length: u64) -> io::Result<()> {
        if !self.is_named()? {
            return self.reopen();
        }
        if self.size > 0 && self.size + length > self.max_size { self.rotate() } else { Ok(()) }
    }

    /// Whether nobody has renamed, removed or replaced the file.
    fn is_named(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Once, until it works again.
    fn complain(&mut self, error: &io::Error, said: &str) {
        if !std::mem::replace(&mut self.complained, true) {
            tracing::error!(path = %self.path.display(), %error, "{said}");
        }
    }

    /// The new file is there before any other is renamed: where it cannot be had, all stay.
    fn rotate(&mut self) -> io::Result<()> {
        let fresh = suffixed(&self.path, "new");
        let file = open(&fresh)?;
        for number in (1..self.keep).rev() {
            match fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, numbered(&self.path, 1))?;
        fs::rename(fresh, &self.path)?;
        self.take(file)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.take(open(&self.path)?)
    }

    fn take(&mut self, file: File) -> io::Result<()> {
        self.size = file.metadata()?.len();
        self.file = file;
        self.torn = false;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    suffixed(path, &number.to_string())
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use midspan_observe::{ClientName, Direction, FlowId, PathRecord};
    use midspan_units::ByteSize;

    use super::*;

    fn entry(number: u64) -> Entry {
        Entry::Path(PathRecord {
            id: FlowId(number),
            start: SystemTime::UNIX_EPOCH,
            end: SystemTime::UNIX_EPOCH,
            client: ClientName::Pseudonym(number),
            server: "192.0.2.1:80".parse().unwrap(),
            verdict: "split".into(),
            slot: None,
            holdout: None,
            because: None,
            ended: "fin".into(),
            up: Direction::default(),
            down: Direction::default(),
        })
    }

    fn config(path: PathBuf) -> FlowLogConfig {
        FlowLogConfig { path, max_size: None, keep: 2, starts: false }
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn what_was_added_is_written_at_the_end_at_the_latest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows");
        let log = FlowLog::open(&config(path.clone()), Privileges::All).unwrap();
        (0..100).for_each(|number| log.add(entry(number)));
        log.close();
        assert_eq!(lines(&path).len(), 100);
        assert_eq!((log.written(), log.lost()), (100, 0));
        // Appended to, never begun anew.
        let log = FlowLog::open(&config(path.clone()), Privileges::All).unwrap();
        log.add(entry(100));
        log.close();
        assert_eq!(lines(&path)[100]["client"], "sub-0000000000000064");
    }

    #[test]
    fn a_renamed_file_gets_what_was_added_before_and_a_new_one_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("flows"), directory.path().join("flows.old"));
        let log = FlowLog::open(&config(path.clone()), Privileges::All).unwrap();
        log.add(entry(1));
        while log.written() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        fs::rename(&path, &old).unwrap();
        log.reopen();
        while !path.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        log.add(entry(2));
        log.close();
        assert_eq!((lines(&old).len(), lines(&path).len()), (1, 1));
    }

    #[test]
    fn a_file_of_its_greatest_size_is_renamed_and_so_many_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows");
        let (mut output, write) = limited(&path);
        (0..9).for_each(|number| write(&mut output, number).unwrap());
        let kept = [1, 2].map(|number| clients(&numbered(&path, number)));
        assert_eq!((clients(&path), kept), (vec![8], [vec![6, 7], vec![4, 5]]));
        assert!(!numbered(&path, 3).exists());
    }

    /// Writes an entry whose pseudonym is this number, to files of two entries each.
    fn limited(path: &Path) -> (Output, impl Fn(&mut Output, u64) -> io::Result<()>) {
        let size = entry(1).to_json().len() as u64 + 1;
        let max_size = Some(ByteSize::from_bytes(2 * size));
        let output = Output::open(&FlowLogConfig { max_size, ..config(path.to_owned()) }).unwrap();
        let write = |output: &mut Output, number| {
            output.write(format!("{}\n", entry(number).to_json()).as_bytes())
        };
        (output, write)
    }

    fn clients(path: &Path) -> Vec<u64> {
        let number = |line: &serde_json::Value| {
            let name = line["client"].as_str().unwrap().trim_start_matches("sub-").to_owned();
            u64::from_str_radix(&name, 16).unwrap()
        };
        lines(path).iter().map(number).collect()
    }

    #[test]
    fn a_file_that_somebody_took_away_is_opened_anew_and_its_predecessors_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (path, taken) = (directory.path().join("flows"), directory.path().join("taken"));
        let (mut output, write) = limited(&path);
        (0..6).for_each(|number| write(&mut output, number).unwrap());
        // Renamed when full, when not, and removed.
        fs::rename(&path, &taken).unwrap();
        write(&mut output, 6).unwrap();
        assert_eq!((clients(&taken), clients(&path)), (vec![4, 5], vec![6]));
        fs::rename(&path, &taken).unwrap();
        write(&mut output, 7).unwrap();
        assert_eq!((clients(&taken), clients(&path)), (vec![6], vec![7]));
        fs::remove_file(&path).unwrap();
        (8..10).for_each(|number| write(&mut output, number).unwrap());
        assert_eq!(clients(&path), [8, 9]);
        // By another of the same name.
        fs::rename(&path, &taken).unwrap();
        fs::write(&path, "").unwrap();
        write(&mut output, 10).unwrap();
        assert_eq!((clients(&taken), clients(&path)), (vec![8, 9], vec![10]));
        let kept = [1, 2].map(|number| clients(&numbered(&path, number)));
        assert_eq!(kept, [[2, 3], [0, 1]]);
    }

    #[test]
    fn without_a_new_file_the_old_one_goes_on_and_its_predecessors_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows");
        let (mut output, write) = limited(&path);
        (0..6).for_each(|number| write(&mut output, number).unwrap());
        // Nothing can be opened where a directory is.
        fs::create_dir(suffixed(&path, "new")).unwrap();
        (6..8).for_each(|number| write(&mut output, number).unwrap());
        let kept = [1, 2].map(|number| clients(&numbered(&path, number)));
        assert_eq!((clients(&path), kept), (vec![4, 5, 6, 7], [vec![2, 3], vec![0, 1]]));
        fs::remove_dir(suffixed(&path, "new")).unwrap();
        write(&mut output, 8).unwrap();
        let kept = [1, 2].map(|number| clients(&numbered(&path, number)));
        assert_eq!((clients(&path), kept), (vec![8], [vec![4, 5, 6, 7], vec![2, 3]]));
        assert!(!suffixed(&path, "new").exists());
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_so_is_what_finds_no_room() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let log = FlowLog::open(&config(full.to_owned()), Privileges::All).unwrap();
        (0..10).for_each(|number| log.add(entry(number)));
        log.close();
        assert_eq!((log.written(), log.lost()), (0, 10));
        // Nobody takes from the queue any more.
        log.add(entry(10));
        assert_eq!(log.lost(), 11);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let path = PathBuf::from("/nonexistent/flows");
        let said = FlowLog::open(&config(path), Privileges::All).unwrap_err().to_string();
        assert!(said.contains("/nonexistent/flows"), "{said}");
    }
}
