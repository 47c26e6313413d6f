//! `iota`.

use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, AttrValue, ints, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::EvalCx;
use crate::location::LocId;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::ops::binary::BinaryKind;
use crate::ops::broadcast::BroadcastInDim;
use crate::ops::convert::Convert;
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::TensorType;
use smallvec::SmallVec;

/// `iota`: `→ T[…]`, each element its index along `dim` (StableHLO specification, "iota").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Iota {
    /// The result's type.
    pub ty: TensorType,
    /// The counted dimension.
    pub dim: usize,
}

impl Iota {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Iota>> {
        if name != "iota" {
            return Ok(None);
        }
        let dtype = a.word_as("dtype", DType::from_name)?;
        let ty = TensorType { dtype, shape: a.indices("shape")? };
        Ok(Some(Iota { ty, dim: a.index("dim")? }))
    }
}

impl Operation for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("dim", AttrValue::Int(self.dim as i64)),
            ("dtype", word(self.ty.dtype.name())),
            ("shape", ints(&self.ty.shape)),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 0)?;
        expect_dims(self.name(), "dim", &[self.dim], self.ty.rank())?;
        if self.ty.dtype == DType::I1 {
            return Err(IrError::ty(self.name(), "is not defined on i1"));
        }
        Ok(vec![self.ty.clone()])
    }

    fn eval(&self, _: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let v: Vec<f64> = IndexSpace::new(&self.ty.shape).map(|ix| ix[self.dim] as f64).collect();
        Ok(vec![Tensor::new(self.ty.shape.iter().copied(), Storage::from_f64s(results[0].dtype, &v))])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (d, &n) in results[0].shape.iter().enumerate() {
            let f = r.factor(n, if d == self.dim { FactorKind::Offset } else { FactorKind::Pass });
            r.on_result(0, d, f);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], results: &[TensorType]) -> Result<Op> {
        Ok(Iota { ty: results[0].clone(), dim: self.dim }.into())
    }

    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        _: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let local = graph.add(module, Iota { ty: results[0].clone(), dim: self.dim }, &[], loc)?;
        // Factor `dim` is the only one with a start.
        let Some(start) = starts.get(&self.dim) else { return Ok(local) };
        let start = graph.add1(module, Convert::Value(self.ty.dtype), &[start.value], loc)?;
        let start = graph.add1(module, BroadcastInDim::scalar(&results[0].shape), &[start], loc)?;
        graph.add(module, BinaryKind::Add, &[local[0], start], loc)
    }
}
