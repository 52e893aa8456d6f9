//! Carrying bytes does not allocate: what flows need is there when they begin, and buffers and pipes are
//! lent again and again.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use midspan_relay::Relay;

#[global_allocator]
static HEAP: dhat::Alloc = dhat::Alloc;

const MESSAGE: usize = 64;
const CHUNK: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that answers each message, or one that sends without end; its threads end with their connections.
fn serve(talk: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || talk(stream));
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let mut message = [0; MESSAGE];
    stream.set_nodelay(true).unwrap();
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
}

fn stream_out(mut stream: TcpStream) {
    let chunk = vec![0x5a; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

/// Two ports that were free a moment ago. Whoever takes any port whatever must have it before.
fn free() -> [SocketAddr; 2] {
    let listeners = [0; 2].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Blocks of memory that `work` allocates, in whichever thread.
fn blocks_of(work: impl FnOnce()) -> u64 {
    let before = dhat::HeapStats::get().total_blocks;
    work();
    dhat::HeapStats::get().total_blocks - before
}

fn exchange(streams: &mut [TcpStream], rounds: usize) {
    let mut answer = [0; MESSAGE];
    for _ in 0..rounds {
        for stream in &mut *streams {
            stream.write_all(&[1; MESSAGE]).unwrap();
        }
        for stream in &mut *streams {
            stream.read_exact(&mut answer).unwrap();
        }
    }
}

fn download(stream: &mut TcpStream, chunk: &mut [u8], bytes: usize) {
    let mut read = 0;
    while read < bytes {
        read += stream.read(chunk).unwrap();
    }
}

#[test]
fn carrying_bytes_does_not_allocate() {
    const FLOWS: usize = 16;
    const ROUNDS: usize = 2_000;
    const BULK: usize = 512 << 20;
    let _profiler = dhat::Profiler::builder().testing().build();
    let servers = [serve(echo), serve(stream_out)];
    let [small, bulk] = free();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    let forward = |listen, to| format!("[[forward]]\nlisten = \"{listen}\"\nto = \"{to}\"\n");
    let configuration =
        format!("workers = 1\n{}{}", forward(small, servers[0]), forward(bulk, servers[1]));
    fs::write(&path, configuration).unwrap();
    let relay = Relay::start(midspan_relay::load(&path).unwrap()).unwrap();

    let mut streams: Vec<TcpStream> = (0..FLOWS).map(|_| connect(small)).collect();
    exchange(&mut streams, 100);
    let messages = blocks_of(|| exchange(&mut streams, ROUNDS));
    let (mut stream, mut chunk) = (connect(bulk), vec![0; CHUNK]);
    download(&mut stream, &mut chunk, BULK / 8);
    let spliced = blocks_of(|| download(&mut stream, &mut chunk, BULK));
    drop((stream, streams));
    let counts = relay.stop().unwrap();

    assert!(counts.splice_promotions > 0, "{counts:?}");
    // The supervisor looks around now and then. An allocation for each event would be tens of thousands.
    assert!(messages < (FLOWS * ROUNDS / 100) as u64, "{messages} for messages");
    assert!(spliced < 100, "{spliced} for {BULK} bytes");
}
