//! `--report`: what a compilation did, as JSON.

use serde::Serialize;

/// Time of one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// The stage's name.
    pub name: &'static str,
    /// Wall time in seconds.
    pub seconds: f64,
}

/// Templates found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TemplatesReport {
    /// How many.
    pub count: usize,
    /// Each of them.
    pub list: Vec<TemplateReport>,
    /// Why layers that look alike are not one template.
    pub notes: Vec<String>,
}

/// One template.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TemplateReport {
    /// Name.
    pub name: String,
    /// How often it occurs.
    pub instances: usize,
    /// Ops in each segment, forward first.
    pub ops: Vec<usize>,
}

/// E-graphs run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EgraphReport {
    /// How many e-graphs.
    pub runs: usize,
    /// E-nodes in all of them.
    pub nodes: usize,
    /// E-classes in all of them.
    pub classes: usize,
    /// Why each stopped.
    pub stopped: Vec<String>,
}

/// A kind of named operation, or a generated group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FusionReport {
    /// Kind.
    pub kind: String,
    /// Places in the program's graphs.
    pub sites: usize,
    /// Times a step executes it.
    pub executed: usize,
}

/// A generated group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupReport {
    /// Ops in it.
    pub ops: Vec<String>,
    /// Source location of the named op in it.
    pub location: String,
    /// Predicted microseconds one by one.
    pub separate_us: f64,
    /// Predicted microseconds as one kernel.
    pub fused_us: f64,
}

/// A collective and its reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CollectiveReport {
    /// Graph it is in.
    pub graph: String,
    /// Kind.
    pub kind: String,
    /// Monoid.
    pub monoid: String,
    /// Mesh axes.
    pub axes: Vec<String>,
    /// Bytes each rank contributes.
    pub bytes: u64,
    /// Times a step executes it.
    pub executed: usize,
    /// Predicted microseconds of one.
    pub predicted_us: f64,
    /// Why the value is partial.
    pub partial_because: String,
    /// Why it must be whole.
    pub whole_because: String,
}

/// A split dimension.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SplitReport {
    /// Mesh axis.
    pub axis: String,
    /// Size of the dimension.
    pub size: usize,
    /// Parameters with it.
    pub parameters: Vec<String>,
}

/// The memory plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryReport {
    /// Bytes of a rank's arena.
    pub arena_bytes: u64,
    /// Of these, inputs and outputs.
    pub persistent_bytes: u64,
    /// Sum of the sizes of all other buffers.
    pub transient_bytes: u64,
    /// Most transient bytes live at once.
    pub peak_live_bytes: u64,
}

/// The whole report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Stages in order.
    pub stages: Vec<StageReport>,
    /// Peak resident memory of the compiler, in bytes.
    pub peak_rss_bytes: u64,
    /// Ops of the imported program, calls expanded.
    pub ops: usize,
    /// Templates.
    pub templates: TemplatesReport,
    /// E-graphs.
    pub egraph: EgraphReport,
    /// Named operations and generated groups.
    pub fusions: Vec<FusionReport>,
    /// Generated groups in detail.
    pub groups: Vec<GroupReport>,
    /// Splits.
    pub splits: Vec<SplitReport>,
    /// Collectives.
    pub collectives: Vec<CollectiveReport>,
    /// Bytes of donated state on a rank.
    pub state_bytes: u64,
    /// Memory.
    pub memory: MemoryReport,
    /// Instructions of a rank.
    pub instructions: usize,
    /// Kernels generated.
    pub kernels: usize,
}

/// Peak resident memory of this process in bytes, where the system says it (Linux's `/proc`), else 0.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}
