//! Partition: splits the program over the mesh.
//!
//! Before: a verified module of global shapes whose entry calls one graph per template segment; the mesh is
//! empty. After: the same program for one rank, at local shapes, with the collectives that the split makes
//! necessary; `module.mesh` is the mesh, the entry's parameters and results carry their sharding. Running the
//! program on every rank, with each rank's blocks of the inputs, gives each rank's blocks of the results. Where an axis
//! deals experts to ranks, the entry's parameters may hold several of the outside's ([`msc_ir::outside`]).
//!
//! All of it follows from the ops' factor rules. Axes are taken one after the other, each on the program that those before
//! have left. The rules of the entry and of the graphs it calls are solved together ([`msc_ir::factor::solve`]): each
//! *atom* is a class of dimensions, over the whole program and all instances of a layer, that can only be split together.
//! What is asked for ([`given`]), the state ([`tensor`]), the data or the experts decide which atoms the axis splits; the
//! program is then rewritten at local sizes. Where an op reduces a split atom its result is a partial value; where someone
//! needs that value whole, one collective combines it; where ops need an atom whole, layouts change around them; where an
//! axis does not divide an atom, it is padded first. The report keeps for each collective both facts that made it necessary.

mod asked;
mod bucket;
mod cuts;
mod data;
mod expand;
mod experts;
mod facts;
pub mod given;
mod islands;
mod isolate;
mod lanes;
mod lower;
mod measures;
mod mesh;
mod pad;
mod predict;
mod problem;
mod refuse;
mod region;
mod report;
mod sequence;
mod state;
mod sums;
mod tensor;
mod unshare;

use crate::cost::DeviceModel;
use crate::error::{PassError, Result};
use facts::{Draft, Facts};
use given::Given;
use lower::{Done, Next};
use msc_ir::module::{AxisId, Mesh};
use msc_ir::ops::fused::FusedKind;
use msc_ir::{GraphId, Module, Op};
use problem::Problem;
use refuse::nothing_to_split;
pub use report::{CollectiveReport, Report, SplitReport};
use report::{collectives, kept_whole, unsplit};
pub use sequence::{SequenceParallel, SequenceReport};
use std::collections::BTreeSet;

/// The axes that are split without being asked how, in the order in which they are taken.
const AXES: [&str; 5] = ["tp", "dp", "fsdp", "ep", "cp"];

/// What a user asks of the partitioner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The mesh. `tp` splits model state, `dp`, `fsdp` and `ep` the batch, `cp` the sequence; other axes do what is asked.
    pub mesh: Mesh,
    /// Rates for the search.
    pub device: DeviceModel,
    /// Layouts that are asked for.
    pub given: Given,
    /// Whether `tp` splits the sequence between the products that it splits.
    pub sequence: SequenceParallel,
}

/// Splits a module's default entry over a mesh.
///
/// # Errors
/// [`crate::PassError::Layout`] where an axis of more than one rank has nothing to split. The module is empty then.
pub fn partition(module: &mut Module, options: &Options) -> Result<Report> {
    module.mesh = options.mesh.clone();
    if options.mesh.ranks() == 1 {
        return Ok(Report { layouts_compared: 1, ..unsplit(module)? });
    }
    let graphs = split_graphs(module);
    let mut wishes = asked::Wishes::of(&options.given, module)?;
    if let Some(ranks) = options.mesh.axis("ep").map(|a| options.mesh.size(a)).filter(|&n| n > 1)
        && let Some(stacked) = lanes::stack(module, &graphs, ranks, &wishes.params())?
    {
        wishes.moved(&stacked.moved);
    }
    expand::expand(module, &graphs, &options.mesh)?;
    if options.mesh.axes.iter().any(|a| a.size > 1 && base(&a.name) != "tp") {
        measures::set_apart(module, &graphs)?;
    }
    let graphs = split_graphs(module);
    unshare::split(module, &graphs);
    let problem = Problem::new(module)?;
    let unsplit = problem.state_bytes(module);
    let whole = kept_whole(&problem, module);
    let draft = Draft { module: std::mem::take(module), facts: Facts::new() };
    let mut stages = Stages {
        draft,
        report: Report::default(),
        device: options.device,
        wishes,
        pads_for_all: false,
        sequence: options.sequence,
        mesh: options.mesh.clone(),
    };
    stages.run(&options.mesh)?;
    let Stages { mut draft, mut report, device, wishes, .. } = stages;
    bucket::join(&mut draft)?;
    let problem = Problem::new(&draft.module)?;
    report.state_bytes = problem.state_bytes(&draft.module);
    report.state_bytes_unsplit = unsplit;
    report.whole = whole;
    report.predicted_ps = predict::step_ps(&draft.module, problem.entry, &device);
    report.collectives = collectives(&draft, problem.entry, &device);
    report.not_as_asked = wishes.not_met(&draft.module)?;
    *module = draft.module;
    let graphs = split_graphs(module);
    unshare::merge(module, &graphs);
    module.drop_unreachable_graphs();
    Ok(report)
}

/// The program on its way through the axes.
struct Stages {
    draft: Draft,
    report: Report,
    device: DeviceModel,
    wishes: asked::Wishes,
    /// Whether the batch is padded for all axes that split it, also where the first divides it.
    pads_for_all: bool,
    sequence: SequenceParallel,
    /// The mesh as it was asked for.
    mesh: Mesh,
}

impl Stages {
    /// Splits along all axes. Where one finds nothing and the batch was not padded for it, the batch is padded first.
    fn run(&mut self, mesh: &Mesh) -> Result<()> {
        let ranks = pad::OF_BATCH.iter().filter_map(|a| mesh.axis(a)).map(|a| mesh.size(a)).product();
        if !self.batch_may_be_padded(ranks)? {
            return self.run_once(mesh);
        }
        let before = (self.draft.clone(), self.report.clone());
        let first = self.run_once(mesh);
        if !matches!(first, Err(PassError::Layout { .. })) {
            return first;
        }
        (self.draft, self.report) = before;
        self.pads_for_all = true;
        // What the program as it is lacks is said.
        self.run_once(mesh).or(first)
    }

    /// What is asked for first, outer axes before inner ones. Then state: what it leaves of the heads, the sequence may
    /// take. Then the batch, then the sequence; last, state is stored in shards.
    fn run_once(&mut self, mesh: &Mesh) -> Result<()> {
        let asked = self.wishes.axes(mesh);
        for name in &asked {
            self.as_asked(name)?;
        }
        let free = |name: &str| !asked.iter().any(|a| a == name);
        for name in AXES.into_iter().filter(|n| free(n)) {
            if mesh.axis(name).is_some_and(|a| mesh.size(a) > 1) {
                self.axis(name, &free)?;
            }
        }
        // Experts that could not be dealt are stored in shards along `ep`, as all state is along `fsdp`.
        let axes = self.draft.module.mesh.axes.clone();
        let of_ep = (0..axes.len() as u8).filter(|&i| base(&axes[i as usize].name) == "ep").map(AxisId);
        let dealt = experts::are_dealt(&self.draft.module, &of_ep.collect::<Vec<_>>())?;
        let shards = has_routes(&self.draft.module) && !dealt;
        for (i, axis) in axes.iter().enumerate() {
            let name = base(&axis.name);
            let stores = name == "fsdp" || name == "ep" && shards;
            if stores && axis.size > 1 && free(name) {
                self.shard_state(AxisId(i as u8), None)?;
                self.report.experts_in_shards.extend((name == "ep").then(|| axis.name.clone()));
            }
        }
        // Axes of other names do what is asked of them, and nothing else.
        let params = &self.draft.module.entry()?.params;
        let used: BTreeSet<AxisId> =
            params.iter().flat_map(|p| p.sharding.dims.iter().flatten()).copied().collect();
        for i in 0..self.draft.module.mesh.axes.len() {
            let (id, axis) = (AxisId(i as u8), &self.draft.module.mesh.axes[i]);
            if axis.size > 1 && !AXES.contains(&base(&axis.name)) && !used.contains(&id) {
                self.idle(id);
            }
        }
        Ok(())
    }

    /// Splits along an axis what was asked for: inputs that are no state with all that follows from them, and state; state
    /// that cannot be split beside the inputs is stored in shards.
    fn as_asked(&mut self, name: &str) -> Result<()> {
        let Some(axis) = self.draft.module.mesh.axis(name) else { return Ok(()) };
        let module = &self.draft.module;
        let asked = self.wishes.with_ranks(module, &self.wishes.along(module, axis)?)?;
        self.padded(name, pad::Wanted::Asked(&asked), &|s| s.exactly_as_asked(name))
    }

    fn exactly_as_asked(&mut self, name: &str) -> Result<()> {
        let Some(axis) = self.draft.module.mesh.axis(name) else { return Ok(()) };
        let wish = self.wishes.along(&self.draft.module, axis)?;
        let mut done = None;
        for &(param, dim) in &wish.data {
            // The others follow from the first that can be split.
            if done.is_none() {
                done = data::split_at(&self.draft, axis, param, dim)?;
            }
        }
        if wish.data.is_empty() {
            done = asked::split(&self.draft, axis, &wish)?;
        }
        done.into_iter().for_each(|d| self.take(d));
        let stored = self.wishes.along(&self.draft.module, axis)?.state;
        if !stored.is_empty() {
            self.shard_state(axis, Some(&stored))?;
        }
        Ok(())
    }

    /// Splits along an axis what is left free.
    fn axis(&mut self, name: &str, free: &dyn Fn(&str) -> bool) -> Result<()> {
        match name {
            "tp" => self.padded(name, pad::Wanted::State, &|s| s.in_parts(name)),
            "cp" => self.in_parts(name),
            _ => self.batch(name, free),
        }
    }

    /// Splits along an axis, if need be in parts.
    fn in_parts(&mut self, name: &str) -> Result<()> {
        let Some(mut axis) = self.draft.module.mesh.axis(name) else { return Ok(()) };
        let ranks = self.draft.module.mesh.size(axis);
        let mut any = false;
        loop {
            match self.step(name, axis)? {
                Next::Done(done) => {
                    self.take(*done);
                    return Ok(());
                }
                Next::Part(outer) => {
                    mesh::split_axis(&mut self.draft, axis, outer);
                    match self.step(name, axis)? {
                        Next::Done(done) => {
                            self.take(*done);
                            any = true;
                        }
                        _ => self.idle(axis),
                    }
                    axis = AxisId(axis.0 + 1);
                }
                Next::Nothing if any => {
                    self.idle(axis);
                    return Ok(());
                }
                Next::Nothing => return Err(nothing_to_split(&self.draft, name, axis, ranks)?),
            }
        }
    }

    /// Splits along an axis at once, if that can be done.
    fn step(&mut self, name: &str, axis: AxisId) -> Result<Next> {
        match name {
            "tp" => {
                let (next, compared) = tensor::split(&self.draft, axis, &self.device)?;
                self.report.layouts_compared += compared;
                Ok(match next {
                    Next::Done(done) => Next::Done(Box::new(self.with_sequence(*done)?)),
                    next => next,
                })
            }
            "cp" => data::split(&self.draft, axis, data::First::Sequence, &data::Experts::default()),
            "ep" => experts::split(&self.draft, axis),
            _ => data::split(&self.draft, axis, data::First::Batch, &data::Experts::default()),
        }
    }

    fn take(&mut self, done: Done) {
        self.draft = done.draft;
        self.report.splits.extend(done.splits);
    }

    fn idle(&mut self, axis: AxisId) {
        let axis = &self.draft.module.mesh.axes[axis.0 as usize];
        self.report.idle.push((axis.name.clone(), axis.size));
    }

    fn shard_state(&mut self, axis: AxisId, asked: Option<&[(usize, usize)]>) -> Result<()> {
        state::shard(&self.draft, axis, asked)?.into_iter().for_each(|d| self.take(d));
        Ok(())
    }
}

/// Whether tokens are dealt to experts.
fn has_routes(module: &Module) -> bool {
    let routes = |op: &Op| matches!(op, Op::Fused(f) if matches!(f.kind, FusedKind::MoeRoute(_)));
    module.graphs().any(|(_, g)| g.ops().any(|(_, d)| routes(&d.op)))
}

/// The user's name of an axis, or of an axis it is a part of.
fn base(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The entry's graph and those it calls; definitions of fused ops are not theirs to change.
fn split_graphs(module: &Module) -> Vec<GraphId> {
    let called = msc_ir::ops::call::reachable(module);
    let definition = |g: &GraphId| {
        let defines = |f: &GraphId| {
            module.graph(*f).ops().any(|(_, o)| matches!(&o.op, Op::Fused(x) if x.definition == *g))
        };
        called.iter().any(defines)
    };
    called.iter().copied().filter(|g| !definition(g)).collect()
}
