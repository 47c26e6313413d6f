//! One-hot encodings: indices that are compared with all that they may be.

use super::known::Known;
use super::program::{Index, Program};
use msc_ir::Op;
use msc_ir::ops::compare::Direction;

/// An equality of integers with all that they may be: the dimension along which those are counted, and the integers.
pub fn one_hot(p: &Program<'_>, is: Index) -> Option<(usize, Index)> {
    let Some(Op::Compare(c)) = p.op(is) else { return None };
    let &[a, b] = p.values[is].operands.as_slice() else { return None };
    if c.direction != Direction::Eq || !p.values[a].ty.dtype.is_int() {
        return None;
    }
    match (index_dim(p, a), index_dim(p, b)) {
        (None, Some(d)) => Some((d, behind_layout(p, a))),
        (Some(d), None) => Some((d, behind_layout(p, b))),
        _ => None,
    }
}

/// The dimension along which a value is the index, through broadcasts and reshapes that keep sizes.
pub fn index_dim(p: &Program<'_>, mut i: Index) -> Option<usize> {
    let mut through = Vec::new();
    let mut d = loop {
        match (p.op(i), p.values[i].known) {
            (Some(Op::Iota(x)), _) => break x.dim,
            (None, Some(Known::Index(d))) => break d,
            (Some(Op::Broadcast(_) | Op::Convert(_) | Op::Reshape(_)), _) => {
                through.push(i);
                i = *p.values[i].operands.first()?;
            }
            _ => return None,
        }
    };
    // From the index to the value.
    for &i in through.iter().rev() {
        d = match p.op(i)? {
            Op::Broadcast(b) => *b.dims.get(d)?,
            Op::Reshape(r) => {
                let n = p.values[p.values[i].operands[0]].ty.shape[d];
                let mut same = (0..r.shape.len()).filter(|&d| r.shape[d] == n);
                same.next().filter(|_| same.next().is_none() && n > 1)?
            }
            _ => d,
        };
    }
    Some(d)
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
