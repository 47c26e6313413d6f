//! From one pair of ops to the whole correspondence "this op in one layer is that op in the next".
//!
//! The correspondence grows along operands (an operand of a pair is a pair) and along users (users of a pair that
//! are the only ones of their kind are a pair). Because layers are chained it runs through all of them, from
//! forward into backward through saved values, and into the optimizer through the weights. It needs no particular
//! order of the ops. Scalars come last: norms, losses and counters are where layers meet.

use super::nodes::{LEAF, NONE, Nodes};
use msc_ir::{Use, ValueId};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The correspondence: partial, injective, equal labels only.
#[derive(Clone)]
pub(super) struct Shift {
    /// For each node its counterpart one instance later.
    pub next: Vec<u32>,
    /// The inverse.
    pub previous: Vec<u32>,
    /// Where it stopped.
    pub stops: Vec<Stop>,
}

impl Shift {
    /// The correspondence with the layer before.
    pub fn reversed(&self) -> Shift {
        let swap =
            |s: &Stop| Stop { users: (s.users.1, s.users.0), producers: (s.producers.1, s.producers.0) };
        Shift {
            next: self.previous.clone(),
            previous: self.next.clone(),
            stops: self.stops.iter().map(swap).collect(),
        }
    }
}

/// A place where two layers differ: operand `operand` of the pair `users` comes from `producers`, which are not
/// a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    pub users: (u32, u32),
    pub producers: (u32, u32),
}

enum Task {
    /// Two nodes that should be a pair.
    Pair(u32, u32),
    /// Two values whose users should be matched.
    Users(ValueId, ValueId),
    /// The same where more than one user is of a kind.
    Ambiguous(ValueId, ValueId),
}

/// Grows the correspondence from the pair `(a, b)`.
pub(super) fn grow(nodes: &Nodes<'_>, colours: &[u64], a: u32, b: u32) -> Shift {
    let n = nodes.len();
    let shift = Shift { next: vec![NONE; n], previous: vec![NONE; n], stops: Vec::new() };
    let mut g = Growth { nodes, colours, shift, paths: (0..n as u32).collect(), queues: Default::default() };
    g.push(Task::Pair(a, b));
    while let Some(task) = g.queues.iter_mut().find_map(VecDeque::pop_front) {
        match task {
            Task::Pair(a, b) => g.pair(a, b),
            Task::Users(v, w) => g.users(v, w, false),
            Task::Ambiguous(v, w) => g.users(v, w, true),
        }
    }
    g.shift
}

struct Growth<'a, 'g> {
    nodes: &'a Nodes<'g>,
    colours: &'a [u64],
    shift: Shift,
    /// Union–find over the paths built so far.
    paths: Vec<u32>,
    /// Most certain first: pairs, users; the same for scalars; ambiguous users.
    queues: [VecDeque<Task>; 5],
}

impl Growth<'_, '_> {
    fn push(&mut self, task: Task) {
        let scalar = |v: &ValueId| self.nodes.graph.ty(*v).elements() <= 1;
        let level = match &task {
            Task::Pair(a, _) => 2 * usize::from(self.nodes.scalar[*a as usize]),
            Task::Users(v, _) => 1 + 2 * usize::from(scalar(v)),
            Task::Ambiguous(..) => 4,
        };
        self.queues[level].push_back(task);
    }

    fn pair(&mut self, a: u32, b: u32) {
        let nodes = self.nodes;
        let (i, j) = (a as usize, b as usize);
        let free = a != b && self.shift.next[i] == NONE && self.shift.previous[j] == NONE;
        let alike = nodes.label[i] == nodes.label[j] && nodes.label[i] != LEAF;
        if !free || !alike || !self.supported(a, b) || !self.of_one_tensor(a, b) {
            return;
        }
        // Instances follow each other in a line, not in a circle.
        let (from, to) = (self.path(a), self.path(b));
        if from == to {
            return;
        }
        self.paths[from as usize] = to;
        self.shift.next[i] = b;
        self.shift.previous[j] = a;
        for (v, w) in nodes.operands(a).iter().zip(nodes.operands(b)) {
            if v.number == w.number {
                continue;
            }
            let (d, e) = (v.producer, w.producer);
            if v.result == w.result && nodes.label[d as usize] == nodes.label[e as usize] {
                if self.shift.next[d as usize] != e {
                    self.push(Task::Pair(d, e));
                }
            } else {
                self.shift.stops.push(Stop { users: (a, b), producers: (d, e) });
            }
        }
        for (&v, &w) in nodes.results(a).iter().zip(nodes.results(b)) {
            self.push(Task::Users(v, w));
        }
    }

    /// Where layers meet in a sum over all tensors, what comes before the first layer stands where the last part of a
    /// layer does, and the norms of two weights of one shape stand beside each other: norms are a pair because their
    /// tensors are, and not the other way round.
    fn of_one_tensor(&self, a: u32, b: u32) -> bool {
        let nodes = self.nodes;
        let is_float = |&r: &ValueId| nodes.graph.ty(r).dtype.is_float();
        if !nodes.scalar[a as usize] || !nodes.results(a).iter().all(is_float) {
            return true;
        }
        let mut operands =
            nodes.operands(a).iter().zip(nodes.operands(b)).filter(|(v, w)| v.number != w.number);
        operands.all(|(v, w)| {
            nodes.scalar[v.producer as usize] || self.shift.next[v.producer as usize] == w.producer
        })
    }

    /// Whether no more operands speak against a pair than for it.
    fn supported(&self, a: u32, b: u32) -> bool {
        let mut balance = 0;
        for (v, w) in self.nodes.operands(a).iter().zip(self.nodes.operands(b)) {
            let (d, e) = (v.producer, w.producer);
            let (next, previous) = (self.shift.next[d as usize], self.shift.previous[e as usize]);
            if next == e {
                balance += 1;
            } else if next != NONE || previous != NONE {
                balance -= 1;
            }
        }
        balance >= 0
    }

    /// Matches the users of two values by kind (label and operand position). Only users that are alone in their
    /// kind are certain; the others wait until everything certain is known, then those not yet matched are paired
    /// in order.
    fn users(&mut self, v: ValueId, w: ValueId, ambiguous: bool) {
        let nodes = self.nodes;
        if let ([a], [b]) = (&nodes.graph.value(v).uses[..], &nodes.graph.value(w).uses[..]) {
            // The usual case.
            let label = |u: &Use| nodes.label[u.op.0 as usize];
            if label(a) == label(b)
                && label(a) != LEAF
                && a.index == b.index
                && self.shift.next[a.op.0 as usize] != b.op.0
            {
                self.push(Task::Pair(a.op.0, b.op.0));
            }
            return;
        }
        // Kind and op of each use, those of a kind after each other.
        let kinds = |value: ValueId| -> SmallVec<[((u32, u32), u32); 8]> {
            let uses = nodes.graph.value(value).uses.iter();
            let mut all: SmallVec<[((u32, u32), u32); 8]> = uses
                .map(|u| ((nodes.label[u.op.0 as usize], u.index), u.op.0))
                .filter(|((label, _), _)| *label != LEAF)
                .collect();
            all.sort_by_key(|(kind, _)| *kind);
            all
        };
        let (all_left, all_right) = (kinds(v), kinds(w));
        let (mut rest_left, mut rest_right) = (&all_left[..], &all_right[..]);
        let mut later = false;
        while let Some(kind) = [rest_left, rest_right].iter().filter_map(|r| Some(r.first()?.0)).min() {
            let take = |rest: &mut &[((u32, u32), u32)]| -> SmallVec<[u32; 4]> {
                let (these, others) = rest.split_at(rest.partition_point(|(k, _)| *k == kind));
                *rest = others;
                these.iter().map(|(_, op)| *op).collect()
            };
            let (mut left, mut right) = (take(&mut rest_left), take(&mut rest_right));
            if let ([a], [b]) = (left.as_slice(), right.as_slice()) {
                if !ambiguous {
                    self.push(Task::Pair(*a, *b));
                }
                continue;
            }
            if !ambiguous {
                later |= !left.is_empty() && !right.is_empty();
                continue;
            }
            left.retain(|n| self.shift.next[*n as usize] == NONE);
            right.retain(|n| self.shift.previous[*n as usize] == NONE);
            if left.len() != right.len() {
                continue;
            }
            // By colour if the colours agree, else by place.
            let colour = |n: &u32| self.colours[*n as usize];
            let place = |n: &u32| nodes.position[*n as usize];
            left.sort_unstable_by_key(|n| (colour(n), place(n)));
            right.sort_unstable_by_key(|n| (colour(n), place(n)));
            if !left.iter().map(colour).eq(right.iter().map(colour)) {
                left.sort_unstable_by_key(place);
                right.sort_unstable_by_key(place);
            }
            left.into_iter().zip(right).for_each(|(a, b)| self.push(Task::Pair(a, b)));
        }
        if later {
            self.push(Task::Ambiguous(v, w));
        }
    }

    /// The end of the path that a node is on; halves the way for the next time.
    fn path(&mut self, mut n: u32) -> u32 {
        while self.paths[n as usize] != n {
            let up = self.paths[self.paths[n as usize] as usize];
            self.paths[n as usize] = up;
            n = up;
        }
        n
    }
}
