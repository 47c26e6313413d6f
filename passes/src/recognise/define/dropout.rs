//! Dropout with a given mask (Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Divide, Multiply};
use msc_ir::ops::fused::Scalar;
use msc_ir::ops::select::Select;
use msc_ir::{DType, Graph, IrError, Module, Result, TensorType};

/// `x, mask → y` with `y = x·scale`, or `x/scale` where `divides`, where the mask is true, and 0 elsewhere.
///
/// # Errors
/// If the types do not fit.
pub fn dropout(module: &mut Module, types: &[TensorType], scale: Scalar, divides: bool) -> Result<Graph> {
    let [x, mask] = types else {
        return Err(IrError::ty("dropout", format!("takes 2 operands, has {}", types.len())));
    };
    if !x.dtype.is_float() || *mask != x.with_dtype(DType::I1) {
        return Err(IrError::ty("dropout", format!("{mask} is no mask of {x}")));
    }
    let mut d = Definition::new(module, "dropout");
    let (v, keep) = (d.param(x), d.param(mask));
    let scale = d.splat(x.clone(), scale.get())?;
    let scaled = d.op(if divides { Divide } else { Multiply }, &[v, scale])?;
    let zero = d.splat(x.clone(), 0.0)?;
    let y = d.op(Select::Select, &[keep, scaled, zero])?;
    Ok(d.finish(vec![y]))
}
