//! Chains of ops that only move elements, made as short as they can be.

use super::super::probe::layout::arrange;
use msc_ir::factor::solve::{AtomList, Atoms};
use msc_ir::ops::permute::Permute;
use msc_ir::{Graph, LocId, Module, Op, TensorType, ValueId};

/// Whether an op only moves elements, or only gives them another shape.
pub(super) fn is_layout(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Permute(Permute::Transpose(_)))
}

/// How many elements a layout op on so many moves. Another shape for the same elements in the same order moves none.
pub(super) fn moved(op: &Op, elements: usize) -> usize {
    if matches!(op, Op::Permute(_)) { elements } else { 0 }
}

fn all(ops: &[Op], elements: usize) -> (usize, usize) {
    (ops.iter().map(|op| moved(op, elements)).sum(), ops.len())
}

/// Fewer or cheaper layout ops that do the same to a value of this type; `None` if there are none.
pub(super) fn shorter(module: &Module, ty: &TensorType, ops: &[Op]) -> Option<Vec<Op>> {
    let mut g = Graph::new("chain");
    let from = g.add_param(ty.clone());
    let to = ops.iter().try_fold(from, |v, op| g.add1(module, op.clone(), &[v], LocId::UNKNOWN)).ok()?;
    let atoms = Atoms::solve(module, &g);
    if g.order().iter().any(|&op| atoms.is_torn_in(0, op)) {
        return None;
    }
    let dims = |v: ValueId| -> Vec<AtomList> { (0..g.ty(v).rank()).map(|d| atoms.dim(v, d)).collect() };
    let new = arrange(&ty.shape, &dims(from), &dims(to), |a| atoms.size(a))?;
    (all(&new, ty.elements()) < all(ops, ty.elements())).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_ir::ops::reshape::Reshape;
    use msc_ir::{DType, Shape};

    fn transpose(p: &[usize]) -> Op {
        Permute::Transpose(Shape::from_slice(p)).into()
    }

    fn reshape(s: &[usize]) -> Op {
        Reshape { shape: Shape::from_slice(s) }.into()
    }

    fn of(shape: &[usize], ops: &[Op]) -> Option<Vec<Op>> {
        shorter(&Module::new("m"), &TensorType::new(DType::F32, shape.iter().copied()), ops)
    }

    #[test]
    fn transposes_cancel() {
        let heads = transpose(&[0, 2, 1, 3]);
        assert_eq!(of(&[2, 3, 5, 7], &[heads.clone(), heads.clone()]), Some(vec![]));
        assert_eq!(
            of(&[2, 3, 35], &[reshape(&[2, 3, 5, 7]), heads.clone(), heads.clone()]),
            Some(vec![reshape(&[2, 3, 5, 7])])
        );
        // Grouped heads: [B,S,(K,G),h] by way of [B,K,G,S,h].
        let grouped = [heads.clone(), reshape(&[2, 5, 2, 3, 7]), transpose(&[0, 3, 1, 2, 4])];
        assert_eq!(of(&[2, 3, 10, 7], &grouped), Some(vec![reshape(&[2, 3, 5, 2, 7])]));
        // One head: nothing moves.
        assert_eq!(of(&[2, 3, 1, 7], &[heads]), Some(vec![reshape(&[2, 1, 3, 7])]));
    }

    #[test]
    fn what_is_short_stays() {
        let heads = transpose(&[0, 2, 1, 3]);
        assert_eq!(of(&[2, 3, 5, 7], std::slice::from_ref(&heads)), None);
        assert_eq!(of(&[2, 3, 35], &[reshape(&[2, 3, 5, 7]), heads]), None);
        assert_eq!(of(&[4, 6], &[reshape(&[6, 4])]), None);
        // No common refinement: both stay.
        assert_eq!(of(&[4, 6], &[reshape(&[6, 4]), transpose(&[1, 0])]), None);
    }
}
