//! Tensors of the outside as a partitioned entry holds them.

use crate::outside::Held;
use crate::{Storage, Tensor};

/// Tensors of the outside as an entry of `slots` tensors holds them.
///
/// # Panics
/// If the members of a stack are not of one type.
pub fn stacked(held: &[Held], slots: usize, tensors: &[Tensor]) -> Vec<Tensor> {
    let mut members: Vec<Vec<(Option<usize>, &Tensor)>> = vec![Vec::new(); slots];
    for (h, t) in held.iter().zip(tensors) {
        members[h.slot].push((h.member, t));
    }
    let whole = |mut list: Vec<(Option<usize>, &Tensor)>| {
        list.sort_by_key(|(m, _)| *m);
        let first = list[0].1;
        if list[0].0.is_none() {
            return first.clone();
        }
        assert!(list.iter().all(|(_, t)| t.ty() == first.ty()));
        let bytes: Vec<u8> = list.iter().flat_map(|(_, t)| t.data.bytes().to_vec()).collect();
        let shape = std::iter::once(list.len()).chain(first.shape.iter().copied());
        Tensor::new(shape, Storage::from_bytes(first.dtype(), &bytes))
    };
    members.into_iter().map(whole).collect()
}
