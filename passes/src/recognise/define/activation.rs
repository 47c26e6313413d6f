//! Activations, gated or not, and their gradients (Shazeer, "GLU Variants Improve Transformer").
//!
//! Everything is elementwise and computes in the operands' own type: models in bf16 or f16 round after every op.

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Add, Maximum, Minimum, Multiply, Subtract};
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::fused::{Activation, AtBound, Bounds, FusedKind, Gate, Scalar, has_bound};
use msc_ir::ops::select::Select;
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

/// `x → a(x)`, or gated: `gate, up → a(gate)·(up + bias)`, of operands within bounds.
///
/// # Errors
/// If the types do not fit, or bounds leave nothing between them.
pub fn forward(
    module: &mut Module,
    types: &[TensorType],
    function: Activation,
    gate: Option<Gate>,
) -> Result<Graph> {
    let name = FusedKind::Activation { function, gate }.name();
    let mut d = Definition::new(module, name);
    let p = params(&mut d, name, types, 1 + usize::from(gate.is_some()))?;
    let form = gate.unwrap_or_default();
    let x = d.bounded(p[0], form.gate)?;
    let share = d.share(function, x)?;
    let mut y = d.value(function, x, share)?;
    if gate.is_some() {
        let up = d.gated(p[1], form)?;
        y = d.op(Multiply, &[y, up])?;
    }
    Ok(d.finish(vec![y]))
}

/// `dy, x → dy·a'(x)`, or gated: `dh, gate, up → dh·(up + bias)·a'(gate), dh·a(gate)`, of operands within bounds, each
/// where it is; at a bound what `at_bound` says.
///
/// # Errors
/// If the types do not fit, bounds leave nothing between them, or it is not said what passes at one.
pub fn backward(
    module: &mut Module,
    types: &[TensorType],
    function: Activation,
    gate: Option<Gate>,
    at_bound: Option<AtBound>,
) -> Result<Graph> {
    let name = FusedKind::ActivationGrad { function, gate, at_bound }.name();
    if has_bound(function, gate) != at_bound.is_some() {
        return Err(IrError::ty(name, "what passes at a bound is said where there is one".to_string()));
    }
    let at = at_bound.unwrap_or(AtBound::Nothing);
    let mut d = Definition::new(module, name);
    let p = params(&mut d, name, types, 2 + usize::from(gate.is_some()))?;
    let form = gate.unwrap_or_default();
    let dy = p[0];
    let x = d.bounded(p[1], form.gate)?;
    let share = d.share(function, x)?;
    let slope = match share {
        Some(share) => Some(d.slope(function, x, share)?),
        None => None,
    };
    if gate.is_none() {
        let dx = d.back(function, dy, x, slope, at)?;
        return Ok(d.finish(vec![dx]));
    }
    let up = d.gated(p[2], form)?;
    let through = d.op(Multiply, &[dy, up])?;
    let dgate = d.back(function, through, x, slope, at)?;
    let dgate = d.within(dgate, p[1], form.gate, at)?;
    let y = d.value(function, x, share)?;
    let dup = d.op(Multiply, &[dy, y])?;
    let dup = d.within(dup, p[2], form.up, at)?;
    Ok(d.finish(vec![dgate, dup]))
}

impl Definition<'_> {
    /// `v` kept within bounds.
    fn bounded(&mut self, v: ValueId, bounds: Bounds) -> Result<ValueId> {
        if let (Some(least), Some(most)) = (bounds.least, bounds.most)
            && least.get() >= most.get()
        {
            let what = format!("nothing is between {} and {}", least.get(), most.get());
            return Err(IrError::ty("activation", what));
        }
        let mut v = v;
        for (kind, bound) in [(Maximum, bounds.least), (Minimum, bounds.most)] {
            if let Some(b) = bound {
                let b = self.splat(self.ty(v), b.get())?;
                v = self.op(kind, &[v, b])?;
            }
        }
        Ok(v)
    }

    /// What is gated: `up` within bounds, plus the bias.
    fn gated(&mut self, up: ValueId, form: Gate) -> Result<ValueId> {
        let up = self.bounded(up, form.up)?;
        form.bias.map_or(Ok(up), |bias| self.plus(up, bias.get()))
    }

    /// `d` where `x` is within bounds, nothing where it is out of them.
    fn within(&mut self, d: ValueId, x: ValueId, bounds: Bounds, at: AtBound) -> Result<ValueId> {
        let mut d = d;
        for (bound, inside) in [(bounds.most, Direction::Lt), (bounds.least, Direction::Gt)] {
            let Some(bound) = bound else { continue };
            let bound = self.splat(self.ty(x), bound.get())?;
            let compare = |direction| Compare { direction, total_order: false };
            let mut outside = self.splat(self.ty(d), 0.0)?;
            if at != AtBound::Nothing {
                let there = if at == AtBound::Half { self.times(d, 0.5)? } else { d };
                let touches = self.op(compare(Direction::Eq), &[x, bound])?;
                outside = self.op(Select::Select, &[touches, there, outside])?;
            }
            let inside = self.op(compare(inside), &[x, bound])?;
            d = self.op(Select::Select, &[inside, d, outside])?;
        }
        Ok(d)
    }

    /// `a(x)`, given `a(x)/x` where that is a function of its own.
    fn value(&mut self, function: Activation, x: ValueId, share: Option<ValueId>) -> Result<ValueId> {
        if let Some(share) = share {
            return self.op(Multiply, &[x, share]);
        }
        let zero = self.splat(self.ty(x), 0.0)?;
        let y = self.op(Maximum, &[x, zero])?;
        if function == Activation::SquaredRelu { self.op(Multiply, &[y, y]) } else { Ok(y) }
    }

    /// `d·a'(x)`, given `a'(x)` where that is a function of its own.
    fn back(
        &mut self,
        function: Activation,
        d: ValueId,
        x: ValueId,
        slope: Option<ValueId>,
        at: AtBound,
    ) -> Result<ValueId> {
        if let Some(slope) = slope {
            return self.op(Multiply, &[d, slope]);
        }
        if function == Activation::Relu {
            return self.within(d, x, Bounds { least: Some(Scalar::new(0.0)), most: None }, at);
        }
        // Of the square it is 0 at 0 as well.
        let y = self.value(Activation::Relu, x, None)?;
        let twice = self.times(y, 2.0)?;
        self.op(Multiply, &[d, twice])
    }

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

    /// `a(x)/x`: the share of x that passes. What is rectified passes whole.
    fn share(&mut self, function: Activation, x: ValueId) -> Result<Option<ValueId>> {
        Ok(Some(match function {
            Activation::Relu | Activation::SquaredRelu => return Ok(None),
            Activation::Silu => self.op(Logistic, &[x])?,
            Activation::Swish(alpha) => {
                let inner = self.times(x, alpha.get())?;
                self.op(Logistic, &[inner])?
            }
            Activation::GeluTanh => {
                let square = self.op(Multiply, &[x, x])?;
                let cube = self.op(Multiply, &[square, x])?;
                let cube = self.times(cube, TANH_CUBE)?;
                let inner = self.op(Add, &[x, cube])?;
                let inner = self.times(inner, TANH_SCALE)?;
                let t = self.op(Tanh, &[inner])?;
                let t = self.plus(t, 1.0)?;
                self.times(t, 0.5)?
            }
            Activation::GeluErf => {
                let inner = self.times(x, std::f64::consts::FRAC_1_SQRT_2)?;
                let e = self.op(Erf, &[inner])?;
                let e = self.plus(e, 1.0)?;
                self.times(e, 0.5)?
            }
        }))
    }

    /// `a'(x)`, given `a(x)/x`.
    fn slope(&mut self, function: Activation, x: ValueId, share: ValueId) -> Result<ValueId> {
        match function {
            Activation::Relu | Activation::SquaredRelu => {
                Err(IrError::unsupported("activation", "what is rectified passes whole"))
            }
            // σ·(1 + α·x·(1 − σ))
            Activation::Silu | Activation::Swish(_) => {
                let rest = self.rest(share)?;
                let mut inner = self.op(Multiply, &[x, rest])?;
                if let Activation::Swish(alpha) = function {
                    inner = self.times(inner, alpha.get())?;
                }
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
