//! Views: a class seen as an n-ary product or sum.
//!
//! Exporters write one product in many ways: `x/√v`, `x·rsqrt v`, `(x·c)·(1/√v)`, with row statistics broadcast
//! before or after they are combined. A view is the common form: a coefficient and a sorted map from factors to
//! exponents, with layout ops folded into the labels of the factors. Associativity and commutativity are thus
//! never saturated. Two classes with equal views are equal over the reals; that a product is rearranged makes
//! every rule that uses a view `real`.
//!
//! What holds over the reals only where a value is not negative (`√v·√v = v`, `1/√v = v^-½`) or not zero
//! (`v/v = 1`) is used only where that fact is known; otherwise the term is a factor of its own.

use super::facts::Fact;
use super::label::{BOUND, BOUND_STEP, Indexed, Label, Labels, MAX_DEPTH, UNIT, positional, through_layout};
use super::term::{Graph, Node};
use egg::Id;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, Op, TensorType};
use smallvec::{SmallVec, smallvec};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Factors a product may have before it counts as opaque: the longest of a named operation has 5.
const MAX_FACTORS: usize = 16;

/// A factor.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Base {
    /// A class that is no product itself.
    Class(Indexed),
    /// A sum of a product over bound dimensions.
    Sum(Sum),
}

/// `Σ` over `bound` of the product of `factors`; factors that do not depend on a bound dimension stand outside.
#[derive(Clone, Debug)]
pub struct Sum {
    /// Bound labels with their sizes.
    pub bound: SmallVec<[(Label, usize); 2]>,
    /// Factors with exponents in halves.
    pub factors: BTreeMap<Base, i16>,
    /// The summed class, where the body is that class alone. Not compared.
    pub operand: Option<Indexed>,
}

impl Sum {
    fn key(&self) -> (&[(Label, usize)], &BTreeMap<Base, i16>) {
        (&self.bound, &self.factors)
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Sum) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Sum {}
impl std::hash::Hash for Sum {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
impl PartialOrd for Sum {
    fn partial_cmp(&self, other: &Sum) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Sum {
    fn cmp(&self, other: &Sum) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Base {
    /// The proper labels of the factor's dimensions, bound ones aside, ascending.
    pub fn free_labels(&self) -> BTreeSet<Label> {
        match self {
            Base::Class(i) => i.proper().into_iter().collect(),
            Base::Sum(s) => {
                let mut out: BTreeSet<Label> = s.factors.keys().flat_map(Base::free_labels).collect();
                s.bound.iter().for_each(|(l, _)| {
                    out.remove(l);
                });
                out
            }
        }
    }

    /// The same factor with every label changed by `f`.
    pub fn relabelled(&self, f: &impl Fn(Label) -> Label) -> Base {
        let indexed = |i: &Indexed| Indexed {
            class: i.class,
            labels: i.labels.iter().map(|&l| if l == UNIT { UNIT } else { f(l) }).collect(),
        };
        match self {
            Base::Class(i) => Base::Class(indexed(i)),
            Base::Sum(s) => Base::Sum(Sum {
                bound: s.bound.iter().map(|&(l, n)| (f(l), n)).collect(),
                factors: s.factors.iter().map(|(b, &e)| (b.relabelled(f), e)).collect(),
                operand: s.operand.as_ref().map(indexed),
            }),
        }
    }

    /// Adds every class in the factor to `out`.
    pub fn classes(&self, out: &mut BTreeSet<Id>) {
        match self {
            Base::Class(i) => {
                out.insert(i.class);
            }
            Base::Sum(s) => s.factors.keys().for_each(|b| b.classes(out)),
        }
    }
}

/// A coefficient and factors with exponents in halves, none zero.
#[derive(Clone, PartialEq, Debug)]
pub struct Product {
    /// The constant factor.
    pub coefficient: f64,
    /// Factors with exponents in halves.
    pub factors: BTreeMap<Base, i16>,
}

impl Product {
    fn constant(coefficient: f64) -> Product {
        Product { coefficient, factors: BTreeMap::new() }
    }

    fn of(base: Base, halves: i16) -> Product {
        Product { coefficient: 1.0, factors: BTreeMap::from([(base, halves)]) }
    }

    /// Whether the view says nothing about the class: it is one factor, the class itself.
    pub fn is_atom(&self, class: Id) -> bool {
        self.coefficient == 1.0
            && self.factors.len() == 1
            && self.factors.iter().all(|(b, &e)| e == 2 && matches!(b, Base::Class(i) if i.class == class))
    }
}

/// A term of a sum.
#[derive(Clone, PartialEq, Debug)]
pub struct Term {
    /// Whether it is subtracted.
    pub negative: bool,
    /// The class.
    pub of: Indexed,
}

/// Computes views of the classes of a clean e-graph.
pub struct Views<'g> {
    graph: &'g Graph,
    /// Classes that are factors whatever they hold.
    opaque: BTreeSet<Id>,
    memo: HashMap<(Indexed, u8), Rc<Product>>,
    /// Classes being expanded, outermost first.
    stack: Vec<Id>,
    /// The outermost position of `stack` that an expansion since ran into.
    lowest: usize,
}

impl<'g> Views<'g> {
    /// Views that treat `opaque` classes as factors.
    pub fn new(graph: &'g Graph, opaque: BTreeSet<Id>) -> Views<'g> {
        Views { graph, opaque, memo: HashMap::new(), stack: Vec::new(), lowest: usize::MAX }
    }

    fn ty(&self, class: Id) -> Option<&'g TensorType> {
        match self.graph[class].data.types.as_slice() {
            [t] => Some(t),
            _ => None,
        }
    }

    fn known(&self, class: Id, fact: Fact) -> bool {
        self.graph[class].data.facts.holds(fact)
    }

    fn base_known(&self, base: &Base, fact: Fact) -> bool {
        match base {
            Base::Class(i) => self.known(i.class, fact),
            Base::Sum(s) => match &s.operand {
                Some(i) => fact == Fact::NonNegative && self.known(i.class, fact),
                None => false,
            },
        }
    }

    /// The class as a product, its dimensions numbered by position.
    pub fn product_of(&mut self, class: Id) -> Option<Rc<Product>> {
        let ty = self.ty(class)?;
        Some(self.product(&Indexed { class, labels: positional(ty, false) }))
    }

    /// A class as a product.
    pub fn product(&mut self, of: &Indexed) -> Rc<Product> {
        self.lowest = usize::MAX;
        self.stack.clear();
        self.expand(of, 0).unwrap_or_else(|| Rc::new(Product::of(Base::Class(of.clone()), 2)))
    }

    /// `None` where the class is being expanded already.
    fn expand(&mut self, of: &Indexed, depth: u8) -> Option<Rc<Product>> {
        let class = self.graph.find(of.class);
        let of = Indexed { class, labels: of.labels.clone() };
        if let Some(at) = self.stack.iter().position(|&c| c == class) {
            self.lowest = self.lowest.min(at);
            return None;
        }
        if let Some(p) = self.memo.get(&(of.clone(), depth)) {
            return Some(p.clone());
        }
        let atom = || Product::of(Base::Class(of.clone()), 2);
        let data = &self.graph[class].data;
        let float = self.ty(class).is_some_and(|t| t.dtype.is_float());
        let outer = std::mem::replace(&mut self.lowest, usize::MAX);
        let made = match &data.splat {
            _ if !float => atom(),
            Some(s) if s.value().is_finite() => Product::constant(s.value()),
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
    fn expand_nodes(&mut self, of: &Indexed, depth: u8) -> Option<Product> {
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
                if let Some(p) = made
                    && p.factors.len() <= MAX_FACTORS
                    && p.coefficient.is_finite()
                {
                    return Some(p);
                }
            }
        }
        None
    }

    fn layout(&mut self, op: &Op, args: &[Id], of: &Indexed, depth: u8) -> Option<Product> {
        let &[a] = args else { return None };
        let labels = through_layout(op, self.ty(a)?, self.ty(of.class)?, &of.labels)?;
        Some((*self.expand(&Indexed { class: a, labels }, depth)?).clone())
    }

    fn arithmetic(&mut self, op: &Op, args: &[Id], of: &Indexed, depth: u8) -> Option<Product> {
        let graph = self.graph;
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
                        p.coefficient = -p.coefficient;
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

    /// `p · q^sign`.
    fn times(&self, p: &Product, q: &Product, sign: i16) -> Option<Product> {
        let mut out = p.clone();
        if sign < 0 && q.coefficient == 0.0 {
            return None;
        }
        out.coefficient =
            if sign > 0 { p.coefficient * q.coefficient } else { p.coefficient / q.coefficient };
        for (b, &e) in &q.factors {
            let e = e * sign;
            // 1/(1/x) is x where x is not zero.
            if sign < 0 && e > 0 && !self.base_known(b, Fact::Positive) {
                return None;
            }
            let have = out.factors.get(b).copied().unwrap_or(0);
            if have.signum() * e.signum() < 0 && !self.base_known(b, Fact::Positive) {
                return None;
            }
            let sum = have.checked_add(e)?;
            if sum == 0 {
                out.factors.remove(b);
            } else {
                out.factors.insert(b.clone(), sum);
            }
        }
        Some(out)
    }

    /// `p^(halves/2)`.
    fn power(&self, p: &Product, halves: i16) -> Option<Product> {
        let whole = halves % 2 == 0;
        if !whole && p.coefficient < 0.0 {
            return None;
        }
        let mut out = Product::constant(p.coefficient.powf(f64::from(halves) / 2.0));
        for (b, &e) in &p.factors {
            if !whole && (e % 2 != 0 || !self.base_known(b, Fact::NonNegative)) {
                return None;
            }
            if halves < 0 && e < 0 && !self.base_known(b, Fact::Positive) {
                return None;
            }
            let product = e.checked_mul(halves)?;
            if product % 2 != 0 {
                return None;
            }
            out.factors.insert(b.clone(), product / 2);
        }
        Some(out)
    }

    fn sum(&mut self, op: &Op, args: &[Id], of: &Indexed, depth: u8) -> Option<Product> {
        let (Op::Reduce(r), &[a]) = (op, args) else { return None };
        if r.monoid != Monoid::Sum || depth >= MAX_DEPTH || r.dims.len() > BOUND_STEP as usize {
            return None;
        }
        let ty = self.ty(a)?;
        let mut kept = of.labels.iter().copied();
        let mut bound = SmallVec::new();
        let labels: Labels = (0..ty.rank())
            .map(|d| match r.dims.iter().position(|&x| x == d) {
                None => kept.next().unwrap_or(UNIT),
                Some(_) if ty.shape[d] == 1 => UNIT,
                Some(_) => {
                    let l = BOUND + depth * BOUND_STEP + bound.len() as u8;
                    bound.push((l, ty.shape[d]));
                    l
                }
            })
            .collect();
        let operand = Indexed { class: self.graph.find(a), labels };
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
        if let Some(class) = root {
            let square = Base::Class(Indexed { class, labels: operand.labels.clone() });
            return Some(summed(&Product::of(square, 4), bound, Some(operand)));
        }
        let body = self.expand(&operand, depth + 1)?;
        Some(summed(&body, bound, Some(operand)))
    }

    /// A `dot_general` whose operands do not both have free dimensions: a product, summed where it contracts.
    fn dot(&mut self, d: &DotGeneral, args: &[Id], of: &Indexed, depth: u8) -> Option<Product> {
        let &[l, r] = args else { return None };
        let (lt, rt) = (self.ty(l)?, self.ty(r)?);
        if lt.dtype != d.dtype || rt.dtype != d.dtype || depth >= MAX_DEPTH {
            return None;
        }
        let lfree = DotGeneral::free(lt.rank(), &d.lhs_batch, &d.lhs_contract);
        let rfree = DotGeneral::free(rt.rank(), &d.rhs_batch, &d.rhs_contract);
        let proper = |t: &TensorType, dims: &[usize]| dims.iter().any(|&x| t.shape[x] != 1);
        let contracts = proper(lt, &d.lhs_contract);
        if contracts && proper(lt, &lfree) && proper(rt, &rfree) {
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
        let mut bound: SmallVec<[(Label, usize); 2]> = SmallVec::new();
        for (&a, &b) in d.lhs_contract.iter().zip(&d.rhs_contract) {
            if lt.shape[a] != 1 {
                let n = BOUND + depth * BOUND_STEP + bound.len() as u8;
                bound.push((n, lt.shape[a]));
                (ll[a], rl[b]) = (n, n);
            }
        }
        let inner = if bound.is_empty() { depth } else { depth + 1 };
        let p = self.expand(&Indexed { class: l, labels: ll }, inner)?;
        let q = self.expand(&Indexed { class: r, labels: rl }, inner)?;
        let body = self.times(&p, &q, 1)?;
        Some(summed(&body, bound, None))
    }

    /// The terms of a class as a sum, expanded to `levels` additions deep, through addition `first` of the class
    /// itself. `None` if there is no such addition.
    pub fn terms(&self, of: &Indexed, levels: u8, first: usize) -> Option<Vec<Term>> {
        let (a, b, negative) = self.additions(of).into_iter().nth(first)?;
        let mut out = Vec::new();
        for (of, negative) in [(a, false), (b, negative)] {
            match (levels > 1).then(|| self.terms(&of, levels - 1, 0)).flatten() {
                Some(inner) => {
                    out.extend(
                        inner.into_iter().map(|t| Term { negative: t.negative != negative, of: t.of }),
                    );
                }
                None => out.push(Term { negative, of }),
            }
        }
        Some(out)
    }

    /// The additions and subtractions that a class is, through layout ops; whether the second operand is
    /// subtracted.
    fn additions(&self, of: &Indexed) -> Vec<(Indexed, Indexed, bool)> {
        let mut out = Vec::new();
        let mut at = of.clone();
        // Layout chains are short; the bound only guards against a cycle of them.
        for _ in 0..8 {
            let class = self.graph.find(at.class);
            if self.opaque.contains(&class) {
                break;
            }
            let mut next = None;
            for node in &self.graph[class].nodes {
                let Node::Op { op, args } = node else { continue };
                match self.graph.analysis.op(*op) {
                    Op::Binary(b) if matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract) => {
                        if args.iter().any(|&a| self.graph.find(a) == class) {
                            continue;
                        }
                        let child = |a: Id| Indexed { class: self.graph.find(a), labels: at.labels.clone() };
                        out.push((child(args[0]), child(args[1]), b.kind == BinaryKind::Subtract));
                    }
                    op => {
                        if let (&[a], Some(ty), None) = (&args[..], self.ty(class), &next)
                            && let Some(from) = self.ty(a)
                            && let Some(labels) = through_layout(op, from, ty, &at.labels)
                            && self.graph.find(a) != class
                        {
                            next = Some(Indexed { class: a, labels });
                        }
                    }
                }
            }
            match next {
                Some(n) if out.is_empty() => at = n,
                _ => break,
            }
        }
        out
    }
}

/// `Σ` over `bound` of a body: what does not depend on a bound dimension moves outside.
fn summed(body: &Product, bound: SmallVec<[(Label, usize); 2]>, operand: Option<Indexed>) -> Product {
    let mut out = Product::constant(body.coefficient);
    let mut inside = BTreeMap::new();
    let mut used = BTreeSet::new();
    for (b, &e) in &body.factors {
        let free = b.free_labels();
        if bound.iter().any(|(l, _)| free.contains(l)) {
            used.extend(free);
            inside.insert(b.clone(), e);
        } else {
            out.factors.insert(b.clone(), e);
        }
    }
    let mut kept = SmallVec::new();
    for (l, n) in bound {
        if used.contains(&l) {
            kept.push((l, n));
        } else {
            out.coefficient *= n as f64;
        }
    }
    if !kept.is_empty() {
        let whole = body.coefficient == 1.0 && out.factors.is_empty() && out.coefficient == 1.0;
        let sum = Sum { bound: kept, factors: inside, operand: operand.filter(|_| whole) };
        *out.factors.entry(Base::Sum(sum)).or_insert(0) += 2;
    }
    out
}
