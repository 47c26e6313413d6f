//! `compare`.

use super::{expect_operands, expect_same};
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;
use std::cmp::Ordering;

/// Which comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// Equal.
    Eq,
    /// Not equal; true where a NaN is compared.
    Ne,
    /// Greater or equal.
    Ge,
    /// Greater.
    Gt,
    /// Less or equal.
    Le,
    /// Less.
    Lt,
}

impl Direction {
    /// Every direction.
    pub const ALL: [Direction; 6] =
        [Direction::Eq, Direction::Ne, Direction::Ge, Direction::Gt, Direction::Le, Direction::Lt];

    /// Name in the text form, StableHLO's.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Eq => "EQ",
            Direction::Ne => "NE",
            Direction::Ge => "GE",
            Direction::Gt => "GT",
            Direction::Le => "LE",
            Direction::Lt => "LT",
        }
    }

    /// The inverse of [`Direction::name`].
    pub fn from_name(name: &str) -> Option<Direction> {
        Direction::ALL.into_iter().find(|d| d.name() == name)
    }

    /// The direction that says the same of exchanged operands.
    pub fn swapped(self) -> Direction {
        match self {
            Direction::Ge => Direction::Le,
            Direction::Gt => Direction::Lt,
            Direction::Le => Direction::Ge,
            Direction::Lt => Direction::Gt,
            d => d,
        }
    }

    fn holds(self, o: Option<Ordering>) -> bool {
        match self {
            Direction::Eq => o == Some(Ordering::Equal),
            Direction::Ne => o != Some(Ordering::Equal),
            Direction::Ge => matches!(o, Some(Ordering::Greater | Ordering::Equal)),
            Direction::Gt => o == Some(Ordering::Greater),
            Direction::Le => matches!(o, Some(Ordering::Less | Ordering::Equal)),
            Direction::Lt => o == Some(Ordering::Less),
        }
    }
}

/// `compare`: `[…], […] → i1[…]` (StableHLO specification, "compare"). Integers compare by their own signedness.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Compare {
    /// Which comparison.
    pub direction: Direction,
    /// Floats in total order (−NaN < −∞ < … < −0 < +0 < … < NaN) rather than IEEE's partial one.
    pub total_order: bool,
}

impl Compare {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Compare>> {
        if name != "compare" {
            return Ok(None);
        }
        let total_order = a.has("total_order") && a.bool("total_order")?;
        Ok(Some(Compare { direction: a.word_as("direction", Direction::from_name)?, total_order }))
    }
}

impl Operation for Compare {
    fn name(&self) -> &'static str {
        "compare"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        let mut m = AttrMap::from([("direction", word(self.direction.name()))]);
        if self.total_order {
            m.insert("total_order", AttrValue::Bool(true));
        }
        m
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 2)?;
        expect_same(self.name(), operands[0], operands[1])?;
        Ok(vec![operands[0].with_dtype(DType::I1)])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let d = self.direction;
        macro_rules! zip {
            ($x:ident, $y:ident, $cmp:expr) => {
                $x.iter().zip($y).map(|(p, q)| u8::from(d.holds($cmp(p, q)))).collect()
            };
        }
        macro_rules! floats {
            ($x:ident, $y:ident, $t:ty) => {
                if self.total_order {
                    zip!($x, $y, |p: &$t, q: &$t| Some(p.total_cmp(q)))
                } else {
                    zip!($x, $y, |p: &$t, q: &$t| p.partial_cmp(q))
                }
            };
        }
        let out: Vec<u8> = match (&inputs[0].data, &inputs[1].data) {
            (Storage::F32(x), Storage::F32(y)) => floats!(x, y, f32),
            (Storage::F64(x), Storage::F64(y)) => floats!(x, y, f64),
            (Storage::F16(x), Storage::F16(y)) => floats!(x, y, half::f16),
            (Storage::BF16(x), Storage::BF16(y)) => floats!(x, y, half::bf16),
            (Storage::I1(x), Storage::I1(y)) | (Storage::U8(x), Storage::U8(y)) => {
                zip!(x, y, PartialOrd::partial_cmp)
            }
            (Storage::I8(x), Storage::I8(y)) => zip!(x, y, PartialOrd::partial_cmp),
            (Storage::I16(x), Storage::I16(y)) => zip!(x, y, PartialOrd::partial_cmp),
            (Storage::I32(x), Storage::I32(y)) => zip!(x, y, PartialOrd::partial_cmp),
            (Storage::I64(x), Storage::I64(y)) => zip!(x, y, PartialOrd::partial_cmp),
            (Storage::U16(x), Storage::U16(y)) => zip!(x, y, PartialOrd::partial_cmp),
            (Storage::U32(x), Storage::U32(y)) => zip!(x, y, PartialOrd::partial_cmp),
            (Storage::U64(x), Storage::U64(y)) => zip!(x, y, PartialOrd::partial_cmp),
            _ => return Err(IrError::ty(self.name(), "operands of different element types")),
        };
        Ok(vec![Tensor { shape: inputs[0].shape.clone(), data: Storage::I1(out) }])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        FactorRule::elementwise(operands, results)
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
