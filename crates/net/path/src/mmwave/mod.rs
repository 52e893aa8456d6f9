//! A millimetre-wave cell, one model a file: what arrives, what rate that gives, and when somebody stands
//! in between.

mod blockage;
mod propagation;
mod rate;

pub use blockage::BlockageSpec;
pub(crate) use blockage::{Blockage, Via};
pub(crate) use propagation::signal_over_noise;
pub(crate) use rate::{RESOURCE_BLOCKS, resource_blocks, user_rate};
