//! The forward op: which values are the loss of each row, its sum, or the normalizer.

use super::super::softmax::rows_first;
use super::FORWARD;
use super::find::Place;
use crate::recognise::probe::found::{
    Bound, Found, Output, Solved, add_fused, closed, lay_out, operand, operands, solve,
};
use crate::recognise::probe::indexed::Indexed;
use crate::recognise::probe::layout::{arrange, fits};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::{Sizes, Trial};
use msc_ir::factor::solve::AtomList;
use msc_ir::ops::fused::{FusedKind, Outside, Scalar, Smoothing};
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::unary::{Unary, UnaryKind};
use msc_ir::{Graph, Module, Monoid, Op, ValueId};
use std::collections::BTreeSet;

/// Values that are tried as results; exporters have up to thirty.
const MAX_CANDIDATES: usize = 64;

/// Ops between a value of the place and the numbers that its operands are made of; exporters have up to ten.
const MAX_STEPS: usize = 64;

/// A cross-entropy that was found.
#[derive(Clone, Debug)]
pub struct Site {
    /// It.
    pub found: Found,
    /// Its labels.
    pub labels: Index,
    /// What it counts beside them.
    pub smoothing: Smoothing,
}

/// What a value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Loss(Outside),
    /// The label's log-probability.
    Negative(Outside),
    /// All rows' losses together.
    Sum(Outside),
    /// The normalizer.
    Lse,
    /// The losses against all labels, and what they are negated.
    Rest,
    NegativeRest,
}

/// The dimensions of a place in a slice: the rows', and the vocabulary last.
pub fn dimensions(solved: &Solved, place: &Place) -> Result<Vec<AtomList>, String> {
    let dims = solved.dims(place.exp).ok_or("the exponential is not part of the computation")?;
    Ok(rows_first(&dims, place.dim))
}

/// The parameters that logits and labels are, and what labels count along.
pub fn bounds(place: &Place, labels: Index, wide: &[AtomList]) -> Result<(Vec<Bound>, Vec<Indexed>), String> {
    let (vocabulary, rows) = wide.split_last().ok_or("logits have no dimension")?;
    let bound =
        |name, i: Index, dims: &[AtomList]| Bound { name, param: i, aliases: vec![i], dims: dims.to_vec() };
    let &[along] = vocabulary.as_slice() else {
        return Err("the vocabulary is several dimensions".into());
    };
    let bounds = vec![bound("x", place.x, wide), bound("labels", labels, rows)];
    Ok((bounds, vec![Indexed { param: 1, along }]))
}

/// A result of a named op in the layout of a value of the slice.
///
/// # Errors
/// If it has no such layout.
pub fn laid_out(
    g: &mut Graph,
    scratch: &Module,
    solved: &Solved,
    size: Sizes<'_>,
    (v, from): (ValueId, &[AtomList]),
    to: Index,
) -> Result<ValueId, String> {
    let to = solved.dims(to).ok_or("a result without dimensions")?;
    let ops = arrange(&g.ty(v).shape.clone(), from, &to, size).ok_or("a result has other dimensions")?;
    lay_out(g, scratch, v, ops)
}

/// Finds the forward op at a place.
///
/// # Errors
/// Why there is none, in words.
pub fn forward(p: &Program<'_>, module: &Module, place: &Place) -> Result<Site, String> {
    let mut why = String::from("it computes something else than the program");
    let smoothed = shares(p, place).into_iter().map(|(label, each)| Smoothing::Mixed { label, each });
    for smoothing in [Smoothing::None].into_iter().chain(smoothed) {
        for &labels in &place.labels {
            match attempt(p, module, place, labels, smoothing) {
                Ok((found, smoothing)) => return Ok(Site { found, labels, smoothing }),
                // What a plain loss lacks says more than what a smoothed one does.
                Err(e) if smoothing == Smoothing::None => why = e,
                Err(_) => {}
            }
        }
    }
    Err(why)
}

/// Pairs of numbers that may be the shares of the label and of each label: with each for all labels they are 1. They are
/// what is computed from labels is multiplied by, and has added.
fn shares(p: &Program<'_>, place: &Place) -> Vec<(Scalar, Scalar)> {
    let wide = p.values[place.x].ty.elements();
    let Some(n) = wide.checked_div(place.rows) else { return Vec::new() };
    let mut numbers: Vec<f64> = Vec::new();
    for &i in &place.local {
        for o in above(p, place, i) {
            if let Some(s) = p.splat(o)
                && (0.0..1.0).contains(&s)
                && s > 0.0
                && !numbers.contains(&s)
            {
                numbers.push(s);
            }
        }
    }
    let mut out = Vec::new();
    for &label in &numbers {
        for &each in &numbers {
            // f32 holds both rounded, and `each` is counted `n` times.
            if (label + each * n as f64 - 1.0).abs() < 1e-6 && each < label {
                out.push((Scalar::new(label), Scalar::new(each)));
            }
        }
    }
    out
}

/// What the operands of a value of the place are made of, outside the place.
fn above(p: &Program<'_>, place: &Place, value: Index) -> BTreeSet<Index> {
    let outside = |i: &Index| *i != place.x && place.local.binary_search(i).is_err();
    let mut todo: Vec<Index> = p.values[value].operands.iter().copied().filter(outside).collect();
    let mut seen: BTreeSet<Index> = todo.iter().copied().collect();
    while let Some(i) = todo.pop() {
        // Numbers per row are the loss's weights.
        if p.values[i].ty.elements() > place.rows && seen.len() < MAX_STEPS {
            todo.extend(p.values[i].operands.iter().copied().filter(|o| seen.insert(*o)));
        }
    }
    seen
}

fn attempt(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    labels: Index,
    smoothing: Smoothing,
) -> Result<(Found, Smoothing), String> {
    let plain = smoothing == Smoothing::None;
    let params = [place.x, labels];
    let may_be = |&i: &Index| {
        let ty = p.values[i].ty;
        let sum = ty.elements() == 1 && matches!(p.op(i), Some(Op::Reduce(_)));
        ty.dtype.is_float() && (ty.elements() == place.rows || sum) && closed(p, &params, i)
    };
    let candidates: Vec<Index> = place.local.iter().copied().filter(may_be).take(MAX_CANDIDATES).collect();
    if candidates.is_empty() {
        return Err("nothing per row is computed from the logits and the labels".into());
    }
    let mut scratch = Module::new("trial");
    let mut solved = solve(p, module, &mut scratch, &params, &candidates)?;
    let wide = dimensions(&solved, place)?;
    let rows = &wide[..wide.len() - 1];
    let (bounds, indices) = bounds(place, labels, &wide)?;
    let mut tests: Vec<(Index, Part)> = Vec::new();
    for &i in &candidates {
        let dims = solved.dims(i).ok_or("a result without dimensions")?;
        if p.values[i].ty.elements() == place.rows && fits(rows, &dims) {
            tests.push((i, Part::Lse));
            if plain {
                tests.extend([(i, Part::Rest), (i, Part::NegativeRest)]);
            }
            tests.extend(Outside::ALL.map(|o| (i, Part::Loss(o))));
            tests.extend(Outside::ALL.map(|o| (i, Part::Negative(o))));
        } else if p.values[i].ty.rank() == 0 {
            tests.extend(Outside::ALL.map(|o| (i, Part::Sum(o))));
        }
    }
    let made = tests.iter().map(|t| solved.slice.made[&t.0]).collect();
    solved.slice.graph.set_results(made);
    let all: Op = Reduce { dims: (0..rows.len()).collect(), monoid: Monoid::Sum }.into();
    let minus: Op = Unary { kind: UnaryKind::Negate }.into();
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x6365_6c6f_7373 };
    let holds = trial.run_indexed(&mut scratch, &indices, &mut |scratch, size, types| {
        let mut g = Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let mut made = Vec::new();
        for outside in Outside::ALL {
            let kind = FusedKind::CrossEntropy { outside, smoothing };
            made.push((outside, add_fused(&mut g, scratch, kind, &args)?));
        }
        let apart = FusedKind::CrossEntropy { outside: Outside::Nothing, smoothing: Smoothing::Apart };
        let rest = if plain { Some(add_fused(&mut g, scratch, apart, &args)?[2]) } else { None };
        let mut results = Vec::new();
        for &(i, part) in &tests {
            let loss = |o: Outside| made.iter().find(|m| m.0 == o).map_or(made[0].1[0], |m| m.1[0]);
            let v = match part {
                Part::Lse => made[0].1[1],
                Part::Rest | Part::NegativeRest => {
                    let rest = rest.ok_or("there is no rest")?;
                    let negated = part == Part::NegativeRest;
                    lay_out(&mut g, scratch, rest, if negated { vec![minus.clone()] } else { Vec::new() })?
                }
                Part::Loss(o) => loss(o),
                Part::Negative(o) => lay_out(&mut g, scratch, loss(o), vec![minus.clone()])?,
                Part::Sum(o) => lay_out(&mut g, scratch, loss(o), vec![all.clone()])?,
            };
            results.push(match part {
                Part::Sum(_) => v,
                _ => laid_out(&mut g, scratch, &solved, size, (v, rows), i)?,
            });
        }
        g.set_results(results);
        Ok(g)
    })?;
    let agreeing: Vec<(Index, Part)> = tests.iter().zip(&holds).filter(|h| *h.1).map(|h| *h.0).collect();
    let of = |outside| {
        [Part::Loss(outside), Part::Negative(outside), Part::Sum(outside)]
            .into_iter()
            .find(|part| agreeing.iter().any(|t| t.1 == *part))
            .map(|part| (outside, part))
    };
    let Some((outside, part)) = Outside::ALL.into_iter().find_map(of) else {
        return Err("it computes something else than the program".into());
    };
    let output = |&(value, is): &(Index, Part)| -> Option<Output> {
        match is {
            Part::Lse => solved.output("lse", 1, value, rows),
            Part::Rest => solved.output("rest", 2, value, rows),
            Part::NegativeRest => {
                let mut o = solved.output("rest", 2, value, rows)?;
                o.ops.insert(0, minus.clone());
                Some(o)
            }
            is if is != part => None,
            Part::Loss(_) => solved.output("loss", 0, value, rows),
            Part::Negative(_) => {
                let mut o = solved.output("loss", 0, value, rows)?;
                o.ops.insert(0, minus.clone());
                Some(o)
            }
            Part::Sum(_) => Some(Output { name: "loss", result: 0, value, ops: vec![all.clone()] }),
        }
    };
    let outputs: Vec<Output> = agreeing.iter().filter_map(output).collect();
    let args = bounds.iter().map(|b| operand(p, &solved, b)).collect::<Result<Vec<_>, _>>()?;
    let rest = agreeing.iter().any(|t| matches!(t.1, Part::Rest | Part::NegativeRest));
    let smoothing = if rest { Smoothing::Apart } else { smoothing };
    let kind = FusedKind::CrossEntropy { outside, smoothing };
    Ok((Found { rule: FORWARD, kind, operands: args, given: Vec::new(), outputs }, smoothing))
}
