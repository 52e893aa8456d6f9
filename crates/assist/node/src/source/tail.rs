//! A file that grows, or a FIFO.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use midspan_assist_proto::Causal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::{End, Format, Records, SourceChannel, Splitter};

/// How often a file is looked at. Readings gain this much age at most.
const LOOK: Duration = Duration::from_millis(5);

/// Follows the file from its present end, and past truncation and replacement.
pub(super) fn follow(
    channel: &mut SourceChannel<Causal>,
    path: &Path,
    records: Records,
    format: &mut dyn Format,
) -> End {
    // What was there before is of the past. (A heading of CSV is too: it is read.)
    let mut opened = match Opened::open(path, records == Records::Objects) {
        Ok(opened) => opened,
        Err(why) => return End::Down(why),
    };
    let mut splitter = Splitter::new(records);
    if records == Records::Lines
        && let Err(end) = opened.skip_to_end(channel, format)
    {
        return end;
    }
    let mut buffer = vec![0; 1 << 16];
    loop {
        if let Err(end) = channel.check() {
            return end;
        }
        match opened.file.read(&mut buffer) {
            Ok(0) => match opened.at_end(path) {
                AtEnd::Wait => thread::sleep(LOOK),
                AtEnd::Truncated => splitter = Splitter::new(records),
                AtEnd::Replaced => match Opened::open(path, false) {
                    Ok(again) => (opened, splitter) = (again, Splitter::new(records)),
                    Err(why) => return End::Down(why),
                },
            },
            Ok(count) => {
                let mut end = None;
                let fed = splitter.feed(&buffer[..count], |record| {
                    if end.is_none() {
                        end = channel.record(record, format).err();
                    }
                });
                let fed = fed.map_err(|error| channel.unreadable(error.to_string()));
                if let Some(end) = end.or(fed.err().and_then(Result::err)) {
                    return end;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => opened.wait(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return End::Down(format!("{}: {error}", path.display())),
        }
    }
}

struct Opened {
    file: File,
    inode: u64,
    is_fifo: bool,
}

enum AtEnd {
    Wait,
    Truncated,
    Replaced,
}

impl Opened {
    fn open(path: &Path, at_end: bool) -> Result<Opened, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let is_fifo = path.metadata().map_err(failed)?.file_type().is_fifo();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        // A FIFO with a writer of our own never ends, whoever else comes and goes.
        options.write(is_fifo);
        let mut file = options.open(path).map_err(failed)?;
        if at_end && !is_fifo {
            file.seek(SeekFrom::End(0)).map_err(failed)?;
        }
        let inode = file.metadata().map_err(failed)?.ino();
        Ok(Opened { file, inode, is_fifo })
    }

    /// Reads the first line, which may be a heading, and passes over the rest of what is there.
    fn skip_to_end(
        &mut self,
        channel: &mut SourceChannel<Causal>,
        format: &mut dyn Format,
    ) -> Result<(), End> {
        if self.is_fifo {
            return Ok(());
        }
        let mut first = vec![0; 1 << 16];
        let count = self.file.read(&mut first).unwrap_or(0);
        let heading = first[..count].split(|byte| *byte == b'\n').next().unwrap_or_default();
        let whole = heading.len() < count;
        // Not a record of now if it is one.
        if whole
            && !heading.starts_with(b"{")
            && let Err(error) = format.read(heading)
        {
            channel.unreadable(error.to_string())?;
        }
        let to = if whole { SeekFrom::End(0) } else { SeekFrom::Start(0) };
        self.file.seek(to).map_err(|error| End::Down(error.to_string()))?;
        Ok(())
    }

    fn at_end(&mut self, path: &Path) -> AtEnd {
        if self.is_fifo {
            return AtEnd::Wait;
        }
        let position = self.file.stream_position().unwrap_or(0);
        if self.file.metadata().is_ok_and(|metadata| metadata.len() < position) {
            let _ = self.file.seek(SeekFrom::Start(0));
            return AtEnd::Truncated;
        }
        match path.metadata() {
            Ok(metadata) if metadata.ino() != self.inode => AtEnd::Replaced,
            // Gone for now: the writer may be about to make it anew.
            _ => AtEnd::Wait,
        }
    }

    /// Until there is something in the FIFO, or it is time to see whether anybody listens.
    fn wait(&self) {
        let second = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let _ = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&second));
    }
}
