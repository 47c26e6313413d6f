//! `convolution`.

use super::window::Window;
use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, AttrValue, ints, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::{Shape, TensorType, strides};
use smallvec::SmallVec;

/// `convolution`: `lhs[batch, feature, spatial…], rhs[in, out, spatial…] → [batch, feature, spatial…]`, each in any
/// order of dimensions (StableHLO specification, "convolution"). Precision hints are not kept.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Convolution {
    /// Batch dimension of the left operand.
    pub lhs_batch: usize,
    /// Feature dimension of the left operand.
    pub lhs_feature: usize,
    /// Spatial dimensions of the left operand.
    pub lhs_spatial: Shape,
    /// Input feature dimension of the kernel.
    pub rhs_in: usize,
    /// Output feature dimension of the kernel.
    pub rhs_out: usize,
    /// Spatial dimensions of the kernel.
    pub rhs_spatial: Shape,
    /// Batch dimension of the result.
    pub out_batch: usize,
    /// Feature dimension of the result.
    pub out_feature: usize,
    /// Spatial dimensions of the result.
    pub out_spatial: Shape,
    /// Distance between neighbouring windows, per spatial dimension like all that follows.
    pub stride: Shape,
    /// Padding before.
    pub low: SmallVec<[i64; 4]>,
    /// Padding after.
    pub high: SmallVec<[i64; 4]>,
    /// Distance between neighbouring elements of the left operand.
    pub lhs_dilation: Shape,
    /// Distance between neighbouring elements of the kernel.
    pub rhs_dilation: Shape,
    /// Whether the kernel runs backwards.
    pub reversed: SmallVec<[bool; 4]>,
    /// Groups of features.
    pub feature_groups: usize,
    /// Groups of the batch.
    pub batch_groups: usize,
    /// Element type of the result.
    pub dtype: DType,
}

impl Convolution {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Convolution>> {
        if name != "convolution" {
            return Ok(None);
        }
        Ok(Some(Convolution {
            lhs_batch: a.index("lhs_batch")?,
            lhs_feature: a.index("lhs_feature")?,
            lhs_spatial: a.indices("lhs_spatial")?,
            rhs_in: a.index("rhs_in")?,
            rhs_out: a.index("rhs_out")?,
            rhs_spatial: a.indices("rhs_spatial")?,
            out_batch: a.index("out_batch")?,
            out_feature: a.index("out_feature")?,
            out_spatial: a.indices("out_spatial")?,
            stride: a.indices("stride")?,
            low: a.ints("low")?.into(),
            high: a.ints("high")?.into(),
            lhs_dilation: a.indices("lhs_dilation")?,
            rhs_dilation: a.indices("rhs_dilation")?,
            reversed: a.ints("reversed")?.iter().map(|&r| r != 0).collect(),
            feature_groups: a.index("feature_groups")?,
            batch_groups: a.index("batch_groups")?,
            dtype: a.word_as("dtype", DType::from_name)?,
        }))
    }

    /// The windows over the spatial dimensions of the left operand.
    fn window(&self, rhs: &[usize]) -> Window {
        Window {
            size: self.rhs_spatial.iter().map(|&d| rhs[d]).collect(),
            stride: self.stride.clone(),
            base_dilation: self.lhs_dilation.clone(),
            dilation: self.rhs_dilation.clone(),
            low: self.low.clone(),
            high: self.high.clone(),
        }
    }

    /// Whether spatial dimension `s` is a plain copy: a kernel of one element, stride 1, nothing around.
    fn passes(&self, s: usize, rhs: &TensorType) -> bool {
        rhs.shape[self.rhs_spatial[s]] == 1
            && self.stride[s] == 1
            && self.lhs_dilation[s] == 1
            && self.low[s] == 0
            && self.high[s] == 0
    }
}

/// Strides of the dimensions `dims` of a shape.
fn steps(shape: &[usize], dims: &[usize]) -> Shape {
    let st = strides(shape);
    dims.iter().map(|&d| st[d]).collect()
}

fn dot(ix: &[usize], step: &[usize]) -> usize {
    ix.iter().zip(step).map(|(i, s)| i * s).sum()
}

impl Operation for Convolution {
    fn name(&self) -> &'static str {
        "convolution"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        let int = |i: usize| AttrValue::Int(i as i64);
        AttrMap::from([
            ("lhs_batch", int(self.lhs_batch)),
            ("lhs_feature", int(self.lhs_feature)),
            ("lhs_spatial", ints(&self.lhs_spatial)),
            ("rhs_in", int(self.rhs_in)),
            ("rhs_out", int(self.rhs_out)),
            ("rhs_spatial", ints(&self.rhs_spatial)),
            ("out_batch", int(self.out_batch)),
            ("out_feature", int(self.out_feature)),
            ("out_spatial", ints(&self.out_spatial)),
            ("stride", ints(&self.stride)),
            ("low", AttrValue::Ints(self.low.to_vec())),
            ("high", AttrValue::Ints(self.high.to_vec())),
            ("lhs_dilation", ints(&self.lhs_dilation)),
            ("rhs_dilation", ints(&self.rhs_dilation)),
            ("reversed", AttrValue::Ints(self.reversed.iter().map(|&r| i64::from(r)).collect())),
            ("feature_groups", int(self.feature_groups)),
            ("batch_groups", int(self.batch_groups)),
            ("dtype", word(self.dtype.name())),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 2)?;
        let (l, r) = (operands[0], operands[1]);
        let all = |a: usize, b: usize, s: &Shape| [&[a, b], &s[..]].concat();
        for (attr, dims, rank) in [
            ("lhs_spatial", all(self.lhs_batch, self.lhs_feature, &self.lhs_spatial), l.rank()),
            ("rhs_spatial", all(self.rhs_in, self.rhs_out, &self.rhs_spatial), r.rank()),
            ("out_spatial", all(self.out_batch, self.out_feature, &self.out_spatial), l.rank()),
        ] {
            expect_dims(self.name(), attr, &dims, rank)?;
            if dims.len() != rank || rank != l.rank() {
                return Err(IrError::attr(self.name(), attr, format!("{dims:?} for {l} and {r}")));
            }
        }
        if self.reversed.len() != self.lhs_spatial.len() {
            return Err(IrError::attr(self.name(), "reversed", "does not name every spatial dimension"));
        }
        let (g, b) = (self.feature_groups, self.batch_groups);
        let (features, batch, out) =
            (l.shape[self.lhs_feature], l.shape[self.lhs_batch], r.shape[self.rhs_out]);
        let groups_fit = g > 0
            && b > 0
            && (g == 1 || b == 1)
            && features.is_multiple_of(g)
            && r.shape[self.rhs_in] == features / g
            && batch.is_multiple_of(b)
            && out.is_multiple_of(g)
            && out.is_multiple_of(b);
        if !groups_fit {
            return Err(IrError::attr(
                self.name(),
                "feature_groups",
                format!("{l} and {r} do not fit {g} feature and {b} batch groups"),
            ));
        }
        let image: Shape = self.lhs_spatial.iter().map(|&d| l.shape[d]).collect();
        let count = self.window(&r.shape).count(self.name(), &image)?;
        let mut shape: Shape = SmallVec::from_elem(0, l.rank());
        shape[self.out_batch] = batch / b;
        shape[self.out_feature] = out;
        for (&d, n) in self.out_spatial.iter().zip(count) {
            shape[d] = n;
        }
        let ty = TensorType { dtype: self.dtype, shape };
        if ty.checked_bytes().is_none() {
            return Err(IrError::ty(self.name(), format!("result {ty} does not fit in memory")));
        }
        Ok(vec![ty])
    }

    /// Sums are accumulated in f64 and rounded once, so the result does not depend on an order.
    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (l, r) = (inputs[0], inputs[1]);
        let (x, w) = (l.data.to_f64s(), r.data.to_f64s());
        let window = self.window(&r.shape);
        let image: Shape = self.lhs_spatial.iter().map(|&d| l.shape[d]).collect();
        let (lst, rst) = (strides(&l.shape), strides(&r.shape));
        let (lsp, rsp) = (steps(&l.shape, &self.lhs_spatial), steps(&r.shape, &self.rhs_spatial));
        let shape = &results[0].shape;
        let (batch, features) = (shape[self.out_batch], shape[self.out_feature]);
        let kernel_in = r.shape[self.rhs_in];
        let count: Shape = self.out_spatial.iter().map(|&d| shape[d]).collect();
        let (ost, osp) = (strides(shape), steps(shape, &self.out_spatial));
        let mut out = vec![0f64; results[0].elements()];
        for within in IndexSpace::new(&window.size) {
            let tap: Shape = (0..within.len())
                .map(|d| if self.reversed[d] { window.size[d] - 1 - within[d] } else { within[d] })
                .collect();
            for at in IndexSpace::new(&count) {
                let Some(from) = window.element(&image, &at, &within) else { continue };
                let (from, tap, to) = (dot(&from, &lsp), dot(&tap, &rsp), dot(&at, &osp));
                for f in 0..features {
                    let group = f / (features / self.feature_groups).max(1);
                    let batch_group = f / (features / self.batch_groups).max(1);
                    for b in 0..batch {
                        let row = from + lst[self.lhs_batch] * (batch_group * batch + b);
                        let mut sum = 0.0;
                        for c in 0..kernel_in {
                            sum += x[row + lst[self.lhs_feature] * (group * kernel_in + c)]
                                * w[tap + rst[self.rhs_in] * c + rst[self.rhs_out] * f];
                        }
                        out[to + ost[self.out_batch] * b + ost[self.out_feature] * f] += sum;
                    }
                }
            }
        }
        Ok(vec![Tensor::new(shape.iter().copied(), Storage::from_f64s(results[0].dtype, &out))])
    }

    /// Without groups batch and output features pass and input features are summed; spatial dimensions pass where
    /// the window is one element.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let (l, rhs) = (operands[0], operands[1]);
        let mut r = FactorRule::empty(operands, results);
        let whole = |r: &mut FactorRule, side: usize, d: usize, n: usize| {
            let f = r.factor(n, FactorKind::Whole);
            if side < 2 { r.on_operand(side, d, f) } else { r.on_result(0, d, f) }
        };
        let plain = self.feature_groups == 1 && self.batch_groups == 1;
        if plain {
            let b = r.factor(l.shape[self.lhs_batch], FactorKind::Pass);
            r.on_operand(0, self.lhs_batch, b);
            r.on_result(0, self.out_batch, b);
            let o = r.factor(rhs.shape[self.rhs_out], FactorKind::Pass);
            r.on_operand(1, self.rhs_out, o);
            r.on_result(0, self.out_feature, o);
            let c = r.factor(rhs.shape[self.rhs_in], FactorKind::Reduce(Monoid::Sum));
            r.on_operand(0, self.lhs_feature, c);
            r.on_operand(1, self.rhs_in, c);
        } else {
            for (side, d, n) in [
                (0, self.lhs_batch, l.shape[self.lhs_batch]),
                (0, self.lhs_feature, l.shape[self.lhs_feature]),
                (1, self.rhs_in, rhs.shape[self.rhs_in]),
                (1, self.rhs_out, rhs.shape[self.rhs_out]),
                (2, self.out_batch, results[0].shape[self.out_batch]),
                (2, self.out_feature, results[0].shape[self.out_feature]),
            ] {
                whole(&mut r, side, d, n);
            }
        }
        for s in 0..self.lhs_spatial.len() {
            let (ld, rd, od) = (self.lhs_spatial[s], self.rhs_spatial[s], self.out_spatial[s]);
            if self.passes(s, rhs) {
                let f = r.factor(l.shape[ld], FactorKind::Pass);
                r.on_operand(0, ld, f);
                r.on_result(0, od, f);
            } else {
                whole(&mut r, 0, ld, l.shape[ld]);
                whole(&mut r, 1, rd, rhs.shape[rd]);
                whole(&mut r, 2, od, results[0].shape[od]);
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }
}
