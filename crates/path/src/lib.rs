//! Path elements.
