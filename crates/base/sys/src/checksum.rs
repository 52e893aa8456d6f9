//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// The one's complement sum of `bytes` as big-endian 16-bit words, folded to 16 bits and not
/// inverted. An odd last byte counts as if a zero byte followed.
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    fold(words + rest.first().map_or(0, |byte| u64::from(*byte) << 8))
}

/// The sum after a 16-bit word that was part of it changed from `old` to `new`.
pub fn replace(sum: u16, old: u16, new: u16) -> u16 {
    fold(u64::from(sum) + u64::from(!old) + u64::from(new))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0xab]), 0xab00);
    }

    proptest! {
        #[test]
        fn an_update_equals_a_new_sum(mut words in prop::collection::vec(1u16.., 1..40), new in 1u16..) {
            let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
            let before = sum(&bytes(&words));
            let old = std::mem::replace(&mut words[0], new);
            prop_assert_eq!(replace(before, old, new), sum(&bytes(&words)));
        }
    }
}
