use midspan_units::{ByteSize, Decibels, Distance, Power, Share, Span, Speed};
use serde::{Deserialize, Serialize};

use super::scheduler::Scheduler;

/// Seven LTE cells of 10 MHz at 2 GHz in a double ring, one antenna at each end. Its defaults are case
/// 1 of 3GPP TR 25.814 (tables A.2.1.1-1 and A.2.1.1-3) unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LteSpec {
    /// From a site to the next. Default 500 m.
    pub distance: Distance,
    /// A site's power over its whole band. Default 46 dBm.
    pub power: Power,
    /// Gain of a site's antenna, its cable's loss taken off. Default 14 dB.
    pub antenna_gain: Decibels,
    /// Noise figure of a UE. Default 9 dB.
    pub noise_figure: Decibels,
    /// Loss through walls. Default 20 dB.
    pub penetration: Decibels,
    /// Standard deviation of shadowing. Default 8 dB.
    pub shadowing: Decibels,
    /// Of users. Default 3 km/h.
    pub speed: Speed,
    /// How much of their band the sites of the outer ring use. Default 100 %.
    pub outer_load: Share,
    /// How cells share their band. Default proportional fair.
    pub scheduler: Scheduler,
    /// Over how long proportional fairness takes its mean rates. Default 200 ms, ours.
    #[serde(skip_serializing_if = "is_usual")]
    pub averaging: Span,
    /// Most bytes of a user's that wait in its cell, or on the air: a packet that would not fit whole is
    /// dropped. Default 512 KiB, ours.
    pub buffer: ByteSize,
    /// From a UE's sending until its cell has it: a request, its grant and a transmission. Default 10 ms,
    /// ours.
    pub uplink: Span,
    /// How long a handover silences a user. Default 50 ms: TS 36.133, section 5.1.2.1.2, with the most
    /// that it allows.
    pub interruption: Span,
    /// From one site to another, for what handover forwards. Default 20 ms, ours: twice the way to the
    /// gateway.
    pub x2: Span,
}

impl Default for LteSpec {
    fn default() -> Self {
        LteSpec {
            distance: Distance::from_metres(500),
            power: Power::from_hundredths(4600),
            antenna_gain: Decibels::from_hundredths(1400),
            noise_figure: Decibels::from_hundredths(900),
            penetration: Decibels::from_hundredths(2000),
            shadowing: Decibels::from_hundredths(800),
            speed: Speed::from_metres_per_hour(3000),
            outer_load: Share::ONE,
            scheduler: Scheduler::default(),
            averaging: AVERAGING,
            buffer: ByteSize::from_bytes(512 * 1024),
            uplink: Span::from_millis(10),
            interruption: Span::from_millis(50),
            x2: Span::from_millis(20),
        }
    }
}

const AVERAGING: Span = Span::from_millis(200);

/// Files from before there was the key keep their digest.
fn is_usual(averaging: &Span) -> bool {
    *averaging == AVERAGING
}

impl LteSpec {
    /// Why there can be no such network, if so.
    ///
    /// # Errors
    /// In one line: the key, and what would be right.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let refuse = |key, what: &str| Err((key, what.to_owned()));
        if !(70.0..=20_000.0).contains(&self.distance.as_metres()) {
            return refuse("distance", "sites are from 70 m to 20 km apart, such as `500 m`");
        }
        if self.buffer < ByteSize::from_bytes(1500) {
            return refuse("buffer", "a user's buffer holds a packet at least: `1500 B` or more");
        }
        if !(Span::from_millis(10)..=Span::from_secs(10)).contains(&self.averaging) {
            return refuse("averaging", "means are taken over `10 ms` to `10 s`");
        }
        if self.shadowing > Decibels::from_hundredths(2000) || self.shadowing < Decibels::default()
        {
            return refuse("shadowing", "shadowing deviates by `0 dB` to `20 dB`");
        }
        if self.speed > Speed::from_metres_per_hour(500_000) {
            return refuse("speed", "the models are for speeds up to `500 km/h`");
        }
        let times = [("uplink", self.uplink), ("interruption", self.interruption), ("x2", self.x2)];
        match times.into_iter().find(|(_, time)| *time > Span::from_secs(1)) {
            Some((key, _)) => refuse(key, "no more than `1 s`"),
            None => Ok(()),
        }
    }
}
