use midspan_units::Rate;
use zerocopy::IntoBytes;

use crate::ffi;

/// When CUBIC, and what is built on it, leaves slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HyStart {
    /// At the first loss.
    Off,
    /// Ha, Rhee, "Taming the elephants: New TCP slow start", 2011, as in Linux.
    Classic,
    /// RFC 9406.
    PlusPlus,
}

/// What may be chosen of the algorithms for a connection. [`Default`] is what the BPF programs use
/// unless they are told otherwise (`CC_CONFIG_DEFAULT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// CUBIC and NACubic: how they leave slow start.
    pub hystart: HyStart,
    /// CUBIC and NACubic: whether the window that Reno would have grows at the same pace always, as
    /// in RFC 8312 and in Linux, which is the default, or faster once it is where the last reduction
    /// was, as RFC 9438 says it should (section 4.3).
    pub cubic_constant_alpha: bool,
    /// CUBIC and NACubic: whether the window grows by a packet for each so many acknowledged, a price
    /// that is reckoned anew when the window has changed or a 32nd of a second has passed, as in Linux.
    /// The window then lags behind where RFC 9438 has it: by little, but for paths of few milliseconds.
    pub cubic_counted: bool,
    /// CUBIC and NACubic: fast convergence (RFC 9438, section 4.7), by which a flow makes room for a
    /// new one. For links that flows share.
    pub cubic_fast_convergence: bool,
    /// TCP-ME: the sending rate at the start.
    pub me_initial_rate: Rate,
}

impl Config {
    /// As the BPF programs have it: `struct cc_config`, in the byte order of this host.
    pub fn to_bytes(&self) -> Vec<u8> {
        ffi::Config::from(self).as_bytes().to_vec()
    }
}

impl Default for Config {
    fn default() -> Self {
        let config = ffi::default_config();
        Config {
            hystart: match config.hystart {
                ffi::hystart::CC_HYSTART_OFF => HyStart::Off,
                ffi::hystart::CC_HYSTART_CLASSIC => HyStart::Classic,
                _ => HyStart::PlusPlus,
            },
            cubic_constant_alpha: config.cubic_constant_alpha != 0,
            cubic_counted: config.cubic_counted != 0,
            cubic_fast_convergence: config.cubic_fast_convergence != 0,
            me_initial_rate: Rate::from_bps(u64::from(config.me_initial_rate) * 8),
        }
    }
}

impl From<&Config> for ffi::Config {
    fn from(config: &Config) -> Self {
        ffi::Config {
            hystart: match config.hystart {
                HyStart::Off => ffi::hystart::CC_HYSTART_OFF,
                HyStart::Classic => ffi::hystart::CC_HYSTART_CLASSIC,
                HyStart::PlusPlus => ffi::hystart::CC_HYSTART_PLUS_PLUS,
            },
            cubic_constant_alpha: config.cubic_constant_alpha.into(),
            cubic_counted: config.cubic_counted.into(),
            cubic_fast_convergence: config.cubic_fast_convergence.into(),
            me_initial_rate: u32::try_from(config.me_initial_rate.as_bps() / 8).unwrap_or(u32::MAX),
        }
    }
}
