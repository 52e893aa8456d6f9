//! What crosses a contender: both ends, as threads of this process, so that one clock times them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use midspan_sys::netns::Netns;
use socket2::SockRef;

use super::world::{self, World};

/// What a small message is, and a short connection carries each way.
const SMALL: usize = 64;
const CHUNK: usize = 256 * 1024;
/// How long an end waits before it says that something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time before what is measured, for windows to open and caches to warm.
pub(super) const WARM_UP: Duration = Duration::from_millis(700);
/// Threads that accept, and that open short connections.
const ACCEPTING: usize = 8;
const OPENING: usize = 8;

/// What the server does with a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Service {
    /// Sends without end.
    Stream,
    /// Answers one small message, and closes.
    Once,
    /// Answers small messages for as long as they come.
    Echo,
}

/// The service, until it is dropped.
pub(super) struct Server {
    listener: TcpListener,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(world: &World, service: Service) -> io::Result<Server> {
        let listener = world.server.run(|| listen(world::service()))??;
        let threads = (0..ACCEPTING)
            .map(|_| {
                let listener = listener.try_clone()?;
                Ok(thread::spawn(move || {
                    while let Ok((stream, _)) = listener.accept() {
                        match service {
                            Service::Once => drop(answer_once(stream)),
                            Service::Stream => drop(thread::spawn(move || stream_out(stream))),
                            Service::Echo => drop(thread::spawn(move || echo(stream))),
                        }
                    }
                }))
            })
            .collect::<io::Result<_>>()?;
        Ok(Server { listener, threads })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends the accepting threads; those of connections end with these.
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Bytes that `flows` connections read in about `time`, and that time.
pub(super) fn bulk(
    world: &World,
    to: SocketAddr,
    flows: usize,
    time: Duration,
    measured: impl FnOnce(),
) -> io::Result<(u64, Duration)> {
    let received = Arc::new(AtomicU64::new(0));
    let streams: Vec<TcpStream> =
        (0..flows).map(|_| connect(&world.client, to)).collect::<io::Result<_>>()?;
    let ended = Arc::new(AtomicU64::new(0));
    let readers: Vec<JoinHandle<()>> = streams
        .iter()
        .map(|stream| {
            let (mut stream, received) = (stream.try_clone()?, received.clone());
            let ended = ended.clone();
            Ok(thread::spawn(move || {
                let mut chunk = vec![0; CHUNK];
                while let Ok(read @ 1..) = stream.read(&mut chunk) {
                    received.fetch_add(read as u64, Ordering::Relaxed);
                }
                ended.fetch_add(1, Ordering::Relaxed);
            }))
        })
        .collect::<io::Result<_>>()?;
    thread::sleep(WARM_UP);
    measured();
    let (begin, before) = (Instant::now(), received.load(Ordering::Relaxed));
    thread::sleep(time);
    let result = (received.load(Ordering::Relaxed) - before, begin.elapsed());
    let ended = ended.load(Ordering::Relaxed);
    for stream in &streams {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for reader in readers {
        let _ = reader.join();
    }
    match ended {
        0 => Ok(result),
        some => Err(io::Error::other(format!("{some} of {flows} flows ended by themselves"))),
    }
}

/// Connections opened, used once and closed per second.
pub(super) fn connections(world: &World, to: SocketAddr, time: Duration) -> io::Result<f64> {
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let one = || -> io::Result<()> {
        let mut stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        stream.write_all(&[1; SMALL])?;
        let mut answer = [0; SMALL];
        stream.read_exact(&mut answer)?;
        match stream.read(&mut answer)? {
            0 => Ok(()),
            _ => Err(io::Error::other("more than the answer")),
        }
    };
    thread::scope(|scope| {
        let opening: Vec<_> = (0..OPENING)
            .map(|_| {
                scope.spawn(|| -> io::Result<()> {
                    world.client.enter()?;
                    while !stop.load(Ordering::Relaxed) {
                        one()?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(WARM_UP);
        let (begin, before) = (Instant::now(), done.load(Ordering::Relaxed));
        thread::sleep(time);
        let rate = (done.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for thread in opening {
            thread.join().expect("load threads do not panic")?;
        }
        Ok(rate)
    })
}

/// What small messages to and fro on open connections come to.
pub(super) struct Messages {
    /// Answered per second.
    pub(super) rate: f64,
    /// Time to the answer, in microseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Sends a message on each of `count` connections as soon as the last one's answer is there.
pub(super) fn messages(
    world: &World,
    to: SocketAddr,
    count: usize,
    time: Duration,
    measured: impl FnOnce(),
) -> io::Result<Messages> {
    let stop = AtomicBool::new(false);
    let measuring = AtomicBool::new(false);
    let streams: Vec<TcpStream> =
        (0..count).map(|_| connect(&world.client, to)).collect::<io::Result<_>>()?;
    let (mut times, elapsed) = thread::scope(|scope| -> io::Result<_> {
        let asking: Vec<_> =
            streams.iter().map(|stream| scope.spawn(|| ask(stream, &stop, &measuring))).collect();
        thread::sleep(WARM_UP);
        measured();
        measuring.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        thread::sleep(time);
        let elapsed = begin.elapsed();
        stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in asking {
            all.extend(thread.join().expect("load threads do not panic")?);
        }
        Ok((all, elapsed))
    })?;
    if times.is_empty() {
        return Err(io::Error::other("no message was answered"));
    }
    times.sort_unstable();
    let at = |share: f64| f64::from(times[((times.len() - 1) as f64 * share) as usize]) / 1000.0;
    Ok(Messages { rate: times.len() as f64 / elapsed.as_secs_f64(), p50: at(0.5), p99: at(0.99) })
}

/// Nanoseconds to each answer.
fn ask(mut stream: &TcpStream, stop: &AtomicBool, measuring: &AtomicBool) -> io::Result<Vec<u32>> {
    let (mut times, mut answer) = (Vec::with_capacity(1 << 16), [0; SMALL]);
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        stream.write_all(&[1; SMALL])?;
        stream.read_exact(&mut answer)?;
        if measuring.load(Ordering::Relaxed) {
            times.push(u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
    }
    Ok(times)
}

/// Opens so many connections, and makes sure that each is there from end to end.
pub(super) fn idle(world: &World, to: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    thread::scope(|scope| {
        let opening = scope.spawn(|| {
            world.client.enter()?;
            (0..count)
                .map(|_| {
                    let mut stream = TcpStream::connect(to)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.write_all(&[1; SMALL])?;
                    stream.read_exact(&mut [0; SMALL])?;
                    Ok(stream)
                })
                .collect()
        });
        opening.join().expect("load threads do not panic")
    })
}

fn connect(from: &Netns, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = from.run(|| TcpStream::connect(to))??;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn answer_once(mut stream: TcpStream) -> io::Result<()> {
    let mut message = [0; SMALL];
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.read_exact(&mut message)?;
    stream.write_all(&message)
}

fn stream_out(mut stream: TcpStream) {
    // Nobody may read any more.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    let chunk = vec![0x5a; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

fn echo(mut stream: TcpStream) {
    let mut message = [0; SMALL];
    let _ = stream.set_nodelay(true);
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
}
