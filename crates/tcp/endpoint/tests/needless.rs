//! What a timeout costs that struck for nothing: all that was sent is only late, in a queue that
//! others' packets are in too.

mod common;

use common::{Fate, From, Pair};
use midspan_tcp::{Config, Info, Metrics, Segment, Stage};
use midspan_units::Span;

/// One way, both ways alike.
const BASE: Span = Span::from_millis(17);
/// What a packet waits for others', and for each of its own connection that was sent before it.
const OTHERS: Span = Span::from_millis(400);
const EACH: Span = Span::from_millis(30);

/// An initial window of ten packets over a round trip of 34 ms, and into that queue; and what is remembered of it.
fn upload(config: &Config) -> (Info, Metrics) {
    upload_with("reno", config, 10)
}

/// The same of so many packets, with another congestion control.
fn upload_with(control: &str, config: &Config, packets: u64) -> (Info, Metrics) {
    let config = config.clone();
    let mut pair = Pair::new(config.clone(), config, control);
    let (mut left, bytes) = (packets * 1448, packets * 1448);
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
    let mut metrics = Metrics::default();
    metrics.learn(&pair.client);
    (pair.client.info(), metrics)
}

fn waits_at_least(rto_min: Span) -> Config {
    Config { rto_min, ..Config::default() }
}

/// The acknowledgement of the delayed original echoes the original's timestamp, however late it comes: nothing else is held lost
/// (RFC 8985, 6.2, step 2; as the kernel, `linux/main.rs`). The tail loss probe and the first packet are all that is sent again.
#[test]
fn it_has_the_first_packet_sent_again() {
    for control in ["reno", "cubic", "radio"] {
        let (linux, _) = upload_with(control, &Config::default(), 10);
        assert!(linux.timeouts >= 1 && linux.retransmissions <= 2, "{control} {linux:?}");
        assert_eq!(u64::from(linux.dsacks), linux.retransmissions, "{control} {linux:?}");
    }
}

/// With the least timeout of RFC 6298 (2.4) there is a tail loss probe at most.
#[test]
fn one_second_is_patience_enough() {
    let (patient, _) = upload(&waits_at_least(Span::from_secs(1)));
    assert_eq!(patient.timeouts, 0, "{patient:?}");
    assert!(patient.retransmissions <= 1, "{patient:?}");
}

/// The next connection with the same peer knows how long answers take behind others' packets, where the host remembers.
#[test]
fn who_remembers_is_patient_the_next_time() {
    let (first, metrics) = upload(&Config::default());
    assert!(first.timeouts >= 1, "{first:?}");
    let remembered_rtt = metrics.rtt();
    assert!(remembered_rtt > Some(OTHERS), "{remembered_rtt:?}");
    let (next, _) = upload(&Config { remembered_rtt, ..Config::default() });
    assert_eq!(next.timeouts, 0, "{next:?}");
    assert!(next.retransmissions <= 1, "{next:?}");
}

/// A round trip that is longer than what is known is taken at once, a shorter one for an eighth.
#[test]
fn what_is_remembered_grows_at_once_and_shrinks_slowly() {
    let patient = waits_at_least(Span::from_secs(1));
    let (_, long) = upload(&patient);
    let mut metrics = Metrics::default();
    let mut short = Pair::new(patient.clone(), patient, "reno");
    short.run(Span::from_secs(1), &mut |_, _: &Segment| Fate::Deliver(BASE), |pair| {
        pair.client.stage() == Stage::Established
    });
    metrics.learn(&short.client);
    assert_eq!(metrics.rtt(), Some(BASE * 2));
    metrics = long;
    metrics.learn(&short.client);
    let known = long.rtt().unwrap();
    assert_eq!(metrics.rtt(), Some(known - (known - BASE * 2) / 8));
}
