//! What a scenario has from outside: the caller brings it.

use std::cell::RefCell;

use midspan_cc::Control;
use midspan_scenario::external_control;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::error::Error;

/// What the caller brings, by the names that scenarios have for it.
#[derive(Default)]
pub struct Externals {
    /// Elements of paths.
    pub elements: midspan_path::Externals,
    /// Congestion controls, whose names in a scenario are behind `external:`.
    pub controls: midspan_cc::external::Externals,
}

/// Makes the congestion controls of a run.
pub(crate) struct Controls<'a> {
    externals: &'a Externals,
    /// Of each that is the caller's own.
    seeds: RefCell<Xoshiro256PlusPlus>,
}

impl<'a> Controls<'a> {
    /// `seed` is the run's.
    pub(crate) fn new(externals: &'a Externals, seed: u64) -> Controls<'a> {
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        // The path's are those before.
        seeds.long_jump();
        Controls { externals, seeds: RefCell::new(seeds) }
    }

    /// The control that a scenario calls so, for one socket. CUBIC is as Linux has it.
    pub(crate) fn named(&self, name: &str) -> Result<Control, Error> {
        if let Some(external) = external_control(name) {
            let make = self.externals.controls.get(external);
            let make = make.ok_or_else(|| Error::NoExternal { name: external.to_owned() })?;
            return Ok(Control::external(name, make, self.seeds.borrow_mut().next_u64()));
        }
        let config = midspan_cc::Config { cubic_counted: true, ..midspan_cc::Config::default() };
        // Those of ours in the kernel, by their names there.
        let name = name.strip_prefix("ms_").unwrap_or(name);
        Ok(Control::new(name, &config)?)
    }
}
