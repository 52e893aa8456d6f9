use core::net::{IpAddr, Ipv6Addr};

use midspan_units::{Rate, Span};
use thiserror::Error;

use crate::BasisKind;
use crate::fairness::Coefficient;

/// The greatest bandwidth that fits: 1 Tbit/s, beyond any radio link.
pub const MOST_BANDWIDTH: Rate = Rate::from_bps(1_000_000_000_000);
/// The longest minRTT and age that fit: 10 s, beyond any use.
pub const MOST_SPAN: Span = Span::from_secs(10);

/// What one UE's link can carry and how long a round trip to it takes without queues, as of `age`
/// ago. One datagram (the `natcp` paper, section 2.2; its section 2.4 allows 64 bytes).
///
/// ```text
///  0  version, 1         1  flags                2  fairness coefficient, 1/256 flow, 0: unknown
///  4  registration       8  sequence (8 bytes)
/// 16  UE address (16 bytes; IPv4 as ::ffff:a.b.c.d)
/// 32  bandwidth, bit/s (8 bytes)
/// 40  minRTT, us        44  age, us
/// ```
///
/// All numbers are big-endian. Flags: 1 oracle, 2 held, 4 closed, 8 clipped; the rest are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedbackDatagram {
    /// Which registration of the receiver's this answers.
    pub registration: u32,
    /// Rises with each datagram of the registration.
    pub sequence: u64,
    /// The UE.
    pub ue: IpAddr,
    /// Bandwidth of the bottleneck towards the UE; 1 bit/s to [`MOST_BANDWIDTH`]. Never zero, which
    /// senders would take for "unpaced".
    pub bandwidth: Rate,
    /// Round trip without queues; 1 us to [`MOST_SPAN`], in whole microseconds.
    pub min_rtt: Span,
    /// Among how many flows the bandwidth is shared, if the network knows.
    pub fairness: Option<Coefficient>,
    /// How long ago, at sending, the measurement ended (causal) or its window began (oracle); at
    /// most [`MOST_SPAN`], in whole microseconds.
    pub age: Span,
    /// Of which window the measurement is.
    pub basis: BasisKind,
    /// How well the bandwidth is known.
    pub quality: Quality,
}

/// How well a bandwidth is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Quality {
    /// The link was not filled, so this is from earlier windows, or a bound.
    pub held: bool,
    /// The link carried nothing in the window though something waited: the bandwidth is a floor.
    pub closed: bool,
    /// What was reported was implausible and has been clipped.
    pub clipped: bool,
}

const VERSION: u8 = 1;
const ORACLE: u8 = 1;
const HELD: u8 = 2;
const CLOSED: u8 = 4;
const CLIPPED: u8 = 8;

impl FeedbackDatagram {
    /// Length of the datagram's payload.
    pub const BYTES: usize = 48;

    /// Writes the datagram. Values outside their ranges are moved to the nearest end.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        bytes[0] = VERSION;
        bytes[1] = flag(self.basis == BasisKind::Oracle, ORACLE)
            | flag(self.quality.held, HELD)
            | flag(self.quality.closed, CLOSED)
            | flag(self.quality.clipped, CLIPPED);
        bytes[2..4].copy_from_slice(&Coefficient::to_wire(self.fairness).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.registration.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..32].copy_from_slice(&address_bytes(self.ue));
        let bandwidth = self.bandwidth.as_bps().clamp(1, MOST_BANDWIDTH.as_bps());
        bytes[32..40].copy_from_slice(&bandwidth.to_be_bytes());
        bytes[40..44].copy_from_slice(&micros(self.min_rtt).max(1).to_be_bytes());
        bytes[44..48].copy_from_slice(&micros(self.age).to_be_bytes());
        bytes
    }

    /// Reads a datagram. There is one encoding of each value: what is accepted encodes to the same
    /// bytes again.
    ///
    /// # Errors
    /// What is wrong with the first thing that is.
    pub fn parse(bytes: &[u8]) -> Result<FeedbackDatagram, Malformed> {
        // The version first: another version may have another length.
        match bytes.first() {
            None => return Err(Malformed::Length(0)),
            Some(&VERSION) => {}
            Some(&version) => return Err(Malformed::Version(version)),
        }
        let bytes: &[u8; Self::BYTES] =
            bytes.try_into().map_err(|_| Malformed::Length(bytes.len()))?;
        let flags = bytes[1];
        if flags & !(ORACLE | HELD | CLOSED | CLIPPED) != 0 {
            return Err(Malformed::Flags(flags));
        }
        let bandwidth = u64::from_be_bytes(field(bytes, 32));
        let min_rtt = u32::from_be_bytes(field(bytes, 40));
        let age = u32::from_be_bytes(field(bytes, 44));
        if !(1..=MOST_BANDWIDTH.as_bps()).contains(&bandwidth) {
            return Err(Malformed::Bandwidth(bandwidth));
        }
        if min_rtt == 0 || Span::from_micros(min_rtt.into()) > MOST_SPAN {
            return Err(Malformed::MinRtt(min_rtt));
        }
        if Span::from_micros(age.into()) > MOST_SPAN {
            return Err(Malformed::Age(age));
        }
        Ok(FeedbackDatagram {
            registration: u32::from_be_bytes(field(bytes, 4)),
            sequence: u64::from_be_bytes(field(bytes, 8)),
            ue: address(field(bytes, 16)).ok_or(Malformed::Address)?,
            bandwidth: Rate::from_bps(bandwidth),
            min_rtt: Span::from_micros(min_rtt.into()),
            fairness: Coefficient::from_wire(u16::from_be_bytes(field(bytes, 2)))
                .ok_or(Malformed::Fairness)?,
            age: Span::from_micros(age.into()),
            basis: if flags & ORACLE == 0 { BasisKind::Causal } else { BasisKind::Oracle },
            quality: Quality {
                held: flags & HELD != 0,
                closed: flags & CLOSED != 0,
                clipped: flags & CLIPPED != 0,
            },
        })
    }
}

/// Bytes that are not a feedback datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Not as long as this version's datagrams.
    #[error("{0} bytes long, wanted {len}", len = FeedbackDatagram::BYTES)]
    Length(usize),
    /// Another version of the protocol.
    #[error("version {0}, wanted {VERSION}")]
    Version(u8),
    /// A flag that this version does not have.
    #[error("flags {0:#04x}, of which not all are known")]
    Flags(u8),
    /// An address that no single host has.
    #[error("not the address of a UE")]
    Address,
    /// Bandwidth zero, or beyond [`MOST_BANDWIDTH`].
    #[error("a bandwidth of {0} bit/s, wanted 1 to {most}", most = MOST_BANDWIDTH.as_bps())]
    Bandwidth(u64),
    /// minRTT zero, or beyond [`MOST_SPAN`].
    #[error("a minRTT of {0} us, wanted 1 to {most}", most = MOST_SPAN.as_micros())]
    MinRtt(u32),
    /// Age beyond [`MOST_SPAN`].
    #[error("an age of {0} us, wanted at most {most}", most = MOST_SPAN.as_micros())]
    Age(u32),
    /// A fairness coefficient below one flow.
    #[error("a fairness coefficient below one flow")]
    Fairness,
}

/// An address on the wire: IPv6, or IPv4 mapped into it.
pub(crate) fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The other way. None for what no single host can have.
pub(crate) fn address(bytes: [u8; 16]) -> Option<IpAddr> {
    let address = Ipv6Addr::from(bytes).to_canonical();
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    (!address.is_unspecified() && !address.is_multicast() && !broadcast).then_some(address)
}

pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

fn micros(span: Span) -> u32 {
    // MOST_SPAN fits.
    span.min(MOST_SPAN).as_micros() as u32
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn sample() -> FeedbackDatagram {
        FeedbackDatagram {
            registration: 7,
            sequence: 0x0102_0304_0506_0708,
            ue: "10.45.0.2".parse().unwrap(),
            bandwidth: Rate::from_bps(12_000_000),
            min_rtt: Span::from_micros(11_000),
            fairness: Some(Coefficient::of_flows(2).unwrap()),
            age: Span::from_micros(1_500),
            basis: BasisKind::Causal,
            quality: Quality { held: true, ..Quality::default() },
        }
    }

    /// The bytes of `docs/reference/assist.md`: what another implementation must write.
    const SAMPLE: [u8; 48] = [
        1, 2, 2, 0, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, //
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 45, 0, 2, //
        0, 0, 0, 0, 0, 0xb7, 0x1b, 0, 0, 0, 0x2a, 0xf8, 0, 0, 5, 0xdc,
    ];

    #[test]
    fn the_layout_is_as_documented_and_fits_in_64_bytes() {
        assert_eq!(sample().encode(), SAMPLE);
        assert_eq!(FeedbackDatagram::parse(&SAMPLE), Ok(sample()));
        const { assert!(FeedbackDatagram::BYTES <= 64) };
    }

    #[test]
    fn every_kind_of_damage_is_told_apart() {
        let damaged = |at: usize, with: &[u8]| {
            let mut bytes = SAMPLE;
            bytes[at..at + with.len()].copy_from_slice(with);
            FeedbackDatagram::parse(&bytes).unwrap_err()
        };
        for cut in 1..SAMPLE.len() {
            assert_eq!(FeedbackDatagram::parse(&SAMPLE[..cut]), Err(Malformed::Length(cut)));
        }
        assert_eq!(FeedbackDatagram::parse(&[]), Err(Malformed::Length(0)));
        let long = [&SAMPLE[..], &[0]].concat();
        assert_eq!(FeedbackDatagram::parse(&long), Err(Malformed::Length(49)));
        assert_eq!(damaged(0, &[2]), Malformed::Version(2));
        assert_eq!(damaged(1, &[0x10]), Malformed::Flags(0x10));
        assert_eq!(damaged(2, &[0, 255]), Malformed::Fairness);
        assert_eq!(damaged(28, &[224, 0, 0, 1]), Malformed::Address);
        assert_eq!(damaged(28, &[255; 4]), Malformed::Address);
        assert_eq!(damaged(16, &[0; 16]), Malformed::Address);
        assert_eq!(damaged(32, &[0; 8]), Malformed::Bandwidth(0));
        assert_eq!(damaged(32, &[255; 8]), Malformed::Bandwidth(u64::MAX));
        assert_eq!(damaged(40, &[0; 4]), Malformed::MinRtt(0));
        assert_eq!(damaged(40, &[255; 4]), Malformed::MinRtt(u32::MAX));
        assert_eq!(damaged(44, &[255; 4]), Malformed::Age(u32::MAX));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..130)) {
            if let Ok(feedback) = FeedbackDatagram::parse(&bytes) {
                prop_assert_eq!(&feedback.encode()[..], &bytes[..]);
            }
        }
    }
}
