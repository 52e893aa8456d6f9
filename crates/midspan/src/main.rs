//! Command line of Midspan.
fn main() {}
