//! Reads what was captured.

use std::fs;
use std::path::Path;

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapNGSlice};

/// A pcapng file of IP packets at one interface.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Capture {
    pub(crate) comment: String,
    pub(crate) interface: String,
    pub(crate) packets: Vec<Seen>,
}

/// A packet in it.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    /// Nanoseconds since 1970.
    pub(crate) at: u64,
    /// How long it was.
    pub(crate) wire_bytes: u32,
    /// What is kept of it.
    pub(crate) kept: Vec<u8>,
}

impl Capture {
    pub(crate) fn read(path: &Path) -> Capture {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut capture = Capture::default();
        for block in PcapNGSlice::from_slice(&bytes).unwrap() {
            match block {
                Ok(PcapBlockOwned::NG(block)) => capture.add(&block),
                _ => panic!("{} holds something else than pcapng", path.display()),
            }
        }
        capture
    }

    fn add(&mut self, block: &Block<'_>) {
        match block {
            Block::SectionHeader(section) => {
                self.comment = section.options[0].as_str().unwrap().to_owned();
            }
            Block::InterfaceDescription(interface) => {
                self.interface = interface.if_name().unwrap().unwrap().to_owned();
                assert_eq!((interface.linktype, interface.if_tsresol), (Linktype::RAW, 9));
            }
            Block::EnhancedPacket(packet) => self.packets.push(Seen {
                at: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                wire_bytes: packet.origlen,
                kept: packet.data[..packet.caplen as usize].to_vec(),
            }),
            other => panic!("{other:?}"),
        }
    }
}
