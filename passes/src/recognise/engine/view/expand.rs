//! Reading classes as products and polynomials.

use super::super::facts::Fact;
use super::super::label::{BOUND_STEP, Indexed, Labels, MAX_DEPTH, PENDING, UNIT, through_layout};
use super::super::term::{Graph, Node, behind_barriers};
use super::{Base, Monomial, Polynomial, Product};
use egg::Id;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, Op, TensorType};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Computes views of the classes of a clean e-graph.
pub struct Views<'g> {
    pub(super) graph: &'g Graph,
    /// Classes that are factors whatever they hold.
    pub(super) opaque: BTreeSet<Id>,
    /// Classes that are taken for positive.
    positive: BTreeSet<Id>,
    /// Whether additions are seen through.
    distribute: bool,
    products: FxHashMap<Indexed, Rc<Product>>,
    memo: FxHashMap<(Indexed, u8), Rc<Polynomial>>,
    /// Classes being expanded, outermost first.
    stack: Vec<Id>,
    /// The outermost position of `stack` that an expansion since ran into.
    lowest: usize,
    /// Whether something was too large to be multiplied out.
    limited: Cell<bool>,
}

impl<'g> Views<'g> {
    /// Views as products that treat `opaque` classes as factors.
    pub fn new(graph: &'g Graph, opaque: BTreeSet<Id>) -> Views<'g> {
        let opaque = opaque.into_iter().map(|c| behind_barriers(graph, c)).collect();
        Views {
            graph,
            opaque,
            positive: BTreeSet::new(),
            distribute: false,
            products: FxHashMap::default(),
            memo: FxHashMap::default(),
            stack: Vec::new(),
            lowest: usize::MAX,
            limited: Cell::new(false),
        }
    }

    /// Whether something was too large to be multiplied out, and is a factor of its own therefore.
    pub fn is_limited(&self) -> bool {
        self.limited.get()
    }

    /// Views as polynomials in which `opaque` classes are indeterminates.
    pub fn multiplied_out(graph: &'g Graph, opaque: BTreeSet<Id>) -> Views<'g> {
        Views { distribute: true, ..Views::new(graph, opaque) }
    }

    /// The same views, with classes taken for positive.
    pub fn with_positive(self, classes: &BTreeSet<Id>) -> Views<'g> {
        let positive = classes.iter().map(|&c| behind_barriers(self.graph, c)).collect();
        Views { positive, ..self }
    }

    pub(super) fn ty(&self, class: Id) -> Option<&'g TensorType> {
        match self.graph[class].data.types.as_slice() {
            [t] => Some(t),
            _ => None,
        }
    }

    fn known(&self, base: &Base, fact: Fact) -> bool {
        let class = |c: Id| self.graph[c].data.facts.holds(fact) || self.positive.contains(&c);
        match base {
            Base::Class(i) => class(i.class),
            Base::Sum(s) => match &s.operand {
                Some(i) => fact == Fact::NonNegative && class(i.class),
                None => false,
            },
        }
    }

    /// `p · q^sign`.
    pub fn times(&self, p: &Polynomial, q: &Polynomial, sign: i16) -> Option<Polynomial> {
        if !p.may_be_multiplied(q) {
            self.limited.set(true);
        }
        p.times(q, sign, &|b, f| self.known(b, f))
    }

    /// `p^(halves/2)`.
    pub fn power(&self, p: &Polynomial, halves: i16) -> Option<Polynomial> {
        p.power(halves, &|b, f| self.known(b, f))
    }

    /// A class as a product.
    pub fn product(&mut self, of: &Indexed) -> Rc<Product> {
        let of = Indexed { class: self.graph.find(of.class), labels: of.labels.clone() };
        if let Some(p) = self.products.get(&of) {
            return p.clone();
        }
        let atom = || Product { coefficient: 1.0, factors: Monomial::of(Base::Class(of.clone()), 2) };
        let p = Rc::new(self.polynomial(&of).as_product().unwrap_or_else(atom));
        self.products.insert(of, p.clone());
        p
    }

    /// A class as a polynomial.
    pub fn polynomial(&mut self, of: &Indexed) -> Rc<Polynomial> {
        self.lowest = usize::MAX;
        self.stack.clear();
        self.expand(of, 0).unwrap_or_else(|| Rc::new(Polynomial::of(Base::Class(of.clone()), 2)))
    }

    /// `None` where the class is being expanded already.
    fn expand(&mut self, of: &Indexed, depth: u8) -> Option<Rc<Polynomial>> {
        let class = behind_barriers(self.graph, of.class);
        let of = Indexed { class, labels: of.labels.clone() };
        if let Some(at) = self.stack.iter().position(|&c| c == class) {
            self.lowest = self.lowest.min(at);
            return None;
        }
        if let Some(p) = self.memo.get(&(of.clone(), depth)) {
            return Some(p.clone());
        }
        let atom = || Polynomial::of(Base::Class(of.clone()), 2);
        let data = &self.graph[class].data;
        let float = self.ty(class).is_some_and(|t| t.dtype.is_float());
        let outer = std::mem::replace(&mut self.lowest, usize::MAX);
        let made = match &data.splat {
            _ if !float => atom(),
            Some(s) if s.value().is_finite() => Polynomial::constant(s.value()),
            _ if self.opaque.contains(&class) => atom(),
            _ => {
                let at = self.stack.len();
                self.stack.push(class);
                let p = self.expand_nodes(&of, depth);
                self.stack.truncate(at);
                if self.lowest < at && p.is_none() {
                    // Nothing but another name of a class further out, which has better names.
                    self.lowest = self.lowest.min(outer);
                    return None;
                }
                if self.lowest >= at {
                    self.lowest = usize::MAX;
                }
                p.unwrap_or_else(atom)
            }
        };
        let made = Rc::new(made);
        // What was cut short by a class further out holds there only.
        if self.lowest == usize::MAX {
            self.memo.insert((of, depth), made.clone());
        }
        self.lowest = self.lowest.min(outer);
        Some(made)
    }

    /// The expansion through the first node that has one: layout before arithmetic before sums.
    fn expand_nodes(&mut self, of: &Indexed, depth: u8) -> Option<Polynomial> {
        let graph = self.graph;
        let nodes = &graph[of.class].nodes;
        for pass in 0..3 {
            for node in nodes {
                let Node::Op { op, args } = node else { continue };
                let op = graph.analysis.op(*op);
                let made = match pass {
                    0 => self.layout(op, args, of, depth),
                    1 => self.arithmetic(op, args, of, depth),
                    _ => self.sum(op, args, of, depth),
                };
                match made {
                    Some(p) if p.fits() => return Some(p),
                    Some(_) => self.limited.set(true),
                    None => {}
                }
            }
        }
        None
    }

    fn layout(&mut self, op: &Op, args: &[Id], of: &Indexed, depth: u8) -> Option<Polynomial> {
        let &[a] = args else { return None };
        let labels = through_layout(op, self.ty(a)?, self.ty(of.class)?, &of.labels)?;
        Some((*self.expand(&Indexed { class: a, labels }, depth)?).clone())
    }

    fn arithmetic(&mut self, op: &Op, args: &[Id], of: &Indexed, depth: u8) -> Option<Polynomial> {
        let (graph, distribute) = (self.graph, self.distribute);
        let mut arg =
            |i: usize| self.expand(&Indexed { class: *args.get(i)?, labels: of.labels.clone() }, depth);
        match op {
            Op::Binary(b) => match b.kind {
                BinaryKind::Multiply => {
                    let (p, q) = (arg(0)?, arg(1)?);
                    self.times(&p, &q, 1)
                }
                BinaryKind::Divide => {
                    let (p, q) = (arg(0)?, arg(1)?);
                    self.times(&p, &q, -1)
                }
                BinaryKind::Add | BinaryKind::Subtract if distribute => {
                    let (p, q) = (arg(0)?, arg(1)?);
                    Some(p.plus(&q, if b.kind == BinaryKind::Add { 1.0 } else { -1.0 }))
                }
                BinaryKind::Power => {
                    let e = graph[args[1]].data.splat.as_ref()?.value();
                    let halves = (2.0 * e) as i16;
                    if f64::from(halves) != 2.0 * e || halves == 0 {
                        return None;
                    }
                    let p = arg(0)?;
                    self.power(&p, halves)
                }
                _ => None,
            },
            Op::Unary(u) => {
                let halves = match u.kind {
                    UnaryKind::Negate => {
                        let mut p = (*arg(0)?).clone();
                        p.terms.values_mut().for_each(|c| *c = -*c);
                        return Some(p);
                    }
                    UnaryKind::Sqrt => 1,
                    UnaryKind::Rsqrt => -1,
                    _ => return None,
                };
                let p = arg(0)?;
                self.power(&p, halves)
            }
            Op::DotGeneral(d) => self.dot(d, args, of, depth),
            _ => None,
        }
    }

    fn sum(&mut self, op: &Op, args: &[Id], of: &Indexed, depth: u8) -> Option<Polynomial> {
        let (Op::Reduce(r), &[a]) = (op, args) else { return None };
        if r.monoid != Monoid::Sum || r.dims.len() > BOUND_STEP as usize {
            return None;
        }
        if depth >= MAX_DEPTH {
            self.limited.set(true);
            return None;
        }
        let ty = self.ty(a)?;
        let mut kept = of.labels.iter().copied();
        let mut bound: SmallVec<[(u8, usize); 2]> = SmallVec::new();
        let labels: Labels = (0..ty.rank())
            .map(|d| match r.dims.iter().position(|&x| x == d) {
                None => kept.next().unwrap_or(UNIT),
                Some(_) if ty.shape[d] == 1 => UNIT,
                Some(_) => {
                    let l = PENDING + depth * BOUND_STEP + bound.len() as u8;
                    bound.push((l, ty.shape[d]));
                    l
                }
            })
            .collect();
        let operand = Indexed { class: behind_barriers(self.graph, a), labels };
        // The sum of a square is that of its root, whatever product the root is.
        let graph = self.graph;
        let root = graph[operand.class].nodes.iter().find_map(|n| match n {
            Node::Op { op, args } => match graph.analysis.op(*op) {
                Op::Binary(b) if b.kind == BinaryKind::Multiply && args[0] == args[1] => {
                    Some(graph.find(args[0]))
                }
                _ => None,
            },
            _ => None,
        });
        if let Some(class) = root.filter(|_| !self.distribute) {
            let square = Base::Class(Indexed { class, labels: operand.labels.clone() });
            return Polynomial::of(square, 4).summed(&bound, Some(&operand));
        }
        let body = self.expand(&operand, depth + 1)?;
        let sum = body.summed(&bound, Some(&operand));
        if sum.is_none() {
            self.limited.set(true);
        }
        sum
    }

    /// A `dot_general` whose operands do not both have free dimensions: a product, summed where it contracts.
    fn dot(&mut self, d: &DotGeneral, args: &[Id], of: &Indexed, depth: u8) -> Option<Polynomial> {
        let &[l, r] = args else { return None };
        let (lt, rt) = (self.ty(l)?, self.ty(r)?);
        if lt.dtype != d.dtype || rt.dtype != d.dtype || depth >= MAX_DEPTH {
            return None;
        }
        let lfree = DotGeneral::free(lt.rank(), &d.lhs_batch, &d.lhs_contract);
        let rfree = DotGeneral::free(rt.rank(), &d.rhs_batch, &d.rhs_contract);
        if !is_product(d, lt, rt) {
            return None;
        }
        if d.lhs_contract.len() > BOUND_STEP as usize {
            return None;
        }
        let mut ll: Labels = smallvec![UNIT; lt.rank()];
        let mut rl: Labels = smallvec![UNIT; rt.rank()];
        let mut result = of.labels.iter().copied();
        for (&a, &b) in d.lhs_batch.iter().zip(&d.rhs_batch) {
            let n = result.next()?;
            (ll[a], rl[b]) = (n, n);
        }
        for &a in &lfree {
            ll[a] = result.next()?;
        }
        for &b in &rfree {
            rl[b] = result.next()?;
        }
        let mut bound: SmallVec<[(u8, usize); 2]> = SmallVec::new();
        for (&a, &b) in d.lhs_contract.iter().zip(&d.rhs_contract) {
            if lt.shape[a] != 1 {
                let n = PENDING + depth * BOUND_STEP + bound.len() as u8;
                bound.push((n, lt.shape[a]));
                (ll[a], rl[b]) = (n, n);
            }
        }
        let inner = if bound.is_empty() { depth } else { depth + 1 };
        let p = self.expand(&Indexed { class: l, labels: ll }, inner)?;
        let q = self.expand(&Indexed { class: r, labels: rl }, inner)?;
        let body = self.times(&p, &q, 1)?;
        body.summed(&bound, None)
    }
}

/// Whether a `dot_general` is a product, summed or not: it contracts nothing, or one operand has no free dimension.
pub fn is_product(d: &DotGeneral, lhs: &TensorType, rhs: &TensorType) -> bool {
    let proper = |t: &TensorType, dims: &[usize]| dims.iter().any(|&x| t.shape[x] != 1);
    let free = |t: &TensorType, batch, contract| proper(t, &DotGeneral::free(t.rank(), batch, contract));
    !(proper(lhs, &d.lhs_contract)
        && free(lhs, &d.lhs_batch, &d.lhs_contract)
        && free(rhs, &d.rhs_batch, &d.rhs_contract))
}
