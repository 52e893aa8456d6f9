use core::net::IpAddr;
use std::collections::BTreeSet;

use ipnet::IpNet;
use midspan_units::Span;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::SHORTEST_PERIOD;

/// Who may ask for what. A peer is known by its certificate: by a DNS name in it, or by the
/// certificate's own SHA-256. Who is not here may do nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The peers.
    #[serde(default, rename = "peer")]
    pub peers: Vec<Peer>,
    /// SHA-256 of certificates that are no longer good, in hexadecimal, whoever signed them.
    #[serde(default)]
    pub revoked: BTreeSet<String>,
}

/// One peer and its rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// A DNS name of its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// SHA-256 of its certificate, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// What it may do.
    #[serde(flatten)]
    pub rights: Rights,
}

/// What a peer may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// UEs for which it may have feedback.
    #[serde(default)]
    pub may_ask: Vec<IpNet>,
    /// UEs whose number of flows it may report: a UE itself, as a rule.
    #[serde(default)]
    pub may_report: Vec<IpNet>,
    /// The shortest period of feedback that it gets, whatever it asks for.
    #[serde(default = "shortest_period")]
    pub shortest_period: Span,
}

impl Default for Rights {
    /// None at all.
    fn default() -> Self {
        Rights { may_ask: Vec::new(), may_report: Vec::new(), shortest_period: SHORTEST_PERIOD }
    }
}

fn shortest_period() -> Span {
    SHORTEST_PERIOD
}

impl Rights {
    /// Whether feedback for `ue` may be had.
    pub fn may_ask(&self, ue: IpAddr) -> bool {
        self.may_ask.iter().any(|prefix| prefix.contains(&ue))
    }

    /// Whether the flows of `ue` may be reported.
    pub fn may_report(&self, ue: IpAddr) -> bool {
        self.may_report.iter().any(|prefix| prefix.contains(&ue))
    }
}

/// The certificate is on the policy's list of revoked ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the certificate is revoked")]
pub struct Revoked;

/// A policy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A peer without a name and fingerprint, or with both.
    #[error("peer {0}: wanted either `name` or `fingerprint`")]
    Identity(usize),
    /// The same peer twice.
    #[error("`{0}` is there twice")]
    Twice(String),
    /// No SHA-256.
    #[error("`{0}` is not a SHA-256: wanted 64 hexadecimal digits")]
    Fingerprint(String),
    /// Shorter than any period that can be asked for.
    #[error("peer {0}: `shortest_period` must be between 10 ms and 500 ms")]
    Period(usize),
}

impl Policy {
    /// Checks what the types alone do not, and brings fingerprints into one form.
    ///
    /// # Errors
    /// The first thing that cannot be used. Peers are counted from 1.
    pub fn checked(mut self) -> Result<Policy, PolicyError> {
        let mut known = BTreeSet::new();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let identity = match (&peer.name, &mut peer.fingerprint) {
                (Some(name), None) => name.clone(),
                (None, Some(fingerprint)) => {
                    *fingerprint = canonical(fingerprint)?;
                    fingerprint.clone()
                }
                _ => return Err(PolicyError::Identity(index + 1)),
            };
            if !(SHORTEST_PERIOD..=crate::LONGEST_PERIOD).contains(&peer.rights.shortest_period) {
                return Err(PolicyError::Period(index + 1));
            }
            if !known.insert(identity.clone()) {
                return Err(PolicyError::Twice(identity));
            }
        }
        self.revoked = self.revoked.iter().map(|text| canonical(text)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// What the holder of a certificate may do; nothing if the policy does not know it.
    ///
    /// # Errors
    /// When the certificate is revoked: then there is nothing to talk about.
    pub fn rights<'a>(
        &self,
        fingerprint: &str,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<Rights, Revoked> {
        if self.revoked.contains(fingerprint) {
            return Err(Revoked);
        }
        let by_fingerprint =
            self.peers.iter().find(|peer| peer.fingerprint.as_deref() == Some(fingerprint));
        let mut by_name = || {
            names.find_map(|name| self.peers.iter().find(|peer| peer.name.as_deref() == Some(name)))
        };
        let peer = by_fingerprint.or_else(&mut by_name);
        Ok(peer.map(|peer| peer.rights.clone()).unwrap_or_default())
    }
}

/// Lower case, without the colons that other programs print.
fn canonical(text: &str) -> Result<String, PolicyError> {
    let digits: String = text.chars().filter(|c| *c != ':').collect::<String>().to_lowercase();
    let right = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if right { Ok(digits) } else { Err(PolicyError::Fingerprint(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, prefix: &str) -> Peer {
        let rights = Rights { may_ask: vec![prefix.parse().unwrap()], ..Rights::default() };
        Peer { name: Some(name.to_owned()), fingerprint: None, rights }
    }

    #[test]
    fn a_peer_may_what_its_certificate_is_listed_for() {
        let digest = "ab".repeat(32);
        let mut by_digest = peer("", "10.2.0.0/16");
        by_digest.name = None;
        by_digest.fingerprint = Some(digest.to_uppercase());
        let policy = Policy {
            peers: vec![peer("a.example", "10.1.0.0/16"), by_digest],
            ..Policy::default()
        };
        let policy = policy.checked().unwrap();
        let other = "cd".repeat(32);
        let rights =
            |fingerprint: &str, name: &str| policy.rights(fingerprint, [name].into_iter()).unwrap();
        let ue = "10.1.0.7".parse().unwrap();
        assert!(rights(&other, "a.example").may_ask(ue));
        assert!(!rights(&other, "a.example").may_ask("10.2.0.7".parse().unwrap()));
        assert!(!rights(&other, "a.example").may_report(ue));
        assert!(rights(&digest, "whoever").may_ask("10.2.0.7".parse().unwrap()));
        assert_eq!(rights(&other, "b.example"), Rights::default());
    }

    #[test]
    fn a_revoked_certificate_has_no_rights_under_any_name() {
        let digest = "ab".repeat(32);
        let colons = digest.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let colons = colons.collect::<Vec<_>>().join(":");
        let policy =
            Policy { peers: vec![peer("a.example", "10.1.0.0/16")], revoked: [colons].into() };
        let policy = policy.checked().unwrap();
        assert_eq!(policy.rights(&digest, ["a.example"].into_iter()), Err(Revoked));
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let check = |peers: Vec<Peer>| {
            Policy { peers, ..Policy::default() }.checked().unwrap_err().to_string()
        };
        let mut nobody = peer("", "::/0");
        nobody.name = None;
        assert_eq!(check(vec![nobody]), "peer 1: wanted either `name` or `fingerprint`");
        let twice = vec![peer("a", "::/0"), peer("a", "10.0.0.0/8")];
        assert_eq!(check(twice), "`a` is there twice");
        let mut short = peer("", "::/0");
        short.name = None;
        short.fingerprint = Some("abc".into());
        assert!(check(vec![short]).contains("is not a SHA-256"));
        let mut fast = peer("a", "::/0");
        fast.rights.shortest_period = Span::from_millis(1);
        assert!(check(vec![fast]).contains("shortest_period"));
    }
}
