//! Attributes of operations that look something up by an index: embedding and cross-entropy.

use super::Scalar;
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::error::Result;

/// What an index outside `0..V` stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Outside {
    /// The row's result is NaN.
    Nan,
    /// The row's result is zero: an embedding of zeros, no loss, no gradient.
    Zero,
    /// Nothing is picked, and zero stands in its place: an embedding of zeros; a loss, and a gradient, of the
    /// normalizer alone.
    Nothing,
    /// The nearest index inside.
    Nearest,
}

impl Outside {
    /// All of them.
    pub const ALL: [Outside; 4] = [Outside::Nan, Outside::Zero, Outside::Nothing, Outside::Nearest];

    fn word(self) -> &'static str {
        match self {
            Outside::Nan => "nan",
            Outside::Zero => "zero",
            Outside::Nothing => "nothing",
            Outside::Nearest => "nearest",
        }
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Outside> {
        a.word_as("outside", |w| Outside::ALL.into_iter().find(|o| o.word() == w))
    }

    pub(super) fn attr(self, m: &mut AttrMap) {
        m.insert("outside", word(self.word()));
    }
}

/// How a gradient's rows are weighted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Weighting {
    /// All by 1.
    One,
    /// By an operand: each row is multiplied by its weight.
    Times,
    /// By an operand's reciprocal: each row is divided by its weight.
    Over,
}

impl Weighting {
    /// All of them.
    pub const ALL: [Weighting; 3] = [Weighting::One, Weighting::Times, Weighting::Over];

    fn word(self) -> &'static str {
        match self {
            Weighting::One => "one",
            Weighting::Times => "times",
            Weighting::Over => "over",
        }
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Weighting> {
        a.word_as("weight", |w| Weighting::ALL.into_iter().find(|x| x.word() == w))
    }

    pub(super) fn attr(self, m: &mut AttrMap) {
        m.insert("weight", word(self.word()));
    }
}

/// What the softmax's part of a cross-entropy's gradient is weighted by, where a function of the normalizer is added to
/// the loss ("z-loss": Chowdhery et al., "PaLM").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Normalizer {
    /// By what the label's part is.
    Same,
    /// By an operand too.
    Scaled,
    /// By an operand instead.
    Own,
}

impl Normalizer {
    /// All of them.
    pub const ALL: [Normalizer; 3] = [Normalizer::Same, Normalizer::Scaled, Normalizer::Own];

    fn word(self) -> &'static str {
        match self {
            Normalizer::Same => "same",
            Normalizer::Scaled => "scaled",
            Normalizer::Own => "own",
        }
    }

    /// Reads what [`Normalizer::attr`] writes.
    pub(super) fn read(a: &mut AttrReader) -> Result<Normalizer> {
        if !a.has("normalizer") {
            return Ok(Normalizer::Same);
        }
        a.word_as("normalizer", |w| Normalizer::ALL.into_iter().find(|n| n.word() == w))
    }

    pub(super) fn attr(self, m: &mut AttrMap) {
        if self != Normalizer::Same {
            m.insert("normalizer", word(self.word()));
        }
    }
}

/// What a cross-entropy counts beside the label: the losses against all `V` of them, `rest = V·lse − Σx` together
/// (label smoothing: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Smoothing {
    /// Nothing.
    None,
    /// A loss of both: `label·loss + each·rest`.
    Mixed {
        /// The label's own share, `1 − ε`.
        label: Scalar,
        /// The share of each label, `ε/V`.
        each: Scalar,
    },
    /// `rest` apart from the loss, with a weight of its own in the gradient.
    Apart,
}

impl Smoothing {
    /// Reads what [`Smoothing::attr`] writes.
    pub(super) fn read(a: &mut AttrReader) -> Result<Smoothing> {
        if a.has("each") {
            let mut number = |name| -> Result<Scalar> { Ok(Scalar::new(a.float(name)?)) };
            return Ok(Smoothing::Mixed { label: number("label")?, each: number("each")? });
        }
        Ok(if a.has("rest") && a.bool("rest")? { Smoothing::Apart } else { Smoothing::None })
    }

    pub(super) fn attr(self, m: &mut AttrMap) {
        match self {
            Smoothing::None => {}
            Smoothing::Mixed { label, each } => {
                m.insert("label", AttrValue::Float(label.get().to_bits()));
                m.insert("each", AttrValue::Float(each.get().to_bits()));
            }
            Smoothing::Apart => {
                m.insert("rest", AttrValue::Bool(true));
            }
        }
    }
}
