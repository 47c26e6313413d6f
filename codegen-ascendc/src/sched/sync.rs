//! Third pass: flags and barriers.
//!
//! Each list of items is treated on its own, a loop in it counting as one item that does all its body
//! does. For every item and every other pipe, the latest earlier item with a conflicting access gets a
//! flag to it. Conflicts between iterations get a flag that the loop carries: as many event ids as the
//! iterations are apart, all set before the loop, each awaited before the first conflicting item and set
//! again behind the last, all awaited behind the loop. Conflicts within a pipe get barriers.
//!
//! This orders everything and more than is needed; `prune` removes the excess.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, FlagDecl, FlagId, Item, Loop, Op, Pipe, Program, Resource, Turn, Unit};
use crate::tile::{LoopId, Var, View};

/// Adds flags to the program and returns the items with their synchronisation.
pub(super) fn synchronise(program: &mut Program, items: Vec<Item>) -> Vec<Item> {
    list(program, items, None)
}

/// What an item does on each pipe, with the loops inside it ignored.
pub(super) fn uses(item: &Item, out: &mut Vec<(Pipe, Access)>) {
    match item {
        Item::Op(op) => out.extend(op.accesses().into_iter().map(|a| (op.pipe(), a))),
        Item::For(l) => l.body.iter().for_each(|item| uses(item, out)),
        _ => {}
    }
}

/// Whether two accesses may touch the same bytes, at least one of them writing.
pub(super) fn conflict(a: &Access, b: &Access) -> bool {
    let same = match (&a.resource, &b.resource) {
        (Resource::Tile(x) | Resource::AllSlots(x), Resource::Tile(y) | Resource::AllSlots(y)) => x == y,
        (Resource::Global(x, ..), Resource::Global(y, ..)) => x == y,
        (Resource::Handover(x, _), Resource::Handover(y, _)) => x == y,
        _ => false,
    };
    same && (a.write || b.write)
}

/// Iterations after which two conflicting accesses meet again, `None` if they never do.
fn distance(program: &Program, a: &Access, b: &Access, l: &Loop) -> Option<u32> {
    match (&a.resource, &b.resource) {
        (Resource::Tile(id), Resource::Tile(_)) => {
            let tile = program.tile(*id)?;
            Some(if tile.rotates == Some(l.id) { tile.slots } else { 1 })
        }
        (Resource::Global(_, x, shape), Resource::Global(_, y, _)) if x == y && advances(x, *shape, l) => {
            None
        }
        (Resource::Handover(id, _), _) => Some(program.handover(*id)?.slots),
        _ => Some(1),
    }
}

/// Whether a view's region is disjoint from that of every other iteration of the loop.
fn advances(view: &View, [rows, cols]: [i64; 2], l: &Loop) -> bool {
    let parts = [(&view.rows, rows), (&view.cols, cols)];
    parts.iter().any(|(part, extent)| {
        let coefficient = part.as_ref().map_or(0, |(_, span)| span.start.coefficient(Var::Loop(l.id)));
        coefficient.saturating_mul(l.step).saturating_abs() >= *extent
    })
}

/// A flag to be placed: set behind item `from`, awaited before item `to`.
#[derive(Clone, Copy)]
struct Edge {
    from: usize,
    to: usize,
}

type Pair = (Pipe, Pipe);

fn list(program: &mut Program, items: Vec<Item>, around: Option<&Loop>) -> Vec<Item> {
    let touched: Vec<Vec<(Pipe, Access)>> = items
        .iter()
        .map(|item| {
            let mut out = Vec::new();
            uses(item, &mut out);
            out
        })
        .collect();
    let mut barriers = vec![BTreeSet::new(); items.len()];
    let within = edges_within(&items, &touched, &mut barriers);
    let carried = around.map(|l| edges_carried(program, &touched, l, &mut barriers)).unwrap_or_default();

    let mut before: Vec<Vec<Item>> = vec![Vec::new(); items.len()];
    let mut behind: Vec<Vec<Item>> = vec![Vec::new(); items.len()];
    let (turn, slots) = match around {
        Some(l) => (Turn::Of(l.id), rotation(program, l.id)),
        None => (Turn::Fixed(0), 1),
    };
    for ((src, dst), edges) in within {
        for edge in edges {
            let flag = declare(program, (src, dst), slots);
            behind[edge.from].push(Item::Set(flag, turn));
            before[edge.to].push(Item::Wait(flag, turn));
        }
    }
    let (mut prime, mut drain) = (Vec::new(), Vec::new());
    for ((pair, slots), edge) in carried {
        let flag = declare(program, pair, slots);
        behind[edge.from].push(Item::Set(flag, turn));
        before[edge.to].push(Item::Wait(flag, turn));
        prime.extend((0..slots).map(|n| Item::Set(flag, Turn::Fixed(n))));
        drain.extend((0..slots).map(|n| Item::Wait(flag, Turn::Fixed(n))));
    }
    let mut out = Vec::new();
    for (n, item) in items.into_iter().enumerate() {
        out.append(&mut before[n]);
        out.extend(barriers[n].iter().map(|pipe| Item::Barrier(*pipe)));
        match item {
            Item::For(mut l) => {
                let body = std::mem::take(&mut l.body);
                let inner = list(program, body, Some(&l));
                // The body's own list comes with what belongs before and behind the loop.
                let (prime, body, drain) = split(inner);
                l.body = body;
                out.extend(prime);
                out.push(Item::For(l));
                out.extend(drain);
            }
            item => out.push(item),
        }
        out.append(&mut behind[n]);
    }
    if around.is_some() {
        let marker = || Item::Barrier(Pipe::S);
        prime.push(marker());
        prime.append(&mut out);
        prime.push(marker());
        prime.append(&mut drain);
        return prime;
    }
    out
}

/// Takes apart what [`list`] returns for a loop's body: sets before, items, waits behind, separated by
/// barriers of the scalar pipe, which occur nowhere else.
fn split(items: Vec<Item>) -> (Vec<Item>, Vec<Item>, Vec<Item>) {
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    let mut at = 0;
    for item in items {
        if item == Item::Barrier(Pipe::S) && at < 2 {
            at += 1;
        } else {
            parts[at].push(item);
        }
    }
    let [prime, body, drain] = parts;
    (prime, body, drain)
}

fn declare(program: &mut Program, (src, dst): Pair, slots: u32) -> FlagId {
    program.flags.push(FlagDecl { unit: Unit::Aiv, src, dst, slots, id: 0 });
    FlagId(u32::try_from(program.flags.len() - 1).unwrap_or(u32::MAX))
}

/// Most slots of the tiles that rotate with a loop. Flags within an iteration use as many event ids, so
/// that none is set again before the carried flags prove that its wait is over.
fn rotation(program: &Program, l: LoopId) -> u32 {
    program.tiles.iter().filter(|t| t.rotates == Some(l)).map(|t| t.slots).max().unwrap_or(1)
}

fn edges_within(
    items: &[Item],
    touched: &[Vec<(Pipe, Access)>],
    barriers: &mut [BTreeSet<Pipe>],
) -> BTreeMap<Pair, Vec<Edge>> {
    let mut edges: BTreeMap<Pair, Vec<Edge>> = BTreeMap::new();
    for (to, later) in touched.iter().enumerate() {
        let mut latest: BTreeMap<Pair, usize> = BTreeMap::new();
        for (from, earlier) in touched[..to].iter().enumerate() {
            for ((src, a), (dst, b)) in earlier.iter().flat_map(|a| later.iter().map(move |b| (a, b))) {
                if conflict(a, b) {
                    latest.insert((*src, *dst), from);
                }
            }
        }
        for ((src, dst), from) in latest {
            if src == dst {
                barriers[to].insert(src);
            } else {
                let from = end_of_run(items, from, to);
                edges.entry((src, dst)).or_default().push(Edge { from, to });
            }
        }
    }
    for list in edges.values_mut() {
        let all = list.clone();
        // An edge is implied by one that starts no earlier and ends no later.
        let implied = |n: usize, e: &Edge| {
            all.iter().enumerate().any(|(m, f)| {
                m != n && f.from >= e.from && f.to <= e.to && ((f.from, f.to) != (e.from, e.to) || m < n)
            })
        };
        let mut n = 0;
        list.retain(|e| {
            n += 1;
            !implied(n - 1, e)
        });
    }
    edges
}

/// Loads in a row share one flag, set behind the last.
fn end_of_run(items: &[Item], from: usize, to: usize) -> usize {
    let load = |item: &Item| matches!(item, Item::Op(Op::Load { .. }));
    let run = items[from..to].iter().take_while(|item| load(item)).count();
    from + run.saturating_sub(1)
}

/// Per pair of pipes and distance one flag, set behind the last item concerned and awaited before the
/// first.
fn edges_carried(
    program: &Program,
    touched: &[Vec<(Pipe, Access)>],
    l: &Loop,
    barriers: &mut [BTreeSet<Pipe>],
) -> BTreeMap<(Pair, u32), Edge> {
    let mut edges: BTreeMap<(Pair, u32), Edge> = BTreeMap::new();
    for (from, earlier) in touched.iter().enumerate() {
        // A conflict with a later item is ordered within the iteration already.
        for (to, later) in touched[..=from].iter().enumerate() {
            for ((src, a), (dst, b)) in earlier.iter().flat_map(|a| later.iter().map(move |b| (a, b))) {
                let Some(distance) = conflict(a, b).then(|| distance(program, a, b, l)).flatten() else {
                    continue;
                };
                if src == dst {
                    barriers[to].insert(*src);
                    continue;
                }
                let edge = edges.entry(((*src, *dst), distance)).or_insert(Edge { from, to });
                edge.from = edge.from.max(from);
                edge.to = edge.to.min(to);
            }
        }
    }
    edges
}
