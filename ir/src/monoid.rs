//! Monoids: what a reduction combines with.

use crate::dtype::DType;
use std::fmt;

/// A commutative monoid over elements. Reducers are recognised as one of these at import; a factor that is
/// reduced carries its monoid, and a factor reduced over ranks becomes the collective of the same monoid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Monoid {
    /// Addition.
    Sum,
    /// Multiplication.
    Product,
    /// Maximum; NaN wins.
    Max,
    /// Minimum; NaN wins.
    Min,
    /// Logical or bitwise and.
    And,
    /// Logical or bitwise or.
    Or,
}

impl Monoid {
    /// Every monoid.
    pub const ALL: [Monoid; 6] =
        [Monoid::Sum, Monoid::Product, Monoid::Max, Monoid::Min, Monoid::And, Monoid::Or];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Monoid::Sum => "sum",
            Monoid::Product => "product",
            Monoid::Max => "max",
            Monoid::Min => "min",
            Monoid::And => "and",
            Monoid::Or => "or",
        }
    }

    /// The inverse of [`Monoid::name`].
    pub fn from_name(name: &str) -> Option<Monoid> {
        Monoid::ALL.into_iter().find(|m| m.name() == name)
    }

    /// Whether the monoid is defined on an element type: sum, product, max and min on every type (on `i1` sum
    /// and max are `or`, product and min are `and`), and/or on integers and booleans.
    pub fn supports(self, dtype: DType) -> bool {
        match self {
            Monoid::And | Monoid::Or => !dtype.is_float(),
            _ => true,
        }
    }

    /// The neutral element as f64; integer maxima and minima saturate when converted to `dtype`.
    pub fn identity(self, dtype: DType) -> f64 {
        match self {
            Monoid::Sum | Monoid::Or => 0.0,
            Monoid::Product => 1.0,
            Monoid::And => {
                if dtype == DType::I1 || dtype.is_unsigned() {
                    f64::INFINITY
                } else {
                    -1.0
                }
            }
            Monoid::Max => f64::NEG_INFINITY,
            Monoid::Min => f64::INFINITY,
        }
    }
}

impl fmt::Display for Monoid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
