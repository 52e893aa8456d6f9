use std::marker::PhantomData;

use midspan_units::{ByteSize, Rate, Span, Time};
use serde::{Deserialize, Serialize};

use super::{Bounds, Capacity, CapacityConfig, Clip, Evidence, MinRtt, MinRttConfig, Sanity};
use crate::{Basis, Quality, Reading};

/// How a UE's feedback is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EstimatorConfig {
    /// How minRTT is put together.
    pub min_rtt: MinRttConfig,
    /// What is believed at most.
    pub bounds: Bounds,
    /// How capacity is read.
    pub capacity: CapacityConfig,
}

/// What a UE's senders are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate<B: Basis> {
    /// What the link can carry towards the UE; never below one packet a window.
    pub bandwidth: Rate,
    /// Round trip without queues.
    pub min_rtt: Span,
    /// When the window of the measurement ended (causal) or begins (oracle).
    pub at: Time,
    /// How long that window is.
    pub window: Span,
    /// How well the bandwidth is known.
    pub quality: Quality,
    /// From what it is known.
    pub evidence: Evidence,
    basis: PhantomData<B>,
}

/// Estimates one UE's link from the readings of one source, in the order in which they come.
#[derive(Debug, Clone)]
pub struct UeEstimator<B: Basis> {
    downlink: Capacity,
    uplink: Capacity,
    sanity: Sanity,
    min_rtt: MinRtt,
    latest: Option<Latest<B>>,
    backlog: Option<ByteSize>,
}

/// An estimate but for its minRTT, to which the network part is added when it is asked for.
type Latest<B> = Estimate<B>;

impl<B: Basis> UeEstimator<B> {
    /// Nothing is known yet.
    pub fn new(config: EstimatorConfig) -> Self {
        UeEstimator {
            downlink: Capacity::new(config.capacity),
            uplink: Capacity::new(config.capacity),
            sanity: Sanity::new(config.bounds),
            min_rtt: MinRtt::new(config.min_rtt),
            latest: None,
            backlog: None,
        }
    }

    /// Takes a reading in that came `now`; what it leads to is told from now on. Answers why it was
    /// clipped, if it was.
    pub fn observe(&mut self, reading: &Reading<B>, now: Time) -> Option<Clip> {
        let Reading { at, window, .. } = *reading;
        self.backlog = reading.downlink.backlog.or(reading.downlink.unacknowledged);
        let uplink = self.uplink.observe(now, window, &reading.uplink).map(|known| known.rate);
        let Some(known) = self.downlink.observe(now, window, &reading.downlink) else {
            self.latest = None;
            return None;
        };
        let (rate, clip) = self.sanity.check(known.rate);
        self.min_rtt.observe(Some(rate), uplink);
        self.latest = Some(Estimate {
            bandwidth: rate.max(Rate::of(PACKET, window)).max(Rate::from_bps(1)),
            min_rtt: Span::ZERO,
            at,
            window,
            quality: Quality {
                held: known.evidence == Evidence::Retained,
                closed: rate == Rate::from_bps(0),
                clipped: clip.is_some(),
            },
            evidence: known.evidence,
            basis: PhantomData,
        });
        clip
    }

    /// What is known, with `network` as minRTT's first part where a probe measured it. None before
    /// enough is known, and after it was too long ago for the capacity to be held.
    pub fn estimate(&self, network: Option<Span>) -> Option<Estimate<B>> {
        // Before the first window that carried anything there is no transmission time, and a
        // sender is better off with its base control.
        let min_rtt = self.min_rtt.value(network)?;
        self.latest.map(|latest| Estimate { min_rtt, ..latest })
    }

    /// What waited for the UE, as last reported, or what it had not acknowledged.
    pub fn backlog(&self) -> Option<ByteSize> {
        self.backlog
    }
}

/// The least that is told of a window: one packet could have gone. Never zero, which a kernel takes
/// for "unpaced".
const PACKET: u64 = 1500;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Causal, LinkReading, Oracle};

    const WINDOW: Span = Span::from_millis(50);

    fn told(at: Time, downlink: u64, uplink: u64) -> Reading<Causal> {
        let link =
            |bits| LinkReading { capacity: Some(Rate::from_bps(bits)), ..LinkReading::default() };
        Reading::passed(at, WINDOW, link(downlink), link(uplink))
    }

    fn estimator<B: Basis>() -> UeEstimator<B> {
        UeEstimator::new(EstimatorConfig::default())
    }

    /// Equation 1's two inputs, for 12 Mbit/s down, 6 up, and 10 ms of network.
    #[test]
    fn bandwidth_and_min_rtt_come_out_of_rates() {
        let mut ue = estimator();
        assert_eq!(ue.estimate(None), None);
        assert_eq!(ue.observe(&told(Time::ZERO, 12_000_000, 6_000_000), Time::ZERO), None);
        let estimate = ue.estimate(None).unwrap();
        assert_eq!(estimate.bandwidth, Rate::from_bps(12_000_000));
        assert_eq!(estimate.min_rtt, Span::from_millis(10 + 1 + 2));
        assert_eq!(estimate.quality, Quality::default());
        let probed = ue.estimate(Some(Span::from_millis(3))).unwrap();
        assert_eq!(probed.min_rtt, Span::from_millis(3 + 1 + 2));
    }

    #[test]
    fn a_window_of_nothing_is_one_packet_and_keeps_the_last_transmission_time() {
        let mut ue = estimator();
        ue.observe(&told(Time::ZERO, 12_000_000, 6_000_000), Time::ZERO);
        let before = ue.estimate(None).unwrap();
        ue.observe(&told(Time::ZERO + WINDOW, 0, 0), Time::ZERO + WINDOW);
        let closed = ue.estimate(None).unwrap();
        assert_eq!(closed.bandwidth, Rate::of(1500, WINDOW));
        assert_eq!(closed.min_rtt, before.min_rtt);
        assert!(closed.quality.closed);
    }

    #[test]
    fn before_anything_was_carried_nothing_is_told() {
        let mut ue = estimator();
        ue.observe(&told(Time::ZERO, 0, 0), Time::ZERO);
        assert_eq!(ue.estimate(None), None);
    }

    /// The authors' program: the coming window, and its own transmission time.
    #[test]
    fn an_oracle_is_told_what_comes() {
        let config = EstimatorConfig {
            min_rtt: MinRttConfig { uplink_packet: 0, ..MinRttConfig::default() },
            ..EstimatorConfig::default()
        };
        let mut ue = UeEstimator::<Oracle>::new(config);
        let rate = Rate::from_bps(1_200_000);
        ue.observe(&Reading::coming(Time::ZERO, WINDOW, rate, rate), Time::ZERO);
        let estimate = ue.estimate(None).unwrap();
        assert_eq!((estimate.bandwidth, estimate.min_rtt), (rate, Span::from_millis(20)));
    }

    proptest! {
        #[test]
        fn whatever_is_reported_no_sender_is_told_zero(
            reports in prop::collection::vec((any::<u64>(), any::<u64>(), 1u64..2_000), 1..60),
        ) {
            let mut ue = estimator();
            let mut now = Time::ZERO;
            for (down, up, millis) in reports {
                now += Span::from_millis(millis);
                ue.observe(&told(now, down, up), now);
                if let Some(estimate) = ue.estimate(None) {
                    prop_assert!(estimate.bandwidth >= Rate::of(1500, WINDOW));
                    prop_assert!(estimate.bandwidth <= Bounds::default().ceiling);
                    prop_assert!(estimate.min_rtt > Span::ZERO);
                }
            }
        }
    }
}
