//! Matching patterns against classes.

use super::label::{BOUND, COL, Indexed, Label, Labels, through_layout};
use super::pattern::{Head, Item, Number, Pattern, Place, Reduced};
use super::polynomial::{Polynomials, Users};
use super::rule::{Binding, Found, Match};
use super::term::{Graph, Node};
use super::view::{Base, Product, Sum, Term, Views};
use msc_ir::{Monoid, Op, TensorType};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Relative tolerance of literals: exporters write f32-rounded decimals, products of a few of them differ by a
/// few times 6e-8.
pub const LITERAL_TOLERANCE: f64 = 1e-6;

/// Matches of one pattern at one class before the rest are dropped: more alternatives mean one class with many
/// equal spellings, and the first serves as well.
const MAX_MATCHES: usize = 16;

/// Whether a value is a literal of a pattern. Zeros must have the same sign.
pub fn is_literal(value: f64, literal: f64) -> bool {
    if literal == 0.0 || literal.is_infinite() {
        return value.to_bits() == literal.to_bits();
    }
    (value - literal).abs() <= LITERAL_TOLERANCE * literal.abs()
}

/// Matches patterns against the classes of a clean e-graph.
pub struct Matcher<'g> {
    graph: &'g Graph,
    /// Views of the classes.
    pub views: Views<'g>,
    users: Option<Rc<Users>>,
    /// By anchors.
    polynomials: BTreeMap<BTreeSet<egg::Id>, Polynomials<'g>>,
}

type Factors = BTreeMap<Base, i16>;

impl<'g> Matcher<'g> {
    /// A matcher whose views treat `opaque` classes as factors.
    pub fn new(graph: &'g Graph, opaque: BTreeSet<egg::Id>) -> Matcher<'g> {
        Matcher { graph, views: Views::new(graph, opaque), users: None, polynomials: BTreeMap::new() }
    }

    /// Which classes are computed from which by arithmetic.
    pub fn users(&mut self) -> Rc<Users> {
        let graph = self.graph;
        self.users.get_or_insert_with(|| Rc::new(Users::new(graph))).clone()
    }

    /// The classes of the variables in a pattern that are known.
    pub fn known(&self, pattern: &Pattern, m: &Match) -> BTreeMap<&'static str, egg::Id> {
        let class = |v: &&'static str| Some((*v, self.graph.find(m.class(v)?.class)));
        pattern.variables().iter().filter_map(class).collect()
    }

    fn polynomial(&mut self, expression: &Pattern, at: &Indexed, m: &Match) -> Vec<Match> {
        let known = self.known(expression, m);
        let variables = expression.variables();
        // What is bound to something else than one class, or stands in another layout, is no atom here.
        let fits = |v: &&'static str| {
            m.vars.get(*v).is_none_or(|_| m.class(v).is_some_and(|i| i.labels == at.labels))
        };
        if !variables.iter().all(fits) {
            return Vec::new();
        }
        let users = self.users();
        let anchors: BTreeSet<egg::Id> = known.values().copied().collect();
        let graph = self.graph;
        let p = self
            .polynomials
            .entry(anchors.clone())
            .or_insert_with(|| Polynomials::new(graph, &users, anchors));
        let free = variables.iter().find(|v| !known.contains_key(**v)).copied();
        let Some(free) = free else {
            return p.quotient(at.class, expression, &known).map(|_| m.clone()).into_iter().collect();
        };
        let class = match p.quotient(at.class, expression, &known) {
            Some(rest) => p.class_of(&rest, &users),
            None => p.factors(at.class).into_iter().find(|&c| {
                let mut known = known.clone();
                known.insert(free, c);
                let anchors = known.values().copied().collect();
                Polynomials::new(graph, &users, anchors).quotient(at.class, expression, &known).is_some()
            }),
        };
        let Some(class) = class else { return Vec::new() };
        let mut m = m.clone();
        m.vars.insert(free, Binding::Class(Indexed { class, labels: at.labels.clone() }));
        vec![m]
    }

    fn splat(&self, at: &Indexed) -> Option<f64> {
        self.graph[at.class].data.splat.as_ref().map(|s| s.value())
    }

    fn number(&self, n: Number, m: &Match) -> Option<f64> {
        match n {
            Number::Literal(x) => Some(x),
            Number::PerRow(x) => Some(x / m.row_size? as f64),
        }
    }

    /// Matches of a pattern at a class that extend `m`.
    pub fn at(&mut self, pattern: &Pattern, at: &Indexed, m: &Match) -> Vec<Match> {
        let at = &Indexed { class: self.graph.find(at.class), labels: at.labels.clone() };
        let mut out = match pattern {
            Pattern::Var(name) => self.variable(name, at, m).into_iter().collect(),
            Pattern::Const(name) => match self.splat(at) {
                Some(_) => self.variable(name, at, m).into_iter().collect(),
                None => Vec::new(),
            },
            Pattern::Number(n) => match (self.splat(at), self.number(*n, m)) {
                // Where an op is matched as it stands, nearly 1 is not 1.
                (Some(v), Some(n)) if m.framed && is_literal(v, n) || v == n && is_literal(v, n) => {
                    vec![m.clone()]
                }
                _ => Vec::new(),
            },
            Pattern::Op(head, args) => self.op(*head, args, at, m),
            Pattern::Product(items) => {
                let p = self.views.product(at);
                self.product(items, &p, m)
            }
            Pattern::Sum(terms, rest) => self.sum(terms, *rest, at, m),
            Pattern::Polynomial(expression) => self.polynomial(expression, at, m),
        };
        out.truncate(MAX_MATCHES);
        out
    }

    fn variable(&mut self, name: &'static str, at: &Indexed, m: &Match) -> Option<Match> {
        match m.vars.get(name) {
            None => {
                let mut m = m.clone();
                m.vars.insert(name, Binding::Class(at.clone()));
                Some(m)
            }
            Some(Binding::Class(i)) => {
                (self.graph.find(i.class) == at.class && i.labels == at.labels).then(|| m.clone())
            }
            Some(Binding::Product(p)) => (*self.views.product(at) == *p).then(|| m.clone()),
            Some(_) => None,
        }
    }

    fn op(&mut self, head: Head, patterns: &[Pattern], at: &Indexed, m: &Match) -> Vec<Match> {
        let mut out = Vec::new();
        let graph = self.graph;
        for node in &graph[at.class].nodes {
            let Node::Op { op: op_ref, args } = node else { continue };
            if args.len() != patterns.len() {
                continue;
            }
            let op = graph.analysis.op(*op_ref);
            let types: Option<Vec<&TensorType>> = args.iter().map(|&a| graph[a].data.types.first()).collect();
            let Some(types) = types else { continue };
            if !head.matches(op, &types) {
                continue;
            }
            let Some(labels) = operand_labels(op, &types, graph[at.class].data.types.first(), at, m) else {
                continue;
            };
            let mut with_op = m.clone();
            with_op.ops.push(Found { op: op.clone(), args: args.clone() });
            if let (Op::Reduce(r), true) = (op, m.framed)
                && r.dims.len() == 1
                && r.dims[0] + 1 == types[0].rank()
            {
                let n = types[0].shape[r.dims[0]];
                if with_op.row_size.is_some_and(|d| d != n) {
                    continue;
                }
                with_op.row_size = Some(n);
            }
            let mut orders: Vec<Vec<usize>> = vec![(0..args.len()).collect()];
            if head.is_commutative() && args[0] != args[1] {
                orders.push(vec![1, 0]);
            }
            for order in orders {
                let mut found = vec![with_op.clone()];
                for (p, &i) in patterns.iter().zip(&order) {
                    let child = Indexed { class: args[i], labels: labels.clone() };
                    found = found.iter().flat_map(|m| self.at(p, &child, m)).collect();
                }
                out.extend(found);
            }
        }
        out
    }

    fn sum(
        &mut self,
        patterns: &[Pattern],
        rest: Option<&'static str>,
        at: &Indexed,
        m: &Match,
    ) -> Vec<Match> {
        let deepest = patterns.len() as u8 - u8::from(rest.is_none() && patterns.len() > 1);
        for levels in 1..=deepest.max(1) {
            for first in 0.. {
                let Some(terms) = self.views.terms(at, levels, first) else { break };
                let mut out = Vec::new();
                self.assign(patterns, rest, &terms, &mut vec![false; terms.len()], m, &mut out);
                if !out.is_empty() {
                    return out;
                }
            }
        }
        Vec::new()
    }

    fn assign(
        &mut self,
        patterns: &[Pattern],
        rest: Option<&'static str>,
        terms: &[Term],
        used: &mut Vec<bool>,
        m: &Match,
        out: &mut Vec<Match>,
    ) {
        let Some((first, others)) = patterns.split_first() else {
            let left: Vec<Term> =
                terms.iter().zip(&*used).filter(|&(_, u)| !u).map(|(t, _)| t.clone()).collect();
            match rest {
                None if left.is_empty() => out.push(m.clone()),
                None => {}
                Some(name) => {
                    let mut m = m.clone();
                    m.vars.insert(name, Binding::Terms(left));
                    out.push(m);
                }
            }
            return;
        };
        for i in 0..terms.len() {
            if used[i] || out.len() >= MAX_MATCHES {
                continue;
            }
            let t = &terms[i];
            let found = match first {
                Pattern::Product(items) => {
                    let mut p = (*self.views.product(&t.of)).clone();
                    if t.negative {
                        p.coefficient = -p.coefficient;
                    }
                    self.product(items, &p, m)
                }
                _ if t.negative => Vec::new(),
                p => self.at(p, &t.of, m),
            };
            used[i] = true;
            for m in found {
                self.assign(others, rest, terms, used, &m, out);
            }
            used[i] = false;
        }
    }

    fn product(&mut self, items: &[Item], p: &Product, m: &Match) -> Vec<Match> {
        let mut number = None;
        let (mut fixed, mut free) = (Vec::new(), Vec::new());
        for item in items {
            match &item.pattern {
                Pattern::Number(n) => number = Some(*n),
                Pattern::Var(v) if !m.vars.contains_key(v) => free.push(item),
                _ => fixed.push(item),
            }
        }
        // The last dimension's factors first: a variable for all that is left takes the others.
        free.sort_by_key(|i| i.place == Place::Full);
        let mut states = vec![(p.factors.clone(), m.clone())];
        for item in fixed {
            let mut next = Vec::new();
            for (left, m) in &states {
                self.take(item, left, m, &mut next);
            }
            states = next;
        }
        let mut out = Vec::new();
        for (mut left, mut m) in states {
            let ok = free.iter().all(|item| take_left(item, &mut left, &mut m));
            let want = match number {
                None => Some(1.0),
                Some(n) => self.number(n, &m),
            };
            if ok
                && left.is_empty()
                && want.is_some_and(|w| is_literal(p.coefficient, w))
                && !out.contains(&m)
            {
                out.push(m);
            }
        }
        out
    }

    /// Takes one factor out of `left` for an item, in every way there is.
    fn take(&mut self, item: &Item, left: &Factors, m: &Match, out: &mut Vec<(Factors, Match)>) {
        if let Pattern::Var(v) = &item.pattern
            && let Some(Binding::Product(p)) = m.vars.get(v)
        {
            let mut left = left.clone();
            if p.factors.iter().all(|(b, &e)| subtract(&mut left, b, e * item.halves / 2)) {
                out.push((left, m.clone()));
            }
            return;
        }
        for (base, _) in left.iter() {
            if !in_place(base, item.place, m) {
                continue;
            }
            let mut rest = left.clone();
            if !subtract(&mut rest, base, item.halves) {
                continue;
            }
            let found = match (&item.pattern, base) {
                (Pattern::Op(Head::Reduce(Some(Monoid::Sum), Some(dims)), inner), Base::Sum(s)) => {
                    self.summed(*dims, &inner[0], s, m)
                }
                (p, Base::Class(i)) => self.at(p, &i.clone(), m),
                _ => Vec::new(),
            };
            out.extend(found.into_iter().map(|m| (rest.clone(), m)));
        }
    }

    fn summed(&mut self, dims: Reduced, inner: &Pattern, s: &Sum, m: &Match) -> Vec<Match> {
        let free: BTreeSet<Label> = s.factors.keys().flat_map(Base::free_labels).collect();
        let mut m = m.clone();
        let rename = |l: Label| -> Label {
            match s.bound.iter().position(|&(b, _)| b == l) {
                Some(_) if dims == Reduced::Last => COL,
                Some(i) => i as Label,
                None => l,
            }
        };
        match dims {
            Reduced::Last => {
                let &[(_, n)] = s.bound.as_slice() else { return Vec::new() };
                if free.contains(&COL) || m.row_size.is_some_and(|d| d != n) {
                    return Vec::new();
                }
                m.row_size = Some(n);
            }
            Reduced::Leading => {
                if free.iter().any(|&l| l < COL) || m.rows.is_some_and(|r| r != s.bound.len()) {
                    return Vec::new();
                }
                m.rows = Some(s.bound.len());
            }
            Reduced::Unit => return Vec::new(),
        }
        match inner {
            Pattern::Product(items) => {
                let factors = s.factors.iter().map(|(b, &e)| (b.relabelled(&rename), e)).collect();
                self.product(items, &Product { coefficient: 1.0, factors }, &m)
            }
            p => match &s.operand {
                Some(o) => {
                    let Base::Class(at) = Base::Class(o.clone()).relabelled(&rename) else {
                        return Vec::new();
                    };
                    self.at(p, &at, &m)
                }
                None => Vec::new(),
            },
        }
    }
}

/// Labels of an op's operands; `None` where the frame has labels and the op has none to give.
fn operand_labels(
    op: &Op,
    types: &[&TensorType],
    result: Option<&TensorType>,
    at: &Indexed,
    m: &Match,
) -> Option<Labels> {
    let result = result?;
    if !m.framed {
        return Some(Labels::new());
    }
    match op {
        Op::Unary(_) | Op::Binary(_) | Op::Convert(_) => Some(at.labels.clone()),
        Op::Reduce(r) => {
            if let Some(l) = through_layout(op, types[0], result, &at.labels) {
                return Some(l);
            }
            let (mut kept, mut bound) = (at.labels.iter().copied(), 0);
            let last = r.dims.as_slice() == [types[0].rank() - 1];
            Some(
                (0..types[0].rank())
                    .map(|d| {
                        if !r.dims.contains(&d) {
                            return kept.next().unwrap_or(super::label::UNIT);
                        }
                        bound += 1;
                        match (last, types[0].shape[d]) {
                            (_, 1) => super::label::UNIT,
                            (true, _) => COL,
                            (false, _) => BOUND + bound - 1,
                        }
                    })
                    .collect(),
            )
        }
        op => through_layout(op, types[0], result, &at.labels),
    }
}

/// Whether a factor has the dimensions of its place.
fn in_place(base: &Base, place: Place, m: &Match) -> bool {
    let free = base.free_labels();
    let rows = m.rows.unwrap_or(0);
    let has_rows = (0..rows).all(|r| free.contains(&(r as Label)));
    let has_col = free.contains(&COL);
    match place {
        Place::Full => has_rows && has_col && free.len() == rows + 1,
        Place::Rows => has_rows && !has_col && free.len() == rows,
        Place::Cols => has_col && free.len() == 1,
    }
}

/// Takes `base^(halves/2)` out of `left`, if it is there.
fn subtract(left: &mut Factors, base: &Base, halves: i16) -> bool {
    let Some(&have) = left.get(base) else { return false };
    if have.signum() != halves.signum() || have.abs() < halves.abs() {
        return false;
    }
    if have == halves {
        left.remove(base);
    } else {
        left.insert(base.clone(), have - halves);
    }
    true
}

/// Binds a free variable to the factors that are left.
fn take_left(item: &Item, left: &mut Factors, m: &mut Match) -> bool {
    let Pattern::Var(name) = item.pattern else { return false };
    let taken: Factors = left
        .iter()
        .filter(|(b, _)| item.place == Place::Full || in_place(b, item.place, m))
        .map(|(b, &e)| (b.clone(), e))
        .collect();
    let free: BTreeSet<Label> = taken.keys().flat_map(Base::free_labels).collect();
    let whole = item.place != Place::Full || free.len() == m.rows.unwrap_or(0) + 1;
    if taken.is_empty() || item.halves != 2 || !whole {
        return false;
    }
    left.retain(|b, _| !taken.contains_key(b));
    let binding = match (taken.len(), taken.iter().next()) {
        (1, Some((Base::Class(i), 2))) => Binding::Class(i.clone()),
        _ => Binding::Product(Product { coefficient: 1.0, factors: taken }),
    };
    m.vars.insert(name, binding);
    true
}
