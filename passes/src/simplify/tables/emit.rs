//! A table's expression as ops.

use super::{Core, Form, Table};
use msc_ir::ops::binary::{Binary, BinaryKind};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::convert::Convert;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::types::Shape;
use msc_ir::{DType, Op, Storage, Tensor, TensorType, ValueId};

/// Where the ops of an expression go.
pub(in crate::simplify) trait Sink {
    /// Adds an op of one result.
    fn op(&mut self, op: Op, operands: &[ValueId], ty: TensorType) -> ValueId;
    /// A constant of one value, by its little-endian element.
    fn splat(&mut self, ty: TensorType, element: &[u8]) -> ValueId;
    /// A constant, by its little-endian elements.
    fn data(&mut self, ty: TensorType, bytes: &[u8]) -> ValueId;
}

/// Adds the ops of `table`, which has type `ty`.
pub(in crate::simplify) fn emit(table: &Table, ty: &TensorType, to: &mut impl Sink) -> ValueId {
    let shape: Shape = table.dims.iter().map(|s| s.kept).filter(|&k| k > 1).collect();
    let core = ty.with_shape(shape.iter().copied());
    let value = match &table.core {
        Core::Linear { scale, offset } => linear(scale, *offset, &core, to),
        Core::Interval { form, low, high, inside, outside } => {
            interval(*form, (*low, *high), (inside, outside), &core, to)
        }
        Core::Data(bytes) => to.data(core.clone(), bytes),
    };
    // Repeats and runs are dimensions of their own until the end, where there are any.
    let plain = table.dims.iter().all(|s| s.kept == 1 || (s.repeats == 1 && s.run == 1));
    if plain {
        let dims = (0..ty.rank()).filter(|&d| table.dims[d].kept > 1).collect();
        return spread(value, dims, ty.clone(), to);
    }
    let parts: Shape = table.dims.iter().flat_map(|s| [s.repeats, s.kept, s.run]).collect();
    let dims = (0..ty.rank()).filter(|&d| table.dims[d].kept > 1).map(|d| 3 * d + 1).collect();
    let apart = spread(value, dims, ty.with_shape(parts), to);
    to.op(Reshape { shape: ty.shape.clone() }.into(), &[apart], ty.clone())
}

fn spread(value: ValueId, dims: Shape, ty: TensorType, to: &mut impl Sink) -> ValueId {
    if dims.len() == ty.rank() {
        return value;
    }
    to.op(BroadcastInDim { shape: ty.shape.clone(), dims }.into(), &[value], ty)
}

/// The type in which indices up to `most` are counted.
fn counter(most: i64) -> DType {
    if most <= i64::from(i32::MAX) { DType::I32 } else { DType::I64 }
}

fn number(value: i64, ty: &TensorType, to: &mut impl Sink) -> ValueId {
    let one = Tensor::new([], Storage::I64(vec![value])).converted(ty.dtype);
    to.splat(ty.clone(), one.data.bytes())
}

fn linear(scale: &[i64], offset: i64, core: &TensorType, to: &mut impl Sink) -> ValueId {
    let reach = |k: &i64, n: &usize| k.abs().saturating_mul(*n as i64);
    let most = scale.iter().zip(&core.shape).fold(offset.abs(), |m, (k, n)| m.saturating_add(reach(k, n)));
    // In the table's own type where that counts as far; a step from one end of i32 to the other needs more.
    let counts = counter(most);
    let own = core.dtype.is_signed_int() && core.dtype.size_bytes() >= counts.size_bytes();
    let count = core.with_dtype(if own { core.dtype } else { counts });
    let mut sum: Option<ValueId> = None;
    for (dim, &k) in scale.iter().enumerate() {
        let mut term = to.op(Iota { ty: count.clone(), dim }.into(), &[], count.clone());
        if k != 1 {
            let k = number(k, &count, to);
            term = to.op(Binary { kind: BinaryKind::Multiply }.into(), &[term, k], count.clone());
        }
        sum = Some(match sum {
            None => term,
            Some(s) => to.op(Binary { kind: BinaryKind::Add }.into(), &[s, term], count.clone()),
        });
    }
    let mut value = sum.unwrap_or_else(|| number(0, &count, to));
    if offset != 0 {
        let offset = number(offset, &count, to);
        value = to.op(Binary { kind: BinaryKind::Add }.into(), &[value, offset], count.clone());
    }
    if count == *core { value } else { to.op(Convert::Value(core.dtype).into(), &[value], core.clone()) }
}

fn interval(
    form: Form,
    (low, high): (Option<i64>, Option<i64>),
    (inside, outside): (&[u8], &[u8]),
    core: &TensorType,
    to: &mut impl Sink,
) -> ValueId {
    let count = core.with_dtype(counter(core.shape.iter().sum::<usize>() as i64));
    let test = core.with_dtype(DType::I1);
    let i = to.op(Iota { ty: count.clone(), dim: 0 }.into(), &[], count.clone());
    let kind = match form {
        Form::Index => None,
        Form::Difference => Some(BinaryKind::Subtract),
        Form::Sum => Some(BinaryKind::Add),
    };
    let value = match kind {
        None => i,
        Some(kind) => {
            let j = to.op(Iota { ty: count.clone(), dim: 1 }.into(), &[], count.clone());
            to.op(Binary { kind }.into(), &[i, j], count.clone())
        }
    };
    let mut within: Option<ValueId> = None;
    for (bound, direction) in [(low, Direction::Ge), (high, Direction::Le)] {
        let Some(bound) = bound else { continue };
        let bound = number(bound, &count, to);
        let c = to.op(Compare { direction, total_order: false }.into(), &[value, bound], test.clone());
        within = Some(match within {
            None => c,
            Some(w) => to.op(Binary { kind: BinaryKind::And }.into(), &[w, c], test.clone()),
        });
    }
    let within = within.unwrap_or_else(|| to.splat(test.clone(), &[1]));
    if core.dtype == DType::I1 && inside == [1] {
        return within;
    }
    let (a, b) = (to.splat(core.clone(), inside), to.splat(core.clone(), outside));
    to.op(Select::Select.into(), &[within, a, b], core.clone())
}
