//! Sequence parallelism: along an axis that splits state, what lies between its products is split over the sequence.
//!
//! Before: a draft, the atoms of state that the axis is to split, and the sequence's. A row-parallel product leaves a sum
//! that every rank needs whole, and then computes the same with: residual, norm, dropout. After: that *stream* is split over
//! the sequence. The sum is scattered as it is made, and gathered where the next product takes it: as many bytes around a
//! ring, a part of the work and of the memory between (Korthikanti et al., "Reducing Activation Recomputation in Large
//! Transformer Models"). What the stream adds up over its rows, gradients of a norm's scale, are partial sums along the axis.
//!
//! The stream are ops that have the sequence and nothing of what the axis splits, and can work on a part of it. Parts of it
//! without a value of the stream's width, as row maxima of a vocabulary-parallel loss, and sums of what products leave
//! partial, stay outside: a collective for each would cost more than it saves.
//!
//! *Invariant: only layouts change.* Everything is done by cuts ([`super::cuts`]) and atoms, as for any other axis.

use super::cuts;
use super::data::{Anchor, Followed, atoms_of};
use super::facts::Draft;
use super::islands::Islands;
use super::isolate::{self, Beside};
use super::lower::Done;
use super::pad::{OF_BATCH, is_little};
use super::predict::step_ps;
use super::problem::{Problem, Split};
use super::region::Region;
use super::{AXES, Stages};
use crate::error::Result;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::call::wires;
use msc_ir::{Graph, GraphId, Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// A part of the stream has a value of at least one of so many elements of the stream's largest.
const WIDTH: u64 = 2;

/// Times of a step within this part count as equal; of equal ones the one is taken that holds less between products.
const TIME_SLACK: u64 = 64;

/// Whether to split the sequence between products of an axis that splits state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SequenceParallel {
    /// Where that is predicted to take next to no more time.
    #[default]
    Auto,
    /// Wherever it can be.
    On,
    /// Nowhere.
    Off,
}

impl SequenceParallel {
    /// All of them.
    pub const ALL: [SequenceParallel; 3] =
        [SequenceParallel::Auto, SequenceParallel::On, SequenceParallel::Off];

    /// As options write it.
    pub fn name(self) -> &'static str {
        match self {
            SequenceParallel::Auto => "auto",
            SequenceParallel::On => "on",
            SequenceParallel::Off => "off",
        }
    }
}

impl std::str::FromStr for SequenceParallel {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.into_iter().find(|s| s.name() == word);
        known.ok_or_else(|| format!("`{word}` is none of auto, on, off"))
    }
}

/// What was found of sequence parallelism along an axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceReport {
    /// The axis.
    pub axis: String,
    /// Predicted time of a step without it, in picoseconds, all other axes not yet split.
    pub without_ps: u64,
    /// And with it; nothing where it cannot be.
    pub with_ps: Option<u64>,
    /// Whether it was taken.
    pub taken: bool,
}

impl Stages {
    /// The same split of state beside one of the sequence, where that is asked for or predicted to be as fast.
    ///
    /// # Errors
    /// Bugs of factor rules.
    pub(super) fn with_sequence(&mut self, done: Done) -> Result<Done> {
        let axis = done.split.axis;
        let name = self.draft.module.mesh.axes[axis.0 as usize].name.clone();
        if self.sequence == SequenceParallel::Off || !AXES.contains(&name.as_str()) {
            return Ok(done);
        }
        let problem = Problem::new(&self.draft.module)?;
        let without_ps = step_ps(&done.draft.module, problem.entry, &self.device);
        let mut report = SequenceReport { axis: name, without_ps, with_ps: None, taken: false };
        let mut out = done;
        if self.leaves_the_sequence(&problem)
            && let Some(other) = beside(&self.draft, &problem, &out.split)?
        {
            let with_ps = step_ps(&other.draft.module, problem.entry, &self.device);
            report.with_ps = Some(with_ps);
            let is_as_fast = with_ps <= without_ps + without_ps / TIME_SLACK;
            report.taken = self.sequence == SequenceParallel::On || is_as_fast;
            if report.taken {
                out = other;
            }
        }
        self.report.sequence = Some(report);
        Ok(out)
    }

    /// Whether no other axis is going to split the sequence, whose changes of layout would have to be undone for it.
    fn leaves_the_sequence(&self, problem: &Problem) -> bool {
        let size = |a: &str| self.mesh.axis(a).map_or(1, |i| self.mesh.size(i));
        let ranks: usize = OF_BATCH.iter().map(|a| size(a)).product();
        let batch = atoms_of(problem, &self.draft.module, 0).first().map_or(1, Anchor::size);
        size("cp") == 1 && (batch.is_multiple_of(ranks) || is_little(batch, ranks))
    }
}

/// Splits what `state` splits and, between, the sequence; `None` where there is no sequence that can be.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn beside(draft: &Draft, problem: &Problem, state: &Split) -> Result<Option<Done>> {
    let module = &draft.module;
    let axis = state.axis;
    let n = module.mesh.size(axis);
    let anchors = atoms_of(problem, module, 1);
    let Some(sequence) = anchors.first().and_then(|a| a.atom(problem)) else { return Ok(None) };
    let fits = problem.atoms.size(sequence).is_multiple_of(n) && !state.atoms.contains(&sequence);
    if !fits {
        return Ok(None);
    }
    let Some(apart) = Stream::find(problem, module, sequence, &state.atoms) else { return Ok(None) };
    let name = &module.mesh.axes[axis.0 as usize].name;
    let why = format!("{name} splits {} between products", problem.name(module, sequence));
    let cuts = isolate::cuts(problem, module, axis, sequence, Beside::State(&apart), &why);
    // Atoms of state, and the sequence wherever it comes back, as what stays the same when the program is cut.
    let mut kept = Vec::new();
    for &atom in &state.atoms {
        kept.push(anchor(problem, module, atom));
    }
    let Some(mut kept) = kept.into_iter().collect::<Option<Vec<Anchor>>>() else { return Ok(None) };
    let back: Vec<Option<Anchor>> =
        cuts.iter().map(|c| Anchor::of(problem, c.graph, c.value, sequence).filter(|_| c.back)).collect();
    let mut draft = draft.clone();
    let moved = cuts::insert(&mut draft, &cuts);
    for a in &mut kept {
        let Some(v) = moved.value(a.graph, a.value) else { return Ok(None) };
        a.value = v;
    }
    let mut places = Vec::new();
    for (a, made) in back.into_iter().zip(&moved.made) {
        if let (Some(mut a), Some(value)) = (a, *made) {
            a.value = value;
            places.push(a);
        }
    }
    let mut problem = Problem::new(&draft.module)?;
    let stream = Followed::at(places);
    if stream.first().is_none() || !stream.identify(&mut problem) {
        return Ok(None);
    }
    let atoms: Option<BTreeSet<AtomId>> =
        kept.iter().chain(stream.first()).map(|a| a.atom(&problem)).collect();
    let Some(atoms) = atoms.filter(|a| a.len() == state.atoms.len() + 1) else { return Ok(None) };
    let list: Vec<AtomId> = atoms.iter().copied().collect();
    let meet = problem.conflicts(&draft.module, &list).greedy(0..list.len()).len() < list.len();
    let more = stream.first().and_then(|a| a.atom(&problem)).is_none_or(|a| {
        problem.atoms.is_whole(a)
            || !isolate::cuts(&problem, &draft.module, axis, a, Beside::Nothing, "").is_empty()
    });
    if meet || more {
        return Ok(None);
    }
    Done::by(&draft, &problem, &Split { axis, atoms }).map(Some)
}

/// An atom of the entry's parameters.
fn anchor(problem: &Problem, module: &Module, atom: AtomId) -> Option<Anchor> {
    let mut params = module.graph(problem.entry).params().iter();
    params.find_map(|&v| Anchor::of(problem, problem.entry, v, atom))
}

/// The stream on its way to be found.
struct Stream<'a> {
    problem: &'a Problem,
    module: &'a Module,
    sequence: AtomId,
    state: &'a BTreeSet<AtomId>,
    /// Ops of the stream, by scope.
    ops: Vec<Vec<bool>>,
    /// Values that are one, seen from different graphs.
    wired: Islands,
}

impl<'a> Stream<'a> {
    /// What is apart from the stream; `None` if there is no stream.
    fn find(
        problem: &'a Problem,
        module: &'a Module,
        sequence: AtomId,
        state: &'a BTreeSet<AtomId>,
    ) -> Option<Region> {
        let wired = Islands::of(problem, module, false);
        let mut s = Stream { problem, module, sequence, state, ops: Vec::new(), wired };
        for (scope, id) in problem.atoms.scope_graphs().enumerate() {
            let g = id.map(|id| module.graph(id));
            let is = |op| g.is_some_and(|g| s.is_of(scope, g, OpId(op)));
            s.ops.push((0..g.map_or(0, |g| g.op_count() as u32)).map(is).collect());
        }
        s.leave_sums();
        s.leave_narrow();
        let passing = s.touched();
        let mut ops = Vec::new();
        let mut values = Vec::new();
        let mut any = false;
        for (scope, id) in problem.atoms.scope_graphs().enumerate() {
            let Some(g) = id.map(|id| module.graph(id)) else {
                ops.push(Vec::new());
                values.push(Vec::new());
                continue;
            };
            any |= s.ops[scope].contains(&true);
            ops.push(s.ops[scope].iter().map(|is| !is).collect());
            let apart = |v| !passing.contains(&s.wired.find((scope, ValueId(v))));
            values.push((0..g.value_count() as u32).map(apart).collect());
        }
        any.then(|| Region::of(ops, values))
    }

    fn scopes(&self) -> Vec<(usize, &'a Graph)> {
        let graphs = self.problem.atoms.scope_graphs().enumerate();
        graphs.filter_map(|(s, id): (usize, Option<GraphId>)| Some((s, self.module.graph(id?)))).collect()
    }

    fn has(&self, scope: usize, v: ValueId) -> bool {
        self.problem.atoms.value_has_in(scope, v, self.sequence)
    }

    /// Whether an op has the sequence, nothing of the state that is split, and can work on a part.
    fn is_of(&self, scope: usize, g: &Graph, op: OpId) -> bool {
        let data = g.op(op);
        let values = || data.operands.iter().chain(&data.results);
        let of_state =
            |v: &ValueId| self.state.iter().any(|a| self.problem.atoms.value_has_in(scope, *v, *a));
        wires(&data.op).is_empty()
            && values().any(|&v| self.has(scope, v))
            && !values().any(of_state)
            && !self.problem.atoms.met_by(scope, op).iter().any(|a| self.state.contains(a))
            && !isolate::needs_whole(self.problem, scope, g, op, self.sequence)
    }

    /// Sums of what is made outside only are made outside: one of their partial terms is summed over ranks then, not each.
    fn leave_sums(&mut self) {
        for (scope, g) in self.scopes() {
            for (op, data) in g.ops() {
                let adds = matches!(&data.op, Op::Binary(b) if b.kind == BinaryKind::Add);
                let outside = |v: &ValueId| match g.def(*v) {
                    Some((def, _)) => {
                        wires(&g.op(def).op).is_empty()
                            && self.has(scope, *v)
                            && !self.ops[scope][def.0 as usize]
                    }
                    None => false,
                };
                if adds && data.operands.iter().all(outside) {
                    self.ops[scope][op.0 as usize] = false;
                }
            }
        }
    }

    /// Parts without a wide value stay outside.
    fn leave_narrow(&mut self) {
        let mut parts = self.wired.clone();
        let mut of_stream: Vec<(usize, ValueId)> = Vec::new();
        for (scope, g) in self.scopes() {
            for (_, data) in g.ops().filter(|(op, _)| self.ops[scope][op.0 as usize]) {
                let values = data.operands.iter().chain(&data.results).filter(|v| self.has(scope, **v));
                let from = of_stream.len();
                of_stream.extend(values.map(|&v| (scope, v)));
                of_stream[from..].windows(2).for_each(|pair| parts.join(pair[0], pair[1]));
            }
        }
        let mut widest: BTreeMap<usize, u64> = BTreeMap::new();
        let scopes: BTreeMap<usize, &Graph> = self.scopes().into_iter().collect();
        for at in of_stream {
            let size = widest.entry(parts.find(at)).or_default();
            *size = (*size).max(scopes[&at.0].ty(at.1).elements() as u64);
        }
        let most = widest.values().copied().max().unwrap_or(0);
        for (scope, g) in scopes {
            for (op, data) in g.ops() {
                let mut values = data.operands.iter().chain(&data.results).filter(|v| self.has(scope, **v));
                let Some(&v) = values.next() else { continue };
                let is_wide = widest.get(&parts.find((scope, v))).is_some_and(|size| size * WIDTH >= most);
                self.ops[scope][op.0 as usize] &= is_wide;
            }
        }
    }

    /// Values that the stream makes or uses.
    fn touched(&self) -> BTreeSet<usize> {
        let mut out = BTreeSet::new();
        for (scope, g) in self.scopes() {
            for (_, d) in g.ops().filter(|(op, _)| self.ops[scope][op.0 as usize]) {
                let values = d.operands.iter().chain(&d.results).filter(|v| self.has(scope, **v));
                out.extend(values.map(|&v| self.wired.find((scope, v))));
            }
        }
        out
    }
}
