//! Softmax over one dimension and its gradient, outside attentions, as a probe: an exponential that is summed, and
//! what is computed from it.

use super::attention::find::{is_row, local, summed};
use crate::recognise::engine::region::{At, Region};
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{
    Bound, Found, Operand, Output, Solved, add_fused, closed, operand, operands, results, solve,
};
use crate::recognise::probe::layout::fits;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use crate::recognise::probe::unite::unite;
use msc_ir::factor::solve::AtomList;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Values that are tried as results.
const MAX_CANDIDATES: usize = 12;

/// Looks for softmaxes in a region, but for those at the exponentials `taken`, and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, taken: &BTreeSet<At>, run: &mut Run) {
    let program = Program::new(graph, region);
    let mut pairs = Vec::new();
    let mut refused: Vec<(&'static str, Index, String)> = Vec::new();
    for exp in 0..program.values.len() {
        if !program.is_unary(exp, UnaryKind::Exponential) || taken.contains(&program.values[exp].at) {
            continue;
        }
        let Some(dims) = summed(&program, exp) else { continue };
        let &[dim] = dims.as_slice() else { continue };
        let module = &graph.analysis.module;
        match forward(&program, module, exp, dim) {
            Err(why) => refused.push(("softmax", exp, why)),
            Ok(site) => {
                let gradient = match gradient(&program, module, exp, dim, &site) {
                    Ok(g) => g,
                    Err(why) => {
                        refused.push(("softmax-grad", exp, why));
                        None
                    }
                };
                pairs.push((exp, site.found, gradient));
            }
        }
    }
    for (exp, found, gradient) in pairs {
        match unite(graph, region, &program, &found, None, run) {
            Err(why) => refused.push(("softmax", exp, why.to_string())),
            Ok(tuple) => {
                if let Some(g) = gradient
                    && let Err(why) = unite(graph, region, &program, &g, Some(tuple), run)
                {
                    refused.push(("softmax-grad", exp, why.to_string()));
                }
            }
        }
    }
    for (rule, exp, why) in refused {
        run.refuse(rule, why, Some(program.values[exp].at));
    }
}

struct Site {
    found: Found,
    x: Index,
    local: Vec<Index>,
    clean: BTreeSet<Index>,
}

/// What is exponentiated, without what is subtracted from whole rows.
pub(super) fn argument(p: &Program<'_>, exp: Index) -> Index {
    let at = p.values[exp].operands[0];
    let v = &p.values[at];
    match p.op(at) {
        Some(Op::Binary(b)) if b.kind == BinaryKind::Subtract && is_row(p, v.operands[1]) => v.operands[0],
        _ => at,
    }
}

/// The dimensions of a value with `dim` of the exponential last.
pub(super) fn rows_first(dims: &[AtomList], dim: usize) -> Vec<AtomList> {
    let mut out: Vec<AtomList> =
        dims.iter().enumerate().filter(|&(d, _)| d != dim).map(|(_, l)| l.clone()).collect();
    out.push(dims[dim].clone());
    out
}

/// Computes values of `candidates` by `kinds`, one op after the other, from `params`; which of them agree.
fn tried(
    p: &Program<'_>,
    module: &Module,
    params: &[Index],
    candidates: &[Index],
    (exp, dim): (Index, usize),
    gradient: bool,
) -> Result<(Vec<Operand>, Vec<Output>), String> {
    let mut scratch = Module::new("trial");
    let mut solved = solve(p, module, &mut scratch, params, candidates)?;
    let wide_of = |s: &Solved| -> Result<Vec<AtomList>, String> {
        Ok(rows_first(&s.dims(exp).ok_or("the exponential is not part of the computation")?, dim))
    };
    let wide = wide_of(&solved)?;
    let candidates: Vec<Index> =
        candidates.iter().copied().filter(|&i| solved.dims(i).is_some_and(|d| fits(&wide, &d))).collect();
    if candidates.is_empty() {
        return Err("no value has the dimensions of the result".into());
    }
    solved = solve(p, module, &mut scratch, params, &candidates)?;
    let wide = wide_of(&solved)?;
    let names = ["x", "dy"];
    let bounds: Vec<Bound> = params
        .iter()
        .zip(names)
        .map(|(&i, name)| Bound { name, param: i, aliases: vec![i], dims: wide.clone() })
        .collect();
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x736f_6674 };
    let holds = trial.run(&mut scratch, &mut |scratch, size, types| {
        let mut g = msc_ir::Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let mut made = add_fused(&mut g, scratch, FusedKind::Softmax, &args[..1])?;
        if gradient {
            made = add_fused(&mut g, scratch, FusedKind::SoftmaxGrad, &[args[1], made[0]])?;
        }
        let results = results(&mut g, scratch, &solved, size, &candidates, |_| (made[0], &wide))?;
        g.set_results(results);
        Ok(g)
    })?;
    let name = if gradient { "dx" } else { "y" };
    let agreeing = candidates.iter().zip(&holds).filter(|h| *h.1);
    let outputs: Vec<Output> =
        agreeing.filter_map(|(&value, _)| solved.output(name, 0, value, &wide)).collect();
    let args = bounds.iter().map(|b| operand(p, &solved, b)).collect::<Result<Vec<_>, _>>()?;
    Ok((args, outputs))
}

fn forward(p: &Program<'_>, module: &Module, exp: Index, dim: usize) -> Result<Site, String> {
    let x = argument(p, exp);
    let n = p.values[exp].ty.elements();
    let local = local(p, exp, [n, n])?;
    let mut clean = BTreeSet::from([exp]);
    for &i in &local {
        let fine = |&o: &Index| clean.contains(&o) || p.splat(o).is_some() || p.values[o].is_closed();
        if p.values[i].operands.iter().all(fine) {
            clean.insert(i);
        }
    }
    let candidates: Vec<Index> = clean
        .iter()
        .copied()
        .filter(|&i| i != exp && p.values[i].ty.elements() == n && closed(p, &[x], i))
        .take(MAX_CANDIDATES)
        .collect();
    if candidates.is_empty() {
        return Err("the exponential is not divided by its sum".into());
    }
    let (operands, outputs) = tried(p, module, &[x], &candidates, (exp, dim), false)?;
    if outputs.is_empty() {
        return Err("it computes something else than the program".into());
    }
    let kind = FusedKind::Softmax;
    let found = Found { rule: "softmax", kind, operands, given: Vec::new(), outputs };
    Ok(Site { found, x, local, clean })
}

/// The gradient: a value computed from the softmax and one other value of its size.
fn gradient(
    p: &Program<'_>,
    module: &Module,
    exp: Index,
    dim: usize,
    site: &Site,
) -> Result<Option<Found>, String> {
    let n = p.values[exp].ty.elements();
    let fixed = |o: Index| site.clean.contains(&o) || p.splat(o).is_some() || p.values[o].is_closed();
    // The incoming gradient is used for the row sum and beside it.
    let mut uses: BTreeMap<Index, usize> = BTreeMap::new();
    for &i in &site.local {
        for &o in &p.values[i].operands {
            if !fixed(o) && o != site.x && p.values[o].ty.elements() == n && p.values[o].ty.dtype.is_float() {
                *uses.entry(o).or_insert(0) += 1;
            }
        }
    }
    let sources = uses.into_iter().filter(|u| u.1 >= 2).map(|u| u.0);
    let by_dy = sources.map(|dy| {
        // What is computed from it and the softmax alone.
        let mut made = BTreeSet::from([dy]);
        for &i in site.local.iter().filter(|&&i| i > dy && !site.clean.contains(&i)) {
            if p.values[i].operands.iter().all(|&o| fixed(o) || made.contains(&o)) {
                made.insert(i);
            }
        }
        made.remove(&dy);
        (dy, made.into_iter().filter(|&i| p.values[i].ty.elements() == n).collect::<Vec<_>>())
    });
    for (dy, values) in by_dy {
        let params = [site.x, dy];
        let candidates: Vec<Index> =
            values.into_iter().rev().filter(|&i| closed(p, &params, i)).take(MAX_CANDIDATES).collect();
        if candidates.is_empty() {
            continue;
        }
        let Ok((mut operands, outputs)) = tried(p, module, &params, &candidates, (exp, dim), true) else {
            continue;
        };
        if outputs.is_empty() {
            continue;
        }
        operands.remove(0);
        return Ok(Some(Found {
            rule: "softmax-grad",
            kind: FusedKind::SoftmaxGrad,
            operands,
            given: vec![("y", 0)],
            outputs,
        }));
    }
    Ok(None)
}
