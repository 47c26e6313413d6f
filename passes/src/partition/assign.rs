//! Which atoms each mesh axis splits.
//!
//! An axis `tp` splits model state: its candidates are the atoms of donated parameters. An axis `dp` splits the
//! batch: its candidate is the outermost atom that the inputs which are no state share. An atom is a candidate
//! only if no op needs it whole, if it divides by the axis, and if it is outermost in its dimension wherever the
//! entry sees it, so that a rank's share of a parameter is one block. Two candidates that meet in one value
//! exclude each other on one axis.
//!
//! Among the legal sets the search takes, in this order: one that leaves next to the least state on a rank (what
//! a user asks `tp` for; sets within [`STATE_SLACK`] of the least count as equal, so that splitting a norm's few
//! weights is no reason to split the residual stream), the least predicted time of a step, the fewest splits.

use super::{Options, SplitReport, lower};
use crate::error::{PassError, Result};
use msc_ir::factor::solve::{AtomId, AtomList, Atoms};
use msc_ir::graph::ValueId;
use msc_ir::module::{AxisId, Mesh, Sharding};
use msc_ir::{Entry, Graph, GraphId, Module, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// Candidates above this number are not enumerated but taken greedily, largest state first: 2¹² layouts are
/// compared in well under a second, and no transformer seen has more than eight candidates.
const MAX_ENUMERATED: usize = 12;

/// Layouts whose state differs by less than this part of the unsplit state count as equal.
pub const STATE_SLACK: u64 = 32;

/// The axis that splits each atom.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment {
    /// Split atoms.
    pub atoms: BTreeMap<AtomId, AxisId>,
}

/// The program as the search sees it.
#[derive(Debug)]
pub struct Problem {
    /// Atoms of the entry (scope 0) and of the graphs it calls.
    pub atoms: Atoms,
    /// The entry's graph.
    pub entry: GraphId,
    /// How the entry's parameters are known.
    info: Entry,
}

/// A layout and how many were compared to find it.
#[derive(Debug)]
pub struct Chosen {
    /// The layout.
    pub assignment: Assignment,
    /// Layouts whose time was predicted.
    pub compared: usize,
}

impl Problem {
    /// Solves the factor rules of a module's default entry.
    ///
    /// # Errors
    /// If the module has no entry.
    pub fn new(module: &Module) -> Result<Problem> {
        let info = module.entry()?.clone();
        let mut atoms = Atoms::solve_calls(module, info.graph);
        let g = module.graph(info.graph);
        let donated = info.params.iter().zip(g.params());
        atoms.tie(0, donated.filter_map(|(p, &v)| Some((v, g.results()[p.alias? as usize]))));
        Ok(Problem { atoms, entry: info.graph, info })
    }

    /// The local type of a value of a scope.
    pub fn local(&self, scope: usize, g: &Graph, v: ValueId, a: &Assignment, mesh: &Mesh) -> TensorType {
        let t = g.ty(v);
        let shape = (0..t.rank()).map(|d| {
            let n: usize = self
                .atoms
                .dim_in(scope, v, d)
                .iter()
                .filter_map(|x| a.atoms.get(x))
                .map(|&axis| mesh.size(axis))
                .product();
            t.shape[d] / n.max(1)
        });
        TensorType::new(t.dtype, shape)
    }

    /// The sharding of an entry value.
    pub fn sharding(&self, g: &Graph, v: ValueId, a: &Assignment) -> Sharding {
        let dims = (0..g.ty(v).rank())
            .map(|d| self.atoms.dim(v, d).iter().filter_map(|x| a.atoms.get(x).copied()).collect())
            .collect();
        let s = Sharding { dims };
        if s.is_replicated() { Sharding::default() } else { s }
    }

    /// Bytes of donated state on one rank.
    pub fn state_bytes(&self, module: &Module, a: &Assignment) -> u64 {
        let g = module.graph(self.entry);
        self.state(g).map(|v| self.local(0, g, v, a, &module.mesh).bytes() as u64).sum()
    }

    /// Donated parameters; where the file donates nothing, every float parameter that is no scalar.
    fn state<'a>(&'a self, g: &'a Graph) -> impl Iterator<Item = ValueId> + 'a {
        let donates = self.info.params.iter().any(|p| p.alias.is_some());
        let counts = move |v: ValueId, donated: bool| match donates {
            true => donated,
            false => g.ty(v).rank() > 0 && g.ty(v).dtype.is_float(),
        };
        let params = self.info.params.iter().zip(g.params());
        params.filter(move |(p, v)| counts(**v, p.alias.is_some())).map(|(_, &v)| v)
    }

    /// Which parameters a layout splits, in words.
    pub fn describe(&self, module: &Module, a: &Assignment) -> Vec<SplitReport> {
        let mut out: Vec<SplitReport> = a
            .atoms
            .iter()
            .map(|(&atom, &axis)| SplitReport {
                axis: module.mesh.axes[axis.0 as usize].name.clone(),
                size: self.atoms.size(atom),
                parameters: self.parameters_with(module, atom),
            })
            .collect();
        out.sort_by(|x, y| (&x.axis, &x.parameters).cmp(&(&y.axis, &y.parameters)));
        out
    }

    /// The entry's parameters that have an atom, as `name[dimension]`.
    pub fn parameters_with(&self, module: &Module, atom: AtomId) -> Vec<String> {
        let g = module.graph(self.entry);
        let mut out = Vec::new();
        for (p, &v) in self.info.params.iter().zip(g.params()) {
            for d in 0..g.ty(v).rank() {
                if self.atoms.dim(v, d).contains(&atom) {
                    out.push(format!("{}[{d}]", p.name));
                }
            }
        }
        out
    }

    /// Atoms of the values `of` that an axis of `n` ranks can split, in order of the entry's parameters.
    fn candidates(&self, g: &Graph, of: impl Iterator<Item = ValueId>, n: usize) -> Vec<AtomId> {
        let mut inner: BTreeSet<AtomId> = BTreeSet::new();
        let mut found = Vec::new();
        for &v in g.params().iter().chain(g.results()) {
            for d in 0..g.ty(v).rank() {
                inner.extend(self.atoms.dim(v, d).iter().skip(1));
            }
        }
        for v in of {
            for d in 0..g.ty(v).rank() {
                if let Some(&atom) = self.atoms.dim(v, d).first()
                    && !found.contains(&atom)
                {
                    found.push(atom);
                }
            }
        }
        found.retain(|a| {
            !inner.contains(a) && !self.atoms.is_whole(*a) && self.atoms.size(*a).is_multiple_of(n)
        });
        found
    }

    /// Pairs of `candidates` that meet in one value or in one op: a rank would hold, or compute, a diagonal block.
    fn conflicts(&self, module: &Module, candidates: &[AtomId]) -> BTreeSet<(usize, usize)> {
        let mut out = BTreeSet::new();
        let mut meet = |atoms: AtomList| {
            let met: Vec<usize> =
                atoms.iter().filter_map(|atom| candidates.iter().position(|c| c == atom)).collect();
            for (i, &a) in met.iter().enumerate() {
                for &b in &met[i + 1..] {
                    out.insert((a.min(b), a.max(b)));
                }
            }
        };
        for (id, g) in module.graphs() {
            let Some(scope) = self.atoms.scope_of(id) else { continue };
            for v in 0..g.value_count() as u32 {
                let v = ValueId(v);
                meet((0..g.ty(v).rank()).flat_map(|d| self.atoms.dim_in(scope, v, d)).collect());
            }
            for (op, _) in g.ops() {
                meet(self.atoms.met_by(scope, op));
            }
        }
        out
    }
}

/// Finds a layout for every axis of more than one rank, outermost axis first.
///
/// # Errors
/// [`PassError::Layout`] where an axis has nothing to split.
pub fn choose(problem: &Problem, module: &Module, options: &Options) -> Result<Chosen> {
    let mut chosen = Chosen { assignment: Assignment::default(), compared: 0 };
    let g = module.graph(problem.entry);
    for (i, axis) in options.mesh.axes.iter().enumerate().filter(|(_, a)| a.size > 1) {
        let id = AxisId(i as u8);
        let candidates = match axis.name.as_str() {
            "dp" => batch(problem, g, axis.size),
            "tp" => problem.candidates(g, problem.state(g), axis.size),
            other => {
                return Err(PassError::Layout {
                    message: format!(
                        "mesh axis `{other}` of {} ranks: this axis is not supported yet",
                        axis.size
                    ),
                    help: "use the axes tp and dp".into(),
                });
            }
        };
        let candidates: Vec<AtomId> =
            candidates.into_iter().filter(|a| !chosen.assignment.atoms.contains_key(a)).collect();
        if candidates.is_empty() {
            return Err(nothing_to_split(problem, module, &axis.name, axis.size));
        }
        let conflicts = problem.conflicts(module, &candidates);
        let sets = legal_sets(&candidates, &conflicts);
        best(problem, module, options, id, &candidates, sets, &mut chosen)?;
    }
    Ok(chosen)
}

/// The outermost atom shared by the leading dimensions of the inputs that are no state.
fn batch(problem: &Problem, g: &Graph, n: usize) -> Vec<AtomId> {
    let state: BTreeSet<AtomId> = problem
        .state(g)
        .flat_map(|v| (0..g.ty(v).rank()).flat_map(move |d| problem.atoms.dim(v, d)))
        .collect();
    let data = problem.info.params.iter().zip(g.params()).filter(|(p, _)| p.alias.is_none()).map(|(_, &v)| v);
    let mut found = problem.candidates(g, data.filter(|&v| g.ty(v).rank() > 0 && g.ty(v).dtype.is_int()), n);
    found.retain(|a| !state.contains(a));
    found.truncate(1);
    found
}

fn nothing_to_split(problem: &Problem, module: &Module, axis: &str, n: usize) -> PassError {
    let g = module.graph(problem.entry);
    let sizes: BTreeSet<usize> =
        problem.candidates(g, g.params().iter().copied(), 1).iter().map(|&a| problem.atoms.size(a)).collect();
    PassError::Layout {
        message: format!("--{axis} {n}: no dimension of the model divides by {n} and may be split"),
        help: format!(
            "dimensions that may be split have the sizes {sizes:?}; choose a divisor of one of them"
        ),
    }
}

/// Maximal sets of candidates without a conflict.
fn legal_sets(candidates: &[AtomId], conflicts: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let n = candidates.len();
    let fits = |set: &[usize], c: usize| set.iter().all(|&s| !conflicts.contains(&(s.min(c), s.max(c))));
    if n > MAX_ENUMERATED {
        let mut set = Vec::new();
        for c in 0..n {
            if fits(&set, c) {
                set.push(c);
            }
        }
        return vec![set];
    }
    let mut out: Vec<Vec<usize>> = Vec::new();
    for bits in 1u32..1 << n {
        let set: Vec<usize> = (0..n).filter(|&i| bits >> i & 1 == 1).collect();
        let legal = set.iter().enumerate().all(|(i, &c)| fits(&set[..i], c));
        if legal {
            out.push(set);
        }
    }
    out
}

fn best(
    problem: &Problem,
    module: &Module,
    options: &Options,
    axis: AxisId,
    candidates: &[AtomId],
    sets: Vec<Vec<usize>>,
    chosen: &mut Chosen,
) -> Result<()> {
    let with = |set: &[usize]| {
        let mut a = chosen.assignment.clone();
        a.atoms.extend(set.iter().map(|&i| (candidates[i], axis)));
        a
    };
    let sized: Vec<(u64, Assignment)> =
        sets.iter().map(|s| with(s)).map(|a| (problem.state_bytes(module, &a), a)).collect();
    let least = sized.iter().map(|(b, _)| *b).min().unwrap_or(0);
    let slack = problem.state_bytes(module, &Assignment::default()) / STATE_SLACK;
    let mut ties: Vec<Assignment> =
        sized.into_iter().filter(|(b, _)| *b <= least + slack).map(|(_, a)| a).collect();
    chosen.compared += ties.len();
    if ties.len() > 1 {
        let mut timed = Vec::new();
        for a in ties {
            let t = lower::lower(module, problem, &a, &options.device)?.predicted_ps;
            timed.push((t, a.atoms.len(), a));
        }
        timed.sort_by(|x, y| (x.0, x.1, &x.2.atoms).cmp(&(y.0, y.1, &y.2.atoms)));
        ties = timed.into_iter().map(|(_, _, a)| a).collect();
    }
    chosen.assignment = ties.into_iter().next().ok_or_else(|| PassError::Layout {
        message: "no set of dimensions can be split together".into(),
        help: "use fewer ranks".into(),
    })?;
    Ok(())
}
