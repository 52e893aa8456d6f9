//! What arrives while as much is held as may be: nobody is woken for it, and nothing of it is lost.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use crate::process::RelayProcess;
use crate::world::{SERVER, World};

/// The relay soon holds all that it may when nobody reads, and its kernel has room for more.
const SMALL: &str = "buffer = \"64 KiB\"\nread_ahead = \"fixed\"\n\
    [client_leg]\nsend_buffer = \"64 KiB\"\nreceive_buffer = \"1 MiB\"\n\
    [server_leg]\nsend_buffer = \"64 KiB\"\nreceive_buffer = \"1 MiB\"\n";
/// More than the relay and those behind it hold then.
const MUCH: usize = 400_000;
const MESSAGES: u32 = 500;

#[test]
fn what_cannot_be_read_yet_wakes_nobody() {
    let Some(world) = World::new() else { return };
    let mut relay = RelayProcess::start(&world.relay, SMALL);
    for client_sends in [true, false] {
        let (client, server) = world.pair(SERVER[0]);
        let (mut sender, mut reader) =
            if client_sends { (client, server) } else { (server, client) };
        sender.set_nodelay(true).unwrap();
        sender.write_all(&vec![b'a'; MUCH]).unwrap();
        thread::sleep(Duration::from_millis(300));
        let before = relay.wakeups();
        for _ in 0..MESSAGES {
            sender.write_all(b"message").unwrap();
            thread::sleep(Duration::from_micros(500));
        }
        let woken = relay.wakeups() - before;
        socket2::SockRef::from(&sender).send_out_of_band(b"X").unwrap();
        sender.write_all(b"after").unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), MUCH + 7 * MESSAGES as usize + 6);
        assert!(all[..MUCH].iter().all(|byte| *byte == b'a') && all.ends_with(b"messageXafter"));
        // Beats and rounds go on.
        assert!(woken < u64::from(MESSAGES / 5), "woken {woken} times for {MESSAGES} messages");
    }
    assert_eq!(relay.until(|counts| counts["active"] == 0)["urgent"], 2);
}
