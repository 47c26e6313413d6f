//! Whether blocks of a tensor hold each of its elements once.
//!
//! The borders of all blocks cut every dimension; each cell of that grid is in a block as a whole or not at all, so it
//! is enough to count cells.

use msc_ir::Shape;
use msc_ir::tensor::IndexSpace;
use std::collections::BTreeSet;

/// Most cells that are counted: more than any mesh makes of a tensor, and little memory.
const MAX_CELLS: usize = 1 << 22;

/// A box of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Where it begins, per dimension.
    pub start: Shape,
    /// How long it is, per dimension.
    pub size: Shape,
}

impl Place {
    /// The whole of a tensor of this shape.
    pub fn whole(shape: &[usize]) -> Place {
        Place { start: shape.iter().map(|_| 0).collect(), size: shape.iter().copied().collect() }
    }

    /// Whether it lies in a tensor of this shape.
    pub fn fits(&self, shape: &[usize]) -> bool {
        let inside = |((s, n), d): ((&usize, &usize), &usize)| s.checked_add(*n).is_some_and(|end| end <= *d);
        self.start.len() == shape.len()
            && self.size.len() == shape.len()
            && self.start.iter().zip(&self.size).zip(shape).all(inside)
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.size.contains(&0)
    }

    /// What two boxes have in common.
    pub fn common(&self, other: &Place) -> Option<Place> {
        let mut out = Place { start: Shape::new(), size: Shape::new() };
        for d in 0..self.start.len() {
            let start = self.start[d].max(other.start[d]);
            let end = (self.start[d] + self.size[d]).min(other.start[d] + other.size[d]);
            out.start.push(start);
            out.size.push(end.checked_sub(start).filter(|n| *n > 0)?);
        }
        Some(out)
    }
}

impl std::fmt::Display for Place {
    /// As slices: `[0:4, 8:16]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims = self.start.iter().zip(&self.size).map(|(s, n)| format!("{s}:{}", s + n));
        write!(f, "[{}]", dims.collect::<Vec<_>>().join(", "))
    }
}

/// What is wrong with blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing holds this part.
    Gap(Place),
    /// Two blocks, by number, hold this part.
    Overlap(usize, usize, Place),
    /// The blocks' borders do not form a grid of a size that is read.
    TooIrregular,
}

/// Checks blocks that fit a tensor of this shape.
///
/// # Errors
/// The first fault, in row-major order.
pub fn covered_once(shape: &[usize], blocks: &[Place]) -> Result<(), Fault> {
    if shape.contains(&0) {
        return Ok(());
    }
    let blocks: Vec<(usize, &Place)> = blocks.iter().enumerate().filter(|(_, b)| !b.is_empty()).collect();
    let cuts: Vec<Vec<usize>> = (0..shape.len())
        .map(|d| {
            let ends = blocks.iter().flat_map(|(_, b)| [b.start[d], b.start[d] + b.size[d]]);
            ends.chain([0, shape[d]]).collect::<BTreeSet<usize>>().into_iter().collect()
        })
        .collect();
    let sizes: Vec<usize> = cuts.iter().map(|c| c.len() - 1).collect();
    let cells = sizes.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).filter(|&n| n <= MAX_CELLS);
    let Some(cells) = cells else { return Err(Fault::TooIrregular) };
    let cell = |ix: &[usize]| Place {
        start: ix.iter().zip(&cuts).map(|(i, c)| c[*i]).collect(),
        size: ix.iter().zip(&cuts).map(|(i, c)| c[i + 1] - c[*i]).collect(),
    };
    let mut owner: Vec<Option<usize>> = vec![None; cells];
    for (n, b) in blocks {
        let at = |d: usize, x: usize| cuts[d].partition_point(|c| *c < x);
        let first: Vec<usize> = (0..shape.len()).map(|d| at(d, b.start[d])).collect();
        let count: Vec<usize> = (0..shape.len()).map(|d| at(d, b.start[d] + b.size[d]) - first[d]).collect();
        for ix in IndexSpace::new(&count) {
            let ix: Vec<usize> = ix.iter().zip(&first).map(|(i, f)| i + f).collect();
            let index = ix.iter().zip(&sizes).fold(0, |a, (i, n)| a * n + i);
            if let Some(other) = owner[index].replace(n) {
                return Err(Fault::Overlap(other, n, cell(&ix)));
            }
        }
    }
    match owner.iter().position(Option::is_none) {
        None => Ok(()),
        Some(gap) => {
            let mut rest = gap;
            let mut ix: Vec<usize> = vec![0; sizes.len()];
            for d in (0..sizes.len()).rev() {
                ix[d] = rest % sizes[d];
                rest /= sizes[d];
            }
            Err(Fault::Gap(cell(&ix)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dims: &[(usize, usize)]) -> Place {
        Place { start: dims.iter().map(|d| d.0).collect(), size: dims.iter().map(|d| d.1).collect() }
    }

    #[test]
    fn each_element_once() {
        let quarters = [(0, 0), (0, 3), (4, 0), (4, 3)].map(|(a, b)| place(&[(a, 4), (b, 3)]));
        assert_eq!(covered_once(&[8, 6], &quarters), Ok(()));
        assert_eq!(covered_once(&[8, 6], &quarters[..3]), Err(Fault::Gap(place(&[(4, 4), (3, 3)]))));
        let mut twice = quarters.to_vec();
        twice.push(place(&[(3, 2), (0, 1)]));
        assert_eq!(covered_once(&[8, 6], &twice), Err(Fault::Overlap(0, 4, place(&[(3, 1), (0, 1)]))));
        // Unequal parts, one of them empty.
        let bricks = [
            place(&[(0, 5), (0, 6)]),
            place(&[(5, 3), (0, 2)]),
            place(&[(5, 3), (2, 4)]),
            place(&[(5, 0), (0, 6)]),
        ];
        assert_eq!(covered_once(&[8, 6], &bricks), Ok(()));
        assert_eq!(covered_once(&[], &[]), Err(Fault::Gap(place(&[]))));
        assert_eq!(covered_once(&[], &[place(&[])]), Ok(()));
        assert_eq!(covered_once(&[0, 3], &[]), Ok(()));
        let dust: Vec<Place> = (0..3000).map(|i| place(&[(i, 1), (i, 1)])).collect();
        assert_eq!(covered_once(&[3000, 3000], &dust), Err(Fault::TooIrregular));
    }

    #[test]
    fn boxes() {
        let (a, b) = (place(&[(0, 4), (2, 4)]), place(&[(3, 5), (0, 3)]));
        assert_eq!(a.common(&b), Some(place(&[(3, 1), (2, 1)])));
        assert_eq!(a.common(&place(&[(4, 1), (2, 1)])), None);
        assert_eq!(a.to_string(), "[0:4, 2:6]");
        assert!(
            a.fits(&[4, 6]) && !a.fits(&[4, 5]) && !a.fits(&[4]) && !place(&[(usize::MAX, 2)]).fits(&[3])
        );
    }
}
