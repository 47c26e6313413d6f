//! Orbits of the correspondence, and which instance each of their members belongs to.

use super::grow::Shift;
use super::links::Links;
use super::nodes::{NONE, Nodes};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Ranges of instances that are tried, best covered first.
const RANGES: usize = 6;

/// The nodes that stand for each other, one chain each, ordered from one instance to the next.
#[derive(Clone)]
pub(super) struct Chains {
    /// Members of each chain.
    pub members: Rc<[Vec<u32>]>,
    /// For each node its chain.
    pub of: Rc<[u32]>,
    /// For each node its place in the chain.
    pub place: Rc<[u32]>,
    /// What their operands are.
    pub links: Rc<Links>,
    /// For each chain the instance of its first member. Instances are counted from the first member of the anchor's
    /// chain, so some may be negative.
    pub first: Vec<i32>,
    neighbours: Rc<[Vec<Edge>]>,
}

/// A node's place in a template: which chain, which instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub chain: u32,
    pub instance: i32,
}

/// Instances `low..=high`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Range {
    pub low: i32,
    pub high: i32,
}

impl Range {
    pub fn instances(self) -> usize {
        (self.high - self.low + 1) as usize
    }

    /// The range less its last instance, its first one, and both, if two instances are left.
    pub fn without_ends(self) -> impl Iterator<Item = Range> {
        let cuts = [(0, 1), (1, 0), (1, 1)];
        let shorter = cuts.map(|(low, high)| Range { low: self.low + low, high: self.high - high });
        shorter.into_iter().filter(|r| r.high > r.low)
    }

    pub fn holds(self, instance: i32) -> bool {
        (self.low..=self.high).contains(&instance)
    }
}

impl Chains {
    /// Takes a correspondence apart into chains and lines them up with the chain of `anchor`.
    pub fn new(nodes: &Nodes<'_>, shift: &Shift, anchor: u32) -> Chains {
        let n = nodes.len();
        let (mut members, mut of, mut place) = (Vec::new(), vec![NONE; n], vec![0; n]);
        for head in nodes.in_order().filter(|&h| shift.previous[h as usize] == NONE) {
            if shift.next[head as usize] == NONE {
                continue;
            }
            let mut chain = Vec::new();
            let mut at = head;
            while at != NONE {
                of[at as usize] = members.len() as u32;
                place[at as usize] = chain.len() as u32;
                chain.push(at);
                at = shift.next[at as usize];
            }
            members.push(chain);
        }
        let links = Rc::new(Links::new(nodes, &members, &of, &place));
        let neighbours = neighbours(nodes, &members, &of, &place).into();
        let mut out = Chains {
            members: members.into(),
            of: of.into(),
            place: place.into(),
            links,
            first: Vec::new(),
            neighbours,
        };
        let anchor = out.of[anchor as usize];
        if anchor == NONE {
            out.first = vec![0; out.members.len()];
        } else {
            out.line_up(nodes, anchor);
        }
        out
    }

    /// The slot of a node that is in a chain.
    pub fn slot(&self, node: u32) -> Option<Slot> {
        let chain = self.of[node as usize];
        (chain != NONE)
            .then(|| Slot { chain, instance: self.first[chain as usize] + self.place[node as usize] as i32 })
    }

    /// The instances a chain has members in.
    pub fn range(&self, chain: u32) -> Range {
        let low = self.first[chain as usize];
        Range { low, high: low + self.members[chain as usize].len() as i32 - 1 }
    }

    /// The member of a chain in an instance that it covers.
    pub fn member(&self, chain: u32, instance: i32) -> u32 {
        self.members[chain as usize][(instance - self.first[chain as usize]) as usize]
    }

    fn is_op(&self, nodes: &Nodes<'_>, chain: usize) -> bool {
        nodes.is_op(self.members[chain][0])
    }

    /// Whether later members come later in the order (forward) or earlier (backward).
    pub fn ascends(&self, nodes: &Nodes<'_>, chain: u32) -> bool {
        let m = &self.members[chain as usize];
        nodes.position[m[0] as usize] < nodes.position[m[m.len() - 1] as usize]
    }

    /// The anchor's chain starts at instance 0. The others are placed one after another, always the one with most
    /// edges to those already placed, so that edges stay within an instance or go to the next one executed.
    fn line_up(&mut self, nodes: &Nodes<'_>, anchor: u32) {
        let mut placed = vec![None; self.members.len()];
        placed[anchor as usize] = Some(0);
        self.line_up_from(nodes, placed, |_| false);
    }

    /// The chains lined up once more, by those that have just as many members as the range has instances; `None` if
    /// they start with it already, or fewer edges stay within an instance then.
    ///
    /// Where what comes before the first layer looks like the end of one (two sums of embeddings like two residual
    /// adds) an anchor alone may put the halves of a layer into different instances.
    pub fn lined_up_for(&self, nodes: &Nodes<'_>, range: Range) -> Option<Chains> {
        let n = range.instances();
        let exact = |c: &usize| self.members[*c].len() == n;
        if (0..self.members.len()).filter(exact).all(|c| self.first[c] == range.low) {
            return None;
        }
        // Parameters come from outside, in whatever instance: they follow the ops.
        let late = |c: usize| !self.is_op(nodes, c);
        let placed = (0..self.members.len()).map(|c| (exact(&c) && !late(c)).then_some(range.low)).collect();
        let mut out = self.clone();
        out.line_up_from(nodes, placed, late);
        // Backward chains that lack the first layer are not those of the layer before.
        let all = |_| true;
        (out.within(&all) >= self.within(&all)).then_some(out)
    }

    /// Places the chains that have no place yet and an edge to those that have; those that are `late` last.
    fn line_up_from(
        &mut self,
        nodes: &Nodes<'_>,
        mut placed: Vec<Option<i32>>,
        late: impl Fn(usize) -> bool,
    ) {
        let mut edges = vec![0u32; placed.len()];
        let key = |chain: u32, edges: u32| (late(chain as usize), Reverse(edges), chain);
        let start: Vec<u32> = (0..placed.len() as u32).filter(|&c| placed[c as usize].is_some()).collect();
        for e in start.iter().flat_map(|&c| &self.neighbours[c as usize]) {
            edges[e.other as usize] += 1;
        }
        let reached = |c: &u32| placed[*c as usize].is_none() && edges[*c as usize] > 0;
        let reached = (0..placed.len() as u32).filter(reached);
        let mut queue: BTreeSet<_> = reached.map(|c| key(c, edges[c as usize])).collect();
        while let Some((.., chain)) = queue.pop_first() {
            placed[chain as usize] = Some(self.best_first(nodes, chain, &placed));
            for e in &self.neighbours[chain as usize] {
                if placed[e.other as usize].is_none() {
                    let n = &mut edges[e.other as usize];
                    queue.remove(&key(e.other, *n));
                    *n += 1;
                    queue.insert(key(e.other, *n));
                }
            }
        }
        self.first = placed.into_iter().map(|p| p.unwrap_or(0)).collect();
    }

    /// Where a chain starts, judged by the edges to chains already placed.
    fn best_first(&self, nodes: &Nodes<'_>, chain: u32, placed: &[Option<i32>]) -> i32 {
        let edges = &self.neighbours[chain as usize];
        let beside = |first: i32| edges.iter().filter(|e| placed[e.other as usize] == Some(first)).count();
        self.votes(nodes, chain, placed)
            .into_iter()
            // Among equals as most neighbours start: what begins in one layer begins together.
            .max_by_key(|&(first, (allow, want))| (allow, beside(first), want, -first.abs(), first))
            .map_or(0, |(first, _)| first)
    }

    /// For each start of a chain how many edges to placed chains allow it, and how many of them stay within an
    /// instance then.
    fn votes(&self, nodes: &Nodes<'_>, chain: u32, placed: &[Option<i32>]) -> BTreeMap<i32, (usize, usize)> {
        let up = self.ascends(nodes, chain);
        let mut votes: BTreeMap<i32, (usize, usize)> = BTreeMap::new();
        for e in &self.neighbours[chain as usize] {
            let Some(other) = placed[e.other as usize] else { continue };
            let within = other + e.other_place - e.place;
            let v = votes.entry(within).or_default();
            v.0 += 1;
            v.1 += 1;
            let ops = self.is_op(nodes, e.other as usize) && self.is_op(nodes, chain as usize);
            if ops && self.ascends(nodes, e.other) == up {
                // Or it crosses to the instance executed next: the user is one further in that direction.
                let step = if up == e.other_uses { -1 } else { 1 };
                votes.entry(within + step).or_default().0 += 1;
            } else if ops {
                // Backward uses what forward saved, its own layer's or the one that its neighbour handed on.
                votes.entry(within - 1).or_default().0 += 1;
                votes.entry(within + 1).or_default().0 += 1;
            }
        }
        votes
    }

    /// The chains lined up for a range: those that have just as many members as it has instances start with it, if an
    /// edge allows that; and longer ones that miss one end of it by one are moved by one, if they are more with what
    /// they belong to then.
    pub fn fitted(&self, nodes: &Nodes<'_>, range: Range) -> Chains {
        let (low, n) = (range.low, range.instances());
        let exact = |c: usize| (self.members[c].len() == n && self.first[c] != low).then_some(low);
        let out = self.moved_to(nodes, &exact);
        let longer = |c: usize| {
            let own = out.range(c as u32);
            let by = match own {
                _ if own.instances() <= n => return None,
                _ if own.high == range.high - 1 => 1,
                _ if own.low == low + 1 => -1,
                _ => return None,
            };
            Some(own.low + by)
        };
        out.moved_to(nodes, &longer)
    }

    /// The chains with those that `to` gives a start moved there, together, if no fewer of their edges stay within an
    /// instance; but for those that no edge allows it.
    fn moved_to(&self, nodes: &Nodes<'_>, to: &dyn Fn(usize) -> Option<i32>) -> Chains {
        let moved: Vec<(usize, i32)> =
            (0..self.members.len()).filter_map(|c| to(c).map(|first| (c, first))).collect();
        let mut out = self.clone();
        for &(c, first) in &moved {
            out.first[c] = first;
        }
        // Backward chains that lack the first layer are not those of the layer before.
        let some = |c: usize| to(c).is_some();
        if out.within(&some) < self.within(&some) {
            return self.clone();
        }
        let placed: Vec<Option<i32>> = out.first.iter().copied().map(Some).collect();
        for (c, first) in moved {
            if !self.votes(nodes, c as u32, &placed).contains_key(&first) {
                out.first[c] = self.first[c];
            }
        }
        out
    }

    /// Edges of some chains that stay within an instance.
    fn within(&self, some: &dyn Fn(usize) -> bool) -> usize {
        let edges = (0..self.members.len()).filter(|&c| some(c)).flat_map(|c| {
            self.neighbours[c].iter().map(move |e| (self.first[c] + e.place, e.other, e.other_place))
        });
        edges.filter(|&(i, other, place)| i == self.first[other as usize] + place).count()
    }

    /// Ranges of at least two instances that many chains cover, and how many ops that are; best first.
    pub fn ranges(&self, nodes: &Nodes<'_>) -> Vec<(usize, Range)> {
        let mut counts: BTreeMap<Range, usize> = BTreeMap::new();
        for c in (0..self.members.len()).filter(|&c| self.is_op(nodes, c)) {
            *counts.entry(self.range(c as u32)).or_default() += 1;
        }
        // Ends that few chains have are not where layers begin or end.
        let mut common: Vec<(usize, Range)> = counts.iter().map(|(&r, &n)| (n, r)).collect();
        common.sort_unstable_by(|a, b| b.cmp(a));
        common.truncate(8);
        let lows: BTreeSet<i32> = common.iter().map(|(_, r)| r.low).collect();
        let highs: BTreeSet<i32> = common.iter().map(|(_, r)| r.high).collect();
        let mut scored = Vec::new();
        for &low in &lows {
            for &high in highs.iter().filter(|&&h| h > low) {
                let range = Range { low, high };
                let chains: usize =
                    counts.iter().filter(|(r, _)| r.low <= low && r.high >= high).map(|(_, n)| n).sum();
                scored.push((chains * range.instances(), range));
            }
        }
        scored.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        scored.truncate(RANGES);
        scored
    }
}

/// The edges of each chain with others.
fn neighbours(nodes: &Nodes<'_>, chains: &[Vec<u32>], of: &[u32], place: &[u32]) -> Vec<Vec<Edge>> {
    let mut out: Vec<Vec<Edge>> = vec![Vec::new(); chains.len()];
    for (c, members) in chains.iter().enumerate() {
        // Edges of one chain repeat from member to member; the ends show what differs there.
        let last = members.len() - 1;
        let ends = [0, 1, last];
        for &at in &ends[..if last == 1 { 2 } else { 3 }] {
            for v in nodes.operands(members[at]) {
                let other = of[v.producer as usize];
                if other == NONE || other as usize == c {
                    continue;
                }
                let (place, other_place) = (at as i32, place[v.producer as usize] as i32);
                out[c].push(Edge { other, place, other_place, other_uses: false });
                out[other as usize].push(Edge {
                    other: c as u32,
                    place: other_place,
                    other_place: place,
                    other_uses: true,
                });
            }
        }
    }
    out
}

/// An edge between two chains, seen from one of them.
#[derive(Clone, Copy)]
struct Edge {
    other: u32,
    /// The place of this chain's member on the edge, and of the other's.
    place: i32,
    other_place: i32,
    /// Whether the other chain's member is the user.
    other_uses: bool,
}
