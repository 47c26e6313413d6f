//! Which tensors are a function of `i − j` alone, `i` and `j` being the indices along two dimensions: causal
//! masks and windows, as exporters spell them with `iota`, comparisons and selections.
//!
//! The analysis is exact: integers are affine functions of indices, everything else is piecewise constant in
//! `i − j`, and elementwise ops are evaluated piece by piece by the interpreter.

use super::known::Known;
use msc_ir::constant::ConstData;
use msc_ir::interp::{EvalCx, Mode};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::Scalar;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::select::Select;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, Graph, LocId, Module, Op, Result, Tensor, TensorType, ValueId};
use std::collections::BTreeMap;

/// Pieces a mask may have: a window has three, a few masks combined have more.
const MAX_PIECES: usize = 8;

/// Ops between a mask and its leaves. Exporters need about a dozen.
const MAX_DEPTH: usize = 40;

/// Below this whole numbers are doubles.
const EXACT: f64 = (1u64 << 53) as f64;

/// Elements of a constant up to which it is looked through.
const MAX_CONSTANT: usize = 1 << 22;

/// A tensor that is one value where `lo ≤ i − j ≤ hi` and another (or the same) elsewhere, `i` and `j` being the indices along
/// dimensions `rows` and `cols`. A missing bound does not bind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Band {
    /// Dimension of `i`.
    pub rows: u8,
    /// Dimension of `j`, after `rows`.
    pub cols: u8,
    /// Least `i − j` inside.
    pub lo: Option<i64>,
    /// Greatest `i − j` inside.
    pub hi: Option<i64>,
    /// Value inside.
    pub inside: Scalar,
    /// Value outside.
    pub outside: Scalar,
}

/// What a value is.
#[derive(Clone, PartialEq, Debug)]
enum Form {
    /// The same everywhere.
    Uniform(f64),
    /// An integer: `Σ coefficient·index + offset`.
    Affine { coefficients: BTreeMap<usize, i64>, offset: i64 },
    /// A function of `i − j`.
    Steps(Steps),
}

impl Band {
    /// Where the value changes: the first `i − j` of each piece but the first.
    pub fn edges(&self) -> impl Iterator<Item = i64> {
        let (lo, hi) = if self.value().is_some() { (None, None) } else { (self.lo, self.hi) };
        lo.into_iter().chain(hi.map(|h| h + 1))
    }

    /// One value everywhere.
    pub fn uniform(value: f64) -> Band {
        let value = Scalar::new(value);
        Band { rows: 0, cols: 0, lo: None, hi: None, inside: value, outside: value }
    }

    /// The one value, if there is one.
    pub fn value(&self) -> Option<f64> {
        (self.inside == self.outside).then(|| self.inside.get())
    }

    /// Builds the tensor of a type at the end of a graph.
    ///
    /// # Errors
    /// If the type has no such dimensions.
    pub fn build(&self, module: &mut Module, graph: &mut Graph, ty: &TensorType) -> Result<ValueId> {
        let (rows, cols) = (usize::from(self.rows), usize::from(self.cols));
        let index = ty.with_dtype(DType::I32);
        let mut add =
            |module: &Module, op: Op, args: &[ValueId]| graph.add1(module, op, args, LocId::UNKNOWN);
        let splat = |module: &mut Module, ty: &TensorType, v: f64| -> Op {
            ConstantOp { id: module.constants.intern_splat(ty.clone(), v) }.into()
        };
        let inside = splat(module, ty, self.inside.get());
        let mut value = add(module, inside, &[])?;
        if self.value().is_some() {
            return Ok(value);
        }
        let outside = splat(module, ty, self.outside.get());
        let outside = add(module, outside, &[])?;
        let i = add(module, Iota { ty: index.clone(), dim: rows }.into(), &[])?;
        let j = add(module, Iota { ty: index.clone(), dim: cols }.into(), &[])?;
        let apart = add(module, BinaryKind::Subtract.into(), &[i, j])?;
        for (bound, direction) in [(self.lo, Direction::Ge), (self.hi, Direction::Le)] {
            let Some(bound) = bound else { continue };
            let bound = splat(module, &index, bound as f64);
            let bound = add(module, bound, &[])?;
            let kept = add(module, Compare { direction, total_order: false }.into(), &[apart, bound])?;
            value = add(module, Select::Select.into(), &[kept, value, outside])?;
        }
        Ok(value)
    }
}

/// Piecewise constant in `t = i_rows − i_cols`: each piece from its start up to the next one's.
#[derive(Clone, PartialEq, Debug)]
pub struct Steps {
    /// Dimension counted up.
    pub rows: usize,
    /// Dimension counted down; above `rows`.
    pub cols: usize,
    pieces: Vec<(i64, f64)>,
}

impl Steps {
    fn new(rows: usize, cols: usize, mut pieces: Vec<(i64, f64)>) -> Option<Steps> {
        pieces.dedup_by(|next, before| same(next.1, before.1));
        (pieces.len() <= MAX_PIECES && rows < cols).then_some(Steps { rows, cols, pieces })
    }

    fn at(&self, t: i64) -> f64 {
        let n = self.pieces.partition_point(|&(start, _)| start <= t);
        self.pieces[n.max(1) - 1].1
    }

    /// The interval in which the value is `inside`, and what it is elsewhere, if that is one value.
    pub fn interval(&self, inside: f64) -> Option<(Option<i64>, Option<i64>, f64)> {
        let hit = self.pieces.iter().position(|&(_, v)| same(v, inside))?;
        let mut others = self.pieces.iter().enumerate().filter(|&(i, _)| i != hit).map(|(_, p)| p.1);
        let outside = others.next()?;
        if others.any(|v| !same(v, outside)) {
            return None;
        }
        let lo = (hit > 0).then(|| self.pieces[hit].0);
        Some((lo, self.pieces.get(hit + 1).map(|p| p.0 - 1), outside))
    }

    /// As a band, if it has two or three pieces.
    pub fn band(&self) -> Option<Band> {
        let inside = match self.pieces.as_slice() {
            [(_, v), _] | [_, (_, v), _] => *v,
            _ => return None,
        };
        let (lo, hi, outside) = self.interval(inside)?;
        let (rows, cols) = (u8::try_from(self.rows).ok()?, u8::try_from(self.cols).ok()?);
        Some(Band { rows, cols, lo, hi, inside: Scalar::new(inside), outside: Scalar::new(outside) })
    }

    fn of(b: &Band) -> Steps {
        let mut pieces = vec![(i64::MIN, b.outside.get())];
        match b.lo {
            Some(lo) => pieces.push((lo, b.inside.get())),
            None => pieces[0].1 = b.inside.get(),
        }
        pieces.extend(b.hi.map(|hi| (hi + 1, b.outside.get())));
        Steps { rows: b.rows.into(), cols: b.cols.into(), pieces }
    }
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// What defines a value, for the analysis.
pub enum Source<'a, I> {
    /// An op of one result.
    Op(&'a Op, Vec<I>),
    /// A value from elsewhere that is known to be this.
    Known(Known),
    /// The same as another value.
    Same(I),
    /// Anything else.
    Opaque,
}

/// Values that can be analysed.
pub trait Values {
    /// Names a value.
    type Id: Copy + Ord;
    /// What defines a value.
    fn source(&self, id: Self::Id) -> Source<'_, Self::Id>;
    /// Its type.
    fn ty(&self, id: Self::Id) -> &TensorType;
}

/// The analysis of some values, with what it has found.
pub struct Bands<'v, V: Values> {
    values: &'v V,
    module: &'v Module,
    memo: BTreeMap<V::Id, Option<Form>>,
}

impl<'v, V: Values> Bands<'v, V> {
    /// An analysis of `values`, whose constants are in `module`.
    pub fn new(values: &'v V, module: &'v Module) -> Bands<'v, V> {
        Bands { values, module, memo: BTreeMap::new() }
    }

    /// The value as a function of `i − j`, if it is one and not the same everywhere.
    pub fn steps(&mut self, id: V::Id) -> Option<Steps> {
        match self.form(id, 0)? {
            Form::Steps(s) if s.pieces.len() > 1 => Some(s),
            _ => None,
        }
    }

    /// The dimension of which every element is the index, if there is one.
    pub fn index(&mut self, id: V::Id) -> Option<usize> {
        match self.form(id, 0)? {
            Form::Affine { coefficients, offset: 0 } if coefficients.len() == 1 => {
                coefficients.into_iter().find(|c| c.1 == 1).map(|c| c.0)
            }
            _ => None,
        }
    }

    /// The value of every element, if they are all the same.
    pub fn uniform(&mut self, id: V::Id) -> Option<f64> {
        match self.form(id, 0)? {
            Form::Uniform(v) => Some(v),
            Form::Steps(s) if s.pieces.len() == 1 => Some(s.pieces[0].1),
            _ => None,
        }
    }

    fn form(&mut self, id: V::Id, depth: usize) -> Option<Form> {
        if let Some(known) = self.memo.get(&id) {
            return known.clone();
        }
        let made = if depth > MAX_DEPTH {
            None
        } else {
            match self.values.source(id) {
                Source::Known(Known::Band(b)) => Some(match b.value() {
                    Some(v) => Form::Uniform(v),
                    None => Form::Steps(Steps::of(&b)),
                }),
                Source::Known(Known::Index(dim)) => {
                    Some(Form::Affine { coefficients: BTreeMap::from([(dim, 1)]), offset: 0 })
                }
                Source::Opaque => None,
                Source::Same(other) => self.form(other, depth + 1),
                Source::Op(op, args) => self.op(op, &args, id, depth + 1),
            }
        };
        self.memo.insert(id, made.clone());
        made
    }

    fn op(&mut self, op: &Op, args: &[V::Id], id: V::Id, depth: usize) -> Option<Form> {
        let values = self.values;
        let ty = values.ty(id);
        match op {
            Op::Constant(c) => self.constant(c.id, ty),
            Op::Iota(i) => Some(Form::Affine { coefficients: BTreeMap::from([(i.dim, 1)]), offset: 0 }),
            Op::Broadcast(b) => {
                let from = values.ty(args[0]);
                self.form(args[0], depth)?.moved(|d| (from.shape[d] > 1).then(|| (b.dims[d], 0)))
            }
            Op::Permute(Permute::Transpose(p)) => {
                self.form(args[0], depth)?.moved(|d| p.iter().position(|&x| x == d).map(|d| (d, 0)))
            }
            Op::Reshape(_) => {
                let from = values.ty(args[0]);
                let proper =
                    |t: &TensorType| -> Vec<usize> { (0..t.rank()).filter(|&d| t.shape[d] != 1).collect() };
                let (a, b) = (proper(from), proper(ty));
                let form = self.form(args[0], depth)?;
                if matches!(form, Form::Uniform(_)) {
                    return Some(form);
                }
                if !a.iter().map(|&d| from.shape[d]).eq(b.iter().map(|&d| ty.shape[d])) {
                    return None;
                }
                form.moved(|d| a.iter().position(|&x| x == d).map(|i| (b[i], 0)))
            }
            Op::Slice(Slice::Static { start, stride, .. }) => {
                if stride.iter().any(|&s| s != 1) {
                    return None;
                }
                self.form(args[0], depth)?.moved(|d| Some((d, start[d] as i64)))
            }
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_) => {
                let mut forms = Vec::new();
                for &a in args {
                    forms.push(self.form(a, depth)?);
                }
                self.elementwise(op, &forms, args, ty)
            }
            _ => None,
        }
    }

    fn constant(&self, id: msc_ir::ConstId, ty: &TensorType) -> Option<Form> {
        let c = self.module.constants.get(id);
        if let ConstData::Splat(_) = c.data {
            // A double does not tell greater whole numbers apart.
            return c.splat_value().filter(|v| ty.dtype.is_float() || v.abs() < EXACT).map(Form::Uniform);
        }
        let dims: Vec<usize> = (0..ty.rank()).filter(|&d| ty.shape[d] != 1).collect();
        let &[rows, cols] = dims.as_slice() else { return None };
        if ty.elements() == 0 || ty.elements() > MAX_CONSTANT {
            return None;
        }
        let (n, m) = (ty.shape[rows] as i64, ty.shape[cols] as i64);
        let all = c.tensor().data.to_f64s();
        let at = |i: i64, j: i64| all[(i * m + j) as usize];
        let of = |t: i64| if t >= 0 { at(t, 0) } else { at(0, -t) };
        if (0..n).any(|i| (0..m).any(|j| !same(at(i, j), of(i - j)))) {
            return None;
        }
        let mut pieces = vec![(i64::MIN, of(1 - m))];
        pieces.extend((2 - m..n).map(|t| (t, of(t))));
        Steps::new(rows, cols, pieces).map(Form::Steps)
    }

    fn elementwise(&self, op: &Op, forms: &[Form], args: &[V::Id], ty: &TensorType) -> Option<Form> {
        let types: Vec<DType> = args.iter().map(|&a| self.values.ty(a).dtype).collect();
        let scalar = |inputs: &[f64]| -> Option<f64> {
            let tensors: Vec<Tensor> =
                inputs.iter().zip(&types).map(|(&v, &t)| Tensor::scalar(t, v)).collect();
            let refs: Vec<&Tensor> = tensors.iter().collect();
            let cx = EvalCx::new(self.module, Mode::Spec, 0);
            let out = cx.eval(op, &refs, &[TensorType::scalar(ty.dtype)]).ok()?;
            Some(out.first()?.data.get_f64(0))
        };
        if forms.iter().any(|f| matches!(f, Form::Affine { .. })) {
            return affine(op, forms, (types[0], ty), &scalar);
        }
        let steps: Vec<&Steps> = forms
            .iter()
            .filter_map(|f| match f {
                Form::Steps(s) => Some(s),
                _ => None,
            })
            .collect();
        let Some(first) = steps.first() else {
            let inputs: Vec<f64> = forms.iter().map(|f| f.at(0)).collect();
            return scalar(&inputs).map(Form::Uniform);
        };
        if steps.iter().any(|s| (s.rows, s.cols) != (first.rows, first.cols)) {
            return None;
        }
        let mut starts: Vec<i64> = steps.iter().flat_map(|s| s.pieces.iter().map(|p| p.0)).collect();
        starts.sort_unstable();
        starts.dedup();
        let piece = |t: i64| -> Option<(i64, f64)> {
            let inputs: Vec<f64> = forms.iter().map(|f| f.at(t)).collect();
            Some((t, scalar(&inputs)?))
        };
        let pieces: Option<Vec<(i64, f64)>> = starts.into_iter().map(piece).collect();
        Steps::new(first.rows, first.cols, pieces?).map(Form::Steps)
    }
}

/// Offsets up to which sums with indices are exact in a type, as long as no dimension has as many elements; 0 for other
/// types.
fn limit(t: DType) -> f64 {
    match t {
        DType::I32 => (1i64 << 30) as f64,
        DType::F32 => (1i64 << 23) as f64,
        DType::I64 | DType::F64 => (1i64 << 50) as f64,
        _ => 0.0,
    }
}

/// An op of which an operand is an affine function of indices.
fn affine(
    op: &Op,
    forms: &[Form],
    (from, ty): (DType, &TensorType),
    scalar: &dyn Fn(&[f64]) -> Option<f64>,
) -> Option<Form> {
    // Where a condition is the same everywhere, so is the choice.
    if let (Op::Select(Select::Select), Some(Form::Uniform(v))) = (op, forms.first()) {
        return forms.get(if *v == 0.0 { 2 } else { 1 }).cloned();
    }
    let to = ty.dtype;
    let parts = |f: &Form| match f {
        Form::Affine { coefficients, offset } => Some((coefficients.clone(), *offset)),
        Form::Uniform(v) if v.fract() == 0.0 && v.abs() <= limit(from) => Some((BTreeMap::new(), *v as i64)),
        _ => None,
    };
    // Unsigned differences would wrap around.
    let exact = |t: DType| limit(t) > 0.0;
    let fits = |f: &(BTreeMap<usize, i64>, i64)| {
        let all = f.0.values().chain([&f.1]);
        all.map(|x| x.unsigned_abs() as f64).fold(0.0, f64::max) <= limit(to)
    };
    if !exact(from) {
        return None;
    }
    let combine = |sign: i64| -> Option<(BTreeMap<usize, i64>, i64)> {
        let ((mut c, o), (d, p)) = (parts(&forms[0])?, parts(&forms[1])?);
        for (dim, x) in d {
            let sum = c.entry(dim).or_insert(0);
            *sum = sum.checked_add(sign.checked_mul(x)?)?;
        }
        c.retain(|_, x| *x != 0);
        Some((c, o.checked_add(sign.checked_mul(p)?)?))
    };
    let made = |(coefficients, offset): (BTreeMap<usize, i64>, i64)| Form::Affine { coefficients, offset };
    match op {
        Op::Convert(Convert::Value(_)) => parts(&forms[0]).filter(fits).map(made),
        Op::Binary(b) => match b.kind {
            BinaryKind::Add => combine(1).filter(fits).map(made),
            BinaryKind::Subtract => combine(-1).filter(fits).map(made),
            _ => None,
        },
        Op::Compare(x) => {
            let (c, offset) = combine(-1)?;
            let of = |t: i64| scalar(&[t.checked_add(offset)? as f64, 0.0]);
            // The difference grows with each index, or falls: the same at both ends is the same in between.
            let ends = |(lo, hi): (i64, i64), (&d, &x): (&usize, &i64)| {
                let far = x.checked_mul(ty.shape[d] as i64 - 1)?;
                Some((lo.checked_add(far.min(0))?, hi.checked_add(far.max(0))?))
            };
            if let Some((lo, hi)) = c.iter().try_fold((0, 0), ends)
                && !matches!(x.direction, Direction::Eq | Direction::Ne)
                && let (Some(a), Some(b)) = (of(lo), of(hi))
                && a == b
            {
                return Some(Form::Uniform(a));
            }
            let &[(rows, p), (cols, q)] = c.into_iter().collect::<Vec<_>>().as_slice() else { return None };
            if p.abs() != 1 || p + q != 0 {
                return None;
            }
            // The compared difference is p·(i − j) + offset.
            let turn = -p * offset;
            let pieces: Option<Vec<(i64, f64)>> = [(i64::MIN, turn - 1), (turn, turn), (turn + 1, turn + 1)]
                .into_iter()
                .map(|(start, t)| Some((start, of(p * t)?)))
                .collect();
            Steps::new(rows, cols, pieces?).map(Form::Steps)
        }
        _ => None,
    }
}

impl Form {
    fn at(&self, t: i64) -> f64 {
        match self {
            Form::Uniform(v) => *v,
            Form::Steps(s) => s.at(t),
            Form::Affine { .. } => f64::NAN,
        }
    }

    /// The form where old dimension `d` is a new one, its index there plus a start; `None` for a dimension whose
    /// only index is 0.
    fn moved(self, to: impl Fn(usize) -> Option<(usize, i64)>) -> Option<Form> {
        match self {
            Form::Uniform(v) => Some(Form::Uniform(v)),
            Form::Affine { coefficients, mut offset } => {
                let mut out = BTreeMap::new();
                for (d, c) in coefficients {
                    if let Some((e, start)) = to(d) {
                        out.insert(e, c);
                        offset = offset.checked_add(c.checked_mul(start)?)?;
                    }
                }
                Some(Form::Affine { coefficients: out, offset })
            }
            Form::Steps(s) => {
                let ((rows, a), (cols, b)) = (to(s.rows)?, to(s.cols)?);
                // Old t is new t + a − b.
                let shift = |t: i64| if t == i64::MIN { t } else { t - (a - b) };
                let pieces: Vec<(i64, f64)> = s.pieces.iter().map(|&(t, v)| (shift(t), v)).collect();
                if rows < cols {
                    return Steps::new(rows, cols, pieces).map(Form::Steps);
                }
                // Dimensions changed places: t becomes −t.
                let mut turned = Vec::new();
                for (i, &(_, v)) in pieces.iter().enumerate().rev() {
                    turned.push((pieces.get(i + 1).map_or(i64::MIN, |next| 1 - next.0), v));
                }
                Steps::new(cols, rows, turned).map(Form::Steps)
            }
        }
    }
}
