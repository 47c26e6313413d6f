//! Activation functions, plain and gated.

use super::{FusedKind, Scalar};
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::error::{IrError, Result};

/// An activation function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Activation {
    /// `x·σ(x)` (Elfwing et al., "Sigmoid-Weighted Linear Units"); gated: SwiGLU.
    Silu,
    /// `x·σ(α·x)` with another α than 1 (Ramachandran et al., "Searching for Activation Functions"); gated: SwiGLU.
    Swish(Scalar),
    /// `½x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))` (Hendrycks & Gimpel, "Gaussian Error Linear Units"); gated: GeGLU.
    GeluTanh,
    /// `½x·(1 + erf(x/√2))`; gated: GeGLU.
    GeluErf,
    /// `max(x, 0)` (Nair & Hinton, "Rectified Linear Units"); gated: ReGLU.
    Relu,
    /// `max(x, 0)²` (So et al., "Primer").
    SquaredRelu,
}

/// The numbers that an operand is kept between; what has no bound is as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Bounds {
    /// It is at least this.
    pub least: Option<Scalar>,
    /// It is at most this.
    pub most: Option<Scalar>,
}

impl Bounds {
    /// Whether there is one.
    pub fn any(self) -> bool {
        self.least.is_some() || self.most.is_some()
    }
}

/// How an activation `a` gates a second operand: `h = a(gate)·(up + bias)`, with gate and up kept within bounds before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Gate {
    /// Bounds of the gate.
    pub gate: Bounds,
    /// Bounds of what is gated.
    pub up: Bounds,
    /// Added to what is gated.
    pub bias: Option<Scalar>,
}

/// What a gradient passes on where an operand is at a bound itself, where the derivative is not defined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AtBound {
    /// Nothing.
    Nothing,
    /// Half of it, as the derivative of a maximum of two equal values is shared.
    Half,
    /// All of it.
    All,
}

impl AtBound {
    /// All of them.
    pub const ALL: [AtBound; 3] = [AtBound::Nothing, AtBound::Half, AtBound::All];

    fn word(self) -> &'static str {
        match self {
            AtBound::Nothing => "nothing",
            AtBound::Half => "half",
            AtBound::All => "all",
        }
    }
}

/// Names of an op: plain, its gradient, gated, its gradient.
type Names = [&'static str; 4];

const SILU: Names = ["silu", "silu_grad", "swiglu", "swiglu_grad"];
const SWISH: Names = ["swish", "swish_grad", "swiglu", "swiglu_grad"];
const GELU: Names = ["gelu", "gelu_grad", "geglu", "geglu_grad"];
const RELU: Names = ["relu", "relu_grad", "reglu", "reglu_grad"];
const SQUARED_RELU: Names = ["squared_relu", "squared_relu_grad", "squared_reglu", "squared_reglu_grad"];

/// Whether an activation has a bound, its own or one of an operand, at which it has no derivative.
pub fn has_bound(function: Activation, gate: Option<Gate>) -> bool {
    function == Activation::Relu || gate.is_some_and(|g| g.gate.any() || g.up.any())
}

impl Activation {
    /// The name of an op of this function.
    pub(super) fn name(self, gated: bool, gradient: bool) -> &'static str {
        let names = match self {
            Activation::Silu => SILU,
            Activation::Swish(_) => SWISH,
            Activation::GeluTanh | Activation::GeluErf => GELU,
            Activation::Relu => RELU,
            Activation::SquaredRelu => SQUARED_RELU,
        };
        names[2 * usize::from(gated) + usize::from(gradient)]
    }

    /// Reads an op of this family.
    pub(super) fn kind(name: &str, a: &mut AttrReader) -> Result<Option<FusedKind>> {
        let all = [SILU, SWISH, GELU, RELU, SQUARED_RELU];
        let found = all.iter().find_map(|names| Some((names, names.iter().position(|n| *n == name)?)));
        let Some((names, at)) = found else { return Ok(None) };
        let (gated, gradient) = (at >= 2, at % 2 == 1);
        let function = match *names {
            SILU if !gated || !a.has("alpha") => Activation::Silu,
            SILU | SWISH => Activation::Swish(Scalar::new(a.float("alpha")?)),
            GELU if a.bool("tanh")? => Activation::GeluTanh,
            GELU => Activation::GeluErf,
            RELU => Activation::Relu,
            _ => Activation::SquaredRelu,
        };
        let gate = if gated { Some(Gate::read(a)?) } else { None };
        if !gradient {
            return Ok(Some(FusedKind::Activation { function, gate }));
        }
        let at_bound = if a.has("at_bound") {
            Some(a.word_as("at_bound", |w| AtBound::ALL.into_iter().find(|t| t.word() == w))?)
        } else {
            None
        };
        if has_bound(function, gate) != at_bound.is_some() {
            let what = "it is there where there are bounds, and nowhere else";
            return Err(IrError::attr(a.op(), "at_bound", what));
        }
        Ok(Some(FusedKind::ActivationGrad { function, gate, at_bound }))
    }

    /// Writes what [`Activation::kind`] reads beside the name.
    pub(super) fn attrs(self, gate: Option<Gate>, at_bound: Option<AtBound>, m: &mut AttrMap) {
        match self {
            Activation::Swish(alpha) => {
                m.insert("alpha", AttrValue::Float(alpha.get().to_bits()));
            }
            Activation::GeluTanh | Activation::GeluErf => {
                m.insert("tanh", AttrValue::Bool(self == Activation::GeluTanh));
            }
            Activation::Silu | Activation::Relu | Activation::SquaredRelu => {}
        }
        for (name, number) in gate.into_iter().flat_map(Gate::numbers) {
            if let Some(n) = number {
                m.insert(name, AttrValue::Float(n.get().to_bits()));
            }
        }
        if let Some(at) = at_bound {
            m.insert("at_bound", word(at.word()));
        }
    }
}

impl Gate {
    fn numbers(self) -> [(&'static str, Option<Scalar>); 5] {
        [
            ("gate_least", self.gate.least),
            ("gate_most", self.gate.most),
            ("up_least", self.up.least),
            ("up_most", self.up.most),
            ("bias", self.bias),
        ]
    }

    fn read(a: &mut AttrReader) -> Result<Gate> {
        let mut number = |name| -> Result<Option<Scalar>> {
            Ok(if a.has(name) { Some(Scalar::new(a.float(name)?)) } else { None })
        };
        Ok(Gate {
            gate: Bounds { least: number("gate_least")?, most: number("gate_most")? },
            up: Bounds { least: number("up_least")?, most: number("up_most")? },
            bias: number("bias")?,
        })
    }
}
