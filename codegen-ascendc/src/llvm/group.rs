//! Which steps share one loop over the elements of a tile.
//!
//! A group is a run of steps of the same main shape (the destination's, or a reduction's source's). Within
//! it, a tile that one step writes and another reads stays in registers, and it is written to memory only
//! if something behind the group reads it.

use std::collections::BTreeSet;

use crate::tile::{BufferId, Kernel, Loop, ParamId, Step, View};

/// A part of a list of steps.
pub(super) enum Part<'k> {
    /// Steps over one main shape, which run element by element together.
    Group(Group<'k>),
    /// A loop.
    Loop(&'k Loop),
    /// A matrix step.
    Matmul(&'k Step),
}

/// See [the module](self).
pub(super) struct Group<'k> {
    /// Main shape, `[rows, cols]`.
    pub shape: [i64; 2],
    /// The steps, in order.
    pub steps: Vec<&'k Step>,
    /// Tiles of the main shape that the group writes and something behind it reads.
    pub live_out: BTreeSet<BufferId>,
}

/// Cuts the steps of a loop's body, or of the kernel, into parts. `behind` are the tiles that are read
/// after the last step: for a loop's body, what the loop carries.
pub(super) fn parts<'k>(kernel: &Kernel, steps: &'k [Step], behind: &BTreeSet<BufferId>) -> Vec<Part<'k>> {
    let live = live_after(steps, behind);
    let mut parts = Vec::new();
    let mut open: Option<(Group<'k>, Hazards<'k>)> = None;
    for (n, step) in steps.iter().enumerate() {
        let Some(shape) = main_shape(kernel, step) else {
            parts.extend(open.take().map(|(g, _)| Part::Group(g)));
            parts.push(match step {
                Step::For(l) => Part::Loop(l),
                other => Part::Matmul(other),
            });
            continue;
        };
        if let Some((group, hazards)) = &open
            && (group.shape != shape || hazards.forbid(step))
        {
            parts.extend(open.take().map(|(g, _)| Part::Group(g)));
        }
        let (group, hazards) = open.get_or_insert_with(|| {
            (Group { shape, steps: Vec::new(), live_out: BTreeSet::new() }, Hazards::default())
        });
        hazards.add(step);
        group.steps.push(step);
        group.live_out = hazards.written.intersection(&live[n]).copied().collect();
    }
    parts.extend(open.take().map(|(g, _)| Part::Group(g)));
    parts
}

fn main_shape(kernel: &Kernel, step: &Step) -> Option<[i64; 2]> {
    match step {
        Step::For(_) | Step::Matmul { .. } => None,
        Step::Reduce { src, .. } | Step::Store { src, .. } => Some(kernel.buffer(*src).shape()),
        other => other.writes().map(|id| kernel.buffer(id).shape()),
    }
}

/// For every step, the tiles that may be read after it.
fn live_after(steps: &[Step], behind: &BTreeSet<BufferId>) -> Vec<BTreeSet<BufferId>> {
    let mut live = behind.clone();
    let mut after = Vec::with_capacity(steps.len());
    for step in steps.iter().rev() {
        after.push(live.clone());
        if let Some(id) = step.writes() {
            live.remove(&id);
        }
        live.extend(step.reads());
        if let Step::For(l) = step {
            read_in(&l.body, &mut live);
        }
    }
    after.reverse();
    after
}

fn read_in(steps: &[Step], live: &mut BTreeSet<BufferId>) {
    for step in steps {
        live.extend(step.reads());
        if let Step::For(l) = step {
            live.extend(&l.carries);
            read_in(&l.body, live);
        }
    }
}

/// What the steps of a group do that keeps later steps out of it.
#[derive(Default)]
struct Hazards<'k> {
    /// Tiles read by any step.
    read: BTreeSet<BufferId>,
    /// Tiles written element by element.
    written: BTreeSet<BufferId>,
    /// Results of reductions: complete only behind the loop.
    reduced: BTreeSet<BufferId>,
    loaded: Vec<&'k View>,
    stored: BTreeSet<ParamId>,
}

impl<'k> Hazards<'k> {
    fn add(&mut self, step: &'k Step) {
        self.read.extend(step.reads());
        match step {
            Step::Reduce { dst, .. } => {
                self.reduced.insert(*dst);
            }
            Step::Store { to, .. } => {
                self.stored.insert(to.param);
            }
            other => self.written.extend(other.writes()),
        }
        if let Step::Load { from, .. } = step {
            self.loaded.push(from);
        }
    }

    fn forbid(&self, step: &Step) -> bool {
        if step.reads().iter().chain(&step.writes()).any(|id| self.reduced.contains(id)) {
            return true;
        }
        match step {
            Step::Reduce { dst, .. } => self.read.contains(dst) || self.written.contains(dst),
            Step::Load { from, .. } => self.stored.contains(&from.param),
            // Element by element, a load of the very same region still comes before the store.
            Step::Store { to, .. } => {
                self.stored.contains(&to.param)
                    || self.loaded.iter().any(|from| from.param == to.param && *from != to)
            }
            // An elementwise step writes a tile of the main shape, which no step reads as a repeated row
            // or column: each element is read and written in the same place.
            _ => false,
        }
    }
}
