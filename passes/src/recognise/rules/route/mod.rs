//! The choice of experts and its gradient, as a probe: scores that are sorted along one dimension with their places, of
//! which the first few are kept, and what is computed from them.

mod apart;

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{
    Bound, Found, Output, Solved, add_fused, closed, operand, operands, results, solve,
};
use crate::recognise::probe::known::Known;
use crate::recognise::probe::layout::fits;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use crate::recognise::probe::unite::unite;
use msc_ir::factor::solve::AtomList;
use msc_ir::ops::fused::{FusedKind, Route};
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, Module, Monoid, Op};
use std::collections::BTreeSet;

/// Values that are tried as results.
const MAX_CANDIDATES: usize = 24;

/// Values that are computed from the chosen scores alone, in one router.
const MAX_LOCAL: usize = 200;

/// Values between the gradient of the weights and that of the scores.
const MAX_BACK: usize = 40;

/// Looks for routers in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let program = Program::new(graph, region);
    let mut pairs = Vec::new();
    let mut refused: Vec<(&'static str, String)> = Vec::new();
    for place in places(&program, region) {
        let module = &graph.analysis.module;
        match forward(&program, module, &place) {
            Err(why) => refused.push(("moe-route", why)),
            Ok((found, route)) => {
                let grad = backward(&program, module, &place, route);
                let grad = grad.map_err(|why| refused.push(("moe-route-grad", why))).ok().flatten();
                pairs.push((found, grad));
            }
        }
    }
    let known: BTreeSet<Index> = pairs.iter().map(|(f, _)| f.operands[0].value).collect();
    pairs.extend(apart::found(&program, &graph.analysis.module, &known));
    for (found, grad) in pairs {
        match unite(graph, region, &program, &found, None, run) {
            Err(why) => refused.push((found.rule, why.to_string())),
            Ok(tuple) => {
                if let Some(g) = grad
                    && let Err(why) = unite(graph, region, &program, &g, Some(tuple), run)
                {
                    refused.push((g.rule, why.to_string()));
                }
            }
        }
    }
    for (rule, why) in refused {
        run.refuse(rule, why, None);
    }
}

/// Where experts may be chosen.
struct Place {
    /// The scores.
    x: Index,
    /// Their last dimension that is kept, of a sorted value.
    kept: Index,
    chosen: usize,
    /// What is computed from the scores alone, sorted or chosen.
    local: Vec<Index>,
    /// Values that the region gives.
    results: BTreeSet<Index>,
}

/// Whether a value needs none of the index vectors that are put together of all rows' indices: such a slice has no
/// smaller sizes.
fn is_by_row(p: &Program<'_>, params: &[Index], value: Index) -> bool {
    let mut seen = BTreeSet::from([value]);
    let mut todo = vec![value];
    while let Some(i) = todo.pop() {
        if params.contains(&i) {
            continue;
        }
        if matches!(p.op(i), Some(Op::Concatenate(_) | Op::Windowed(_))) {
            return false;
        }
        todo.extend(p.values[i].operands.iter().copied().filter(|&o| seen.insert(o)));
    }
    true
}

impl Place {
    /// Whether numbers made of a value leave what is computed from the scores alone: a list of the best whose places
    /// alone are used weighs nothing.
    fn weighs(&self, p: &Program<'_>, value: Index) -> bool {
        let mut seen = BTreeSet::from([value]);
        let mut todo = vec![value];
        while let Some(i) = todo.pop() {
            for &u in &p.values[i].users {
                let float = p.values[u].ty.dtype.is_float();
                if float && (self.local.binary_search(&u).is_err() || self.results.contains(&u)) {
                    return true;
                }
                if float && seen.insert(u) {
                    todo.push(u);
                }
            }
        }
        false
    }
}

/// Whether a value is the index along a dimension.
pub(super) fn is_index(p: &Program<'_>, i: Index, dim: usize) -> bool {
    match (p.op(i), p.values[i].known) {
        (Some(Op::Iota(x)), _) => x.dim == dim,
        (None, Some(Known::Index(d))) => d == dim,
        _ => false,
    }
}

fn places(p: &Program<'_>, region: &Region) -> Vec<Place> {
    let given = |i: &Index| {
        let at = p.values[*i].at;
        region.parts[at.part].graph.results().contains(&at.value)
    };
    let mut out: Vec<Place> = Vec::new();
    for i in 0..p.values.len() {
        let v = &p.values[i];
        let Some((Op::Sort(sort), 0)) = v.op else { continue };
        let (&[x, index], rank) = (v.operands.as_slice(), v.ty.rank()) else { continue };
        if sort.dim + 1 != rank || !v.ty.dtype.is_float() || !is_index(p, index, sort.dim) {
            continue;
        }
        let kept = v.users.iter().copied().find(|&u| {
            let whole = |d: &usize| p.values[u].ty.shape[*d] == v.ty.shape[*d];
            matches!(p.op(u), Some(Op::Slice(Slice::Static { start, stride, .. }))
                if start.iter().all(|&s| s == 0) && stride.iter().all(|&s| s == 1))
                && (0..rank - 1).all(|d| whole(&d))
                && !whole(&(rank - 1))
        });
        let Some(kept) = kept else { continue };
        let chosen = p.values[kept].ty.shape[rank - 1];
        let mut local = BTreeSet::new();
        let sorted = p.values[x]
            .users
            .iter()
            .copied()
            .filter(|&u| matches!(p.op(u), Some(Op::Sort(_))) && p.values[u].operands == v.operands);
        let mut todo: BTreeSet<Index> = sorted.collect();
        while let Some(i) = todo.pop_first() {
            let fine = |&o: &Index| local.contains(&o) || o == x || closed(p, &[x], o);
            if local.len() < MAX_LOCAL && p.values[i].operands.iter().all(fine) && local.insert(i) {
                todo.extend(&p.values[i].users);
            }
        }
        let results = local.iter().copied().filter(given).collect();
        out.push(Place { x, kept, chosen, local: local.into_iter().collect(), results });
    }
    out
}

/// The rows of `like` with what else a value has as its last dimension: the places of what is chosen, or of what is
/// added up, are related by indices, which no atom shows.
fn rows_of(solved: &Solved, like: &[AtomList], i: Index) -> Option<Vec<AtomList>> {
    let mut out = like[..like.len().checked_sub(1)?].to_vec();
    let rows: AtomList = out.iter().flatten().copied().collect();
    let own = solved.dims(i)?;
    out.push(own.iter().flatten().copied().filter(|a| !rows.contains(a)).collect());
    fits(&out, &own).then_some(out)
}

/// Lets the last of these dimensions keep their sizes.
fn keep<'d>(solved: &mut Solved, dims: impl Iterator<Item = &'d Vec<AtomList>>) {
    solved.slice.kept.extend(dims.filter_map(|d| d.last()).flatten().copied());
}

/// What a trial needs: the slice with the dimensions of scores and of choices.
fn solved(
    p: &Program<'_>,
    module: &Module,
    scratch: &mut Module,
    (place, params): (&Place, &[Index]),
    outputs: &[Index],
) -> Result<(Solved, Vec<AtomList>, Vec<AtomList>), String> {
    let mut all = outputs.to_vec();
    all.push(place.kept);
    let solved = solve(p, module, scratch, params, &all)?;
    let scores = solved.dims(place.x).ok_or("the scores are not part of the computation")?;
    let chosen = solved.dims(place.kept).ok_or("the choice is not part of the computation")?;
    Ok((solved, scores, chosen))
}

fn forward(p: &Program<'_>, module: &Module, place: &Place) -> Result<(Found, Route), String> {
    let n = p.values[place.kept].ty.elements();
    let dtype = p.values[place.x].ty.dtype;
    let mut candidates: Vec<Index> = place
        .local
        .iter()
        .copied()
        .filter(|&i| {
            let ty = p.values[i].ty;
            ty.elements() == n && (ty.dtype == dtype || ty.dtype == DType::I32) && is_by_row(p, &[place.x], i)
        })
        .collect();
    candidates.truncate(MAX_CANDIDATES);
    let mut scratch = Module::new("trial");
    let (first, _, chosen) = solved(p, module, &mut scratch, (place, &[place.x]), &candidates)?;
    candidates.retain(|&i| rows_of(&first, &chosen, i).is_some());
    let mut best: Option<(Found, Route)> = None;
    for shares in [true, false] {
        let route = Route { chosen: place.chosen, shares, apart: false };
        let kind = FusedKind::MoeRoute(route);
        let mut tried = candidates.clone();
        tried.push(place.kept);
        let (mut solved, scores, chosen) = solved(p, module, &mut scratch, (place, &[place.x]), &candidates)?;
        let froms: Vec<Vec<AtomList>> = tried
            .iter()
            .map(|&i| rows_of(&solved, &chosen, i))
            .collect::<Option<_>>()
            .ok_or("a result has other dimensions")?;
        keep(&mut solved, froms.iter());
        let bound = Bound { name: "x", param: place.x, aliases: vec![place.x], dims: scores };
        let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x726f_7574 };
        let result = |i: Index| usize::from(!p.values[i].ty.dtype.is_float());
        let holds = trial.run(&mut scratch, &mut |scratch, size, types| {
            let mut g = msc_ir::Graph::new("named");
            let args = operands(&mut g, scratch, &solved, std::slice::from_ref(&bound), size, types)?;
            let made = add_fused(&mut g, scratch, kind.clone(), &args)?;
            let of = |n: usize| (made[result(tried[n])], &froms[n]);
            let results = results(&mut g, scratch, &solved, size, &tried, of)?;
            g.set_results(results);
            Ok(g)
        })?;
        let name = |i: Index| if result(i) == 0 { "w" } else { "i" };
        let outputs: Vec<Output> = candidates
            .iter()
            .zip(holds.iter().zip(&froms))
            .filter(|(_, (holds, _))| **holds)
            .filter_map(|(&i, (_, from))| solved.output(name(i), result(i) as u32, i, from))
            .collect();
        // Both are used beyond what leads to them: a list of the best alone chooses nothing.
        let used = |want: u32| {
            outputs.iter().filter(|o| o.result == want).any(|o| !p.values[o.value].users.is_empty())
        };
        let weighs = outputs.iter().any(|o| o.result == 0 && place.weighs(p, o.value));
        if used(0) && used(1) && weighs {
            let operands = vec![operand(p, &solved, &bound)?];
            best = Some((Found { rule: "moe-route", kind, operands, given: Vec::new(), outputs }, route));
            break;
        }
    }
    best.ok_or_else(|| "weights or places are not those of the largest scores".into())
}

/// The gradient of the scores: where that of the weights is added up by the places that were chosen.
fn backward(p: &Program<'_>, module: &Module, place: &Place, route: Route) -> Result<Option<Found>, String> {
    let (all, n) = (p.values[place.x].ty.elements(), p.values[place.kept].ty.elements());
    let dtype = p.values[place.x].ty.dtype;
    let local: BTreeSet<Index> = place.local.iter().copied().collect();
    let mut why = None;
    for dx in place.kept..p.values.len() {
        let v = &p.values[dx];
        let adds = matches!(p.op(dx), Some(Op::Scatter(s)) if s.combine == Some(Monoid::Sum));
        if !adds
            || v.ty.elements() != all
            || v.ty.dtype != dtype
            || p.splat(v.operands[0]) != Some(0.0)
            || !local.contains(&v.operands[1])
        {
            continue;
        }
        // What the updates are computed from: the farthest first that they need nothing beside, as shares have a
        // gradient of their own.
        let mut behind = BTreeSet::new();
        let mut todo = vec![v.operands[2]];
        while let Some(i) = todo.pop() {
            if behind.len() < MAX_BACK && !local.contains(&i) && behind.insert(i) {
                todo.extend(&p.values[i].operands);
            }
        }
        let mut weights: Vec<Index> = behind.into_iter().collect();
        if !route.shares {
            weights.reverse();
        }
        weights.retain(|&i| {
            p.values[i].ty.elements() == n && p.values[i].ty.dtype == dtype && p.splat(i).is_none()
        });
        for dw in weights {
            let params = [place.x, dw];
            if !closed(p, &params, dx) || !is_by_row(p, &params, dx) {
                continue;
            }
            match gradient(p, module, place, route, (dw, dx)) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => why = Some("it computes something else than the program".to_string()),
                Err(e) => why = Some(e),
            }
        }
    }
    why.map_or(Ok(None), Err)
}

fn gradient(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    route: Route,
    (dw, dx): (Index, Index),
) -> Result<Option<Found>, String> {
    let mut scratch = Module::new("trial");
    let (mut solved, scores, chosen) = solved(p, module, &mut scratch, (place, &[place.x, dw]), &[dx])?;
    let weights = rows_of(&solved, &chosen, dw).ok_or("the weights' gradient has other dimensions")?;
    let grads = rows_of(&solved, &scores, dx).ok_or("the scores' gradient has other dimensions")?;
    keep(&mut solved, [&weights, &grads].into_iter());
    let bounds = [
        Bound { name: "x", param: place.x, aliases: vec![place.x], dims: scores },
        Bound { name: "dw", param: dw, aliases: vec![dw], dims: weights },
    ];
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x726f_7567 };
    let kinds = (FusedKind::MoeRoute(route), FusedKind::MoeRouteGrad(route));
    let results_of = [dx, place.kept];
    let holds = trial.run(&mut scratch, &mut |scratch, size, types| {
        let mut g = msc_ir::Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let made = add_fused(&mut g, scratch, kinds.0.clone(), &args[..1])?;
        let grad = add_fused(&mut g, scratch, kinds.1.clone(), &[args[1], args[0], made[0], made[1]])?;
        let of = |n: usize| if n == 0 { (grad[0], &grads) } else { (made[0], &chosen) };
        let results = results(&mut g, scratch, &solved, size, &results_of, of)?;
        g.set_results(results);
        Ok(g)
    })?;
    if holds.first() != Some(&true) {
        return Ok(None);
    }
    let output = solved.output("dx", 0, dx, &grads).ok_or("the result has other dimensions")?;
    Ok(Some(Found {
        rule: "moe-route-grad",
        kind: kinds.1,
        operands: vec![operand(p, &solved, &bounds[1])?, operand(p, &solved, &bounds[0])?],
        given: vec![("w", 0), ("i", 1)],
        outputs: vec![output],
    }))
}
