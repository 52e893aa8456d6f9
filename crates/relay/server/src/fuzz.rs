//! What reads bytes from outside, and may otherwise not be called from there.

use midspan_sockets::Opening;
use midspan_split::proxy_protocol::{self, LONGEST, ProxyVersion};

/// Reads the header of a PROXY protocol that `bytes` begin with. Whatever they are, the same bytes mean the same
/// however they were cut on their way, and what was understood is understood again once written.
pub fn proxy_header(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let Ok(Some(header)) = proxy_protocol::parse(bytes) else { return };
    assert!(header.length <= bytes.len());
    assert_eq!(proxy_protocol::parse(&bytes[..header.length]), Ok(Some(header)));
    for part in 1..header.length {
        assert_eq!(proxy_protocol::parse(&bytes[..part]), Ok(None), "the first {part} bytes");
    }
    let Some(ends) = header.ends else { return };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let written = ends.header(version);
        let again = proxy_protocol::parse(&written).unwrap().unwrap();
        assert_eq!((again.length, again.ends), (written.len(), Some(ends)));
    }
}

/// Reads the headers of a SYN as the kernel has kept them. What is cut short promises no more than the whole.
pub fn syn(headers: &[u8]) {
    let whole = Opening::of(headers);
    if let Some(part) = headers.len().checked_sub(1).map(|most| Opening::of(&headers[..most])) {
        let unknown = part == Opening::default();
        assert!(unknown || part.server.is_none() || part.server == whole.server);
    }
}
