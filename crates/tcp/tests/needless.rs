//! What a timeout costs that struck for nothing: all that was sent is only late, in a queue that
//! others' packets are in too.

mod common;

use common::{Fate, From, Pair};
use midspan_tcp::{Config, Info, Segment, Stage};
use midspan_units::Span;

/// One way, both ways alike.
const BASE: Span = Span::from_millis(17);
/// What a packet waits for others', and for each of its own connection that was sent before it.
const OTHERS: Span = Span::from_millis(400);
const EACH: Span = Span::from_millis(30);

/// An initial window of ten packets over a round trip of 34 ms, and into that queue.
fn upload(rto_min: Span) -> Info {
    let config = Config { rto_min, ..Config::default() };
    let mut pair = Pair::new(config.clone(), config, "reno");
    let (mut left, bytes) = (10 * 1448, 10 * 1448);
    let mut sent = 0;
    let mut queue = |from: From, segment: &Segment| {
        if from == From::Server || segment.payload == 0 {
            return Fate::Deliver(BASE);
        }
        sent += 1;
        Fate::Deliver(BASE + OTHERS + EACH * (sent - 1).min(10))
    };
    pair.run(Span::from_secs(30), &mut queue, |pair| {
        if pair.client.stage() == Stage::Established {
            left -= pair.client.write(left);
        }
        let now = pair.now;
        if let Some(server) = &mut pair.server {
            server.read(now, u64::MAX);
        }
        pair.client.acknowledged() >= bytes
    });
    assert_eq!(pair.client.acknowledged(), bytes);
    // The duplicates' acknowledgements come.
    pair.run(Span::from_secs(5), &mut queue, |_| false);
    pair.client.info()
}

/// The acknowledgement of the delayed original comes later after the retransmission than a round trip
/// takes, so RACK takes it for the retransmission's (RFC 8985, 6.2, step 2, without its look at
/// timestamps, as Linux), and all that was sent before that for lost.
#[test]
fn it_has_much_of_the_flight_sent_again() {
    let linux = upload(Span::from_millis(200));
    assert!(linux.timeouts >= 1 && linux.retransmissions >= 5, "{linux:?}");
    assert_eq!(u64::from(linux.dsacks), linux.retransmissions, "{linux:?}");
}

/// With the least timeout of RFC 6298 (2.4) there is a tail loss probe at most.
#[test]
fn one_second_is_patience_enough() {
    let patient = upload(Span::from_secs(1));
    assert_eq!(patient.timeouts, 0, "{patient:?}");
    assert!(patient.retransmissions <= 1, "{patient:?}");
}
