//! Scaled dot-product attention and its gradient (Vaswani et al., "Attention Is All You Need"; Ainslie et al.,
//! "GQA"; Dao, "FlashAttention-2"), in plain ops. What kernels do block by block is stated here on whole scores.

mod scores;

use super::Definition;
use msc_ir::ops::attention::{AttentionForm, AttentionLayout};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Maximum, Multiply, Subtract};
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::unary::UnaryKind::{Exponential, Negate};
use msc_ir::{Graph, Module, Monoid, Result, Shape, TensorType, ValueId};
use scores::{Scores, Sizes};

/// Positions and heads exchanged: between `[B,N,S,h]` and `[B,S,N,h]`, either way.
const EXCHANGED: [usize; 4] = [0, 2, 1, 3];

impl Definition<'_> {
    /// Between the layout of a form and `[B,N,S,h]`, either way.
    fn laid_out(&mut self, form: &AttentionForm, v: ValueId) -> Result<ValueId> {
        match form.layout {
            AttentionLayout::Bnsd => Ok(v),
            AttentionLayout::Bsnd => self.op(Permute::Transpose(Shape::from_slice(&EXCHANGED)), &[v]),
        }
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
/// are rounded to the type of `v`. A sink is one more score in `m` and `l`. In the layout `[B,S,N,h]` q, k, v and o are
/// transposed, nothing else.
///
/// # Errors
/// If the types do not fit.
pub fn forward(module: &mut Module, types: &[TensorType], form: &AttentionForm) -> Result<Graph> {
    let n = 3 + form.operands();
    let sizes = Sizes::check("attention", form, types, n)?;
    let mut d = Definition::new(module, "attention");
    let mut params: Vec<_> = types.iter().map(|t| d.param(t)).collect();
    for v in &mut params[..3] {
        *v = d.laid_out(form, *v)?;
    }
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
    let o = d.laid_out(form, o)?;
    Ok(d.finish(vec![o, m, l]))
}

/// `q, k, v (, operands of steps), dy[B,H,S,w], m, l (, o) → dq, dk, dv (, dsink)`, see
/// [`FusedKind::AttentionGrad`](msc_ir::ops::fused::FusedKind::AttentionGrad). Weights are rounded to the type of
/// `v` before dv, and `dy·vᵀ` is widened to the type of the scores. Where the form is late, it is `dy/l` that meets
/// weights and values. In the layout `[B,S,N,h]` q, k, v, dy, o, dq, dk and dv are transposed, nothing else.
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
    let mut params: Vec<_> = types.iter().map(|t| d.param(t)).collect();
    for i in [0, 1, 2, n].into_iter().chain(output.then_some(n + 3)) {
        params[i] = d.laid_out(form, params[i])?;
    }
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
    for r in &mut results {
        *r = d.laid_out(form, *r)?;
    }
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
