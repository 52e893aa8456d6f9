//! What reads records of the BPF program, and may otherwise not be called from outside.

/// Reads the record of an ended connection.
pub fn flow_record(bytes: &[u8]) {
    if let Some(record) = crate::account::parse(bytes) {
        assert!(record.verdict.label().is_ascii());
    }
}
