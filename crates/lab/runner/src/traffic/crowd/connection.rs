//! One end of a connection of a user's, which never blocks.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use midspan_apps::{ANSWER_HEAD, Event};
use rustix::event::epoll::EventFlags;

use super::http;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// Whose it is.
    pub(super) user: usize,
    /// The address of the user's end.
    pub(super) address: SocketAddr,
    /// Whether its handshake is over.
    pub(super) is_open: bool,
    pub(super) role: Role,
    /// What is waited for.
    pub(super) waits_for: EventFlags,
}

/// What an end does.
#[derive(Debug)]
pub(super) enum Role {
    /// Sends as fast as it can.
    Source,
    /// Reads all that comes, so many bytes so far.
    Sink(u64),
    /// Asks.
    Client(Client),
    /// Answers.
    Server(Server),
}

/// The end that asks.
#[derive(Debug)]
pub(super) struct Client {
    /// Its number among the connections of what the user is doing.
    pub(super) number: usize,
    /// Requests, as far as they are not sent.
    requests: VecDeque<u8>,
    /// What is left of the heads and bodies of answers.
    awaited: VecDeque<(u64, u64)>,
}

/// The end that answers.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// What was read and is no whole request yet.
    read: Vec<u8>,
    /// What is left of the heads and bodies of answers.
    answers: VecDeque<(Vec<u8>, u64)>,
}

/// What bodies consist of, and the most that is read or written at a time.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

impl Client {
    pub(super) fn new(number: usize) -> Client {
        Client { number, requests: VecDeque::new(), awaited: VecDeque::new() }
    }

    /// Asks, in `size` bytes, for a body of `answer` bytes.
    pub(super) fn ask(&mut self, size: u64, answer: u64) {
        self.requests.extend(http::request(size, answer));
        self.awaited.push_back((ANSWER_HEAD, answer));
    }

    /// So many bytes came. How many of them are of bodies.
    fn took(&mut self, mut bytes: u64) -> u64 {
        let mut fresh = 0;
        while let Some((head, body)) = self.awaited.front_mut() {
            let of_head = bytes.min(*head);
            let of_body = (bytes - of_head).min(*body);
            (*head, *body) = (*head - of_head, *body - of_body);
            bytes -= of_head + of_body;
            fresh += of_body;
            if *head + *body > 0 {
                break;
            }
            self.awaited.pop_front();
        }
        fresh
    }
}

impl Connection {
    /// Does what can be done, as epoll has told. What is new for the user.
    ///
    /// # Errors
    /// When it broke, or ended.
    pub(super) fn turn(&mut self, ready: EventFlags, buffer: &mut [u8]) -> io::Result<Event> {
        let mut event = Event::default();
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        if !self.is_open && ready.contains(EventFlags::OUT) {
            (self.is_open, event.connected) = (true, true);
        }
        if ready.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP) {
            event.fresh = self.read(buffer)?;
        }
        if self.is_open {
            self.write()?;
        }
        Ok(event)
    }

    /// Reads once. How many bytes of bodies came.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<u64> {
        let bytes = match (&self.stream).read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes,
            Err(error) if is_temporary(&error) => return Ok(0),
            Err(error) => return Err(error),
        };
        match &mut self.role {
            Role::Source => Ok(0),
            Role::Sink(read) => {
                *read += bytes as u64;
                Ok(0)
            }
            Role::Client(client) => Ok(client.took(bytes as u64)),
            Role::Server(server) => {
                server.read.extend_from_slice(&buffer[..bytes]);
                while let Some(asked) = http::take_request(&mut server.read) {
                    let answer = asked.map_err(io::Error::other)?;
                    server.answers.push_back((http::head(answer), answer));
                }
                Ok(0)
            }
        }
    }

    /// Writes what is to be written, as far as there is room; of what never ends once.
    pub(super) fn write(&mut self) -> io::Result<()> {
        loop {
            let (head, body) = match &mut self.role {
                Role::Source => (&[][..], ZEROS.len() as u64),
                Role::Sink(_) => return Ok(()),
                Role::Client(client) => (&*client.requests.make_contiguous(), 0),
                Role::Server(server) => match server.answers.front() {
                    Some((head, body)) => (&head[..], *body),
                    None => return Ok(()),
                },
            };
            let body = &ZEROS[..ZEROS.len().min(usize::try_from(body).unwrap_or(usize::MAX))];
            if head.is_empty() && body.is_empty() {
                return Ok(());
            }
            let pieces = [IoSlice::new(head), IoSlice::new(body)];
            let written = match (&self.stream).write_vectored(&pieces) {
                Ok(bytes) => bytes,
                Err(error) if is_temporary(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            match &mut self.role {
                Role::Source | Role::Sink(_) => return Ok(()),
                Role::Client(client) => drop(client.requests.drain(..written)),
                Role::Server(server) => server.wrote(written),
            }
        }
    }

    /// What it waits for now.
    pub(super) fn wants(&self) -> EventFlags {
        let writes = match &self.role {
            Role::Source => true,
            Role::Sink(_) => false,
            Role::Client(client) => !client.requests.is_empty(),
            Role::Server(server) => !server.answers.is_empty(),
        };
        let writing = if writes || !self.is_open { EventFlags::OUT } else { EventFlags::empty() };
        EventFlags::IN | writing
    }
}

impl Server {
    fn wrote(&mut self, bytes: usize) {
        let Some((head, body)) = self.answers.front_mut() else { return };
        let of_head = bytes.min(head.len());
        head.drain(..of_head);
        *body -= (bytes - of_head) as u64;
        if head.is_empty() && *body == 0 {
            self.answers.pop_front();
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_count_and_heads_do_not() {
        let mut client = Client::new(0);
        client.ask(100, 5);
        client.ask(100, 1000);
        assert_eq!(client.took(ANSWER_HEAD - 1), 0);
        // The last byte of a head, a body of five, the next head, and two bytes of its body.
        assert_eq!(client.took(1 + 5 + ANSWER_HEAD + 2), 7);
        assert_eq!(client.took(998), 998);
        assert!(client.awaited.is_empty());
        assert_eq!(client.requests.len(), 200);
    }
}
