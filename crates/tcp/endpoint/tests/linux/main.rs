//! Our sender beside the running kernel's: a receiver that is played by a script acknowledges to either the same segments at the
//! same times, and both must send the same. The kernel's is behind a TUN device in a network namespace of the test's own.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel takes the time that it takes"
)]

mod kernel;
mod model;
mod random;
mod script;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use midspan_sys::userns;
use script::Step::Pause;
use script::{Echo, Step, play};

/// More than half a round trip of the script's, which is 20 ms and more; and longer than a busy machine is late by.
const WHILE: Step = Pause(25);

/// What comes late by other work on this machine is told from what is sent otherwise by trying again.
const TRIES: Range<u32> = 0..3;
const THREADS: u64 = 6;
/// Older ones wait for longer with probes and for reordering.
const LINUX: (u32, u32) = (6, 12);

/// Both play it, from a first flight of ten packets on, which was acknowledged one by one: twenty are in flight, from number 10
/// on. Answers what is sent in each pause.
fn both_send(steps: &[Step]) -> Vec<Vec<u32>> {
    let model = play(model::Model::new(), steps);
    if !may_ask_the_kernel() {
        return model;
    }
    let mut other = Vec::new();
    for _ in TRIES {
        other.push(kernel_sends(steps));
        if other.last() == Some(&model) {
            return model;
        }
    }
    panic!("ours sends   {model:?}\nthe kernel's {other:?}");
}

/// Whether there is a kernel to compare with, which may be asked.
fn may_ask_the_kernel() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let why = match version {
        version if version < LINUX => {
            format!("Linux {release} is older than the one that ours follows")
        }
        _ if !userns::is_root() => "making network namespaces takes root".to_owned(),
        _ => return true,
    };
    eprintln!("skipped, the kernel's part: {why}");
    false
}

fn kernel_sends(steps: &[Step]) -> Vec<Vec<u32>> {
    play(kernel::Kernel::new().unwrap(), steps)
}

/// All before packet `next` has come, and these ranges of packets beyond.
fn ack(next: u32, sack: &[(u32, u32)], echo: Echo) -> Step {
    Step::Ack { next, sack: sack.to_vec(), echo }
}

/// Packet 10 is late: 11, 12 and 13 have come.
fn ten_is_late() -> Vec<Step> {
    (12..=14).map(|end| ack(10, &[(11, end)], Echo(9, 0))).collect()
}

/// So is packet 15, and 30 is sent before both are sent again; a pause, and then this.
fn both_late_and(then: &[Step]) -> Vec<Vec<u32>> {
    let fifteen_too = (17..=19).map(|end| ack(10, &[(16, end), (11, 15)], Echo(9, 0)));
    let steps = ten_is_late().into_iter().chain(fifteen_too).chain([WHILE]);
    both_send(&steps.chain(then.iter().cloned()).collect::<Vec<_>>())
}

/// RFC 8985, 6.2, step 2: an acknowledgement that echoes the original's timestamp says nothing of the retransmission, however
/// late it comes. What was sent before that is not lost.
#[test]
fn an_original_that_comes_late_tells_nothing_of_its_retransmission() {
    let sent = both_late_and(&[
        ack(15, &[(16, 19)], Echo(10, 0)),
        Pause(4),
        // The retransmission comes on top, and delivers nothing: what is lost by now would be by the original.
        ack(15, &[(10, 11), (16, 19)], Echo(10, 0)),
        Pause(4),
        ack(15, &[(16, 20)], Echo(10, 0)),
        WHILE,
    ]);
    assert!(sent[0].contains(&10) && sent[0].contains(&15), "{sent:?}");
    assert!(sent[1..].iter().flatten().all(|packet| *packet > 29), "{sent:?}");
}

/// One that echoes the retransmission's does: of what was sent before it, all that is not delivered is lost.
#[test]
fn a_retransmission_that_comes_tells_of_what_was_sent_before() {
    let sent = both_late_and(&[
        ack(15, &[(16, 19)], Echo(10, 1)),
        Pause(4),
        ack(15, &[(16, 20)], Echo(10, 1)),
        WHILE,
    ]);
    assert!(sent[1].contains(&19), "{sent:?}");
}

/// A SACK echoes what came in order before the hole: it is believed without.
#[test]
fn a_retransmission_that_is_sacked_is_believed() {
    let sent = both_late_and(&[
        ack(10, &[(11, 19)], Echo(9, 0)),
        Pause(4),
        ack(10, &[(11, 20)], Echo(9, 0)),
        WHILE,
    ]);
    assert!(sent[1].contains(&10) && sent[1].contains(&19), "{sent:?}");
}

/// The hole was filled by the original, and the retransmission comes on top: the window comes back (RFC 3708).
#[test]
fn a_duplicate_takes_the_reduction_back() {
    let sent = both_send(
        &[
            &ten_is_late()[..],
            &[
                WHILE,
                ack(14, &[], Echo(10, 0)),
                Pause(5),
                ack(14, &[(10, 11)], Echo(13, 0)),
                WHILE,
                ack(20, &[], Echo(19, 0)),
                WHILE,
                ack(30, &[], Echo(29, 0)),
                WHILE,
            ],
        ]
        .concat(),
    );
    // A window of 21 again, and slow start.
    assert_eq!([sent[3].len(), sent[4].len()], [12, 20], "{sent:?}");
}

/// A loss that is one: what is sent while it is repaired, and what behind it (RFC 9937).
#[test]
fn a_loss_is_repaired() {
    let sent = both_send(
        &[
            &ten_is_late()[..],
            &[
                WHILE,
                ack(10, &[(11, 20)], Echo(9, 0)),
                ack(10, &[(11, 22)], Echo(9, 0)),
                WHILE,
                ack(30, &[], Echo(10, 1)),
                // What was sent right before the retransmission is overtaken by it, and waits for 20 ms and the clock.
                Pause(45),
                ack(34, &[], Echo(33, 0)),
                WHILE,
            ],
        ]
        .concat(),
    );
    assert_eq!(sent[0], [30, 31, 10]);
    assert_eq!(sent[2], [36, 37, 38, 39, 30, 31]);
}

/// Two ticks of the clock and two round trips of silence: a tail loss probe goes (RFC 8985, 7.2), and then a timeout strikes.
/// What comes afterwards are the originals, each later than a round trip takes: nothing else of them is sent again (RFC 5682).
#[test]
fn a_timeout_that_was_spurious_costs_the_first_packet_alone() {
    let mut steps = vec![Pause(700)];
    for next in 11..=30 {
        steps.push(ack(next, &[], Echo(next - 1, 0)));
        steps.push(WHILE);
    }
    let sent = both_send(&steps);
    let again = |packets: &[u32]| packets.iter().filter(|packet| **packet <= 29).count();
    assert!(again(&sent[0]) >= 1, "{sent:?}");
    assert_eq!(sent[1..].iter().map(|packets| again(packets)).sum::<usize>(), 0, "{sent:?}");
}

/// Packets 11 and 22 were sent again for nothing, 26 and 28 are held lost. The first original leaves it open whether the other comes:
/// nothing else is sent again. The second takes the reduction back, and what was held lost is not judged anew, however late it is.
#[test]
fn what_was_held_lost_by_mistake_is_waited_for() {
    let mut steps = vec![ack(11, &[], Echo(10, 0))];
    steps.extend((13..=22).map(|end| ack(11, &[(12, end)], Echo(10, 0))));
    steps.extend((24..=26).map(|end| ack(11, &[(23, end), (12, 22)], Echo(10, 0))));
    steps.push(ack(11, &[(27, 28), (23, 26), (12, 22)], Echo(10, 0)));
    steps.push(ack(11, &[(29, 30), (27, 28), (23, 26)], Echo(10, 0)));
    steps.push(Pause(40));
    steps.push(ack(22, &[(29, 30), (27, 28), (23, 26)], Echo(11, 0)));
    steps.push(ack(26, &[(29, 30), (27, 28)], Echo(22, 0)));
    steps.extend((31..=34).map(|end| ack(26, &[(29, end), (27, 28)], Echo(22, 0))));
    steps.push(Pause(40));
    let sent = both_send(&steps);
    assert!(sent[0].contains(&11) && sent[0].contains(&22), "{sent:?}");
    assert!(sent[1].len() > 10 && sent[1].iter().all(|packet| *packet >= 38), "{sent:?}");
}

/// What comes twice after it was SACKed had come out of order, and shows reordering: 34, overtaken by one packet, has the reordering
/// window from then on.
#[test]
fn a_duplicate_of_what_was_sacked_shows_reordering() {
    let mut steps: Vec<Step> = (12..=14).map(|end| ack(10, &[(11, end)], Echo(9, 0))).collect();
    steps.push(ack(10, &[(15, 16), (11, 14)], Echo(9, 0)));
    steps.extend((18..=19).map(|end| ack(10, &[(17, end), (15, 16), (11, 14)], Echo(9, 0))));
    steps.extend((21..=30).map(|end| ack(10, &[(20, end), (17, 19), (15, 16)], Echo(9, 0))));
    steps.push(Pause(30));
    let blocks: [&[(u32, u32)]; 6] = [
        &[(11, 16), (20, 30), (17, 19)],
        &[(17, 30), (11, 16)],
        &[(17, 32), (11, 16)],
        &[(14, 15), (11, 16), (17, 32)],
        &[(11, 32)],
        &[(19, 20), (11, 32)],
    ];
    steps.extend(blocks.map(|sack| ack(10, sack, Echo(9, 0))));
    steps.extend((33..=34).map(|end| ack(10, &[(11, end)], Echo(9, 0))));
    steps.push(ack(10, &[(35, 36), (11, 34)], Echo(9, 0)));
    steps.push(Pause(4));
    let sent = both_send(&steps);
    assert!(!sent[1].contains(&34), "{sent:?}");
}

/// Scripts that chance writes: each loses up to a fifth of the packets, and as many come late, by a round trip or two, over nine
/// rounds. Where timers of the kernel's clock and what arrives strike at nearly the same time either may be first, and now and then Linux
/// does what this model does not; most scripts are sent the same packets in the same order to their end.
#[test]
fn chance_finds_little_that_differs() {
    if !may_ask_the_kernel() {
        return;
    }
    let all = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let scripts: u64 = if all { 600 } else { 48 };
    let same = AtomicU64::new(0);
    // They wait most of the time.
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let same = &same;
            scope.spawn(move || {
                for seed in (first..scripts).step_by(THREADS as usize) {
                    let (steps, model) = random::script(seed, model::Model::new());
                    let is_same = TRIES.clone().any(|_| kernel_sends(&steps) == model);
                    same.fetch_add(u64::from(is_same), Ordering::Relaxed);
                }
            });
        }
    });
    let same = same.into_inner();
    println!("{same} of {scripts} scripts are sent the same");
    assert!(same * 4 >= scripts * 3, "{same} of {scripts} scripts are sent the same");
}
