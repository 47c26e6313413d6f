//! Cross-entropy of rows of logits against labels, and its gradient.
//!
//! The label's logit is a sum over the row of what the label's place has, zero elsewhere: like the normalizer it is a
//! reduction over the vocabulary, and nothing is indexed.

use super::{Definition, compute_type};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Multiply, Subtract};
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::fused::{Normalizer, Outside, Smoothing, Weighting};
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::{Exponential, Log};
use msc_ir::{Graph, IrError, Module, Monoid, Result, TensorType, ValueId};

impl Definition<'_> {
    /// `labels[…] → i1[…,V]`: where the label is.
    fn hits(&mut self, labels: ValueId, wide: &TensorType, outside: Outside) -> Result<ValueId> {
        let dim = wide.rank() - 1;
        let ty = self.ty(labels);
        let labels = match outside {
            Outside::Nearest => {
                let first = self.splat(ty.clone(), 0.0)?;
                let last = self.splat(ty.clone(), (wide.shape[dim] - 1) as f64)?;
                self.op(Select::Clamp, &[first, labels, last])?
            }
            _ => labels,
        };
        let wide = TensorType { dtype: ty.dtype, shape: wide.shape.clone() };
        let labels = self.over_row(labels, &wide)?;
        let places = self.op(Iota { ty: wide, dim }, &[])?;
        self.op(Compare { direction: Direction::Eq, total_order: false }, &[labels, places])
    }

    /// `v·c` for a number.
    fn scaled(&mut self, v: ValueId, c: f64) -> Result<ValueId> {
        let c = self.splat(self.ty(v), c)?;
        self.op(Multiply, &[v, c])
    }

    /// `v[…]` where the label lies inside, what stands for others elsewhere.
    fn inside_only(&mut self, v: ValueId, labels: ValueId, n: usize, outside: Outside) -> Result<ValueId> {
        let fill = match outside {
            Outside::Nan => f64::NAN,
            Outside::Zero => 0.0,
            Outside::Nothing | Outside::Nearest => return Ok(v),
        };
        let inside = self.is_inside(labels, n)?;
        let fill = self.splat(self.ty(v), fill)?;
        self.op(Select::Select, &[inside, v, fill])
    }
}

/// Whether labels of a type can name `n` places.
fn names(ty: &TensorType, n: usize) -> bool {
    // The largest number of the signed type of that size.
    let largest = (1u64 << (8 * ty.dtype.size_bytes() - 1)) - 1;
    ty.dtype.is_int() && n > 0 && n as u64 - 1 <= largest
}

fn expect(op: &'static str, x: &TensorType, labels: &TensorType) -> Result<()> {
    let rows = x.rank().saturating_sub(1);
    let fits = x.rank() > 0 && x.dtype.is_float() && labels.shape[..] == x.shape[..rows];
    if fits && names(labels, x.shape[rows]) {
        return Ok(());
    }
    Err(IrError::ty(op, format!("{labels} are no labels of {x}")))
}

/// `x[…,V], labels[…] → loss[…], lse[…] (, rest[…])`, see
/// [`FusedKind::CrossEntropy`](msc_ir::ops::fused::FusedKind::CrossEntropy).
///
/// # Errors
/// If the types are not those of rows of floats and an integer for each.
pub fn forward(
    module: &mut Module,
    types: &[TensorType],
    outside: Outside,
    smoothing: Smoothing,
) -> Result<Graph> {
    let [x, labels] = types else {
        return Err(IrError::ty("cross_entropy", format!("takes 2 operands, has {}", types.len())));
    };
    expect("cross_entropy", x, labels)?;
    let n = x.shape[x.rank() - 1];
    let mut d = Definition::new(module, "cross_entropy");
    let (v, labels) = (d.param(x), d.param(labels));
    let v = d.convert(v, compute_type(x.dtype))?;
    let wide = d.ty(v);
    let largest = d.op(Reduce { dims: [x.rank() - 1].into_iter().collect(), monoid: Monoid::Max }, &[v])?;
    let over = d.over_row(largest, &wide)?;
    let below = d.op(Subtract, &[v, over])?;
    let e = d.op(Exponential, &[below])?;
    let sum = d.row_sum(e)?;
    let log = d.op(Log, &[sum])?;
    let lse = d.op(Add, &[log, largest])?;
    let hits = d.hits(labels, &wide, outside)?;
    let zero = d.splat(wide, 0.0)?;
    let only = d.op(Select::Select, &[hits, v, zero])?;
    let picked = d.row_sum(only)?;
    let loss = d.op(Subtract, &[lse, picked])?;
    let loss = d.inside_only(loss, labels, n, outside)?;
    if smoothing == Smoothing::None {
        return Ok(d.finish(vec![loss, lse]));
    }
    // The losses against all labels.
    let all = d.scaled(lse, n as f64)?;
    let sum = d.row_sum(v)?;
    let rest = d.op(Subtract, &[all, sum])?;
    let Smoothing::Mixed { label, each } = smoothing else {
        return Ok(d.finish(vec![loss, lse, rest]));
    };
    let loss = d.scaled(loss, label.get())?;
    let rest = d.scaled(rest, each.get())?;
    let loss = d.op(Add, &[loss, rest])?;
    Ok(d.finish(vec![loss, lse]))
}

/// A gradient's form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// What a label outside `0..V` gives.
    pub outside: Outside,
    /// Whether `w` is an operand, and multiplies or divides.
    pub weight: Weighting,
    /// Whether `s` is an operand, and what for.
    pub normalizer: Normalizer,
    /// What is counted beside the label.
    pub smoothing: Smoothing,
}

/// `x[…,V], labels[…] (, w[…]) (, s[…]) (, u[…]), lse[…] → dx[…,V]`, see
/// [`FusedKind::CrossEntropyGrad`](msc_ir::ops::fused::FusedKind::CrossEntropyGrad).
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], form: Form) -> Result<Graph> {
    let Form { outside, weight, normalizer, smoothing } = form;
    let op = "cross_entropy_grad";
    let (weighted, apart) = (weight != Weighting::One, smoothing == Smoothing::Apart);
    let own = normalizer != Normalizer::Same;
    if own && smoothing != Smoothing::None {
        return Err(IrError::ty(op, "is of a smoothed loss without one of the normalizer"));
    }
    let (x, labels, per_row) = match types {
        [x, labels, rest @ ..]
            if rest.len() == 1 + [weighted, own, apart].into_iter().filter(|b| *b).count() =>
        {
            (x, labels, rest)
        }
        _ => return Err(IrError::ty(op, format!("has {} operands", types.len()))),
    };
    expect(op, x, labels)?;
    let n = x.shape[x.rank() - 1];
    let rows = TensorType { dtype: compute_type(x.dtype), shape: labels.shape.clone() };
    if per_row.iter().any(|t| *t != rows) {
        return Err(IrError::ty(op, format!("a row's numbers are {rows}")));
    }
    let mut d = Definition::new(module, op);
    let (v, labels) = (d.param(x), d.param(labels));
    let w = weighted.then(|| d.param(&rows));
    let s = own.then(|| d.param(&rows));
    let u = apart.then(|| d.param(&rows));
    let lse = d.param(&rows);
    let v = d.convert(v, rows.dtype)?;
    let wide = d.ty(v);
    let over = d.over_row(lse, &wide)?;
    let below = d.op(Subtract, &[v, over])?;
    let mut p = d.op(Exponential, &[below])?;
    if let Some(s) = s {
        let s = d.over_row(s, &wide)?;
        p = d.op(Multiply, &[s, p])?;
    }
    let hits = d.hits(labels, &wide, outside)?;
    let (one, zero) = (d.splat(wide.clone(), 1.0)?, d.splat(wide.clone(), 0.0)?);
    let mut onehot = d.op(Select::Select, &[hits, one, zero])?;
    let w = match (w, weight) {
        (Some(w), Weighting::Over) => {
            let one = d.splat(rows.clone(), 1.0)?;
            Some(d.op(Divide, &[one, w])?)
        }
        (w, _) => w,
    };
    // What each of all labels counts, and the label's own.
    let each = match smoothing {
        Smoothing::None => None,
        Smoothing::Apart => u,
        Smoothing::Mixed { each, .. } => Some(match w {
            Some(w) => d.scaled(w, each.get())?,
            None => d.splat(rows.clone(), each.get())?,
        }),
    };
    let w = match (smoothing, w) {
        (Smoothing::Mixed { label, .. }, Some(w)) => Some(d.scaled(w, label.get())?),
        (Smoothing::Mixed { label, .. }, None) => Some(d.splat(rows.clone(), label.get())?),
        (_, w) => w,
    };
    let softmax = p;
    let mut scale = w;
    if normalizer == Normalizer::Own
        && let Some(w) = scale.take()
    {
        let w = d.over_row(w, &wide)?;
        onehot = d.op(Multiply, &[w, onehot])?;
    }
    let mut dx = d.op(Subtract, &[p, onehot])?;
    // Rows that count for nothing still need a number.
    if scale.is_none() && matches!(outside, Outside::Nan | Outside::Zero) {
        scale = Some(d.splat(rows, 1.0)?);
    }
    if let Some(s) = scale {
        let s = d.inside_only(s, labels, n, outside)?;
        let s = d.over_row(s, &wide)?;
        dx = d.op(Multiply, &[s, dx])?;
    }
    if let Some(each) = each {
        let all = d.scaled(softmax, n as f64)?;
        let rest = d.op(Subtract, &[all, one])?;
        let each = d.over_row(each, &wide)?;
        let rest = d.op(Multiply, &[each, rest])?;
        dx = d.op(Add, &[dx, rest])?;
    }
    let dx = d.convert(dx, x.dtype)?;
    Ok(d.finish(vec![dx]))
}
