//! Extraction: new graphs in which named ops stand wherever they were found.
//!
//! Every value that is still needed and that no named op gives keeps its own op at its own place. The order is a
//! topological sort that prefers the program's own; where named ops would need each other, the one of them is
//! given up without which the fewest plain ops are left, so the result is acyclic by construction.

mod emit;
mod repeated;
mod select;

use super::engine::region::Region;
use super::engine::run::Run;
use super::engine::term::Graph;
use crate::error::{PassError, Result};
use egg::Id;
use emit::Emitter;
use msc_ir::{Op, OpId};
use repeated::repeated;
use select::{Choice, Key, Selection, Selector, Thing};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a parameter of an extracted graph is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Param {
    /// The old parameter with this index.
    Old(usize),
    /// The old parameter with this index of an earlier part, from outside the region.
    Outer {
        /// The part.
        part: usize,
        /// Index among its old parameters.
        index: usize,
    },
    /// A result of an earlier part's extracted graph.
    Result {
        /// The part.
        part: usize,
        /// Index among its new results.
        index: usize,
    },
}

/// What a result of an extracted graph is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The old result with this index.
    Old(usize),
    /// A value that a later part needs.
    Export,
}

/// A new graph for a part.
#[derive(Clone, Debug)]
pub struct Extracted {
    /// The graph.
    pub graph: msc_ir::Graph,
    /// One per parameter.
    pub params: Vec<Param>,
    /// One per result.
    pub results: Vec<Outcome>,
    /// For each op of the old graph that stays, which it is now.
    pub moved: BTreeMap<OpId, OpId>,
    /// For each op of the new graph that is a named one, its class.
    pub named: BTreeMap<OpId, Id>,
}

/// The outcome for a region.
#[derive(Clone, Debug)]
pub struct Extraction {
    /// One per part.
    pub parts: Vec<Extracted>,
    /// For each part the named ops used: index into [`Run::reasons`] of the first reason of each.
    pub used: Vec<Vec<usize>>,
    /// Reasons whose op was given up because it would have needed itself, or repeated another.
    pub given_up: Vec<usize>,
}

/// Which results of the parts are needed from outside the region.
pub type Keep = Vec<Vec<bool>>;

/// Extracts all parts of a region. `keep_params` keeps every parameter of a single part, used or not.
///
/// # Errors
/// [`PassError::Broken`] on a bug of the engine or a rule.
pub fn extract(
    graph: &Graph,
    region: &Region,
    run: &Run,
    keep: &Keep,
    keep_params: bool,
) -> Result<Extraction> {
    let mut banned: BTreeSet<Id> = BTreeSet::new();
    // Each round gives up at least one named op.
    loop {
        let selection = select(graph, region, run, keep, &banned)?;
        if let Some(op) = repeated(graph, region, &selection) {
            banned.insert(selection.named[op].tuple);
            continue;
        }
        match emit(graph, region, &selection, keep, keep_params)? {
            Ok(parts) => {
                let index =
                    |o: usize| run.reasons.iter().position(|r| graph.find(r.op) == selection.named[o].tuple);
                let used = (0..region.parts.len())
                    .map(|p| {
                        selection.instances.keys().filter(|k| k.0 == p).filter_map(|k| index(k.1)).collect()
                    })
                    .collect();
                let given_up = (0..run.reasons.len())
                    .filter(|&i| banned.contains(&graph.find(run.reasons[i].op)))
                    .collect();
                return Ok(Extraction { parts, used, given_up });
            }
            Err(cycle) => {
                let mut best: Option<(usize, Reverse<usize>, Id)> = None;
                for op in cycle {
                    let tuple = selection.named[op].tuple;
                    let mut without = banned.clone();
                    without.insert(tuple);
                    let left = select(graph, region, run, keep, &without)?;
                    let way = (plain(&left), Reverse(op), tuple);
                    if best.is_none_or(|b| way < b) {
                        best = Some(way);
                    }
                }
                banned.extend(best.map(|b| b.2));
            }
        }
    }
}

/// What is computed where the `banned` ops are not used.
fn select(
    graph: &Graph,
    region: &Region,
    run: &Run,
    keep: &Keep,
    banned: &BTreeSet<Id>,
) -> Result<Selection> {
    let mut selector = Selector::new(graph, region, run, banned);
    for (part, kept) in keep.iter().enumerate() {
        for (i, &k) in kept.iter().enumerate() {
            if k && let Some(&v) = region.parts[part].graph.results().get(i) {
                selector.need(part, v);
            }
        }
        // Calls are the template's, which describes each of them.
        let graph = &region.parts[part].graph;
        for (_, data) in graph.ops().filter(|(_, d)| matches!(d.op, Op::Call(_))) {
            data.results.iter().for_each(|&r| selector.need(part, r));
        }
    }
    selector.finish()
}

/// How many things are computed by ops that are no named ones.
fn plain(s: &Selection) -> usize {
    s.choices.values().filter(|c| matches!(c, Choice::Own | Choice::Derived(..))).count()
}

/// Everything that a part takes from an earlier one: the part that takes, and what.
fn crossings(s: &Selection) -> BTreeSet<(usize, Key)> {
    let chosen = s.choices.iter().flat_map(|(k, c)| {
        let from: &[Key] = match c {
            Choice::Import(from) => std::slice::from_ref(from),
            Choice::Derived(_, keys) => keys,
            _ => &[],
        };
        from.iter().map(|&f| (k.part, f))
    });
    let named = s.instances.iter().flat_map(|(&(p, _), keys)| keys.iter().map(move |&f| (p, f)));
    chosen.chain(named).filter(|(p, f)| f.part < *p).collect()
}

/// Emits every part; `Err` are named ops that need themselves.
fn emit(
    graph: &Graph,
    region: &Region,
    selection: &Selection,
    keep: &Keep,
    keep_params: bool,
) -> Result<std::result::Result<Vec<Extracted>, Vec<usize>>> {
    let mut done: Vec<Extracted> = Vec::new();
    let mut exports: Vec<BTreeMap<Key, usize>> = Vec::new();
    for part in 0..region.parts.len() {
        let source = &region.parts[part].graph;
        let mut e = Emitter::new(graph, region, selection, part);
        let mut params = e.own_params(keep_params);
        e.imports(&exports, &mut params)?;
        if let Err(cycle) = e.body()? {
            return Ok(Err(cycle));
        }
        let (mut results, mut outcomes) = (Vec::new(), Vec::new());
        let mut exported = BTreeMap::new();
        for (i, &v) in source.results().iter().enumerate() {
            if keep.get(part).and_then(|k| k.get(i)) == Some(&true) {
                let at = region.at(part, v);
                let key = Key { part, position: at.position, thing: Thing::Value(v) };
                exported.entry(key).or_insert(results.len());
                results.push(e.value(key)?);
                outcomes.push(Outcome::Old(i));
            }
        }
        for (to, from) in crossings(selection) {
            if from.part == part && to > part && !exported.contains_key(&from) && !e.is_own_param(from) {
                exported.insert(from, results.len());
                results.push(e.value(from)?);
                outcomes.push(Outcome::Export);
            }
        }
        e.out.set_results(results);
        exports.push(exported);
        done.push(Extracted { graph: e.out, params, results: outcomes, moved: e.moved, named: e.named });
    }
    Ok(Ok(done))
}

fn broken(message: impl Into<String>) -> PassError {
    PassError::Broken { pass: "recognise", message: message.into() }
}
