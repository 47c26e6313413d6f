//! The splitting test of factor rules: what a rule claims is done, and the result compared.
//!
//! The chosen factors are cut into shards. Each shard's operands are cut out of the whole ones as the rule says,
//! the op's local form is built and interpreted in wide mode, and the local results are put together: results that
//! have a factor side by side, results that lack it by the factor's kind. What comes out must be the unsplit op's
//! result.

use crate::factor::{DimFactors, Factor, FactorId, FactorKind, FactorRule, Start, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::{Mode, run};
use crate::location::LocId;
use crate::module::Module;
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::ops::binary::combine;
use crate::ops::constant::ConstantOp;
use crate::ops::reduce::combiner;
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::{TensorType, strides};
use crate::{DType, IrError};

/// A split: a factor and the sizes of its shards.
pub type Cut = (FactorId, Vec<usize>);

/// How far a float may lie from the unsplit one, relative to the largest magnitude beside it: sums of shards are
/// rounded in another order, in f64.
const TOLERANCE: f64 = 1e-12;

/// The op's own rule at the types of `inputs`.
///
/// # Errors
/// What inference says.
pub fn rule_of(module: &Module, op: &Op, inputs: &[Tensor]) -> Result<FactorRule, IrError> {
    let types: Vec<TensorType> = inputs.iter().map(Tensor::ty).collect();
    let refs: Vec<&TensorType> = types.iter().collect();
    let results = op.infer(&refs, module)?;
    Ok(op.factor_rule(&refs, &results, module))
}

/// `n` cut into `parts` pieces of at least 1 as unevenly as `first` says; `None` if it is too small.
pub fn pieces(n: usize, parts: usize, first: usize) -> Option<Vec<usize>> {
    if n < parts {
        return None;
    }
    let mut left = n;
    let mut out = Vec::new();
    for k in (1..parts).rev() {
        let take = if out.is_empty() { first.clamp(1, left - k) } else { (left / (k + 1)).max(1) };
        out.push(take);
        left -= take;
    }
    out.push(left);
    Some(out)
}

/// Checks that a rule accounts for every dimension, then splits the op by `cuts` and compares.
///
/// # Errors
/// A sentence that says what does not hold.
pub fn check(
    module: &Module,
    op: &Op,
    inputs: &[Tensor],
    rule: &FactorRule,
    cuts: &[Cut],
) -> Result<(), String> {
    let say = |e: IrError| e.to_string();
    let types: Vec<TensorType> = inputs.iter().map(Tensor::ty).collect();
    let refs: Vec<&TensorType> = types.iter().collect();
    let results = op.infer(&refs, module).map_err(say)?;
    check_form(rule, &types, &results)?;
    let whole = super::eval(module, op.clone(), inputs, Mode::Wide).map_err(say)?;
    let mut joined: Vec<Vec<Option<f64>>> = whole.iter().map(|t| vec![None; t.len()]).collect();
    let mut exact: Vec<Tensor> = whole.clone();
    let counts: Vec<usize> = cuts.iter().map(|(_, parts)| parts.len()).collect();
    for at in IndexSpace::new(&counts) {
        let shard = Shard { rule, cuts, at: &at };
        let local = shard.run(module, op, inputs, &results).map_err(say)?;
        for (r, got) in local.iter().enumerate() {
            let place = shard.elements(&rule.results[r], &results[r].shape);
            if place.len() != got.len() {
                return Err(format!("result {r} of a shard has {} elements, not {}", got.len(), place.len()));
            }
            let seen = joined[r].clone();
            let lacking: Vec<FactorKind> = cuts
                .iter()
                .filter(|(f, _)| !rule.in_result(r, *f))
                .map(|(f, _)| rule.factors[*f].kind)
                .collect();
            join(&mut exact[r], &mut joined[r], &seen, got, &place, &lacking)?;
        }
    }
    for (r, (want, got)) in whole.iter().zip(&exact).enumerate() {
        if joined[r].iter().any(Option::is_none) {
            return Err(format!("the shards leave elements of result {r} out"));
        }
        compare(want, got).map_err(|e| format!("result {r}: {e}"))?;
    }
    Ok(())
}

/// Every list of factors has the size of its dimension.
fn check_form(rule: &FactorRule, operands: &[TensorType], results: &[TensorType]) -> Result<(), String> {
    if rule.operands.len() != operands.len() || rule.results.len() != results.len() {
        return Err("the rule does not describe every operand and result".to_string());
    }
    let sides = rule.operands.iter().zip(operands).chain(rule.results.iter().zip(results));
    for (dims, ty) in sides {
        if dims.len() != ty.rank() {
            return Err(format!("the rule gives {} dimensions for {ty}", dims.len()));
        }
        for (d, list) in dims.iter().enumerate() {
            let product: usize = list.iter().map(|&f| rule.factors[f].size).product();
            if !list.is_empty() && product != ty.shape[d] {
                return Err(format!("dimension {d} of {ty} is given factors of product {product}"));
            }
        }
    }
    Ok(())
}

/// One shard of an op: where it lies among the cuts.
pub(super) struct Shard<'a> {
    pub(super) rule: &'a FactorRule,
    pub(super) cuts: &'a [Cut],
    pub(super) at: &'a [usize],
}

impl Shard<'_> {
    /// First index and size of the shard of a factor.
    fn range(&self, f: FactorId) -> (usize, usize) {
        match self.cuts.iter().position(|(c, _)| *c == f) {
            Some(k) => {
                let parts = &self.cuts[k].1;
                (parts[..self.at[k]].iter().sum(), parts[self.at[k]])
            }
            None => (0, self.rule.factors[f].size),
        }
    }

    /// The indices along one dimension that belong to the shard, in the shard's order.
    fn indices(&self, factors: &[FactorId], size: usize) -> Vec<usize> {
        if factors.is_empty() {
            return (0..size).collect();
        }
        let ranges: Vec<(usize, usize)> = factors.iter().map(|&f| self.range(f)).collect();
        let local: Vec<usize> = ranges.iter().map(|r| r.1).collect();
        let sizes: Vec<usize> = factors.iter().map(|&f| self.rule.factors[f].size).collect();
        let st = strides(&sizes);
        IndexSpace::new(&local)
            .map(|ix| ix.iter().zip(&ranges).zip(&st).map(|((i, r), s)| (r.0 + i) * s).sum())
            .collect()
    }

    /// Shape of a tensor's shard.
    pub(super) fn shape(&self, dims: &[DimFactors], shape: &[usize]) -> Vec<usize> {
        dims.iter().zip(shape).map(|(f, &n)| self.indices(f, n).len()).collect()
    }

    /// The elements of a tensor that belong to the shard, in the shard's row-major order.
    pub(super) fn elements(&self, dims: &[DimFactors], shape: &[usize]) -> Vec<usize> {
        let lists: Vec<Vec<usize>> = dims.iter().zip(shape).map(|(f, &n)| self.indices(f, n)).collect();
        let local: Vec<usize> = lists.iter().map(Vec::len).collect();
        let st = strides(shape);
        IndexSpace::new(&local)
            .map(|ix| ix.iter().zip(&lists).zip(&st).map(|((&i, l), s)| l[i] * s).sum())
            .collect()
    }

    /// Cuts the operands out and runs the local form on them.
    fn run(
        &self,
        module: &Module,
        op: &Op,
        inputs: &[Tensor],
        results: &[TensorType],
    ) -> Result<Vec<Tensor>, IrError> {
        let cut = |(t, dims): (&Tensor, &Vec<DimFactors>)| {
            let data = t.data.pick(self.elements(dims, &t.shape).into_iter());
            (t.dtype(), Tensor::new(self.shape(dims, &t.shape), data))
        };
        let mine: Vec<(DType, Tensor)> = inputs.iter().zip(&self.rule.operands).map(cut).collect();
        let starts: Vec<(FactorId, usize, Factor)> =
            self.cuts.iter().map(|(f, _)| (*f, self.range(*f).0, self.rule.factors[*f].clone())).collect();
        self.run_on(module, op, &mine, results, &starts)
    }

    /// Builds and runs the local form on this shard's operands, whose element types in the graph are given
    /// beside them: `results` are the whole results' types, `split` the first index of each split factor of the
    /// op's rule.
    pub(super) fn run_on(
        &self,
        module: &Module,
        op: &Op,
        mine: &[(DType, Tensor)],
        results: &[TensorType],
        split: &[(FactorId, usize, Factor)],
    ) -> Result<Vec<Tensor>, IrError> {
        let mut m = module.clone();
        let mut g = Graph::new("shard");
        let params: Vec<ValueId> = mine.iter().map(|(d, t)| g.add_param(t.ty().with_dtype(*d))).collect();
        let local: Vec<TensorType> = results
            .iter()
            .zip(&self.rule.results)
            .map(|(t, dims)| TensorType::new(t.dtype, self.shape(dims, &t.shape)))
            .collect();
        let mut starts = Starts::new();
        for (f, first, factor) in split {
            let id = m.constants.intern_splat(TensorType::scalar(DType::I32), *first as f64);
            let value = g.add1(&m, ConstantOp { id }, &[], LocId::UNKNOWN)?;
            let reduced = matches!(factor.kind, FactorKind::Reduce(_));
            starts.insert(*f, Start { value, global: factor.size, reduced });
        }
        let out = op.build_shard(&mut m, &mut g, &params, &local, &starts, LocId::UNKNOWN)?;
        let types: Vec<TensorType> = out.iter().map(|&v| g.ty(v).clone()).collect();
        if types != local {
            return Err(IrError::ty(op.name(), format!("the local form gives {types:?}, not {local:?}")));
        }
        g.set_results(out.to_vec());
        let id = m.add_graph(g);
        crate::verify::verify(&m)?;
        let inputs: Vec<Tensor> = mine.iter().map(|(_, t)| t.clone()).collect();
        run(&m, id, &inputs, Mode::Wide)
    }
}

/// Combines the shards' partial results elementwise; `None` if their types differ.
pub(super) fn fold(m: Monoid, shards: &[Tensor]) -> Option<Tensor> {
    let (first, rest) = shards.split_first()?;
    rest.iter().try_fold(first.clone(), |a, b| {
        Some(Tensor::new(a.shape.clone(), combine(combiner(m), &a.data, &b.data)?))
    })
}

/// Puts a shard's result in its place, combining it with what is there by the kinds of the factors it lacks.
fn join(
    out: &mut Tensor,
    written: &mut [Option<f64>],
    seen: &[Option<f64>],
    got: &Tensor,
    place: &[usize],
    lacking: &[FactorKind],
) -> Result<(), String> {
    let monoids: Vec<Monoid> = lacking
        .iter()
        .filter_map(|k| match k {
            FactorKind::Reduce(m) => Some(*m),
            FactorKind::Range => Some(Monoid::Sum),
            _ => None,
        })
        .collect();
    if monoids.windows(2).any(|w| w[0] != w[1]) {
        return Err("two reduced factors of different monoids cannot be split together".to_string());
    }
    let passing = monoids.len() < lacking.len();
    for (i, &p) in place.iter().enumerate() {
        let new = got.data.pick(std::iter::once(i));
        let value = match (seen[p], monoids.first()) {
            (None, _) => new,
            (Some(_), Some(_)) if passing => {
                return Err("a result lacks a passing and a reduced factor at once".to_string());
            }
            (Some(_), Some(&m)) => {
                let old = out.data.pick(std::iter::once(p));
                combine(combiner(m), &old, &new).ok_or("partial results of different types")?
            }
            (Some(old), None) if old == new.get_f64(0) || (old.is_nan() && new.get_f64(0).is_nan()) => new,
            (Some(old), None) => {
                return Err(format!("shards disagree on a result: {old} and {}", new.get_f64(0)));
            }
        };
        written[p] = Some(value.get_f64(0));
        put(&mut out.data, p, &value);
    }
    Ok(())
}

fn put(out: &mut Storage, at: usize, one: &Storage) {
    macro_rules! write {
        ($($v:ident),*) => {
            match (out, one) {
                $((Storage::$v(o), Storage::$v(n)) => o[at] = n[0],)*
                _ => {}
            }
        };
    }
    write!(I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64);
}

/// Compares two tensors: integers exactly, floats to [`TOLERANCE`] of the largest magnitude.
///
/// # Errors
/// A sentence that names the first difference.
pub fn compare(want: &Tensor, got: &Tensor) -> Result<(), String> {
    if want.ty() != got.ty() {
        return Err(format!("{} instead of {}", got.ty(), want.ty()));
    }
    if !want.dtype().is_float() {
        return match (0..want.len()).find(|&i| want.data.get_i64(i) != got.data.get_i64(i)) {
            Some(i) => Err(format!("element {i} is {}, not {}", got.data.get_i64(i), want.data.get_i64(i))),
            None => Ok(()),
        };
    }
    let (w, g) = (want.data.to_f64s(), got.data.to_f64s());
    let scale = w.iter().filter(|x| x.is_finite()).fold(1f64, |m, x| m.max(x.abs()));
    let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= TOLERANCE * scale;
    match (0..w.len()).find(|&i| !same(w[i], g[i])) {
        Some(i) => Err(format!("element {i} is {}, not {}", g[i], w[i])),
        None => Ok(()),
    }
}
