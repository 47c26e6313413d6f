//! Mistakes in Adam: decay rates, step count, bias correction, weight decay, learning rate, epsilon.

use super::Found;
use super::edit::{Change, make, other, splat};
use super::facts::{Facts, Moment, Role, State, binary, is_elementwise, is_view, unary};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{OpId, ValueId};

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    let states = f.states();
    let moments = f.moments(&states);
    decay_rates(f, &moments, out);
    step_count(f, &states, out);
    bias_correction(f, out);
    weight_decay(f, &states, out);
    epsilon(f, &states, out);
}

fn name(f: &Facts<'_>, s: &State) -> String {
    f.subject.entry.results[s.result].name.clone()
}

/// One moment's update at another rate: what it keeps and what it takes in.
fn at_rate(m: &Moment, rate: f64) -> Vec<Change> {
    let set =
        |site: &Option<(OpId, usize, f64)>, c: f64| site.map(|(op, i, _)| Change::Operand(op, i, splat(c)));
    [set(&m.decay, rate), set(&m.gain, 1.0 - rate)].into_iter().flatten().collect()
}

fn decay_rates(f: &Facts<'_>, moments: &[Moment], out: &mut Found<'_>) {
    let of = |role| moments.iter().filter(move |m| m.state.role == role);
    let rate = |m: &Moment| m.decay.map(|d| d.2).or(m.gain.map(|g| 1.0 - g.2));
    let first = of(Role::First).find_map(rate);
    let second = of(Role::Second).find_map(rate);
    let (Some(b1), Some(b2)) = (first, second) else { return };
    let all = |role, c: f64| -> Vec<Change> { of(role).flat_map(|m| at_rate(m, c)).collect() };
    out.add("betas swapped", "all moments", [all(Role::First, b2), all(Role::Second, b1)].concat());
    out.add("beta2 for slow data", format!("{b2} becomes .999"), all(Role::Second, 0.999));
    out.add("beta1 zero", "all first moments", all(Role::First, 0.0));
    for m in moments {
        let b = if m.state.role == Role::First { b1 } else { b2 };
        let at = name(f, &m.state);
        out.add("one moment's rate", &*at, at_rate(m, 1.0 - (1.0 - b) * 1.5));
        if let Some((op, i, c)) = m.gain {
            out.add("moment without (1-beta)", &*at, vec![Change::Operand(op, i, splat(1.0))]);
            out.add("gain a tenth too large", &*at, vec![Change::Operand(op, i, splat(c * 1.1))]);
        }
    }
}

fn step_count(f: &Facts<'_>, states: &[State], out: &mut Found<'_>) {
    let counters: Vec<&State> = states.iter().filter(|s| s.role == Role::Counter).collect();
    for (family, by) in [("step count one behind", -1.0), ("step count one ahead", 1.0)] {
        let changes = counters.iter().flat_map(|s| {
            // The outermost value only: the selections behind it lead to it.
            let outer = f.news(s).into_iter().find(|&v| {
                f.graph.value(v).uses.iter().any(|u| {
                    let d = f.graph.op(u.op);
                    !d.results.iter().any(|r| f.news(s).contains(r))
                })
            });
            outer.map(|v| Change::Uses(v, make(move |e, v| e.with(BinaryKind::Add, v, by))))
        });
        out.add(family, "bias correction", changes.collect());
    }
}

/// `1 − βᵗ`, a scalar.
fn bias_correction(f: &Facts<'_>, out: &mut Found<'_>) {
    let of_power = |(_, d): &(OpId, &msc_ir::OpData)| {
        binary(&d.op) == Some(BinaryKind::Subtract)
            && f.graph.ty(d.results[0]).rank() == 0
            && f.root_def(d.operands[1]).is_some_and(|(_, p)| binary(&p.op) == Some(BinaryKind::Power))
    };
    let sites: Vec<ValueId> = f.ops().filter(of_power).map(|(_, d)| d.results[0]).collect();
    let all = sites.iter().map(|&v| Change::Value(v, splat(1.0))).collect();
    out.add("no bias correction", "all", all);
    for v in sites {
        out.add("one bias correction missing", format!("%{}", v.0), vec![Change::Value(v, splat(1.0))]);
    }
}

/// `wd·p` beside the update, or `(1 − lr·wd)·p` under it.
fn weight_decay(f: &Facts<'_>, states: &[State], out: &mut Found<'_>) {
    let mut all = Vec::new();
    for s in states.iter().filter(|s| s.role == Role::Weight) {
        let p = f.graph.params()[s.param];
        let tail = f.back(f.graph.results()[s.result], |d| is_elementwise(&d.op));
        let mut mine = Vec::new();
        for &v in &tail {
            let Some((_, d)) = f.def(v) else { continue };
            if binary(&d.op) != Some(BinaryKind::Multiply) {
                continue;
            }
            let Some((_, c, x)) = f.with_scalar(d) else { continue };
            if f.root(x) != p || c == 1.0 || c == 0.0 {
                continue;
            }
            mine.push(if c.abs() < 0.5 { Change::Value(v, splat(0.0)) } else { Change::Value(v, other(x)) });
        }
        out.add("one weight without decay", name(f, s), mine.clone());
        all.extend(mine);
    }
    out.add("no weight decay", "all weights", all);
}

/// `√v̂ + ε` under the first moment.
fn epsilon(f: &Facts<'_>, states: &[State], out: &mut Found<'_>) {
    let (mut inside, mut larger, mut none) = (Vec::new(), Vec::new(), Vec::new());
    for s in states.iter().filter(|s| s.role == Role::Second) {
        for v in f.news(s) {
            for &x in &f.forward(v, |d| is_elementwise(&d.op)) {
                let Some((op, d)) = f.def(x) else { continue };
                if binary(&d.op) != Some(BinaryKind::Add) {
                    continue;
                }
                let Some((i, c, y)) = f.with_scalar(d) else { continue };
                let Some(root) = root_above(f, y) else { continue };
                if c == 0.0 || c.abs() > 1e-2 || larger.iter().any(|(o, _)| *o == op) {
                    continue;
                }
                larger.push((op, Change::Operand(op, i, splat(c * 100.0))));
                let add = make(move |e, v| e.with(BinaryKind::Add, v, c.abs()));
                inside.extend([Change::Operand(root, 0, add), Change::Value(x, other(y))]);
                none.push(Change::Value(x, other(y)));
            }
        }
    }
    out.add("Adam's eps inside the root", "all", inside);
    out.add("Adam's eps times 100", "all", larger.into_iter().map(|(_, c)| c).collect());
    out.add("Adam's eps missing", "all", none);
}

/// The square root that `v` is, but for views and factors.
fn root_above(f: &Facts<'_>, v: ValueId) -> Option<OpId> {
    let (op, d) = f.def(v)?;
    if unary(&d.op) == Some(UnaryKind::Sqrt) {
        return Some(op);
    }
    match binary(&d.op) {
        Some(BinaryKind::Multiply | BinaryKind::Divide) => root_above(f, f.with_scalar(d)?.2),
        _ if is_view(&d.op) => root_above(f, d.operands[0]),
        _ => None,
    }
}
