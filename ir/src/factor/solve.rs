//! Factors of a whole graph: the ops' rules solved together.
//!
//! Every dimension of every value is an ordered list of *atoms*, outermost first. Walking the ops, an op's
//! factors are identified with the atoms of the dimensions they name; where a dimension of one tensor is a
//! product of dimensions of another (a reshape), its atom is refined into a list. At the end each atom is a
//! class of dimensions, over the whole graph, that can only be split together. Nearly linear in the number of
//! ops.

use super::{FactorKind, FactorRule};
use crate::graph::{Graph, OpData, OpId, ValueId};
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::ops::call::wires;
use crate::ops::reduce::identity;
use crate::types::TensorType;
use smallvec::SmallVec;
use std::collections::BTreeSet;

pub use super::graph::{graph_factors, graph_rule, reduces};

/// Index of an atom in its [`Atoms`]. Only ids that [`Atoms::resolve`] returns are canonical.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AtomId(pub u32);

#[derive(Clone, Debug)]
enum Node {
    /// `weight` counts the nodes linked to this one, so that links stay short.
    Leaf {
        size: usize,
        whole: bool,
        weight: u32,
    },
    Link(AtomId),
    Split(AtomId, AtomId),
}

/// A list of atoms, outermost first.
pub type AtomList = SmallVec<[AtomId; 4]>;

/// What is known of one graph.
#[derive(Clone, Debug, Default)]
struct Scope {
    graph: Option<GraphId>,
    /// Per value and dimension.
    dims: Vec<Vec<AtomList>>,
    /// Per op, the atom made for each factor of its rule.
    ops: Vec<Vec<AtomId>>,
    rules: Vec<FactorRule>,
    /// Per op, whether it is a scatter into what its combination leaves as it is: every shard may start from that.
    neutral: Vec<bool>,
    /// Per op, whether its rule has no common refinement with the layouts of its values.
    torn: Vec<bool>,
}

/// Whether an op is a scatter into a constant of its monoid's identity.
fn is_neutral(module: &Module, graph: &Graph, data: &OpData) -> bool {
    let Op::Scatter(scatter) = &data.op else { return false };
    let Some(m) = scatter.combine else { return false };
    let Some((into, _)) = graph.def(data.operands[0]) else { return false };
    let Op::Constant(c) = graph.op(into).op else { return false };
    let e = identity(m, graph.ty(data.operands[0]).dtype).to_f64s();
    module.constants.splat_value(c.id).is_some_and(|v| e == [v])
}

/// The atoms of a graph, or of a graph and those it calls.
#[derive(Clone, Debug, Default)]
pub struct Atoms {
    nodes: Vec<Node>,
    scopes: Vec<Scope>,
    /// Atoms inside of whole ones, once all is settled.
    pieces: BTreeSet<AtomId>,
}

/// Collects the atoms that a list has more than once.
fn twice(mut list: AtomList, out: &mut BTreeSet<AtomId>) {
    list.sort_unstable();
    out.extend(list.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]));
}

impl Atoms {
    /// Solves the rules of a graph's ops. A call counts as one op with [`graph_rule`] as its rule.
    pub fn solve(module: &Module, graph: &Graph) -> Atoms {
        let mut a = Atoms::default();
        a.add_scope(module, graph, None);
        a.settle();
        a
    }

    /// Solves a graph together with all graphs it calls, loops over or branches to. A called graph is one scope however often it is called,
    /// so its atoms are the same in every call. Scope 0 is the graph itself; [`Atoms::scope_of`] finds the others.
    pub fn solve_calls(module: &Module, entry: GraphId) -> Atoms {
        fn visit(module: &Module, order: &mut Vec<GraphId>, g: GraphId) {
            for (_, o) in module.graph(g).ops() {
                for w in wires(&o.op) {
                    if !order.contains(&w.graph) {
                        visit(module, order, w.graph);
                    }
                }
            }
            if !order.contains(&g) {
                order.push(g);
            }
        }
        let mut a = Atoms::default();
        let mut order = Vec::new();
        visit(module, &mut order, entry);
        for &g in &order {
            a.add_scope(module, module.graph(g), Some(g));
        }
        a.scopes.rotate_right(1);
        a.settle();
        a
    }

    /// Solves several graphs, one scope each, whose parameters are the same values, and in which the results are
    /// the same as each other's (`alike`: branches) or as scope 0's parameters (a loop's body; the other scopes,
    /// its condition, give other results).
    pub(super) fn solve_together(module: &Module, graphs: &[GraphId], alike: bool) -> Atoms {
        let mut a = Atoms::default();
        for &g in graphs {
            a.add_scope(module, module.graph(g), Some(g));
        }
        let Some(first) = graphs.first().map(|&g| module.graph(g)) else { return a };
        let mut pairs: Vec<(ValueId, usize, ValueId)> = Vec::new();
        if !alike {
            pairs.extend(first.params().iter().zip(first.results()).map(|(&p, &r)| (p, 0, r)));
        }
        for (s, &g) in graphs.iter().enumerate().skip(1) {
            let g = module.graph(g);
            pairs.extend(first.params().iter().zip(g.params()).map(|(&p, &q)| (p, s, q)));
            if alike {
                pairs.extend(first.results().iter().zip(g.results()).map(|(&p, &q)| (p, s, q)));
            }
        }
        for (v, s, w) in pairs {
            for d in 0..a.scopes[0].dims[v.0 as usize].len() {
                let (x, y) = (a.dim_in(0, v, d), a.dim_in(s, w, d));
                a.unify(&x, &y);
            }
        }
        a.settle();
        a
    }

    fn add_scope(&mut self, module: &Module, graph: &Graph, id: Option<GraphId>) {
        let mut scope = Scope { graph: id, ops: vec![Vec::new(); graph.op_count()], ..Scope::default() };
        scope.rules = vec![FactorRule::default(); graph.op_count()];
        scope.neutral = vec![false; graph.op_count()];
        scope.torn = vec![false; graph.op_count()];
        scope.dims = (0..graph.value_count()).map(|v| self.fresh(graph.ty(ValueId(v as u32)))).collect();
        for (id, data) in graph.ops() {
            let wired = wires(&data.op);
            let known =
                |w: &crate::ops::call::Wire| self.scopes.iter().position(|s| s.graph == Some(w.graph));
            let callees: Option<Vec<usize>> = wired.iter().map(known).collect();
            if let Some(callees) = callees.filter(|c| !c.is_empty()) {
                for (w, callee) in wired.iter().zip(callees) {
                    let g = module.graph(w.graph);
                    let carried = data.operands.iter().zip(g.results()).filter(|_| w.carries);
                    let results = data.results.iter().zip(g.results()).filter(|_| w.results);
                    let sides = data.operands[w.first_operand..].iter().zip(g.params());
                    for (mine, theirs) in sides.chain(results).chain(carried) {
                        for d in 0..graph.ty(*mine).rank() {
                            let a = scope.dims[mine.0 as usize][d].clone();
                            let b = self.scopes[callee].dims[theirs.0 as usize][d].clone();
                            self.unify(&a, &b);
                        }
                    }
                }
                continue;
            }
            let operands: SmallVec<[&TensorType; 4]> = data.operands.iter().map(|&v| graph.ty(v)).collect();
            let results: Vec<TensorType> = data.results.iter().map(|&v| graph.ty(v).clone()).collect();
            let rule = data.op.factor_rule(&operands, &results, module);
            let made: Vec<AtomId> = rule.factors.iter().map(|f| self.leaf(f.size)).collect();
            let sides =
                data.operands.iter().zip(&rule.operands).chain(data.results.iter().zip(&rule.results));
            for (v, dims) in sides {
                for (d, factors) in dims.iter().enumerate() {
                    if factors.is_empty() {
                        continue;
                    }
                    let theirs = scope.dims[v.0 as usize][d].clone();
                    let mine: AtomList = factors.iter().map(|&f| made[f]).collect();
                    scope.torn[id.0 as usize] |= !self.unify(&theirs, &mine);
                }
            }
            scope.ops[id.0 as usize] = made;
            scope.rules[id.0 as usize] = rule;
            scope.neutral[id.0 as usize] = is_neutral(module, graph, data);
        }
        self.scopes.push(scope);
    }

    /// Marks the atoms that must stay whole, once all refinement is done: those that some op needs whole, and
    /// those that one value has twice (`x·xᵀ`) or one op meets twice (a table indexed along its own split
    /// dimension). The shards of the latter two would be the diagonal blocks only.
    fn settle(&mut self) {
        let mut whole = BTreeSet::new();
        for (s, scope) in self.scopes.iter().enumerate() {
            for dims in &scope.dims {
                twice(dims.iter().flat_map(|l| self.resolve(l)).collect(), &mut whole);
            }
            for (op, rule) in scope.rules.iter().enumerate() {
                let op = OpId(op as u32);
                twice(self.met_by(s, op), &mut whole);
                for (f, factor) in rule.factors.iter().enumerate() {
                    let atoms = self.factor_in(s, op, f);
                    match factor.kind {
                        FactorKind::Pass | FactorKind::Reduce(_) => {}
                        // A shard of an inner atom is strided: it has no single start.
                        FactorKind::Offset | FactorKind::Range => whole.extend(atoms.iter().skip(1)),
                        FactorKind::Whole | FactorKind::Halo { .. } => whole.extend(atoms),
                    }
                }
            }
        }
        whole.into_iter().for_each(|a| self.mark_whole(a));
        let mut pieces = BTreeSet::new();
        for list in self.scopes.iter().flat_map(|s| s.dims.iter().flatten()).filter(|l| !l.is_empty()) {
            let list = self.resolve(list);
            let first = list.iter().position(|a| self.is_whole(*a)).unwrap_or(list.len());
            pieces.extend(list.into_iter().skip(first + 1));
        }
        self.pieces = pieces;
    }

    /// Whether the atom lies inside of one that must stay whole, in some value: it may be split, but its size says where
    /// the pieces of that value begin.
    pub fn is_piece(&self, atom: AtomId) -> bool {
        self.pieces.contains(&atom)
    }

    /// The atoms of which an op allows only one to be split along one mesh axis, besides what its values say.
    ///
    /// None where every factor passes: a result that lacks such a factor does not depend on it, so that factors
    /// meet in results only (an optimization barrier passes unrelated values). Otherwise those of all factors;
    /// an atom listed twice cannot be split at all.
    pub fn met_by(&self, scope: usize, op: OpId) -> AtomList {
        let factors = &self.rule_in(scope, op).factors;
        let passes = |f: usize| factors[f].kind == FactorKind::Pass;
        if (0..factors.len()).all(passes) {
            return AtomList::new();
        }
        let atoms = |f| self.factor_in(scope, op, f);
        let mut out: AtomList = (0..factors.len()).filter(|&f| passes(f)).flat_map(atoms).collect();
        out.sort_unstable();
        out.dedup();
        out.extend((0..factors.len()).filter(|&f| !passes(f)).flat_map(atoms));
        out
    }

    /// The scope of a called graph, after [`Atoms::solve_calls`].
    pub fn scope_of(&self, graph: GraphId) -> Option<usize> {
        self.scopes.iter().position(|s| s.graph == Some(graph))
    }

    fn leaf(&mut self, size: usize) -> AtomId {
        self.nodes.push(Node::Leaf { size, whole: false, weight: 1 });
        AtomId(self.nodes.len() as u32 - 1)
    }

    fn fresh(&mut self, ty: &TensorType) -> Vec<AtomList> {
        ty.shape
            .iter()
            .map(|&n| if n == 1 { AtomList::new() } else { AtomList::from_slice(&[self.leaf(n)]) })
            .collect()
    }

    fn find(&self, mut id: AtomId) -> AtomId {
        while let Node::Link(next) = self.nodes[id.0 as usize] {
            id = next;
        }
        id
    }

    /// [`Atoms::find`] that shortens the path for the next caller.
    fn find_mut(&mut self, id: AtomId) -> AtomId {
        let root = self.find(id);
        let mut at = id;
        while let Node::Link(next) = self.nodes[at.0 as usize] {
            self.nodes[at.0 as usize] = Node::Link(root);
            at = next;
        }
        root
    }

    /// Identifies the dimensions of pairs of values of a scope that must always be laid out alike (a donated
    /// argument and the result that replaces it).
    pub fn tie(&mut self, scope: usize, pairs: impl IntoIterator<Item = (ValueId, ValueId)>) {
        for (a, b) in pairs {
            for d in 0..self.scopes[scope].dims[a.0 as usize].len() {
                let (x, y) = (self.dim_in(scope, a, d), self.dim_in(scope, b, d));
                self.unify(&x, &y);
            }
        }
        self.settle();
    }

    /// Makes atoms of one size one: they are to be split together though no op ties them.
    pub fn identify(&mut self, atoms: &[AtomId]) {
        for pair in atoms.windows(2) {
            self.unify(&pair[..1], &pair[1..]);
        }
        self.settle();
    }

    fn flatten(&self, id: AtomId, out: &mut AtomList) {
        let id = self.find(id);
        match self.nodes[id.0 as usize] {
            Node::Split(outer, inner) => {
                self.flatten(outer, out);
                self.flatten(inner, out);
            }
            _ => out.push(id),
        }
    }

    fn size_of(&self, id: AtomId) -> usize {
        match self.nodes[self.find(id).0 as usize] {
            Node::Leaf { size, .. } => size,
            Node::Split(a, b) => self.size_of(a) * self.size_of(b),
            Node::Link(_) => 1,
        }
    }

    fn mark_whole(&mut self, id: AtomId) {
        let id = self.find(id);
        match self.nodes[id.0 as usize] {
            Node::Leaf { ref mut whole, .. } => *whole = true,
            Node::Split(a, b) => {
                self.mark_whole(a);
                self.mark_whole(b);
            }
            Node::Link(_) => {}
        }
    }

    fn is_whole_node(&self, id: AtomId) -> bool {
        matches!(self.nodes[id.0 as usize], Node::Leaf { whole: true, .. })
    }

    /// Identifies two lists of equal product. Where they have no common refinement, what is left on both sides
    /// must stay whole, and the answer is false.
    fn unify(&mut self, a: &[AtomId], b: &[AtomId]) -> bool {
        let flat = |s: &Atoms, l: &[AtomId]| {
            let mut out = AtomList::new();
            l.iter().for_each(|&x| s.flatten(x, &mut out));
            out.retain(|x| s.size_of(*x) != 1);
            out
        };
        let (mut a, mut b) = (flat(self, a), flat(self, b));
        // From the innermost outwards.
        while let (Some(x), Some(y)) = (a.pop(), b.pop()) {
            let (x, y) = (self.find_mut(x), self.find_mut(y));
            let (m, n) = (self.size_of(x), self.size_of(y));
            if x == y {
                continue;
            }
            if m == n {
                // An atom met twice in one list has been refined meanwhile.
                let (mut xs, mut ys) = (AtomList::new(), AtomList::new());
                self.flatten(x, &mut xs);
                self.flatten(y, &mut ys);
                if xs.len() > 1 || ys.len() > 1 {
                    a.extend(xs);
                    b.extend(ys);
                    continue;
                }
                self.link(x, y);
            } else if m > n && n > 0 && m % n == 0 {
                let (outer, inner) = self.refine(x, m / n, n);
                a.push(outer);
                a.push(inner);
                b.push(y);
            } else if n > m && m > 0 && n % m == 0 {
                let (outer, inner) = self.refine(y, n / m, m);
                b.push(outer);
                b.push(inner);
                a.push(x);
            } else {
                for id in a.into_iter().chain(b).chain([x, y]) {
                    self.mark_whole(id);
                }
                return false;
            }
        }
        true
    }

    /// Makes two leaves one.
    fn link(&mut self, x: AtomId, y: AtomId) {
        let (Node::Leaf { size, whole: a, weight: m }, Node::Leaf { whole: b, weight: n, .. }) =
            (&self.nodes[x.0 as usize], &self.nodes[y.0 as usize])
        else {
            return;
        };
        let both = Node::Leaf { size: *size, whole: *a || *b, weight: m + n };
        let (child, root) = if m < n { (x, y) } else { (y, x) };
        self.nodes[child.0 as usize] = Node::Link(root);
        self.nodes[root.0 as usize] = both;
    }

    fn refine(&mut self, id: AtomId, outer: usize, inner: usize) -> (AtomId, AtomId) {
        if let Node::Split(a, b) = self.nodes[id.0 as usize] {
            return (a, b);
        }
        let whole = self.is_whole_node(id);
        let (a, b) = (self.leaf(outer), self.leaf(inner));
        self.nodes[id.0 as usize] = Node::Split(a, b);
        if whole {
            self.mark_whole(id);
        }
        (a, b)
    }

    /// The canonical atoms of a dimension of a value of scope 0.
    pub fn dim(&self, v: ValueId, d: usize) -> AtomList {
        self.dim_in(0, v, d)
    }

    /// The canonical atoms of factor `f` of the rule of an op of scope 0.
    pub fn factor(&self, op: OpId, f: usize) -> AtomList {
        self.factor_in(0, op, f)
    }

    /// The rule of an op of scope 0.
    pub fn rule(&self, op: OpId) -> &FactorRule {
        self.rule_in(0, op)
    }

    /// The canonical atoms of a dimension of a value of a scope.
    pub fn dim_in(&self, scope: usize, v: ValueId, d: usize) -> AtomList {
        self.resolve(&self.scopes[scope].dims[v.0 as usize][d])
    }

    /// The rank of a value of a scope.
    pub fn rank_in(&self, scope: usize, v: ValueId) -> usize {
        self.scopes[scope].dims[v.0 as usize].len()
    }

    /// The canonical atoms of factor `f` of the rule of an op of a scope.
    pub fn factor_in(&self, scope: usize, op: OpId, f: usize) -> AtomList {
        self.resolve(&[self.scopes[scope].ops[op.0 as usize][f]])
    }

    /// The rule of an op of a scope; empty for a call solved together with its graph.
    pub fn rule_in(&self, scope: usize, op: OpId) -> &FactorRule {
        &self.scopes[scope].rules[op.0 as usize]
    }

    /// Whether the rule of an op of a scope has no common refinement with the layouts of its values.
    pub fn is_torn_in(&self, scope: usize, op: OpId) -> bool {
        self.scopes[scope].torn[op.0 as usize]
    }

    /// Number of scopes, and the graph of each.
    pub fn scope_graphs(&self) -> impl Iterator<Item = Option<GraphId>> {
        self.scopes.iter().map(|s| s.graph)
    }

    /// Whether an op of a scope combines something with what leaves it as it is, in operand 0.
    pub(crate) fn is_neutral_in(&self, scope: usize, op: OpId) -> bool {
        self.scopes[scope].neutral[op.0 as usize]
    }

    /// Canonical atoms of a list.
    pub fn resolve(&self, list: &[AtomId]) -> AtomList {
        let mut out = AtomList::new();
        list.iter().for_each(|&x| self.flatten(x, &mut out));
        out
    }

    /// Size of a canonical atom.
    pub fn size(&self, atom: AtomId) -> usize {
        self.size_of(atom)
    }

    /// Whether the atom must stay whole.
    pub fn is_whole(&self, atom: AtomId) -> bool {
        self.is_whole_node(self.find(atom))
    }

    /// Whether a value of scope 0 has the atom in some dimension.
    pub fn value_has(&self, v: ValueId, atom: AtomId) -> bool {
        self.value_has_in(0, v, atom)
    }

    /// Whether a value of a scope has the atom in some dimension.
    pub fn value_has_in(&self, scope: usize, v: ValueId, atom: AtomId) -> bool {
        (0..self.scopes[scope].dims[v.0 as usize].len()).any(|d| self.dim_in(scope, v, d).contains(&atom))
    }

    /// Every canonical atom once, in order of creation.
    pub fn all(&self) -> Vec<AtomId> {
        (0..self.nodes.len() as u32)
            .map(AtomId)
            .filter(|a| matches!(self.nodes[a.0 as usize], Node::Leaf { .. }))
            .collect()
    }
}
