//! The deferred accept over a model of clients, servers and time: each SYN goes on once, to the relay only where its server
//! has answered; each connection is its client's or is closed in time, and nothing is left.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use midspan_split::{Asking, ConnectAttempt, DeferredAccept, Ends, Key};
use midspan_units::{Span, Time};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A SYN of one of the clients is held, whose port is in use for so many tries; with so many that may be asked.
    Syn(u16, u8, usize),
    /// To one of the connections.
    Answer(usize),
    Refuse(usize),
    /// The worker hears of it.
    Hear,
    /// A client comes.
    Come(u16),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tries = prop_oneof![4 => Just(0u8), 1 => 1u8..20, 1 => Just(u8::MAX)];
    let wait = prop_oneof![3 => 1u64..5, 2 => 5u64..200, 1 => 200u64..4_000];
    let step = prop_oneof![
        6 => (0u16..4, tries, prop_oneof![5 => Just(9usize), 1 => 0usize..3])
            .prop_map(|(a, b, c)| Step::Syn(a, b, c)),
        4 => any::<usize>().prop_map(Step::Answer),
        2 => any::<usize>().prop_map(Step::Refuse),
        6 => Just(Step::Hear),
        3 => (0u16..4).prop_map(Step::Come),
        6 => wait.prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..200)
}

#[derive(Debug)]
struct Syn {
    number: usize,
    client: u16,
    came: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    ConnectAttempt,
    Connected,
    Refused,
    Closed,
}

/// A connection to a server, which is closed when this is dropped.
#[derive(Debug)]
struct Connection {
    number: usize,
    states: Rc<RefCell<Vec<State>>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.states.borrow_mut()[self.number] = State::Closed;
    }
}

#[derive(Debug, Default)]
struct Net {
    now: Time,
    states: Rc<RefCell<Vec<State>>>,
    keys: Vec<Key>,
    /// Whose each connection is.
    clients: Vec<u16>,
    /// Clients whose port is in use, and for how many tries.
    in_use: HashMap<u16, u8>,
    /// SYNs that went on: whose, which, when it came, whether its server has answered.
    gone: Vec<(Syn, bool)>,
}

fn ends(client: u16) -> Ends {
    (SocketAddr::from(([192, 0, 2, 1], client)), SocketAddr::from(([198, 51, 100, 1], 443)))
}

impl Asking for Net {
    type Syn = Syn;
    type Connection = Connection;

    fn ends(syn: &Syn) -> Ends {
        ends(syn.client)
    }

    fn ask(&mut self, key: Key, syn: &Syn) -> ConnectAttempt<Connection> {
        match self.in_use.get_mut(&syn.client) {
            Some(&mut u8::MAX) => return ConnectAttempt::PortInUse,
            Some(tries) if *tries > 0 => {
                *tries -= 1;
                return ConnectAttempt::PortInUse;
            }
            _ => {}
        }
        let number = self.keys.len();
        self.keys.push(key);
        self.clients.push(syn.client);
        self.states.borrow_mut().push(State::ConnectAttempt);
        ConnectAttempt::Begun(Connection { number, states: self.states.clone() })
    }

    fn is_connected(&mut self, connection: &Connection) -> bool {
        self.states.borrow()[connection.number] == State::Connected
    }

    fn send_on(&mut self, syn: Syn, answered: bool) {
        let is_asked = |&state: &State| state == State::ConnectAttempt || state == State::Refused;
        let in_the_way = self
            .states
            .borrow()
            .iter()
            .zip(&self.clients)
            .any(|(state, &client)| is_asked(state) && client == syn.client);
        assert!(answered || !in_the_way, "its own connection would have the same ports");
        self.gone.push((syn, answered));
    }
}

#[derive(Default)]
struct Model {
    held: DeferredAccept<Net>,
    net: Net,
    came: usize,
    /// The SYN of each client that has not gone on, its number, and when it came.
    waiting: HashMap<u16, (usize, Time)>,
    /// Since when a client whose SYN has gone on to the relay has a connection.
    answered: HashMap<u16, Time>,
}

impl Model {
    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        let Model { held, net, .. } = self;
        let now = net.now;
        match step {
            Step::Syn(client, tries, most) => {
                net.in_use.insert(client, tries);
                let number = self.came;
                self.came += 1;
                // One that came before goes nowhere.
                self.waiting.insert(client, (number, now));
                let before = held.len();
                held.hold(Syn { number, client, came: now }, most, now, net);
                prop_assert!(held.len() <= before.max(most), "more are asked than may be");
            }
            Step::Answer(which) => self.turn(which, State::Connected),
            Step::Refuse(which) => self.turn(which, State::Refused),
            Step::Hear => {
                for number in 0..net.keys.len() {
                    let state = net.states.borrow()[number];
                    if matches!(state, State::Connected | State::Refused) {
                        held.event(net.keys[number], now, net);
                    }
                }
            }
            Step::Come(client) => {
                if let Some(connection) = held.claim(&ends(client)) {
                    let state = net.states.borrow()[connection.number];
                    prop_assert_eq!(state, State::Connected);
                    prop_assert!(self.answered.remove(&client).is_some(), "it is nobody's");
                }
            }
            Step::Wait(millis) => {
                net.now += Span::from_millis(millis);
                held.run_timers(net.now, net);
            }
        }
        self.check()
    }

    /// What is asked is told once.
    fn turn(&mut self, which: usize, to: State) {
        let mut states = self.net.states.borrow_mut();
        let count = states.len().max(1);
        if let Some(state) = states.get_mut(which % count)
            && *state == State::ConnectAttempt
        {
            *state = to;
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let now = self.net.now;
        for (syn, answered) in std::mem::take(&mut self.net.gone) {
            let waiting = self.waiting.remove(&syn.client);
            prop_assert_eq!(waiting, Some((syn.number, syn.came)), "a SYN goes on twice");
            if answered {
                let since = self.answered.entry(syn.client).or_insert(now);
                prop_assert!(now < *since + Span::from_millis(150) || *since == now);
            }
        }
        // Nobody is told that its server is there, and finds none, but one that comes too late.
        self.answered.retain(|_, since| now < *since + Span::from_millis(150));
        let states = self.net.states.borrow();
        let open = states.iter().filter(|&&state| state != State::Closed).count();
        prop_assert!(open <= self.held.len(), "a connection is left to nobody");
        let due = self.held.poll_timeout();
        let in_time = due.is_some_and(|due| due <= now + Span::from_secs(3));
        prop_assert!(in_time || self.waiting.is_empty(), "a SYN is forgotten");
        prop_assert!(due.is_some() || self.held.is_empty() && self.waiting.is_empty());
        Ok(())
    }
}

proptest! {
    #[test]
    fn each_syn_goes_on_once_and_nothing_is_left(steps in steps()) {
        let mut model = Model::default();
        for step in steps {
            model.apply(step)?;
        }
        // The worker is called when it has said.
        for _ in 0..10_000 {
            let Some(due) = model.held.poll_timeout() else { break };
            model.net.now = model.net.now.max(due);
            model.held.run_timers(model.net.now, &mut model.net);
            model.check()?;
        }
        prop_assert!(model.held.is_empty() && model.waiting.is_empty());
        let states = model.net.states.borrow();
        prop_assert!(states.iter().all(|&state| state == State::Closed));
    }
}

/// What a client may see: its server's answer, its refusal, its silence; and a SYN that is sent again before any.
#[test]
fn a_client_sees_what_its_server_does() {
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let syn = |number, came| Syn { number, client: 1, came: at(came) };
    let mut net = Net::default();
    let mut held = DeferredAccept::default();
    let last = |net: &Net| net.gone.last().map(|&(ref syn, answered)| (syn.number, answered));

    held.hold(syn(0, 0), 9, at(0), &mut net);
    assert_eq!((last(&net), held.poll_timeout()), (None, Some(at(3_000))));
    net.states.borrow_mut()[0] = State::Connected;
    held.event(net.keys[0], at(20), &mut net);
    assert_eq!(last(&net), Some((0, true)));
    assert!(held.claim(&ends(1)).is_some() && held.claim(&ends(1)).is_none());

    held.hold(syn(1, 100), 9, at(100), &mut net);
    net.states.borrow_mut()[1] = State::Refused;
    held.event(net.keys[1], at(120), &mut net);
    assert_eq!(last(&net), Some((1, false)));

    held.hold(syn(2, 200), 9, at(200), &mut net);
    held.hold(syn(3, 1_200), 9, at(1_200), &mut net);
    assert_eq!((last(&net), net.states.borrow()[2]), (Some((3, false)), State::Closed));

    held.hold(syn(4, 2_000), 9, at(2_000), &mut net);
    held.run_timers(at(4_999), &mut net);
    assert_eq!(last(&net), Some((3, false)));
    held.run_timers(at(5_000), &mut net);
    assert_eq!(last(&net), Some((4, false)));

    held.hold(syn(5, 6_000), 0, at(6_000), &mut net);
    assert_eq!(last(&net), Some((5, false)));
    assert!(held.is_empty());
}
