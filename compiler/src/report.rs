//! `--report`: what a compilation did, as JSON.

use msc_passes::template::TemplateReport;
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// Layers that the exporter kept as a loop.
    pub loops: Vec<LoopReport>,
    /// Ops that all layers share and that run before them.
    pub prologue_ops: usize,
    /// Why layers that look alike are not one template.
    pub notes: Vec<String>,
}

/// A loop with a known number of trips.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LoopReport {
    /// Graph of its body.
    pub body: String,
    /// Number of trips.
    pub trips: u64,
    /// Ops of its body, constants aside.
    pub ops: usize,
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

/// Sequence parallelism along an axis, before the axes inside of it are split.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SequenceReport {
    /// The axis.
    pub axis: String,
    /// Predicted time of a step without it.
    pub predicted_us_without: f64,
    /// And with it; nothing where it cannot be.
    pub predicted_us_with: Option<f64>,
    /// Whether it was taken.
    pub taken: bool,
}

/// A kind of named operation, or a generated group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FusionReport {
    /// Kind.
    pub kind: String,
    /// Places in the program's graphs.
    pub sites: usize,
    /// Times a step executes it.
    pub executed: u64,
}

/// The step of an optimizer, of all tensors that it makes alike: one operation on many tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UpdateReport {
    /// Kind.
    pub kind: String,
    /// Tensors.
    pub tensors: u64,
    /// Elements of all of them.
    pub elements: u64,
}

/// A loop over microbatches that sums gradients.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AccumulationReport {
    /// File and line of the loop.
    pub location: String,
    /// Trips of the loop.
    pub microbatches: u64,
    /// Carries that are sums of gradients.
    pub gradients: usize,
    /// What these are divided by after the loop, if by one number.
    pub divided: Option<f64>,
    /// Carries that are other sums, such as the loss.
    pub other_sums: usize,
    /// Carries of which each trip takes its microbatch.
    pub batched: usize,
}

/// A generated group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupReport {
    /// Graph it is in.
    pub graph: String,
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
    pub monoid: Option<String>,
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

/// Over what the step is spread, and who says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayoutReport {
    /// Axes and their ranks.
    pub mesh: Vec<(String, usize)>,
    /// Parameters whose layout the options or the file give.
    pub given_parameters: usize,
    /// Results whose layout the file gives.
    pub given_results: usize,
    /// Which annotations of the file were left out, and why.
    pub notes: Vec<String>,
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
    /// Constant tables that became expressions over their indices.
    pub tables: usize,
    /// Templates.
    pub templates: TemplatesReport,
    /// E-graphs.
    pub egraph: EgraphReport,
    /// Named operations and generated groups.
    pub fusions: Vec<FusionReport>,
    /// Steps of optimizers, one for each set of numbers (decay, rates, epsilon).
    pub updates: Vec<UpdateReport>,
    /// Loops over microbatches.
    pub accumulations: Vec<AccumulationReport>,
    /// Generated groups in detail.
    pub groups: Vec<GroupReport>,
    /// Over what the step is spread.
    pub layout: LayoutReport,
    /// Splits.
    pub splits: Vec<SplitReport>,
    /// Axes, or parts of axes, along which all ranks compute the same, and their ranks.
    pub idle_axes: Vec<(String, usize)>,
    /// What was found of sequence parallelism, where it was looked for.
    pub sequence_parallel: Option<SequenceReport>,
    /// Dimensions that are padded, with the true size and the padded one.
    pub padded: Vec<(String, usize, usize)>,
    /// Dimensions of state that cannot be split, and the op that needs each whole.
    pub whole: Vec<(String, String)>,
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
    /// Fused ops that no kernel family has, with the reason.
    pub interpreted: Vec<String>,
}

/// Peak resident memory of this process in bytes, where the system says it (Linux's `/proc`), else 0.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

/// Fills in what the partitioner did.
pub fn partitioned(r: &mut Report, p: &msc_passes::partition::Report) {
    r.state_bytes = p.state_bytes;
    r.idle_axes = p.idle.clone();
    for (axis, ranks) in &p.idle {
        r.layout.notes.push(format!("{axis}: nothing is left to split, {ranks} ranks compute the same"));
    }
    r.padded = p.padded.clone();
    for (name, size, padded) in &p.padded {
        r.layout.notes.push(format!("{name} and what goes with it is padded from {size} to {padded}"));
    }
    if let Some(s) = &p.sequence {
        r.sequence_parallel = Some(SequenceReport {
            axis: s.axis.clone(),
            predicted_us_without: us(s.without_ps),
            predicted_us_with: s.with_ps.map(us),
            taken: s.taken,
        });
    }
    for axis in &p.experts_in_shards {
        r.layout.notes.push(format!(
            "{axis}: experts are not dealt to ranks; their state is stored in shards, and gathered where it is used"
        ));
    }
    if let [(first, asked), rest @ ..] = p.not_as_asked.as_slice() {
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        r.layout.notes.push(format!("{first}{more} not laid out as asked: {asked}"));
    }
    r.whole = p.whole.clone();
    r.splits = p
        .splits
        .iter()
        .map(|s| SplitReport { axis: s.axis.clone(), size: s.size, parameters: s.parameters.clone() })
        .collect();
    r.collectives = p
        .collectives
        .iter()
        .map(|c| CollectiveReport {
            graph: c.graph.clone(),
            kind: c.kind.to_string(),
            monoid: c.monoid.map(|m| m.name().to_string()),
            axes: c.axes.clone(),
            bytes: c.bytes,
            executed: c.executed,
            predicted_us: us(c.predicted_ps),
            partial_because: c.partial_because.clone(),
            whole_because: c.whole_because.clone(),
        })
        .collect();
}

/// Fills in the generated groups.
pub fn fused(r: &mut Report, groups: &[msc_passes::fuse::GroupReport]) {
    r.groups = groups
        .iter()
        .map(|g| GroupReport {
            graph: g.graph.clone(),
            ops: g.ops.clone(),
            location: g.location.clone(),
            separate_us: us(g.separate_ps),
            fused_us: us(g.fused_ps),
        })
        .collect();
}

/// Fills in schedule, memory and kernels.
pub fn planned(
    r: &mut Report,
    program: &msc_ir::program::Program,
    m: &msc_passes::memory::Report,
    kernels: &crate::kernels::Selection,
) {
    r.instructions = program.instructions.len();
    r.kernels = kernels.kernels.len();
    r.interpreted = kernels.interpreted.clone();
    r.memory = MemoryReport {
        arena_bytes: m.arena_bytes,
        persistent_bytes: m.persistent_bytes,
        transient_bytes: m.transient_bytes,
        peak_live_bytes: m.peak_live_bytes,
    };
}

impl Report {
    /// A few lines for the terminal.
    pub fn summary(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        let seconds: f64 = self.stages.iter().map(|s| s.seconds).sum();
        let _ = writeln!(
            out,
            "{} ops, {} instructions, {} kernels, {seconds:.2} s",
            self.ops, self.instructions, self.kernels
        );
        for t in &self.templates.list {
            let _ = writeln!(out, "template {}: {} instances", t.name, t.instances);
            for s in &t.segments {
                let _ = writeln!(
                    out,
                    "  {}: {} ops; of its parameters {} from the next instance, {} from the template's other parts, {} of each instance's own, {} shared",
                    s.role.name(),
                    s.ops,
                    s.carried,
                    s.from_segments,
                    s.instance,
                    s.shared
                );
            }
        }
        for l in &self.templates.loops {
            let _ = writeln!(out, "loop @{}: {} trips, {} ops", l.body, l.trips, l.ops);
        }
        for n in self.templates.notes.iter().chain(&self.layout.notes) {
            let _ = writeln!(out, "note: {n}");
        }
        for f in &self.fusions {
            let _ = writeln!(out, "{}: {} sites, executed {} times a step", f.kind, f.sites, f.executed);
        }
        for u in &self.updates {
            let _ = writeln!(out, "{} of {} tensors as one step: {} elements", u.kind, u.tensors, u.elements);
        }
        for g in &self.groups {
            let _ = writeln!(
                out,
                "group {} in @{}: predicted {:.1} us instead of {:.1} us",
                g.ops.join(" + "),
                g.graph,
                g.fused_us,
                g.separate_us
            );
        }
        let executed: usize = self.collectives.iter().map(|c| c.executed).sum();
        let bytes: u64 = self.collectives.iter().map(|c| c.bytes * c.executed as u64).sum();
        if executed > 0 {
            let _ = writeln!(out, "{executed} collectives a step, {bytes} bytes from each rank");
        }
        let m = &self.memory;
        let _ = writeln!(
            out,
            "memory of a rank: {} bytes, of which {} inputs and outputs; state {} bytes",
            m.arena_bytes, m.persistent_bytes, self.state_bytes
        );
        out
    }
}

/// Templates, for the report.
pub fn templates(module: &msc_ir::Module, t: &msc_passes::template::Templates) -> TemplatesReport {
    let list = t.report(module);
    let body = |g: msc_ir::GraphId| {
        let g = module.graph(g);
        (g.name.clone(), g.ops().filter(|(_, d)| !matches!(d.op, msc_ir::Op::Constant(_))).count())
    };
    let loops = t.loops.iter().map(|l| {
        let (name, ops) = body(l.body);
        LoopReport { body: name, trips: l.trips, ops }
    });
    TemplatesReport {
        count: list.len(),
        loops: loops.collect(),
        prologue_ops: t.prologue.len(),
        notes: t.notes.clone(),
        list,
    }
}

/// Steps of optimizers, for the report.
fn updates(found: &msc_passes::recognise::Report) -> Vec<UpdateReport> {
    let mut by_kind: BTreeMap<&msc_ir::ops::fused::FusedKind, UpdateReport> = BTreeMap::new();
    for region in &found.regions {
        for r in region.reasons.iter().filter(|r| r.fused.kind.is_update()) {
            let u = by_kind.entry(&r.fused.kind).or_default();
            u.kind = r.fused.kind.name().to_string();
            u.tensors += region.executed;
            let elements = r.inputs.first().map_or(0, |i| i.ty.elements() as u64);
            u.elements += elements.saturating_mul(region.executed);
        }
    }
    by_kind.into_values().collect()
}

/// E-graphs, named operations, the optimizer's steps and loops over microbatches, for the report.
pub fn recognised(r: &mut Report, module: &msc_ir::Module, found: &msc_passes::recognise::Report) {
    r.updates = updates(found);
    let accumulation = |a: &msc_passes::recognise::accumulation::Accumulation| AccumulationReport {
        location: module.locations.describe(a.loc).to_string(),
        microbatches: a.microbatches,
        gradients: a.gradients(),
        divided: a.divided(),
        other_sums: a.sums.len() - a.gradients(),
        batched: a.batched.len(),
    };
    r.accumulations = found.accumulations.iter().map(accumulation).collect();
    let egraph = EgraphReport {
        runs: found.regions.len(),
        nodes: found.regions.iter().map(|r| r.nodes).sum(),
        classes: found.regions.iter().map(|r| r.classes).sum(),
        stopped: found.regions.iter().map(|r| format!("{:?}", r.stop)).collect(),
    };
    let fusions = found
        .fusions
        .iter()
        .map(|(kind, f)| FusionReport { kind: kind.clone(), sites: f.sites, executed: f.executed })
        .collect();
    (r.egraph, r.fusions) = (egraph, fusions);
}
