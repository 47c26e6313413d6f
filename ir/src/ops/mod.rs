//! The op families. One family, one file: construction, inference and verification, interpretation,
//! attributes, factor rule, local form.

pub mod attention;
pub mod barrier;
pub mod batch_norm;
pub mod binary;
pub mod branch;
pub mod broadcast;
pub mod call;
pub mod collective;
pub mod compare;
pub mod concatenate;
pub mod constant;
pub mod convert;
pub mod convolution;
pub mod dot_general;
pub mod fused;
pub mod gather;
pub(crate) mod indexing;
pub mod iota;
pub mod map;
pub mod pad;
pub mod permute;
pub mod precision;
pub mod reduce;
pub mod reduce_by;
pub mod reducer;
pub mod reshape;
pub mod reshard;
pub mod rng;
pub mod scatter;
pub mod scatter_by;
pub mod select;
pub mod slice;
pub mod sort;
pub mod triangular;
pub mod unary;
pub mod while_loop;
pub mod window;

use crate::error::{IrError, Result};
use crate::types::TensorType;

/// Checks the operand count of op `op`.
pub(crate) fn expect_operands(op: &str, operands: &[&TensorType], n: usize) -> Result<()> {
    if operands.len() == n {
        return Ok(());
    }
    Err(IrError::ty(op, format!("takes {n} operands, has {}", operands.len())))
}

/// Checks that dimension numbers are distinct and below `rank`.
pub(crate) fn expect_dims(op: &str, attribute: &str, dims: &[usize], rank: usize) -> Result<()> {
    for (i, d) in dims.iter().enumerate() {
        if *d >= rank {
            return Err(IrError::attr(op, attribute, format!("dimension {d} of a tensor of rank {rank}")));
        }
        if dims[..i].contains(d) {
            return Err(IrError::attr(op, attribute, format!("dimension {d} is named twice")));
        }
    }
    Ok(())
}

/// Padding beyond this makes no tensor that fits in memory, and sums of less cannot overflow.
const MAX_PADDING: u64 = 1 << 40;

/// Checks that padding and interior padding are of a size that index arithmetic can hold.
pub(crate) fn expect_padding(op: &str, low: &[i64], high: &[i64], interior: &[usize]) -> Result<()> {
    let sizes = low.iter().chain(high).map(|p| p.unsigned_abs()).chain(interior.iter().map(|&p| p as u64));
    match sizes.into_iter().find(|&p| p > MAX_PADDING) {
        Some(p) => Err(IrError::attr(op, "low", format!("a padding of {p} elements is out of range"))),
        None => Ok(()),
    }
}

/// Checks that two types are equal.
pub(crate) fn expect_same(op: &str, a: &TensorType, b: &TensorType) -> Result<()> {
    if a == b {
        return Ok(());
    }
    Err(IrError::ty(op, format!("operands {a} and {b} should have one type")))
}
