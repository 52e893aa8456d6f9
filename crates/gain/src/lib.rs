mod mixture;
mod sequence;
pub use mixture::Mixture;
pub use sequence::{Interval, OutOfRange, Running, Sequence};
