//! The verdict on a mutant.

use super::Mutant;
use super::edit::apply;
use super::subject::Subject;
use msc_ir::Tensor;
use msc_ir::interp::Mode;
use msc_runtime::check::{Compute, Tolerance};

/// What became of a mutant.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The check of outputs fails: the output that fails most clearly, its distance in units of what is allowed.
    Caught(String, f64),
    /// In f64 the mutant computes what the program does: the largest distance.
    Equivalent(f64),
    /// The mutation moves every output by less than rounding drives two correct steps apart. The largest ratio.
    BelowRounding(f64),
    /// A mistake that is small by nature, and smaller in every output than what another way of compiling the step
    /// changes ([`split`]): the largest distance.
    BelowSplit(f64),
    /// Nobody noticed: the output that differs most, its distance in units of what is allowed.
    Missed(String, f64),
    /// The mutation does not fit there.
    Inapplicable(String),
}

/// Two runs in f64 agree if no output differs by more than this: relative to the largest element for plain
/// outputs, to the update for state. f64 rounding is 1e-16 a step; a thousand roundings in a row stay below.
pub const SAME: f64 = 1e-12;

/// The largest distance between two correct runs of one step that differ in how they are compiled. f32: the reference's
/// own compiler (XLA) on four devices and on one, another order of sums amplified on the way. bf16: the reference with
/// excess precision between fused ops, and rounding after each as the program says. No rule may refuse that.
pub fn split(compute: Compute) -> f64 {
    match compute {
        Compute::F32 => 1.7e-5,
        Compute::Bf16 => 3.4e-2,
        Compute::Fp16 => Tolerance::measured(compute).update,
    }
}

/// The distance of two results: relative to the update of what was `before`, or to the largest element.
fn distance(a: &Tensor, b: &Tensor, before: Option<&Tensor>) -> f64 {
    let (mut apart, mut scale, mut largest) = (0f64, 0f64, 0f64);
    for i in 0..b.len() {
        let (x, y) = (a.data.get_f64(i), b.data.get_f64(i));
        if x.is_nan() && y.is_nan() {
            continue;
        }
        let d = if x == y { 0.0 } else { (x - y).abs() };
        if d.is_nan() {
            return f64::INFINITY;
        }
        match before {
            Some(t) => {
                apart += d * d;
                scale += (y - t.data.get_f64(i)).powi(2);
            }
            None => {
                apart = apart.max(d * d);
                scale = scale.max(y * y);
            }
        }
        largest = largest.max(y.abs());
    }
    match apart {
        0.0 => 0.0,
        // What does not change has no update: its own size, then.
        _ if scale == 0.0 => apart.sqrt() / largest.max(f64::MIN_POSITIVE),
        _ => (apart / scale).sqrt(),
    }
}

/// The distance of each output of two runs.
pub(crate) fn distances(s: &Subject, a: &[Tensor], b: &[Tensor]) -> Vec<f64> {
    let before = |r: usize| s.carried.iter().find(|c| c.0 == r).map(|&(_, p)| &s.inputs[p]);
    (0..b.len())
        .map(|r| {
            if b[r].dtype().is_float() {
                distance(&a[r], &b[r], before(r))
            } else if a[r] == b[r] {
                0.0
            } else {
                f64::INFINITY
            }
        })
        .collect()
}

/// Runs a mutant and judges it.
pub fn judge(s: &Subject, m: &Mutant) -> Verdict {
    let mut module = s.module.clone();
    let edited = match apply(&mut module, m.graph, &m.changes) {
        Ok(e) => e,
        Err(e) => return Verdict::Inapplicable(e.to_string()),
    };
    if m.graph != s.entry.graph {
        module.set_graph(m.graph, edited.graph.clone());
    }
    let spec = match s.run(&module, m.graph, &edited, Mode::Spec) {
        Ok(o) => o,
        Err(e) => return Verdict::Inapplicable(e.to_string()),
    };
    let report = s.check(&spec);
    // An output that the unchanged program misses says nothing about the mutant.
    let rows = report.rows.iter().zip(&s.baseline.rows).filter(|(_, b)| b.passed()).map(|(r, _)| r);
    let worst = rows.max_by(|a, b| a.severity().total_cmp(&b.severity()));
    let (name, units) = worst.map_or((String::new(), 0.0), |r| (r.name.clone(), r.severity()));
    if worst.is_some_and(|r| !r.passed()) {
        return Verdict::Caught(name, units);
    }
    let plain =
        |r: &super::subject::Record| -> Vec<Tensor> { r.outputs.iter().map(|t| (**t).clone()).collect() };
    let (own, exact) = (plain(&s.spec), plain(&s.wide));
    let moved = if m.rounds {
        // What only rounds differently is seen in the step's own types alone.
        distances(s, &spec, &own)
    } else {
        match s.run(&module, m.graph, &edited, Mode::Wide) {
            Ok(o) => distances(s, &o, &exact),
            Err(e) => return Verdict::Inapplicable(e.to_string()),
        }
    };
    let largest = moved.iter().copied().fold(0.0, f64::max);
    if largest <= if m.rounds { 0.0 } else { SAME } {
        return Verdict::Equivalent(largest);
    }
    let noise = s.noise.get_or_init(|| noise(s, &own, &exact));
    let ratios = moved.iter().zip(noise).map(|(&m, &n)| if m <= SAME { 0.0 } else { m / n });
    let ratio = ratios.fold(0.0, f64::max);
    let (f32s, split) = (s.compute == Compute::F32, split(s.compute));
    if ratio <= 1.0 && (m.is_small() || !f32s) {
        Verdict::BelowRounding(ratio)
    } else if m.is_small() && moved.iter().zip(noise).all(|(&m, &n)| m <= n.max(split)) {
        Verdict::BelowSplit(largest)
    } else {
        Verdict::Missed(name, units)
    }
}

/// How far apart rounding drives each output of two correct steps: this one's distance from f64 and the reference's,
/// or, by measurements on other steps, the distance between correct compilers.
fn noise(s: &Subject, own: &[Tensor], exact: &[Tensor]) -> Vec<f64> {
    let (own, theirs) = (distances(s, own, exact), distances(s, &s.reference, exact));
    let measured = Tolerance::measured(s.compute);
    (0..own.len())
        .map(|r| {
            let state = s.carried.iter().any(|c| c.0 == r);
            let narrow = s.reference[r].dtype().size_bytes() < 4;
            let between = match (state, narrow) {
                (false, _) => measured.plain,
                (true, false) => measured.update,
                (true, true) => measured.update_16,
            };
            // Without a number for it, rounding excuses no more than what was measured.
            let here = own[r] + theirs[r];
            if here.is_finite() { here.max(between) } else { between }
        })
        .collect()
}
