//! Products take their matrices as they are stored: which dimension is which is theirs to say.

use super::chain::is_layout;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::{Op, Shape};

/// Lets a product take what its left (0) or right (1) operand is a transpose of by `order`; whether its result stays as
/// it is.
pub(super) fn absorb(dot: &mut DotGeneral, side: usize, order: &Shape) -> bool {
    let (batch, contract) = match side {
        0 => (&mut dot.lhs_batch, &mut dot.lhs_contract),
        _ => (&mut dot.rhs_batch, &mut dot.rhs_contract),
    };
    // The result has the other dimensions in their order.
    let free = (0..order.len()).filter(|d| !batch.contains(d) && !contract.contains(d));
    let stays = free.map(|d| order[d]).is_sorted();
    if stays {
        batch.iter_mut().chain(contract).for_each(|d| *d = order[*d]);
    }
    stays
}

/// For each dimension of a shape the dimensions of another, of as many elements in the same order, that are merged into it;
/// `None` if one of those is cut.
pub(super) fn merged(from: &[usize], to: &[usize]) -> Option<Vec<Vec<usize>>> {
    let mut next = 0;
    let mut out: Vec<Vec<usize>> = Vec::new();
    for &n in to {
        let (mut dims, mut size) = (Vec::new(), 1);
        while size < n {
            size *= *from.get(next)?;
            dims.push(next);
            next += 1;
        }
        if size != n {
            return None;
        }
        out.push(dims);
    }
    // What is left has size 1.
    out.last_mut()?.extend(next..from.len());
    (from[next..].iter().all(|&n| n == 1)).then_some(out)
}

/// As [`merged`], of a shape from itself.
pub(super) fn apart(rank: usize) -> Vec<Vec<usize>> {
    (0..rank).map(|d| vec![d]).collect()
}

/// The product of matrices whose dimensions are merged of those of others, of the `shapes`, as the product of those; and
/// whether its result has the same dimensions. `None` if the two disagree in what they share.
pub(super) fn split(
    dot: &DotGeneral,
    merged: [&[Vec<usize>]; 2],
    shapes: [&[usize]; 2],
) -> Option<(DotGeneral, bool)> {
    let shared = |l: &Shape, r: &Shape| {
        let sizes = |side: usize, d: usize| merged[side][d].iter().map(move |&d| shapes[side][d]);
        l.iter().zip(r).all(|(&l, &r)| sizes(0, l).eq(sizes(1, r)))
    };
    let of = |side: usize, dims: &Shape| dims.iter().flat_map(|&d| merged[side][d].iter().copied()).collect();
    let agree = shared(&dot.lhs_batch, &dot.rhs_batch) && shared(&dot.lhs_contract, &dot.rhs_contract);
    let kept = |side: usize, contract: &Shape| {
        let left = (0..merged[side].len()).filter(|d| !contract.contains(d));
        left.into_iter().all(|d| merged[side][d].len() == 1)
    };
    let same = kept(0, &dot.lhs_contract) && kept(1, &dot.rhs_contract);
    agree.then(|| {
        let dot = DotGeneral {
            lhs_batch: of(0, &dot.lhs_batch),
            rhs_batch: of(1, &dot.rhs_batch),
            lhs_contract: of(0, &dot.lhs_contract),
            rhs_contract: of(1, &dot.rhs_contract),
            dtype: dot.dtype,
        };
        (dot, same)
    })
}

/// The product with its matrices exchanged, if `order` transposes its result, of rank `rank`, into that one's.
pub(super) fn turned(dot: &DotGeneral, ranks: [usize; 2], order: &Shape) -> Option<DotGeneral> {
    let batch = dot.lhs_batch.len();
    let free = ranks.map(|r| r - batch - dot.lhs_contract.len());
    let right = batch + free[0]..batch + free[0] + free[1];
    let want = (0..batch).chain(right).chain(batch..batch + free[0]);
    (free.iter().all(|&n| n > 0) && want.eq(order.iter().copied())).then(|| DotGeneral {
        lhs_batch: dot.rhs_batch.clone(),
        rhs_batch: dot.lhs_batch.clone(),
        lhs_contract: dot.rhs_contract.clone(),
        rhs_contract: dot.lhs_contract.clone(),
        dtype: dot.dtype,
    })
}

/// Whether an op is dropped where nothing needs it any more.
pub(super) fn may_go(op: &Op) -> bool {
    is_layout(op) || matches!(op, Op::DotGeneral(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_ir::DType;

    fn shape(d: &[usize]) -> Shape {
        Shape::from_slice(d)
    }

    fn dot(lhs: (&[usize], &[usize]), rhs: (&[usize], &[usize])) -> DotGeneral {
        DotGeneral {
            lhs_batch: shape(lhs.0),
            rhs_batch: shape(rhs.0),
            lhs_contract: shape(lhs.1),
            rhs_contract: shape(rhs.1),
            dtype: DType::F32,
        }
    }

    #[test]
    fn transposes_are_absorbed_where_the_result_stays() {
        let mut d = dot((&[], &[2]), (&[], &[0]));
        assert!(absorb(&mut d, 1, &shape(&[1, 0])));
        assert_eq!(d, dot((&[], &[2]), (&[], &[1])));
        // Two free dimensions change places: the result would, too.
        assert!(!absorb(&mut d, 0, &shape(&[1, 0, 2])));
        assert!(absorb(&mut d, 0, &shape(&[0, 2, 1])));
        assert_eq!(d, dot((&[], &[1]), (&[], &[1])));
        // Batch dimensions are named.
        let mut d = dot((&[0, 1], &[3]), (&[0, 1], &[3]));
        assert!(absorb(&mut d, 0, &shape(&[0, 2, 1, 3])));
        assert_eq!(d, dot((&[0, 2], &[3]), (&[0, 1], &[3])));
    }

    #[test]
    fn rows_may_have_more_than_one_dimension() {
        assert_eq!(merged(&[4, 6, 5], &[24, 5]), Some(vec![vec![0, 1], vec![2]]));
        assert_eq!(merged(&[4, 1, 5], &[4, 5]), Some(vec![vec![0], vec![1, 2]]));
        assert_eq!(merged(&[4, 5, 1], &[4, 5]), Some(vec![vec![0], vec![1, 2]]));
        assert_eq!(merged(&[24, 5], &[4, 6, 5]), None);
        assert_eq!(merged(&[4, 6], &[6, 4]), None);
        let (rows, plain) = (merged(&[4, 6, 5], &[24, 5]).expect("merges"), apart(2));
        // Rows times a matrix: the result has rows in two dimensions, too.
        let d = dot((&[], &[1]), (&[], &[0]));
        let (with_rows, same) = split(&d, [&rows, &plain], [&[4, 6, 5], &[5, 7]]).expect("splits");
        assert_eq!((with_rows, same), (dot((&[], &[2]), (&[], &[0])), false));
        // Summed over rows: both have them in the same two.
        let d = dot((&[], &[0]), (&[], &[0]));
        let (over_rows, same) = split(&d, [&rows, &rows], [&[4, 6, 5], &[4, 6, 5]]).expect("splits");
        assert_eq!((over_rows, same), (dot((&[], &[0, 1]), (&[], &[0, 1])), true));
        assert_eq!(split(&d, [&rows, &plain], [&[4, 6, 5], &[24, 5]]), None);
        assert_eq!(split(&d, [&rows, &rows], [&[4, 6, 5], &[6, 4, 5]]), None);
    }

    #[test]
    fn a_product_is_turned() {
        let d = dot((&[], &[0]), (&[], &[1]));
        assert_eq!(turned(&d, [2, 2], &shape(&[1, 0])), Some(dot((&[], &[1]), (&[], &[0]))));
        assert_eq!(turned(&d, [3, 2], &shape(&[2, 0, 1])), Some(dot((&[], &[1]), (&[], &[0]))));
        assert_eq!(turned(&d, [3, 2], &shape(&[1, 0, 2])), None);
        let d = dot((&[1], &[2]), (&[0], &[2]));
        assert_eq!(turned(&d, [3, 3], &shape(&[0, 2, 1])), Some(dot((&[0], &[2]), (&[1], &[2]))));
        assert_eq!(turned(&d, [3, 2], &shape(&[0, 1])), None);
    }
}
