//! What a shell keeps of packets.

use std::path::PathBuf;

use midspan_batch::capture::{CaptureFile, Place};

use crate::capture::Ends;

/// What to keep of which ends.
#[derive(Debug, Clone)]
pub struct Capture {
    /// A file for what the UE sends and receives, or a folder for a file of each end of both links.
    pub path: PathBuf,
    /// Whether packets are kept whole, and not their headers alone.
    pub whole: bool,
}

impl Capture {
    /// The files of access and wide link of a path that is called `title`.
    pub(crate) fn files(&self, title: &str) -> [Ends; 2] {
        let file = |place: Place, path: PathBuf| CaptureFile {
            path,
            interface: place.name().to_owned(),
            comment: format!("{title}, at {}", place.name()),
        };
        if !self.is_folder() {
            return [[Some(file(Place::Ue, self.path.clone())), None], [None, None]];
        }
        let within =
            |place: Place| Some(file(place, self.path.join(format!("{}.pcapng", place.name()))));
        let [ue, mec_access, mec_wide, server] = Place::ROW.map(within);
        [[ue, mec_access], [mec_wide, server]]
    }

    fn is_folder(&self) -> bool {
        self.path.is_dir() || self.path.as_os_str().as_encoded_bytes().ends_with(b"/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_file_for_each_end() {
        let folder = tempfile::tempdir().unwrap();
        let capture = Capture { path: folder.path().to_owned(), whole: false };
        let files: Vec<_> = capture.files("rtt 1 ms").into_iter().flatten().flatten().collect();
        let names: Vec<_> = files.iter().map(|file| file.path.file_name().unwrap()).collect();
        assert_eq!(names, ["ue.pcapng", "mec-access.pcapng", "mec-wide.pcapng", "server.pcapng"]);
        assert_eq!(files[1].comment, "rtt 1 ms, at mec-access");
        let file = Capture { path: folder.path().join("one.pcap"), whole: false };
        let files: Vec<_> = file.files("rtt 1 ms").into_iter().flatten().flatten().collect();
        assert_eq!((files.len(), &files[0].path), (1, &file.path));
    }
}
