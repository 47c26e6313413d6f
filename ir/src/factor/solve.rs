//! Factors of a whole graph: the ops' rules solved together.
//!
//! Every dimension of every value is an ordered list of *atoms*, outermost first. Walking the ops, an op's
//! factors are identified with the atoms of the dimensions they name; where a dimension of one tensor is a
//! product of dimensions of another (a reshape), its atom is refined into a list. At the end each atom is a
//! class of dimensions, over the whole graph, that can only be split together. Nearly linear in the number of
//! ops.

use super::{DimFactors, FactorKind, FactorRule};
use crate::graph::{Graph, OpId, ValueId};
use crate::module::{GraphId, Module};
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::types::TensorType;
use smallvec::SmallVec;

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
}

/// The atoms of a graph, or of a graph and those it calls.
#[derive(Clone, Debug, Default)]
pub struct Atoms {
    nodes: Vec<Node>,
    scopes: Vec<Scope>,
}

impl Atoms {
    /// Solves the rules of a graph's ops. A call counts as one op with [`graph_rule`] as its rule.
    pub fn solve(module: &Module, graph: &Graph) -> Atoms {
        let mut a = Atoms::default();
        a.add_scope(module, graph, None);
        a.mark_needs();
        a
    }

    /// Solves a graph together with all graphs it calls. A called graph is one scope however often it is called,
    /// so its atoms are the same in every call. Scope 0 is the graph itself; [`Atoms::scope_of`] finds the others.
    pub fn solve_calls(module: &Module, entry: GraphId) -> Atoms {
        fn visit(module: &Module, order: &mut Vec<GraphId>, g: GraphId) {
            for (_, o) in module.graph(g).ops() {
                if let Op::Call(c) = &o.op
                    && !order.contains(&c.graph)
                {
                    visit(module, order, c.graph);
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
        a.mark_needs();
        a
    }

    fn add_scope(&mut self, module: &Module, graph: &Graph, id: Option<GraphId>) {
        let mut scope = Scope { graph: id, ops: vec![Vec::new(); graph.op_count()], ..Scope::default() };
        scope.rules = vec![FactorRule::default(); graph.op_count()];
        scope.dims = (0..graph.value_count()).map(|v| self.fresh(graph.ty(ValueId(v as u32)))).collect();
        for (id, data) in graph.ops() {
            if let Op::Call(c) = &data.op
                && let Some(callee) = self.scopes.iter().position(|s| s.graph == Some(c.graph))
            {
                let g = module.graph(c.graph);
                let sides = data.operands.iter().zip(g.params()).chain(data.results.iter().zip(g.results()));
                for (mine, theirs) in sides {
                    for d in 0..graph.ty(*mine).rank() {
                        let a = scope.dims[mine.0 as usize][d].clone();
                        let b = self.scopes[callee].dims[theirs.0 as usize][d].clone();
                        self.unify(&a, &b);
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
                    self.unify(&theirs, &mine);
                }
            }
            scope.ops[id.0 as usize] = made;
            scope.rules[id.0 as usize] = rule;
        }
        self.scopes.push(scope);
    }

    /// Marks the atoms that some op needs whole, once all refinement is done.
    fn mark_needs(&mut self) {
        for s in 0..self.scopes.len() {
            for op in 0..self.scopes[s].ops.len() {
                for f in 0..self.scopes[s].ops[op].len() {
                    let kind = self.scopes[s].rules[op].factors[f].kind;
                    let atoms = self.resolve(&[self.scopes[s].ops[op][f]]);
                    for (i, &atom) in atoms.iter().enumerate() {
                        // A shard of an inner atom is strided: it has no single start.
                        let inner = i > 0 && matches!(kind, FactorKind::Offset | FactorKind::Range);
                        if inner || matches!(kind, FactorKind::Whole | FactorKind::Halo { .. }) {
                            self.mark_whole(atom);
                        }
                    }
                }
            }
        }
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

    /// Identifies the dimensions of two values of a scope that must always be laid out alike (a donated argument
    /// and the result that replaces it).
    pub fn tie(&mut self, scope: usize, a: ValueId, b: ValueId) {
        for d in 0..self.scopes[scope].dims[a.0 as usize].len() {
            let (x, y) = (self.dim_in(scope, a, d), self.dim_in(scope, b, d));
            self.unify(&x, &y);
        }
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
    /// must stay whole.
    fn unify(&mut self, a: &[AtomId], b: &[AtomId]) {
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
                return;
            }
        }
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

    /// The canonical atoms of factor `f` of the rule of an op of a scope.
    pub fn factor_in(&self, scope: usize, op: OpId, f: usize) -> AtomList {
        self.resolve(&[self.scopes[scope].ops[op.0 as usize][f]])
    }

    /// The rule of an op of a scope; empty for a call solved together with its graph.
    pub fn rule_in(&self, scope: usize, op: OpId) -> &FactorRule {
        &self.scopes[scope].rules[op.0 as usize]
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

    /// Whether some op needs the atom whole.
    pub fn is_whole(&self, atom: AtomId) -> bool {
        self.is_whole_node(self.find(atom))
    }

    /// Whether a value of scope 0 has the atom in some dimension.
    pub fn value_has(&self, v: ValueId, atom: AtomId) -> bool {
        (0..self.scopes[0].dims[v.0 as usize].len()).any(|d| self.dim(v, d).contains(&atom))
    }

    /// Every canonical atom once, in order of creation.
    pub fn all(&self) -> Vec<AtomId> {
        (0..self.nodes.len() as u32)
            .map(AtomId)
            .filter(|a| matches!(self.nodes[a.0 as usize], Node::Leaf { .. }))
            .collect()
    }
}

/// The factor rule of a graph seen as one op.
///
/// An atom of a parameter or result is a factor. It passes unless some op needs it whole; it is reduced by a
/// monoid if every result without it is directly the result of a reduction over it; otherwise, where a result
/// lacks it, it is whole, unless it passes and the result does not depend on any value that has it.
pub fn graph_rule(module: &Module, graph: &Graph) -> FactorRule {
    graph_factors(graph, &Atoms::solve(module, graph)).0
}

/// [`graph_rule`] of solved atoms, and the atom behind each factor.
pub fn graph_factors(graph: &Graph, atoms: &Atoms) -> (FactorRule, Vec<AtomId>) {
    let params: Vec<&TensorType> = graph.params().iter().map(|&v| graph.ty(v)).collect();
    let results = graph.result_types();
    let mut rule = FactorRule::empty(&params, &results);
    let mut known: Vec<AtomId> = Vec::new();
    let sides = graph.params().iter().map(|&v| (true, v)).chain(graph.results().iter().map(|&v| (false, v)));
    let (mut p, mut r) = (0, 0);
    for (is_param, v) in sides {
        for d in 0..graph.ty(v).rank() {
            let mut list = DimFactors::new();
            for atom in atoms.dim(v, d) {
                let f = known.iter().position(|&k| k == atom).unwrap_or_else(|| {
                    known.push(atom);
                    rule.factor(atoms.size(atom), kind_of(graph, atoms, atom))
                });
                list.push(f);
            }
            if is_param {
                rule.operands[p][d] = list;
            } else {
                rule.results[r][d] = list;
            }
        }
        if is_param { p += 1 } else { r += 1 }
    }
    (rule, known)
}

/// The monoid by which op `op` reduces `atom`, if it does.
pub fn reduces(atoms: &Atoms, op: OpId, atom: AtomId) -> Option<Monoid> {
    let rule = atoms.rule(op);
    rule.factors.iter().enumerate().find_map(|(f, factor)| match factor.kind {
        FactorKind::Reduce(m) if atoms.factor(op, f).contains(&atom) => Some(m),
        _ => None,
    })
}

/// [`reduces`], where the op needs no start for it: with an operand that lacks the factor (the input of a
/// scatter) only one shard may contribute that operand.
fn reduces_alone(atoms: &Atoms, op: OpId, atom: AtomId) -> Option<Monoid> {
    let rule = atoms.rule(op);
    let has =
        |dims: &Vec<DimFactors>| dims.iter().any(|d| d.iter().any(|&f| atoms.factor(op, f).contains(&atom)));
    reduces(atoms, op, atom).filter(|_| rule.operands.iter().all(has))
}

fn kind_of(graph: &Graph, atoms: &Atoms, atom: AtomId) -> FactorKind {
    if atoms.is_whole(atom) {
        return FactorKind::Whole;
    }
    let mut monoid: Option<Monoid> = None;
    let mut direct: Vec<OpId> = Vec::new();
    let lacking: Vec<ValueId> =
        graph.results().iter().copied().filter(|&v| !atoms.value_has(v, atom)).collect();
    let depends = if lacking.is_empty() { Vec::new() } else { dependants(graph, atoms, atom) };
    let mut independent = false;
    for v in lacking {
        if !depends[v.0 as usize] {
            independent = true;
            continue;
        }
        let Some((op, _)) = graph.def(v) else { return FactorKind::Whole };
        match reduces_alone(atoms, op, atom) {
            Some(m) if monoid.is_none_or(|old| old == m) => {
                monoid = Some(m);
                direct.push(op);
            }
            _ => return FactorKind::Whole,
        }
        if !graph.value(v).uses.is_empty() {
            return FactorKind::Whole;
        }
    }
    // A reduction inside whose value is used further makes the factor whole.
    let inside = graph.ops().any(|(id, _)| {
        !direct.contains(&id)
            && atoms.rule(id).factors.iter().enumerate().any(|(f, factor)| {
                !matches!(factor.kind, FactorKind::Pass) && atoms.factor(id, f).contains(&atom)
            })
    });
    match monoid {
        _ if inside => FactorKind::Whole,
        // Combining the shards' results would combine the same value several times.
        Some(_) if independent => FactorKind::Whole,
        Some(m) => FactorKind::Reduce(m),
        None => FactorKind::Pass,
    }
}

/// Which values are computed from values that have the atom.
fn dependants(graph: &Graph, atoms: &Atoms, atom: AtomId) -> Vec<bool> {
    let mut out = vec![false; graph.value_count()];
    for &p in graph.params() {
        out[p.0 as usize] = atoms.value_has(p, atom);
    }
    for (_, data) in graph.ops() {
        let any = data.operands.iter().any(|v| out[v.0 as usize]);
        for &r in &data.results {
            out[r.0 as usize] = any || atoms.value_has(r, atom);
        }
    }
    out
}
