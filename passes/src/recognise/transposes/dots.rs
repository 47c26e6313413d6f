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
