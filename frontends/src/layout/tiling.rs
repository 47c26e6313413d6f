//! How a tensor is tiled over numbered devices, whatever spelled it, and the mesh that several tilings share.
//!
//! A device's number is written in a mixed radix; a *digit* is one place of it. Axes of a mesh are digits, and so
//! are the tiles of a GSPMD string. Two spellings of one layout give the same digits.

use msc_ir::module::AxisId;
use std::collections::BTreeSet;

/// A place of the device number: `number / stride % size`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Digit {
    /// What the places to the right of it count up to.
    pub stride: usize,
    /// How many values it takes, at least 2.
    pub size: usize,
}

/// A tensor over devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tiling {
    /// For each dimension the digits that number its blocks, most significant first.
    pub dims: Vec<Vec<Digit>>,
    /// For each dimension whether it may be split further.
    pub open: Vec<bool>,
}

impl Tiling {
    /// Whether every device holds the whole tensor.
    pub fn is_whole(&self) -> bool {
        self.dims.iter().all(Vec::is_empty)
    }

    /// Whether nothing is said: every dimension is whole and may be split.
    pub fn is_free(&self) -> bool {
        self.is_whole() && !self.open.is_empty() && self.open.iter().all(|o| *o)
    }
}

/// The digits of a row-major array of devices, outermost dimension first.
pub(super) fn row_major(sizes: &[usize]) -> Vec<Digit> {
    let mut stride: usize = sizes.iter().product();
    sizes
        .iter()
        .map(|&size| {
            stride /= size.max(1);
            Digit { stride, size }
        })
        .collect()
}

/// Deals `digits`, most significant first, out to dimensions of these many tiles. `None` where a dimension would
/// need a part of a digit that is no place of its own.
pub(super) fn deal(digits: &[Digit], tiles: &[usize]) -> Option<Vec<Vec<Digit>>> {
    let mut rest = digits.iter().copied().filter(|d| d.size > 1);
    let mut current: Option<Digit> = None;
    let mut out = Vec::new();
    for &tile in tiles {
        let mut dim = Vec::new();
        let mut need = tile;
        while need > 1 {
            let d = current.take().or_else(|| rest.next())?;
            if need.is_multiple_of(d.size) {
                dim.push(d);
                need /= d.size;
            } else if d.size.is_multiple_of(need) {
                let low = d.size / need;
                dim.push(Digit { stride: d.stride * low, size: need });
                current = Some(Digit { stride: d.stride, size: low });
                need = 1;
            } else {
                return None;
            }
        }
        out.push(dim);
    }
    Some(out)
}

/// The digits of a list of device numbers, most significant first, if the list counts through them.
pub(super) fn of_list(list: &[usize]) -> Option<Vec<Digit>> {
    let mut digits = Vec::new();
    let mut step = 1;
    // Every number once: only then the strides are places of one number.
    let distinct: BTreeSet<usize> = list.iter().copied().collect();
    if list.first() != Some(&0) || distinct.len() != list.len() || distinct.last() != Some(&(list.len() - 1))
    {
        return None;
    }
    while step < list.len() {
        let stride = list[step];
        let mut size = 2;
        while step * size < list.len() && list[step * size] == stride * size {
            size += 1;
        }
        if !list.len().is_multiple_of(step * size) {
            return None;
        }
        digits.push(Digit { stride, size });
        step *= size;
    }
    digits.reverse();
    let counted = (0..list.len()).all(|n| {
        let mut rest = n;
        let value: usize = digits
            .iter()
            .rev()
            .map(|d| {
                let digit = rest % d.size;
                rest /= d.size;
                digit * d.stride
            })
            .sum();
        list[n] == value
    });
    counted.then_some(digits)
}

/// The coarsest places that tilings have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Places {
    /// Borders between places: each divides the next; the first is 1, the last the number of devices.
    borders: Vec<usize>,
}

impl Places {
    /// One place for all devices.
    pub fn new(devices: usize) -> Places {
        Places { borders: if devices > 1 { vec![1, devices] } else { vec![1] } }
    }

    /// Cuts places where these digits begin and end. False, and nothing is cut, where they fit no place.
    pub fn cut(&mut self, digits: impl IntoIterator<Item = Digit>) -> bool {
        let mut all: BTreeSet<usize> = self.borders.iter().copied().collect();
        all.extend(digits.into_iter().flat_map(|d| [d.stride, d.stride * d.size]));
        let borders: Vec<usize> = all.into_iter().collect();
        let devices = self.borders.last().copied().unwrap_or(1);
        let fit = borders.first() == Some(&1)
            && borders.last() == Some(&devices)
            && borders.windows(2).all(|w| w[1].is_multiple_of(w[0]));
        if fit {
            self.borders = borders;
        }
        fit
    }

    /// The places, most significant first: the axes of the common mesh.
    pub fn digits(&self) -> Vec<Digit> {
        self.borders.windows(2).rev().map(|w| Digit { stride: w[0], size: w[1] / w[0] }).collect()
    }

    /// The axes that make up a digit, outermost first. The digit's own borders have been cut.
    pub fn axes(&self, digit: Digit) -> Vec<AxisId> {
        let inside = |d: &Digit| d.stride >= digit.stride && d.stride < digit.stride * digit.size;
        let all = self.digits();
        all.iter().enumerate().filter(|(_, d)| inside(d)).map(|(i, _)| AxisId(i as u8)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digit(stride: usize, size: usize) -> Digit {
        Digit { stride, size }
    }

    #[test]
    fn digits_are_dealt_whole_or_in_parts() {
        assert_eq!(deal(&row_major(&[8]), &[2, 4]), Some(vec![vec![digit(4, 2)], vec![digit(1, 4)]]));
        // [2,4] transposed: the fast place comes first.
        let [slow, fast] = row_major(&[2, 4])[..] else { panic!("two digits") };
        assert_eq!(deal(&[fast, slow], &[4, 1, 2]), Some(vec![vec![digit(1, 4)], vec![], vec![digit(4, 2)]]));
        assert_eq!(deal(&[fast, slow], &[8]), Some(vec![vec![digit(1, 4), digit(4, 2)]]));
        assert_eq!(deal(&row_major(&[6]), &[4]), None);
        assert_eq!(deal(&row_major(&[4]), &[8]), None);
    }

    #[test]
    fn lists_of_devices_are_counted_through() {
        assert_eq!(of_list(&[0, 1, 2, 3]), Some(vec![digit(1, 4)]));
        assert_eq!(of_list(&[0, 2, 4, 6, 1, 3, 5, 7]), Some(vec![digit(1, 2), digit(2, 4)]));
        assert_eq!(of_list(&[0, 4, 1, 5, 2, 6, 3, 7]), Some(vec![digit(1, 4), digit(4, 2)]));
        for odd in [
            &[0, 1, 3, 2][..],
            &[1, 0],
            &[0, 0],
            &[],
            &[0, 2, 1],
            &[0, 2],
            &[0, 1, 2, 3, 0, 1, 2, 3],
            &[0, usize::MAX, 1, 2],
        ] {
            assert_eq!(of_list(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn places_are_cut_where_all_fit() {
        let mut p = Places::new(16);
        assert!(p.cut([digit(4, 2)]));
        assert_eq!(p.digits(), [digit(8, 2), digit(4, 2), digit(1, 4)]);
        assert_eq!(p.axes(digit(4, 4)), [AxisId(0), AxisId(1)]);
        assert!(!p.cut([digit(3, 2)]) && !p.cut([digit(1, 32)]));
        assert_eq!(p.digits().len(), 3);
    }
}
