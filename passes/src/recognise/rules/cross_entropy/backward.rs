//! The gradient: which value is the logits' gradient, and what its rows are weighted by.

use super::find::Place;
use super::forward::{Site, bounds, dimensions, laid_out};
use super::{BACKWARD, FORWARD};
use crate::recognise::probe::found::{
    Bound, Found, Operand, Output, Solved, add_fused, closed, lay_out, operand, solve,
};
use crate::recognise::probe::layout::{arrange, fits};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::{Sizes, Trial};
use msc_ir::factor::solve::{AtomId, AtomList};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::fused::{FusedKind, Normalizer, Outside, Smoothing, Weighting};
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Graph, LocId, Module, Op, Shape, TensorType, ValueId};
use std::collections::BTreeSet;

/// Values that are tried as the gradient; exporters have up to six.
const MAX_CANDIDATES: usize = 16;

/// Values that are tried as weights.
const MAX_WEIGHTS: usize = 6;

/// The same where two of them weigh a smoothed loss's parts: the one and the other, with both signs and masked or not.
const MAX_WEIGHTS_APART: usize = 12;

/// Values between the gradient and what it is computed from.
const MAX_STEPS: usize = 200;

/// What rows are weighted by.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Weight {
    /// Nothing.
    None,
    /// A constant of the program, or its negative: this.
    Constant(Index, f64),
    /// A value of the program.
    Value(Index),
    /// A value of the program, negated: what the label's log-probability is multiplied by.
    Minus(Index),
}

impl Weight {
    /// The value that it is made of.
    fn value(self) -> Option<Index> {
        match self {
            Weight::Value(i) | Weight::Minus(i) => Some(i),
            _ => None,
        }
    }
}

/// Finds the gradient of a cross-entropy; `None` if the program does not compute one here.
///
/// # Errors
/// Why what looks like it is none, in words.
pub fn backward(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    site: &Site,
) -> Result<Option<Found>, String> {
    let x = p.values[place.x].ty;
    let n = x.elements();
    let may_be = |&i: &Index| p.values[i].ty.elements() == n && p.values[i].ty.dtype == x.dtype;
    let candidates: Vec<Index> = place.local.iter().copied().filter(may_be).collect();
    let weights = weights(p, place, site, &candidates);
    // What is computed last counts: earlier ones are the gradient of a loss that is weighted afterwards.
    let mut best: Option<(Index, Found)> = None;
    let mut last = None;
    let apart = site.smoothing == Smoothing::Apart;
    let own = match site.smoothing {
        Smoothing::None => normalizers(p, place, &candidates),
        _ => Vec::new(),
    };
    // A loss of the normalizer beside is rare: it is looked for where nothing else is found.
    let plain = weights.iter().filter(|_| !apart).map(|&w| (w, None));
    let beside = own.iter().flat_map(|&s| weights.iter().map(move |&w| (w, Some(s))));
    let beside = beside.filter(|(w, _)| !matches!(w, Weight::Minus(_)));
    let values = weights.iter().filter_map(|w| if let Weight::Value(i) = w { Some(*i) } else { None });
    let pairs = values.filter(|_| apart).flat_map(|u| weights.iter().map(move |&w| (w, Some(u))));
    let pairs = pairs.filter(|&(w, u)| w != Weight::None && Some(w) != u.map(Weight::Value));
    for (weight, own) in plain.chain(beside).chain(pairs) {
        if own.is_some() && best.is_some() {
            break;
        }
        if matches!(weight, Weight::Minus(_)) && best.is_some() {
            continue;
        }
        let mut params = vec![place.x, site.labels];
        params.extend(weight.value());
        params.extend(own);
        let mine: Vec<Index> = candidates
            .iter()
            .rev()
            .copied()
            .filter(|&i| best.as_ref().is_none_or(|b| i > b.0) && closed(p, &params, i))
            .filter(|&i| meets(p, place, site, i))
            .take(MAX_CANDIDATES)
            .collect();
        if mine.is_empty() {
            continue;
        }
        match attempt(p, module, (place, site), &params, (weight, own), &mine) {
            Ok(found) => best = Some(found),
            Err(why) => last = Some(why),
        }
    }
    match (best, last) {
        (Some((_, found)), _) => Ok(Some(found)),
        (None, Some(why)) => Err(why),
        (None, None) => Ok(None),
    }
}

/// A gradient for which the forward is computed again, without the loss: both ops, the forward with no result that the
/// program has.
pub fn alone(p: &Program<'_>, module: &Module, place: &Place) -> Option<(Found, Found)> {
    // What leaves as numbers per row is a loss, and not this one.
    let inside = |i: &Index| place.local.binary_search(i).is_ok();
    let leaves = |i: &Index| {
        let v = &p.values[*i];
        let per_row = v.ty.dtype.is_float() && v.ty.elements() <= place.rows;
        per_row && (v.users.is_empty() || !v.users.iter().all(inside))
    };
    if place.local.iter().any(leaves) {
        return None;
    }
    let none =
        |kind, operands| Found { rule: FORWARD, kind, operands, given: Vec::new(), outputs: Vec::new() };
    let kind = |outside| FusedKind::CrossEntropy { outside, smoothing: Smoothing::None };
    place.labels.iter().find_map(|&labels| {
        let found = none(kind(Outside::Nothing), Vec::new());
        let site = Site { found, labels, smoothing: Smoothing::None };
        let gradient = backward(p, module, place, &site).ok().flatten()?;
        let FusedKind::CrossEntropyGrad { outside, .. } = gradient.kind else { return None };
        Some((none(kind(outside), gradient.operands.get(..2)?.to_vec()), gradient))
    })
}

/// Whether a value is computed from the exponential and from the labels.
fn meets(p: &Program<'_>, place: &Place, site: &Site, value: Index) -> bool {
    let above = above(p, place.x, value);
    above.contains(&site.labels) && above.contains(&place.x)
}

/// What a value is computed from, down to the logits.
fn above(p: &Program<'_>, x: Index, value: Index) -> BTreeSet<Index> {
    let mut seen = BTreeSet::from([value]);
    let mut todo = vec![value];
    while let Some(i) = todo.pop() {
        if i != x && seen.len() < MAX_STEPS {
            todo.extend(p.values[i].operands.iter().copied().filter(|&o| seen.insert(o)));
        }
    }
    seen
}

/// What the rows of some candidate may be weighted by: numbers per row, or one number, that do not depend on the logits.
fn weights(p: &Program<'_>, place: &Place, site: &Site, candidates: &[Index]) -> Vec<Weight> {
    let apart = site.smoothing == Smoothing::Apart;
    let (most, least) = if apart { (MAX_WEIGHTS_APART, place.rows) } else { (MAX_WEIGHTS, 1) };
    let mut values = BTreeSet::new();
    let mut constants: Vec<(Index, f64)> = Vec::new();
    for &c in candidates.iter().rev().take(MAX_CANDIDATES) {
        for i in above(p, place.x, c) {
            let v = &p.values[i];
            let mine = i == place.x || place.local.binary_search(&i).is_ok() || !v.ty.dtype.is_float();
            if mine {
                continue;
            }
            match p.splat(i) {
                Some(s) if s != 0.0 && s != 1.0 && s.is_finite() => {
                    // What the log-probabilities are multiplied by is negative.
                    let both = site.smoothing == Smoothing::None && s < 0.0;
                    for s in [s.abs()].into_iter().chain(both.then_some(s)) {
                        if s != 1.0 && constants.iter().all(|k| k.1 != s) {
                            constants.push((i, s));
                        }
                    }
                }
                None if (least..=place.rows).contains(&v.ty.elements())
                    && !(apart && v.is_layout())
                    && !v.is_closed()
                    && (apart || closed(p, &[place.x, site.labels, i], c)) =>
                {
                    values.insert(i);
                }
                _ => {}
            }
        }
    }
    // The last first: it is what the others are for.
    let values = || values.iter().copied().rev().take(most);
    let constants = constants.into_iter().take(MAX_WEIGHTS).map(|(i, s)| Weight::Constant(i, s));
    let minus = values().filter(|_| !apart).map(Weight::Minus);
    values().map(Weight::Value).chain(constants).chain([Weight::None]).chain(minus).collect()
}

/// Numbers per row that a loss of the normalizer may add to some candidate: sums that depend on the logits.
fn normalizers(p: &Program<'_>, place: &Place, candidates: &[Index]) -> Vec<Index> {
    let mut out = BTreeSet::new();
    for &c in candidates.iter().rev().take(MAX_CANDIDATES) {
        out.extend(above(p, place.x, c).into_iter().filter(|&i| {
            let v = &p.values[i];
            let sum = matches!(p.op(i), Some(Op::Binary(b)) if b.kind == BinaryKind::Add);
            sum && v.ty.dtype.is_float()
                && v.ty.elements() == place.rows
                && place.local.binary_search(&i).is_ok()
        }));
    }
    out.into_iter().rev().take(MAX_WEIGHTS).collect()
}

/// The layout ops that spread numbers of dimensions `have` over rows; `None` if they have other dimensions.
fn spread(shape: &[usize], have: &[AtomList], rows: &[AtomList], size: Sizes<'_>) -> Option<Vec<Op>> {
    let atoms: BTreeSet<AtomId> = have.iter().flatten().copied().collect();
    let mut kept = Vec::new();
    for (d, list) in rows.iter().enumerate() {
        match list.iter().filter(|a| atoms.contains(a)).count() {
            0 if !list.is_empty() => {}
            n if n == list.len() => kept.push(d),
            _ => return None,
        }
    }
    let to: Vec<AtomList> = kept.iter().map(|&d| rows[d].clone()).collect();
    let mut ops = arrange(shape, have, &to, size)?;
    if kept.len() < rows.len() {
        let shape: Shape = rows.iter().map(|l| l.iter().map(|&a| size(a)).product()).collect();
        ops.push(BroadcastInDim { shape, dims: kept.into_iter().collect() }.into());
    }
    Some(ops)
}

/// The layout ops that make numbers per row of a constant.
fn constant_rows(ty: &TensorType, rows: Shape) -> Vec<Op> {
    if ty.shape == rows {
        return Vec::new();
    }
    let mut ops: Vec<Op> = Vec::new();
    if ty.elements() > 1 {
        let ones = |n: usize| -> Shape { std::iter::repeat_n(n, ty.rank()).collect() };
        ops.push(Slice::Static { start: ones(0), limit: ones(1), stride: ones(1) }.into());
    }
    if ty.rank() > 0 {
        ops.push(Reshape { shape: Shape::new() }.into());
    }
    ops.push(BroadcastInDim { shape: rows, dims: Shape::new() }.into());
    ops
}

fn attempt(
    p: &Program<'_>,
    module: &Module,
    (place, site): (&Place, &Site),
    params: &[Index],
    (weight, own): (Weight, Option<Index>),
    candidates: &[Index],
) -> Result<(Index, Found), String> {
    let mut scratch = Module::new("trial");
    let mut solved = solve(p, module, &mut scratch, params, candidates)?;
    let wide = dimensions(&solved, place)?;
    let rows = wide[..wide.len() - 1].to_vec();
    let (bounds, indices) = bounds(place, site.labels, &wide)?;
    let fit = |&i: &Index| solved.dims(i).is_some_and(|d| fits(&wide, &d));
    let fitting: Vec<Index> = candidates.iter().copied().filter(fit).collect();
    let weightings: &[Weighting] = match weight {
        Weight::None => &[Weighting::One],
        Weight::Constant(..) => &[Weighting::Times],
        Weight::Value(_) => &[Weighting::Times, Weighting::Over],
        Weight::Minus(_) => &[Weighting::Times],
    };
    let smoothing = site.smoothing;
    let apart = smoothing == Smoothing::Apart;
    let normalizers: &[Normalizer] = match own {
        Some(_) if !apart => &[Normalizer::Scaled, Normalizer::Own],
        _ => &[Normalizer::Same],
    };
    // A dropped label leaves the normalizer's gradient, or none.
    let mut tests: Vec<(Index, FusedKind)> = Vec::new();
    for &i in &fitting {
        for &weight in weightings {
            for &normalizer in normalizers {
                let kind = |outside| FusedKind::CrossEntropyGrad { outside, weight, normalizer, smoothing };
                tests.extend(Outside::ALL.map(|o| (i, kind(o))));
            }
        }
    }
    if tests.is_empty() {
        return Err("no value has the dimensions of the logits".into());
    }
    let made = tests.iter().map(|t| solved.slice.made[&t.0]).collect();
    solved.slice.graph.set_results(made);
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x6365_6772_6164 };
    let holds = trial.run_indexed(&mut scratch, &indices, &mut |scratch, size, types| {
        let mut g = Graph::new("named");
        let params: Vec<ValueId> = types.iter().map(|t| g.add_param(t.clone())).collect();
        let mut args = Vec::new();
        for (b, &v) in bounds.iter().zip(&params) {
            let dims = solved.dims(b.param).ok_or("a parameter without dimensions")?;
            let ops = arrange(&g.ty(v).shape.clone(), &dims, &b.dims, size)
                .ok_or("an operand has other dimensions")?;
            args.push(lay_out(&mut g, scratch, v, ops)?);
        }
        let forward = FusedKind::CrossEntropy { outside: Outside::Nothing, smoothing: Smoothing::None };
        let lse = add_fused(&mut g, scratch, forward, &args)?[1];
        let per_row = g.ty(lse).clone();
        let w = match weight {
            Weight::None => None,
            Weight::Constant(_, value) => {
                let id = scratch.constants.intern_splat(per_row, value);
                Some(g.add1(scratch, ConstantOp { id }, &[], LocId::UNKNOWN).map_err(|e| e.to_string())?)
            }
            Weight::Value(i) | Weight::Minus(i) => {
                let dims = solved.dims(i).ok_or("a weight without dimensions")?;
                let v = params[2];
                let mut ops = spread(&g.ty(v).shape.clone(), &dims, &rows, size)
                    .ok_or("a weight has other dimensions than rows")?;
                ops.extend(negation(weight));
                Some(lay_out(&mut g, scratch, v, ops)?)
            }
        };
        args.extend(w);
        if let (Some(i), Some(&v)) = (own, params.last()) {
            let dims = solved.dims(i).ok_or("a weight without dimensions")?;
            let ops = arrange(&g.ty(v).shape.clone(), &dims, &rows, size)
                .ok_or("a weight has other dimensions than rows")?;
            args.push(lay_out(&mut g, scratch, v, ops)?);
        }
        args.push(lse);
        let mut results = Vec::new();
        for (i, kind) in &tests {
            let dx = add_fused(&mut g, scratch, kind.clone(), &args)?[0];
            results.push(laid_out(&mut g, scratch, &solved, size, (dx, &wide), *i)?);
        }
        g.set_results(results);
        Ok(g)
    })?;
    let agreeing: Vec<_> = tests.iter().zip(&holds).filter(|h| *h.1).map(|h| h.0).collect();
    let Some((value, kind)) = agreeing.iter().max_by_key(|t| t.0).map(|t| (t.0, t.1.clone())) else {
        return Err("it computes something else than the program".into());
    };
    let outputs: Vec<Output> =
        agreeing.iter().filter(|t| t.1 == kind).filter_map(|t| solved.output("dx", 0, t.0, &wide)).collect();
    let mut operands = bounds.iter().map(|b| operand(p, &solved, b)).collect::<Result<Vec<_>, _>>()?;
    operands.extend(weighted(p, &solved, weight, &rows)?);
    if let Some(i) = own {
        let name = if apart { "u" } else { "s" };
        let s = Bound { name, param: i, aliases: vec![i], dims: rows.clone() };
        operands.push(operand(p, &solved, &s)?);
    }
    Ok((value, Found { rule: BACKWARD, kind, operands, given: vec![("lse", 1)], outputs }))
}

/// The op behind the layout ops that negates a weight, if it is negated.
fn negation(weight: Weight) -> Option<Op> {
    matches!(weight, Weight::Minus(_)).then(|| UnaryKind::Negate.into())
}

/// The weight as an operand, if there is one.
fn weighted(
    p: &Program<'_>,
    solved: &Solved,
    weight: Weight,
    rows: &[AtomList],
) -> Result<Option<Operand>, String> {
    let size = |a: AtomId| solved.atoms.size(a);
    let (value, ops) = match weight {
        Weight::None => return Ok(None),
        Weight::Constant(i, value) => {
            let shape: Shape = rows.iter().map(|l| l.iter().map(|&a| size(a)).product()).collect();
            let mut ops = constant_rows(p.values[i].ty, shape);
            if p.splat(i) == Some(-value) {
                ops.push(UnaryKind::Negate.into());
            }
            (i, ops)
        }
        Weight::Value(i) | Weight::Minus(i) => {
            let dims = solved.dims(i).ok_or("a weight without dimensions")?;
            let ops = spread(&p.values[i].ty.shape, &dims, rows, &size);
            let mut ops = ops.ok_or("a weight has other dimensions than rows")?;
            ops.extend(negation(weight));
            (i, ops)
        }
    };
    Ok(Some(Operand { name: "w", value, ops: ops.clone(), cut: (value, ops) }))
}
