//! Optimizers' numbers.

use super::Scalar;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::Result;

/// The numbers of AdamW, and in which order its scalars are applied: roundings differ.
///
/// `v' = b2·v + r2·g²`, and
/// - plain: `m' = r1·g + b1·m`, `p' = p + s·(m'/c / (√(v'/d) + eps) + decay·p)`: `c` and `d` correct the bias, `s` is
///   the negative learning rate;
/// - folded: `m' = m + r1·(g − m)`, `p' = keep·p + m' / (√v'/c + d)`: learning rate and corrections are in `c`, `d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AdamW {
    /// `b1` and `r1`; folded: `keep` and `r1`.
    pub first: (Scalar, Scalar),
    /// `b2` and `r2`.
    pub second: (Scalar, Scalar),
    /// `eps` and `decay`; `None` where folded.
    pub plain: Option<(Scalar, Scalar)>,
    /// `s` where it is a constant; otherwise it is an operand of the plain form.
    pub step: Option<Scalar>,
}

impl AdamW {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        let mut put = |name, s: Scalar| m.insert(name, AttrValue::Float(s.get().to_bits()));
        put("r1", self.first.1);
        put("b2", self.second.0);
        put("r2", self.second.1);
        match self.plain {
            None => put("keep", self.first.0),
            Some((eps, decay)) => {
                put("b1", self.first.0);
                put("eps", eps);
                put("decay", decay)
            }
        };
        if let Some(s) = self.step {
            put("step", s);
        }
        m.insert("folded", AttrValue::Bool(self.plain.is_none()));
        m.insert("fixed", AttrValue::Bool(self.step.is_some()));
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<AdamW> {
        let (folded, fixed) = (a.bool("folded")?, a.bool("fixed")?);
        let mut take = |name| Ok(Scalar::new(a.float(name)?));
        let plain = if folded { None } else { Some((take("eps")?, take("decay")?)) };
        Ok(AdamW {
            first: (take(if folded { "keep" } else { "b1" })?, take("r1")?),
            second: (take("b2")?, take("r2")?),
            plain,
            step: if fixed { Some(take("step")?) } else { None },
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
