//! Requests and answers over one connection, as HTTP/1.1 has them: answered in order, one or more at a
//! time (RFC 9112, section 9.3).

use std::collections::VecDeque;

use midspan_apps::{ANSWER_HEAD, Event};
use midspan_tcp::{Endpoint, Stage};
use midspan_units::Time;

/// All dialogues, and which of them the clients have something new of.
#[derive(Debug, Default)]
pub(crate) struct Dialogues {
    all: Vec<Dialogue>,
    free: Vec<usize>,
    events: Vec<usize>,
}

/// What the two ends of a connection have to say. Bytes have no content here, so what a request asks
/// for is noted when it is made.
#[derive(Debug, Clone, Default)]
struct Dialogue {
    /// Bytes of all requests made, of those written, and of those that the server has read.
    requested: Progress,
    /// The requests that the server has not read whole: where each ends, and the bytes of its answer.
    unread: VecDeque<(u64, u64)>,
    /// Bytes of all answers due, of those written, and of those that the client has read.
    answered: Progress,
    /// The answers that the client has not read whole: what is left of head and body.
    awaited: VecDeque<(u64, u64)>,
    /// Bytes of bodies that were read since the last look.
    fresh: u64,
    connected: bool,
    failed: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    due: u64,
    written: u64,
    read: u64,
}

impl Progress {
    fn write(&mut self, endpoint: &mut Endpoint) {
        if self.due > self.written {
            self.written += endpoint.write(self.due - self.written);
        }
    }
}

impl Dialogues {
    /// A new one, and its number.
    pub(crate) fn open(&mut self) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(Dialogue::default());
            self.all.len() - 1
        });
        self.all[number] = Dialogue::default();
        number
    }

    /// Its sockets are gone; the number is given again.
    pub(crate) fn close(&mut self, number: usize) {
        self.events.retain(|event| *event != number);
        self.free.push(number);
    }

    /// The client asks, in `request` bytes, for a body of `answer` bytes.
    pub(crate) fn ask(&mut self, number: usize, request: u64, answer: u64) {
        let dialogue = &mut self.all[number];
        dialogue.requested.due += request;
        dialogue.unread.push_back((dialogue.requested.due, ANSWER_HEAD + answer));
        dialogue.awaited.push_back((ANSWER_HEAD, answer));
    }

    /// Whether any client has something new.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next dialogue of which its client has something new.
    pub(crate) fn next_event(&mut self) -> Option<(usize, Event)> {
        let number = self.events.pop()?;
        let dialogue = &mut self.all[number];
        let Dialogue { connected, failed, .. } = *dialogue;
        Some((number, Event { connected, fresh: std::mem::take(&mut dialogue.fresh), failed }))
    }

    /// The client's end: writes requests, reads answers.
    pub(crate) fn client(&mut self, number: usize, now: Time, endpoint: &mut Endpoint) {
        let dialogue = &mut self.all[number];
        if dialogue.client(now, endpoint) && !self.events.contains(&number) {
            self.events.push(number);
        }
    }

    /// The server's end: reads requests, writes answers at once.
    pub(crate) fn server(&mut self, number: usize, now: Time, endpoint: &mut Endpoint) {
        let dialogue = &mut self.all[number];
        dialogue.requested.read += endpoint.read(now, u64::MAX);
        while let Some(&(end, answer)) = dialogue.unread.front()
            && end <= dialogue.requested.read
        {
            dialogue.answered.due += answer;
            dialogue.unread.pop_front();
        }
        dialogue.answered.write(endpoint);
    }
}

impl Dialogue {
    /// Whether there is anything new.
    fn client(&mut self, now: Time, endpoint: &mut Endpoint) -> bool {
        let failed = matches!(endpoint.stage(), Stage::Failed(_));
        let mut new = failed && !self.failed;
        self.failed = failed;
        new |= !std::mem::replace(&mut self.connected, true);
        self.requested.write(endpoint);
        let mut read = endpoint.read(now, u64::MAX);
        self.answered.read += read;
        while let Some((head, body)) = self.awaited.front_mut() {
            let of_head = read.min(*head);
            let of_body = (read - of_head).min(*body);
            (*head, *body) = (*head - of_head, *body - of_body);
            read -= of_head + of_body;
            self.fresh += of_body;
            if *head + *body > 0 {
                break;
            }
            self.awaited.pop_front();
        }
        new || self.fresh > 0
    }
}
