//! What a program makes of a sum of squares: scalars of it alone, and tensors scaled by them. Both are expressions of
//! two numbers, so that one trial judges all gradients, of whatever shape and layer.

use super::NORMS;
use super::flow::{Flow, Place};
use super::squares::pieces;
use msc_ir::interp::{EvalCx, Mode};
use msc_ir::ops::convert::Convert;
use msc_ir::{DType, Module, Op, Tensor, TensorType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Ops that one value may be recomputed through; a clipping has about ten.
const MAX_TERMS: usize = 64;

/// An expression, by its place in [`Terms`].
pub type TermId = usize;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Term {
    /// The sum of squares.
    Sum(DType),
    /// An element of a gradient.
    Gradient(DType),
    /// A number of the program, by its bits.
    Number(DType, u64),
    /// A scalar of the program of which nothing is known.
    Scalar(DType, Place),
    /// An elementwise op.
    Op(Box<Op>, SmallVec<[TermId; 3]>, DType),
}

/// Expressions, each kept once.
#[derive(Default)]
pub struct Terms {
    all: Vec<Term>,
    index: BTreeMap<Term, TermId>,
    /// How many terms those of ops are made of.
    sizes: BTreeMap<TermId, usize>,
}

impl Terms {
    fn add(&mut self, term: Term) -> TermId {
        *self.index.entry(term.clone()).or_insert_with(|| {
            self.all.push(term);
            self.all.len() - 1
        })
    }

    /// An op on others, and how many terms it is made of.
    fn op(&mut self, op: &Op, args: SmallVec<[TermId; 3]>, dtype: DType) -> (TermId, usize) {
        let term = self.add(Term::Op(Box::new(op.clone()), args, dtype));
        let size = match self.sizes.get(&term) {
            Some(&n) => n,
            None => self.within(term).len(),
        };
        self.sizes.insert(term, size);
        (term, size)
    }

    /// Terms that a term is made of, itself included; operands first.
    fn within(&self, of: TermId) -> BTreeSet<TermId> {
        let mut out = BTreeSet::from([of]);
        let mut todo = vec![of];
        while let Some(t) = todo.pop() {
            if let Term::Op(_, args, _) = &self.all[t] {
                todo.extend(args.iter().copied().filter(|&a| out.insert(a)));
            }
        }
        out
    }

    /// The numbers in an expression.
    pub fn numbers(&self, of: TermId) -> BTreeSet<u64> {
        let number = |t| match self.all[t] {
            Term::Number(d, bits) if d.is_float() => Some(bits),
            _ => None,
        };
        self.within(of).into_iter().filter_map(number).collect()
    }

    /// The scalars of which nothing is known in an expression.
    pub fn scalars(&self, of: TermId) -> BTreeSet<TermId> {
        self.within(of).into_iter().filter(|&t| self.scalar(t).is_some()).collect()
    }

    /// The scalar of which nothing is known that a term is.
    pub fn scalar(&self, of: TermId) -> Option<(DType, &Place)> {
        match &self.all[of] {
            Term::Scalar(dtype, at) => Some((*dtype, at)),
            _ => None,
        }
    }

    /// What such a scalar is in a trial: no two alike, and none the same twice.
    pub fn tried(of: TermId, trial: usize) -> f64 {
        0.21 + 0.13 * ((of * 5 + trial * 3) % 11) as f64 + of as f64 * 1e-3
    }

    /// The value of an expression in wide mode. Operands stand before the terms made of them.
    pub fn value(
        &self,
        module: &Module,
        of: TermId,
        (sum, gradient): (f64, f64),
        trial: usize,
    ) -> Option<f64> {
        let cx = EvalCx::new(module, Mode::Wide, 0);
        let held = |d: DType, v: f64| Tensor::scalar(cx.held(&TensorType::scalar(d)).dtype, v);
        let mut made: BTreeMap<TermId, Tensor> = BTreeMap::new();
        for t in self.within(of) {
            let tensor = match &self.all[t] {
                Term::Sum(d) => held(*d, sum),
                Term::Gradient(d) => held(*d, gradient),
                Term::Number(d, bits) => held(*d, f64::from_bits(*bits)),
                Term::Scalar(d, _) => held(*d, Terms::tried(t, trial)),
                Term::Op(op, args, d) => {
                    let refs: Option<Vec<&Tensor>> = args.iter().map(|a| made.get(a)).collect();
                    let mut out = cx.eval(op, &refs?, &[TensorType::scalar(*d)]).ok()?;
                    out.pop()?
                }
            };
            made.insert(t, tensor);
        }
        Some(made.get(&of)?.data.get_f64(0))
    }
}

/// What is computed from a sum of squares.
#[derive(Default)]
pub struct Scaled {
    /// The expressions.
    pub terms: Terms,
    /// What is made of the sum alone.
    pub scalars: FxHashMap<Place, TermId>,
    /// Tensors that are another one scaled: which, and how.
    pub tensors: FxHashMap<Place, (Place, TermId)>,
}

impl Scaled {
    /// Everything elementwise that is computed from `sum`, in whatever graph.
    pub fn new(flow: &Flow<'_>, sum: &Place) -> Scaled {
        let mut out = Scaled::default();
        let term = out.terms.add(Term::Sum(flow.ty(sum).dtype));
        out.scalars.insert(sum.clone(), term);
        let mut todo = vec![sum.clone()];
        while let Some(at) = todo.pop() {
            for user in flow.users(&at) {
                if out.visit(flow, &user) {
                    todo.push(user);
                }
            }
        }
        out
    }

    /// How many ops take a tensor where it is scaled, at most in one way: as many as parameters that it is the gradient of.
    pub fn takers(&self, flow: &Flow<'_>, tensor: &Place) -> usize {
        let mut by_term: BTreeMap<TermId, usize> = BTreeMap::new();
        for (at, (_, term)) in self.tensors.iter().filter(|(_, (from, _))| from == tensor) {
            let users = flow.users(at).into_iter().filter(|u| !self.tensors.contains_key(u));
            *by_term.entry(*term).or_default() += users.count();
        }
        by_term.into_values().max().unwrap_or(0)
    }

    /// Whether an expression of the norm alone is zero.
    fn is_zero(&self, module: &Module, term: TermId) -> bool {
        let value = |n: &f64| self.terms.value(module, term, (n * n, 0.0), 0);
        self.terms.scalars(term).is_empty() && NORMS.iter().all(|n| value(n) == Some(0.0))
    }

    /// Finds the expression of a value; whether it is new.
    fn visit(&mut self, flow: &Flow<'_>, at: &Place) -> bool {
        let Some(op) = flow.maker(at).map(|m| &m.op) else { return false };
        let layout = matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Broadcast(_));
        let elementwise =
            matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_));
        if !layout && !elementwise || matches!(op, Op::Convert(Convert::Bits(_))) {
            return false;
        }
        let Some((_, operands)) = flow.op(at) else { return false };
        let mut source: Option<Place> = None;
        let mut args: SmallVec<[TermId; 3]> = SmallVec::new();
        for o in &operands {
            let dtype = flow.ty(o).dtype;
            let (from, term) = if let Some(&t) = self.scalars.get(o) {
                (None, t)
            } else if let Some((from, t)) = self.tensors.get(o) {
                (Some(from.clone()), *t)
            } else if let Some(v) = flow.number(o) {
                (None, self.terms.add(Term::Number(dtype, v.to_bits())))
            } else if let Some(scalar) = spread(flow, o).filter(|_| dtype.is_float()) {
                (None, self.terms.add(Term::Scalar(dtype, scalar)))
            } else if layout || !dtype.is_float() {
                return false;
            } else {
                (Some(o.clone()), self.terms.add(Term::Gradient(dtype)))
            };
            match (&source, from) {
                (_, None) => {}
                (Some(a), Some(b)) if *a != b && pieces(flow, a) != pieces(flow, &b) => return false,
                (_, Some(b)) => source = Some(b),
            }
            args.push(term);
        }
        let term = if layout {
            args[0]
        } else {
            let (term, size) = self.terms.op(op, args, flow.ty(at).dtype);
            if size > MAX_TERMS {
                return false;
            }
            term
        };
        match source {
            // The gradient of what the loss does not depend on, scaled: it is zero whatever the norm.
            None if flow.ty(at).rank() > 0 && self.is_zero(flow.module, term) => false,
            None => self.scalars.insert(at.clone(), term) != Some(term),
            Some(from) => {
                let new = (from, term);
                self.tensors.insert(at.clone(), new.clone()) != Some(new)
            }
        }
    }
}

/// The scalar that a value is, spread out or not.
fn spread(flow: &Flow<'_>, at: &Place) -> Option<Place> {
    let mut at = at.clone();
    while flow.ty(&at).rank() > 0 {
        let maker = flow.maker(&at)?;
        if !matches!(maker.op, Op::Reshape(_) | Op::Broadcast(_)) {
            return None;
        }
        at = flow.operand(&at, maker, 0)?;
    }
    Some(at)
}
