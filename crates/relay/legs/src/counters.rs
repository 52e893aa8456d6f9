//! What workers count.

use midspan_observe::Count;
use serde::Serialize;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// One worker's counts.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Count,)+
        }

        /// What the relay has done so far, all workers together.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
        pub struct Snapshot {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Snapshot {
            /// What all of these have counted together.
            pub fn sum<'a>(counters: impl Iterator<Item = &'a Counters>) -> Snapshot {
                let mut sum = Snapshot::default();
                for one in counters {
                    $(sum.$name += one.$name.get();)+
                }
                sum
            }

            /// Every count with its name, in the order of documentation.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// The same, each with what it counts.
            pub fn described(
                &self,
            ) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                let all = [$((stringify!($name), concat!($($doc),+).trim_ascii(), self.$name),)+];
                all.into_iter()
            }
        }
    };
}

counters! {
    /// Flows taken.
    accepted,
    /// Flows open now.
    active,
    /// Flows that ended in order, both directions.
    closed,
    /// Connections that a worker with too many flows has left to one with fewer.
    handed_over,
    /// Connections of the relay's own, made to prove that they arrive.
    probes,
    /// Connections refused: made straight to the relay's own port.
    refused_direct,
    /// Connections refused: the client is in none of the configured prefixes.
    refused_client,
    /// Connections refused: as many flows are open as the limit allows.
    refused_flows,
    /// Connections refused: as many flows of that client are open as the limit allows.
    refused_flows_per_client,
    /// Connections refused: the limit of buffered bytes is reached.
    refused_buffered,
    /// Connections refused: the system has no descriptor left for their server leg.
    refused_descriptors,
    /// Connections refused: not from a proxy that may tell whose they are, where one must.
    refused_proxy,
    /// Connections refused: without a PROXY protocol header, or with one that did not come in time.
    refused_header,
    /// Connections refused: the kernel had no memory for them, or their socket failed at once.
    refused_errors,
    /// Flows whose server refused or could not be reached; the client was reset.
    connect_failed,
    /// Flows whose server did not answer in time; the client was reset.
    connect_timed_out,
    /// Connects that a server has left unanswered for seconds; its prefix then passes for a minute, to see
    /// whether its answers come by another way.
    doubts,
    /// Connects that waited for the client's port, which a former connection to the server still had.
    port_waits,
    /// Connections to servers that began with more packets than the kernel's, as earlier ones had shown the way to take them.
    wider_windows,
    /// Flows whose client reset, or whose client leg failed; the server was reset.
    reset_by_client,
    /// Flows whose server reset, or whose server leg failed; the client was reset.
    reset_by_server,
    /// Flows reset on both sides because no payload had crossed for `limits.idle`.
    idle,
    /// Flows reset on both sides because one end had finished and no payload had crossed for
    /// `limits.half_closed`.
    half_closed,
    /// Flows reset on both sides because the relay stopped.
    stopped,
    /// Flows reset on both sides because their accounts did not add up: a fault of the relay.
    inconsistent,
    /// Legs whose peer sent urgent data, which is delivered in line.
    urgent,
    /// Flows whose client's connection is MPTCP.
    mptcp,
    /// Flows whose client sent data with its SYN, where `fast_open` allows it.
    fast_open_accepted,
    /// Flows whose first data went to the server with the SYN.
    fast_open_sent,
    /// Flows whose client offered MPTCP, and got TCP.
    declined_mptcp,
    /// Flows whose client asked for TCP Fast Open, or tried it, in vain.
    declined_fast_open,
    /// Flows whose client offered another TCP option that the relay does not carry.
    declined_options,
    /// Bytes read from clients.
    bytes_from_client,
    /// Bytes given to servers.
    bytes_to_server,
    /// Bytes read from servers.
    bytes_from_server,
    /// Bytes given to clients.
    bytes_to_client,
    /// Times a direction went from copying to splicing.
    splice_promotions,
    /// Times a direction that should splice got no pipe and went on copying.
    pipes_refused,
    /// Times a direction had to wait for a buffer because all that are allowed were in use.
    buffer_waits,
    /// Buffers and pipes in use now, in bytes.
    buffered,
    /// Pipes open now, lent or kept for the next who asks.
    pipes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_the_sum_of_the_workers() {
        let workers = [Counters::default(), Counters::default()];
        workers[0].accepted.add(2);
        workers[1].accepted.add(3);
        let sum = Snapshot::sum(workers.iter());
        assert_eq!(sum.accepted, 5);
        assert_eq!(sum.entries().next(), Some(("accepted", 5)));
    }

    #[test]
    fn whatever_is_counted_is_told_in_a_line() {
        for (name, help, _) in Snapshot::default().described() {
            assert!(!help.is_empty() && !help.contains('\n'), "{name}");
        }
    }
}
