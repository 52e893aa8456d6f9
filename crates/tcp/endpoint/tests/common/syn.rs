use midspan_tcp::Segment;

/// The SYN of a peer that is played by a script, with packets of 1000 bytes.
pub(crate) fn syn() -> Segment {
    Segment {
        syn: true,
        mss: 1000,
        window: 32_792,
        window_scale: 10,
        timestamps: (1, 0),
        sack_permitted: true,
        ..Segment::default()
    }
}
