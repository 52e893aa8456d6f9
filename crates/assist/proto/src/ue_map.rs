use core::net::IpAddr;
use std::collections::BTreeMap;

use thiserror::Error;

use crate::feedback::{address, address_bytes};

/// The name that a base station gives a UE while it is connected: a Radio Network Temporary
/// Identifier. It says nothing outside the cell, and is used again for others.
pub type Rnti = u32;

/// Which address has which RNTI at one base station. One address has one RNTI and one RNTI one
/// address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UeMap {
    addresses: BTreeMap<Rnti, IpAddr>,
}

/// A mapping that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UeMapError {
    /// A line that is not an RNTI and an address.
    #[error("line {line}: `{text}` is not RNTI,ADDRESS such as `70,10.45.0.2` or `0x4601,fd00::2`")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// An RNTI or an address that an earlier line has.
    #[error("line {line}: `{text}` is there twice")]
    Twice {
        /// Counted from 1.
        line: usize,
        /// Which.
        text: String,
    },
}

impl UeMap {
    /// Reads one `RNTI,ADDRESS` a line; `#` begins a comment.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<UeMap, UeMapError> {
        let mut map = UeMap::default();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let (rnti, address) = parse_line(content).ok_or_else(|| UeMapError::Line {
                line: line_number,
                text: content.chars().take(40).collect(),
            })?;
            let twice = |text: String| UeMapError::Twice { line: line_number, text };
            if map.addresses.values().any(|known| *known == address) {
                return Err(twice(address.to_string()));
            }
            if map.addresses.insert(rnti, address).is_some() {
                return Err(twice(rnti.to_string()));
            }
        }
        Ok(map)
    }

    /// The address of the UE that the base station calls `rnti`.
    pub fn address(&self, rnti: Rnti) -> Option<IpAddr> {
        self.addresses.get(&rnti).copied()
    }

    /// From now on `rnti` is `address`, and nothing else is either. True if that was news.
    pub fn set(&mut self, rnti: Rnti, address: IpAddr) -> bool {
        if self.address(rnti) == Some(address) {
            return false;
        }
        self.addresses.retain(|_, known| *known != address);
        self.addresses.insert(rnti, address);
        true
    }

    /// `rnti` is nobody's any more. True if it was somebody's.
    pub fn remove(&mut self, rnti: Rnti) -> bool {
        self.addresses.remove(&rnti).is_some()
    }

    /// All, by RNTI.
    pub fn iter(&self) -> impl Iterator<Item = (Rnti, IpAddr)> {
        self.addresses.iter().map(|(rnti, address)| (*rnti, *address))
    }
}

fn parse_line(line: &str) -> Option<(Rnti, IpAddr)> {
    let (rnti, ue) = line.split_once(',')?;
    let rnti = match rnti.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => rnti.trim().parse().ok()?,
    };
    Some((rnti, address(address_bytes(ue.trim().parse().ok()?))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimal_and_hexadecimal_rntis() {
        let map =
            UeMap::parse("# our cell\n70, 10.45.0.2\n\n0x4601,fd00::2 # the other\n").unwrap();
        assert_eq!(map.address(70), "10.45.0.2".parse().ok());
        assert_eq!(map.address(0x4601), "fd00::2".parse().ok());
        assert_eq!(map.address(71), None);
    }

    #[test]
    fn refusals_name_the_line() {
        let refusal = |text: &str| UeMap::parse(text).unwrap_err().to_string();
        assert!(refusal("70,10.0.0.1\nseventy,10.0.0.2").starts_with("line 2: `seventy,10.0.0.2`"));
        assert!(refusal("70 10.0.0.1").starts_with("line 1"));
        assert!(refusal("70,0.0.0.0").starts_with("line 1"));
        assert_eq!(refusal("70,10.0.0.1\n70,10.0.0.2"), "line 2: `70` is there twice");
        assert_eq!(refusal("70,10.0.0.1\n71,10.0.0.1"), "line 2: `10.0.0.1` is there twice");
    }

    #[test]
    fn a_ue_that_comes_back_under_another_rnti_leaves_the_old_one() {
        let mut map = UeMap::parse("70,10.0.0.1").unwrap();
        assert!(map.set(71, "10.0.0.1".parse().unwrap()));
        assert!(!map.set(71, "10.0.0.1".parse().unwrap()));
        assert_eq!(map.address(70), None);
        assert!(map.remove(71) && !map.remove(71));
    }
}
