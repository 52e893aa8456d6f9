//! One leg's sockets.

use std::fmt;

use midspan_split::{FirstWindows, defaults};
use midspan_units::{ByteSize, Rate, Span};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One leg's sockets. What is absent is left to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LegConfig {
    /// `TCP_CONGESTION`, such as `cubic`. Absent: the kernel's; but on the client's leg `ms_radio`, where
    /// `clients` are intercepted and the relay may bring it (docs/reference/congestion-control.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Nobody has named that one, so the kernel's will do where it is gone.
    #[serde(skip)]
    pub is_control_by_default: bool,
    /// `SO_RCVBUF`. Absent: the kernel tunes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<ByteSize>,
    /// `SO_SNDBUF`. Absent: the kernel tunes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<ByteSize>,
    /// `TCP_NOTSENT_LOWAT`: unsent bytes above which the socket takes no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notsent_lowat: Option<ByteSize>,
    /// How long a connection may be idle before its peer is asked whether it is still there, and
    /// how long between such probes. Peers' own probes end at the relay, so it must ask in their
    /// stead. Absent: as `net.ipv4.tcp_keepalive_time` says, two hours unless changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Span>,
    /// `TCP_USER_TIMEOUT` (RFC 5482): how long what was sent may go unacknowledged, and probes
    /// unanswered, before the connection counts as dead. Absent: as `net.ipv4.tcp_retries2` says,
    /// some 15 minutes unless changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<Span>,
    /// `TCP_MAXSEG`: the largest segment in bytes that is announced to the peer (the MSS option of
    /// RFC 9293, 3.7.1), and the largest that is sent. Absent: what the link's MTU allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_segment: Option<u16>,
    /// `SO_MAX_PACING_RATE`: the most that one connection sends, which it then paces. Absent: no
    /// limit, and pacing as the congestion control asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pacing_rate: Option<Rate>,
    /// The code point (RFC 2474) of packets sent on this leg.
    #[serde(default, skip_serializing_if = "Dscp::is_copied")]
    pub dscp: Dscp,
    /// The initial window (RFC 6928) in packets: of every connection to a server, or of one to a client that has no other
    /// that is busy. Absent: the route's, or the kernel's; to a server more, where earlier connections have shown that the
    /// way takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// On the client's leg: the same of one beside others that are busy, if it would not be smaller anyway. Absent:
    /// [`defaults::WINDOW_BESIDE`] where `clients` are intercepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_window_beside: Option<u32>,
    /// On the client's leg: how far the receive window may open before the kernel has seen how fast what comes is read,
    /// from where it tunes the buffer on. Absent: [`defaults::CLIENT_LEG_RECEIVE_WINDOW`] where `clients` are intercepted;
    /// else the kernel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_receive_window: Option<ByteSize>,
    /// On the client's leg: least retransmission timeout (RFC 6298, 2.4), from Linux 6.11 on. Absent: where `clients` are
    /// intercepted [`defaults::CLIENT_LEG_RTO_MIN`], unless the host has another than Linux's; else the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rto_min: Option<Span>,
}

impl LegConfig {
    /// What connections to clients begin with; `intercepts` if there are clients that do not ask for the relay.
    pub fn first_windows(&self, intercepts: bool) -> FirstWindows {
        let by_default = if intercepts { defaults::WINDOW_BESIDE } else { FirstWindows::MOST };
        FirstWindows {
            alone: self.initial_window,
            beside: self.initial_window_beside.unwrap_or(by_default),
        }
    }

    /// What only the client's leg can have, if it is there: the key.
    pub fn of_clients_alone(&self) -> Option<&'static str> {
        let keys = [
            ("initial_window_beside", self.initial_window_beside.is_some()),
            ("initial_receive_window", self.initial_receive_window.is_some()),
            ("rto_min", self.rto_min.is_some()),
        ];
        keys.into_iter().find_map(|(key, there)| there.then_some(key))
    }

    /// The first setting that cannot be used: its key, and what would be right.
    pub fn first_fault(&self) -> Option<(&'static str, &'static str)> {
        let sizes = [
            ("receive_buffer", self.receive_buffer),
            ("send_buffer", self.send_buffer),
            ("notsent_lowat", self.notsent_lowat),
            ("initial_receive_window", self.initial_receive_window),
        ];
        for (key, size) in sizes {
            // The kernel doubles SO_RCVBUF and SO_SNDBUF in an int.
            if size.is_some_and(|size| !(4096..=1 << 30).contains(&size.as_bytes())) {
                return Some((key, "must be between 4 KiB and 1 GiB"));
            }
        }
        if self.initial_receive_window.is_some() && self.receive_buffer.is_some() {
            return Some((
                "initial_receive_window",
                "is of a buffer that the kernel tunes: name it or `receive_buffer`",
            ));
        }
        // TCP_KEEPIDLE and TCP_KEEPINTVL count whole seconds up to 32767.
        if self.keepalive.is_some_and(|idle| !(1..=32_767).contains(&(idle.as_secs_f64() as u64))) {
            return Some(("keepalive", "must be between 1 s and 9 h"));
        }
        // TCP_USER_TIMEOUT counts milliseconds in an int.
        let most = Span::from_millis(i32::MAX as u64);
        if self.user_timeout.is_some_and(|time| !(Span::from_secs(1)..=most).contains(&time)) {
            return Some(("user_timeout", "must be between 1 s and 24 days"));
        }
        // What the kernel takes.
        if self.max_segment.is_some_and(|bytes| !(88..=32_767).contains(&bytes)) {
            return Some(("max_segment", "must be between 88 and 32767 bytes"));
        }
        if self.max_pacing_rate.is_some_and(|rate| rate < Rate::from_bps(8000)) {
            return Some(("max_pacing_rate", "must be at least 8 kbit/s"));
        }
        let windows = [
            ("initial_window", self.initial_window),
            ("initial_window_beside", self.initial_window_beside),
        ];
        for (key, window) in windows {
            if window.is_some_and(|packets| !(1..=FirstWindows::MOST).contains(&packets)) {
                return Some((key, "must be between 1 and 1000 packets"));
            }
        }
        let timeouts = Span::from_millis(5)..=Span::from_secs(60);
        if self.rto_min.is_some_and(|least| !timeouts.contains(&least)) {
            return Some(("rto_min", "must be between 5 ms and 60 s"));
        }
        if matches!(self.dscp, Dscp::Always(point) if point > Dscp::MOST) {
            return Some(("dscp", Dscp::WANTED));
        }
        match &self.congestion_control {
            // TCP_CA_NAME_MAX, with its terminating zero.
            Some(name) if name.is_empty() || name.len() > 15 => {
                Some(("congestion_control", "must be a name of 1 to 15 letters, such as \"cubic\""))
            }
            _ => None,
        }
    }
}

/// Where a leg's code point comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dscp {
    /// The other end's packets: what it has put on the first one.
    #[default]
    Copy,
    /// The configuration: 0 to 63.
    Always(u8),
}

impl Dscp {
    const MOST: u8 = 63;
    const WANTED: &'static str = "must be \"copy\" or a code point between 0 and 63";

    fn is_copied(&self) -> bool {
        *self == Dscp::Copy
    }
}

impl Serialize for Dscp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Dscp::Copy => serializer.serialize_str("copy"),
            Dscp::Always(point) => serializer.serialize_u8(*point),
        }
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Dscp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"copy\" or a code point between 0 and 63")
            }

            fn visit_i64<E: de::Error>(self, point: i64) -> Result<Dscp, E> {
                let valid = u8::try_from(point).ok().filter(|point| *point <= Dscp::MOST);
                let wrong = || E::invalid_value(de::Unexpected::Signed(point), &self);
                valid.map(Dscp::Always).ok_or_else(wrong)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dscp, E> {
                match text {
                    "copy" => Ok(Dscp::Copy),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_of_a_buffer_that_is_tuned() {
        let size = |kib| Some(ByteSize::from_kib(kib));
        let fault = |receive_buffer, initial_receive_window| {
            let leg = LegConfig { receive_buffer, initial_receive_window, ..LegConfig::default() };
            leg.first_fault().map(|(key, _)| key)
        };
        assert_eq!(fault(None, size(256)), None);
        assert_eq!(fault(None, size(1)), Some("initial_receive_window"));
        assert_eq!(fault(size(64), size(256)), Some("initial_receive_window"));
    }
}
