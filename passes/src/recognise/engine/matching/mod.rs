//! Matching patterns against classes: ops here, products, sums and polynomials in files of their own.

mod multiplied;
mod polynomial;
mod product;
mod sum;

use super::label::{BOUND, COL, Indexed, Labels, UNIT, through_layout};
use super::pattern::{Head, Number, Pattern};
use super::polynomial::{Polynomials, Users};
use super::rule::{Binding, Found, Match};
use super::term::{Graph, Node, behind_barriers, spread};
use super::view::Views;
use msc_ir::{Op, TensorType};
use std::cell::OnceCell;
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
    /// Views of the classes as products and sums.
    pub views: Views<'g>,
    /// Views of the classes as polynomials.
    pub polynomials: Views<'g>,
    /// Of the whole e-graph, made when first asked for.
    users: Rc<OnceCell<Users>>,
    /// Classes multiplied out, by the classes that are left as they are.
    expressions: BTreeMap<BTreeSet<egg::Id>, Polynomials<'g>>,
}

impl<'g> Matcher<'g> {
    /// A matcher whose views treat `opaque` classes as factors and take `positive` ones for positive. Matchers of one
    /// e-graph share `users`.
    pub fn new(
        graph: &'g Graph,
        opaque: BTreeSet<egg::Id>,
        positive: &BTreeSet<egg::Id>,
        users: Rc<OnceCell<Users>>,
    ) -> Matcher<'g> {
        let polynomials = Views::multiplied_out(graph, opaque.clone()).with_positive(positive);
        let views = Views::new(graph, opaque).with_positive(positive);
        Matcher { graph, views, polynomials, users, expressions: BTreeMap::new() }
    }

    fn splat(&self, at: &Indexed) -> Option<f64> {
        self.graph[at.class].data.splat.as_ref().map(|s| s.value())
    }

    fn number(&self, n: Number, m: &Match) -> Option<f64> {
        match n {
            Number::Literal(x) => Some(x),
            Number::PerRow(x) => Some(x / m.row_size? as f64),
            Number::RowSize => Some(m.row_size? as f64),
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
            Pattern::Scalar(name) => match self.splat(at).is_some() || spread(self.graph, at.class).is_some()
            {
                true => self.variable(name, at, m).into_iter().collect(),
                false => Vec::new(),
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
            Pattern::Polynomial(terms, rest) => self.polynomial(terms, *rest, at, m).into_iter().collect(),
            Pattern::Multiplied(expression) => self.multiplied(expression, at, m),
            Pattern::Or(all) => all.iter().flat_map(|p| self.at(p, at, m)).collect(),
            Pattern::As(name, inner) => {
                let found = self.at(inner, at, m);
                found.iter().filter_map(|m| self.variable(name, at, m)).collect()
            }
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
                let seen = |c| behind_barriers(self.graph, c);
                if seen(i.class) == seen(at.class) && i.labels == at.labels {
                    return Some(m.clone());
                }
                // A product sees through a dimension of size 1, so it may have bound what `at` is a layout of.
                if i.labels.contains(&UNIT) && self.views.product(i) == self.views.product(at) {
                    let mut m = m.clone();
                    m.vars.insert(name, Binding::Class(at.clone()));
                    return Some(m);
                }
                None
            }
            Some(Binding::Product(p)) => (*self.views.product(at) == *p).then(|| m.clone()),
            Some(_) => None,
        }
    }

    fn op(&mut self, head: Head, patterns: &[Pattern], at: &Indexed, m: &Match) -> Vec<Match> {
        let mut out = Vec::new();
        let graph = self.graph;
        for node in &graph[behind_barriers(graph, at.class)].nodes {
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
        // A predicate may be a scalar, which has no labels to give.
        Op::Compare(_) | Op::Select(_) => {
            types.iter().all(|t| t.shape == result.shape).then(|| at.labels.clone())
        }
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
