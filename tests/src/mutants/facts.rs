//! What mutators ask of a graph: views, scalars, who depends on whom, and the roles of state.

use super::subject::Subject;
use msc_ir::module::GraphId;
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Graph, OpData, OpId, ValueId};
use std::collections::BTreeSet;

/// A graph of a subject with the questions that mutators ask.
pub struct Facts<'a> {
    /// The subject.
    pub subject: &'a Subject,
    /// Which graph.
    pub id: GraphId,
    /// The graph.
    pub graph: &'a Graph,
}

/// Whether an op hands its first operand's elements on, in another shape, order or type.
pub fn is_view(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape(_)
            | Op::Broadcast(_)
            | Op::Permute(Permute::Transpose(_))
            | Op::Convert(Convert::Value(_))
            | Op::Barrier(_)
    )
}

/// Whether an op works element by element (views included).
pub fn is_elementwise(op: &Op) -> bool {
    is_view(op) || matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Select(_) | Op::ReducePrecision(_))
}

/// The kind of a binary op.
pub fn binary(op: &Op) -> Option<BinaryKind> {
    if let Op::Binary(b) = op { Some(b.kind) } else { None }
}

/// The kind of a unary op.
pub fn unary(op: &Op) -> Option<UnaryKind> {
    if let Op::Unary(u) = op { Some(u.kind) } else { None }
}

impl<'a> Facts<'a> {
    /// The facts of one graph.
    pub fn new(subject: &'a Subject, id: GraphId) -> Facts<'a> {
        Facts { subject, id, graph: subject.module.graph(id) }
    }

    /// The facts of every graph that computes tensors: the entry's, and bodies of loops and branches. Conditions
    /// and reducers are none of them.
    pub fn all(subject: &'a Subject) -> Vec<Facts<'a>> {
        let (mut out, mut next) = (Vec::new(), vec![subject.entry.graph]);
        while let Some(id) = next.pop() {
            if out.iter().any(|f: &Facts<'_>| f.id == id) {
                continue;
            }
            let f = Facts::new(subject, id);
            for (_, d) in f.graph.ops() {
                match &d.op {
                    Op::While(w) => next.push(w.body),
                    Op::Branch(_) | Op::Call(_) => {
                        next.extend(msc_ir::Operation::callees(&d.op));
                    }
                    _ => {}
                }
            }
            out.push(f);
        }
        out
    }

    /// Whether this is the entry's graph.
    pub fn is_entry(&self) -> bool {
        self.id == self.subject.entry.graph
    }

    /// The op that defines a value.
    pub fn def(&self, v: ValueId) -> Option<(OpId, &'a OpData)> {
        self.graph.def(v).map(|(id, _)| (id, self.graph.op(id)))
    }

    /// The value that `v` is a view of.
    pub fn root(&self, mut v: ValueId) -> ValueId {
        while let Some((id, i)) = self.graph.def(v)
            && is_view(&self.graph.op(id).op)
        {
            v = self.graph.op(id).operands[i as usize];
        }
        v
    }

    /// The op behind the views of `v`.
    pub fn root_def(&self, v: ValueId) -> Option<(OpId, &'a OpData)> {
        self.def(self.root(v))
    }

    /// The one number that all elements of `v` are by construction: a splat, or a view of one scalar, whose value
    /// is that of the recorded run.
    pub fn scalar(&self, v: ValueId) -> Option<f64> {
        let root = self.root(v);
        if let Some((_, OpData { op: Op::Constant(c), .. })) = self.def(root) {
            return self.subject.module.constants.splat_value(c.id);
        }
        if self.graph.ty(root).rank() != 0 || !self.is_entry() {
            return None;
        }
        self.subject.spec.value(root).map(|t| t.data.get_f64(0))
    }

    /// For a binary op with one scalar operand: (index of the scalar, its value, the other operand).
    pub fn with_scalar(&self, d: &OpData) -> Option<(usize, f64, ValueId)> {
        let &[a, b] = d.operands.as_slice() else { return None };
        match (self.scalar(a), self.scalar(b)) {
            (None, Some(c)) => Some((1, c, a)),
            (Some(c), None) => Some((0, c, b)),
            _ => None,
        }
    }

    /// Values from which `v` is computed, itself included, through ops that `through` accepts.
    pub fn back(&self, v: ValueId, through: impl Fn(&OpData) -> bool) -> BTreeSet<ValueId> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![v]);
        while let Some(v) = next.pop() {
            if seen.insert(v)
                && let Some((_, d)) = self.def(v)
                && through(d)
            {
                next.extend(&d.operands);
            }
        }
        seen
    }

    /// Values that are computed from `v`, itself included, through ops that `through` accepts.
    pub fn forward(&self, v: ValueId, through: impl Fn(&OpData) -> bool) -> BTreeSet<ValueId> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![v]);
        while let Some(v) = next.pop() {
            if seen.insert(v) {
                for u in &self.graph.value(v).uses {
                    let d = self.graph.op(u.op);
                    if through(d) {
                        next.extend(&d.results);
                    }
                }
            }
        }
        seen
    }

    /// Ops of the graph.
    pub fn ops(&self) -> impl Iterator<Item = (OpId, &'a OpData)> {
        let g = self.graph;
        g.ops()
    }
}

/// What a piece of state is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A weight, or a master copy of one.
    Weight,
    /// A first moment.
    First,
    /// A second moment.
    Second,
    /// A count of steps.
    Counter,
    /// Something else (a key, a loss scale, a 16-bit copy).
    Other,
}

/// State: a result that is a parameter's next value.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Index of the parameter.
    pub param: usize,
    /// Index of the result.
    pub result: usize,
    /// Its role, found by what is computed from it.
    pub role: Role,
}

impl Facts<'_> {
    /// The values that the next value of `s` may be, behind selections (a skipped step keeps the old one).
    pub fn news(&self, s: &State) -> Vec<ValueId> {
        let p = self.graph.params()[s.param];
        let (mut out, mut next) = (Vec::new(), vec![self.graph.results()[s.result]]);
        while let Some(v) = next.pop() {
            if v == p || out.contains(&v) {
                continue;
            }
            out.push(v);
            match self.def(v) {
                Some((_, OpData { op: Op::Select(Select::Select), operands, .. })) => {
                    next.extend(&operands[1..])
                }
                Some((_, d)) if is_view(&d.op) && d.operands.len() == 1 => next.push(d.operands[0]),
                _ => {}
            }
        }
        out
    }

    /// All state with its roles; empty but for the entry.
    pub fn states(&self) -> Vec<State> {
        if !self.is_entry() {
            return Vec::new();
        }
        let states =
            self.subject.carried.iter().map(|&(result, param)| State { param, result, role: Role::Other });
        let mut out: Vec<State> = states.collect();
        for i in 0..out.len() {
            out[i].role = self.role(&out[i], &out);
        }
        out
    }

    fn role(&self, s: &State, all: &[State]) -> Role {
        let (p, r) = (self.graph.params()[s.param], self.graph.results()[s.result]);
        let ty = self.graph.ty(p);
        let news = self.news(s);
        let counts = |v: &ValueId| {
            self.def(*v).is_some_and(|(_, d)| {
                binary(&d.op) == Some(BinaryKind::Add)
                    && self.root(d.operands[0]) == p
                    && self.scalar(d.operands[1]) == Some(1.0)
            })
        };
        if ty.rank() == 0 {
            return if news.iter().any(counts) { Role::Counter } else { Role::Other };
        }
        if !ty.dtype.is_float() || !self.back(r, |d| is_elementwise(&d.op)).contains(&p) {
            return Role::Other;
        }
        let mut role = Role::Weight;
        for &v in &news {
            for &x in &self.forward(v, |d| is_elementwise(&d.op)) {
                let root_of = |d: &OpData| matches!(unary(&d.op), Some(UnaryKind::Sqrt | UnaryKind::Rsqrt));
                if self.graph.value(x).uses.iter().any(|u| root_of(self.graph.op(u.op))) {
                    return Role::Second;
                }
                let arithmetic = self.def(x).is_some_and(|(_, d)| binary(&d.op).is_some());
                let elsewhere = |o: &&State| o.result != s.result && self.news(o).contains(&x);
                if arithmetic && !news.contains(&x) && all.iter().any(|o| elsewhere(&o)) {
                    role = Role::First;
                }
            }
        }
        role
    }
}

/// How a moment decays and what it takes in: `decay·m + gain·g`, or `m + gain·(g − m)`.
pub struct Moment {
    /// The state.
    pub state: State,
    /// The scalar operand that is the decay, if it is spelled.
    pub decay: Option<(OpId, usize, f64)>,
    /// The scalar operand that is the gain.
    pub gain: Option<(OpId, usize, f64)>,
    /// The gradient that it takes in.
    pub gradient: Option<ValueId>,
}

impl Facts<'_> {
    /// The updates of moments among `states`.
    pub fn moments(&self, states: &[State]) -> Vec<Moment> {
        let of = |s: &&State| matches!(s.role, Role::First | Role::Second);
        states.iter().filter(of).filter_map(|s| self.moment(s)).collect()
    }

    fn moment(&self, s: &State) -> Option<Moment> {
        let p = self.graph.params()[s.param];
        let mut m = Moment { state: *s, decay: None, gain: None, gradient: None };
        for v in self.news(s) {
            let Some((_, add)) = self.def(v) else { continue };
            if binary(&add.op) != Some(BinaryKind::Add) {
                continue;
            }
            for side in [0, 1] {
                let (Some((a, mine)), Some((b, taken))) =
                    (self.root_def(add.operands[side]), self.root_def(add.operands[1 - side]))
                else {
                    // `m + gain·(g − m)` has the parameter itself on one side.
                    continue;
                };
                let (Some((i, c, x)), Some((j, k, y))) = (self.product(mine), self.product(taken)) else {
                    continue;
                };
                if self.root(x) == p {
                    m.decay = Some((a, i, c));
                    m.gain = Some((b, j, k));
                    m.gradient = Some(self.unsquared(y, s.role));
                    return Some(m);
                }
            }
            for side in [0, 1] {
                if self.root(add.operands[side]) != p {
                    continue;
                }
                let Some((b, taken)) = self.root_def(add.operands[1 - side]) else { continue };
                let Some((j, k, y)) = self.product(taken) else { continue };
                let Some((_, d)) = self.root_def(y) else { continue };
                if binary(&d.op) == Some(BinaryKind::Subtract) && self.root(d.operands[1]) == p {
                    m.gain = Some((b, j, k));
                    m.gradient = Some(self.unsquared(d.operands[0], s.role));
                    return Some(m);
                }
            }
        }
        None
    }

    fn product(&self, d: &OpData) -> Option<(usize, f64, ValueId)> {
        if binary(&d.op) == Some(BinaryKind::Multiply) { self.with_scalar(d) } else { None }
    }

    fn unsquared(&self, v: ValueId, role: Role) -> ValueId {
        match self.root_def(v) {
            Some((_, d)) if role == Role::Second && binary(&d.op).is_some() => d.operands[0],
            _ => v,
        }
    }
}
