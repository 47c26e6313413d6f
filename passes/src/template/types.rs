//! What the pass gives: templates, their segments, and where each parameter comes from.

use msc_ir::{GraphId, OpId};
use serde::Serialize;

/// The repeated parts of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Templates {
    /// Unrolled layers, now calls; in the order in which they were found (largest first).
    pub templates: Vec<Template>,
    /// Layers that the exporter kept as a loop.
    pub loops: Vec<Loop>,
    /// Ops of the entry that all instances share (positions, masks, cos/sin): they come first in its order.
    pub prologue: Vec<OpId>,
    /// What kept more from being found, and how first or last layers differ: for the user.
    pub notes: Vec<String>,
}

/// A layer (or a group of layers, where they alternate) that occurs several times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// `layer`, `layer_1`, …
    pub name: String,
    /// In the order in which a step executes them. The backward segment's instance `i` belongs to the forward
    /// segment's instance `i`, although it is executed in the reverse order.
    pub segments: Vec<Segment>,
    /// How many times each segment is called.
    pub instances: usize,
}

/// A part of a template that is called as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The one graph that all calls share.
    pub graph: GraphId,
    /// What the segment does in a step.
    pub role: Role,
    /// The calls in the entry, by instance.
    pub calls: Vec<OpId>,
    /// Where each parameter of `graph` comes from.
    pub params: Vec<ParamSource>,
}

/// What a segment does in a training step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs from the first instance to the last (a recomputed forward too).
    Forward,
    /// Runs from the last instance to the first.
    Backward,
    /// Instances do not depend on each other: optimizer updates.
    Update,
}

impl Role {
    /// Lower-case name, part of graph names.
    pub fn name(self) -> &'static str {
        match self {
            Role::Forward => "forward",
            Role::Backward => "backward",
            Role::Update => "update",
        }
    }
}

/// Where a parameter of a segment's graph comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamSource {
    /// Result `result` of segment `segment` of the same instance.
    FromSegment {
        /// Index in [`Template::segments`].
        segment: usize,
        /// Index of the result.
        result: usize,
    },
    /// The same of a neighbouring instance: instance `i` takes it from instance `i + offset` (−1 the previous, 1
    /// the next); where there is none, it gets a value from outside the template.
    Carry {
        /// Index in [`Template::segments`].
        segment: usize,
        /// Index of the result.
        result: usize,
        /// −1 or 1.
        offset: i32,
    },
    /// Something of the instance's own: a weight, optimizer state, a scalar or table that differs from layer to
    /// layer.
    Instance,
    /// The same value in all instances.
    Shared,
}

/// A loop with a known number of trips: a template that the exporter did not unroll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// The loop.
    pub op: OpId,
    /// The graph that holds it (an entry, or the body of another loop).
    pub graph: GraphId,
    /// Its body.
    pub body: GraphId,
    /// Number of trips.
    pub trips: u64,
}

/// Figures of one template, for the report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TemplateReport {
    /// Name.
    pub name: String,
    /// Calls per segment.
    pub instances: usize,
    /// Per segment.
    pub segments: Vec<SegmentReport>,
}

/// Figures of one segment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SegmentReport {
    /// What it does.
    pub role: Role,
    /// Name of its graph.
    pub graph: String,
    /// Ops of its graph, constants aside.
    pub ops: usize,
    /// Values that each instance hands to the next one of the same segment.
    pub carried: usize,
    /// Values from other segments of the template: what forward saves for backward, gradients for the update.
    pub from_segments: usize,
    /// Parameters that differ from instance to instance: weights, state, scalars, tables.
    pub instance: usize,
    /// Parameters that all instances share.
    pub shared: usize,
    /// Results.
    pub results: usize,
}

impl Templates {
    /// Figures for the report, one per template.
    pub fn report(&self, module: &msc_ir::Module) -> Vec<TemplateReport> {
        self.templates.iter().map(|t| t.report(module)).collect()
    }
}

impl Template {
    fn report(&self, module: &msc_ir::Module) -> TemplateReport {
        let segments = self
            .segments
            .iter()
            .enumerate()
            .map(|(at, s)| {
                let g = module.graph(s.graph);
                let count = |f: &dyn Fn(&ParamSource) -> bool| s.params.iter().filter(|p| f(p)).count();
                let own = |p: &ParamSource| matches!(p, ParamSource::Carry { segment, .. } if *segment == at);
                SegmentReport {
                    role: s.role,
                    graph: g.name.clone(),
                    ops: g.ops().filter(|(_, d)| !matches!(d.op, msc_ir::Op::Constant(_))).count(),
                    carried: count(&own),
                    from_segments: count(&|p| {
                        matches!(p, ParamSource::FromSegment { .. } | ParamSource::Carry { .. }) && !own(p)
                    }),
                    instance: count(&|p| *p == ParamSource::Instance),
                    shared: count(&|p| *p == ParamSource::Shared),
                    results: g.results().len(),
                }
            })
            .collect();
        TemplateReport { name: self.name.clone(), instances: self.instances, segments }
    }
}
