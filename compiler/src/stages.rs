//! Stages: their names, their times, and what `--emit` shows after each.

use crate::report::StageReport;
use std::fmt;
use std::time::Instant;

/// A stage of the pipeline, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Parsing the file.
    Read,
    /// Into the IR.
    Import,
    /// Canonical form.
    Simplify,
    /// Repeated layers.
    Template,
    /// Named operations.
    Recognise,
    /// Over the mesh.
    Partition,
    /// Generated groups.
    Fuse,
    /// Streams and waits.
    Schedule,
    /// Offsets.
    Memory,
    /// Kernels.
    Codegen,
    /// The plan file.
    Write,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Stage; 11] = [
        Stage::Read,
        Stage::Import,
        Stage::Simplify,
        Stage::Template,
        Stage::Recognise,
        Stage::Partition,
        Stage::Fuse,
        Stage::Schedule,
        Stage::Memory,
        Stage::Codegen,
        Stage::Write,
    ];

    /// The stage's name, everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Import => "import",
            Stage::Simplify => "simplify",
            Stage::Template => "template",
            Stage::Recognise => "recognise",
            Stage::Partition => "partition",
            Stage::Fuse => "fuse",
            Stage::Schedule => "schedule",
            Stage::Memory => "memory",
            Stage::Codegen => "codegen",
            Stage::Write => "write",
        }
    }

    /// The stage with this name.
    pub fn from_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Times the stages. Times go into the report only; no decision reads them.
#[derive(Debug, Default)]
pub struct Timer {
    /// One entry for each stage that ran.
    pub stages: Vec<StageReport>,
}

impl Timer {
    /// Runs a stage inside its tracing span.
    pub fn run<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let _span = tracing::info_span!("stage", name = stage.name()).entered();
        let start = Instant::now();
        let out = work();
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(seconds, "done");
        self.stages.push(StageReport { name: stage.name(), seconds });
        out
    }
}
