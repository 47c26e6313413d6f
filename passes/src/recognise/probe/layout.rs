//! Layout between a value of the program and an operand or result of a named op, in terms of atoms
//! ([`msc_ir::factor::solve`]): which dimensions of the one are which of the other.

use msc_ir::factor::solve::{AtomId, AtomList};
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reshape::Reshape;
use msc_ir::{Op, Shape};

/// The layout ops, first to last, that bring a tensor whose dimensions consist of `from` to dimensions that
/// consist of `to`; `None` if the atoms are not the same. `size` gives each atom's size.
pub fn arrange(
    shape: &[usize],
    from: &[AtomList],
    to: &[AtomList],
    size: impl Fn(AtomId) -> usize,
) -> Option<Vec<Op>> {
    let have: Vec<AtomId> = from.iter().flatten().copied().collect();
    let want: Vec<AtomId> = to.iter().flatten().copied().collect();
    let place = |a: &AtomId| have.iter().position(|x| x == a);
    if have.len() != want.len() || (1..have.len()).any(|i| have[i..].contains(&have[i - 1])) {
        return None;
    }
    let order: Vec<usize> = want.iter().map(place).collect::<Option<_>>()?;
    // Runs of atoms that stay together move as one dimension.
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for &at in &order {
        match blocks.last_mut() {
            Some((start, n)) if *start + *n == at => *n += 1,
            _ => blocks.push((at, 1)),
        }
    }
    let block_size =
        |&(start, n): &(usize, usize)| have[start..start + n].iter().map(|&a| size(a)).product::<usize>();
    let mut sorted = blocks.clone();
    sorted.sort_unstable();
    let target: Shape = to.iter().map(|l| l.iter().map(|&a| size(a)).product::<usize>()).collect();
    let mut ops = Vec::new();
    let mut at: Shape = Shape::from_slice(shape);
    if !blocks.is_sorted() {
        // A transpose of the dimensions as they are, where no dimension is cut.
        let whole = whole_dims(from, &blocks);
        match whole {
            Some(permutation) => {
                at = permutation.iter().map(|&d| shape[d]).collect();
                ops.push(Permute::Transpose(permutation).into());
            }
            None => {
                let split: Shape = sorted.iter().map(block_size).collect();
                if split != at {
                    ops.push(Op::Reshape(Reshape { shape: split }));
                }
                let permutation: Shape =
                    blocks.iter().filter_map(|b| sorted.iter().position(|s| s == b)).collect();
                at = blocks.iter().map(block_size).collect();
                ops.push(Permute::Transpose(permutation).into());
            }
        }
    }
    if at != target {
        ops.push(Op::Reshape(Reshape { shape: target }));
    }
    Some(ops)
}

/// Whether a tensor whose dimensions consist of `from` has a layout whose dimensions consist of `to`.
pub fn fits(from: &[AtomList], to: &[AtomList]) -> bool {
    arrange(&vec![1; from.len()], from, to, |_| 1).is_some()
}

/// The permutation of dimensions that moves `blocks` into their order, if each block is whole dimensions.
fn whole_dims(from: &[AtomList], blocks: &[(usize, usize)]) -> Option<Shape> {
    let mut start = 0;
    let starts: Vec<usize> = from
        .iter()
        .map(|l| {
            start += l.len();
            start - l.len()
        })
        .collect();
    let mut out = Shape::new();
    for &(first, n) in blocks {
        let mut at = first;
        while at < first + n {
            let d = (0..from.len()).find(|&d| starts[d] == at && !from[d].is_empty())?;
            out.push(d);
            at += from[d].len();
        }
        if at != first + n {
            return None;
        }
    }
    // Dimensions of size 1 go last.
    out.extend((0..from.len()).filter(|&d| from[d].is_empty()));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(l: &[&[u32]]) -> Vec<AtomList> {
        l.iter().map(|l| l.iter().map(|&a| AtomId(a)).collect()).collect()
    }

    fn ops(shape: &[usize], from: &[&[u32]], to: &[&[u32]]) -> Option<Vec<Op>> {
        arrange(shape, &lists(from), &lists(to), |a| a.0 as usize)
    }

    #[test]
    fn as_few_ops_as_possible() {
        let transpose = |p: &[usize]| Op::from(Permute::Transpose(Shape::from_slice(p)));
        let reshape = |s: &[usize]| Op::from(Reshape { shape: Shape::from_slice(s) });
        assert_eq!(ops(&[2, 3], &[&[2], &[3]], &[&[2], &[3]]), Some(vec![]));
        assert_eq!(ops(&[6, 5], &[&[2, 3], &[5]], &[&[2], &[3], &[5]]), Some(vec![reshape(&[2, 3, 5])]));
        assert_eq!(
            ops(&[2, 3, 5, 7], &[&[2], &[3], &[5], &[7]], &[&[2], &[5], &[3], &[7]]),
            Some(vec![transpose(&[0, 2, 1, 3])])
        );
        // [B,S,(H,h)] to [B,H,S,h].
        assert_eq!(
            ops(&[2, 3, 35], &[&[2], &[3], &[5, 7]], &[&[2], &[5], &[3], &[7]]),
            Some(vec![reshape(&[2, 3, 5, 7]), transpose(&[0, 2, 1, 3])])
        );
        // A dimension of size 1 is dropped.
        assert_eq!(
            ops(&[3, 1, 2], &[&[3], &[], &[2]], &[&[2], &[3]]),
            Some(vec![transpose(&[2, 0, 1]), reshape(&[2, 3])])
        );
        assert_eq!(ops(&[2, 3], &[&[2], &[3]], &[&[2]]), None);
        assert_eq!(ops(&[2, 2], &[&[2], &[2]], &[&[2], &[2]]), None);
    }
}
