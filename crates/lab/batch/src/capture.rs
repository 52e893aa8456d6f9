//! Packets in files that Wireshark, tshark and tcpdump read: pcapng (draft-ietf-opsawg-pcapng), with nanoseconds, of IP
//! packets without a link layer. One file for each place where packets are seen, so that none is in a file twice.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario, ServiceHost};
pub use midspan_sim::Place;
use pcap_parser::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, Linktype, OptionCode, PcapNGOption,
    SectionHeaderBlock, ToVec,
};

use crate::run_folder::{run_folder, run_title};
use crate::sweep::PlannedRun;

/// What to keep of the packets of a sweep's runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captures {
    /// Where to: each run has a folder in it, with a file for each place.
    pub folder: PathBuf,
    /// Whether packets are kept whole, and not their headers alone. Simulated ones have nothing else.
    pub whole: bool,
}

/// What a file of packets is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureFile {
    /// Where it is.
    pub path: PathBuf,
    /// The interface that packets were seen at.
    pub interface: String,
    /// What they are, for people.
    pub comment: String,
}

impl Captures {
    /// The file of a place in a run.
    pub fn file(&self, scenario: &Scenario, run: &PlannedRun<'_>, place: Place) -> CaptureFile {
        let interface = place.name().to_owned();
        let leg = leg(&run.cell.spec, run.variant, place);
        let leg = leg.map_or(String::new(), |leg| format!(", {leg} leg"));
        let comment = format!("{}{leg} at {interface}", run_title(scenario, run));
        let path = run_folder(&self.folder, scenario, run).join(format!("{interface}.pcapng"));
        CaptureFile { path, interface, comment }
    }
}

/// The leg whose packets are seen at a place; none of cells, where users' connections differ.
fn leg(spec: &CellSpec, variant: Variant, place: Place) -> Option<&'static str> {
    if spec.cells.is_some() {
        return None;
    }
    if variant == Variant::None || spec.service.at == ServiceHost::Mec {
        return Some("end-to-end");
    }
    Some(match place {
        Place::Ue | Place::MecAccess => "client",
        _ => "server",
    })
}

/// A file that packets are written to.
#[derive(Debug)]
pub struct CaptureWriter(BufWriter<File>);

/// The longest packet that may be in the file.
const SNAPLEN: u32 = 65_535;
/// Times are in units of ten to the power of minus this of a second.
const NANOSECONDS: u8 = 9;

impl CaptureWriter {
    /// Begins a file, in a folder that is made if it is missing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(file: &CaptureFile) -> io::Result<CaptureWriter> {
        let CaptureFile { path, interface, comment } = file;
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            fs::create_dir_all(folder)?;
        }
        let mut writer = CaptureWriter(BufWriter::new(File::create(path)?));
        let program = concat!("midspan ", env!("CARGO_PKG_VERSION"));
        // Types, lengths and what is at its default are filled in when they are written.
        writer.write(&mut SectionHeaderBlock {
            block_type: 0,
            block_len1: 0,
            bom: 0,
            major_version: 0,
            minor_version: 0,
            section_len: -1,
            options: vec![
                text(OptionCode::Comment, comment),
                text(OptionCode::ShbUserAppl, program),
            ],
            block_len2: 0,
        })?;
        writer.write(&mut InterfaceDescriptionBlock {
            block_type: 0,
            block_len1: 0,
            linktype: Linktype::RAW,
            reserved: 0,
            snaplen: SNAPLEN,
            options: vec![
                text(OptionCode::IfName, interface),
                text(OptionCode::IfDescription, comment),
            ],
            block_len2: 0,
            if_tsresol: NANOSECONDS,
            if_tsoffset: 0,
        })?;
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a packet of so many bytes, seen so long after 1970 began (UTC), of which `kept` is known.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, at: Duration, wire_bytes: u32, kept: &[u8]) -> io::Result<()> {
        // Enough for 584 years.
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.write(&mut EnhancedPacketBlock {
            block_type: 0,
            block_len1: 0,
            if_id: 0,
            ts_high: (at >> 32) as u32,
            ts_low: at as u32,
            caplen: kept.len() as u32,
            origlen: wire_bytes,
            data: kept,
            options: Vec::new(),
            block_len2: 0,
        })
    }

    /// Hands on what is written so far to who reads along.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn write(&mut self, block: &mut impl ToVec) -> io::Result<()> {
        self.0.write_all(&block.to_vec().map_err(io::Error::other)?)
    }
}

fn text(code: OptionCode, text: &str) -> PcapNGOption<'_> {
    // The option's length is 16 bits.
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    PcapNGOption { code, len, value: Cow::Borrowed(&text.as_bytes()[..usize::from(len)]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_parser::{Block, PcapBlockOwned, PcapNGSlice};

    const FILE: &str = r#"
        name = "three-labels"
        title = "Labels that look alike once they are plain"
        seed = 1
        repetitions = 1
        variants = ["none", "midspan"]
        [path.access]
        up = [{ rate = { rate = "$rate" } }]
        [path.wide]
        up = [{ delay = "5 ms" }]
        [workload]
        kind = "bulk"
        direction = "upload"
        time = "1 s"
        [sweep]
        rate = ["1 Mbit/s", "1Mbit/s", "2 Mbit/s"]
    "#;

    #[test]
    fn each_run_has_a_folder_of_its_own() {
        let scenario = Scenario::parse(FILE, "test.toml").unwrap();
        let captures = Captures { folder: "kept".into(), whole: false };
        let file = |cell: usize, variant, place| {
            let run = PlannedRun { cell: &scenario.cells()[cell], variant, repetition: 0 };
            captures.file(&scenario, &run, place)
        };
        let paths = [0, 1, 2].map(|cell| file(cell, Variant::Midspan, Place::MecWide).path);
        let wanted = ["rate=1Mbit_s", "rate=1Mbit_s-2", "rate=2Mbit_s"]
            .map(|cell| Path::new("kept").join(cell).join("midspan-1/mec-wide.pcapng"));
        assert_eq!(paths, wanted);
        let comment = |variant, place| file(0, variant, place).comment;
        assert_eq!(
            comment(Variant::Midspan, Place::MecWide),
            "scenario three-labels, rate 1 Mbit/s, variant midspan, repetition 1, server leg at mec-wide"
        );
        assert!(comment(Variant::Midspan, Place::MecAccess).ends_with("client leg at mec-access"));
        assert!(comment(Variant::None, Place::Server).ends_with("end-to-end leg at server"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/ue.pcapng");
        let words = "what it is, 1\u{a0}%".to_owned();
        let file = CaptureFile { path, interface: "ue".into(), comment: words.clone() };
        let mut writer = CaptureWriter::create(&file).unwrap();
        let packets = [(1, 1500, &b"abcde"[..]), (u64::from(u32::MAX) + 5, 4, b"abcd")];
        for (at, wire_bytes, kept) in packets {
            writer.add(Duration::from_nanos(at), wire_bytes, kept).unwrap();
        }
        drop(writer);
        let bytes = fs::read(&file.path).unwrap();
        let mut seen = Vec::new();
        for block in PcapNGSlice::from_slice(&bytes).unwrap() {
            match block.unwrap() {
                PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                    assert_eq!(section.options[0].as_str(), Ok(&*words));
                }
                PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                    assert_eq!(interface.if_name(), Some(Ok("ue")));
                    assert_eq!((interface.linktype, interface.if_tsresol), (Linktype::RAW, 9));
                }
                PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                    let at = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                    let kept = packet.data[..packet.caplen as usize].to_vec();
                    seen.push((at, packet.origlen, kept));
                }
                _ => panic!("a block of another kind"),
            }
        }
        assert_eq!(seen, packets.map(|(at, wire_bytes, kept)| (at, wire_bytes, kept.to_vec())));
    }
}
