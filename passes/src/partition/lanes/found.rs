//! What was tied, and what graphs then take and give.

use super::tie::Bundles;
use super::{Bundle, Slot};
use msc_ir::GraphId;
use msc_ir::graph::ValueId;
use std::collections::{BTreeMap, BTreeSet};

/// Positions by lane, row by row as long as every lane has one.
pub(super) fn rows(at: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let n = at.iter().map(Vec::len).min().unwrap_or(0);
    (0..n).map(|k| at.iter().map(|l| l[k]).collect()).collect()
}

/// What a graph takes or gives then: a row stands where its first position was.
fn slots(n: usize, taken: &[Vec<usize>]) -> Vec<Slot> {
    let mut out = Vec::new();
    for at in 0..n {
        match taken.iter().find(|row| row.contains(&at)) {
            None => out.push(Slot::One(at)),
            Some(row) if row.iter().min() == Some(&at) => out.push(Slot::Many(row.clone())),
            Some(_) => {}
        }
    }
    out
}

/// Bundles of a program, and what its graphs then take and give.
pub(super) struct Found {
    pub entry: GraphId,
    pub graphs: Vec<GraphId>,
    pub lanes: usize,
    pub list: Vec<Bundle>,
    of: BTreeMap<GraphId, Vec<Option<(usize, usize)>>>,
    params: BTreeMap<GraphId, Vec<Slot>>,
    results: BTreeMap<GraphId, Vec<Slot>>,
}

impl Found {
    pub fn of(&self, g: GraphId, v: ValueId) -> Option<(usize, usize)> {
        self.of.get(&g).and_then(|l| l[v.0 as usize])
    }

    pub fn params(&self, g: GraphId) -> &[Slot] {
        self.params.get(&g).map_or(&[], |s| s)
    }

    pub fn results(&self, g: GraphId) -> &[Slot] {
        self.results.get(&g).map_or(&[], |s| s)
    }

    /// What an op takes and gives for a list of values in which bundles are one.
    pub fn slots(&self, g: GraphId, list: &[ValueId]) -> Vec<Slot> {
        let mut at: BTreeMap<usize, Vec<Vec<usize>>> = BTreeMap::new();
        for (n, &v) in list.iter().enumerate() {
            if let Some((b, lane)) = self.of(g, v) {
                at.entry(b).or_insert_with(|| vec![Vec::new(); self.lanes])[lane].push(n);
            }
        }
        let taken: Vec<Vec<usize>> = at.values().flat_map(|at| rows(at)).collect();
        slots(list.len(), &taken)
    }

    /// The entry's parameters that are stacks then.
    pub fn entry_params(&self) -> Vec<&Slot> {
        self.params(self.entry).iter().filter(|s| matches!(s, Slot::Many(_))).collect()
    }
}

impl Bundles<'_> {
    /// What was found, by itself.
    pub fn finish(self) -> Found {
        let mut params = BTreeMap::new();
        let mut results = BTreeMap::new();
        for &g in &self.graphs {
            let graph = self.graph(g);
            let bundles = |list: &[ValueId]| -> Vec<Vec<usize>> {
                let mut all: Vec<usize> = list.iter().filter_map(|&v| Some(self.of(g, v)?.0)).collect();
                all.dedup();
                let mut seen = BTreeSet::new();
                all.retain(|b| seen.insert(*b) && self.is_open(g));
                all.into_iter().flat_map(|b| self.positions(g, list, b)).collect()
            };
            let taken = bundles(graph.params());
            let mut given = bundles(graph.results());
            if g == self.entry
                && let Ok(e) = self.module.entry()
            {
                // What replaces a stack is one, whatever it is made of.
                for row in &taken {
                    let next: Option<Vec<usize>> =
                        row.iter().map(|&p| e.params[p].alias.map(|r| r as usize)).collect();
                    let Some(next) = next else { continue };
                    given.retain(|other| *other == next || other.iter().all(|r| !next.contains(r)));
                    if !given.contains(&next) {
                        given.push(next);
                    }
                }
                // Nothing else that is replaced is.
                let replaces = |r: &usize| {
                    e.params
                        .iter()
                        .enumerate()
                        .any(|(p, i)| i.alias == Some(*r as u32) && !taken.iter().any(|row| row.contains(&p)))
                };
                given.retain(|row| !row.iter().any(replaces));
            }
            params.insert(g, slots(graph.params().len(), &taken));
            results.insert(g, slots(graph.results().len(), &given));
        }
        Found {
            entry: self.entry,
            graphs: self.graphs,
            lanes: self.lanes,
            list: self.list,
            of: self.of,
            params,
            results,
        }
    }
}
