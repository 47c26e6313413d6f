//! Gradient descent, with momentum or without, and Lion, as a probe: a parameter that comes back as a sum of itself, of
//! its momentum and of one other value, in whatever order an exporter adds them up.
//!
//! A sum of values times numbers says nothing of what the values are, so only state is looked at: what the step gives
//! back in the place of what it took. The sums are compared exactly, as polynomials in the program's numbers.

mod linear;
mod outside;
mod state;

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::{Graph, Node};
use crate::recognise::probe::found::{Found, Operand, Output};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::unite::unite;
use linear::{Coefficient, Form, Linear};
use msc_ir::Op;
use msc_ir::ops::fused::{FusedKind, Lion, Scalar, Sgd};
use msc_ir::ops::unary::UnaryKind;
use outside::Outside;
use std::collections::{BTreeMap, BTreeSet};

/// Literals are rounded to f32.
const NEAR: f64 = 1e-5;

/// Elementwise ops above a gradient that are looked at.
const MAX_ABOVE: usize = 60;

/// Looks for steps in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let states = state::states(&graph.analysis.module, region);
    if states.is_empty() {
        return;
    }
    let program = Program::new(graph, region);
    let mut place: BTreeMap<egg::Id, Index> = BTreeMap::new();
    for (i, v) in program.values.iter().enumerate() {
        place.extend(region.class(graph, v.at.part, v.at.value).map(|c| (c, i)));
    }
    let find = |part, value| place.get(&region.class(graph, part, value)?).copied();
    // What is a result of a named op already is another optimizer's.
    let named = |i: Index| {
        let at = program.values[i].at;
        let class = region.class(graph, at.part, at.value);
        class.is_none_or(|c| graph[c].nodes.iter().any(|n| matches!(n, Node::Project { .. })))
    };
    let pairs: Vec<(Index, Index)> = states
        .iter()
        .filter_map(|s| {
            Some((find(s.part, s.old)?, find(s.part, state::taken(&region.parts[s.part].graph, s))?))
        })
        .filter(|&(old, new)| {
            let (a, b) = (program.values[old].ty, program.values[new].ty);
            a == b && a.dtype.is_float() && a.rank() > 0 && !named(new)
        })
        .collect();
    let steps = Steps {
        p: &program,
        outside: Outside::new(&graph.analysis.module, region),
        old: pairs.iter().map(|p| p.0).collect(),
        new: pairs.iter().copied().collect(),
    };
    let found: Vec<Found> = pairs.iter().filter_map(|&(old, new)| steps.attempt(old, new)).collect();
    let mut refused = Vec::new();
    for f in found {
        if let Err(why) = unite(graph, region, &program, &f, None, run) {
            refused.push((f.rule, why.to_string()));
        }
    }
    for (rule, why) in refused {
        run.refuse(rule, why, None);
    }
}

struct Steps<'p, 'r> {
    p: &'p Program<'r>,
    outside: Outside<'p>,
    old: BTreeSet<Index>,
    /// What comes back for each state.
    new: BTreeMap<Index, Index>,
}

/// A sum's terms in a step's roles.
struct Roles {
    p: Coefficient,
    g: Coefficient,
    t: Coefficient,
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * a.abs().max(b.abs())
}

fn same(a: Coefficient, b: Coefficient) -> bool {
    let scalar = match (a.scalar, b.scalar) {
        (None, None) => true,
        (Some((s, x)), Some((t, y))) => s == t && near(x, y),
        (Some((_, x)), None) | (None, Some((_, x))) => x == 0.0,
    };
    // A weight's own share is 1, and a little less by decay.
    scalar && (a.number - b.number).abs() <= 1e-7 * a.number.abs().max(b.number.abs())
}

fn times(rate: Coefficient, number: f64) -> Coefficient {
    Coefficient { number: rate.number * number, scalar: rate.scalar.map(|(s, f)| (s, f * number)) }
}

/// The number `x` with `a = x·b`.
fn ratio(a: Coefficient, b: Coefficient) -> Option<f64> {
    let x = match (a.scalar, b.scalar) {
        (Some((s, x)), Some((t, y))) if s == t && y != 0.0 => x / y,
        (None, Some((_, y))) if y != 0.0 => 0.0,
        (None, None) if b.number != 0.0 => a.number / b.number,
        _ => return None,
    };
    Some(x).filter(|x| x.is_finite())
}

impl Steps<'_, '_> {
    fn attempt(&self, old: Index, new: Index) -> Option<Found> {
        let mut linear = Linear::new(self.p, &self.old);
        let form = linear.form(new)?;
        let ty = self.p.values[old].ty;
        let (state, others): (Vec<Index>, Vec<Index>) = form.keys().partition(|k| self.old.contains(k));
        let &[g] = others.as_slice() else { return None };
        let fits = form.contains_key(&old)
            && self.p.values[g].ty == ty
            && state.iter().all(|&s| self.p.values[s].ty == ty);
        if !fits {
            return None;
        }
        if self.p.is_unary(g, UnaryKind::Sign) {
            return self.lion((old, new), g, &form);
        }
        if self.is_preconditioned(g) {
            return None;
        }
        let trace = match state.iter().filter(|&&s| s != old).collect::<Vec<_>>().as_slice() {
            [] => None,
            &[&t] => Some(t),
            _ => return None,
        };
        let of = |f: &Form, k: Index| f.get(&k).copied().unwrap_or_default();
        let roles = |f: &Form| Roles {
            p: of(f, old),
            g: of(f, g),
            t: trace.map_or(Coefficient::default(), |t| of(f, t)),
        };
        let mine = roles(&form);
        let (op, rate) = match trace {
            None => plain(&mine)?,
            Some(t) => {
                let after = *self.new.get(&t)?;
                let traced = Linear::new(self.p, &self.old).form(after)?;
                if traced.keys().any(|k| ![old, g, t].contains(k)) {
                    return None;
                }
                momentum(&mine, &roles(&traced))?
            }
        };
        let mut outputs = vec![output("p'", 0, new)];
        let mut operands = vec![operand("p", old), operand("g", g)];
        if let Some(t) = trace {
            operands.push(operand("t", t));
            outputs.push(output("t'", 1, *self.new.get(&t)?));
        }
        operands.extend(rate.scalar.map(|(s, _)| operand("s", s)));
        Some(Found { rule: "sgd", kind: FusedKind::Sgd(op), operands, given: Vec::new(), outputs })
    }

    fn lion(&self, (old, new): (Index, Index), sign: Index, form: &Form) -> Option<Found> {
        let mixed = Linear::new(self.p, &self.old).form(self.p.values[sign].operands[0])?;
        let (state, others): (Vec<Index>, Vec<Index>) = mixed.keys().partition(|k| self.old.contains(k));
        let (&[m], &[g]) = (state.as_slice(), others.as_slice()) else { return None };
        let after = *self.new.get(&m)?;
        let traced = Linear::new(self.p, &self.old).form(after)?;
        let ty = self.p.values[old].ty;
        let fits = form.len() == 2
            && m != old
            && traced.keys().eq(mixed.keys())
            && [m, g].iter().all(|&i| self.p.values[i].ty == ty);
        let number = |c: &Coefficient| c.scalar.is_none().then(|| Scalar::new(literal(c.number)));
        let rate = *form.get(&sign)?;
        let decay = decay(*form.get(&old)?, rate)?;
        let (factor, scheduled) = rate_of(rate)?;
        let op = Lion {
            first: (number(mixed.get(&m)?)?, number(mixed.get(&g)?)?),
            second: (number(traced.get(&m)?)?, number(traced.get(&g)?)?),
            decay: Scalar::new(decay),
            rate: factor,
            scheduled,
        };
        let mut operands = vec![operand("p", old), operand("g", g), operand("m", m)];
        operands.extend(rate.scalar.map(|(s, _)| operand("s", s)));
        let outputs = vec![output("p'", 0, new), output("m'", 1, after)];
        fits.then_some(Found {
            rule: "lion",
            kind: FusedKind::Lion(op),
            operands,
            given: Vec::new(),
            outputs,
        })
    }

    /// Whether what stands for the gradient is made of other state element by element: another optimizer's update.
    fn is_preconditioned(&self, g: Index) -> bool {
        let ty = self.p.values[g].ty;
        let mut seen = BTreeSet::from([g]);
        let mut todo = vec![g];
        while let Some(i) = todo.pop() {
            let v = &self.p.values[i];
            if self.old.contains(&i) || v.op.is_none() && self.outside.is_made_of_state(v.at) {
                return true;
            }
            let elementwise = matches!(
                self.p.op(i),
                Some(Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_))
            );
            if elementwise {
                let same = |&o: &Index| self.p.values[o].ty.shape == ty.shape && seen.insert(o);
                todo.extend(v.operands.iter().copied().filter(same));
            }
            if seen.len() > MAX_ABOVE {
                return true;
            }
        }
        false
    }
}

/// A number that was computed from literals, as the literal that it is.
fn literal(x: f64) -> f64 {
    let near = f64::from(x as f32);
    if (x - near).abs() <= 1e-9 * x.abs() { near } else { x }
}

/// The decay that a weight's own share and the rate say. A weight that grows by it is an average of gradients.
fn decay(p: Coefficient, rate: Coefficient) -> Option<f64> {
    let rest = Coefficient { number: p.number - 1.0, scalar: p.scalar };
    if rest.number.abs() < 1e-12 && rest.scalar.is_none_or(|s| s.1 == 0.0) {
        return Some(0.0);
    }
    let x = ratio(rest, rate)?;
    if x < 0.0 {
        return None;
    }
    let again = times(rate, x);
    same(p, Coefficient { number: 1.0 + again.number, scalar: again.scalar }).then_some(literal(x))
}

/// A rate as a number, or a number times a scalar.
fn rate_of(rate: Coefficient) -> Option<(Scalar, bool)> {
    match rate.scalar {
        None => Some((Scalar::new(literal(rate.number)), false)),
        Some((_, f)) if rate.number == 0.0 => Some((Scalar::new(literal(f)), true)),
        Some(_) => None,
    }
}

fn plain(form: &Roles) -> Option<(Sgd, Coefficient)> {
    let (rate, scheduled) = rate_of(form.g)?;
    let decay = Scalar::new(decay(form.p, form.g)?);
    let op = Sgd { momentum: None, nesterov: false, decay, decoupled: false, rate, scheduled };
    Some((op, form.g))
}

fn momentum(form: &Roles, trace: &Roles) -> Option<(Sgd, Coefficient)> {
    if [trace.p, trace.g, trace.t].iter().any(|c| c.scalar.is_some()) {
        return None;
    }
    let (damp, keep, decayed) = (trace.g.number, trace.t.number, trace.p.number);
    if damp == 0.0 || keep == 0.0 {
        return None;
    }
    let coupled = decayed / damp;
    for nesterov in [false, true] {
        // The update's terms: of the gradient, the momentum, the weight.
        let (g, t, p) = if nesterov {
            (1.0 + keep * damp, keep * keep, coupled + keep * decayed)
        } else {
            (damp, keep, decayed)
        };
        let per = times(form.t, 1.0 / t);
        let expected = times(per, g);
        let agrees = match (expected.scalar, form.g.scalar) {
            (None, None) => near(expected.number, form.g.number),
            (Some((s, x)), Some((u, y))) => s == u && near(x, y) && near(expected.number, form.g.number),
            _ => false,
        };
        if !agrees {
            continue;
        }
        let Some((rate, scheduled)) = rate_of(per) else { continue };
        let Some(all) = decay(form.p, per) else { continue };
        let momentum = Some((Scalar::new(literal(keep)), Scalar::new(literal(damp))));
        let rest = all - p;
        if coupled < 0.0 || rest < -NEAR * all {
            continue;
        }
        if rest.abs() <= NEAR * all.abs().max(p.abs()) {
            let decay = Scalar::new(literal(coupled));
            return Some((Sgd { momentum, nesterov, decay, decoupled: false, rate, scheduled }, per));
        }
        if decayed == 0.0 {
            let decay = Scalar::new(rest);
            return Some((Sgd { momentum, nesterov, decay, decoupled: true, rate, scheduled }, per));
        }
    }
    None
}

fn operand(name: &'static str, value: Index) -> Operand {
    Operand { name, value, ops: Vec::new(), cut: (value, Vec::new()) }
}

fn output(name: &'static str, result: u32, value: Index) -> Output {
    Output { name, result, value, ops: Vec::new() }
}
