//! What the search knows of a module: its atoms, and how its entry is seen from outside.

use super::SplitReport;
use crate::error::Result;
use msc_ir::factor::solve::{AtomId, AtomList, Atoms};
use msc_ir::graph::ValueId;
use msc_ir::module::{AxisId, Mesh, Sharding};
use msc_ir::{Entry, Graph, GraphId, Module, TensorType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// One mesh axis and the atoms it splits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// The axis.
    pub axis: AxisId,
    /// Its atoms. No value has two of them.
    pub atoms: BTreeSet<AtomId>,
}

/// Where a split atom lies in a value: the dimension, and what lies outside and inside of it there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The dimension.
    pub dim: usize,
    /// Product of the dimension's atoms outside of it.
    pub outer: usize,
    /// Size of the atom before it is split.
    pub size: usize,
}

/// Pairs of candidates, by number, that cannot be split along one axis.
#[derive(Debug)]
pub struct Conflicts(BTreeSet<(usize, usize)>);

impl Conflicts {
    /// Whether candidate `c` can be split beside those of a set.
    pub fn fits(&self, set: &[usize], c: usize) -> bool {
        set.iter().all(|&s| !self.0.contains(&(s.min(c), s.max(c))))
    }

    /// The candidates of `order` that fit those taken before them.
    pub fn greedy(&self, order: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut set = Vec::new();
        for c in order {
            if self.fits(&set, c) {
                set.push(c);
            }
        }
        set
    }
}

/// A module's default entry as the search sees it.
#[derive(Debug)]
pub struct Problem {
    /// Atoms of the entry (scope 0) and of the graphs it calls.
    pub atoms: Atoms,
    /// The entry's graph.
    pub entry: GraphId,
    /// How the entry's parameters are known.
    pub info: Entry,
    /// Of each atom of the entry's parameters, the first of them and its dimension.
    first: OnceLock<BTreeMap<AtomId, (usize, usize)>>,
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
        Ok(Problem { atoms, entry: info.graph, info, first: OnceLock::new() })
    }

    /// The first dimension of a value of a scope with an atom that `is` is true of: the dimension, its atoms, and which of
    /// them it is.
    pub fn find(
        &self,
        scope: usize,
        v: ValueId,
        is: impl Fn(AtomId) -> bool,
    ) -> Option<(usize, AtomList, usize)> {
        (0..self.atoms.rank_in(scope, v)).find_map(|dim| {
            let list = self.atoms.dim_in(scope, v, dim);
            let at = list.iter().position(|&a| is(a))?;
            Some((dim, list, at))
        })
    }

    /// Where a split's atom lies in a value of a scope, if the value has one.
    pub fn place(&self, scope: usize, v: ValueId, split: &Split) -> Option<Place> {
        let (dim, list, at) = self.find(scope, v, |a| split.atoms.contains(&a))?;
        let outer = list[..at].iter().map(|&a| self.atoms.size(a)).product();
        Some(Place { dim, outer, size: self.atoms.size(list[at]) })
    }

    /// The type of a value of a scope on one rank of the split's axis.
    pub fn local(&self, scope: usize, g: &Graph, v: ValueId, split: &Split, mesh: &Mesh) -> TensorType {
        let mut ty = g.ty(v).clone();
        if let Some(p) = self.place(scope, v, split) {
            ty.shape[p.dim] /= mesh.size(split.axis);
        }
        ty
    }

    /// The sharding of an entry value that had `old` before the split.
    pub fn sharding(&self, v: ValueId, split: &Split, old: &Sharding) -> Sharding {
        let mut new = old.clone();
        if let Some(p) = self.place(0, v, split) {
            new.dims.resize(self.atoms.rank_in(0, v), Vec::new());
            new.dims[p.dim].push(split.axis);
            if p.outer != 1 {
                new.parts.resize(new.dims.len(), 1);
                new.parts[p.dim] = p.outer;
            }
        }
        new
    }

    /// Donated parameters.
    pub fn donated<'a>(&'a self, g: &'a Graph) -> impl Iterator<Item = ValueId> + 'a {
        let params = self.info.params.iter().zip(g.params());
        params.filter(|(p, _)| p.alias.is_some()).map(|(_, &v)| v)
    }

    /// Donated parameters; where the file donates nothing, every float parameter that is no scalar.
    pub fn state(&self, g: &Graph) -> Vec<ValueId> {
        let donated: Vec<ValueId> = self.donated(g).collect();
        if !donated.is_empty() {
            return donated;
        }
        let float = |v: &ValueId| g.ty(*v).rank() > 0 && g.ty(*v).dtype.is_float();
        g.params().iter().copied().filter(float).collect()
    }

    /// Bytes of state on one rank.
    pub fn state_bytes(&self, module: &Module) -> u64 {
        let g = module.graph(self.entry);
        self.state(g).into_iter().map(|v| g.ty(v).bytes() as u64).sum()
    }

    /// Which parameters a split cuts, in words.
    pub fn describe(&self, module: &Module, split: &Split) -> Vec<SplitReport> {
        let report = |&atom: &AtomId| SplitReport {
            axis: module.mesh.axes[split.axis.0 as usize].name.clone(),
            size: self.atoms.size(atom),
            parameters: self.parameters_with(module, atom),
        };
        let mut out: Vec<SplitReport> = split.atoms.iter().map(report).collect();
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

    /// An atom in words: a parameter's dimension, or its size. Atoms are not identified with others any more then.
    pub fn name(&self, module: &Module, atom: AtomId) -> String {
        let first = self.first.get_or_init(|| {
            let g = module.graph(self.entry);
            let mut out = BTreeMap::new();
            for (n, &v) in g.params().iter().enumerate() {
                for d in 0..g.ty(v).rank() {
                    for a in self.atoms.dim(v, d) {
                        out.entry(a).or_insert((n, d));
                    }
                }
            }
            out
        });
        match first.get(&atom) {
            Some(&(n, d)) => format!("{}[{d}]", self.info.params[n].name),
            None => format!("a dimension of {}", self.atoms.size(atom)),
        }
    }

    /// The entry's parameters and results with their layouts.
    fn outside<'a>(&'a self, g: &'a Graph) -> impl Iterator<Item = (ValueId, &'a Sharding)> {
        let params = g.params().iter().copied().zip(self.info.params.iter().map(|p| &p.sharding));
        params.chain(g.results().iter().copied().zip(self.info.results.iter().map(|r| &r.sharding)))
    }

    /// Atoms of dimensions of the entry's values that some axis splits.
    pub fn split(&self, g: &Graph) -> BTreeSet<AtomId> {
        let dims = |(v, s): (ValueId, &'_ Sharding)| -> Vec<AtomId> {
            let split = (0..g.ty(v).rank()).filter(|&d| !s.axes(d).is_empty());
            split.flat_map(|d| self.atoms.dim(v, d)).collect()
        };
        self.outside(g).flat_map(dims).collect()
    }

    /// Atoms of the entry's values that no [`Sharding`] can say are split along an axis: all of a value that the axis
    /// splits already, and those inside of others in a dimension that is cut already in other parts.
    pub fn unsayable(&self, g: &Graph, axis: AxisId) -> BTreeSet<AtomId> {
        let mut out = BTreeSet::new();
        for (v, s) in self.outside(g) {
            let taken = s.dims.iter().flatten().any(|a| *a == axis);
            for d in 0..g.ty(v).rank() {
                let mut outer = 1;
                for a in self.atoms.dim(v, d) {
                    if taken || !s.axes(d).is_empty() && outer != s.parts(d) {
                        out.insert(a);
                    }
                    outer *= self.atoms.size(a);
                }
            }
        }
        out
    }

    /// Atoms of the values `of` that `n` ranks along an axis can split, in order of the values.
    pub fn candidates(
        &self,
        g: &Graph,
        of: impl IntoIterator<Item = ValueId>,
        axis: AxisId,
        n: usize,
    ) -> Vec<AtomId> {
        let unsayable = self.unsayable(g, axis);
        let mut found = Vec::new();
        for v in of {
            for atom in (0..g.ty(v).rank()).flat_map(|d| self.atoms.dim(v, d)) {
                if !found.contains(&atom) {
                    found.push(atom);
                }
            }
        }
        let stacks = self.info.params.iter().zip(g.params()).filter(|(p, _)| !p.stack.is_empty());
        // Whole parameters are dealt out by the axis that is for that.
        let stacks: BTreeSet<AtomId> = stacks.flat_map(|(_, &v)| self.atoms.dim(v, 0)).collect();
        found.retain(|a| {
            !unsayable.contains(a)
                && !stacks.contains(a)
                && !self.atoms.is_whole(*a)
                && self.atoms.size(*a).is_multiple_of(n)
        });
        found
    }

    /// The candidates of `n` ranks along an axis that are asked for: outermost in these dimensions of these parameters.
    pub fn candidates_at(&self, g: &Graph, asked: &[(usize, usize)], axis: AxisId, n: usize) -> Vec<AtomId> {
        let first = |&(p, d): &(usize, usize)| self.atoms.dim(g.params()[p], d).first().copied();
        let wanted: BTreeSet<AtomId> = asked.iter().filter_map(first).collect();
        let mut found = self.candidates(g, asked.iter().map(|&(p, _)| g.params()[p]), axis, n);
        found.retain(|a| wanted.contains(a));
        found
    }

    /// Pairs of `candidates` that meet in one value or in one op: a rank would hold, or compute, a diagonal block.
    pub fn conflicts(&self, module: &Module, candidates: &[AtomId]) -> Conflicts {
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
        for (scope, id) in self.atoms.scope_graphs().enumerate() {
            let Some(g) = id.map(|id| module.graph(id)) else { continue };
            for v in 0..g.value_count() as u32 {
                let v = ValueId(v);
                meet((0..g.ty(v).rank()).flat_map(|d| self.atoms.dim_in(scope, v, d)).collect());
            }
            for (op, _) in g.ops() {
                meet(self.atoms.met_by(scope, op));
            }
        }
        Conflicts(out)
    }
}
