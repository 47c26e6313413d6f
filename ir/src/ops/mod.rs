//! The op families. One family, one file: construction, inference and verification, interpretation,
//! attributes, factor rule, local form.

pub mod barrier;
pub mod binary;
pub mod branch;
pub mod broadcast;
pub mod call;
pub mod collective;
pub mod compare;
pub mod concatenate;
pub mod constant;
pub mod convert;
pub mod dot_general;
pub mod fused;
pub mod gather;
pub(crate) mod indexing;
pub mod iota;
pub mod pad;
pub mod permute;
pub mod reduce;
pub mod reshape;
pub mod scatter;
pub mod select;
pub mod slice;
pub mod unary;
pub mod while_loop;

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

/// Checks that two types are equal.
pub(crate) fn expect_same(op: &str, a: &TensorType, b: &TensorType) -> Result<()> {
    if a == b {
        return Ok(());
    }
    Err(IrError::ty(op, format!("operands {a} and {b} should have one type")))
}
