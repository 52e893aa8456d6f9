//! What applications do with their sockets.

use midspan_tcp::{Endpoint, Stage};
use midspan_units::Time;

use crate::dialogue::Dialogues;

/// One end's application.
#[derive(Debug, Clone)]
pub(crate) enum Application {
    /// Writes as much as the socket takes, for ever.
    Source(Source),
    /// Reads all there is, for ever.
    Sink(Sink),
    /// Writes so many bytes and ends its direction, then reads to the end.
    Send(Send),
    /// Reads to the end, then ends its own direction.
    Receive(Receive),
    /// The client of the dialogue of this number.
    Client(usize),
    /// Its server.
    Server(usize),
}

/// After the greeting: what is to be said yet, and then heard, before it begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    say: u64,
    hear: u64,
}

/// With the greeting: what is to be said yet once so many bytes were read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sink {
    /// Bytes read.
    pub(crate) read: u64,
    say: u64,
    after: u64,
}

/// What the server answers a greeting with.
const ANSWER: u64 = 1;

/// The applications of client and server in a flow that begins with a greeting of so many bytes from the
/// client; with none it begins at once.
pub(crate) fn flow(upload: bool, greeting: u64) -> (Application, Application) {
    let answer = if greeting > 0 { ANSWER } else { 0 };
    if upload {
        let source = Source { say: greeting, hear: answer };
        let sink = Sink { read: 0, say: answer, after: greeting };
        (Application::Source(source), Application::Sink(sink))
    } else {
        let sink = Sink { read: 0, say: greeting, after: 0 };
        let source = Source { say: 0, hear: greeting };
        (Application::Sink(sink), Application::Source(source))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Send {
    bytes: u64,
    written: u64,
    pub(crate) times: Times,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Receive {
    pub(crate) bytes: u64,
    pub(crate) times: Times,
}

/// When things happened at one end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// The connection was open.
    pub(crate) connected: Option<Time>,
    /// The last byte was acknowledged, or read.
    pub(crate) last_byte: Option<Time>,
    /// Both directions were closed.
    pub(crate) closed: Option<Time>,
    /// The connection failed.
    pub(crate) failed: Option<Time>,
}

impl Send {
    pub(crate) fn new(bytes: u64) -> Send {
        Send { bytes, written: 0, times: Times::default() }
    }
}

impl Application {
    /// Does what can be done now, but for [`Application::close`].
    pub(crate) fn act(&mut self, now: Time, endpoint: &mut Endpoint, dialogues: &mut Dialogues) {
        if matches!(endpoint.stage(), Stage::SynSent | Stage::SynReceived) {
            return;
        }
        match self {
            Application::Source(source) => source.act(now, endpoint),
            Application::Sink(sink) => sink.act(now, endpoint),
            Application::Send(send) => send.act(now, endpoint),
            Application::Receive(receive) => receive.act(now, endpoint),
            Application::Client(number) => dialogues.client(*number, now, endpoint),
            Application::Server(number) => dialogues.server(*number, now, endpoint),
        }
    }

    /// Ends its direction if that is due. Apart from [`Application::act`], as the calls are: what was
    /// written is on its way before the FIN is asked for.
    pub(crate) fn close(&self, endpoint: &mut Endpoint) -> bool {
        let due = match self {
            Application::Source(_) | Application::Sink(_) => false,
            // Connections end with what they were opened for.
            Application::Client(_) | Application::Server(_) => false,
            Application::Send(send) => send.times.connected.is_some() && send.written == send.bytes,
            Application::Receive(_) => endpoint.is_finished(),
        };
        if due {
            endpoint.close();
        }
        due
    }

    /// When things happened, for the ones that end.
    pub(crate) fn times(&self) -> Option<Times> {
        match self {
            Application::Source(_)
            | Application::Sink(_)
            | Application::Client(_)
            | Application::Server(_) => None,
            Application::Send(send) => Some(send.times),
            Application::Receive(receive) => Some(receive.times),
        }
    }
}

impl Times {
    fn note(&mut self, now: Time, endpoint: &Endpoint) {
        self.connected.get_or_insert(now);
        if matches!(endpoint.stage(), Stage::Failed(_)) {
            self.failed.get_or_insert(now);
        }
    }
}

impl Source {
    fn act(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.say -= endpoint.write(self.say);
        if self.hear > 0 {
            self.hear -= endpoint.read(now, self.hear);
        }
        if self.say == 0 && self.hear == 0 {
            endpoint.write(u64::MAX);
        }
    }
}

impl Sink {
    fn act(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.read += endpoint.read(now, u64::MAX);
        if self.read >= self.after {
            self.say -= endpoint.write(self.say);
        }
    }
}

impl Send {
    fn act(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.times.note(now, endpoint);
        self.written += endpoint.write(self.bytes - self.written);
        if endpoint.acknowledged() == self.bytes {
            self.times.last_byte.get_or_insert(now);
        }
        if self.times.last_byte.is_some() && endpoint.is_finished() {
            self.times.closed.get_or_insert(now);
        }
    }
}

impl Receive {
    fn act(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.times.note(now, endpoint);
        let read = endpoint.read(now, u64::MAX);
        if read > 0 {
            self.bytes += read;
            self.times.last_byte = Some(now);
        }
        if endpoint.is_finished() && endpoint.has_ended() {
            self.times.closed.get_or_insert(now);
        }
    }
}
