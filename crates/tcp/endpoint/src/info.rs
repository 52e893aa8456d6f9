use midspan_cc::State;
use midspan_units::{Rate, Span};

/// What `TCP_INFO` tells of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Payload of a full segment, bytes.
    pub mss: u32,
    /// Smoothed round-trip time; zero before the first sample.
    pub rtt: Span,
    /// Least round-trip time of the last five minutes; zero before the first sample.
    pub min_rtt: Span,
    /// Round trip of the peer that sends, as its data shows; zero before the first sample. With data that
    /// the peer did not have sooner it is longer.
    pub rcv_rtt: Span,
    /// Retransmission timeout.
    pub rto: Span,
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Slow start threshold, packets.
    pub ssthresh: u32,
    /// Where loss recovery stands.
    pub state: State,
    /// Packets in flight.
    pub in_flight: u32,
    /// Reordering metric, packets.
    pub reordering: u32,
    /// The rate that the congestion control asks for.
    pub pacing_rate: Option<Rate>,
    /// Rate of delivery over the last flight; none before the first sample.
    pub delivery_rate: Option<Rate>,
    /// Data segments sent, retransmissions included.
    pub data_segments: u64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// How long it had something to send or to have acknowledged, until it last had nothing (`tcpi_busy_time`).
    pub busy: Span,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// D-SACKs received.
    pub dsacks: u32,
    /// Times that reordering was seen.
    pub reorderings: u32,
    /// Bytes sent, each counted once.
    pub bytes_sent: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
}
