//! Activation functions, plain and gated.

use super::FusedKind;
use crate::attr::AttrReader;
use crate::error::Result;

/// An activation function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Activation {
    /// `x·σ(x)` (Elfwing et al., "Sigmoid-Weighted Linear Units"); gated: SwiGLU.
    Silu,
    /// `½x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))` (Hendrycks & Gimpel, "Gaussian Error Linear Units"); gated: GeGLU.
    GeluTanh,
    /// `½x·(1 + erf(x/√2))`; gated: GeGLU.
    GeluErf,
}

impl Activation {
    /// The name of an op of this function.
    pub(super) fn name(self, gated: bool, gradient: bool) -> &'static str {
        match (self == Activation::Silu, gated, gradient) {
            (true, false, false) => "silu",
            (true, false, true) => "silu_grad",
            (true, true, false) => "swiglu",
            (true, true, true) => "swiglu_grad",
            (false, false, false) => "gelu",
            (false, false, true) => "gelu_grad",
            (false, true, false) => "geglu",
            (false, true, true) => "geglu_grad",
        }
    }

    /// Reads an op of this family.
    pub(super) fn kind(name: &str, a: &mut AttrReader) -> Result<Option<FusedKind>> {
        let (gated, gradient) = match name {
            "silu" | "gelu" => (false, false),
            "silu_grad" | "gelu_grad" => (false, true),
            "swiglu" | "geglu" => (true, false),
            "swiglu_grad" | "geglu_grad" => (true, true),
            _ => return Ok(None),
        };
        let function = match name.starts_with('s') {
            true => Activation::Silu,
            false if a.bool("tanh")? => Activation::GeluTanh,
            false => Activation::GeluErf,
        };
        Ok(Some(if gradient {
            FusedKind::ActivationGrad { function, gated }
        } else {
            FusedKind::Activation { function, gated }
        }))
    }
}
