//! Checking rules by numbers: random instances of a rule's own patterns, before and after the rule.
//!
//! Small instances come first, so a wrong rule is refuted by a small counterexample. Exact rules must keep every
//! bit on values that include ±0, ±∞, NaN, denormals and the largest numbers, in the working type and in wide
//! mode. Real rules must agree within [`tolerance`] on ordinary values in both modes, and in wide mode also on
//! rows of zeros and on numbers near the ends of the range, wherever the original is finite.

pub mod random;
pub mod sample;

use super::define::compute_type;
use super::engine::build::Builder;
use super::engine::region::{PartSpec, Region, Source};
use super::engine::rule::{Frame, Rule, Tag};
use super::engine::run::{Limits, facts_hold, run};
use super::engine::search::search;
use super::engine::term::{Graph, Node};
use super::{extract, rules};
use crate::error::{PassError, Result};
use egg::{Id, Language};
use msc_ir::interp::{self, Mode};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::{DType, GraphId, LocId, Module, Op, Tensor, TensorType, ValueId, text};
use random::Random;
use sample::sample;
use std::collections::{BTreeMap, BTreeSet};

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every instance agreed.
    Holds {
        /// Instances on which the rule fired.
        fired: usize,
        /// Instances generated.
        tried: usize,
        /// Largest difference seen, relative to the largest element.
        worst: f64,
    },
    /// An instance differs.
    Refuted(Box<Counterexample>),
}

/// An instance on which a rule is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterexample {
    /// The instance, as text.
    pub program: String,
    /// Inputs.
    pub inputs: Vec<Tensor>,
    /// Which result differs.
    pub result: usize,
    /// The result before the rule.
    pub before: Tensor,
    /// The result after the rule.
    pub after: Tensor,
}

impl std::fmt::Display for Counterexample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "result {} differs on", self.result)?;
        writeln!(f, "{}", self.program)?;
        for (i, t) in self.inputs.iter().enumerate() {
            writeln!(f, "input {i}: {} {:?}", t.ty(), t.data.to_f64s())?;
        }
        writeln!(f, "before: {:?}", self.before.data.to_f64s())?;
        writeln!(f, "after:  {:?}", self.after.data.to_f64s())
    }
}

/// Difference allowed to a real rule, relative to the largest element (at least 1). Literals agree to 1e-6, which
/// bounds what wide mode may show where they were rounded to f32; f64 literals are exact. In the working type a
/// handful of roundings add up.
pub fn tolerance(dtype: DType, mode: Mode) -> f64 {
    match (mode, dtype) {
        (Mode::Wide, DType::F64) | (Mode::Spec, DType::F64) => 1e-10,
        (Mode::Wide, DType::F32) => 4e-6,
        (Mode::Spec, DType::F32) => 2e-5,
        // Literals are rounded to 8 or 11 bits, and so is every step.
        _ => 0.1,
    }
}

/// Checks a rule on `instances` instances on which it fires.
///
/// # Errors
/// If the rule does not fire on its own patterns, or breaks the e-graph.
pub fn check(rule: &Rule, instances: usize, seed: u64) -> Result<Verdict> {
    let framed = rule.roots.iter().any(|r| r.frame != Frame::Any);
    // Several roots: an op of several results, which only the whole pass replaces.
    let named = framed || rule.roots.len() > 1;
    let mut rng = Random::new(seed);
    let (mut fired, mut tried, mut worst) = (0, 0, 0.0f64);
    while fired < instances {
        if tried > 100 * instances {
            return Err(PassError::Broken {
                pass: "recognise",
                message: format!(
                    "rule {} fires on {fired} of {tried} instances of its own pattern",
                    rule.name
                ),
            });
        }
        let size = 1 + 4 * tried / (instances + 1);
        tried += 1;
        let dtype = rng.pick(rule.dtypes);
        let s = sample(rule, dtype, size.min(5), &mut rng)?;
        let pair =
            if named { recognised(rule, s.module, s.graph)? } else { rewritten(rule, s.module, s.graph)? };
        let Some(pair) = pair else { continue };
        fired += 1;
        // Row operations hold their literals in the type that they compute in.
        let literals = if framed { compute_type(dtype) } else { dtype };
        match compare(rule.tag, dtype, literals, &pair, &mut rng)? {
            Ok(w) => worst = worst.max(w),
            Err(c) => return Ok(Verdict::Refuted(c)),
        }
    }
    Ok(Verdict::Holds { fired, tried, worst })
}

/// Two graphs that should compute the same.
struct Pair {
    module: Module,
    before: GraphId,
    after: GraphId,
}

fn build(module: Module, graph: GraphId) -> (Graph, Region) {
    let params = vec![Source::Outside; module.graph(graph).params().len()];
    Region::build(module, &[PartSpec { graph, params }])
}

/// The instance, and what the pass makes of it with this rule alone beside the normal form.
fn recognised(rule: &Rule, module: Module, graph: GraphId) -> Result<Option<Pair>> {
    let source = module.clone();
    let (mut egraph, region) = build(module, graph);
    let normal = rules::normal_form();
    let mut all = rules::normal_form();
    all.push(rule.clone());
    let run = run(&mut egraph, &region, &[&normal, &all], Limits::default())?;
    let keep = vec![vec![true; region.parts[0].graph.results().len()]];
    let mut extraction = extract::extract(&egraph, &region, &run, &keep, true)?;
    let Some(part) = extraction.parts.pop() else { return Ok(None) };
    if run.reasons.is_empty() && run.applied.contains_key(rule.name) {
        // It names no op: its unions are compared as they are.
        return rewritten(rule, source, graph);
    }
    if extraction.used.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    let mut module = std::mem::take(&mut egraph.analysis.module);
    let after = module.add_graph(part.graph);
    Ok(Some(Pair { module, before: graph, after }))
}

/// For each union that the rule makes on the instance, both sides.
fn rewritten(rule: &Rule, module: Module, graph: GraphId) -> Result<Option<Pair>> {
    let (mut egraph, region) = build(module, graph);
    let program: BTreeSet<Id> = region.values_by_class(&egraph).keys().copied().collect();
    let matches = search(&egraph, rule, &program);
    let mut unions = Vec::new();
    for m in &matches {
        if facts_hold(&egraph, rule, m).is_ok()
            && let Ok(applied) = (rule.apply)(&mut Builder::new(&mut egraph), m)
        {
            unions.extend(applied.unions);
        }
    }
    if let Some(f) = egraph.analysis.faults.first() {
        return Err(PassError::Broken { pass: "recognise", message: f.clone() });
    }
    unions.retain(|&(a, b)| egraph.find(a) != egraph.find(b));
    if unions.is_empty() {
        return Ok(None);
    }
    let params = egraph.analysis.module.graph(graph).param_types();
    let side = |ids: Vec<Id>, egraph: &Graph| term_graph(egraph, &params, &ids);
    let before = side(unions.iter().map(|u| u.0).collect(), &egraph)?;
    let after = side(unions.iter().map(|u| u.1).collect(), &egraph)?;
    let mut module = std::mem::take(&mut egraph.analysis.module);
    let before = module.add_graph(before);
    let after = module.add_graph(after);
    Ok(Some(Pair { module, before, after }))
}

/// The terms of classes as a graph; before any union a class has one term, or the constant that it is.
fn term_graph(egraph: &Graph, params: &[TensorType], ids: &[Id]) -> Result<msc_ir::Graph> {
    let mut g = msc_ir::Graph::new("side");
    let leaves: Vec<ValueId> = params.iter().map(|t| g.add_param(t.clone())).collect();
    let mut made: BTreeMap<Id, ValueId> = BTreeMap::new();
    let mut todo: Vec<Id> = ids.iter().map(|&i| egraph.find(i)).collect();
    while let Some(&c) = todo.last() {
        if made.contains_key(&c) {
            todo.pop();
            continue;
        }
        // Constants first, so that a folded class needs no operands.
        let node = egraph[c].nodes.iter().min_by_key(|n| n.children().len());
        let node = node.ok_or_else(|| broken("an empty class"))?;
        let missing: Vec<Id> =
            node.children().iter().map(|&k| egraph.find(k)).filter(|k| !made.contains_key(k)).collect();
        if !missing.is_empty() {
            todo.extend(missing);
            continue;
        }
        let value = match node {
            Node::Leaf(n) => *leaves.get(*n as usize).ok_or_else(|| broken("an unknown leaf"))?,
            Node::Op { op, args } => {
                let args: Vec<ValueId> = args.iter().map(|&a| made[&egraph.find(a)]).collect();
                g.add1(&egraph.analysis.module, egraph.analysis.op(*op).clone(), &args, LocId::UNKNOWN)?
            }
            Node::Project { .. } => return Err(broken("a tuple in a simple rule")),
        };
        made.insert(c, value);
        todo.pop();
    }
    g.set_results(ids.iter().map(|&i| made[&egraph.find(i)]).collect());
    Ok(g)
}

fn broken(message: &str) -> PassError {
    PassError::Broken { pass: "recognise", message: message.to_string() }
}

/// Which values inputs are made of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Values {
    /// In [−2, 2).
    Ordinary,
    /// With zeros, whole rows of them, denormals and numbers whose squares are still finite in f64.
    Extreme,
    /// With infinities, NaN and the largest numbers as well.
    Any,
}

fn input(ty: &TensorType, values: Values, rng: &mut Random) -> Tensor {
    let zero = values != Values::Ordinary && rng.chance(15);
    let corner = |rng: &mut Random| {
        let finite = [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-45, 2.5e-39, 3e18, -1e19];
        let all = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3.4028234663852886e38, -65504.0];
        if values == Values::Any && rng.chance(40) { rng.pick(&all) } else { rng.pick(&finite) }
    };
    let data: Vec<f64> = (0..ty.elements())
        .map(|_| match values {
            _ if ty.dtype == DType::I1 => f64::from(u8::from(rng.chance(50))),
            _ if zero => 0.0,
            Values::Ordinary => rng.small(),
            _ if rng.chance(50) => corner(rng),
            _ => rng.small(),
        })
        .collect();
    Tensor::from_f64s(ty, &data)
}

/// `Ok` with the largest difference, or a counterexample.
fn compare(
    tag: Tag,
    dtype: DType,
    literals: DType,
    pair: &Pair,
    rng: &mut Random,
) -> Result<std::result::Result<f64, Box<Counterexample>>> {
    let rounds: &[(Values, Mode)] = match tag {
        Tag::Exact => &[(Values::Any, Mode::Spec), (Values::Any, Mode::Wide)],
        Tag::Real => {
            &[(Values::Ordinary, Mode::Spec), (Values::Ordinary, Mode::Wide), (Values::Extreme, Mode::Wide)]
        }
    };
    let mut worst = 0.0f64;
    let (with_terms, terms) = with_terms(&pair.module, pair.before);
    for &(values, mode) in rounds {
        let types = pair.module.graph(pair.before).param_types();
        let inputs: Vec<Tensor> = types.iter().map(|t| input(t, values, rng)).collect();
        let before = interp::run(&with_terms, pair.before, &inputs, mode)?;
        let after = interp::run(&pair.module, pair.after, &inputs, mode)?;
        let mut parts = before[after.len()..].iter();
        for (result, (a, b)) in before.iter().zip(&after).enumerate() {
            let largest = parts.by_ref().take(terms[result]).map(largest).fold(1.0f64, f64::max);
            let differs = match tag {
                Tag::Exact => !same_bits(a, b),
                Tag::Real => {
                    let d = difference_to(a, b, largest);
                    worst = worst.max(d);
                    d > tolerance(if mode == Mode::Wide { literals } else { dtype }, mode)
                }
            };
            if differs {
                let g = pair.module.graph(pair.before);
                return Ok(Err(Box::new(Counterexample {
                    program: text::print_graph(&pair.module, g, text::PrintOptions::default()),
                    inputs,
                    result,
                    before: a.clone(),
                    after: b.clone(),
                })));
            }
        }
    }
    Ok(Ok(worst))
}

/// The module with the terms of each result, where it is a sum, as further results of a graph; how many each has.
/// A rounded literal moves a term by its own share, and terms may cancel, so a difference is small or large beside
/// the largest term.
fn with_terms(module: &Module, graph: GraphId) -> (Module, Vec<usize>) {
    let (mut module, mut g) = (module.clone(), module.graph(graph).clone());
    let mut results = g.results().to_vec();
    let mut counts = Vec::new();
    for r in g.results().to_vec() {
        let before = results.len();
        let mut todo = vec![r];
        while let Some(v) = todo.pop() {
            let op = g.def(v).map(|(op, _)| g.op(op));
            match op.map(|o| (&o.op, &o.operands)) {
                Some((Op::Binary(b), args)) if matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract) => {
                    todo.extend(args.iter().copied());
                }
                Some((Op::Convert(_), args)) => todo.extend(args.iter().copied()),
                _ => results.push(v),
            }
        }
        counts.push(results.len() - before);
    }
    g.set_results(results);
    module.set_graph(graph, g);
    (module, counts)
}

/// Whether two tensors are the same bit for bit, any NaN being any other.
pub fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    let same = |(x, y): (f64, f64)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
    a.ty() == b.ty() && a.data.to_f64s().into_iter().zip(b.data.to_f64s()).all(same)
}

/// Share of elements that agree bit for bit where narrow floats occur and are rounded at the same places: a sum in
/// another order may move one across the border between two of them, a rounding elsewhere moves half of them.
pub const SAME_ROUNDING: f64 = 0.9;

/// The share of elements of two tensors that are the same: bit for bit in narrow types, in wide ones up to what a sum in
/// another order does, which is far below the rounding of a narrow value on the way.
pub(crate) fn alike(a: &Tensor, b: &Tensor) -> f64 {
    /// Relative to the largest element; f16 rounds at 5e-4.
    const WIDE_ROUNDING: f64 = 3e-5;
    let narrow = matches!(a.dtype(), DType::BF16 | DType::F16);
    let (a, b) = (a.data.to_f64s(), b.data.to_f64s());
    let largest = a.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let near = if narrow { 0.0 } else { WIDE_ROUNDING * largest };
    let same = |(x, y): &(&f64, &f64)| x == y || (*x - *y).abs() <= near || x.is_nan() && y.is_nan();
    let n = a.iter().zip(&b).filter(same).count();
    if a.is_empty() { 1.0 } else { n as f64 / a.len() as f64 }
}

/// The largest difference where `a` is finite, relative to its largest finite element, at least 1.
pub fn difference(a: &Tensor, b: &Tensor) -> f64 {
    difference_to(a, b, 1.0)
}

/// The same, relative to `least` where that is more.
fn difference_to(a: &Tensor, b: &Tensor, least: f64) -> f64 {
    if a.ty() != b.ty() {
        return f64::INFINITY;
    }
    let scale = largest(a).max(least);
    let (a, b) = (a.data.to_f64s(), b.data.to_f64s());
    let each = a.iter().zip(&b).filter(|(x, _)| x.is_finite()).map(|(x, y)| {
        let d = (x - y).abs() / scale;
        if d.is_nan() { f64::INFINITY } else { d }
    });
    each.fold(0.0, f64::max)
}

/// The largest finite element.
fn largest(t: &Tensor) -> f64 {
    t.data.to_f64s().iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()))
}
