//! Measures of gradients, as graphs of their own.
//!
//! Before: the graph of a backward segment sums the squares of the gradients that it gives. After: it gives the
//! gradients, and a graph behind it sums the squares. Where the batch is split, gradients are partial sums: inside of the
//! segment they would have to be combined there, once a layer; as results they are combined by the caller, which joins
//! those of several layers.
//!
//! A measure is an op that leads to scalars only, and takes what the graph gives or is given; no value leaves the graph that
//! did not leave it before.

use crate::error::Result;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::call::Call;
use msc_ir::{Graph, GraphId, Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Sets apart what the graphs that are called, and only called, measure.
///
/// # Errors
/// If a graph does not define operands before uses.
pub(super) fn set_apart(module: &mut Module, graphs: &[GraphId]) -> Result<()> {
    let mut apart: BTreeMap<GraphId, Apart> = BTreeMap::new();
    for &id in graphs {
        if !super::lower::called_only(module, id) {
            continue;
        }
        let source = module.graph(id);
        let ops = measures(source);
        if ops.is_empty() {
            continue;
        }
        let Divided { rest, sums, takes, results } = divided(source, &ops)?;
        let sums = module.add_graph(sums);
        module.set_graph(id, rest);
        apart.insert(id, Apart { sums, takes, results });
    }
    for &id in graphs {
        let source = module.graph(id);
        let calls = source.ops().any(|(_, d)| matches!(&d.op, Op::Call(c) if apart.contains_key(&c.graph)));
        if calls {
            let made = called(module, source, &apart)?;
            module.set_graph(id, made);
        }
    }
    Ok(())
}

/// A graph, and its measures, as an [`Apart`] says.
struct Divided {
    rest: Graph,
    sums: Graph,
    takes: Vec<Taken>,
    results: Vec<(bool, usize)>,
}

/// A graph whose measures are in another.
struct Apart {
    sums: GraphId,
    /// What the measures take.
    takes: Vec<Taken>,
    /// Of each result as it was: whether the measures give it, and which of theirs or of the graph's it is.
    results: Vec<(bool, usize)>,
}

/// A value as the graph's caller knows it: a parameter, or a result as it was.
#[derive(Clone, Copy)]
enum Taken {
    Param(usize),
    Result(usize),
}

/// Whether an op only moves elements, combines them one by one, or sums them.
fn is_plain(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_) | Op::Binary(_) | Op::Reduce(_) | Op::Convert(_) | Op::Reshape(_) | Op::Select(_)
    )
}

/// The ops that measure what the graph gives; none unless something is summed.
fn measures(g: &Graph) -> BTreeSet<OpId> {
    let results: BTreeSet<ValueId> = g.results().iter().copied().collect();
    let is_constant = |v: ValueId| g.def(v).is_some_and(|(d, _)| matches!(g.op(d).op, Op::Constant(_)));
    let given = |v: ValueId| results.contains(&v) || g.def(v).is_none() || is_constant(v);
    let mut refused: BTreeSet<OpId> = BTreeSet::new();
    loop {
        let mut found: BTreeSet<OpId> = BTreeSet::new();
        for (id, data) in g.ops().rev() {
            let leads = |v: &ValueId| {
                let uses = &g.value(*v).uses;
                let scalar = g.ty(*v).rank() == 0;
                let inside = uses.iter().all(|u| found.contains(&u.op));
                inside && if results.contains(v) { scalar } else { !uses.is_empty() }
            };
            if is_plain(&data.op) && !refused.contains(&id) && data.results.iter().all(leads) {
                found.insert(id);
            }
        }
        let before = refused.len();
        for &id in &found {
            let has = |v: &ValueId| given(*v) || g.def(*v).is_some_and(|(d, _)| found.contains(&d));
            if !g.op(id).operands.iter().all(has) {
                refused.insert(id);
            }
        }
        if refused.len() == before {
            let sums = |id: &OpId| {
                let data = g.op(*id);
                matches!(data.op, Op::Reduce(_)) && data.operands.iter().any(|&v| g.ty(v).rank() > 0)
            };
            return if found.iter().any(sums) { found } else { BTreeSet::new() };
        }
    }
}

/// The graph without its measures, and the measures.
fn divided(source: &Graph, ops: &BTreeSet<OpId>) -> Result<Divided> {
    let measured = |v: ValueId| source.def(v).is_some_and(|(d, _)| ops.contains(&d));
    let mut rest = Graph::new(source.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
    for &p in source.params() {
        map[p.0 as usize] = Some(rest.add_param(source.ty(p).clone()));
    }
    for (id, _) in source.ops().filter(|(id, _)| !ops.contains(id)) {
        rest.copy_op(source, id, &mut map)?;
    }
    let mut sums = Graph::new(format!("{}_sums", source.name));
    let mut here: Vec<Option<ValueId>> = vec![None; source.value_count()];
    let mut takes = Vec::new();
    for (id, data) in source.ops().filter(|(id, _)| ops.contains(id)) {
        for &v in &data.operands {
            if here[v.0 as usize].is_some() {
                continue;
            }
            let taken = match (source.params().iter().position(|p| *p == v), source.def(v)) {
                (Some(n), _) => Taken::Param(n),
                (None, Some((def, _))) if matches!(source.op(def).op, Op::Constant(_)) => {
                    sums.copy_op(source, def, &mut here)?;
                    continue;
                }
                _ => match source.results().iter().position(|r| *r == v) {
                    Some(n) => Taken::Result(n),
                    None => continue,
                },
            };
            here[v.0 as usize] = Some(sums.add_param(source.ty(v).clone()));
            takes.push(taken);
        }
        sums.copy_op(source, id, &mut here)?;
    }
    let (mut kept, mut made, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for &r in source.results() {
        let (list, from) = if measured(r) { (&mut made, &here) } else { (&mut kept, &map) };
        results.push((measured(r), list.len()));
        list.extend(from[r.0 as usize]);
    }
    rest.set_results(kept);
    sums.set_results(made);
    Ok(Divided { rest, sums, takes, results })
}

/// A graph whose calls of divided graphs are two.
fn called(module: &Module, source: &Graph, apart: &BTreeMap<GraphId, Apart>) -> Result<Graph> {
    let mut out = Graph::new(source.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
    for &p in source.params() {
        map[p.0 as usize] = Some(out.add_param(source.ty(p).clone()));
    }
    for (id, data) in source.ops() {
        let divided = match &data.op {
            Op::Call(c) => apart.get(&c.graph).map(|a| (c.graph, a)),
            _ => None,
        };
        let Some((graph, apart)) = divided else {
            out.copy_op(source, id, &mut map)?;
            continue;
        };
        let operands: Vec<ValueId> = data.operands.iter().filter_map(|v| map[v.0 as usize]).collect();
        let kept = out.add(module, Call { graph }, &operands, data.loc)?;
        let taken = |t: &Taken| match *t {
            Taken::Param(n) => operands.get(n).copied(),
            Taken::Result(n) => apart.results.get(n).and_then(|&(_, at)| kept.get(at).copied()),
        };
        let operands: Vec<ValueId> = apart.takes.iter().filter_map(taken).collect();
        let made = out.add(module, Call { graph: apart.sums }, &operands, data.loc)?;
        for (&r, &(measured, at)) in data.results.iter().zip(&apart.results) {
            map[r.0 as usize] = if measured { made.get(at) } else { kept.get(at) }.copied();
        }
    }
    out.set_results(source.results().iter().filter_map(|r| map[r.0 as usize]).collect());
    Ok(out)
}
