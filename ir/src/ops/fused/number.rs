//! Numbers of named operations: attributes where they are known, otherwise operands.

use super::Scalar;
use crate::attr::{AttrReader, AttrValue, word};
use crate::error::Result;

/// A number of a named operation. Programs that take their literals as arguments (traces of lazy tensors) have it as a
/// scalar; what it is shows in a run only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Number {
    /// Known: an attribute.
    Known(Scalar),
    /// An operand `[]`, of the type that the operation computes in. Such operands follow all others, in the order in
    /// which the operation lists its numbers.
    Operand,
}

/// What stands for the value of an operand in the text form.
const OPERAND: &str = "operand";

impl Number {
    /// A known number.
    pub fn known(x: f64) -> Number {
        Number::Known(Scalar::new(x))
    }

    /// The number, where it is known.
    pub fn value(self) -> Option<f64> {
        match self {
            Number::Known(s) => Some(s.get()),
            Number::Operand => None,
        }
    }

    /// Whether it is an operand.
    pub fn is_operand(self) -> bool {
        self == Number::Operand
    }

    pub(super) fn attr(self) -> AttrValue {
        match self {
            Number::Known(s) => AttrValue::Float(s.get().to_bits()),
            Number::Operand => word(OPERAND),
        }
    }

    pub(super) fn read(a: &mut AttrReader, key: &str) -> Result<Number> {
        if a.is_word(key) {
            return a.word_as(key, |w| (w == OPERAND).then_some(Number::Operand));
        }
        Ok(Number::known(a.float(key)?))
    }
}
