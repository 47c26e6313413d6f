//! What a core is: whole numbers linear in the indices, or one of two elements by an interval.

use super::{Core, Form};
use msc_ir::DType;
use msc_ir::tensor::{IndexSpace, Storage};
use smallvec::smallvec;

/// A table seen through sizes and strides; nothing is copied.
pub(super) struct View<'a> {
    pub bytes: &'a [u8],
    /// Bytes of an element.
    pub width: usize,
    /// Size and stride in bytes, outermost first.
    pub dims: Vec<(usize, usize)>,
}

type Index = smallvec::SmallVec<[usize; 6]>;

impl<'a> View<'a> {
    fn at(&self, index: &[usize]) -> &'a [u8] {
        let start: usize = index.iter().zip(&self.dims).map(|(i, (_, stride))| i * stride).sum();
        &self.bytes[start..start + self.width]
    }

    /// Every element with its index, row-major.
    fn elements(&self) -> impl Iterator<Item = (Index, &'a [u8])> {
        let sizes: Index = self.dims.iter().map(|d| d.0).collect();
        IndexSpace::new(&sizes).map(|index| {
            let element = self.at(&index);
            (index, element)
        })
    }

    /// A copy of the elements, row-major.
    pub fn bytes(&self) -> Vec<u8> {
        self.elements().flat_map(|(_, e)| e).copied().collect()
    }
}

/// The expression of a core, if there is one.
pub(super) fn recognise(dtype: DType, core: &View<'_>) -> Option<Core> {
    if core.dims.is_empty() {
        return None;
    }
    linear(dtype, core).or_else(|| interval(core))
}

/// The whole number that an element is, if it is one with these very bits.
fn whole(dtype: DType, element: &[u8]) -> Option<i64> {
    /// Up to here neighbouring whole numbers are f64s.
    const EXACT: f64 = (1i64 << 53) as f64;
    if dtype == DType::I1 {
        return None;
    }
    let value = Storage::from_bytes(dtype, element).get_f64(0);
    if value.fract() != 0.0 || value.abs() > EXACT {
        return None;
    }
    let again = Storage::from_f64s(dtype, &[value as i64 as f64]);
    (again.bytes() == element).then_some(value as i64)
}

fn linear(dtype: DType, core: &View<'_>) -> Option<Core> {
    let mut index: Index = smallvec![0; core.dims.len()];
    let offset = whole(dtype, core.at(&index))?;
    let mut scale = Vec::with_capacity(core.dims.len());
    for d in 0..core.dims.len() {
        index[d] = 1;
        scale.push(whole(dtype, core.at(&index))?.checked_sub(offset)?);
        index[d] = 0;
    }
    let fits = core.elements().all(|(i, e)| {
        let sum =
            i.iter().zip(&scale).try_fold(offset, |s, (&i, &k)| s.checked_add(k.checked_mul(i as i64)?));
        sum.is_some() && whole(dtype, e) == sum
    });
    fits.then_some(Core::Linear { scale, offset })
}

fn interval(core: &View<'_>) -> Option<Core> {
    let origin: Index = smallvec![0; core.dims.len()];
    let first = core.at(&origin);
    let mut other: Option<&[u8]> = None;
    for (_, e) in core.elements() {
        if e != first && *other.get_or_insert(e) != e {
            return None;
        }
    }
    let forms: &[Form] = match core.dims.len() {
        1 => &[Form::Index],
        2 => &[Form::Difference, Form::Sum],
        _ => return None,
    };
    // A true element is the inside where there is a choice.
    let (a, b) = if first.iter().all(|&x| x == 0) { (other?, first) } else { (first, other?) };
    let found = forms.iter().find_map(|&f| bounds(core, f, a).map(|r| (f, r, a, b)));
    let (form, (low, high), inside, outside) =
        found.or_else(|| forms.iter().find_map(|&f| bounds(core, f, b).map(|r| (f, r, b, a))))?;
    Some(Core::Interval { form, low, high, inside: inside.to_vec(), outside: outside.to_vec() })
}

/// The interval of `form` in which exactly the elements `inside` lie. A bound that no index passes is left out.
fn bounds(core: &View<'_>, form: Form, inside: &[u8]) -> Option<(Option<i64>, Option<i64>)> {
    let value = |i: &Index| match form {
        Form::Index => i[0] as i64,
        Form::Difference => i[0] as i64 - i[1] as i64,
        Form::Sum => i[0] as i64 + i[1] as i64,
    };
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for (i, e) in core.elements() {
        let v = value(&i);
        (least, most) = (least.min(v), most.max(v));
        if e == inside {
            (low, high) = (low.min(v), high.max(v));
        }
    }
    let exact = core.elements().all(|(i, e)| (low..=high).contains(&value(&i)) == (e == inside));
    exact.then_some(((low > least).then_some(low), (high < most).then_some(high)))
}
