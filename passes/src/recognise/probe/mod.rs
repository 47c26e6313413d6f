//! Probes: named operations found by their shape in the program and decided by numbers.
//!
//! A rule's pattern says how an operation is spelled. Where exporters' spellings have too little in common (the
//! gradient of an attention), a probe proposes a cut through the program and what lies behind it; a trial
//! ([`trial`]) runs both sides on random inputs, and only what agrees is united. The reason of the union records
//! the cut, so it can be executed again.

pub mod band;
pub mod found;
pub mod indexed;
pub mod known;
pub mod layout;
pub mod one_hot;
pub mod program;
pub mod trial;
pub(crate) mod unite;
