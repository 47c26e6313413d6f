//! The scores of an attention in plain ops, and the gradient through the steps that lead to them.

use super::{Definition, EXCHANGED};
use msc_ir::ops::attention::{AttentionForm, AttentionLayout, ScoreStep};
use msc_ir::ops::binary::BinaryKind::{Add, And, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::Tanh;
use msc_ir::{DType, IrError, Monoid, Result, Shape, TensorType, ValueId};

/// Sizes of an attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    /// Batch.
    pub(super) b: usize,
    /// Query heads.
    pub(super) h: usize,
    /// Heads of keys and values.
    pub(super) k: usize,
    /// Queries.
    pub(super) s: usize,
    /// Keys.
    pub(super) t: usize,
}

impl Sizes {
    /// Query heads for each head of keys.
    pub(super) fn group(self) -> usize {
        self.h / self.k
    }

    pub(super) fn scores(self) -> Shape {
        [self.b, self.h, self.s, self.t].into_iter().collect()
    }

    /// Which operand is the sink.
    pub(super) fn sink(form: &AttentionForm) -> Option<usize> {
        form.sink.then(|| 3 + form.steps.iter().filter(|s| s.takes_operand()).count())
    }

    pub(super) fn check(
        op: &str,
        form: &AttentionForm,
        types: &[TensorType],
        operands: usize,
    ) -> Result<Sizes> {
        let wrong = |m: String| Err(IrError::ty(op, m));
        if types.len() != operands {
            return wrong(format!("takes {operands} operands, has {}", types.len()));
        }
        let all = &types[..3];
        if !all.iter().all(|t| t.rank() == 4 && t.dtype.is_float() && t.elements() > 0) {
            return wrong(format!("queries {}, keys {} and values {} do not fit", all[0], all[1], all[2]));
        }
        let heads_first = |t: &TensorType| match form.layout {
            AttentionLayout::Bnsd => t.clone(),
            AttentionLayout::Bsnd => t.with_shape(EXCHANGED.iter().map(|&d| t.shape[d])),
        };
        let [q, k, v] = [0, 1, 2].map(|i| heads_first(&all[i]));
        let fits = q.shape[0] == k.shape[0]
            && k.shape[..3] == v.shape[..3]
            && q.shape[3] == k.shape[3]
            && q.shape[1] % k.shape[1] == 0
            && q.dtype == k.dtype;
        if !fits {
            return wrong(format!("queries {}, keys {} and values {} do not fit", all[0], all[1], all[2]));
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
pub(super) struct Scores {
    pub(super) sizes: Sizes,
    pub(super) value: ValueId,
    /// For each step: the type before it, and a value.
    pub(super) trace: Vec<(TensorType, Option<ValueId>)>,
}

impl Definition<'_> {
    pub(super) fn reshaped(&mut self, v: ValueId, shape: impl IntoIterator<Item = usize>) -> Result<ValueId> {
        let shape: Shape = shape.into_iter().collect();
        if self.ty(v).shape == shape { Ok(v) } else { self.op(Reshape { shape }, &[v]) }
    }

    /// `[B,K,…] → [B,H,…]`: each head once for every query head of its group.
    pub(super) fn repeat(&mut self, v: ValueId, group: usize) -> Result<ValueId> {
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
    pub(super) fn dot(&mut self, l: ValueId, r: ValueId, contract: (&[usize], &[usize])) -> Result<ValueId> {
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
    pub(super) fn over_rows_of(
        &mut self,
        x: ValueId,
        y: ValueId,
        sizes: Sizes,
        repeated: bool,
    ) -> Result<ValueId> {
        self.heads(x, y, 3, sizes, repeated)
    }

    /// `x[B,H,S,T] · y[B,K,T,n] → [B,H,S,n]`.
    pub(super) fn over_keys(
        &mut self,
        x: ValueId,
        y: ValueId,
        sizes: Sizes,
        repeated: bool,
    ) -> Result<ValueId> {
        self.heads(x, y, 2, sizes, repeated)
    }

    pub(super) fn heads(
        &mut self,
        x: ValueId,
        y: ValueId,
        dim: usize,
        sizes: Sizes,
        repeated: bool,
    ) -> Result<ValueId> {
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
    pub(super) fn over_queries(
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
    pub(super) fn band(&mut self, shape: &Shape, lo: Option<i64>, hi: Option<i64>) -> Result<ValueId> {
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
    pub(super) fn spread(&mut self, v: ValueId, shape: &Shape) -> Result<ValueId> {
        let ty = self.ty(v);
        if ty.shape == *shape {
            return Ok(v);
        }
        let dims: Shape = (0..4).filter(|&d| ty.shape[d] != 1).collect();
        let v = self.reshaped(v, dims.iter().map(|&d| ty.shape[d]))?;
        self.op(BroadcastInDim { shape: shape.clone(), dims }, &[v])
    }

    pub(super) fn scores(
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
    pub(super) fn factors(
        &mut self,
        form: &AttentionForm,
        q: ValueId,
        k: ValueId,
    ) -> Result<(ValueId, ValueId)> {
        match form.wide {
            true => Ok((self.convert(q, DType::F32)?, self.convert(k, DType::F32)?)),
            false => Ok((q, k)),
        }
    }

    /// The gradient of the products from that of the scores.
    pub(super) fn through_scores(
        &mut self,
        form: &AttentionForm,
        scores: &Scores,
        ds: ValueId,
    ) -> Result<ValueId> {
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
}
