//! What a session is told, and what it tells of its steps.

use super::fault::Fault;
use std::time::Duration;

/// How a session runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// How long a collective waits for ranks that do not come.
    pub comm_timeout: Duration,
    /// Results that become parameters of the next step, beside those that the plan says are donated:
    /// (result, parameter).
    pub carry: Vec<(usize, usize)>,
    /// Makes a rank fail, in a test.
    pub fault: Option<Fault>,
}

impl Default for Options {
    fn default() -> Options {
        Options { comm_timeout: Duration::from_secs(60), carry: Vec::new(), fault: None }
    }
}

/// A step that has ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepReport {
    /// Its number, from 0.
    pub step: usize,
    /// How long it took.
    pub duration: Duration,
}

/// A result of which two ranks should hold the same block, and do not: a bug in the plan or a back end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// Name of the result.
    pub name: String,
    /// The two ranks.
    pub ranks: (usize, usize),
    /// The first element of the block, row-major, that differs.
    pub element: usize,
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Divergence { name, ranks: (a, b), element } = self;
        write!(f, "MSC-R0102: ranks {a} and {b} differ in {name}, element {element} of their common block")
    }
}
