//! The auxiliary loss that balances experts and its gradient, as a probe: how often experts are chosen, times the sum of
//! their probabilities.

pub(super) mod place;

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{
    Bound, Found, Solved, add_fused, closed, operand, operands, results, solve,
};
use crate::recognise::probe::indexed::Indexed;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use crate::recognise::probe::unite::unite;
use msc_ir::factor::solve::{AtomList, Atoms};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::{FusedKind, Load, Scalar};
use msc_ir::ops::reduce::Reduce;
use msc_ir::{DType, Graph as Plain, LocId, Module, Monoid, ValueId};
use place::{Place, places};
use std::collections::BTreeSet;

/// Looks for balancing losses in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let program = Program::new(graph, region);
    let routed: BTreeSet<Index> = {
        let routes = run.reasons.iter().filter(|r| matches!(r.fused.kind, FusedKind::MoeRoute(_)));
        let values = routes.flat_map(|r| &r.outputs).filter(|o| o.result == 1).flat_map(|o| &o.values);
        let values: BTreeSet<_> = values.collect();
        (0..program.values.len()).filter(|&i| values.contains(&program.values[i].at)).collect()
    };
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for place in places(&program, region) {
        match decide(&program, &graph.analysis.module, &place, &routed) {
            Ok(all) => found.push(all),
            Err(why) => refused.push((place.loss, why)),
        }
    }
    for all in found {
        let mut load = None;
        for f in &all {
            match unite(graph, region, &program, f, load, run) {
                Ok(tuple) => load = load.or(Some(tuple)),
                Err(why) => {
                    run.refuse(f.rule, why.to_string(), None);
                    break;
                }
            }
        }
    }
    for (at, why) in refused {
        run.refuse("moe-balance", why, Some(program.values[at].at));
    }
}

/// Dimensions `[groups, rest…]` of a value's atoms: those of groups as one dimension if there are any.
fn grouped(all: AtomList, groups: &AtomList, last: Option<&AtomList>) -> Vec<AtomList> {
    let mut out = Vec::new();
    if !groups.is_empty() {
        out.push(groups.clone());
    }
    let rest = |a: &msc_ir::factor::solve::AtomId| !groups.contains(a) && last.is_none_or(|l| !l.contains(a));
    out.push(all.into_iter().filter(rest).collect());
    out.extend(last.cloned());
    out
}

/// How the choice comes about: among the probabilities themselves, or as what is compared.
fn decide(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    routed: &BTreeSet<Index>,
) -> Result<Vec<Found>, String> {
    if !matches!(p.values[place.p].ty.dtype, DType::F32 | DType::F64) {
        return Err("probabilities of few bits do not count tokens".into());
    }
    let experts = p.values[place.is].ty.shape[place.experts];
    let (all, rows) = (p.values[place.is].ty.elements(), p.values[place.p].ty.elements());
    let own = all % rows == 0 && all / rows <= experts && closed(p, &[place.p], place.loss);
    let mut why = None;
    if own && !routed.contains(&place.choice) {
        match tried(p, module, place, Some(all / rows)) {
            Ok(found) => return Ok(found),
            Err(e) => why = Some(e),
        }
    }
    tried(p, module, place, None).map_err(|e| why.unwrap_or(e))
}

/// Says that each row of probabilities is one row of choices: both are reduced apart from each other otherwise.
fn one_row_each(solved: &mut Solved, scratch: &Module, p: ValueId, i: ValueId) -> Result<(), String> {
    let g = &mut solved.slice.graph;
    let (rows, shape) = (g.ty(p).rank() - 1, g.ty(p).shape.clone());
    if g.ty(i).rank() < rows || g.ty(i).shape[..rows] != shape[..rows] {
        return Err("choices and probabilities are not laid out alike".into());
    }
    let all = |rank: usize| Reduce { dims: (rows..rank).collect(), monoid: Monoid::Sum };
    let tied = |g: &mut Plain| {
        let dtype = g.ty(p).dtype;
        let i = g.add1(scratch, Convert::Value(dtype), &[i], LocId::UNKNOWN)?;
        let i = match g.ty(i).rank() {
            rank if rank > rows => g.add1(scratch, all(rank), &[i], LocId::UNKNOWN)?,
            _ => i,
        };
        let p = g.add1(scratch, all(rows + 1), &[p], LocId::UNKNOWN)?;
        g.add1(scratch, BinaryKind::Add, &[p, i], LocId::UNKNOWN)
    };
    tied(g).map_err(|e| e.to_string())?;
    solved.atoms = Atoms::solve(scratch, &solved.slice.graph);
    Ok(())
}

fn tried(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    chosen: Option<usize>,
) -> Result<Vec<Found>, String> {
    let mut scratch = Module::new("trial");
    let mut params = vec![place.p];
    if chosen.is_none() {
        params.push(place.choice);
    }
    let choices = params.len();
    params.extend(place.grad.as_ref().and_then(|g| g.seed));
    let mut outputs = vec![place.q, place.loss];
    outputs.extend(place.grad.as_ref().map(|g| g.dq));
    let mut all = outputs.clone();
    all.push(place.is);
    let mut solved = solve(p, module, &mut scratch, &params, &all)?;
    if chosen.is_none() {
        let (p, i) = (solved.slice.made[&place.p], solved.slice.made[&place.choice]);
        one_row_each(&mut solved, &scratch, p, i)?;
    }
    let experts = solved.dims(place.is).ok_or("no choice")?[place.experts].clone();
    solved.slice.kept.extend(experts.iter().copied());
    let made = outputs.iter().map(|o| solved.slice.made[o]).collect();
    solved.slice.graph.set_results(made);
    let sums = solved.all(place.q).ok_or("no sums")?;
    let groups: AtomList = sums.iter().copied().filter(|a| !experts.contains(a)).collect();
    if groups.len() + experts.len() != sums.len() {
        return Err("the sums of probabilities are not those of the experts".into());
    }
    let of = |s: &Solved, i: Index, last: Option<&AtomList>| -> Result<Vec<AtomList>, String> {
        Ok(grouped(s.all(i).ok_or("a value without dimensions")?, &groups, last))
    };
    let mut bounds = vec![Bound {
        name: "p",
        param: place.p,
        aliases: vec![place.p],
        dims: of(&solved, place.p, Some(&experts))?,
    }];
    let mut indices = Vec::new();
    if chosen.is_none() {
        let &[along] = experts.as_slice() else { return Err("experts are several dimensions".into()) };
        let mut dims = of(&solved, place.p, None)?;
        let rows = dims.pop().ok_or("a value without dimensions")?;
        let rows: AtomList = rows.into_iter().filter(|&a| a != along).collect();
        let mine = solved.all(place.choice).ok_or("a value without dimensions")?;
        let rest = mine.into_iter().filter(|a| !rows.contains(a) && !groups.contains(a)).collect();
        dims.extend([rows, rest]);
        bounds.push(Bound { name: "i", param: place.choice, aliases: vec![place.choice], dims });
        indices.push(Indexed { param: 1, along });
    }
    let seed = place.grad.as_ref().and_then(|g| g.seed);
    bounds.extend(seed.map(|d| Bound { name: "d", param: d, aliases: vec![d], dims: Vec::new() }));
    let mut wide: Vec<AtomList> = if groups.is_empty() { Vec::new() } else { vec![groups.clone()] };
    wide.push(experts.clone());
    let kinds = (
        FusedKind::MoeLoad(Load { groups: wide.len() - 1, chosen }),
        FusedKind::MoeBalance { scale: Scalar::new(place.scale) },
        place
            .grad
            .as_ref()
            .map(|g| FusedKind::MoeBalanceGrad { scale: Scalar::new(g.scale), seeded: g.seed.is_some() }),
    );
    let none = Vec::new();
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x6261_6c61 };
    let holds = trial.run_indexed(&mut scratch, &indices, &mut |scratch, size, types| {
        let mut g = msc_ir::Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let load = add_fused(&mut g, scratch, kinds.0.clone(), &args[..choices])?;
        let loss = add_fused(&mut g, scratch, kinds.1.clone(), &load)?;
        let mut made = vec![(load[1], &wide), (loss[0], &none)];
        if let Some(kind) = &kinds.2 {
            let args: Vec<_> = args[choices..].iter().copied().chain([load[0]]).collect();
            made.push((add_fused(&mut g, scratch, kind.clone(), &args)?[0], &wide));
        }
        let results = results(&mut g, scratch, &solved, size, &outputs, |n| made[n])?;
        g.set_results(results);
        Ok(g)
    })?;
    if !holds[..2].iter().all(|&h| h) {
        return Err("it computes something else than the program".into());
    }
    let lacks = || "a result has other dimensions".to_string();
    let args: Vec<_> = bounds.iter().map(|b| operand(p, &solved, b)).collect::<Result<_, _>>()?;
    let mut found = vec![
        Found {
            rule: "moe-load",
            kind: kinds.0,
            operands: args[..choices].to_vec(),
            given: Vec::new(),
            outputs: vec![solved.output("q", 1, place.q, &wide).ok_or_else(lacks)?],
        },
        Found {
            rule: "moe-balance",
            kind: kinds.1,
            operands: Vec::new(),
            given: vec![("f", 0), ("q", 1)],
            outputs: vec![solved.output("loss", 0, place.loss, &none).ok_or_else(lacks)?],
        },
    ];
    if let (Some(kind), Some(true), Some(g)) = (kinds.2, holds.get(2), &place.grad) {
        found.push(Found {
            rule: "moe-balance-grad",
            kind,
            operands: args[choices..].to_vec(),
            given: vec![("f", 0)],
            outputs: vec![solved.output("dq", 0, g.dq, &wide).ok_or_else(lacks)?],
        });
    }
    Ok(found)
}
