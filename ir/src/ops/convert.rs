//! Conversion between element types.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;

/// Conversions between element types.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Convert {
    /// `convert`: by value; floats round to nearest even (StableHLO specification, "convert").
    Value(DType),
    /// `bitcast_convert`: the bits stay (StableHLO specification, "bitcast_convert"). To a type `k` times narrower the
    /// result has a last dimension of `k` more, the least significant part first; to a type `k` times wider the
    /// operand's last dimension is `k` and goes.
    Bits(DType),
}

impl Convert {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Convert>> {
        Ok(match name {
            "convert" => Some(Convert::Value(a.word_as("dtype", DType::from_name)?)),
            "bitcast_convert" => Some(Convert::Bits(a.word_as("dtype", DType::from_name)?)),
            _ => None,
        })
    }

    fn target(self) -> DType {
        match self {
            Convert::Value(d) | Convert::Bits(d) => d,
        }
    }

    /// The type of `from`'s bits as elements of `to`.
    fn respelled(&self, from: &TensorType, to: DType) -> Result<TensorType> {
        let (old, new) = (from.dtype.size_bytes(), to.size_bytes());
        let refuse = |why: &str| Err(IrError::ty(self.name(), format!("from {from} to {to}: {why}")));
        if (from.dtype == DType::I1) != (to == DType::I1) {
            return refuse("an i1 has one bit");
        }
        match (old > new, old < new) {
            (true, _) => Ok(TensorType::new(to, from.shape.iter().copied().chain([old / new]))),
            (_, true) if from.shape.last() != Some(&(new / old)) => {
                refuse(&format!("the last dimension should be {}, the parts of one element", new / old))
            }
            (_, true) => Ok(TensorType::new(to, from.shape[..from.rank() - 1].iter().copied())),
            _ => Ok(from.with_dtype(to)),
        }
    }
}

impl Operation for Convert {
    fn name(&self) -> &'static str {
        match self {
            Convert::Value(_) => "convert",
            Convert::Bits(_) => "bitcast_convert",
        }
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([("dtype", word(self.target().name()))])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        if let Convert::Bits(d) = self {
            return Ok(vec![self.respelled(operands[0], *d)?]);
        }
        Ok(vec![operands[0].with_dtype(self.target())])
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        match self {
            Convert::Value(_) => Ok(vec![inputs[0].converted(results[0].dtype)]),
            Convert::Bits(d) => {
                if cx.is_wide() && inputs[0].dtype().is_float() {
                    return Err(IrError::unsupported(
                        self.name(),
                        "floats have no bits of their own type in wide mode",
                    ));
                }
                // The float that an integer's bits spell is exact in any wider type.
                let data = Storage::from_bytes(*d, inputs[0].data.bytes());
                // Of one width, any number of elements may stand for one: graphs of scalars are run on many at once.
                let shape = match d.size_bytes() == inputs[0].dtype().size_bytes() {
                    true => inputs[0].shape.clone(),
                    false => results[0].shape.clone(),
                };
                if data.len() != shape.iter().product::<usize>() {
                    return Err(IrError::ty(
                        self.name(),
                        format!("{} elements are no {}", data.len(), results[0]),
                    ));
                }
                Ok(vec![Tensor { shape, data }.converted(results[0].dtype)])
            }
        }
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let shared = operands[0].rank().min(results[0].rank());
        for d in 0..shared {
            let f = r.factor(results[0].shape[d], FactorKind::Pass);
            r.on_operand(0, d, f);
            r.on_result(0, d, f);
        }
        // The parts of one element stay together.
        for d in shared..operands[0].rank() {
            let f = r.factor(operands[0].shape[d], FactorKind::Whole);
            r.on_operand(0, d, f);
        }
        for d in shared..results[0].rank() {
            let f = r.factor(results[0].shape[d], FactorKind::Whole);
            r.on_result(0, d, f);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
