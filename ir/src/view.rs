//! Elements of tensors in other orders: multi-indices, and strided walks without one.

use crate::map_storage;
use crate::tensor::{Storage, Tensor};
use crate::types::strides;
use smallvec::SmallVec;

impl Storage {
    /// The elements at `base + Σ index·step` for every index of `shape`, in row-major order. Steps may be zero
    /// (a broadcast) or negative (a reversal); every place must be inside.
    pub fn strided(&self, base: usize, shape: &[usize], step: &[isize]) -> Storage {
        map_storage!(self, v => strided(v, base, shape, step))
    }
}

impl Tensor {
    /// The block `[start, start + size)` of every dimension.
    pub fn block(&self, start: &[usize], size: &[usize]) -> Tensor {
        let st = strides(&self.shape);
        let base = if size.contains(&0) { 0 } else { start.iter().zip(&st).map(|(s, t)| s * t).sum() };
        let step: SmallVec<[isize; 6]> = st.iter().map(|&s| s as isize).collect();
        Tensor::new(size.iter().copied(), self.data.strided(base, size, &step))
    }

    /// The elements with the dimensions in the order `dims`.
    pub fn in_order(&self, dims: &[usize]) -> Storage {
        let st = strides(&self.shape);
        let shape: SmallVec<[usize; 6]> = dims.iter().map(|&d| self.shape[d]).collect();
        let step: SmallVec<[isize; 6]> = dims.iter().map(|&d| st[d] as isize).collect();
        self.data.strided(0, &shape, &step)
    }
}

/// [`Storage::strided`] of one element type: neighbouring dimensions that run on as one are merged, and the
/// innermost one is a plain loop.
fn strided<T: Copy>(v: &[T], base: usize, shape: &[usize], step: &[isize]) -> Vec<T> {
    let n: usize = shape.iter().product();
    let mut out = Vec::with_capacity(n);
    if n == 0 {
        return out;
    }
    let mut dims: SmallVec<[(usize, isize); 6]> = SmallVec::new();
    for (&n, &s) in shape.iter().zip(step).filter(|(n, _)| **n != 1) {
        match dims.last_mut() {
            Some((m, t)) if *t == s * n as isize => (*m, *t) = (*m * n, s),
            _ => dims.push((n, s)),
        }
    }
    let (inner, by) = dims.pop().unwrap_or((1, 1));
    let mut at = base as isize;
    let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, dims.len());
    loop {
        match by {
            1 => out.extend_from_slice(&v[at as usize..][..inner]),
            0 => out.extend(std::iter::repeat_n(v[at as usize], inner)),
            _ => out.extend((0..inner as isize).map(|i| v[(at + i * by) as usize])),
        }
        let mut d = dims.len();
        loop {
            if d == 0 {
                return out;
            }
            d -= 1;
            index[d] += 1;
            at += dims[d].1;
            if index[d] < dims[d].0 {
                break;
            }
            at -= dims[d].1 * dims[d].0 as isize;
            index[d] = 0;
        }
    }
}

/// Iterates over the multi-indices of a shape in row-major order.
#[derive(Clone, Debug)]
pub struct IndexSpace {
    shape: SmallVec<[usize; 6]>,
    next: Option<SmallVec<[usize; 6]>>,
}

impl IndexSpace {
    /// All indices of `shape`; none if a dimension is zero, one (empty) for a scalar.
    pub fn new(shape: &[usize]) -> IndexSpace {
        let next = (!shape.contains(&0)).then(|| SmallVec::from_elem(0, shape.len()));
        IndexSpace { shape: shape.into(), next }
    }
}

impl Iterator for IndexSpace {
    type Item = SmallVec<[usize; 6]>;

    fn next(&mut self) -> Option<Self::Item> {
        let cur = self.next.take()?;
        let mut n = cur.clone();
        for d in (0..n.len()).rev() {
            n[d] += 1;
            if n[d] < self.shape[d] {
                self.next = Some(n);
                return Some(cur);
            }
            n[d] = 0;
        }
        Some(cur)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_walks_are_what_the_indices_say() {
        let v: Vec<i32> = (0..240).collect();
        let s = Storage::I32(v.clone());
        for (base, shape, step) in [
            (0, &[2, 3, 4][..], &[12, 4, 1][..]),
            (0, &[4, 2, 3], &[1, 12, 4]),
            (5, &[3, 1, 2, 2], &[0, 7, 2, 1]),
            (23, &[2, 3, 4], &[-12, -4, -1]),
            (11, &[3, 4], &[4, -1]),
            (7, &[], &[]),
            (0, &[3, 0], &[1, 1]),
            (2, &[5, 5], &[0, 0]),
            (239, &[1], &[900]),
            (1, &[2, 3, 2], &[60, 20, 10]),
        ] {
            let want: Vec<i32> = IndexSpace::new(shape)
                .map(|ix| {
                    let o: isize = ix.iter().zip(step).map(|(&i, s)| i as isize * s).sum();
                    v[(base as isize + o) as usize]
                })
                .collect();
            assert_eq!(s.strided(base, shape, step), Storage::I32(want), "{base} {shape:?} {step:?}");
        }
    }
}
