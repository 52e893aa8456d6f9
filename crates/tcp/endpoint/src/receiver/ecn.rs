//! Telling the sender what the network marked.

/// What ECN-Echo says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EcnEcho {
    /// ECN was negotiated.
    pub(crate) enabled: bool,
    /// Each acknowledgement tells of the packets that it acknowledges (DCTCP, RFC 8257, 3.2), not
    /// until the sender has answered (RFC 3168, 6.1.3).
    pub(crate) exact: bool,
    echo: bool,
}

/// What to do about an acknowledgement that is still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hurry {
    /// Nothing.
    No,
    /// The sender should learn soon.
    Soon,
    /// What came before must be acknowledged at once, as it was marked differently.
    Before,
}

impl EcnEcho {
    /// A data packet came, marked (`ce`) or not; `cwr`: the sender says that it has reacted.
    pub(crate) fn packet(&mut self, ce: bool, cwr: bool) -> Hurry {
        if !self.enabled {
            return Hurry::No;
        }
        if self.exact {
            return if self.echo == ce { Hurry::No } else { Hurry::Before };
        }
        if cwr {
            self.echo = false;
        }
        let new = ce && !self.echo;
        self.echo |= ce;
        if new { Hurry::Soon } else { Hurry::No }
    }

    /// DCTCP: from now on acknowledgements say `ce`.
    pub(crate) fn set(&mut self, ce: bool) {
        self.echo = ce;
    }

    /// Whether the next acknowledgement bears ECN-Echo.
    pub(crate) fn echo(&self) -> bool {
        self.enabled && self.echo
    }
}
