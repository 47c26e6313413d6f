//! `batch_norm_training`, `batch_norm_inference` and `batch_norm_grad`.

use super::indexing::scalar;
use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::graph::{Graph, ValueId};
use crate::interp::{EvalCx, Mode, run};
use crate::location::LocId;
use crate::module::Module;
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::ops::binary::BinaryKind::{Add, Divide, Multiply, Subtract};
use crate::ops::broadcast::BroadcastInDim;
use crate::ops::fused::Scalar;
use crate::ops::reduce::Reduce;
use crate::ops::unary::UnaryKind::Rsqrt;
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType};
use smallvec::{SmallVec, smallvec};

/// Which of the three.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum BatchNormKind {
    /// `x[…], scale[F], offset[F] → y[…], mean[F], variance[F]`.
    Training,
    /// `x[…], scale[F], offset[F], mean[F], variance[F] → y[…]`.
    Inference,
    /// `x[…], scale[F], mean[F], variance[F], dy[…] → dx[…], dscale[F], doffset[F]`.
    Grad,
}

/// Normalisation of every feature over all other dimensions (StableHLO specification, ops of the same names).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BatchNorm {
    /// Which of the three.
    pub kind: BatchNormKind,
    /// Added to the variance.
    pub epsilon: Scalar,
    /// The feature dimension `F`.
    pub feature: usize,
}

/// Builds ops over the type of `x` at the end of a graph.
struct Builder<'a> {
    module: &'a mut Module,
    graph: &'a mut Graph,
    x: TensorType,
    feature: usize,
    loc: LocId,
}

impl Builder<'_> {
    fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId> {
        self.graph.add1(self.module, op, operands, self.loc)
    }

    fn number(&mut self, value: f64, shape: &[usize]) -> Result<ValueId> {
        let v = scalar(self.module, self.graph, self.x.dtype, value, self.loc)?;
        self.op(BroadcastInDim::scalar(shape), &[v])
    }

    /// A feature vector along every other dimension.
    fn spread(&mut self, v: ValueId) -> Result<ValueId> {
        let op = BroadcastInDim { shape: self.x.shape.clone(), dims: smallvec![self.feature] };
        self.op(op, &[v])
    }

    /// The sum over all dimensions but the feature's.
    fn sum(&mut self, v: ValueId) -> Result<ValueId> {
        let dims: Shape = (0..self.x.rank()).filter(|&d| d != self.feature).collect();
        self.op(Reduce { dims, monoid: Monoid::Sum }, &[v])
    }

    fn count(&mut self) -> Result<ValueId> {
        let f = self.x.shape[self.feature];
        let n = self.x.elements().checked_div(f).unwrap_or(0);
        self.number(n as f64, &[f])
    }

    fn mean(&mut self, v: ValueId) -> Result<ValueId> {
        let (sum, n) = (self.sum(v)?, self.count()?);
        self.op(Divide, &[sum, n])
    }

    /// `(x − mean) · (variance + ε)^-½`, and the second factor.
    fn normalised(
        &mut self,
        x: ValueId,
        mean: ValueId,
        var: ValueId,
        eps: f64,
    ) -> Result<(ValueId, ValueId)> {
        let mean = self.spread(mean)?;
        let centred = self.op(Subtract, &[x, mean])?;
        let eps = self.number(eps, &[self.x.shape[self.feature]])?;
        let inner = self.op(Add, &[var, eps])?;
        let rstd = self.op(Rsqrt, &[inner])?;
        let rstd = self.spread(rstd)?;
        Ok((self.op(Multiply, &[centred, rstd])?, rstd))
    }
}

impl BatchNorm {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<BatchNorm>> {
        let kind = match name {
            "batch_norm_training" => BatchNormKind::Training,
            "batch_norm_inference" => BatchNormKind::Inference,
            "batch_norm_grad" => BatchNormKind::Grad,
            _ => return Ok(None),
        };
        let epsilon = Scalar::new(a.float("epsilon")?);
        Ok(Some(BatchNorm { kind, epsilon, feature: a.index("feature")? }))
    }

    /// The op in plain ops at the end of `graph`; its results.
    ///
    /// # Errors
    /// Where the operands do not fit.
    pub fn expand(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        operands: &[ValueId],
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let x = graph.ty(operands[0]).clone();
        let mut b = Builder { module, graph, x, feature: self.feature, loc };
        let eps = self.epsilon.get();
        let v = operands;
        Ok(match self.kind {
            BatchNormKind::Training => {
                let mean = b.mean(v[0])?;
                let wide = b.spread(mean)?;
                let centred = b.op(Subtract, &[v[0], wide])?;
                let square = b.op(Multiply, &[centred, centred])?;
                let var = b.mean(square)?;
                let (xhat, _) = b.normalised(v[0], mean, var, eps)?;
                let (scale, offset) = (b.spread(v[1])?, b.spread(v[2])?);
                let scaled = b.op(Multiply, &[xhat, scale])?;
                smallvec![b.op(Add, &[scaled, offset])?, mean, var]
            }
            BatchNormKind::Inference => {
                let (xhat, _) = b.normalised(v[0], v[3], v[4], eps)?;
                let (scale, offset) = (b.spread(v[1])?, b.spread(v[2])?);
                let scaled = b.op(Multiply, &[xhat, scale])?;
                smallvec![b.op(Add, &[scaled, offset])?]
            }
            BatchNormKind::Grad => {
                let dy = v[4];
                let (xhat, rstd) = b.normalised(v[0], v[2], v[3], eps)?;
                let product = b.op(Multiply, &[dy, xhat])?;
                let (dscale, doffset) = (b.sum(product)?, b.sum(dy)?);
                // dx = scale·rstd·(dy − mean(dy) − x̂·mean(dy·x̂)).
                let (mean_dy, mean_product) = (b.mean(dy)?, b.mean(product)?);
                let (mean_dy, mean_product) = (b.spread(mean_dy)?, b.spread(mean_product)?);
                let along = b.op(Multiply, &[xhat, mean_product])?;
                let rest = b.op(Subtract, &[dy, mean_dy])?;
                let rest = b.op(Subtract, &[rest, along])?;
                let scale = b.spread(v[1])?;
                let factor = b.op(Multiply, &[scale, rstd])?;
                smallvec![b.op(Multiply, &[factor, rest])?, dscale, doffset]
            }
        })
    }
}

impl Operation for BatchNorm {
    fn name(&self) -> &'static str {
        match self.kind {
            BatchNormKind::Training => "batch_norm_training",
            BatchNormKind::Inference => "batch_norm_inference",
            BatchNormKind::Grad => "batch_norm_grad",
        }
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("epsilon", AttrValue::Float(self.epsilon.get().to_bits())),
            ("feature", AttrValue::Int(self.feature as i64)),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        let n = if self.kind == BatchNormKind::Training { 3 } else { 5 };
        expect_operands(self.name(), operands, n)?;
        let x = operands[0];
        expect_dims(self.name(), "feature", &[self.feature], x.rank())?;
        if !x.dtype.is_float() {
            return Err(IrError::ty(self.name(), format!("is not defined on {x}")));
        }
        let per_feature = x.with_shape([x.shape[self.feature]]);
        for (i, t) in operands.iter().enumerate().skip(1) {
            let want = if self.kind == BatchNormKind::Grad && i == 4 { x } else { &per_feature };
            if *t != want {
                return Err(IrError::ty(self.name(), format!("operand {i} is {t}, not {want}")));
            }
        }
        Ok(match self.kind {
            BatchNormKind::Inference => vec![x.clone()],
            _ => vec![x.clone(), per_feature.clone(), per_feature],
        })
    }

    /// By way of [`BatchNorm::expand`]; narrow floats are computed in f32.
    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let inner = match inputs[0].dtype() {
            DType::F16 | DType::BF16 => DType::F32,
            d => d,
        };
        let mut m = Module::new(self.name());
        let mut g = Graph::new(self.name());
        let args: Vec<Tensor> = inputs.iter().map(|t| t.converted(inner)).collect();
        let params: Vec<ValueId> = args.iter().map(|t| g.add_param(t.ty())).collect();
        let out = self.expand(&mut m, &mut g, &params, LocId::UNKNOWN)?;
        g.set_results(out.to_vec());
        let id = m.add_graph(g);
        let mode = if cx.is_wide() { Mode::Wide } else { Mode::Spec };
        let out = run(&m, id, &args, mode)?;
        Ok(out.iter().zip(results).map(|(t, ty)| t.converted(ty.dtype)).collect())
    }

    /// Features pass; the other dimensions pass in inference and are whole where statistics run over them.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (d, &n) in operands[0].shape.iter().enumerate() {
            let passes = d == self.feature || self.kind == BatchNormKind::Inference;
            let f = r.factor(n, if passes { FactorKind::Pass } else { FactorKind::Whole });
            let sides = operands.iter().copied().chain(results.iter());
            for (i, t) in sides.enumerate() {
                let at = if t.rank() == 1 && operands[0].rank() > 1 {
                    if d != self.feature {
                        continue;
                    }
                    0
                } else {
                    d
                };
                match i.checked_sub(operands.len()) {
                    None => r.on_operand(i, at, f),
                    Some(i) => r.on_result(i, at, f),
                }
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
