use std::fmt;
use std::ops::{Index, IndexMut};

/// One of a split flow's two TCP connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leg {
    /// To whoever opened the connection.
    Client,
    /// To whom the client wanted to reach.
    Server,
}

impl Leg {
    /// Both legs, the client's first.
    pub const BOTH: [Leg; 2] = [Leg::Client, Leg::Server];

    /// The leg across: what is read from one is written to the other.
    pub const fn other(self) -> Leg {
        match self {
            Leg::Client => Leg::Server,
            Leg::Server => Leg::Client,
        }
    }
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Leg::Client => "client",
            Leg::Server => "server",
        })
    }
}

/// One of something for each leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerLeg<T> {
    /// The client leg's.
    pub client: T,
    /// The server leg's.
    pub server: T,
}

impl<T> Index<Leg> for PerLeg<T> {
    type Output = T;

    fn index(&self, leg: Leg) -> &T {
        match leg {
            Leg::Client => &self.client,
            Leg::Server => &self.server,
        }
    }
}

impl<T> IndexMut<Leg> for PerLeg<T> {
    fn index_mut(&mut self, leg: Leg) -> &mut T {
        match leg {
            Leg::Client => &mut self.client,
            Leg::Server => &mut self.server,
        }
    }
}
