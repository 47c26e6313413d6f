//! Instances of patterns with a frame: rows, columns, statistics, products and sums in random arrangements.

use super::Sampler;
use crate::recognise::define::compute_type;
use crate::recognise::engine::pattern::{Head, Item, Number, Pattern, Place, Reduced};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::Compare;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::{Abs, Negate, Rsqrt, Sqrt};
use msc_ir::{DType, Result, Shape, ValueId};

impl Sampler<'_> {
    /// A value at one place, brought to another: statistics and rows are broadcast.
    fn spread(&mut self, v: ValueId, from: Place, to: Place) -> Result<ValueId> {
        if from == to {
            return Ok(v);
        }
        let dtype = self.graph.ty(v).dtype;
        let full = self.ty(Place::Full, dtype);
        let n = full.rank();
        match (from, to) {
            (Place::Scalars, to) => {
                let shape = self.ty(to, dtype).shape;
                self.op(BroadcastInDim { shape, dims: Shape::new() }, &[v])
            }
            (Place::Rows, Place::Full) => {
                let dims = if self.keep_unit { 0..n } else { 0..n - 1 };
                self.op(BroadcastInDim { shape: full.shape, dims: dims.collect() }, &[v])
            }
            (Place::Cols, Place::Full) => {
                if self.rng.chance(50) && n > 1 {
                    // By way of [1, …, D].
                    let mut shape: Shape = std::iter::repeat_n(1, n - 1).collect();
                    shape.push(self.row);
                    let v = self.op(BroadcastInDim { shape, dims: [n - 1].into_iter().collect() }, &[v])?;
                    let b = BroadcastInDim { shape: full.shape, dims: (0..n).collect() };
                    return self.op(b, &[v]);
                }
                self.op(BroadcastInDim { shape: full.shape, dims: [n - 1].into_iter().collect() }, &[v])
            }
            _ => self.refuse("this placement"),
        }
    }

    fn number(&self, n: Number) -> f64 {
        match n {
            Number::Literal(x) => x,
            Number::PerRow(x) => x / self.row as f64,
            Number::RowSize => self.row as f64,
        }
    }

    /// An instance of a pattern with a frame, at a place.
    pub(super) fn framed(&mut self, p: &Pattern, place: Place, dtype: DType) -> Result<ValueId> {
        match p {
            Pattern::Var(name) => match self.vars.get(name) {
                Some(&(v, from)) => self.spread(v, from, place),
                None => {
                    let ty = self.ty(place, dtype);
                    let v = self.fresh(name, ty)?;
                    self.vars.insert(name, (v, place));
                    Ok(v)
                }
            },
            Pattern::Const(name) => {
                if let Some(&(v, from)) = self.vars.get(name) {
                    return self.spread(v, from, place);
                }
                let c = self.rng.pick(&[1e-6, 1e-5, 1e-3, 0.25, 1.0, 1.75]);
                let v = self.splat(self.ty(place, dtype), c)?;
                self.vars.insert(name, (v, place));
                Ok(v)
            }
            Pattern::Scalar(_) if self.ty(place, dtype).rank() == 0 || self.rng.chance(50) => {
                let c = self.rng.pick(&[1e-6, 1e-5, 1e-3, 0.25]);
                self.splat(self.ty(place, dtype), c)
            }
            Pattern::Scalar(name) => {
                // An epsilon: not below zero, so that roots are numbers.
                let ty = self.ty(Place::Scalars, dtype);
                let p = self.fresh(name, ty.clone())?;
                let least = self.splat(ty, 0.01)?;
                let p = self.op(Abs, &[p])?;
                let p = self.op(Add, &[p, least])?;
                self.spread(p, Place::Scalars, place)
            }
            Pattern::Number(n) => self.splat(self.ty(place, dtype), self.number(*n)),
            Pattern::Op(Head::Reduce(Some(monoid), Some(dims)), args) => {
                let inner = self.framed(&args[0], Place::Full, dtype)?;
                let rank = self.graph.ty(inner).rank();
                let dims = match dims {
                    Reduced::Last => [rank - 1].into_iter().collect(),
                    _ => (0..rank - 1).collect(),
                };
                let sum = self.op(Reduce { dims, monoid: *monoid }, &[inner])?;
                let want = self.ty(place, dtype);
                if *self.graph.ty(sum) == want {
                    return Ok(sum);
                }
                self.op(Reshape { shape: want.shape }, &[sum])
            }
            Pattern::Op(Head::Convert, args) => {
                let from = if dtype == DType::F32 { self.narrow } else { compute_type(dtype) };
                let inner = self.framed(&args[0], place, from)?;
                self.op(Convert::Value(dtype), &[inner])
            }
            Pattern::Op(Head::Unary(k), args) => {
                let inner = self.framed(&args[0], place, dtype)?;
                self.op(*k, &[inner])
            }
            Pattern::Op(Head::Binary(k), args) => {
                let a = self.framed(&args[0], place, dtype)?;
                let b = self.framed(&args[1], place, dtype)?;
                self.op(*k, &[a, b])
            }
            Pattern::Op(Head::Compare(direction), args) => {
                let a = self.framed(&args[0], place, dtype)?;
                let b = self.framed(&args[1], place, dtype)?;
                self.op(Compare { direction: *direction, total_order: false }, &[a, b])
            }
            Pattern::Op(Head::Select, args) => {
                let p = self.framed(&args[0], place, dtype)?;
                let a = self.framed(&args[1], place, dtype)?;
                let b = self.framed(&args[2], place, dtype)?;
                self.op(Select::Select, &[p, a, b])
            }
            Pattern::Op(Head::Clamp, args) => {
                let all = [&args[0], &args[1], &args[2]].map(|a| self.framed(a, place, dtype));
                let [low, x, high] = all;
                self.op(Select::Clamp, &[low?, x?, high?])
            }
            Pattern::Op(..) => self.refuse("this op with a frame"),
            Pattern::Or(all) => {
                let one = self.rng.below(all.len());
                self.framed(&all[one], place, dtype)
            }
            Pattern::As(name, inner) => {
                if let Some(&(v, from)) = self.vars.get(name) {
                    return self.spread(v, from, place);
                }
                let v = self.framed(inner, place, dtype)?;
                self.vars.insert(name, (v, place));
                Ok(v)
            }
            Pattern::Product(items) => self.product(items, 1.0, place, dtype),
            Pattern::Sum(terms, rest) | Pattern::Polynomial(terms, rest) => {
                self.sum(terms, *rest, place, dtype)
            }
            Pattern::Multiplied(expression) => self.multiplied(expression, place, dtype),
        }
    }

    /// An instance of an expression, here and there multiplied out.
    fn multiplied(&mut self, p: &Pattern, place: Place, dtype: DType) -> Result<ValueId> {
        let Pattern::Op(head, args) = p else { return self.framed(p, place, dtype) };
        let [a, b] = args.as_slice() else { return self.framed(p, place, dtype) };
        let (a, b) = if head.is_commutative() && self.rng.chance(50) { (b, a) } else { (a, b) };
        if *head == Head::Binary(Multiply)
            && let Pattern::Op(Head::Binary(kind @ (Add | Subtract)), terms) = b
            && self.rng.chance(40)
        {
            let term = |t: &Pattern| Pattern::Op(*head, vec![a.clone(), t.clone()]);
            let x = self.multiplied(&term(&terms[0]), place, dtype)?;
            let y = self.multiplied(&term(&terms[1]), place, dtype)?;
            return self.op(*kind, &[x, y]);
        }
        let (x, y) = (self.multiplied(a, place, dtype)?, self.multiplied(b, place, dtype)?);
        match head {
            Head::Binary(kind) => self.op(*kind, &[x, y]),
            _ => self.refuse("this op in an expression"),
        }
    }

    /// `factor · Π items` in a random order, association and spelling.
    fn product(&mut self, items: &[Item], factor: f64, place: Place, dtype: DType) -> Result<ValueId> {
        let mut coefficient = factor;
        // Numerators and denominators with their places.
        let mut pool: Vec<(ValueId, Place, bool)> = Vec::new();
        for item in items {
            if let Pattern::Var(v) = item.pattern
                && item.optional
                && !self.vars.contains_key(v)
            {
                continue;
            }
            if let Pattern::Number(n) = item.pattern {
                coefficient *= self.number(n);
                continue;
            }
            let at = if item.place == Place::Full { place } else { item.place };
            let v = self.framed(&item.pattern, at, dtype)?;
            self.power(v, at, item.halves, &mut pool)?;
        }
        if coefficient != 1.0 {
            let i = self.rng.below(pool.len());
            let (v, at, below) = pool[i];
            let over = self.rng.chance(50);
            let c = if over != below { 1.0 / coefficient } else { coefficient };
            let c = self.splat(self.graph.ty(v).clone(), c)?;
            pool[i].0 = self.op(if over { Divide } else { Multiply }, &[v, c])?;
            pool[i].1 = at;
        }
        while pool.len() > 1 || pool[0].1 != place || pool[0].2 {
            if pool.len() == 1 {
                let (v, at, below) = pool[0];
                if below {
                    let one = self.splat(self.graph.ty(v).clone(), 1.0)?;
                    pool[0] = (self.op(Divide, &[one, v])?, at, false);
                } else {
                    pool[0] = (self.spread(v, at, place)?, place, false);
                }
                continue;
            }
            let i = self.rng.below(pool.len());
            let (a, pa, below_a) = pool.swap_remove(i);
            let j = self.rng.below(pool.len());
            let (b, pb, below_b) = pool.swap_remove(j);
            let common = if pa == pb { pa } else { Place::Full };
            let (a, b) = (self.spread(a, pa, common)?, self.spread(b, pb, common)?);
            let (op, x, y) = match (below_a, below_b) {
                (false, true) => (Divide, a, b),
                (true, false) => (Divide, b, a),
                _ => (Multiply, a, b),
            };
            let v = self.op(op, &[x, y])?;
            pool.push((self.alias(v)?, common, below_a && below_b));
        }
        Ok(pool[0].0)
    }

    /// Adds `v^(halves/2)` to a pool of factors, in one of its spellings.
    fn power(
        &mut self,
        v: ValueId,
        at: Place,
        halves: i16,
        pool: &mut Vec<(ValueId, Place, bool)>,
    ) -> Result<()> {
        let below = halves < 0;
        if halves % 2 != 0 {
            let root_above = self.rng.chance(50);
            let root = match (below, root_above) {
                (true, true) => (self.op(Rsqrt, &[v])?, false),
                (true, false) => (self.op(Sqrt, &[v])?, true),
                (false, _) => (self.op(Sqrt, &[v])?, false),
            };
            pool.push((root.0, at, root.1));
        }
        for _ in 0..halves.abs() / 2 {
            pool.push((v, at, below));
        }
        Ok(())
    }

    /// The value under another name, now and then.
    fn alias(&mut self, v: ValueId) -> Result<ValueId> {
        if !self.rng.chance(10) {
            return Ok(v);
        }
        let one = self.splat(self.graph.ty(v).clone(), 1.0)?;
        self.op(Multiply, &[v, one])
    }

    fn sum(
        &mut self,
        terms: &[Pattern],
        rest: Option<&'static str>,
        place: Place,
        dtype: DType,
    ) -> Result<ValueId> {
        // Values with whether they are to be subtracted.
        let mut pool: Vec<(ValueId, bool)> = Vec::new();
        for t in terms {
            pool.push(match t {
                // One at most, so that the whole is not a negation.
                Pattern::Product(items)
                    if rest.is_some() && pool.iter().all(|p| !p.1) && self.rng.chance(30) =>
                {
                    (self.product(items, -1.0, place, dtype)?, true)
                }
                t => (self.framed(t, place, dtype)?, false),
            });
        }
        if let Some(name) = rest
            && self.rng.chance(60)
        {
            let ty = self.ty(place, dtype);
            pool.push((self.fresh(name, ty)?, false));
        }
        while pool.len() > 1 {
            let i = self.rng.below(pool.len());
            let (a, na) = pool.swap_remove(i);
            let j = self.rng.below(pool.len());
            let (b, nb) = pool.swap_remove(j);
            let (v, n) = match (na, nb) {
                (false, true) => (self.op(Subtract, &[a, b])?, false),
                (true, false) => (self.op(Subtract, &[b, a])?, false),
                (_, _) => (self.op(Add, &[a, b])?, na),
            };
            pool.push((v, n));
        }
        let (v, negative) = pool[0];
        if negative { self.op(Negate, &[v]) } else { Ok(v) }
    }
}
