//! Clipping of gradients by their global norm, as a probe.
//!
//! A root is taken for the norm of all gradients if what it is the root of is a sum of squares of tensors, in whatever
//! graphs they are made, each once (or as often as it is the gradient of a parameter: biases that are added to the same
//! sum share theirs); if every tensor that something computed from the norm scales is one of them, and
//! every one of them is scaled; and if the scaled tensor is `g·min(1, max/(norm + eps))`, by numbers below, at and
//! above the threshold. Threshold and epsilon are numbers of the program, or scalars of it, which get several values.

pub(super) mod flow;
mod scaled;
mod squares;

use crate::recognise::define;
use crate::recognise::engine::At;
use crate::recognise::engine::build::Builder;
use crate::recognise::engine::region::Region;
use crate::recognise::engine::rule::{MultiOutput, Tag, WhyNot};
use crate::recognise::engine::run::{Run, introduce};
use crate::recognise::engine::term::Graph;
use flow::{Flow, Path, Place};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::fused::{Clip, ClipForm, FusedKind, Number};
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, Module, Op, ValueId};
use scaled::{Scaled, TermId, Terms};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of an expression that are tried as threshold and epsilon.
const MAX_NUMBERS: usize = 12;

/// Rounded literals at most.
const NEAR: f64 = 2e-6;

/// Norms as multiples of the threshold.
const NORMS: [f64; 8] = [0.0, 1e-3, 0.3, 0.999, 1.0, 1.001, 2.5, 1e4];

/// Elements of gradients.
const ELEMENTS: [f64; 3] = [-1.75, 0.375, 3.0];

/// Times that scalars of which nothing is known get other values.
const TRIALS: usize = 2;

/// A function of the norm, and of threshold and epsilon.
type Function<'f> = &'f dyn Fn(f64, (f64, f64)) -> f64;

/// What was found: the op with the values that it stands for.
struct Site {
    clip: Clip,
    /// The sum of squares, and numbers that are operands.
    operands: Vec<(&'static str, ValueId)>,
    /// For each value which result it is.
    outputs: Vec<(ValueId, u32)>,
}

/// Looks for clippings in a region of one graph and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let [part] = region.parts.as_slice() else { return };
    let mut sites = Vec::new();
    let mut refused: Vec<(String, Option<At>)> = Vec::new();
    let flow = Flow::new(&graph.analysis.module, part.spec.graph);
    for (_, data) in part.graph.ops() {
        let root = match &data.op {
            Op::Unary(u) => u.kind == UnaryKind::Sqrt,
            Op::Binary(b) => {
                let exponent = Place { path: Path::new(), value: data.operands[1] };
                b.kind == BinaryKind::Power && flow.number(&flow.home(exponent)) == Some(0.5)
            }
            _ => false,
        };
        let ty = part.graph.ty(data.results[0]);
        if !root || ty.rank() != 0 || !ty.dtype.is_float() {
            continue;
        }
        match attempt(&flow, data.operands[0]) {
            Ok(Some(site)) => sites.push(site),
            Ok(None) => {}
            Err(why) => refused.push((why, Some(region.at(0, data.results[0])))),
        }
    }
    for site in sites {
        if let Err(why) = unite(graph, region, &site, run) {
            refused.push((why.to_string(), None));
        }
    }
    for (why, at) in refused {
        run.refuse("clip", why, at);
    }
}

/// The clipping by the root of `sum`; none if the root is not of a sum of squares, or is the norm of one tensor that
/// scales nothing.
fn attempt(flow: &Flow<'_>, sum: ValueId) -> Result<Option<Site>, String> {
    let own = |value| flow.home(Place { path: Path::new(), value });
    let total = own(sum);
    let Some(gradients) = squares::summed(flow, &total) else { return Ok(None) };
    let scaled = Scaled::new(flow, &total);
    let mut by_source: BTreeMap<&Place, BTreeSet<TermId>> = BTreeMap::new();
    // Tensors are many, ways of scaling them few.
    let mut known: BTreeMap<TermId, bool> = BTreeMap::new();
    for (from, term) in scaled.tensors.values() {
        if *known.entry(*term).or_insert_with(|| scales(flow.module, &scaled, *term)) {
            by_source.entry(from).or_default().insert(*term);
        }
    }
    if by_source.is_empty() {
        return match gradients.len() {
            1 => Ok(None),
            _ => Err("the norm of several tensors scales none of them".into()),
        };
    }
    if by_source.keys().any(|from| flow.ty(from).rank() == 0) {
        return Err("the norm meets a scalar that is not known".into());
    }
    let covered: BTreeSet<Place> = by_source.keys().flat_map(|from| squares::pieces(flow, from)).collect();
    if !covered.iter().all(|c| gradients.contains_key(c)) {
        return Err("the norm scales a tensor that it is not the norm of".into());
    }
    if covered.len() != gradients.len() {
        return Err("the norm scales some of its tensors only".into());
    }
    let often = by_source.keys().filter_map(|from| {
        let times = squares::pieces(flow, from).iter().map(|p| gradients[p]).max()?;
        (times > 1).then_some((*from, times))
    });
    for (from, times) in often {
        if times > scaled.takers(flow, from) {
            return Err("the norm counts a tensor more often than it is used".into());
        }
    }
    let terms: BTreeSet<&BTreeSet<TermId>> = by_source.values().collect();
    let (max, eps) = numbers(flow, &scaled, &terms, flow.ty(&total).dtype)
        .ok_or("tensors are not scaled by a number of the program over their norm where that is below 1")?;
    let (form, outputs) = outputs(flow, &scaled, sum, (max, eps));
    let (max, eps) = (max.number(&scaled), eps.number(&scaled));
    let mut operands = vec![("sum", sum)];
    operands.extend(max.1.map(|v| ("max", v)));
    operands.extend(eps.1.map(|v| ("eps", v)));
    Ok(Some(Site { clip: Clip { form, max: max.0, eps: eps.0 }, operands, outputs }))
}

/// Whether an expression is more than a tensor that is kept or dropped.
fn scales(module: &Module, scaled: &Scaled, term: TermId) -> bool {
    let at = |norm: f64| scaled.terms.value(module, term, (norm * norm, ELEMENTS[1]), 0);
    NORMS.iter().any(|&n| at(n).is_some_and(|v| v.is_finite() && v != 0.0 && v != ELEMENTS[1]))
}

/// A threshold or an epsilon that is tried.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Tried {
    /// A number.
    Known(f64),
    /// A scalar of which nothing is known.
    Scalar(TermId),
}

impl Tried {
    fn value(self, trial: usize) -> f64 {
        match self {
            Tried::Known(v) => v,
            Tried::Scalar(t) => Terms::tried(t, trial),
        }
    }

    /// The number of the op, with the value that is its operand.
    fn number(self, scaled: &Scaled) -> (Number, Option<ValueId>) {
        match self {
            Tried::Known(v) => (Number::known(v), None),
            Tried::Scalar(t) => (Number::Operand, scaled.terms.scalar(t).map(|(_, at)| at.value)),
        }
    }
}

/// Threshold and epsilon with which every tensor is scaled as a clipping does. Scalars must have the type of the norm.
fn numbers(
    flow: &Flow<'_>,
    scaled: &Scaled,
    tensors: &BTreeSet<&BTreeSet<TermId>>,
    dtype: DType,
) -> Option<(Tried, Tried)> {
    let terms: BTreeSet<TermId> = tensors.iter().flat_map(|t| t.iter().copied()).collect();
    // A factor of 1 is gone from the program.
    let mut known = BTreeSet::from([1.0f64.to_bits()]);
    known.extend(terms.iter().flat_map(|&t| scaled.terms.numbers(t)));
    let mut all: Vec<Tried> = known
        .into_iter()
        .map(f64::from_bits)
        .filter(|v| *v > 0.0 && v.is_finite())
        .map(Tried::Known)
        .collect();
    let scalars: BTreeSet<TermId> = terms.iter().flat_map(|&t| scaled.terms.scalars(t)).collect();
    let fits = |t: &TermId| {
        scaled
            .terms
            .scalar(*t)
            .is_some_and(|(d, at)| d == dtype && at.path.is_empty() && flow.ty(at).dtype == d)
    };
    all.extend(scalars.into_iter().filter(fits).map(Tried::Scalar));
    if all.len() > MAX_NUMBERS {
        return None;
    }
    let mut best: Option<(f64, (Tried, Tried))> = None;
    for &max in &all {
        let below = |e: &Tried| match (*e, max) {
            (Tried::Known(e), Tried::Known(max)) => e < max,
            (e, max) => e != max,
        };
        for eps in [Tried::Known(0.0)].into_iter().chain(all.iter().copied().filter(below)) {
            let worst = |of: &BTreeSet<TermId>| -> f64 {
                of.iter().map(|&t| distance(flow.module, scaled, t, (max, eps))).fold(f64::INFINITY, f64::min)
            };
            let far = tensors.iter().map(|t| worst(t)).fold(0.0, f64::max);
            if far <= NEAR && best.is_none_or(|b| far < b.0) {
                best = Some((far, (max, eps)));
            }
        }
    }
    best.map(|b| b.1)
}

/// The largest relative difference of an expression and a clipped element.
fn distance(module: &Module, scaled: &Scaled, term: TermId, (max, eps): (Tried, Tried)) -> f64 {
    let mut far = 0.0f64;
    for trial in 0..TRIALS {
        let (max, eps) = (max.value(trial), eps.value(trial));
        for n in NORMS {
            let norm = n * max;
            for g in ELEMENTS {
                let want = g * (max / (norm + eps)).min(1.0);
                let value = scaled.terms.value(module, term, (norm * norm, g), trial);
                let Some(v) = value else { return f64::INFINITY };
                far = far.max(if v.is_nan() { f64::INFINITY } else { (v - want).abs() / want.abs() });
                if far > NEAR {
                    return far;
                }
            }
        }
    }
    far
}

/// The scalars of the program that are results of the op, with the form that they show.
fn outputs(
    flow: &Flow<'_>,
    scaled: &Scaled,
    sum: ValueId,
    (max, eps): (Tried, Tried),
) -> (ClipForm, Vec<(ValueId, u32)>) {
    let float = flow.ty(&Place { path: Path::new(), value: sum }).dtype;
    let same = |term: TermId, trial: usize, is: Function<'_>| {
        let (max, eps) = (max.value(trial), eps.value(trial));
        NORMS.iter().map(|n| n * max).chain([f64::INFINITY, f64::NAN]).all(|norm| {
            let want = is(norm, (max, eps));
            let value = scaled.terms.value(flow.module, term, (norm * norm, 0.0), trial);
            value.is_some_and(|v| {
                v == want || v.is_nan() && want.is_nan() || (v - want).abs() <= NEAR * want.abs()
            })
        })
    };
    let pick = |dtype: DType, is: Function<'_>| -> Vec<ValueId> {
        let scalar = |at: &Place| flow.ty(at).rank() == 0 && flow.ty(at).dtype == dtype;
        let own = scaled.scalars.iter().filter(|(at, _)| at.path.is_empty() && scalar(at));
        let same = |term: TermId| (0..TRIALS).all(|trial| same(term, trial, is));
        let mut values: Vec<ValueId> = own.filter(|(_, term)| same(**term)).map(|(at, _)| at.value).collect();
        values.sort_unstable();
        values
    };
    let ratio = |n: f64, (max, eps): (f64, f64)| max / (n + eps);
    let forms: [(ClipForm, DType, Function<'_>); 3] = [
        (ClipForm::Minimum, float, &|n, of| if n.is_nan() { n } else { ratio(n, of).min(1.0) }),
        (ClipForm::Below, float, &|n, of| if ratio(n, of) < 1.0 { ratio(n, of) } else { 1.0 }),
        (ClipForm::Within, DType::I1, &|n, (max, _)| f64::from(u8::from(n < max))),
    ];
    let mut found: Vec<(ValueId, u32)> = pick(float, &|n, _| n).into_iter().map(|v| (v, 0)).collect();
    let shown = forms.map(|(form, dtype, is)| (form, pick(dtype, is)));
    let shown = shown.into_iter().find(|(_, values)| !values.is_empty());
    let (form, values) = shown.unwrap_or((ClipForm::Minimum, Vec::new()));
    found.extend(values.into_iter().map(|v| (v, 1)));
    (form, found)
}

fn unite(graph: &mut Graph, region: &Region, site: &Site, run: &mut Run) -> Result<(), WhyNot> {
    let class = |graph: &Graph, v: ValueId| {
        region.class(graph, 0, v).ok_or_else(|| WhyNot::Precondition("a value has no class".into()))
    };
    let mut inputs = Vec::new();
    for &(name, v) in &site.operands {
        inputs.push((name, class(graph, v)?));
    }
    let args: Vec<egg::Id> = inputs.iter().map(|i| i.1).collect();
    let tuple = Builder::new(graph).fused(FusedKind::Clip(site.clip), &args, |module, types| {
        define::clip::clip(module, types, &site.clip)
    })?;
    let mut outputs = Vec::new();
    for &(v, result) in &site.outputs {
        let name = if result == 0 { "norm" } else { "factor" };
        outputs.push((name, result, class(graph, v)?));
    }
    introduce(graph, region, ("clip", Tag::Real), MultiOutput { tuple, inputs, outputs }, run)
}
