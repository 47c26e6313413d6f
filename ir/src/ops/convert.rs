//! Conversion between element types.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;

/// Conversions that keep the shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Convert {
    /// `convert`: by value; floats round to nearest even (StableHLO specification, "convert").
    Value(DType),
    /// `bitcast_convert` between types of one width: the bits stay.
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
        if let Convert::Bits(d) = self
            && d.size_bytes() != operands[0].dtype.size_bytes()
        {
            return Err(IrError::unsupported(
                self.name(),
                format!(
                    "from {} to {d}: widths differ; reshape the bits in the model instead",
                    operands[0].dtype
                ),
            ));
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
                let spelled = Tensor { shape: inputs[0].shape.clone(), data };
                Ok(vec![spelled.converted(results[0].dtype)])
            }
        }
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        FactorRule::elementwise(operands, results)
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
