//! The auxiliary loss that keeps a router's logits small and its gradient, as a probe: the squares of the logarithms of sums of
//! exponentials of what a router chooses by.

use crate::recognise::check::random::Random;
use crate::recognise::engine::region::{At, Region};
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{
    Bound, Found, Solved, add_fused, closed, operand, operands, results, solve,
};
use crate::recognise::probe::one_hot::behind_layout;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use crate::recognise::probe::unite::unite;
use crate::recognise::rules::balance::place::to_one_number;
use msc_ir::factor::resize::resize_atoms;
use msc_ir::factor::solve::AtomList;
use msc_ir::interp::{self, Mode};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::fused::{FusedKind, Scalar};
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Module, Monoid, Op, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Ops from the squares to the loss, from the exponentials to the gradient, or from logits to a router.
const MAX_CHAIN: usize = 40;

/// Values that are tried as the gradient.
const MAX_CANDIDATES: usize = 24;

struct Place {
    x: Index,
    exp: Index,
    lse: Index,
    loss: Index,
    scale: f64,
}

/// A gradient of the logits: the value, its factor, and the loss's gradient if that is no literal.
struct Gradient {
    dx: Index,
    scale: f64,
    seed: Option<Index>,
}

/// Looks for such losses in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let routes = run.reasons.iter().filter(|r| matches!(r.fused.kind, FusedKind::MoeRoute(_)));
    let scores: BTreeSet<At> = routes.filter_map(|r| r.inputs.first()?.values.first()).copied().collect();
    if scores.is_empty() {
        return;
    }
    let program = Program::new(graph, region);
    let routed: Vec<Index> =
        (0..program.values.len()).filter(|&i| scores.contains(&program.values[i].at)).collect();
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for log in 0..program.values.len() {
        for place in places(&program, region, &routed, log) {
            match decide(&program, &graph.analysis.module, &place) {
                Ok(all) => found.push(all),
                Err(why) => refused.push((place.loss, why)),
            }
        }
    }
    for all in found {
        let mut loss = None;
        for f in &all {
            match unite(graph, region, &program, f, loss, run) {
                Ok(tuple) => loss = loss.or(Some(tuple)),
                Err(why) => {
                    run.refuse(f.rule, why.to_string(), None);
                    break;
                }
            }
        }
    }
    for (at, why) in refused {
        run.refuse("moe-z-loss", why, Some(program.values[at].at));
    }
}

/// Whether a router chooses by what a few ops make of these logits.
fn is_routed(p: &Program<'_>, x: Index, routed: &[Index]) -> bool {
    let n = p.values[x].ty.elements();
    let leads = |from: Index, to: Index| {
        let (mut seen, mut todo) = (BTreeSet::from([to]), vec![to]);
        while let Some(i) = todo.pop() {
            if i == from {
                return true;
            }
            let near = p.values[i].operands.iter().copied().filter(|&o| p.values[o].ty.elements() == n);
            todo.extend(near.filter(|&o| seen.len() < MAX_CHAIN && seen.insert(o)));
        }
        false
    };
    routed.iter().any(|&r| p.values[r].ty.elements() == n && (leads(x, r) || leads(r, x)))
}

/// The losses that are made of the squares of a logarithm.
fn places(p: &Program<'_>, region: &Region, routed: &[Index], log: Index) -> Vec<Place> {
    let mut out = Vec::new();
    let Some((x, exp)) = summed(p, log).filter(|&(x, _)| is_routed(p, x, routed)) else { return out };
    // With the maximum added that was subtracted, or as it is.
    let adds = |&u: &Index| {
        matches!(p.op(u), Some(Op::Binary(b)) if b.kind == BinaryKind::Add)
            && p.values[u].ty == p.values[log].ty
    };
    let sums = p.values[log].users.iter().copied().filter(adds);
    for lse in sums.chain([log]) {
        let squares = p.values[lse].users.iter().copied().filter(|&u| is_square(p, u, lse));
        for square in squares {
            let (loss, scale) = to_one_number(p, region, (square, 1.0), |ty| ty.rank() == 0);
            if p.values[loss].ty.rank() == 0 && closed(p, &[x], loss) {
                out.push(Place { x, exp, lse, loss, scale });
            }
        }
    }
    out
}

/// Of the logarithm of a sum of exponentials over the last dimension what those are of, and they themselves.
fn summed(p: &Program<'_>, log: Index) -> Option<(Index, Index)> {
    if !p.is_unary(log, UnaryKind::Log) {
        return None;
    }
    let mut sum = behind_layout(p, p.values[log].operands[0]);
    if p.is_unary(sum, UnaryKind::Abs) {
        sum = behind_layout(p, p.values[sum].operands[0]);
    }
    let Some(Op::Reduce(Reduce { monoid: Monoid::Sum, dims })) = p.op(sum) else { return None };
    let exp = p.values[sum].operands[0];
    let last = p.values[exp].ty.rank().checked_sub(1)?;
    if dims.as_slice() != [last] || last == 0 || !p.is_unary(exp, UnaryKind::Exponential) {
        return None;
    }
    let of = p.values[exp].operands[0];
    let x = match p.op(of) {
        Some(Op::Binary(b)) if b.kind == BinaryKind::Subtract => p.values[of].operands[0],
        _ => of,
    };
    Some((x, exp))
}

fn is_square(p: &Program<'_>, u: Index, of: Index) -> bool {
    let &[a, b] = p.values[u].operands.as_slice() else { return false };
    match p.op(u) {
        Some(Op::Binary(k)) if k.kind == BinaryKind::Multiply => a == of && b == of,
        Some(Op::Binary(k)) if k.kind == BinaryKind::Power => a == of && p.splat(b) == Some(2.0),
        _ => false,
    }
}

/// What may be the gradient: what the exponentials are multiplied to, of the logits' type, with the one number beside
/// the logits that it depends on.
fn candidates(p: &Program<'_>, place: &Place) -> Vec<(Index, Option<Index>)> {
    let ty = p.values[place.x].ty;
    let mut all = BTreeSet::new();
    let mut todo = vec![place.exp];
    while let Some(i) = todo.pop() {
        for &u in &p.values[i].users {
            let follows = match p.op(u) {
                Some(Op::Binary(b)) => matches!(b.kind, BinaryKind::Multiply | BinaryKind::Divide),
                Some(Op::Unary(k)) => k.kind == UnaryKind::Negate,
                Some(Op::Convert(_)) => true,
                _ => false,
            };
            if follows && p.values[u].ty.shape == ty.shape && all.len() < MAX_CANDIDATES && all.insert(u) {
                todo.push(u);
            }
        }
    }
    let fits = |i: Index| (p.values[i].ty == ty).then(|| seeds(p, place.x, i)).flatten();
    // The last first: a softmax that is multiplied on is no gradient yet.
    all.into_iter().rev().filter_map(|i| Some((i, fits(i)?))).collect()
}

/// The number beside the logits that a value is computed from, if it is one at most.
fn seeds(p: &Program<'_>, x: Index, value: Index) -> Option<Option<Index>> {
    let (mut seen, mut todo) = (BTreeSet::from([value]), vec![value]);
    let mut seed = None;
    while let Some(i) = todo.pop() {
        let v = &p.values[i];
        if i == x {
            continue;
        }
        if v.ty.rank() == 0 && !closed(p, &[x], i) {
            if seed.is_some_and(|s| s != i) {
                return None;
            }
            seed = Some(i);
            continue;
        }
        if v.op.is_none() && v.known.is_none() {
            return None;
        }
        todo.extend(v.operands.iter().copied().filter(|&o| seen.insert(o)));
    }
    Some(seed)
}

/// The factor between a candidate and what the gradient is without one, on a few random rows.
fn factor(p: &Program<'_>, module: &Module, place: &Place, dx: Index, seed: Option<Index>) -> Option<f64> {
    let mut scratch = Module::new("factor");
    let mut params = vec![place.x];
    params.extend(seed);
    let solved = solve(p, module, &mut scratch, &params, &[dx, place.lse]).ok()?;
    let dims = solved.dims(place.x)?;
    let rows = dims[..dims.len() - 1].iter().flatten();
    let few: BTreeMap<_, _> =
        rows.filter(|a| !solved.atoms.is_whole(**a)).map(|&a| (a, solved.atoms.size(a).min(2))).collect();
    let graph = resize_atoms(&mut scratch, &solved.slice.graph, &solved.atoms, &few).ok()?;
    let types = graph.param_types();
    let graph = scratch.add_graph(graph);
    let mut rng = Random::new(0x7a6c_6f73);
    let logits: Vec<f64> = (0..types[0].elements()).map(|_| rng.small()).collect();
    let mut inputs = vec![Tensor::from_f64s(&types[0], &logits)];
    inputs.extend(types.get(1).map(|t| Tensor::from_f64s(t, &[1.0])));
    let made = interp::run(&scratch, graph, &inputs, Mode::Wide).ok()?;
    let (dx, lse) = (made[0].data.to_f64s(), made[1].data.to_f64s());
    let experts = types[0].shape.last().copied()?;
    let plain = logits.iter().enumerate().map(|(i, x)| {
        let l = lse[i / experts];
        l * (x - l).exp()
    });
    // Where it is largest it is least rounded.
    let (n, most) = plain.enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    let factor = dx[n] / most;
    (factor.is_finite() && factor != 0.0).then_some(factor)
}

fn decide(p: &Program<'_>, module: &Module, place: &Place) -> Result<Vec<Found>, String> {
    let mut found = tried(p, module, place, None)?;
    let gradients = candidates(p, place)
        .into_iter()
        .filter_map(|(dx, seed)| Some(Gradient { dx, scale: factor(p, module, place, dx, seed)?, seed }));
    for g in gradients {
        if let Ok(all) = tried(p, module, place, Some(&g)) {
            found = all;
            break;
        }
    }
    Ok(found)
}

fn tried(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    grad: Option<&Gradient>,
) -> Result<Vec<Found>, String> {
    let mut scratch = Module::new("trial");
    let mut params = vec![place.x];
    params.extend(grad.and_then(|g| g.seed));
    let mut outputs = vec![place.loss, place.lse];
    outputs.extend(grad.map(|g| g.dx));
    let solved: Solved = solve(p, module, &mut scratch, &params, &outputs)?;
    let dims = solved.dims(place.x).ok_or("a value without dimensions")?;
    let rows: Vec<AtomList> = dims[..dims.len() - 1].to_vec();
    let none: Vec<AtomList> = Vec::new();
    let bound = |name, param, dims| Bound { name, param, aliases: vec![param], dims };
    let mut bounds = vec![bound("x", place.x, dims.clone())];
    bounds.extend(params.get(1).map(|&d| bound("d", d, Vec::new())));
    let kinds = (
        FusedKind::MoeZLoss { scale: Scalar::new(place.scale) },
        grad.map(|g| FusedKind::MoeZLossGrad { scale: Scalar::new(g.scale), seeded: g.seed.is_some() }),
    );
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x7a6c_6f73 };
    let held = trial.run(&mut scratch, &mut |scratch, size, types| {
        let mut g = msc_ir::Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let loss = add_fused(&mut g, scratch, kinds.0.clone(), &args[..1])?;
        let mut made = vec![(loss[0], &none), (loss[1], &rows)];
        if let Some(kind) = &kinds.1 {
            let args: Vec<_> = args[1..].iter().copied().chain([args[0], loss[1]]).collect();
            made.push((add_fused(&mut g, scratch, kind.clone(), &args)?[0], &dims));
        }
        let all = results(&mut g, scratch, &solved, size, &outputs, |n| made[n])?;
        g.set_results(all);
        Ok(g)
    })?;
    if held.contains(&false) {
        return Err("it computes something else than the program".into());
    }
    let lacks = || "a result has other dimensions".to_string();
    let x = operand(p, &solved, &bounds[0])?;
    let mut found = vec![Found {
        rule: "moe-z-loss",
        kind: kinds.0,
        operands: vec![x.clone()],
        given: Vec::new(),
        outputs: vec![
            solved.output("loss", 0, place.loss, &none).ok_or_else(lacks)?,
            solved.output("lse", 1, place.lse, &rows).ok_or_else(lacks)?,
        ],
    }];
    if let (Some(kind), Some(g)) = (kinds.1, grad) {
        let mut args = Vec::new();
        if let Some(b) = bounds.get(1) {
            args.push(operand(p, &solved, b)?);
        }
        args.push(x);
        found.push(Found {
            rule: "moe-z-loss-grad",
            kind,
            operands: args,
            given: vec![("lse", 1)],
            outputs: vec![solved.output("dx", 0, g.dx, &dims).ok_or_else(lacks)?],
        });
    }
    Ok(found)
}
