//! A radio channel, from distance to whether a block is received, one model a file.
//!
//! Here, and in `lte`, decisions come from floating point. They take nothing but additions,
//! multiplications, divisions, square roots and roundings, which IEEE 754 defines to the last bit, and no function
//! of a mathematical library: the same seed decides the same on every machine.

mod acknowledged;
mod arithmetic;
mod bearer;
mod channel;
mod error_model;
mod fading;
mod path_loss;

pub(crate) use acknowledged::Acknowledged;
pub(crate) use arithmetic::{cos_sin, decibels, exp_of_minus, factor, ln, to_the_power};
pub(crate) use bearer::Bearer;
pub(crate) use channel::Channel;
pub use channel::ChannelSpec;
pub use error_model::Modulation;
pub(crate) use error_model::Soft;
pub(crate) use fading::{POINTS, PedestrianA};
pub(crate) use path_loss::SPEED_OF_LIGHT;
