//! Polynomials: a class as a sum of products over atoms.
//!
//! Gradients of pointwise functions are spelled in as many ways as a sum of products can be factored. Multiplied
//! out, all of them are one polynomial, and comparing coefficients proves two of them equal over the reals.
//!
//! Atoms are the *anchors* (classes that the comparison is about) and every class that no sum, difference,
//! product or whole power leads from to an anchor: a sum of two other values is one atom, so that it stays a
//! value of the program.

use super::matching::LITERAL_TOLERANCE;
use super::pattern::{Number, Pattern};
use super::term::{Graph, Node};
use egg::Id;
use msc_ir::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};

/// Terms a polynomial may have: the longest of a named operation has six.
const MAX_TERMS: usize = 32;

/// Highest whole power that is multiplied out.
const MAX_POWER: f64 = 4.0;

/// Levels of arithmetic through which a sum that is one factor of a class is looked for: gradients of named
/// operations multiply it in below four others.
const FACTOR_LEVELS: usize = 6;

/// Such factors that are tried.
const MAX_FACTORS: usize = 8;

/// Atoms with their exponents, ascending.
pub type Monomial = SmallVec<[(Id, u8); 4]>;

/// A sum of monomials with coefficients.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Polynomial {
    /// For each monomial its coefficient, and the sum of the magnitudes that it was added up from.
    terms: BTreeMap<Monomial, (f64, f64)>,
}

fn times(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut out = a.clone();
    for &(id, e) in b {
        match out.binary_search_by_key(&id, |x| x.0) {
            Ok(at) => out[at].1 = out[at].1.checked_add(e)?,
            Err(at) => out.insert(at, (id, e)),
        }
    }
    Some(out)
}

/// `a / b`, where `b` divides `a`.
fn over(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut out = a.clone();
    for &(id, e) in b {
        let at = out.binary_search_by_key(&id, |x| x.0).ok()?;
        out[at].1 = out[at].1.checked_sub(e)?;
    }
    out.retain(|x| x.1 > 0);
    Some(out)
}

impl Polynomial {
    fn constant(c: f64) -> Polynomial {
        Polynomial { terms: BTreeMap::from([(Monomial::new(), (c, c.abs()))]) }
    }

    fn atom(id: Id) -> Polynomial {
        Polynomial { terms: BTreeMap::from([(smallvec![(id, 1)], (1.0, 1.0))]) }
    }

    fn scaled(mut self, c: f64) -> Polynomial {
        self.terms.values_mut().for_each(|t| *t = (t.0 * c, t.1 * c.abs()));
        self
    }

    fn plus(mut self, other: &Polynomial) -> Option<Polynomial> {
        for (m, c) in &other.terms {
            let t = self.terms.entry(m.clone()).or_insert((0.0, 0.0));
            *t = (t.0 + c.0, t.1 + c.1);
        }
        (self.terms.len() <= MAX_TERMS).then_some(self)
    }

    fn times(&self, other: &Polynomial) -> Option<Polynomial> {
        let mut out = Polynomial::default();
        for (m, c) in &self.terms {
            for (n, d) in &other.terms {
                let t = out.terms.entry(times(m, n)?).or_insert((0.0, 0.0));
                *t = (t.0 + c.0 * d.0, t.1 + c.1 * d.1);
            }
        }
        (out.terms.len() <= MAX_TERMS).then_some(out)
    }

    fn is_finite(&self) -> bool {
        self.terms.values().all(|t| t.0.is_finite() && t.1.is_finite())
    }

    /// Without the terms that cancel: literals are rounded decimals, so what is left of a difference is not 0.
    fn reduced(mut self) -> Polynomial {
        self.terms.retain(|_, c| c.0.abs() > LITERAL_TOLERANCE * c.1);
        self
    }

    /// The monomial `u` with `self = u · other`, coefficients compared as literals are; `None` if there is none.
    fn common_factor(&self, other: &Polynomial) -> Option<Monomial> {
        let first = other.terms.keys().next()?;
        self.terms.keys().find_map(|m| {
            let u = over(m, first)?;
            self.is_multiple(other, &u).then_some(u)
        })
    }

    fn is_multiple(&self, other: &Polynomial, u: &Monomial) -> bool {
        self.terms.len() == other.terms.len()
            && other.terms.iter().all(|(m, c)| {
                let mine = times(m, u).and_then(|m| self.terms.get(&m));
                // A coefficient may be the product of a few literals.
                mine.is_some_and(|d| (c.0 - d.0).abs() <= 4.0 * LITERAL_TOLERANCE * c.0.abs())
            })
    }
}

/// Multiplies out the classes of a clean e-graph, relative to anchors.
pub struct Polynomials<'g> {
    graph: &'g Graph,
    anchors: BTreeSet<Id>,
    /// The classes that depend on an anchor.
    reached: BTreeSet<Id>,
    memo: FxHashMap<Id, Option<Polynomial>>,
    /// Classes being expanded.
    open: BTreeSet<Id>,
    /// Whether one of them was met again: what is below it is then not known for good.
    cut: bool,
}

/// The op of a node that polynomials look through, and its operands.
fn arithmetic<'g>(graph: &'g Graph, node: &'g Node) -> Option<(&'g Op, &'g [Id])> {
    let Node::Op { op, args } = node else { return None };
    let op = graph.analysis.op(*op);
    let known = match op {
        Op::Unary(u) => u.kind == UnaryKind::Negate,
        Op::Binary(b) => match b.kind {
            BinaryKind::Add | BinaryKind::Subtract | BinaryKind::Multiply => true,
            BinaryKind::Divide | BinaryKind::Power => graph[args[1]].data.splat.is_some(),
            _ => false,
        },
        _ => false,
    };
    known.then_some((op, args.as_slice()))
}

impl<'g> Polynomials<'g> {
    /// Polynomials in which `anchors` are atoms.
    pub fn new(graph: &'g Graph, users: &Users, anchors: BTreeSet<Id>) -> Polynomials<'g> {
        let reached = users.reached(anchors.iter().copied());
        Polynomials { graph, anchors, reached, memo: FxHashMap::default(), open: BTreeSet::new(), cut: false }
    }

    /// A class that is the product of these atoms, if there is one.
    pub fn class_of(&mut self, product: &Monomial, users: &Users) -> Option<Id> {
        let &(first, _) = product.first()?;
        if let &[(only, 1)] = product.as_slice() {
            return Some(only);
        }
        let want = Polynomial { terms: BTreeMap::from([(product.clone(), (1.0, 1.0))]) };
        let candidates = users.reached([first]);
        candidates.into_iter().find(|&c| self.of(c).is_some_and(|p| p.is_multiple(&want, &Monomial::new())))
    }

    /// A class multiplied out; `None` where it grows too large.
    pub fn of(&mut self, class: Id) -> Option<Polynomial> {
        self.expand(class).map(Polynomial::reduced)
    }

    fn expand(&mut self, class: Id) -> Option<Polynomial> {
        let class = self.graph.find(class);
        if self.anchors.contains(&class) {
            return Some(Polynomial::atom(class));
        }
        if let Some(s) = &self.graph[class].data.splat {
            let v = s.value();
            return v.is_finite().then(|| Polynomial::constant(v));
        }
        if self.open.contains(&class) {
            self.cut = true;
            return None;
        }
        if let Some(p) = self.memo.get(&class) {
            return p.clone();
        }
        let sums = self.reached.contains(&class);
        self.open.insert(class);
        let above = std::mem::take(&mut self.cut);
        let graph = self.graph;
        let terms = graph[class].nodes.iter().filter_map(|n| arithmetic(graph, n));
        let found = terms.filter(|t| sums || !is_sum(t.0)).find_map(|(op, args)| self.arithmetic(op, args));
        // Beyond the largest number a coefficient says nothing.
        let found = found.filter(Polynomial::is_finite);
        self.open.remove(&class);
        let out = found.or_else(|| (!sums).then(|| Polynomial::atom(class)));
        if out.is_some() || !self.cut || self.open.is_empty() {
            self.memo.insert(class, out.clone());
        }
        self.cut |= above;
        out
    }

    fn arithmetic(&mut self, op: &Op, args: &[Id]) -> Option<Polynomial> {
        match op {
            Op::Unary(_) => Some(self.expand(args[0])?.scaled(-1.0)),
            Op::Binary(b) => {
                let p = self.expand(args[0])?;
                let splat = self.graph[args[1]].data.splat.as_ref().map(|s| s.value());
                match (b.kind, splat) {
                    (BinaryKind::Divide, Some(c)) => (c.is_finite() && c != 0.0).then(|| p.scaled(c.recip())),
                    (BinaryKind::Power, Some(e)) => {
                        if !(1.0..=MAX_POWER).contains(&e) || e.fract() != 0.0 {
                            return None;
                        }
                        (1..e as usize).try_fold(p.clone(), |acc, _| acc.times(&p))
                    }
                    (BinaryKind::Add, _) => p.plus(&self.expand(args[1])?),
                    (BinaryKind::Subtract, _) => p.plus(&self.expand(args[1])?.scaled(-1.0)),
                    (BinaryKind::Multiply, _) => p.times(&self.expand(args[1])?),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Sums of anchors that stand as a factor in the arithmetic of a class, the nearest first: the incoming
    /// gradient may itself be computed from what the activation gave (a norm's gradient is).
    pub fn factors(&self, class: Id) -> Vec<Id> {
        let graph = self.graph;
        let class = graph.find(class);
        let (mut seen, mut level, mut out) = (BTreeSet::from([class]), vec![class], Vec::new());
        for _ in 0..FACTOR_LEVELS {
            let mut next = Vec::new();
            for c in level {
                for (op, args) in graph[c].nodes.iter().filter_map(|n| arithmetic(graph, n)) {
                    let product = matches!(op, Op::Binary(b) if b.kind == BinaryKind::Multiply);
                    for a in args.iter().map(|&a| graph.find(a)) {
                        let inner = self.reached.contains(&a) && !self.anchors.contains(&a);
                        if !inner || !seen.insert(a) {
                            continue;
                        }
                        let terms = graph[a].nodes.iter().filter_map(|n| arithmetic(graph, n));
                        if product && terms.into_iter().any(|t| is_sum(t.0)) {
                            out.push(a);
                        }
                        next.push(a);
                    }
                }
            }
            level = next;
        }
        out.truncate(MAX_FACTORS);
        out
    }

    /// What is left of a class once the polynomial that `pattern` writes is divided out: a product of atoms with
    /// exponents. `known` gives the classes of variables, all of them anchors; a variable that is not known is
    /// that product, and must be a factor of the whole.
    pub fn quotient(
        &mut self,
        class: Id,
        pattern: &Pattern,
        known: &BTreeMap<&'static str, Id>,
    ) -> Option<Monomial> {
        let free = pattern.variables().into_iter().any(|v| !known.contains_key(v));
        // No class has this number.
        let hole = Id::from(u32::MAX as usize);
        let want = of_pattern(pattern, known, hole)?.reduced();
        let whole = if free { Polynomial::atom(hole) } else { Polynomial::constant(1.0) };
        let unit = whole.terms.keys().next().cloned()?;
        let mut rest = Polynomial::default();
        for (m, c) in want.terms {
            rest.terms.insert(over(&m, &unit)?, c);
        }
        if rest.terms.keys().flatten().any(|f| f.0 == hole) {
            return None;
        }
        let u = self.of(class)?.common_factor(&rest)?;
        // A factor that shares atoms with the rest is a product across the pattern's border, not an operand.
        let own = u.iter().all(|(atom, _)| !self.anchors.contains(atom));
        (own && u.is_empty() != free).then_some(u)
    }
}

fn is_sum(op: &Op) -> bool {
    matches!(op, Op::Binary(b) if matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract))
}

/// The polynomial that a pattern writes.
fn of_pattern(p: &Pattern, known: &BTreeMap<&'static str, Id>, hole: Id) -> Option<Polynomial> {
    use super::pattern::Head;
    match p {
        Pattern::Number(Number::Literal(c)) => Some(Polynomial::constant(*c)),
        Pattern::Var(v) => Some(Polynomial::atom(known.get(v).copied().unwrap_or(hole))),
        Pattern::Op(head, args) => {
            let a = of_pattern(args.first()?, known, hole)?;
            let b = args.get(1).map(|b| of_pattern(b, known, hole));
            match (head, b) {
                (Head::Unary(UnaryKind::Negate), None) => Some(a.scaled(-1.0)),
                (Head::Binary(BinaryKind::Add), Some(b)) => a.plus(&b?),
                (Head::Binary(BinaryKind::Subtract), Some(b)) => a.plus(&b?.scaled(-1.0)),
                (Head::Binary(BinaryKind::Multiply), Some(b)) => a.times(&b?),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Which classes are computed from which by the arithmetic of polynomials.
pub struct Users {
    users: FxHashMap<Id, Vec<Id>>,
    /// By any op.
    all: FxHashMap<Id, BTreeSet<Id>>,
}

impl Users {
    /// For each class its users, over the whole e-graph.
    pub fn new(graph: &Graph) -> Users {
        let mut users: FxHashMap<Id, Vec<Id>> = FxHashMap::default();
        let mut all: FxHashMap<Id, BTreeSet<Id>> = FxHashMap::default();
        for class in graph.classes() {
            for &a in class.nodes.iter().flat_map(egg::Language::children) {
                all.entry(graph.find(a)).or_default().insert(class.id);
            }
            for (_, args) in class.nodes.iter().filter_map(|n| arithmetic(graph, n)) {
                for &a in args {
                    users.entry(graph.find(a)).or_default().push(class.id);
                }
            }
        }
        Users { users, all }
    }

    /// The classes that so many ops, or fewer, make of a class.
    pub fn within(&self, class: Id, levels: usize) -> BTreeSet<Id> {
        let users = |c: &Id| self.all.get(c).into_iter().flatten().copied();
        let (mut out, mut last) = (BTreeSet::new(), BTreeSet::from([class]));
        for _ in 0..levels {
            last = last.iter().flat_map(users).collect();
            out.extend(last.iter().copied());
        }
        out
    }

    /// The classes that arithmetic leads to from `from`, themselves included.
    pub fn reached(&self, from: impl IntoIterator<Item = Id>) -> BTreeSet<Id> {
        let mut todo: Vec<Id> = from.into_iter().collect();
        let mut out: BTreeSet<Id> = todo.iter().copied().collect();
        while let Some(c) = todo.pop() {
            for &u in self.users.get(&c).into_iter().flatten() {
                if out.insert(u) {
                    todo.push(u);
                }
            }
        }
        out
    }
}
