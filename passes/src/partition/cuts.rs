//! Places where the layout may change: a `reshard` between a value and some of its uses.

use super::facts::{Draft, Fact, Facts};
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::reshard::Reshard;
use msc_ir::{Graph, GraphId};
use std::collections::BTreeMap;

/// Who uses a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum User {
    /// An operand of an op.
    Operand(OpId, usize),
    /// A result of the graph.
    Result(usize),
}

/// All users of a value, operands first.
pub(super) fn users(g: &Graph, v: ValueId) -> Vec<User> {
    let operands = g.value(v).uses.iter().map(|u| User::Operand(u.op, u.index as usize));
    let results = g.results().iter().enumerate().filter(|(_, r)| **r == v).map(|(i, _)| User::Result(i));
    operands.chain(results).collect()
}

/// One `reshard`: between `value` and `users`.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    pub graph: GraphId,
    pub value: ValueId,
    pub users: Vec<User>,
    /// Whether it stands before its first user rather than after the value.
    pub late: bool,
    /// Whether what comes out of it is to be split as other values are that no cut sets apart.
    pub back: bool,
    pub fact: Fact,
}

/// Where the values of a program went.
#[derive(Default)]
pub(super) struct Moved {
    graphs: BTreeMap<GraphId, Vec<Option<ValueId>>>,
    /// The result of each cut's `reshard`.
    pub made: Vec<Option<ValueId>>,
}

impl Moved {
    /// What a value is called now.
    pub fn value(&self, graph: GraphId, v: ValueId) -> Option<ValueId> {
        self.graphs.get(&graph).map_or(Some(v), |map| map[v.0 as usize])
    }
}

/// Inserts cuts. A value keeps its meaning; the answer says what it is called now.
pub(super) fn insert(draft: &mut Draft, all: &[Cut]) -> Moved {
    let mut by_graph: BTreeMap<GraphId, Vec<usize>> = BTreeMap::new();
    all.iter().enumerate().for_each(|(n, c)| by_graph.entry(c.graph).or_default().push(n));
    let mut moved = Moved { made: vec![None; all.len()], ..Moved::default() };
    for (id, numbers) in by_graph {
        let cuts: Vec<&Cut> = numbers.iter().map(|&n| &all[n]).collect();
        let source = draft.module.graph(id);
        let (graph, map, made) = rebuilt(source, &cuts);
        let mut facts: Facts = Facts::new();
        for ((g, v), f) in std::mem::take(&mut draft.facts) {
            match map.get(v.0 as usize).copied().flatten().filter(|_| g == id) {
                Some(new) => facts.insert((g, new), f),
                None => facts.insert((g, v), f),
            };
        }
        for ((v, c), n) in made.into_iter().zip(&cuts).zip(numbers) {
            facts.extend(v.map(|v| ((id, v), c.fact.clone())));
            moved.made[n] = v;
        }
        draft.facts = facts;
        draft.module.set_graph(id, graph);
        moved.graphs.insert(id, map);
    }
    moved
}

/// The graph with the cuts, what each value is called there, and the result of each cut's `reshard`.
fn rebuilt(source: &Graph, cuts: &[&Cut]) -> (Graph, Vec<Option<ValueId>>, Vec<Option<ValueId>>) {
    let mut redirected: BTreeMap<User, usize> = BTreeMap::new();
    let mut after: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (n, c) in cuts.iter().enumerate() {
        redirected.extend(c.users.iter().map(|&u| (u, n)));
        if !c.late {
            after.entry(c.value).or_default().push(n);
        }
    }
    let mut out = Graph::new(source.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
    let mut made: Vec<Option<ValueId>> = vec![None; cuts.len()];
    let cut = |out: &mut Graph, map: &[Option<ValueId>], n: usize, near: OpId| {
        let v = cuts[n].value;
        let from = map[v.0 as usize]?;
        let loc = source.def(v).map_or(source.op(near).loc, |(d, _)| source.op(d).loc);
        out.add_typed(Reshard.into(), &[from], vec![source.ty(v).clone()], loc).first().copied()
    };
    for &p in source.params() {
        map[p.0 as usize] = Some(out.add_param(source.ty(p).clone()));
    }
    for (id, data) in source.ops() {
        let mut operands = Vec::with_capacity(data.operands.len());
        for (i, v) in data.operands.iter().enumerate() {
            let operand = match redirected.get(&User::Operand(id, i)) {
                Some(&n) => {
                    if made[n].is_none() {
                        made[n] = cut(&mut out, &map, n, id);
                    }
                    made[n]
                }
                None => map[v.0 as usize],
            };
            operands.extend(operand);
        }
        let types = data.results.iter().map(|&r| source.ty(r).clone());
        let results = out.add_typed(data.op.clone(), &operands, types, data.loc);
        for (&old, new) in data.results.iter().zip(results) {
            map[old.0 as usize] = Some(new);
            for &n in after.get(&old).map_or(&[][..], |l| l) {
                made[n] = cut(&mut out, &map, n, id);
            }
        }
    }
    let last = source.order().last().copied();
    let mut results = Vec::with_capacity(source.results().len());
    for (i, r) in source.results().iter().enumerate() {
        let value = match (redirected.get(&User::Result(i)), last) {
            (Some(&n), Some(near)) => {
                if made[n].is_none() {
                    made[n] = cut(&mut out, &map, n, near);
                }
                made[n]
            }
            _ => map[r.0 as usize],
        };
        results.extend(value);
    }
    out.set_results(results);
    (out, map, made)
}
