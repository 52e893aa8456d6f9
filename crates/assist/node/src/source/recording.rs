//! Recordings of a base station's reports, which are outside the project.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// What `srsenb-metrics-<name>` has; None, and a word about it, where it is not there.
pub(super) fn recording(name: &str) -> Option<Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/samples"));
    let path = folder.join(format!("srsenb-metrics-{name}.jsonl.gz"));
    let Ok(file) = File::open(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    };
    let mut text = Vec::new();
    MultiGzDecoder::new(file).read_to_end(&mut text).unwrap();
    Some(text)
}
