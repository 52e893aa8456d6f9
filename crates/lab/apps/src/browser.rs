//! A web browser: which object of a page is asked for when, and on which connection.

use std::collections::VecDeque;

use midspan_scenario::Page;
use midspan_units::{Span, Time};

/// What the browser wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Open a connection; connections are numbered in the order of these.
    Open,
    /// Ask for an object on a connection. Object 0 is the document.
    Ask {
        /// The connection's number.
        connection: usize,
        /// The object's number.
        object: usize,
        /// Bytes of the object.
        answer: u64,
    },
}

/// Loads one page. After each call take all that [`Browser::poll`] gives.
///
/// What a document embeds is found as it arrives, spread evenly over it. A server's name is looked up
/// when the first of its objects is found, and connections are opened from then on. An object goes to an
/// idle connection; if there is none to a new one, while there may be more; else behind another
/// request, if pipelining allows it, where the fewest wait.
#[derive(Debug)]
pub struct Browser {
    /// Connections to one server, at most.
    connections_most: usize,
    /// Requests under way on one connection, at most.
    pipelining: usize,
    lookup: Span,
    /// The document, then what it embeds, in its order.
    objects: Vec<Object>,
    /// Objects found so far: the document has told of them.
    found: usize,
    /// For each server: when its name is known; none before anything of it is found.
    known: Vec<Option<Time>>,
    /// For each server: objects found and not asked for.
    waiting: Vec<VecDeque<usize>>,
    connections: Vec<Connection>,
    /// Objects that came whole.
    done: usize,
}

#[derive(Debug, Clone, Copy)]
struct Object {
    /// Server, counted from the document's.
    server: usize,
    /// Bytes.
    bytes: u64,
    asked: Option<Time>,
    had: Option<Time>,
}

#[derive(Debug)]
struct Connection {
    server: usize,
    open: bool,
    /// Objects asked for, and bytes of the first of them that have come.
    asked: VecDeque<usize>,
    read: u64,
}

impl Browser {
    /// Begins to load `page` at `now`.
    pub fn new(page: &Page, now: Time) -> Browser {
        let objects = objects(page);
        let servers = objects.iter().map(|object| object.server + 1).max().unwrap_or(0);
        let mut browser = Browser {
            connections_most: page.connections as usize,
            pipelining: page.pipelining as usize,
            lookup: page.lookup,
            objects,
            found: 0,
            known: vec![None; servers],
            waiting: vec![VecDeque::new(); servers],
            connections: Vec::new(),
            done: 0,
        };
        browser.find(now, 1);
        browser
    }

    /// Everything up to object `upto` is found.
    fn find(&mut self, now: Time, upto: usize) {
        while self.found < upto {
            let server = self.objects[self.found].server;
            self.known[server].get_or_insert(now + self.lookup);
            self.waiting[server].push_back(self.found);
            self.found += 1;
        }
    }

    /// A connection is open.
    pub fn opened(&mut self, connection: usize) {
        self.connections[connection].open = true;
    }

    /// So many bytes of objects came on a connection.
    pub fn received(&mut self, now: Time, connection: usize, bytes: u64) {
        self.connections[connection].read += bytes;
        while let Some(&object) = self.connections[connection].asked.front() {
            let size = self.objects[object].bytes;
            let read = self.connections[connection].read;
            if object == 0 {
                // What stands in the part of the document that is here.
                let embedded = (self.objects.len() - 1) as u128;
                let found = embedded * u128::from(read.min(size)) / u128::from(size);
                self.find(now, 1 + found as usize);
            }
            if read < size {
                return;
            }
            self.objects[object].had = Some(now);
            let connection = &mut self.connections[connection];
            connection.read -= size;
            connection.asked.pop_front();
            self.done += 1;
        }
    }

    /// The next thing to do at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Order> {
        (0..self.known.len()).find_map(|server| self.poll_server(now, server))
    }

    fn poll_server(&mut self, now: Time, server: usize) -> Option<Order> {
        self.known[server].filter(|at| *at <= now)?;
        let &object = self.waiting[server].front()?;
        let of_server = || self.connections.iter().filter(|connection| connection.server == server);
        let open = of_server().filter(|connection| connection.open);
        let least = open.map(|connection| connection.asked.len()).min();
        let opening = of_server().filter(|connection| !connection.open).count();
        if least != Some(0) && of_server().count() < self.connections_most {
            // One for each object that waits, and no more.
            if opening >= self.waiting[server].len() {
                return None;
            }
            self.connections.push(Connection {
                server,
                open: false,
                asked: VecDeque::new(),
                read: 0,
            });
            return Some(Order::Open);
        }
        // Those that are still being opened will be idle.
        let most = if opening > 0 { 1 } else { self.pipelining };
        let least = least.filter(|least| *least < most)?;
        let connection = self.connections.iter().position(|connection| {
            connection.server == server && connection.open && connection.asked.len() == least
        })?;
        self.waiting[server].pop_front();
        self.connections[connection].asked.push_back(object);
        self.objects[object].asked = Some(now);
        Some(Order::Ask { connection, object, answer: self.objects[object].bytes })
    }

    /// When to ask again although nothing came: a name is known then.
    pub fn wakeup(&self, now: Time) -> Option<Time> {
        self.known.iter().flatten().copied().filter(|at| *at > now).min()
    }

    /// Whether the page is there, all of it.
    pub fn is_done(&self) -> bool {
        self.done == self.objects.len()
    }

    /// When each object was asked for and when it was there, the document's first. Of a page that
    /// is not done, those that are there.
    pub fn times(&self) -> impl Iterator<Item = (Time, Time)> {
        self.objects.iter().filter_map(|object| Some((object.asked?, object.had?)))
    }
}

/// The objects of a page, the document first.
fn objects(page: &Page) -> Vec<Object> {
    let object = |server, bytes| Object { server, bytes, asked: None, had: None };
    let mut objects = vec![object(0, page.document.as_bytes())];
    let mut servers = 1;
    for kind in &page.objects {
        let count = kind.servers as usize;
        objects.extend(kind.sizes().enumerate().map(|(index, size)| {
            let server = if count == 0 { 0 } else { servers + index % count };
            object(server, size.as_bytes())
        }));
        servers += count;
    }
    objects
}

#[cfg(test)]
mod tests {
    use midspan_scenario::{Cross, Objects};
    use midspan_units::ByteSize;
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn page(objects: u32, servers: u32, connections: u32, pipelining: u32) -> Page {
        let size = ByteSize::from_bytes;
        let kind = Objects { count: objects, least: size(100), most: size(100), servers };
        Page {
            document: size(1000),
            objects: vec![kind],
            connections,
            pipelining,
            request: size(500),
            lookup: Span::from_millis(20),
            count: 1,
            limit: Span::from_secs(60),
            cross: Cross::default(),
        }
    }

    fn browser(page: &Page) -> Browser {
        Browser::new(page, at(0))
    }

    fn orders(browser: &mut Browser, now: Time) -> Vec<Order> {
        std::iter::from_fn(|| browser.poll(now)).collect()
    }

    fn ask(connection: usize, object: usize) -> Order {
        let answer = if object == 0 { 1000 } else { 100 };
        Order::Ask { connection, object, answer }
    }

    #[test]
    fn the_document_first_and_what_it_embeds_as_it_arrives() {
        let mut browser = browser(&page(4, 0, 2, 1));
        assert_eq!(orders(&mut browser, at(0)), [], "its name is not known");
        assert_eq!(browser.wakeup(at(0)), Some(at(20)));
        assert_eq!(orders(&mut browser, at(20)), [Order::Open]);
        browser.opened(0);
        assert_eq!(orders(&mut browser, at(30)), [ask(0, 0)]);
        browser.received(at(40), 0, 499);
        // One of four objects stands in the first half, and the connection is busy.
        assert_eq!(orders(&mut browser, at(40)), [Order::Open]);
        browser.opened(1);
        assert_eq!(orders(&mut browser, at(50)), [ask(1, 1)]);
        browser.received(at(60), 0, 501);
        assert_eq!(orders(&mut browser, at(60)), [ask(0, 2)]);
        browser.received(at(70), 1, 100);
        browser.received(at(70), 0, 100);
        assert_eq!(orders(&mut browser, at(70)), [ask(0, 3), ask(1, 4)]);
        browser.received(at(80), 0, 100);
        assert!(!browser.is_done());
        browser.received(at(80), 1, 100);
        assert!(browser.is_done());
        let times: Vec<_> = browser.times().collect();
        assert_eq!(times[0], (at(30), at(60)));
        assert_eq!(times[1], (at(50), at(70)));
    }

    #[test]
    fn requests_wait_behind_others_only_where_pipelining_allows_it() {
        for (pipelining, asked) in [(1, 1), (2, 2), (8, 3)] {
            let mut browser = browser(&page(3, 0, 1, pipelining));
            orders(&mut browser, at(20));
            browser.opened(0);
            orders(&mut browser, at(20));
            browser.received(at(30), 0, 1000);
            assert_eq!(
                orders(&mut browser, at(30)),
                (1..=asked).map(|object| ask(0, object)).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn each_server_is_looked_up_and_has_connections_of_its_own() {
        let mut browser = browser(&page(4, 2, 1, 1));
        orders(&mut browser, at(20));
        browser.opened(0);
        orders(&mut browser, at(20));
        browser.received(at(30), 0, 1000);
        assert_eq!(orders(&mut browser, at(30)), []);
        assert_eq!(browser.wakeup(at(30)), Some(at(50)));
        assert_eq!(orders(&mut browser, at(50)), [Order::Open, Order::Open]);
    }

    proptest! {
        /// Whatever arrives in whatever parts: every object is asked for once, on a connection to its
        /// server, of which there are never more than allowed, and the page ends.
        #[test]
        fn a_page_ends(
            count in 0u32..40, servers in 0u32..4, connections in 1u32..7, pipelining in 1u32..5,
            parts in prop::collection::vec((any::<prop::sample::Index>(), 1u64..700), 2000),
        ) {
            let page = page(count, servers, connections, pipelining);
            let mut browser = browser(&page);
            let (mut now, mut asked, mut due) = (at(0), 0, Vec::<u64>::new());
            for (which, most) in parts {
                for order in orders(&mut browser, now) {
                    match order {
                        Order::Open => due.push(0),
                        Order::Ask { connection, answer, .. } => {
                            due[connection] += answer;
                            asked += 1;
                        }
                    }
                }
                let busy: Vec<usize> = (0..due.len())
                    .filter(|index| due[*index] > 0 || !browser.connections[*index].open)
                    .collect();
                prop_assert!(due.len() as u32 <= connections * (servers + 1));
                if busy.is_empty() {
                    let Some(at) = browser.wakeup(now) else { break };
                    now = at;
                    continue;
                }
                let connection = *which.get(&busy);
                if browser.connections[connection].open {
                    let bytes = most.min(due[connection]);
                    due[connection] -= bytes;
                    browser.received(now, connection, bytes);
                } else {
                    browser.opened(connection);
                }
            }
            prop_assert!(browser.is_done());
            prop_assert_eq!(asked, count + 1);
        }
    }
}
