use core::net::IpAddr;

use midspan_units::Span;
use thiserror::Error;

use crate::BasisKind;
use crate::feedback::{address, address_bytes, field};

/// The shortest period of feedback that can be asked for.
pub const SHORTEST_PERIOD: Span = Span::from_millis(10);
/// The longest.
pub const LONGEST_PERIOD: Span = Span::from_millis(500);

/// Length of every message: a type and 23 bytes of fields, zero where a message has none.
pub const FRAME_BYTES: usize = 24;

/// What a sender, or a UE, says to the daemon over the stream that it opens.
///
/// ```text
/// 0  type      4  registration      8  UE address (16 bytes)
/// 1  reserved, zero                 2  period in ms, number of flows or version
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToDaemon {
    /// 1, the first message: which version is spoken.
    Hello {
        /// 1.
        version: u16,
    },
    /// 2: send feedback for `ue` from now on. A number that is in use gets the new UE and period.
    Register {
        /// Chosen by the sender; comes back in each datagram.
        registration: u32,
        /// Whose link.
        ue: IpAddr,
        /// How often; [`SHORTEST_PERIOD`] to [`LONGEST_PERIOD`], in whole milliseconds.
        period: Span,
    },
    /// 3: no longer.
    Withdraw {
        /// Which.
        registration: u32,
    },
    /// 4: this many flows share the link to `ue` (the paper's direct way); said by the UE, or by
    /// whoever may speak for it. Zero takes it back.
    Flows {
        /// Whose link.
        ue: IpAddr,
        /// How many.
        flows: u16,
    },
}

/// What the daemon answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToSender {
    /// 129, the answer to [`ToDaemon::Hello`].
    Welcome {
        /// 1.
        version: u16,
        /// Of which windows all feedback of this daemon is.
        basis: BasisKind,
    },
    /// 130: feedback comes whenever the UE is known here.
    Registered {
        /// Which.
        registration: u32,
        /// How often: at least as long as was asked for.
        period: Span,
    },
    /// 131: no feedback comes.
    Refused {
        /// Which; 0 for a report of flows.
        registration: u32,
        /// Why.
        reason: Reason,
    },
}

/// Why the daemon refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The policy does not let this peer ask about, or speak for, this UE.
    NotAllowed,
    /// As many registrations as the daemon or the peer may have.
    TooMany,
}

/// Bytes on the stream that are no message. The connection is closed: after one, nothing that
/// follows can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// A type that this side does not take.
    #[error("type {0} is no message for this side")]
    Type(u8),
    /// A version that this program does not speak.
    #[error("version {0}, wanted {VERSION}")]
    Version(u16),
    /// Not the address of a single host.
    #[error("not the address of a UE")]
    Address,
    /// A period out of range.
    #[error("a period of {0} ms, wanted 10 to 500")]
    Period(u16),
    /// A reason, or a basis, that does not exist.
    #[error("code {0}, which means nothing")]
    Code(u16),
    /// Something in a field that the message does not have.
    #[error("bytes in a reserved field")]
    Reserved,
}

const VERSION: u16 = 1;

/// One side's messages: how they are written and read.
trait Frame: Sized {
    fn parts(&self) -> Parts;
    fn from_parts(parts: Parts) -> Result<Self, MessageError>;
}

/// The fields of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Parts {
    kind: u8,
    number: u16,
    registration: u32,
    ue: [u8; 16],
}

impl Parts {
    fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[0] = self.kind;
        bytes[2..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.registration.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.ue);
        bytes
    }

    fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Parts, MessageError> {
        if bytes[1] != 0 {
            return Err(MessageError::Reserved);
        }
        Ok(Parts {
            kind: bytes[0],
            number: u16::from_be_bytes(field(bytes, 2)),
            registration: u32::from_be_bytes(field(bytes, 4)),
            ue: field(bytes, 8),
        })
    }
}

impl ToDaemon {
    /// The version that this program speaks.
    pub const HELLO: ToDaemon = ToDaemon::Hello { version: VERSION };

    /// Writes the message.
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        self.parts().encode()
    }

    /// Reads a message. What is accepted encodes to the same bytes again.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, MessageError> {
        whole(bytes)
    }
}

impl Frame for ToDaemon {
    fn parts(&self) -> Parts {
        let none = Parts::default();
        match *self {
            ToDaemon::Hello { version } => Parts { kind: 1, number: version, ..none },
            ToDaemon::Register { registration, ue, period } => {
                Parts { kind: 2, number: to_millis(period), registration, ue: address_bytes(ue) }
            }
            ToDaemon::Withdraw { registration } => Parts { kind: 3, registration, ..none },
            ToDaemon::Flows { ue, flows } => {
                Parts { kind: 4, number: flows, ue: address_bytes(ue), ..none }
            }
        }
    }

    fn from_parts(parts: Parts) -> Result<Self, MessageError> {
        Ok(match parts.kind {
            1 => ToDaemon::Hello { version: known_version(parts.number)? },
            2 => ToDaemon::Register {
                registration: parts.registration,
                ue: address(parts.ue).ok_or(MessageError::Address)?,
                period: from_millis(parts.number)?,
            },
            3 => ToDaemon::Withdraw { registration: parts.registration },
            4 => ToDaemon::Flows {
                ue: address(parts.ue).ok_or(MessageError::Address)?,
                flows: parts.number,
            },
            kind => return Err(MessageError::Type(kind)),
        })
    }
}

impl ToSender {
    /// The answer to a hello.
    pub fn welcome(basis: BasisKind) -> ToSender {
        ToSender::Welcome { version: VERSION, basis }
    }

    /// Writes the message.
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        self.parts().encode()
    }

    /// Reads a message. What is accepted encodes to the same bytes again.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, MessageError> {
        whole(bytes)
    }
}

impl Frame for ToSender {
    fn parts(&self) -> Parts {
        let none = Parts::default();
        match *self {
            ToSender::Welcome { version, basis } => {
                let oracle = u32::from(basis == BasisKind::Oracle);
                Parts { kind: 129, number: version, registration: oracle, ..none }
            }
            ToSender::Registered { registration, period } => {
                Parts { kind: 130, number: to_millis(period), registration, ..none }
            }
            ToSender::Refused { registration, reason } => {
                let code = match reason {
                    Reason::NotAllowed => 1,
                    Reason::TooMany => 2,
                };
                Parts { kind: 131, number: code, registration, ..none }
            }
        }
    }

    fn from_parts(parts: Parts) -> Result<Self, MessageError> {
        Ok(match parts.kind {
            129 => ToSender::Welcome {
                version: known_version(parts.number)?,
                basis: match parts.registration {
                    0 => BasisKind::Causal,
                    1 => BasisKind::Oracle,
                    _ => return Err(MessageError::Reserved),
                },
            },
            130 => ToSender::Registered {
                registration: parts.registration,
                period: from_millis(parts.number)?,
            },
            131 => ToSender::Refused {
                registration: parts.registration,
                reason: match parts.number {
                    1 => Reason::NotAllowed,
                    2 => Reason::TooMany,
                    code => return Err(MessageError::Code(code)),
                },
            },
            kind => return Err(MessageError::Type(kind)),
        })
    }
}

/// A message whose every byte means something: one that would be written differently had something
/// in a field that it does not have.
fn whole<M: Frame>(bytes: &[u8; FRAME_BYTES]) -> Result<M, MessageError> {
    let parts = Parts::parse(bytes)?;
    let message = M::from_parts(parts)?;
    if message.parts() == parts { Ok(message) } else { Err(MessageError::Reserved) }
}

fn known_version(version: u16) -> Result<u16, MessageError> {
    if version == VERSION { Ok(version) } else { Err(MessageError::Version(version)) }
}

fn from_millis(millis: u16) -> Result<Span, MessageError> {
    let period = Span::from_millis(millis.into());
    let in_range = (SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&period);
    if in_range { Ok(period) } else { Err(MessageError::Period(millis)) }
}

fn to_millis(period: Span) -> u16 {
    // LONGEST_PERIOD fits.
    (period.clamp(SHORTEST_PERIOD, LONGEST_PERIOD).as_nanos() / 1_000_000) as u16
}

/// Cuts a stream, as it comes in, into messages.
#[derive(Debug, Default)]
pub struct Frames {
    partial: [u8; FRAME_BYTES],
    held: usize,
}

impl Frames {
    /// Hands each message that `bytes` completes to `take`, and keeps the rest for the next call.
    pub fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8; FRAME_BYTES])) {
        while !bytes.is_empty() {
            let wanted = (FRAME_BYTES - self.held).min(bytes.len());
            let (now, later) = bytes.split_at(wanted);
            self.partial[self.held..self.held + wanted].copy_from_slice(now);
            self.held += wanted;
            bytes = later;
            if self.held == FRAME_BYTES {
                self.held = 0;
                take(&self.partial);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to_daemon() -> Vec<ToDaemon> {
        let ue = "2001:db8::7".parse().unwrap();
        vec![
            ToDaemon::HELLO,
            ToDaemon::Register { registration: 9, ue, period: Span::from_millis(50) },
            ToDaemon::Withdraw { registration: 9 },
            ToDaemon::Flows { ue: "10.45.0.2".parse().unwrap(), flows: 3 },
        ]
    }

    fn to_sender() -> Vec<ToSender> {
        vec![
            ToSender::welcome(BasisKind::Oracle),
            ToSender::Registered { registration: 9, period: Span::from_millis(500) },
            ToSender::Refused { registration: 9, reason: Reason::NotAllowed },
            ToSender::Refused { registration: 0, reason: Reason::TooMany },
        ]
    }

    #[test]
    fn messages_round_trip() {
        for message in to_daemon() {
            assert_eq!(ToDaemon::parse(&message.encode()), Ok(message));
            assert!(ToSender::parse(&message.encode()).is_err());
        }
        for message in to_sender() {
            assert_eq!(ToSender::parse(&message.encode()), Ok(message));
            assert!(ToDaemon::parse(&message.encode()).is_err());
        }
    }

    #[test]
    fn what_a_message_does_not_have_must_be_zero() {
        let mut hello = ToDaemon::HELLO.encode();
        hello[20] = 1;
        assert_eq!(ToDaemon::parse(&hello), Err(MessageError::Reserved));
        let mut hello = ToDaemon::HELLO.encode();
        hello[1] = 1;
        assert_eq!(ToDaemon::parse(&hello), Err(MessageError::Reserved));
        hello = ToDaemon::Hello { version: 2 }.encode();
        assert_eq!(ToDaemon::parse(&hello), Err(MessageError::Version(2)));
    }

    #[test]
    fn periods_are_between_10_and_500_ms() {
        let register = to_daemon()[1].encode();
        for (millis, right) in [(0u16, false), (9, false), (10, true), (500, true), (501, false)] {
            let mut bytes = register;
            bytes[2..4].copy_from_slice(&millis.to_be_bytes());
            assert_eq!(ToDaemon::parse(&bytes).is_ok(), right, "{millis}");
        }
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_refused(bytes in any::<[u8; FRAME_BYTES]>(), kind in 0u8..6) {
            for kind in [bytes[0], kind, kind + 128] {
                let mut bytes = bytes;
                bytes[0] = kind;
                if let Ok(message) = ToDaemon::parse(&bytes) {
                    prop_assert_eq!(message.encode(), bytes);
                }
                if let Ok(message) = ToSender::parse(&bytes) {
                    prop_assert_eq!(message.encode(), bytes);
                }
            }
        }

        #[test]
        fn a_stream_may_be_cut_anywhere(cuts in prop::collection::vec(1usize..60, 1..20)) {
            let all: Vec<u8> = to_daemon().iter().flat_map(ToDaemon::encode).collect();
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            let mut rest = &all[..];
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                frames.feed(now, |frame| read.push(ToDaemon::parse(frame).unwrap()));
                rest = later;
            }
            prop_assert_eq!(read, to_daemon());
        }
    }
}
