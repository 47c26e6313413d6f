//! The search for the best template of a graph.

use super::chains::{Chains, Range};
use super::cut;
use super::grow::{Shift, grow};
use super::nodes::Nodes;
use super::order::{Order, order};
use super::relation::{Candidate, Relation};
use super::seed::{Class, classes, colours, is_product};
use super::segments::{Rank, Refusal, Segments, segments};

/// A template must cover this many ops per instance; less is not a layer.
const SMALLEST_LAYER: usize = 8;

/// Once a template covers this share of a graph's ops (in percent) no other start is tried.
const GOOD_COVER: usize = 50;

/// Covers that differ by less (in percent) count as the same: what differs are ops at the model's ends.
const SAME_COVER: usize = 10;

/// Longest period, in layers, that alternating tables (window and full masks) may have.
const LONGEST_PERIOD: usize = 8;

/// A template that was found, not yet outlined.
pub(super) struct Found {
    pub shift: Shift,
    pub chains: Chains,
    pub range: Range,
    /// For each chain its segment.
    pub rank: Vec<Option<Rank>>,
    /// Segments with a recurrence.
    pub recurrent: Vec<Rank>,
    /// Why a recurrence is not part of it, if one had to be left out.
    pub lost: Option<Refusal>,
    pub order: Order,
}

impl Found {
    /// Ops per instance.
    pub fn ops(&self) -> usize {
        self.rank.iter().flatten().count()
    }

    fn covered(&self) -> usize {
        self.ops() * self.range.instances()
    }

    /// Whether this is the better template: whole layers first, then more ops, then more instances of them.
    fn is_better(&self, other: &Found) -> bool {
        let (a, b) = (self.covered(), other.covered());
        if self.lost.is_none() != other.lost.is_none() {
            return self.lost.is_none();
        }
        if a.abs_diff(b) * 100 > a.max(b) * SAME_COVER {
            return a > b;
        }
        (self.range.instances(), a) > (other.range.instances(), b)
    }

    /// Whether layers are whole and at least this many ops are covered.
    fn reaches(&self, ops: usize) -> bool {
        self.lost.is_none() && self.covered() >= ops
    }

    /// Whether instances are counted against the order in which the first recurrence runs.
    fn is_reversed(&self) -> bool {
        self.recurrent.first().is_some_and(|r| !r.1.is_multiple_of(2))
    }
}

/// The refusal of the most promising candidate, with what is needed to explain it.
pub(super) struct NearMiss {
    pub shift: Shift,
    pub refusal: Refusal,
    /// Ops that the candidate would have covered.
    pub covered: usize,
}

/// What a search gives.
#[derive(Default)]
pub(super) struct Outcome {
    pub found: Option<Found>,
    pub missed: Option<NearMiss>,
}

/// Finds the template that covers most of the graph.
pub(super) fn search(nodes: &Nodes<'_>) -> Outcome {
    let colours = colours(nodes);
    let mut out = Outcome::default();
    let enough = nodes.graph.order().len() * GOOD_COVER / 100;
    // Classes of one size, and those of whole layers, give one correspondence from whichever of them it grows.
    let mut tried: Vec<(usize, bool, Shift)> = Vec::new();
    for class in classes(nodes, &colours) {
        let (a, b) = start(&class, 1);
        let again = |(size, whole, s): &(usize, bool, Shift)| {
            let pair = s.next[a as usize] == b || s.previous[a as usize] == b;
            pair && (*whole || *size == class.len())
        };
        if tried.iter().any(again) {
            continue;
        }
        let shift = grow(nodes, &colours, a, b);
        let found = from_shift(nodes, &shift, a, &mut out.missed);
        tried.push((class.len(), found.as_ref().is_some_and(|f| f.lost.is_none()), shift));
        let better = |f: &Found| out.found.as_ref().is_none_or(|g| f.is_better(g));
        if let Some(f) = found.filter(better) {
            let period = period(nodes, &f);
            let longer = (period > 1)
                .then(|| longer(nodes, &colours, &class, period, &mut out.missed))
                .flatten()
                // Layers that do not fill a period stay outside; that must not cost more than one period.
                .filter(|l| l.lost == f.lost && l.covered() + period * f.ops() >= f.covered());
            out.found = Some(longer.unwrap_or(f));
        }
        if is_product(nodes, &class) && out.found.as_ref().is_some_and(|f| f.reaches(enough)) {
            break;
        }
    }
    out
}

/// The best template grown from the members of a class, each standing for the one `period` later.
fn longer(
    nodes: &Nodes<'_>,
    colours: &[u64],
    class: &Class,
    period: usize,
    missed: &mut Option<NearMiss>,
) -> Option<Found> {
    if class.len() < 2 * period {
        return None;
    }
    let (a, b) = start(class, period);
    from_shift(nodes, &grow(nodes, colours, a, b), a, missed)
}

/// The pair that growth starts from: in the middle, where layers look most alike.
fn start(class: &Class, period: usize) -> (u32, u32) {
    let at = (class.len() - period) / 2;
    (class[at], class[at + period])
}

/// The best template of a correspondence, lined up with the op `anchor`; instances are counted as the first recurrence
/// runs.
fn from_shift(nodes: &Nodes<'_>, shift: &Shift, anchor: u32, missed: &mut Option<NearMiss>) -> Option<Found> {
    let found = one_way(nodes, shift, anchor, missed)?;
    if found.is_reversed() {
        return one_way(nodes, &shift.reversed(), anchor, missed);
    }
    Some(found)
}

fn one_way(nodes: &Nodes<'_>, shift: &Shift, anchor: u32, missed: &mut Option<NearMiss>) -> Option<Found> {
    let chains = Chains::new(nodes, shift, anchor);
    let mut best: Option<Found> = None;
    let mut refused: Option<(usize, Range)> = None;
    for (bound, range) in chains.ranges(nodes) {
        if best.as_ref().is_some_and(|b| b.reaches(bound)) {
            break;
        }
        match attempt(nodes, &chains, range) {
            Ok(a) => keep_better(&mut best, shift, range, a),
            Err((refusal, covered)) => {
                if refused.is_none_or(|(most, _)| covered > most) {
                    refused = Some((covered, range));
                }
                if missed.as_ref().is_none_or(|m| covered > m.covered) {
                    *missed = Some(NearMiss { shift: shift.clone(), refusal, covered });
                }
            }
        }
    }
    // A layer at an end may have all that the others have, and something between that they have not.
    let refused = refused.filter(|_| best.as_ref().is_none_or(|b| b.lost.is_some()));
    for range in refused.into_iter().flat_map(|(_, r)| r.without_ends()) {
        if let Ok(a) = attempt(nodes, &chains, range) {
            keep_better(&mut best, shift, range, a);
        }
    }
    best
}

/// Replaces the best template by a better one.
fn keep_better(best: &mut Option<Found>, shift: &Shift, range: Range, attempt: Attempt) {
    let (chains, segments, order) = attempt;
    let recurrent = segments.recurrent.iter().filter(|(_, r)| **r).map(|(k, _)| *k).collect();
    let (shift, rank, lost) = (shift.clone(), segments.rank, segments.lost);
    let found = Found { shift, chains, range, rank, recurrent, lost, order };
    if found.ops() >= SMALLEST_LAYER && best.as_ref().is_none_or(|b| found.is_better(b)) {
        *best = Some(found);
    }
}

type Attempt = (Chains, Segments, Order);

/// Cuts the chains over a range into segments, lined up as they are or, if that gives no whole layers, by those
/// that have a member in each instance.
fn attempt(nodes: &Nodes<'_>, chains: &Chains, range: Range) -> Result<Attempt, (Refusal, usize)> {
    let is_whole = |a: &Result<Attempt, _>| matches!(a, Ok((_, s, _)) if s.lost.is_none());
    let first = cut_up(nodes, &chains.fitted(nodes, range), range);
    if is_whole(&first) {
        return first;
    }
    let Some(anew) = chains.lined_up_for(nodes, range) else { return first };
    let second = cut_up(nodes, &anew, range);
    if is_whole(&second) || first.is_err() && second.is_ok() { second } else { first }
}

/// Cuts lined up chains over a range into segments, at the best place, and orders them.
fn cut_up(nodes: &Nodes<'_>, chains: &Chains, range: Range) -> Result<Attempt, (Refusal, usize)> {
    let mut candidate = Candidate::new(nodes, chains, range);
    let size = |c: &Candidate<'_, '_>| c.chosen().count() * range.instances();
    let covered = size(&candidate);
    let plain = segments(&mut candidate).map_err(|r| (r, covered))?;
    let moves = cut::moves(&candidate, &plain);
    if !moves.is_empty() {
        let moved = cut::moved(chains, &moves);
        let mut better = Candidate::new(nodes, &moved, range);
        if let Ok(s) = segments(&mut better)
            && size(&better) >= size(&candidate)
            && let Ok((s, o)) = ordered(&better, s)
        {
            return Ok((moved, s, o));
        }
    }
    let (s, o) = ordered(&candidate, plain).map_err(|r| (r, covered))?;
    Ok((chains.clone(), s, o))
}

/// Leaves scalars that form a segment of their own to the entry, and orders the rest.
fn ordered(candidate: &Candidate<'_, '_>, mut s: Segments) -> Result<(Segments, Order), Refusal> {
    let (nodes, low) = (candidate.nodes, candidate.range.low);
    s.recurrent.retain(|&rank, _| {
        candidate
            .chosen()
            .filter(|&c| s.rank[c as usize] == Some(rank))
            .any(|c| !nodes.scalar[candidate.chains.member(c, low) as usize])
    });
    for r in &mut s.rank {
        *r = r.filter(|r| s.recurrent.contains_key(r));
    }
    if !s.recurrent.values().any(|&r| r) {
        return Err(Refusal::NoRecurrence);
    }
    let order = order(&candidate.restricted(&s.rank), &s.rank)?;
    Ok((s, order))
}

/// The period of tables that differ from instance to instance: if every second layer uses one mask and the others
/// another, it takes two layers to say which mask a layer has. Weights do not count, nor what depends on them.
fn period(nodes: &Nodes<'_>, found: &Found) -> usize {
    let candidate = Candidate::new(nodes, &found.chains, found.range).restricted(&found.rank);
    // Values that depend on no parameter of the entry but integers: what a mask may be made of.
    let mut table = vec![false; nodes.len()];
    for node in nodes.in_order() {
        table[node as usize] = match nodes.op(node) {
            Some(_) => nodes.operands(node).iter().all(|v| table[v.producer as usize]),
            None => !nodes.graph.ty(nodes.results(node)[0]).dtype.is_float(),
        };
    }
    let mut period = 1;
    for c in candidate.chosen() {
        for j in 0..found.chains.links.count(c) {
            if candidate.relation(c, j) != Relation::Outside {
                continue;
            }
            let numbers: Vec<u32> = (found.range.low..=found.range.high)
                .map(|i| nodes.operands(candidate.chains.member(c, i))[j])
                .filter(|v| table[v.producer as usize])
                .map(|v| v.number)
                .collect();
            if numbers.len() < found.range.instances() || numbers.windows(2).all(|w| w[0] == w[1]) {
                continue;
            }
            let repeats = |p: &usize| numbers.iter().zip(&numbers[*p..]).all(|(a, b)| a == b);
            if let Some(p) = (2..=LONGEST_PERIOD.min(numbers.len() / 2)).find(repeats) {
                period = period.max(p);
            }
        }
    }
    period
}
