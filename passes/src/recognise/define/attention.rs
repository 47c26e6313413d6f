//! Scaled dot-product attention and its gradient (Vaswani et al., "Attention Is All You Need"; Ainslie et al.,
//! "GQA"; Dao, "FlashAttention-2"), in plain ops. What kernels do block by block is stated here on whole scores.

use super::Definition;
use msc_ir::ops::attention::{AttentionForm, ScoreStep};
use msc_ir::ops::binary::BinaryKind::{Add, And, Divide, Maximum, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::{Exponential, Negate, Tanh};
use msc_ir::{DType, Graph, IrError, Module, Monoid, Result, Shape, TensorType, ValueId};

/// Sizes of an attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes {
    /// Batch.
    b: usize,
    /// Query heads.
    h: usize,
    /// Heads of keys and values.
    k: usize,
    /// Queries.
    s: usize,
    /// Keys.
    t: usize,
}

impl Sizes {
    /// Query heads for each head of keys.
    fn group(self) -> usize {
        self.h / self.k
    }

    fn scores(self) -> Shape {
        [self.b, self.h, self.s, self.t].into_iter().collect()
    }

    /// Which operand is the sink.
    fn sink(form: &AttentionForm) -> Option<usize> {
        form.sink.then(|| 3 + form.steps.iter().filter(|s| s.takes_operand()).count())
    }

    fn check(op: &str, form: &AttentionForm, types: &[TensorType], operands: usize) -> Result<Sizes> {
        let wrong = |m: String| Err(IrError::ty(op, m));
        if types.len() != operands {
            return wrong(format!("takes {operands} operands, has {}", types.len()));
        }
        let [q, k, v] = [&types[0], &types[1], &types[2]];
        let fits = [q, k, v].iter().all(|t| t.rank() == 4 && t.dtype.is_float() && t.elements() > 0)
            && q.shape[0] == k.shape[0]
            && k.shape[..3] == v.shape[..3]
            && q.shape[3] == k.shape[3]
            && q.shape[1] % k.shape[1] == 0
            && q.dtype == k.dtype;
        if !fits {
            return wrong(format!("queries {q}, keys {k} and values {v} do not fit"));
        }
        let sizes = Sizes { b: q.shape[0], h: q.shape[1], k: k.shape[1], s: q.shape[2], t: k.shape[2] };
        // What multiplies weights is like a bias, and so is a sink.
        let weights = form.weighted.then_some(&ScoreStep::Bias);
        let sink = form.sink.then_some(&ScoreStep::Bias);
        let extras =
            form.steps.iter().filter(|s| s.takes_operand()).chain(sink).chain(weights).zip(&types[3..]);
        for (step, ty) in extras {
            let spreads = ty.shape.iter().zip(&sizes.scores()).all(|(&n, &full)| n == 1 || n == full);
            let kind = match step {
                ScoreStep::Mask { .. } => ty.dtype == DType::I1,
                _ => ty.dtype.is_float(),
            };
            if ty.rank() != 4 || !spreads || !kind {
                return wrong(format!("{ty} is no operand of {step:?} on scores {:?}", sizes.scores()));
            }
        }
        if let Some(ty) = Sizes::sink(form).and_then(|i| types.get(i)).filter(|ty| ty.shape[3] != 1) {
            return wrong(format!("{ty} is no sink: it has a score for each key"));
        }
        Ok(sizes)
    }
}

/// The scores, and what the gradient needs of each step: its operand, if it is differentiated through.
struct Scores {
    sizes: Sizes,
    value: ValueId,
    /// For each step: the type before it, and a value.
    trace: Vec<(TensorType, Option<ValueId>)>,
}

impl Definition<'_> {
    fn reshaped(&mut self, v: ValueId, shape: impl IntoIterator<Item = usize>) -> Result<ValueId> {
        let shape: Shape = shape.into_iter().collect();
        if self.ty(v).shape == shape { Ok(v) } else { self.op(Reshape { shape }, &[v]) }
    }

    /// `[B,K,…] → [B,H,…]`: each head once for every query head of its group.
    fn repeat(&mut self, v: ValueId, group: usize) -> Result<ValueId> {
        if group == 1 {
            return Ok(v);
        }
        let s = self.ty(v).shape;
        let wide = [s[0], s[1], group, s[2], s[3]];
        let v = self.op(
            BroadcastInDim { shape: wide.into_iter().collect(), dims: Shape::from_slice(&[0, 1, 3, 4]) },
            &[v],
        )?;
        self.reshaped(v, [s[0], s[1] * group, s[2], s[3]])
    }

    /// A dot over batch dimensions 0, 1 (and 2 with `grouped`) of both operands.
    fn dot(&mut self, l: ValueId, r: ValueId, contract: (&[usize], &[usize])) -> Result<ValueId> {
        let dtype = self.ty(l).dtype;
        let batch = Shape::from_slice(&[0, 1]);
        let d = DotGeneral {
            lhs_batch: batch.clone(),
            rhs_batch: batch,
            lhs_contract: contract.0.iter().copied().collect(),
            rhs_contract: contract.1.iter().copied().collect(),
            dtype,
        };
        self.op(d, &[l, r])
    }

    /// `x[B,H,S,n] · y[B,K,m,n] → [B,H,S,m]`.
    fn over_rows_of(&mut self, x: ValueId, y: ValueId, sizes: Sizes, repeated: bool) -> Result<ValueId> {
        self.heads(x, y, 3, sizes, repeated)
    }

    /// `x[B,H,S,T] · y[B,K,T,n] → [B,H,S,n]`.
    fn over_keys(&mut self, x: ValueId, y: ValueId, sizes: Sizes, repeated: bool) -> Result<ValueId> {
        self.heads(x, y, 2, sizes, repeated)
    }

    fn heads(&mut self, x: ValueId, y: ValueId, dim: usize, sizes: Sizes, repeated: bool) -> Result<ValueId> {
        let g = sizes.group();
        if repeated || g == 1 {
            let y = self.repeat(y, g)?;
            return self.dot(x, y, (&[3], &[dim]));
        }
        let s = self.ty(x).shape;
        let x = self.reshaped(x, [s[0], sizes.k, g, s[2], s[3]])?;
        let out = self.dot(x, y, (&[4], &[dim]))?;
        let n = self.ty(out).shape[4];
        self.reshaped(out, [s[0], sizes.h, s[2], n])
    }

    /// `x[B,H,S,T] · y[B,H,S,n] → [B,K,T,n]` of type `into`: summed over queries and over the heads of a group.
    fn over_queries(
        &mut self,
        x: ValueId,
        y: ValueId,
        sizes: Sizes,
        (repeated, into): (bool, DType),
    ) -> Result<ValueId> {
        let g = sizes.group();
        if g == 1 {
            let sum = self.dot(x, y, (&[2], &[2]))?;
            return self.convert(sum, into);
        }
        let n = self.ty(y).shape[3];
        if repeated {
            let each = self.dot(x, y, (&[2], &[2]))?;
            let each = self.convert(each, into)?;
            let each = self.reshaped(each, [sizes.b, sizes.k, g, sizes.t, n])?;
            return self.op(Reduce { dims: Shape::from_slice(&[2]), monoid: Monoid::Sum }, &[each]);
        }
        let x = self.reshaped(x, [sizes.b, sizes.k, g, sizes.s, sizes.t])?;
        let y = self.reshaped(y, [sizes.b, sizes.k, g, sizes.s, n])?;
        let sum = self.dot(x, y, (&[2, 3], &[2, 3]))?;
        self.convert(sum, into)
    }

    /// Whether `lo ≤ i − j ≤ hi`, as `i1` of the shape of scores.
    fn band(&mut self, shape: &Shape, lo: Option<i64>, hi: Option<i64>) -> Result<ValueId> {
        let ty = TensorType { dtype: DType::I32, shape: shape[2..].iter().copied().collect() };
        let i = self.op(Iota { ty: ty.clone(), dim: 0 }, &[])?;
        let j = self.op(Iota { ty: ty.clone(), dim: 1 }, &[])?;
        let apart = self.op(Subtract, &[i, j])?;
        let mut kept = None;
        for (bound, direction) in [(lo, Direction::Ge), (hi, Direction::Le)] {
            let Some(bound) = bound else { continue };
            let bound = self.splat(ty.clone(), bound as f64)?;
            let one = self.op(Compare { direction, total_order: false }, &[apart, bound])?;
            kept = Some(match kept {
                None => one,
                Some(other) => self.op(And, &[other, one])?,
            });
        }
        let kept = match kept {
            Some(k) => k,
            None => self.splat(ty.with_dtype(DType::I1), 1.0)?,
        };
        self.op(BroadcastInDim { shape: shape.clone(), dims: Shape::from_slice(&[2, 3]) }, &[kept])
    }

    /// An operand of a step in the shape of scores.
    fn spread(&mut self, v: ValueId, shape: &Shape) -> Result<ValueId> {
        let ty = self.ty(v);
        if ty.shape == *shape {
            return Ok(v);
        }
        let dims: Shape = (0..4).filter(|&d| ty.shape[d] != 1).collect();
        let v = self.reshaped(v, dims.iter().map(|&d| ty.shape[d]))?;
        self.op(BroadcastInDim { shape: shape.clone(), dims }, &[v])
    }

    fn scores(
        &mut self,
        form: &AttentionForm,
        sizes: Sizes,
        q: ValueId,
        k: ValueId,
        extras: &[ValueId],
    ) -> Result<Scores> {
        let (q, k) = self.factors(form, q, k)?;
        let mut at = self.over_rows_of(q, k, sizes, form.repeated)?;
        let mut extras = extras.iter();
        let mut trace = Vec::new();
        for step in &form.steps {
            let ty = self.ty(at);
            let mut extra =
                || extras.next().copied().ok_or_else(|| IrError::ty("attention", "lacks an operand"));
            let mut kept = None;
            at = match *step {
                ScoreStep::Scale(x) => {
                    let c = self.splat(ty.clone(), x.get())?;
                    self.op(Multiply, &[at, c])?
                }
                ScoreStep::Convert(d) => self.convert(at, d)?,
                ScoreStep::Tanh => {
                    let t = self.op(Tanh, &[at])?;
                    kept = Some(t);
                    t
                }
                ScoreStep::Band { lo, hi, fill, add } => {
                    let mask = self.band(&ty.shape, lo, hi)?;
                    let fill = self.splat(ty.clone(), fill.get())?;
                    if add {
                        let zero = self.splat(ty.clone(), 0.0)?;
                        let bias = self.op(Select::Select, &[mask, zero, fill])?;
                        self.op(Add, &[at, bias])?
                    } else {
                        kept = Some(mask);
                        self.op(Select::Select, &[mask, at, fill])?
                    }
                }
                ScoreStep::Mask { fill } => {
                    let mask = extra()?;
                    let mask = self.spread(mask, &ty.shape)?;
                    kept = Some(mask);
                    let fill = self.splat(ty.clone(), fill.get())?;
                    self.op(Select::Select, &[mask, at, fill])?
                }
                ScoreStep::Factor => {
                    let factor = extra()?;
                    let factor = self.spread(factor, &ty.shape)?;
                    kept = Some(factor);
                    self.op(Multiply, &[at, factor])?
                }
                ScoreStep::Bias => {
                    let bias = extra()?;
                    let bias = self.spread(bias, &ty.shape)?;
                    self.op(Add, &[at, bias])?
                }
            };
            trace.push((ty, kept));
        }
        Ok(Scores { sizes, value: at, trace })
    }

    /// Queries and keys as they are multiplied.
    fn factors(&mut self, form: &AttentionForm, q: ValueId, k: ValueId) -> Result<(ValueId, ValueId)> {
        match form.wide {
            true => Ok((self.convert(q, DType::F32)?, self.convert(k, DType::F32)?)),
            false => Ok((q, k)),
        }
    }

    /// The gradient of the products from that of the scores.
    fn through_scores(&mut self, form: &AttentionForm, scores: &Scores, ds: ValueId) -> Result<ValueId> {
        let mut ds = ds;
        for (step, (ty, kept)) in form.steps.iter().zip(&scores.trace).rev() {
            let here = self.ty(ds);
            ds = match (step, kept) {
                (ScoreStep::Scale(x), _) => {
                    let c = self.splat(here, x.get())?;
                    self.op(Multiply, &[ds, c])?
                }
                (ScoreStep::Convert(_), _) => self.convert(ds, ty.dtype)?,
                (ScoreStep::Factor, &Some(factor)) => self.op(Multiply, &[ds, factor])?,
                (ScoreStep::Tanh, &Some(t)) => {
                    let square = self.op(Multiply, &[t, t])?;
                    let one = self.splat(here, 1.0)?;
                    let slope = self.op(Subtract, &[one, square])?;
                    self.op(Multiply, &[ds, slope])?
                }
                (ScoreStep::Band { .. } | ScoreStep::Mask { .. }, &Some(mask)) => {
                    let zero = self.splat(here, 0.0)?;
                    self.op(Select::Select, &[mask, ds, zero])?
                }
                _ => ds,
            };
        }
        Ok(ds)
    }

    /// `exp(s − m)`.
    fn weights(&mut self, scores: &Scores, m: ValueId) -> Result<ValueId> {
        let full = self.ty(scores.value);
        let m = self.over_row(m, &full)?;
        let below = self.op(Subtract, &[scores.value, m])?;
        self.op(Exponential, &[below])
    }

    /// Weights as they meet the values: multiplied by an operand where the form says so.
    fn weighted(&mut self, form: &AttentionForm, p: ValueId, extras: &[ValueId]) -> Result<ValueId> {
        match extras.last() {
            Some(&w) if form.weighted => {
                let shape = self.ty(p).shape;
                let w = self.spread(w, &shape)?;
                self.op(Multiply, &[p, w])
            }
            _ => Ok(p),
        }
    }

    /// `Σ dy∘(e·v)/l²`: what every weight of a row is worth together, from the product that is divided late.
    fn late_delta(&mut self, dy: ValueId, product: ValueId, l: ValueId) -> Result<ValueId> {
        let square = self.op(Multiply, &[l, l])?;
        let one = self.splat(self.ty(l), 1.0)?;
        let inverse = self.op(Divide, &[one, square])?;
        let inverse = self.over_row(inverse, &self.ty(dy))?;
        let part = self.op(Multiply, &[dy, inverse])?;
        let part = self.op(Multiply, &[part, product])?;
        self.row_sum(part)
    }

    /// The gradient of scores with that of their maximum, which is split among those that are it.
    fn through_maximum(&mut self, scores: &Scores, m: ValueId, ds: ValueId) -> Result<ValueId> {
        let full = self.ty(scores.value);
        let m = self.over_row(m, &full)?;
        let is = self.op(Compare { direction: Direction::Eq, total_order: false }, &[scores.value, m])?;
        let is = self.convert(is, full.dtype)?;
        let number = self.row_sum(is)?;
        let against = self.op(Negate, &[ds])?;
        let sum = self.row_sum(against)?;
        let share = self.op(Divide, &[sum, number])?;
        let share = self.over_row(share, &full)?;
        let share = self.op(Multiply, &[share, is])?;
        self.op(Add, &[ds, share])
    }

    /// A sink as one number per row, of the type of the scores.
    fn sink(&mut self, form: &AttentionForm, params: &[ValueId], scores: &Scores) -> Result<Option<ValueId>> {
        let Some(&sink) = Sizes::sink(form).and_then(|i| params.get(i)) else { return Ok(None) };
        let full = self.ty(scores.value);
        let sink = self.convert(sink, full.dtype)?;
        let rows: Shape = full.shape[..3].iter().copied().chain([1]).collect();
        let sink = self.spread(sink, &rows)?;
        self.reshaped(sink, full.shape[..3].iter().copied()).map(Some)
    }

    /// The gradient of a sink: `−exp(sink − m)/l·δ`, summed over the rows that share it.
    fn sink_gradient(&mut self, like: &TensorType, row: ValueId) -> Result<ValueId> {
        let shape = self.ty(row).shape;
        let dims: Shape = (0..3).filter(|&d| like.shape[d] != shape[d]).collect();
        let sum = match dims.is_empty() {
            true => row,
            false => self.op(Reduce { dims, monoid: Monoid::Sum }, &[row])?,
        };
        let sum = self.convert(sum, like.dtype)?;
        self.reshaped(sum, like.shape.iter().copied())
    }

    fn row_max(&mut self, v: ValueId) -> Result<ValueId> {
        self.op(Reduce { dims: Shape::from_slice(&[3]), monoid: Monoid::Max }, &[v])
    }

    fn divide_rows(&mut self, v: ValueId, l: ValueId) -> Result<ValueId> {
        let full = self.ty(v);
        let l = self.over_row(l, &full)?;
        self.op(Divide, &[v, l])
    }
}

/// `q[B,H,S,h], k[B,K,T,h], v[B,K,T,w] (, operands of steps) → o[B,H,S,w], m[B,H,S], l[B,H,S]`: scores by `form`, `m` their
/// maximum over keys, `l = Σ exp(s − m)`, `o = (exp(s − m)/l)·v`, or `(exp(s − m)·v)/l` where the form is late. Weights
/// are rounded to the type of `v`. A sink is one more score in `m` and `l`.
///
/// # Errors
/// If the types do not fit.
pub fn forward(module: &mut Module, types: &[TensorType], form: &AttentionForm) -> Result<Graph> {
    let n = 3 + form.operands();
    let sizes = Sizes::check("attention", form, types, n)?;
    let mut d = Definition::new(module, "attention");
    let params: Vec<_> = types.iter().map(|t| d.param(t)).collect();
    let scores = d.scores(form, sizes, params[0], params[1], &params[3..])?;
    let sink = d.sink(form, &params, &scores)?;
    let mut m = d.row_max(scores.value)?;
    if let Some(sink) = sink {
        m = d.op(Maximum, &[m, sink])?;
    }
    let e = d.weights(&scores, m)?;
    let mut l = d.row_sum(e)?;
    if let Some(sink) = sink {
        let below = d.op(Subtract, &[sink, m])?;
        let share = d.op(Exponential, &[below])?;
        l = d.op(Add, &[l, share])?;
    }
    let p = if form.late { e } else { d.divide_rows(e, l)? };
    let p = d.weighted(form, p, &params[3..])?;
    let p = d.convert(p, types[2].dtype)?;
    let mut o = d.over_keys(p, params[2], sizes, form.repeated)?;
    if form.late {
        let l = d.convert(l, types[2].dtype)?;
        o = d.divide_rows(o, l)?;
    }
    Ok(d.finish(vec![o, m, l]))
}

/// `q, k, v (, operands of steps), dy[B,H,S,w], m, l (, o) → dq, dk, dv (, dsink)`, see
/// [`FusedKind::AttentionGrad`](msc_ir::ops::fused::FusedKind::AttentionGrad). Weights are rounded to the type of
/// `v` before dv, and `dy·vᵀ` is widened to the type of the scores. Where the form is late, it is `dy/l` that meets
/// weights and values.
///
/// # Errors
/// If the types do not fit.
pub fn backward(
    module: &mut Module,
    types: &[TensorType],
    form: &AttentionForm,
    output: bool,
) -> Result<Graph> {
    let n = 3 + form.operands();
    let sizes = Sizes::check("attention_grad", form, types, n + 3 + usize::from(output))?;
    let mut d = Definition::new(module, "attention_grad");
    let params: Vec<_> = types.iter().map(|t| d.param(t)).collect();
    let (q, k, v) = (params[0], params[1], params[2]);
    let (dy, m, l) = (params[n], params[n + 1], params[n + 2]);
    let scores = d.scores(form, sizes, q, k, &params[3..n])?;
    let e = d.weights(&scores, m)?;
    // What meets the values, and what of `dy` meets it.
    let (p, dy, sum) = match form.late {
        true => {
            let l = d.convert(l, types[2].dtype)?;
            (e, d.divide_rows(dy, l)?, Some(l))
        }
        false => (d.divide_rows(e, l)?, dy, None),
    };
    let kept = d.weighted(form, p, &params[3..n])?;
    let rounded = d.convert(kept, types[2].dtype)?;
    let dv = d.over_queries(rounded, dy, sizes, (form.repeated, types[2].dtype))?;
    let wide = d.ty(p);
    let dp = d.over_rows_of(dy, v, sizes, form.repeated)?;
    let dp = d.convert(dp, wide.dtype)?;
    let dp = d.weighted(form, dp, &params[3..n])?;
    let delta = match (params.get(n + 3), sum) {
        (_, Some(l)) => {
            let product = d.over_keys(rounded, v, sizes, form.repeated)?;
            d.late_delta(params[n], product, l)?
        }
        (Some(&o), None) => {
            let both = d.op(Multiply, &[dy, o])?;
            d.row_sum(both)?
        }
        (None, None) => {
            let both = d.op(Multiply, &[p, dp])?;
            d.row_sum(both)?
        }
    };
    let delta = d.convert(delta, wide.dtype)?;
    let row = delta;
    let delta = d.over_row(delta, &wide)?;
    let centred = d.op(Subtract, &[dp, delta])?;
    let mut ds = d.op(Multiply, &[p, centred])?;
    if form.ties {
        ds = d.through_maximum(&scores, m, ds)?;
    }
    let ds = d.through_scores(form, &scores, ds)?;
    let (q, k) = d.factors(form, q, k)?;
    let dq = d.over_keys(ds, k, scores.sizes, form.repeated)?;
    let dq = d.convert(dq, types[0].dtype)?;
    let dk = d.over_queries(ds, q, sizes, (form.repeated, types[1].dtype))?;
    let mut results = vec![dq, dk, dv];
    if let (Some(sink), Some(operand)) = (d.sink(form, &params, &scores)?, Sizes::sink(form)) {
        let below = d.op(Subtract, &[sink, m])?;
        let mut share = d.op(Exponential, &[below])?;
        if !form.late {
            share = d.op(Divide, &[share, params[n + 2]])?;
        }
        let share = d.op(Negate, &[share])?;
        let row = d.op(Multiply, &[share, row])?;
        results.push(d.sink_gradient(&types[operand], row)?);
    }
    Ok(d.finish(results))
}
