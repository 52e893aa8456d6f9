//! The `natcp` paper's indirect way to fairness among a UE's flows: the UE lets no sender have more
//! in flight than its part, by the window that it advertises, whatever the sender's congestion
//! control is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use midspan_sys::foreign::with_sockets;
use midspan_sys::socket::set_window_clamp;
use midspan_units::ByteSize;

/// As good as none: no window is as large.
const NONE: u32 = 1 << 30;

/// How long a clamp is relied on. The kernel lifts it when it next lets the receive buffer grow, which it
/// stops to do once the clamp has taken effect.
const LASTING: Duration = Duration::from_millis(500);

/// The clamps that this UE's sockets have, and since when.
#[derive(Debug, Default)]
pub(super) struct Regulator {
    clamps: BTreeMap<u32, (u32, Instant)>,
}

impl Regulator {
    /// Lets each of `flows` (inodes) have `window`; with None, what it likes, as before.
    pub(super) fn apply(&mut self, flows: &BTreeSet<u32>, window: Option<ByteSize>) {
        self.clamps.retain(|inode, _| flows.contains(inode));
        let target = window
            .map_or(NONE, |window| u32::try_from(window.as_bytes()).unwrap_or(NONE).min(NONE));
        let is_due = |inode: &u32| match self.clamps.get(inode) {
            Some(&(clamp, since)) => is_far(clamp, target) || since.elapsed() >= LASTING,
            None => is_far(NONE, target),
        };
        let due: BTreeSet<u32> = flows.iter().copied().filter(is_due).collect();
        self.set(&due, target);
    }

    /// Gives all that have a clamp their freedom back.
    pub(super) fn release(&mut self) {
        let clamped: BTreeSet<u32> = self.clamps.keys().copied().collect();
        self.apply(&clamped, None);
    }

    fn set(&mut self, inodes: &BTreeSet<u32>, target: u32) {
        if inodes.is_empty() {
            return;
        }
        let looked = with_sockets(inodes, |inode, socket| match set_window_clamp(socket, target) {
            Ok(()) if target == NONE => drop(self.clamps.remove(&inode)),
            Ok(()) => drop(self.clamps.insert(inode, (target, Instant::now()))),
            Err(error) => tracing::debug!(inode, "window clamp: {error}"),
        });
        if let Err(error) = looked {
            tracing::warn!("sockets of this UE: {error}");
        }
    }
}

/// Small changes are not worth a system call: an eighth is.
fn is_far(now: u32, target: u32) -> bool {
    now.abs_diff(target) > now.min(target) / 8
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use midspan_sys::sockdiag::tcp_sockets;

    use super::*;

    /// One flow at full speed over the loopback: its sender sees the window shrink, and grow again.
    #[test]
    fn a_sender_has_no_more_in_flight_than_its_part() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut ue, _) = listener.accept().unwrap();
        let (here, there) = (sender.local_addr().unwrap(), ue.local_addr().unwrap());
        let socket = |local| {
            let sockets = tcp_sockets().unwrap();
            sockets.into_iter().find(|socket| socket.local == local).unwrap()
        };
        let inode = socket(there).inode;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let sending = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                sender.write_all(&[0; 1 << 16]).unwrap();
            }
        });
        let receiving = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while ue.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        let until = |what, holds: &dyn Fn(u32) -> bool, meanwhile: &mut dyn FnMut()| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !holds(socket(here).info.snd_wnd) {
                assert!(Instant::now() < deadline, "{what}: {}", socket(here).info.snd_wnd);
                meanwhile();
                thread::sleep(Duration::from_millis(10));
            }
        };
        until("before", &|window| window > 1_000_000, &mut || {});
        // While the kernel still lets it grow.
        let mut regulator = Regulator::default();
        let part = Some(ByteSize::from_bytes(200_000));
        until("regulated", &|window| window <= 200_000, &mut || {
            regulator.apply(&[inode].into(), part)
        });
        regulator.release();
        until("released", &|window| window > 1_000_000, &mut || {});
        stop.store(true, Ordering::Relaxed);
        sending.join().unwrap();
        receiving.join().unwrap();
    }

    #[test]
    fn small_changes_are_left_alone() {
        assert!(!is_far(80_000, 88_000) && is_far(80_000, 91_000) && is_far(NONE, 91_000));
    }
}
