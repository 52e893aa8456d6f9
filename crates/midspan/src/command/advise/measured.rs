//! Reads flow logs and captures.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Result;
use midspan_advise::Known;
use midspan_advise::capture::{Capture, LinkType};
use midspan_advise::flow_log::FlowLog;
use midspan_units::{Span, Time};
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use super::Arguments;
use crate::command::BadInput;

/// What logs or a capture say of the path, if there are any.
pub(super) fn read(arguments: &Arguments) -> Result<Known> {
    let mut log = FlowLog::default();
    for path in &arguments.flow_log {
        let unreadable =
            |error| BadInput::because(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(unreadable)?;
        for (number, line) in BufReader::new(file).lines().enumerate() {
            log.add(&line.map_err(unreadable)?).map_err(|error| {
                let at = format!("{}:{}", path.display(), number + 1);
                BadInput::because(format!("{at}: not a line of a flow log: {error}"))
            })?;
        }
    }
    match &arguments.pcap {
        Some(path) => capture(path),
        None => Ok(log.known()),
    }
}

/// Room for the largest packet that a capture may hold, and its block's header.
const ROOM: usize = 1 << 19;

/// An interface of a pcapng section: its type, and what its timestamps count from and in.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link: LinkType,
    offset_s: i64,
    ticks_per_s: u64,
}

fn capture(path: &Path) -> Result<Known> {
    let wrong = |what: String| BadInput::because(format!("{}: {what}", path.display()));
    let file = File::open(path)
        .map_err(|error| BadInput::because(format!("cannot read {}: {error}", path.display())))?;
    let no_capture = |_| wrong("not a capture: neither pcap nor pcapng".into());
    let mut reader = create_reader(ROOM, file).map_err(no_capture)?;
    let mut capture = Capture::default();
    let mut interfaces = Vec::new();
    loop {
        let read = match reader.next() {
            Ok((read, block)) => {
                add(&mut capture, &mut interfaces, &block).map_err(wrong)?;
                read
            }
            // What was being written when it was copied ends in the middle of a packet.
            Err(PcapError::Eof | PcapError::UnexpectedEof) => break,
            Err(PcapError::Incomplete(_)) => 0,
            Err(_) => return Err(wrong("not a capture: it is damaged".into())),
        };
        match read {
            0 if reader.reader_exhausted() => break,
            0 => reader
                .refill()
                .map_err(|_| wrong("not a capture: a packet is longer than any can be".into()))?,
            read => reader.consume(read),
        }
    }
    if capture.connections() == 0 {
        return Err(wrong(
            "no TCP connection is seen to open in it: begin the capture before the connections"
                .into(),
        ));
    }
    Ok(capture.known())
}

fn add(
    capture: &mut Capture,
    interfaces: &mut Vec<Interface>,
    block: &PcapBlockOwned<'_>,
) -> Result<(), String> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks_per_s =
                if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            interfaces.push(Interface { link: link(header.network.0)?, offset_s: 0, ticks_per_s });
        }
        PcapBlockOwned::Legacy(packet) => {
            let Some(interface) = interfaces.first() else { return Ok(()) };
            let ticks = u64::from(packet.ts_sec)
                .saturating_mul(interface.ticks_per_s)
                .saturating_add(u64::from(packet.ts_usec));
            capture.add(interface.time(ticks), interface.link, packet.data);
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            interfaces.push(Interface {
                link: link(description.linktype.0)?,
                offset_s: description.ts_offset(),
                ticks_per_s: description
                    .ts_resolution()
                    .filter(|ticks| *ticks > 0)
                    .ok_or("an interface's `if_tsresol` is out of range")?,
            });
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let Some(interface) = interfaces.get(packet.if_id as usize) else {
                return Err(format!("a packet of interface {}, which is not there", packet.if_id));
            };
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let kept = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            capture.add(interface.time(ticks), interface.link, kept);
        }
        // Simple packets have no time; the rest is no packets.
        PcapBlockOwned::NG(_) => {}
    }
    Ok(())
}

fn link(number: i32) -> Result<LinkType, String> {
    LinkType::of(number).ok_or_else(|| {
        format!("packets of link type {number} are not read; Ethernet, raw IP and Linux's cooked captures are")
    })
}

impl Interface {
    fn time(self, ticks: u64) -> Time {
        let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_s.max(1));
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset);
        Time::ZERO + Span::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}
