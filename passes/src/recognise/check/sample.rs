//! Random instances of a rule: graphs that its patterns describe, with random shapes and spelling.

use super::random::Random;
use crate::recognise::define::compute_type;
use crate::recognise::engine::facts::Fact;
use crate::recognise::engine::pattern::{Head, Item, Number, Pattern, Place, Reduced};
use crate::recognise::engine::rule::{Count, Frame, Rule};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Maximum, Minimum, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::unary::UnaryKind::{Abs, Exponential, Negate, Rsqrt, Sine, Sqrt};
use msc_ir::{
    DType, Entry, Graph, GraphId, IrError, LocId, Module, Monoid, Op, ParamInfo, Result, ResultInfo, Shape,
    TensorType, ValueId,
};
use std::collections::BTreeMap;

/// An instance.
#[derive(Clone, Debug)]
pub struct Sample {
    /// A module with the one entry.
    pub module: Module,
    /// The graph: its results are the rule's roots, each root with [`Count::Each`] left out.
    pub graph: GraphId,
}

/// Generates one instance. `size` bounds dimensions, so that small instances can be tried first.
///
/// # Errors
/// If a pattern asks for what no op gives: a bug in the rule.
pub fn sample(rule: &Rule, dtype: DType, size: usize, rng: &mut Random) -> Result<Sample> {
    let rank = rng.below(3);
    let rows: Shape = (0..rank).map(|_| 1 + rng.below(size)).collect();
    let mut s = Sampler {
        module: Module::new("instance"),
        graph: Graph::new("main"),
        keep_unit: rng.chance(50),
        rows,
        row: 2 + rng.below(size),
        vars: BTreeMap::new(),
        last_broadcast: None,
        facts: rule.facts,
        rng,
    };
    let mut results = Vec::new();
    for root in &rule.roots {
        // What the op gives beside its main results need not be in the program.
        if root.count == Count::Each || root.count == Count::Optional && s.rng.chance(25) {
            continue;
        }
        let v = match root.frame {
            Frame::Any => {
                let rank = s.rng.below(4);
                let shape: Shape = (0..rank).map(|_| 1 + s.rng.below(size)).collect();
                s.any(&root.pattern, &TensorType { dtype, shape })?
            }
            Frame::Full => s.framed(&root.pattern, Place::Full, dtype)?,
            Frame::Cols => s.framed(&root.pattern, Place::Cols, dtype)?,
            Frame::Rows => s.framed(&root.pattern, Place::Rows, compute_type(dtype))?,
        };
        let place = match root.frame {
            Frame::Rows => Place::Rows,
            Frame::Cols => Place::Cols,
            _ => Place::Full,
        };
        s.vars.insert(root.name, (v, place));
        results.push(v);
    }
    s.graph.set_results(results);
    let Sampler { mut module, graph, .. } = s;
    let (params, results) = (graph.params().len(), graph.results().len());
    let graph = module.add_graph(graph);
    module.entries.push(Entry {
        name: "main".into(),
        graph,
        params: vec![ParamInfo::default(); params],
        results: vec![ResultInfo::default(); results],
    });
    Ok(Sample { module, graph })
}

struct Sampler<'r> {
    module: Module,
    graph: Graph,
    rng: &'r mut Random,
    rows: Shape,
    row: usize,
    /// Whether statistics keep a dimension of size 1 in place of the row.
    keep_unit: bool,
    vars: BTreeMap<&'static str, (ValueId, Place)>,
    last_broadcast: Option<(TensorType, BroadcastInDim)>,
    facts: &'static [(&'static str, Fact)],
}

impl Sampler<'_> {
    fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId> {
        self.graph.add1(&self.module, op, operands, LocId::UNKNOWN)
    }

    fn splat(&mut self, ty: TensorType, value: f64) -> Result<ValueId> {
        let id = self.module.constants.intern_splat(ty, value);
        self.op(ConstantOp { id }, &[])
    }

    fn ty(&self, place: Place, dtype: DType) -> TensorType {
        let mut shape = self.rows.clone();
        match place {
            Place::Full => shape.push(self.row),
            Place::Rows if self.keep_unit => shape.push(1),
            Place::Rows => {}
            Place::Cols => shape = [self.row].into_iter().collect(),
        }
        TensorType { dtype, shape }
    }

    /// A new parameter; made positive or not negative where the rule needs to know.
    fn fresh(&mut self, name: &'static str, ty: TensorType) -> Result<ValueId> {
        let p = self.graph.add_param(ty.clone());
        let fact = self.facts.iter().find(|f| f.0 == name);
        Ok(match fact.map(|f| f.1) {
            None => p,
            Some(Fact::NonNegative) => self.op(Abs, &[p])?,
            Some(Fact::Positive) => {
                let a = self.op(Abs, &[p])?;
                let c = self.splat(ty, 0.25)?;
                self.op(Add, &[a, c])?
            }
        })
    }

    fn refuse<T>(&self, what: &str) -> Result<T> {
        Err(IrError::unsupported("pattern", format!("instances have no form for {what}")))
    }

    /// An instance of a pattern without a frame, of a given type.
    fn any(&mut self, p: &Pattern, ty: &TensorType) -> Result<ValueId> {
        match p {
            Pattern::Var(name) => match self.vars.get(name) {
                Some(&(v, _)) => Ok(v),
                None => {
                    let v = self.fresh(name, ty.clone())?;
                    self.vars.insert(name, (v, Place::Full));
                    Ok(v)
                }
            },
            Pattern::Const(_) => {
                let c = self.rng.pick(&[2.0, 0.5, -3.25, 0.1, 7.0]);
                self.splat(ty.clone(), c)
            }
            Pattern::Number(Number::Literal(x)) => self.splat(ty.clone(), *x),
            Pattern::Op(head, args) => {
                let (op, operand) = self.head(*head, ty)?;
                let mut values = Vec::new();
                for a in args {
                    values.push(self.any(a, &operand)?);
                }
                if head.is_commutative() && self.rng.chance(50) {
                    values.reverse();
                }
                self.op(op, &values)
            }
            _ => self.refuse("products, sums and 1/D without a frame"),
        }
    }

    /// An op that a head means and that gives type `ty`, with the type of its operands.
    fn head(&mut self, head: Head, ty: &TensorType) -> Result<(Op, TensorType)> {
        let rng = &mut *self.rng;
        Ok(match head {
            Head::Unary(k) => (k.into(), ty.clone()),
            Head::AnyUnary => (rng.pick(&[Abs, Negate, Exponential, Sine, Sqrt]).into(), ty.clone()),
            Head::Binary(k) => (k.into(), ty.clone()),
            Head::AnyBinary => {
                (rng.pick(&[Add, Subtract, Multiply, Divide, Maximum, Minimum]).into(), ty.clone())
            }
            Head::Broadcast => {
                if let Some((result, b)) = &self.last_broadcast
                    && result.shape == ty.shape
                    && rng.chance(75)
                {
                    let shape: Shape = b.dims.iter().map(|&d| ty.shape[d]).collect();
                    return Ok((b.clone().into(), ty.with_shape(shape)));
                }
                let style = rng.below(3);
                let (mut dims, mut shape) = (Shape::new(), Shape::new());
                for (d, &n) in ty.shape.iter().enumerate() {
                    // All of them; all but those of size 1; some, stretching others.
                    if style == 0 || style == 1 && n != 1 || style == 2 && rng.chance(60) {
                        dims.push(d);
                        shape.push(if style == 2 && rng.chance(20) { 1 } else { n });
                    }
                }
                let b = BroadcastInDim { shape: ty.shape.clone(), dims };
                if b.dims.iter().zip(&shape).all(|(&d, &n)| ty.shape[d] == n) {
                    self.last_broadcast = Some((ty.clone(), b.clone()));
                }
                (b.into(), ty.with_shape(shape))
            }
            Head::Reshape => {
                let mut shape: Vec<usize> = ty.shape.to_vec();
                match rng.below(4) {
                    0 => shape.retain(|&n| n != 1),
                    1 => shape.insert(rng.below(shape.len() + 1), 1),
                    2 => shape = vec![ty.elements()],
                    _ => {}
                }
                (Reshape { shape: ty.shape.clone() }.into(), ty.with_shape(shape))
            }
            Head::Transpose => {
                let mut p: Vec<usize> = (0..ty.rank()).collect();
                if p.len() > 1 && rng.chance(50) {
                    let (i, j) = (rng.below(p.len()), rng.below(p.len()));
                    p.swap(i, j);
                }
                let mut shape = vec![0; p.len()];
                p.iter().enumerate().for_each(|(i, &from)| shape[from] = ty.shape[i]);
                (Permute::Transpose(p.into_iter().collect()).into(), ty.with_shape(shape))
            }
            Head::Convert => {
                let from = rng.pick(&[ty.dtype, ty.dtype, DType::F32, DType::BF16]);
                (Convert::Value(ty.dtype).into(), ty.with_dtype(from))
            }
            Head::Reduce(monoid, Some(Reduced::Unit)) => {
                let mut shape: Vec<usize> = ty.shape.to_vec();
                let at = rng.below(shape.len() + 1);
                shape.insert(at, 1);
                let monoid = monoid.unwrap_or(Monoid::Sum);
                (Reduce { dims: [at].into_iter().collect(), monoid }.into(), ty.with_shape(shape))
            }
            Head::Reduce(..) => return self.refuse("reductions without a frame"),
        })
    }

    /// A value at one place, brought to another: statistics and rows are broadcast.
    fn spread(&mut self, v: ValueId, from: Place, to: Place) -> Result<ValueId> {
        if from == to {
            return Ok(v);
        }
        let dtype = self.graph.ty(v).dtype;
        let full = self.ty(Place::Full, dtype);
        let n = full.rank();
        match (from, to) {
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
        }
    }

    /// An instance of a pattern with a frame, at a place.
    fn framed(&mut self, p: &Pattern, place: Place, dtype: DType) -> Result<ValueId> {
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
            Pattern::Const(_) => {
                let c = self.rng.pick(&[1e-6, 1e-5, 1e-3, 0.25]);
                self.splat(self.ty(place, dtype), c)
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
                let from = if dtype == DType::F32 { self.narrow() } else { compute_type(dtype) };
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
            Pattern::Op(..) => self.refuse("this op with a frame"),
            Pattern::Product(items) => self.product(items, 1.0, place, dtype),
            Pattern::Sum(terms, rest) => self.sum(terms, *rest, place, dtype),
            Pattern::Polynomial(expression) => self.multiplied(expression, place, dtype),
        }
    }

    /// An instance of a polynomial: its expression, here and there multiplied out.
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
            _ => self.refuse("this op in a polynomial"),
        }
    }

    /// The narrow type that converts to f32 come from.
    fn narrow(&mut self) -> DType {
        DType::BF16
    }

    /// `factor · Π items` in a random order, association and spelling.
    fn product(&mut self, items: &[Item], factor: f64, place: Place, dtype: DType) -> Result<ValueId> {
        let mut coefficient = factor;
        // Numerators and denominators with their places.
        let mut pool: Vec<(ValueId, Place, bool)> = Vec::new();
        for item in items {
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
