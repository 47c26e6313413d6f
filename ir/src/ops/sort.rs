//! `sort`.

use super::expect_dims;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::interp::lift::run_lifted;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::tensor::{IndexSpace, Tensor};
use crate::types::{TensorType, strides};
use smallvec::{SmallVec, smallvec};

/// `sort`: `T₁[…], …, Tₖ[…] → the same`, along `dim`, all operands moved alike (StableHLO specification, "sort").
/// The comparator takes the two elements of each operand in turn and says whether the first of them comes before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sort {
    /// The sorted dimension.
    pub dim: usize,
    /// Elements of which neither comes before the other keep their order. The interpreter always keeps it.
    pub stable: bool,
    /// `T₁[], T₁[], …, Tₖ[], Tₖ[] → i1[]`.
    pub comparator: GraphId,
}

impl Sort {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<Sort>> {
        if name != "sort" {
            return Ok(None);
        }
        let comparator = a.known_graph("comparator", module)?;
        Ok(Some(Sort { dim: a.index("dim")?, stable: a.bool("stable")?, comparator }))
    }

    /// For pairs of positions, whether the second comes before the first.
    fn second_first(
        &self,
        cx: &EvalCx<'_>,
        inputs: &[&Tensor],
        pairs: &[(usize, usize)],
    ) -> Result<Vec<bool>> {
        let before = |x: fn(&(usize, usize)) -> usize, y: fn(&(usize, usize)) -> usize| -> Result<Tensor> {
            let column = |t: &Tensor, k: fn(&(usize, usize)) -> usize| {
                Tensor::new([pairs.len()], t.data.pick(pairs.iter().map(k)))
            };
            let args: Vec<Tensor> = inputs.iter().flat_map(|t| [column(t, x), column(t, y)]).collect();
            let refs: Vec<&Tensor> = args.iter().collect();
            let mut out = run_lifted(cx, self.comparator, &refs, pairs.len())?;
            out.pop().ok_or_else(|| IrError::ty(self.name(), "the comparator gives nothing"))
        };
        let (forth, back) = (before(|p| p.0, |p| p.1)?, before(|p| p.1, |p| p.0)?);
        Ok(pairs
            .iter()
            .enumerate()
            .map(|(i, (p, q))| {
                back.data.get_i64(i) != 0 && forth.data.get_i64(i) == 0
                    || (back.data.get_i64(i) == forth.data.get_i64(i) && q < p)
            })
            .collect())
    }
}

impl Operation for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        AttrMap::from([
            ("dim", AttrValue::Int(self.dim as i64)),
            ("stable", AttrValue::Bool(self.stable)),
            ("comparator", AttrValue::Graph(module.graph(self.comparator).name.clone())),
        ])
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        let Some(first) = operands.first() else { return Err(IrError::ty(self.name(), "has no operand")) };
        expect_dims(self.name(), "dim", &[self.dim], first.rank())?;
        if let Some(t) = operands.iter().find(|t| t.shape != first.shape) {
            return Err(IrError::ty(self.name(), format!("{t} and {first} differ in shape")));
        }
        let g = module
            .try_graph(self.comparator)
            .ok_or_else(|| IrError::attr(self.name(), "comparator", "is not a graph of the module"))?;
        let want: Vec<TensorType> = operands
            .iter()
            .flat_map(|t| [TensorType::scalar(t.dtype), TensorType::scalar(t.dtype)])
            .collect();
        if g.param_types() != want || g.result_types() != [TensorType::scalar(DType::I1)] {
            return Err(IrError::ty(
                self.name(),
                format!(
                    "the comparator is {:?} → {:?}, not {want:?} → i1[]",
                    g.param_types(),
                    g.result_types()
                ),
            ));
        }
        Ok(operands.iter().map(|&t| t.clone()).collect())
    }

    /// Batcher's odd–even merge sort, a fixed network, so that one round compares all pairs of all rows at once
    /// (Knuth, The Art of Computer Programming 3, 5.2.2, Algorithm M).
    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let shape = &inputs[0].shape;
        let (n, step) = (shape[self.dim], strides(shape)[self.dim]);
        let mut outer = shape.clone();
        outer[self.dim] = 1;
        let st = strides(shape);
        let rows: Vec<usize> =
            IndexSpace::new(&outer).map(|ix| ix.iter().zip(&st).map(|(i, s)| i * s).sum()).collect();
        // `at[e]`: which element of the operands stands at place `e` now.
        let mut at: Vec<usize> = (0..inputs[0].len()).collect();
        let top = n.next_power_of_two() / 2;
        let mut p = top;
        while p > 0 {
            let (mut q, mut r, mut d) = (top, 0, p);
            loop {
                let mut places = Vec::new();
                for i in (0..n.saturating_sub(d)).filter(|i| i & p == r) {
                    places.extend(rows.iter().map(|row| (row + i * step, row + (i + d) * step)));
                }
                let pairs: Vec<(usize, usize)> = places.iter().map(|&(i, j)| (at[i], at[j])).collect();
                for (swap, (i, j)) in self.second_first(cx, inputs, &pairs)?.into_iter().zip(places) {
                    if swap {
                        at.swap(i, j);
                    }
                }
                if q == p {
                    break;
                }
                (d, q, r) = (q - p, q / 2, p);
            }
            p /= 2;
        }
        Ok(inputs
            .iter()
            .map(|t| Tensor::new(shape.iter().copied(), t.data.pick(at.iter().copied())))
            .collect())
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (d, &n) in operands[0].shape.iter().enumerate() {
            let f = r.factor(n, if d == self.dim { FactorKind::Whole } else { FactorKind::Pass });
            for i in 0..operands.len() {
                r.on_operand(i, d, f);
                r.on_result(i, d, f);
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        smallvec![self.comparator]
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        smallvec![&mut self.comparator]
    }
}
