//! The connections of this host, seen through the kernel's socket diagnostics.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_ccload::goes_by_feedback;
use midspan_sys::sockdiag::{TcpSocket, tcp_sockets};

/// How long after it last moved something a flow still shares its link.
const BUSY_MS: u32 = 1_000;

/// What this host's TCP connections say about UEs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Flows {
    /// UEs that there is a connection with, and how many of them are sending or have lately.
    pub(super) to: BTreeMap<IpAddr, u32>,
    /// Of those, the ones whose congestion control goes by feedback.
    pub(super) assisted: BTreeMap<IpAddr, u32>,
    /// This host's connections that are receiving or have lately, by inode.
    pub(super) receiving: BTreeSet<u32>,
}

impl Flows {
    /// Looks at all connections, for UEs in `ues`, and for this host's own address `me`.
    pub(super) fn look(ues: &[IpNet], me: Option<IpAddr>) -> io::Result<Flows> {
        Ok(Flows::of(&tcp_sockets()?, ues, me))
    }

    fn of(sockets: &[TcpSocket], ues: &[IpNet], me: Option<IpAddr>) -> Flows {
        let mut flows = Flows::default();
        for socket in sockets {
            let (local, remote) = (socket.local.ip(), socket.remote.ip());
            if ues.iter().any(|prefix| prefix.contains(&remote)) {
                let sending = socket.info.unacked > 0 || socket.info.last_data_sent < BUSY_MS;
                *flows.to.entry(remote).or_default() += u32::from(sending);
                if goes_by_feedback(&socket.congestion_control) {
                    *flows.assisted.entry(remote).or_default() += 1;
                }
            }
            if me == Some(local) && socket.info.last_data_recv < BUSY_MS {
                flows.receiving.insert(socket.inode);
            }
        }
        flows
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn flows_are_counted_by_ue_at_both_ends() {
        // An address of its own: other tests have connections too.
        let listener = TcpListener::bind("127.45.0.2:0").unwrap();
        let connect = || {
            let mut server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut ue, _) = listener.accept().unwrap();
            server.write_all(b"data").unwrap();
            ue.read_exact(&mut [0; 4]).unwrap();
            (server, ue)
        };
        let _pairs = [connect(), connect()];
        let ue: IpAddr = "127.45.0.2".parse().unwrap();
        let prefix = [IpNet::from(ue)];
        let flows = Flows::look(&prefix, Some(ue)).unwrap();
        assert_eq!((flows.to.get(&ue), flows.receiving.len()), (Some(&2), 2));
        assert_eq!(Flows::look(&[], None).unwrap(), Flows::default());
    }
}
