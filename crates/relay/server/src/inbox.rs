//! Connections that workers leave to one another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_forward::{Accepted, Forward};

/// A connection that was taken, and whom it is passed on to, if it is.
pub(crate) type Handed = Box<(Accepted, Option<Arc<Forward>>)>;

/// Where it is left until the worker sees it, who must be woken for it; and closed by that worker when it ends, so that nothing
/// is left to nobody.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    waiting: Vec<Handed>,
    closed: bool,
}

impl Inbox {
    /// Leaves something, or gives it back if the worker has ended.
    pub(crate) fn leave(&self, one: Handed) -> Result<(), Handed> {
        let mut contents = self.lock();
        if contents.closed {
            return Err(one);
        }
        contents.waiting.push(one);
        Ok(())
    }

    pub(crate) fn take(&self) -> Vec<Handed> {
        std::mem::take(&mut self.lock().waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Closes it, unless something waits there.
    pub(crate) fn close(&self) -> bool {
        let mut contents = self.lock();
        contents.closed |= contents.waiting.is_empty();
        contents.closed
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use midspan_sockets::SynOptions;

    fn connection() -> Handed {
        let (socket, _other) = UnixStream::pair().unwrap();
        let (client, server) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
        let syn = SynOptions::default();
        let socket = OwnedFd::from(socket);
        let accepted = Accepted { socket, client, server, syn, mptcp: false, preface: None };
        Box::new((accepted, None))
    }

    #[test]
    fn it_is_closed_only_when_all_was_taken_and_then_takes_nothing() {
        let inbox = Inbox::default();
        inbox.leave(connection()).unwrap();
        assert!(!inbox.close());
        inbox.leave(connection()).unwrap();
        assert_eq!((inbox.len(), inbox.take().len(), inbox.len()), (2, 2, 0));
        assert!(inbox.close());
        assert!(inbox.leave(connection()).is_err());
        assert_eq!(inbox.len(), 0);
        assert!(inbox.close());
    }
}
