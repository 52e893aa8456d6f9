use midspan_units::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::radio::ln;
use crate::random::Random;

/// Somebody stands in between now and then, and the data path goes by the master node meanwhile. Clear and
/// blocked times are exponentially distributed, as those of pedestrians who cross a line of sight are (I. K.
/// Jain, R. Kumar and S. S. Panwar, "The impact of mobile blockers on millimeter wave cellular systems", IEEE
/// JSAC 37(4), 2019, section III: blockers come as a Poisson process and a single one blocks for half a
/// second on the mean).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockageSpec {
    /// Mean time without blockage.
    pub clear: Span,
    /// Mean time of one.
    #[serde(default = "half_a_second")]
    pub blocked: Span,
    /// From the beginning of a blockage, or its end, until the data path is switched: detection and the
    /// nodes' signalling.
    #[serde(default = "twenty_milliseconds")]
    pub switch: Span,
}

fn half_a_second() -> Span {
    Span::from_millis(500)
}

fn twenty_milliseconds() -> Span {
    Span::from_millis(20)
}

impl BlockageSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.clear == Span::ZERO || self.blocked == Span::ZERO {
            return Err("blockage has mean times `clear` and `blocked` above zero".to_owned());
        }
        Ok(())
    }
}

/// Which node sends to the UE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    Master,
    Secondary,
}

/// Where blockage and data path stand.
#[derive(Debug)]
pub(crate) struct Blockage {
    spec: Option<BlockageSpec>,
    random: Random,
    blocked: bool,
    /// When that changes.
    next: Time,
    via: Via,
    /// When the data path follows.
    switch: Option<Time>,
}

impl Blockage {
    pub(crate) fn new(spec: Option<BlockageSpec>, random: Random) -> Blockage {
        let mut blockage = Blockage {
            spec,
            random,
            blocked: false,
            next: Time::MAX,
            via: Via::Secondary,
            switch: None,
        };
        if let Some(spec) = spec {
            blockage.next = Time::ZERO + blockage.draw(spec.clear);
        }
        blockage
    }

    /// When the next change is due.
    pub(crate) fn due(&self) -> Time {
        self.switch.unwrap_or(Time::MAX).min(self.next)
    }

    /// Makes the change that is due first.
    pub(crate) fn turn(&mut self) {
        let Some(spec) = self.spec else { return };
        if let Some(at) = self.switch.filter(|at| *at <= self.next) {
            self.switch = None;
            self.via = if self.blocked { Via::Master } else { Via::Secondary };
            debug_assert!(at < Time::MAX);
        } else {
            let at = self.next;
            self.blocked = !self.blocked;
            self.switch = Some(at + spec.switch);
            let mean = if self.blocked { spec.blocked } else { spec.clear };
            self.next = at + self.draw(mean);
        }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn via(&self) -> Via {
        self.via
    }

    /// Exponentially distributed, above zero.
    fn draw(&mut self, mean: Span) -> Span {
        let uniform = (f64::from(self.random.draw()) + 1.0) / 4_294_967_296.0;
        let nanos = -ln(uniform) * mean.as_nanos() as f64;
        Span::from_nanos((nanos as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a long time the part blocked is 0.5 s of 2.5 s; the data path follows each change 20 ms later.
    #[test]
    fn blockage_has_its_share_and_the_path_follows() {
        let spec = BlockageSpec {
            clear: Span::from_secs(2),
            blocked: Span::from_millis(500),
            switch: Span::from_millis(20),
        };
        let mut blockage = Blockage::new(Some(spec), Random::new(1, 0));
        let (mut since, mut blocked, mut master) = (Time::ZERO, Span::ZERO, Span::ZERO);
        let end = Time::ZERO + Span::from_secs(20_000);
        while blockage.due() < end {
            let at = blockage.due();
            let passed = at.since(since);
            since = at;
            blocked += if blockage.is_blocked() { passed } else { Span::ZERO };
            master += if blockage.via() == Via::Master { passed } else { Span::ZERO };
            blockage.turn();
        }
        let part = |span: Span| span.as_secs_f64() / since.since(Time::ZERO).as_secs_f64();
        assert!((part(blocked) - 0.2).abs() < 0.01, "{}", part(blocked));
        assert!((part(master) - 0.2).abs() < 0.012, "{}", part(master));
    }
}
