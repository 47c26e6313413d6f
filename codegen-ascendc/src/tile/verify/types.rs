//! Element types, shapes and memory classes of steps.

use super::{Fault, VerifyError, here};
use crate::tile::{Buffer, BufferId, DType, Kernel, Operand, Space, Step, View};

pub(super) fn check(k: &Kernel) -> Result<(), VerifyError> {
    let mut result = Ok(());
    k.walk(&mut |step| {
        if result.is_ok() {
            result = step_types(k, step).map_err(|fault| here(k, step, fault));
        }
    });
    result
}

fn step_types(k: &Kernel, step: &Step) -> Result<(), Fault> {
    use Space::{Accumulator, Operand as MatOperand, Vector};
    let buffer = |id: &BufferId| k.buffer(*id);
    match step {
        Step::Load { dst, from, .. } => {
            let dst = buffer(dst);
            in_space(dst, &[Vector, MatOperand])?;
            view(k, from, dst, false)
        }
        Step::Store { src, to } => {
            let src = buffer(src);
            in_space(src, &[Vector, Accumulator])?;
            view(k, to, src, true)
        }
        Step::Fill { dst, .. } => {
            let dst = buffer(dst);
            in_space(dst, &[Vector, Accumulator])?;
            has_type(dst, DType::F32)
        }
        Step::Index { dst, .. } => {
            let dst = buffer(dst);
            in_space(dst, &[Vector])?;
            has_type(dst, DType::I32)
        }
        Step::Unary { dst, src, .. } => elementwise(k, *dst, &[*src]),
        Step::Binary { dst, a, b, .. } => elementwise(k, *dst, &[*a, *b]),
        Step::Select { dst, a, b, on_true, on_false, .. } => {
            elementwise(k, *dst, &[*on_true, *on_false])?;
            compared(k, *dst, *a, *b)
        }
        Step::Convert { dst, src } => {
            let (dst, src) = (buffer(dst), buffer(src));
            in_space(dst, &[Vector])?;
            in_space(src, &[Vector])?;
            same_shape(src, dst)?;
            let to_or_from_f32 = (dst.dtype == DType::F32) != (src.dtype == DType::F32);
            if to_or_from_f32 {
                return Ok(());
            }
            Err(Fault::Type(format!("no conversion from {} to {}", src.dtype, dst.dtype)))
        }
        Step::Copy { dst, src } => {
            let (dst, src) = (buffer(dst), buffer(src));
            in_space(dst, &[Vector, MatOperand])?;
            if dst.space == src.space {
                return Err(Fault::Space { buffer: dst.name.clone(), space: dst.space });
            }
            same_shape(src, dst)?;
            has_type(dst, src.dtype)
        }
        Step::Reduce { over, dst, src, .. } => {
            let (d, s) = (buffer(dst), buffer(src));
            in_space(d, &[Vector])?;
            in_space(s, &[Vector])?;
            has_type(d, DType::F32)?;
            has_type(s, DType::F32)?;
            if dst == src {
                return Err(Fault::Type("a reduction cannot write its own source".to_owned()));
            }
            shape(d, over.reduced(s.shape()))
        }
        Step::Matmul { dst, a, b, transpose_a, transpose_b, .. } => {
            let (dst, a, b) = (buffer(dst), buffer(a), buffer(b));
            in_space(dst, &[Accumulator])?;
            in_space(a, &[MatOperand])?;
            in_space(b, &[MatOperand])?;
            has_type(dst, DType::F32)?;
            has_type(b, a.dtype)?;
            if a.dtype == DType::I32 {
                return Err(Fault::Type("matrix operands cannot be i32".to_owned()));
            }
            let flip = |[r, c]: [i64; 2], on: bool| if on { [c, r] } else { [r, c] };
            let ([m, k], [k2, n]) = (flip(a.shape(), *transpose_a), flip(b.shape(), *transpose_b));
            if k != k2 {
                return Err(Fault::Shape { found: b.shape(), wanted: format!("inner extent {k}") });
            }
            shape(dst, [m, n])
        }
        Step::For(_) => Ok(()),
    }
}

/// Checks a view's type and direction against its tile.
fn view(k: &Kernel, view: &View, tile: &Buffer, store: bool) -> Result<(), Fault> {
    let param = k.param(view.param);
    let allowed = if store { param.role.writable() } else { param.role.readable() };
    if !allowed {
        return Err(Fault::Role(param.name.clone()));
    }
    if view.rows.is_none() && tile.rows != 1 {
        return Err(Fault::Shape { found: tile.shape(), wanted: "one row".to_owned() });
    }
    if view.cols.is_none() && tile.cols != 1 {
        return Err(Fault::Shape { found: tile.shape(), wanted: "one column".to_owned() });
    }
    let narrowing = store && tile.space == Space::Accumulator && param.dtype.is_half();
    if narrowing { Ok(()) } else { has_type(tile, param.dtype) }
}

/// Checks an elementwise step on f32 values.
fn elementwise(k: &Kernel, dst: BufferId, operands: &[Operand]) -> Result<(), Fault> {
    let dst = k.buffer(dst);
    in_space(dst, &[Space::Vector])?;
    has_type(dst, DType::F32)?;
    for operand in operands {
        match operand {
            Operand::Tile(id) => {
                let tile = k.buffer(*id);
                has_type(tile, DType::F32)?;
                repeats_to(tile, dst)?;
            }
            Operand::Int(v) => return Err(Fault::Type(format!("i32 literal {v} where f32 is needed"))),
            Operand::Num(_) | Operand::Scalar(_) => {}
        }
    }
    Ok(())
}

/// Checks the two sides of a comparison: both f32 or both i32.
fn compared(k: &Kernel, dst: BufferId, a: Operand, b: Operand) -> Result<(), Fault> {
    let mut types = Vec::new();
    for (at, operand) in [a, b].into_iter().enumerate() {
        types.push(match operand {
            Operand::Tile(id) => {
                let tile = k.buffer(id);
                repeats_to(tile, k.buffer(dst))?;
                if id == dst && tile.dtype != DType::F32 {
                    return Err(Fault::Type(format!("side {at} of the comparison is the destination")));
                }
                tile.dtype
            }
            Operand::Int(_) => DType::I32,
            Operand::Num(_) | Operand::Scalar(_) => DType::F32,
        });
    }
    match types.as_slice() {
        [DType::F32, DType::F32] | [DType::I32, DType::I32] => Ok(()),
        _ => Err(Fault::Type("the sides of a comparison must both be f32 or both i32".to_owned())),
    }
}

fn in_space(buffer: &Buffer, allowed: &[Space]) -> Result<(), Fault> {
    if allowed.contains(&buffer.space) {
        return Ok(());
    }
    Err(Fault::Space { buffer: buffer.name.clone(), space: buffer.space })
}

fn has_type(buffer: &Buffer, wanted: DType) -> Result<(), Fault> {
    if buffer.dtype == wanted {
        return Ok(());
    }
    Err(Fault::Type(format!("`{}` is {} where {wanted} is needed", buffer.name, buffer.dtype)))
}

fn shape(buffer: &Buffer, wanted: [i64; 2]) -> Result<(), Fault> {
    if buffer.shape() == wanted {
        return Ok(());
    }
    Err(Fault::Shape { found: buffer.shape(), wanted: format!("{wanted:?}") })
}

fn same_shape(src: &Buffer, dst: &Buffer) -> Result<(), Fault> {
    shape(src, dst.shape())
}

/// Checks that `src` has the shape of `dst` or can be repeated to it, and lives where vector steps read.
fn repeats_to(src: &Buffer, dst: &Buffer) -> Result<(), Fault> {
    in_space(src, &[Space::Vector])?;
    let fits = |s: i64, d: i64| s == d || s == 1;
    if fits(src.rows, dst.rows) && fits(src.cols, dst.cols) {
        return Ok(());
    }
    Err(Fault::Shape { found: src.shape(), wanted: format!("{:?} or 1 in place of a size", dst.shape()) })
}
