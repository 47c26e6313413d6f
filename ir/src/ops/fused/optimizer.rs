//! Optimizers' numbers.

use super::{Number, Scalar};
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::error::Result;

/// The numbers of AdamW, and in which order its scalars are applied: roundings differ.
///
/// `v' = b2·v + r2·g²`, and
/// - plain: `m' = r1·g + b1·m`, `p' = p + step·(m'/c / (√(v'/d) + eps) + decay·p)`: `c` and `d` correct the bias, the
///   step is the negative learning rate;
/// - folded: `m' = m + r1·(g − m)`, `p' = keep·p + m' / (√v'/c + d)`: learning rate and corrections are in `c`, `d`.
///
/// Numbers that are operands follow `c` and `d` in the order `b1` or `keep`, `r1`, `b2`, `r2`, `eps`, `decay`, `step`;
/// then come those of the clipping: `g` is `clip(h)` of the operand `h`, see [`Clipping`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AdamW {
    /// `b1` and `r1`; folded: `keep` and `r1`.
    pub first: (Number, Number),
    /// `b2` and `r2`.
    pub second: (Number, Number),
    /// What the plain form has beside; `None` where folded.
    pub plain: Option<PlainAdamW>,
    /// What is made of the gradient before.
    pub clip: Clipping,
}

/// How an optimizer's step clips its gradient `h`, by what a [`Clip`](super::Clip) gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Clipping {
    /// Not: the gradient is as it comes.
    None,
    /// `h·f` with an operand `f`.
    Factor,
    /// `h` where an i1 operand `w` is true, otherwise `h/n·max` with an operand `n`, and `max` if it is one.
    Within(Number),
}

impl Clipping {
    /// Its operands: whether each is a predicate.
    pub fn operands(self) -> &'static [bool] {
        match self {
            Clipping::None => &[],
            Clipping::Factor => &[false],
            Clipping::Within(Number::Known(_)) => &[true, false],
            Clipping::Within(Number::Operand) => &[true, false, false],
        }
    }

    fn attrs(self, m: &mut AttrMap) {
        match self {
            Clipping::None => {}
            Clipping::Factor => {
                m.insert("clip", word("factor"));
            }
            Clipping::Within(max) => {
                m.insert("clip", word("within"));
                m.insert("max", max.attr());
            }
        }
    }

    fn read(a: &mut AttrReader) -> Result<Clipping> {
        if !a.has("clip") {
            return Ok(Clipping::None);
        }
        let within = a.word_as("clip", |w| match w {
            "factor" => Some(false),
            "within" => Some(true),
            _ => None,
        })?;
        Ok(if within { Clipping::Within(Number::read(a, "max")?) } else { Clipping::Factor })
    }
}

/// What the plain form of AdamW has beside its decay rates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PlainAdamW {
    /// Added to the root.
    pub eps: Number,
    /// Weight decay.
    pub decay: Number,
    /// The negative learning rate.
    pub step: Number,
}

impl AdamW {
    /// Its numbers, in the order of operands.
    pub fn numbers(&self) -> impl Iterator<Item = Number> {
        let plain = self.plain.map(|p| [p.eps, p.decay, p.step]);
        [self.first.0, self.first.1, self.second.0, self.second.1]
            .into_iter()
            .chain(plain.into_iter().flatten())
    }

    pub(super) fn attrs(&self, m: &mut AttrMap) {
        m.insert("r1", self.first.1.attr());
        m.insert("b2", self.second.0.attr());
        m.insert("r2", self.second.1.attr());
        m.insert(if self.plain.is_some() { "b1" } else { "keep" }, self.first.0.attr());
        if let Some(p) = self.plain {
            m.insert("eps", p.eps.attr());
            m.insert("decay", p.decay.attr());
            m.insert("step", p.step.attr());
        }
        self.clip.attrs(m);
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<AdamW> {
        let folded = a.has("keep");
        let plain = match folded {
            true => None,
            false => Some(PlainAdamW {
                eps: Number::read(a, "eps")?,
                decay: Number::read(a, "decay")?,
                step: Number::read(a, "step")?,
            }),
        };
        Ok(AdamW {
            first: (Number::read(a, if folded { "keep" } else { "b1" })?, Number::read(a, "r1")?),
            second: (Number::read(a, "b2")?, Number::read(a, "r2")?),
            plain,
            clip: Clipping::read(a)?,
        })
    }
}

/// The numbers of gradient descent. With `g̃ = g + decay·p` (not where `decoupled`):
/// `t' = damp·g̃ + keep·t`, `u = t'`, or `g̃ + keep·t'` by Nesterov, or `g̃` without momentum;
/// `p' = p + rate·s·(u + decay·p)`, the decay here only where `decoupled`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sgd {
    /// `keep` and `damp`, with momentum.
    pub momentum: Option<(Scalar, Scalar)>,
    /// Whether the step looks ahead.
    pub nesterov: bool,
    /// Weight decay.
    pub decay: Scalar,
    /// Whether it is no part of the gradient.
    pub decoupled: bool,
    /// The negative learning rate, or what `s` is multiplied by.
    pub rate: Scalar,
    /// Whether `s` is an operand.
    pub scheduled: bool,
}

impl Sgd {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        let mut put = |name, s: Scalar| m.insert(name, AttrValue::Float(s.get().to_bits()));
        put("decay", self.decay);
        put("rate", self.rate);
        if let Some((keep, damp)) = self.momentum {
            put("keep", keep);
            put("damp", damp);
        }
        let flags =
            [("nesterov", self.nesterov), ("decoupled", self.decoupled), ("scheduled", self.scheduled)];
        m.extend(flags.map(|(name, on)| (name, AttrValue::Bool(on))));
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Sgd> {
        let momentum = match a.has("keep") {
            true => Some((Scalar::new(a.float("keep")?), Scalar::new(a.float("damp")?))),
            false => None,
        };
        Ok(Sgd {
            momentum,
            nesterov: a.bool("nesterov")?,
            decay: Scalar::new(a.float("decay")?),
            decoupled: a.bool("decoupled")?,
            rate: Scalar::new(a.float("rate")?),
            scheduled: a.bool("scheduled")?,
        })
    }
}

/// The numbers of Lion: `u = sign(b1·m + r1·g)`, `m' = b2·m + r2·g`, `p' = p + rate·s·(u + decay·p)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Lion {
    /// `b1` and `r1`.
    pub first: (Scalar, Scalar),
    /// `b2` and `r2`.
    pub second: (Scalar, Scalar),
    /// Weight decay.
    pub decay: Scalar,
    /// The negative learning rate, or what `s` is multiplied by.
    pub rate: Scalar,
    /// Whether `s` is an operand.
    pub scheduled: bool,
}

impl Lion {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        let numbers = [
            ("b1", self.first.0),
            ("r1", self.first.1),
            ("b2", self.second.0),
            ("r2", self.second.1),
            ("decay", self.decay),
            ("rate", self.rate),
        ];
        m.extend(numbers.map(|(name, s)| (name, AttrValue::Float(s.get().to_bits()))));
        m.insert("scheduled", AttrValue::Bool(self.scheduled));
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Lion> {
        let mut take = |name| Ok(Scalar::new(a.float(name)?));
        let first = (take("b1")?, take("r1")?);
        let second = (take("b2")?, take("r2")?);
        let (decay, rate) = (take("decay")?, take("rate")?);
        Ok(Lion { first, second, decay, rate, scheduled: a.bool("scheduled")? })
    }
}
