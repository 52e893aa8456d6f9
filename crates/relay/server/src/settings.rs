//! What may change while the relay runs.

use std::sync::Arc;

use midspan_config::Config;

use crate::forward::Forward;

/// All of it, as a whole.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// Where connections are made to the relay itself, and whom they are passed on to.
    pub(crate) forwards: Vec<Arc<Forward>>,
}
