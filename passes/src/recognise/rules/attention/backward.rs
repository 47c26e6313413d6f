//! The gradient: the products that give dq, dk and dv, the slice to them, the trial.

use super::BACKWARD;
use super::find::{Chain, LAYOUT, Place, Through};
use super::forward::{Sink, Site, after, bound, bounds, edges};
use super::roles::{Marks, Roles};
use super::sink::gradients;
use crate::recognise::probe::found::{
    Found, Output, Solved, add_fused, closed, operand, operands, results, solve,
};
use crate::recognise::probe::layout::fits;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use msc_ir::factor::solve::AtomList;
use msc_ir::ops::attention::AttentionForm;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::fused::FusedKind;
use msc_ir::{DType, Graph, Module, Op};
use std::collections::BTreeSet;

/// Names of the results.
const NAMES: [&str; 4] = ["dq", "dk", "dv", "dsink"];

/// Finds the gradient of an attention; `None` if the program does not compute one here.
///
/// # Errors
/// Why what looks like it is none, in words.
pub fn backward(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    site: &Site,
) -> Result<Option<Found>, String> {
    let of = |over_keys: bool, clean: bool| -> Vec<&Sink> {
        site.sinks
            .iter()
            .filter(|s| s.over_keys == over_keys && s.clean == clean && s.dot != site.output)
            .collect()
    };
    let values = of(false, true);
    if values.is_empty() {
        return Ok(None);
    }
    let mut last = String::new();
    for value in values {
        let dy = Chain::up(p, value.other, &Through { rows: Some(&place.clean), ..LAYOUT });
        let dots = [of(true, false), of(false, false), vec![value]];
        // The gradient of the maximum is zero where nothing is rounded, so it is told by narrow types only.
        for ties in [false, true] {
            if ties && !(site.form.late && has_ties(p, place)) {
                continue;
            }
            match attempt(p, module, place, site, &dy, &dots, ties) {
                Ok(found) => return Ok(Some(found)),
                Err(why) => last = why,
            }
        }
    }
    Err(last)
}

fn attempt(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    site: &Site,
    dy: &Chain,
    dots: &[Vec<&Sink>; 3],
    ties: bool,
) -> Result<Found, String> {
    let mut params: Vec<Index> = site.tops.iter().map(Chain::top).collect();
    params.push(dy.top());
    if params[..params.len() - 1].contains(&dy.top()) {
        return Err("the output's gradient is queries, keys or values".into());
    }
    let mut candidates: Vec<(usize, Index)> = Vec::new();
    for (result, sinks) in dots.iter().enumerate() {
        for s in sinks {
            for i in after(p, place, s.dot, true) {
                let typed = p.values[i].ty.dtype == p.values[params[result]].ty.dtype;
                if typed && closed(p, &params, i) && !candidates.contains(&(result, i)) {
                    candidates.push((result, i));
                }
            }
        }
        if !sinks.is_empty() && !candidates.iter().any(|c| c.0 == result) {
            return Err(format!("{} is computed from more than the attention's inputs", NAMES[result]));
        }
    }
    let sinks = gradients(p, place).into_iter().filter(|&i| closed(p, &params, i));
    candidates.extend(sinks.map(|i| (3, i)));
    // Weights that are not trained need no gradient of queries, or of keys.
    let wanted: Vec<usize> = (0..3).filter(|&r| !dots[r].is_empty()).collect();
    if wanted.len() < 2 {
        return Err("it computes a gradient of the values alone".into());
    }
    let masks: Vec<Index> = site.steps.iter().filter_map(|s| s.operand.or(s.mask.map(|m| m.0))).collect();
    let marks = Marks {
        tops: [params[0], params[1], params[2]],
        product: place.product,
        summed: (place.scored, &place.keys),
        masks: &masks,
    };
    let mut scratch = Module::new("trial");
    let mut solved = None;
    // Once to see which candidates have the right dimensions, once for those.
    for _ in 0..2 {
        let outputs: Vec<Index> = candidates.iter().map(|c| c.1).collect();
        let s = solve(p, module, &mut scratch, &params, &outputs)?;
        let roles = Roles::new(&s, marks)?;
        let wide = dimensions(&s, &roles, site)?;
        let fits = |&(result, i): &(usize, Index)| s.dims(i).is_some_and(|d| fits(&wide[result], &d));
        candidates.retain(fits);
        solved = Some((s, wide, roles));
    }
    let (solved, wide, roles) = solved.ok_or("no candidates")?;
    if solved.slice.graph.results().len() != candidates.len() {
        return Err("dimensions do not settle".into());
    }
    let mut bounds = bounds(p, &solved, &roles, (&site.tops, &site.steps, site.form.sink))?;
    bounds.push(bound(p, "dy", roles.of_queries(&roles.value_width), dy));
    // The output stands for the sum over keys only where nothing is rounded.
    let output = matches!(p.values[params[0]].ty.dtype, DType::F32 | DType::F64)
        && p.values[params[2]].ty.dtype == p.values[params[0]].ty.dtype;
    let forward = FusedKind::Attention(site.form.clone());
    let form = AttentionForm { ties, ..site.form.clone() };
    let kind = FusedKind::AttentionGrad { form, output };
    let edges = edges(&site.steps);
    let trial =
        Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &edges, seed: 0x6772_6164_6965_6e74 };
    let indices: Vec<Index> = candidates.iter().map(|c| c.1).collect();
    let holds = trial.run(&mut scratch, &mut |scratch, size, types| {
        let mut g = Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let made = add_fused(&mut g, scratch, forward.clone(), &args[..args.len() - 1])?;
        let mut all = args.clone();
        all.extend([made[1], made[2]]);
        all.extend(output.then_some(made[0]));
        let made = add_fused(&mut g, scratch, kind.clone(), &all)?;
        let of = |n: usize| (made[candidates[n].0], &wide[candidates[n].0]);
        let results = results(&mut g, scratch, &solved, size, &indices, of)?;
        g.set_results(results);
        Ok(g)
    })?;
    let agreeing = candidates.iter().zip(&holds).filter(|h| *h.1);
    let outputs: Vec<Output> =
        agreeing.filter_map(|(&(n, value), _)| solved.output(NAMES[n], n as u32, value, &wide[n])).collect();
    let found: BTreeSet<u32> = outputs.iter().map(|o| o.result).collect();
    if let Some(&missing) = wanted.iter().find(|&&r| !found.contains(&(r as u32))) {
        return Err(format!("it computes another {} than the program", NAMES[missing]));
    }
    let args = bounds.iter().map(|b| operand(p, &solved, b)).collect::<Result<_, _>>()?;
    let mut given = vec![("m", 1), ("l", 2)];
    given.extend(output.then_some(("o", 0)));
    Ok(Found { rule: BACKWARD, kind, operands: args, given, outputs })
}

/// Whether scores are compared with others of them: with their maximum.
fn has_ties(p: &Program<'_>, place: &Place) -> bool {
    let is = |&i: &Index| matches!(p.op(i), Some(Op::Compare(c)) if c.direction == Direction::Eq);
    place.local.iter().any(is)
}

/// The dimensions of each result.
fn dimensions(solved: &Solved, roles: &Roles, site: &Site) -> Result<Vec<Vec<AtomList>>, String> {
    let of_keys = |width| roles.of_keys(width);
    let mut all = vec![roles.of_queries(&roles.width), of_keys(&roles.width), of_keys(&roles.value_width)];
    if site.form.sink {
        let sink = 3 + site.steps.iter().filter(|s| s.operand.is_some()).count();
        let atoms = solved.all(site.tops[sink].top()).ok_or("the sink is not part of the computation")?;
        all.push(roles.of_mask(&atoms)?);
    }
    Ok(all)
}
