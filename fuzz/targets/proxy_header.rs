//! The header of a PROXY protocol that bytes begin with. Whatever they are, the same bytes mean the same however they were
//! cut on their way, and what was understood is understood again once written.
#![no_main]

use midspan_split::proxy_protocol::{self, LONGEST, ProxyVersion};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
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
});
