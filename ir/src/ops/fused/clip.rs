//! Clipping by the global norm.

use super::Number;
use crate::attr::{AttrMap, AttrReader, word};
use crate::error::Result;

/// What a program makes of the norm `n` of all gradients, to scale each of them by `min(1, max/(n + eps))`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ClipForm {
    /// Whether `n < max`; gradients are selected, whole or divided by `n`.
    Within,
    /// The factor as a minimum: not a number where `n` is none.
    Minimum,
    /// The factor where it is below 1, otherwise 1, also where `n` is no number.
    Below,
}

/// The numbers of a clipping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Clip {
    /// What is made of the norm.
    pub form: ClipForm,
    /// Largest norm that is left as it is.
    pub max: Number,
    /// Added to the norm before it divides.
    pub eps: Number,
}

impl ClipForm {
    fn name(self) -> &'static str {
        match self {
            ClipForm::Within => "within",
            ClipForm::Minimum => "minimum",
            ClipForm::Below => "below",
        }
    }
}

impl Clip {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        m.insert("form", word(self.form.name()));
        m.insert("max", self.max.attr());
        m.insert("eps", self.eps.attr());
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Clip> {
        let all = [ClipForm::Within, ClipForm::Minimum, ClipForm::Below];
        Ok(Clip {
            form: a.word_as("form", |w| all.into_iter().find(|f| f.name() == w))?,
            max: Number::read(a, "max")?,
            eps: Number::read(a, "eps")?,
        })
    }
}
