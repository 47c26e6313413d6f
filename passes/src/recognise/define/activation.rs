//! Activations, gated or not, and their gradients (Shazeer, "GLU Variants Improve Transformer").
//!
//! Everything is elementwise and computes in the operands' own type: models in bf16 or f16 round after every op.

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Add, Multiply, Subtract};
use msc_ir::ops::fused::{Activation, FusedKind};
use msc_ir::ops::unary::UnaryKind::{Erf, Exponential, Logistic, Tanh};
use msc_ir::{Graph, IrError, Module, Result, TensorType, ValueId};

/// √(2/π), the scale inside the tanh form of GELU.
pub const TANH_SCALE: f64 = 0.797_884_560_802_865_4;
/// The cubic term of the tanh form of GELU.
pub const TANH_CUBE: f64 = 0.044715;
/// 1/√(2π), the density of the normal distribution at 0.
pub const DENSITY: f64 = 0.398_942_280_401_432_7;

fn params(d: &mut Definition<'_>, op: &str, types: &[TensorType], operands: usize) -> Result<Vec<ValueId>> {
    let fit = types.len() == operands && types.iter().all(|t| t.dtype.is_float() && *t == types[0]);
    if !fit {
        let what = format!("takes {operands} float operands of one type, not {types:?}");
        return Err(IrError::ty(op, what));
    }
    Ok(types.iter().map(|t| d.param(t)).collect())
}

/// `x → a(x)`, or `gate, up → a(gate)·up` where `gated`.
///
/// # Errors
/// If the types do not fit.
pub fn forward(
    module: &mut Module,
    types: &[TensorType],
    function: Activation,
    gated: bool,
) -> Result<Graph> {
    let name = FusedKind::Activation { function, gated }.name();
    let mut d = Definition::new(module, name);
    let p = params(&mut d, name, types, 1 + usize::from(gated))?;
    let y = d.share(function, p[0])?;
    let mut y = d.op(Multiply, &[p[0], y])?;
    if gated {
        y = d.op(Multiply, &[y, p[1]])?;
    }
    Ok(d.finish(vec![y]))
}

/// `dy, x → dy·a'(x)`, or `dh, gate, up → dh·up·a'(gate), dh·a(gate)` where `gated`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(
    module: &mut Module,
    types: &[TensorType],
    function: Activation,
    gated: bool,
) -> Result<Graph> {
    let name = FusedKind::ActivationGrad { function, gated }.name();
    let mut d = Definition::new(module, name);
    let p = params(&mut d, name, types, 2 + usize::from(gated))?;
    let (dy, x) = (p[0], p[1]);
    let share = d.share(function, x)?;
    let slope = d.slope(function, x, share)?;
    if !gated {
        let dx = d.op(Multiply, &[dy, slope])?;
        return Ok(d.finish(vec![dx]));
    }
    let through = d.op(Multiply, &[dy, p[2]])?;
    let dgate = d.op(Multiply, &[through, slope])?;
    let y = d.op(Multiply, &[x, share])?;
    let dup = d.op(Multiply, &[dy, y])?;
    Ok(d.finish(vec![dgate, dup]))
}

impl Definition<'_> {
    fn times(&mut self, v: ValueId, c: f64) -> Result<ValueId> {
        let c = self.splat(self.ty(v), c)?;
        self.op(Multiply, &[c, v])
    }

    fn plus(&mut self, v: ValueId, c: f64) -> Result<ValueId> {
        let c = self.splat(self.ty(v), c)?;
        self.op(Add, &[c, v])
    }

    /// `1 − v`.
    fn rest(&mut self, v: ValueId) -> Result<ValueId> {
        let one = self.splat(self.ty(v), 1.0)?;
        self.op(Subtract, &[one, v])
    }

    /// `a(x)/x`: the share of x that passes.
    fn share(&mut self, function: Activation, x: ValueId) -> Result<ValueId> {
        match function {
            Activation::Silu => self.op(Logistic, &[x]),
            Activation::GeluTanh => {
                let square = self.op(Multiply, &[x, x])?;
                let cube = self.op(Multiply, &[square, x])?;
                let cube = self.times(cube, TANH_CUBE)?;
                let inner = self.op(Add, &[x, cube])?;
                let inner = self.times(inner, TANH_SCALE)?;
                let t = self.op(Tanh, &[inner])?;
                let t = self.plus(t, 1.0)?;
                self.times(t, 0.5)
            }
            Activation::GeluErf => {
                let inner = self.times(x, std::f64::consts::FRAC_1_SQRT_2)?;
                let e = self.op(Erf, &[inner])?;
                let e = self.plus(e, 1.0)?;
                self.times(e, 0.5)
            }
        }
    }

    /// `a'(x)`, given `a(x)/x`.
    fn slope(&mut self, function: Activation, x: ValueId, share: ValueId) -> Result<ValueId> {
        match function {
            // σ·(1 + x·(1 − σ))
            Activation::Silu => {
                let rest = self.rest(share)?;
                let inner = self.op(Multiply, &[x, rest])?;
                let inner = self.plus(inner, 1.0)?;
                self.op(Multiply, &[share, inner])
            }
            // With share p = ½(1 + t): p + ½x·(1 − t²)·u' = p + 2x·p·(1 − p)·u', u' = c·(1 + 3k·x²).
            Activation::GeluTanh => {
                let square = self.op(Multiply, &[x, x])?;
                let inner = self.times(square, 3.0 * TANH_CUBE)?;
                let inner = self.plus(inner, 1.0)?;
                let inner = self.times(inner, 2.0 * TANH_SCALE)?;
                let rest = self.rest(share)?;
                let spread = self.op(Multiply, &[share, rest])?;
                let spread = self.op(Multiply, &[spread, inner])?;
                let spread = self.op(Multiply, &[x, spread])?;
                self.op(Add, &[share, spread])
            }
            // share + x·φ(x), φ the density of the normal distribution.
            Activation::GeluErf => {
                let square = self.op(Multiply, &[x, x])?;
                let inner = self.times(square, -0.5)?;
                let density = self.op(Exponential, &[inner])?;
                let density = self.times(density, DENSITY)?;
                let density = self.op(Multiply, &[x, density])?;
                self.op(Add, &[share, density])
            }
        }
    }
}
