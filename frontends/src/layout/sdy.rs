//! Shardy's shardings: axes and parts of axes of a declared mesh (Shardy dialect: `TensorShardingAttr`, `AxisRefAttr`).
//!
//! Priorities order a propagation in rounds; where a tensor's own layout is asked for they change nothing. Axes that
//! are `replicated` split no dimension, which a layout says by leaving them out.

use super::MAX_RANKS;
use super::tiling::{Digit, Tiling, row_major};
use crate::raw::{AxisRef, Mesh, Sharding};

/// Why a sharding is not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It means something that a layout cannot hold, as this says.
    Form(String),
    /// It breaks a rule of the dialect.
    Wrong(String),
}

/// The digits of a mesh's axes, by position of the axis, and its number of devices.
pub(super) fn digits(mesh: &Mesh) -> Result<(Vec<Digit>, usize), Refused> {
    let mut sizes = Vec::new();
    let mut devices = 1usize;
    for (i, (name, size)) in mesh.axes.iter().enumerate() {
        if mesh.axes[..i].iter().any(|(n, _)| n == name) {
            return Err(Refused::Wrong(format!("its mesh has two axes \"{name}\"")));
        }
        let size = usize::try_from(*size).ok().filter(|&n| n > 0);
        let product = size.and_then(|n| devices.checked_mul(n)).filter(|&n| n <= MAX_RANKS);
        let (Some(size), Some(product)) = (size, product) else {
            return Err(Refused::Wrong(format!("its mesh should have between 1 and {MAX_RANKS} devices")));
        };
        sizes.push(size);
        devices = product;
    }
    if mesh.axes.is_empty() && !mesh.device_ids.is_empty() {
        return Err(Refused::Form("the whole tensor lies on one device and nowhere else".into()));
    }
    Ok((row_major(&sizes), devices))
}

/// A sharding of a tensor of this rank over a mesh.
pub(super) fn tiling(sharding: &Sharding, mesh: &Mesh, rank: usize) -> Result<Tiling, Refused> {
    let (digits, _) = digits(mesh)?;
    if !sharding.unreduced.is_empty() {
        return Err(Refused::Form("the tensor is a partial sum on each device (`unreduced`)".into()));
    }
    if sharding.dims.len() != rank {
        let message = format!("it lists {} dimensions, the tensor has {rank}", sharding.dims.len());
        return Err(Refused::Wrong(message));
    }
    let mut taken: Vec<Digit> = Vec::new();
    let mut dims = Vec::new();
    for d in &sharding.dims {
        let mut dim = Vec::new();
        for axis in &d.axes {
            let digit = digit(axis, mesh, &digits)?;
            let meets = |t: &Digit| digit.stride < t.stride * t.size && t.stride < digit.stride * digit.size;
            if digit.size > 1 && taken.iter().any(meets) {
                return Err(Refused::Wrong(format!("axis \"{}\" is used twice", axis.name)));
            }
            if digit.size > 1 {
                taken.push(digit);
                dim.push(digit);
            }
        }
        dims.push(dim);
    }
    Ok(Tiling { dims, open: sharding.dims.iter().map(|d| d.open).collect() })
}

/// The digit of an axis, or of a part `(pre-size)size` of it.
fn digit(axis: &AxisRef, mesh: &Mesh, digits: &[Digit]) -> Result<Digit, Refused> {
    let at = mesh.axes.iter().position(|(n, _)| *n == axis.name);
    let Some(whole) = at.and_then(|i| digits.get(i)).copied() else {
        let names: Vec<&str> = mesh.axes.iter().map(|(n, _)| n.as_str()).collect();
        let message = format!("its mesh has no axis \"{}\", only: {}", axis.name, names.join(", "));
        return Err(Refused::Wrong(message));
    };
    let Some((before, size)) = axis.sub else { return Ok(whole) };
    let part = || {
        let (before, size) = (usize::try_from(before).ok()?, usize::try_from(size).ok()?);
        let taken = before.checked_mul(size).filter(|&n| n > 0 && whole.size.is_multiple_of(n))?;
        Some(Digit { stride: whole.stride * (whole.size / taken), size })
    };
    part().ok_or_else(|| {
        Refused::Wrong(format!(
            "\"{}\":({before}){size} is no part of an axis of size {}",
            axis.name, whole.size
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::DimSharding;

    fn mesh() -> Mesh {
        Mesh { axes: vec![("x".into(), 8), ("one".into(), 1), ("y".into(), 2)], device_ids: vec![] }
    }

    fn dim(axes: &[(&str, Option<(i64, i64)>)]) -> DimSharding {
        let axes = axes.iter().map(|&(name, sub)| AxisRef { name: name.into(), sub }).collect();
        DimSharding { axes, open: false, priority: 0 }
    }

    #[test]
    fn axes_and_parts_of_axes() {
        let s = Sharding {
            dims: vec![dim(&[("x", Some((2, 4))), ("one", None)]), dim(&[("y", None), ("x", Some((1, 2)))])],
            ..Sharding::default()
        };
        let t = tiling(&s, &mesh(), 2).expect("fits");
        let want = [
            vec![Digit { stride: 2, size: 4 }],
            vec![Digit { stride: 1, size: 2 }, Digit { stride: 8, size: 2 }],
        ];
        assert_eq!(t.dims, want);
    }

    #[test]
    fn what_breaks_the_rules() {
        let wrong = |dims: Vec<DimSharding>| {
            let s = Sharding { dims, ..Sharding::default() };
            match tiling(&s, &mesh(), 1) {
                Err(Refused::Wrong(m)) => m,
                other => panic!("{other:?}"),
            }
        };
        assert!(wrong(vec![]).contains("0 dimensions"));
        assert!(wrong(vec![dim(&[("z", None)])]).contains("no axis \"z\""));
        assert!(wrong(vec![dim(&[("x", Some((1, 3)))])]).contains("(1)3"));
        assert!(wrong(vec![dim(&[("x", Some((0, 2)))])]).contains("(0)2"));
        assert!(wrong(vec![dim(&[("x", Some((1, 4))), ("x", Some((2, 4)))])]).contains("twice"));
        let huge = Mesh { axes: vec![("a".into(), i64::MAX), ("b".into(), 2)], device_ids: vec![] };
        assert!(matches!(digits(&huge), Err(Refused::Wrong(_))));
        let single = Mesh { axes: vec![], device_ids: vec![0] };
        assert!(matches!(digits(&single), Err(Refused::Form(_))));
    }

    #[test]
    fn partial_sums_are_no_layout() {
        let s = Sharding {
            dims: vec![dim(&[])],
            unreduced: vec![AxisRef { name: "y".into(), sub: None }],
            ..Sharding::default()
        };
        assert!(matches!(tiling(&s, &mesh(), 1), Err(Refused::Form(_))));
    }
}
