//! The e-graph engine: terms over the IR's ops, classes with types and value facts, patterns, rules, a driver.
//!
//! Nothing here knows a named operation; recognition and fusion bring their own rules.
//!
//! Determinism: ops, classes and leaves are numbered in program order, every search walks classes in the order
//! of their numbers, limits are counts. Hash maps are only looked into, never walked.

pub mod build;
pub(crate) mod derive;
pub mod facts;
pub mod label;
mod made;
pub mod matching;
pub mod partial;
pub mod pattern;
pub mod polynomial;
pub mod region;
pub mod rule;
pub mod run;
pub mod search;
pub mod term;
pub mod view;

pub use build::Builder;
pub use facts::Fact;
pub use region::{At, PartSpec, Region, Source};
pub use rule::{Applied, Count, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
pub use run::{Limits, Reason, Run, StopReason, run};
