//! One-hot encodings: indices that are compared with all that they may be.

use super::known::Known;
use super::program::{Index, Program};
use msc_ir::Op;

/// The dimension along which a value is the index, through broadcasts and reshapes that keep sizes.
pub fn index_dim(p: &Program<'_>, i: Index) -> Option<usize> {
    match (p.op(i), p.values[i].known) {
        (Some(Op::Iota(x)), _) => Some(x.dim),
        (Some(Op::Broadcast(b)), _) => {
            let d = index_dim(p, p.values[i].operands[0])?;
            b.dims.get(d).copied()
        }
        (Some(Op::Convert(_)), _) => index_dim(p, p.values[i].operands[0]),
        (Some(Op::Reshape(r)), _) => {
            let from = p.values[i].operands[0];
            let d = index_dim(p, from)?;
            let n = p.values[from].ty.shape[d];
            let mut same = (0..r.shape.len()).filter(|&d| r.shape[d] == n);
            same.next().filter(|_| same.next().is_none() && n > 1)
        }
        (None, Some(Known::Index(d))) => Some(d),
        _ => None,
    }
}

/// What a value is under another layout, or as another type of integers.
pub fn behind_layout(p: &Program<'_>, mut i: Index) -> Index {
    let is_int = |i: Index| p.values[i].ty.dtype.is_int();
    while let Some(&from) = p.values[i].operands.first() {
        let widened = matches!(p.op(i), Some(Op::Convert(_))) && is_int(i) && is_int(from);
        if !p.values[i].is_layout() && !widened {
            break;
        }
        i = from;
    }
    i
}
