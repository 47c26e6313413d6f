//! Where a layer begins: the cut that the fewest values cross.
//!
//! Ops at the start of an instance that have one more counterpart after the last instance (a norm before the head
//! that looks like a layer's first) may as well end the instance before; ops at the end that have one more before
//! the first (an embedding sum that looks like a residual add) may as well start the next. Of these cuts the one
//! with the fewest carried values is taken; among equals the one at which most of what a backward needs of the forward
//! is its own layer's, then the one nearest to where the search began.

use super::chains::Chains;
use super::relation::{Candidate, Relation};
use super::segments::{Rank, Segments};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The chains that should start one instance earlier (−1) or later (1).
pub(super) fn moves(candidate: &Candidate<'_, '_>, segments: &Segments) -> Vec<(u32, i32)> {
    let mut out = Vec::new();
    let links = links(candidate, segments);
    for (&rank, &recurrent) in &segments.recurrent {
        if recurrent {
            out.extend(best(candidate, segments, rank, &links, &out));
        }
    }
    out
}

/// What chains of one recurrence need of another: for each chain the others, and by how many instances they are ahead.
type Links = BTreeMap<u32, Vec<(u32, i32)>>;

fn links(candidate: &Candidate<'_, '_>, segments: &Segments) -> Links {
    let mut out = Links::new();
    let recurrent = |c: u32| segments.rank[c as usize].filter(|r| segments.recurrent[r]);
    for c in candidate.chosen().filter(|&c| recurrent(c).is_some()) {
        for j in 0..candidate.chains.links.count(c) {
            if let Relation::Chain { chain, distance, .. } = candidate.relation(c, j)
                && recurrent(chain).is_some_and(|r| Some(r) != recurrent(c))
            {
                out.entry(c).or_default().push((chain, distance));
                out.entry(chain).or_default().push((c, -distance));
            }
        }
    }
    out
}

/// `chains` with the starts moved.
pub(super) fn moved(chains: &Chains, moves: &[(u32, i32)]) -> Chains {
    let mut out = chains.clone();
    for &(c, by) in moves {
        out.first[c as usize] += by;
    }
    out
}

/// Chains of a segment in the order in which one instance executes them.
pub(super) fn execution_order(candidate: &Candidate<'_, '_>, ranks: &[Option<Rank>], rank: Rank) -> Vec<u32> {
    let mut chains: Vec<u32> = candidate.chosen().filter(|&c| ranks[c as usize] == Some(rank)).collect();
    let at = candidate.range.low;
    chains.sort_unstable_by_key(|&c| candidate.nodes.position[candidate.chains.member(c, at) as usize]);
    chains
}

/// One segment's ops in execution order, those that may change instance at either end.
struct Timeline {
    order: Vec<u32>,
    /// How many at the start may end the instance before, and how many at the end may start the next.
    early: usize,
    late: usize,
    /// For each value made in the segment where it is made, where it is last used in its own instance, and where
    /// it is last used in the next one.
    lives: Vec<(usize, Option<usize>, Option<usize>)>,
}

/// The moves of a segment's chains for its best cut; `before` are those of the segments before it.
fn best(
    candidate: &Candidate<'_, '_>,
    segments: &Segments,
    rank: Rank,
    links: &Links,
    before: &[(u32, i32)],
) -> Vec<(u32, i32)> {
    let t = Timeline::new(candidate, segments, rank);
    let n = t.order.len();
    let cuts = (0..=t.early).chain((n - t.late..n).rev());
    let forward = if rank.1.is_multiple_of(2) { 1 } else { -1 };
    let moves = |cut: usize| -> Vec<(u32, i32)> {
        let (chains, by) =
            if cut <= t.early { (&t.order[..cut], -forward) } else { (&t.order[cut..], forward) };
        chains.iter().map(|&c| (c, by)).collect()
    };
    let crossing: Vec<(usize, usize)> = cuts.map(|cut| (t.crossing(cut), cut)).collect();
    let fewest = crossing.iter().map(|c| c.0).min().unwrap_or(0);
    let before: BTreeMap<u32, i32> = before.iter().copied().collect();
    let astray = |moves: &[(u32, i32)]| {
        let moves: BTreeMap<u32, i32> = moves.iter().copied().collect();
        let by = |moves: &BTreeMap<u32, i32>, c: u32| moves.get(&c).copied().unwrap_or(0);
        let all = t.order.iter().filter_map(|c| Some((c, links.get(c)?)));
        let ahead = all.flat_map(|(c, to)| {
            let (moves, before) = (&moves, &before);
            to.iter().map(move |&(d, ahead)| ahead + by(before, d) - by(moves, *c))
        });
        ahead.filter(|&a| a != 0).count()
    };
    let equals = crossing.into_iter().filter(|c| c.0 == fewest).map(|(_, cut)| moves(cut));
    equals.enumerate().min_by_key(|(at, m)| (astray(m), *at)).map(|(_, m)| m).unwrap_or_default()
}

type Inner = BTreeMap<u32, Vec<(u32, u32, i32)>>;

/// The ops at the end of an instance in an order in which those that lead to a carried value come as late as they
/// can, so that a cut between them separates nothing else.
fn carriers_last(ops: &[u32], inner: &Inner) -> Vec<u32> {
    let here: BTreeSet<u32> = ops.iter().copied().collect();
    let mut carries: BTreeSet<u32> = BTreeSet::new();
    for from in inner.values() {
        carries.extend(from.iter().filter(|(p, _, d)| *d != 0 && here.contains(p)).map(|(p, _, _)| *p));
    }
    for c in ops.iter().rev().filter(|c| inner.contains_key(c)) {
        if carries.contains(c) {
            carries
                .extend(inner[c].iter().filter(|(p, _, d)| *d == 0 && here.contains(p)).map(|(p, _, _)| *p));
        }
    }
    // Kahn's algorithm; of what is ready, first what carries nothing, then what the exporter wrote first.
    let place: BTreeMap<u32, usize> = ops.iter().enumerate().map(|(i, &c)| (c, i)).collect();
    let within = |c: &u32| inner[c].iter().filter(|(_, _, d)| *d == 0).filter_map(|(p, _, _)| place.get(p));
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); ops.len()];
    let mut waits = vec![0usize; ops.len()];
    for (i, c) in ops.iter().enumerate() {
        for &p in within(c) {
            users[p].push(i);
            waits[i] += 1;
        }
    }
    let key = |i: usize| Reverse((carries.contains(&ops[i]), i));
    let mut ready: BinaryHeap<Reverse<(bool, usize)>> =
        (0..ops.len()).filter(|&i| waits[i] == 0).map(key).collect();
    let mut out = Vec::with_capacity(ops.len());
    // What is made of parameters alone (a scale, spread) comes just before what takes it first.
    let made_of_none = |i: usize| inner[&ops[i]].is_empty() && !users[i].is_empty();
    let mut held: BTreeSet<usize> = BTreeSet::new();
    while let Some(Reverse((_, i))) = ready.pop() {
        if made_of_none(i) {
            held.insert(i);
        } else {
            for &p in within(&ops[i]) {
                if held.remove(&p) {
                    out.push(ops[p]);
                }
            }
            out.push(ops[i]);
        }
        for &u in &users[i] {
            waits[u] -= 1;
            if waits[u] == 0 {
                ready.push(key(u));
            }
        }
    }
    out
}

impl Timeline {
    fn new(candidate: &Candidate<'_, '_>, segments: &Segments, rank: Rank) -> Timeline {
        let order = execution_order(candidate, &segments.rank, rank);
        // Operands of each op that its own segment makes: maker, result, distance.
        let inner: Inner = order
            .iter()
            .map(|&c| {
                let from =
                    (0..candidate.chains.links.count(c)).filter_map(|j| match candidate.relation(c, j) {
                        Relation::Chain { chain, distance, result }
                            if segments.rank[chain as usize] == Some(rank) =>
                        {
                            Some((chain, result, distance))
                        }
                        _ => None,
                    });
                (c, from.collect())
            })
            .collect();
        let forward = rank.1.is_multiple_of(2);
        // Whether a chain has a member one instance past the last executed, or before the first.
        let beyond = |c: u32, last: bool| {
            let (r, all) = (candidate.chains.range(c), candidate.range);
            if forward == last { r.high > all.high } else { r.low < all.low }
        };
        let mut early: BTreeSet<u32> = BTreeSet::new();
        for &c in &order {
            if beyond(c, true) && inner[&c].iter().all(|(p, _, d)| *d != 0 || early.contains(p)) {
                early.insert(c);
            }
        }
        let mut pinned: BTreeSet<u32> = BTreeSet::new();
        for &c in order.iter().rev() {
            if early.contains(&c) || !beyond(c, false) || pinned.contains(&c) {
                pinned.insert(c);
                pinned.extend(inner[&c].iter().filter(|(_, _, d)| *d == 0).map(|(p, _, _)| *p));
            }
        }
        let group = |c: &u32| if early.contains(c) { 0 } else { 2 - u8::from(pinned.contains(c)) };
        let mut order = order;
        order.sort_by_key(group);
        let start = order.iter().filter(|c| group(c) < 2).count();
        let last = carriers_last(&order[start..], &inner);
        order.truncate(start);
        order.extend(last);
        let place: BTreeMap<u32, usize> = order.iter().enumerate().map(|(i, &c)| (c, i)).collect();
        let mut lives: BTreeMap<(u32, u32), (Option<usize>, Option<usize>)> = BTreeMap::new();
        for (c, from) in &inner {
            for &(maker, result, distance) in from {
                let l = lives.entry((maker, result)).or_default();
                let last = if distance == 0 { &mut l.0 } else { &mut l.1 };
                *last = (*last).max(Some(place[c]));
            }
        }
        let lives = lives.into_iter().map(|((m, _), (own, next))| (place[&m], own, next)).collect();
        let late = order.len() - start;
        Timeline { early: early.len(), late, order, lives }
    }

    /// How many values are carried if instances begin at `cut`; a value carried past a whole instance is not
    /// allowed.
    fn crossing(&self, cut: usize) -> usize {
        let one = |&(made, own, next): &(usize, Option<usize>, Option<usize>)| {
            let before = made < cut && (next.is_some() || own.is_some_and(|q| cut <= q));
            match (before, next.is_some_and(|q| cut <= q)) {
                (true, true) => self.lives.len() + 2,
                (a, b) => usize::from(a) + usize::from(b),
            }
        };
        self.lives.iter().map(one).sum()
    }
}
