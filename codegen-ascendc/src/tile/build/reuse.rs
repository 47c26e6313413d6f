//! Buffer reuse: tiles of the same shape and type whose lives do not meet become one buffer.

use std::collections::BTreeMap;

use crate::tile::{Buffer, BufferId, Kernel, Loop, Operand, ParamId, Step};

/// Which buffers may be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Only tiles of pure computation, and tiles that move the same tensor. Transfers of different
    /// tensors stay apart, so that a back end can overlap them with computation without false
    /// dependencies.
    Apart,
    /// All tiles.
    All,
}

/// Merges buffers. The kernel computes the same; its on-chip size shrinks. A buffer that serves several
/// values is renamed `t0, t1, …`.
pub(super) fn reuse_buffers(kernel: &mut Kernel, sharing: Sharing) {
    let mut scan = Scan::default();
    scan.steps(&kernel.body, &mut Vec::new());
    let lives = scan.lives(kernel.buffers.len());
    let apart = match sharing {
        Sharing::Apart => moved(kernel),
        Sharing::All => BTreeMap::new(),
    };
    let (map, buffers) = assign(kernel, &lives, &scan.elementwise, &apart);
    for step in &mut kernel.body {
        rename(step, &map);
    }
    kernel.buffers = buffers;
}

/// The buffers that some step loads or stores, with the tensor moved.
pub(super) fn moved(kernel: &Kernel) -> BTreeMap<BufferId, ParamId> {
    let mut moved = BTreeMap::new();
    kernel.walk(&mut |step| match step {
        Step::Load { dst: tile, from: view, .. } | Step::Store { src: tile, to: view } => {
            moved.entry(*tile).or_insert(view.param);
        }
        _ => {}
    });
    moved
}

/// First and last position of a value's life, both included.
type Life = (usize, usize);

/// Positions number the steps in text order; a loop takes one position where it starts and one where it
/// ends.
#[derive(Default)]
struct Scan {
    position: usize,
    /// For every position, whether the step there may write over an operand that dies there.
    elementwise: Vec<bool>,
    /// Per access: the buffer, its position, and the loops around it as (start, end), outermost first.
    accesses: Vec<(BufferId, usize, Vec<usize>)>,
    /// Loop starts to loop ends.
    ends: BTreeMap<usize, usize>,
}

impl Scan {
    fn steps(&mut self, steps: &[Step], around: &mut Vec<usize>) {
        for step in steps {
            let at =
                self.next(matches!(step, Step::Unary { .. } | Step::Binary { .. } | Step::Select { .. }));
            for id in step.reads().into_iter().chain(step.writes()) {
                self.accesses.push((id, at, around.clone()));
            }
            if let Step::For(Loop { body, .. }) = step {
                around.push(at);
                self.steps(body, around);
                around.pop();
                let end = self.next(false);
                self.ends.insert(at, end);
            }
        }
    }

    fn next(&mut self, elementwise: bool) -> usize {
        self.elementwise.push(elementwise);
        self.position += 1;
        self.position - 1
    }

    /// The lives of all buffers. A value that is made outside a loop and touched inside it lives through
    /// the whole loop.
    fn lives(&self, count: usize) -> Vec<Option<Life>> {
        let mut common: Vec<Option<Vec<usize>>> = vec![None; count];
        for (id, _, around) in &self.accesses {
            let slot = &mut common[id.0 as usize];
            match slot {
                None => *slot = Some(around.clone()),
                Some(path) => {
                    let same = path.iter().zip(around).take_while(|(a, b)| a == b).count();
                    path.truncate(same);
                }
            }
        }
        let mut lives: Vec<Option<Life>> = vec![None; count];
        for (id, at, around) in &self.accesses {
            let home = common[id.0 as usize].as_ref().map_or(0, Vec::len);
            let (first, last) = match around.get(home) {
                Some(start) => (*start, self.ends.get(start).copied().unwrap_or(*at)),
                None => (*at, *at),
            };
            let life = lives[id.0 as usize].get_or_insert((first, last));
            *life = (life.0.min(first), life.1.max(last));
        }
        lives
    }
}

/// Deals the values, in order of their beginnings, to the first fitting buffer that is free.
fn assign(
    kernel: &Kernel,
    lives: &[Option<Life>],
    elementwise: &[bool],
    apart: &BTreeMap<BufferId, ParamId>,
) -> (BTreeMap<BufferId, BufferId>, Vec<Buffer>) {
    let mut order: Vec<(Life, usize)> =
        lives.iter().enumerate().filter_map(|(n, life)| life.map(|l| (l, n))).collect();
    order.sort_unstable();
    let mut map = BTreeMap::new();
    let mut buffers: Vec<Merged> = Vec::new();
    for ((first, last), n) in order {
        let old = &kernel.buffers[n];
        let moves = apart.get(&id(n)).copied();
        let free = buffers.iter().position(|m| {
            let b = &m.buffer;
            let fits = b.shape() == old.shape() && b.dtype == old.dtype && b.space == old.space;
            let over = m.until < first || (m.until == first && elementwise[first]);
            fits && over && m.moves == moves
        });
        let slot = free.unwrap_or(buffers.len());
        match buffers.get_mut(slot) {
            Some(merged) => (merged.until, merged.shared) = (last, true),
            None => buffers.push(Merged { buffer: old.clone(), until: last, moves, shared: false }),
        }
        map.insert(id(n), id(slot));
    }
    let mut shared = 0;
    let mut named = Vec::new();
    for mut m in buffers {
        if m.shared && m.moves.is_none() {
            while kernel.buffers.iter().any(|b| b.name == format!("t{shared}")) {
                shared += 1;
            }
            m.buffer.name = format!("t{shared}");
            shared += 1;
        }
        named.push(m.buffer);
    }
    (map, named)
}

/// A buffer that several values may share.
struct Merged {
    buffer: Buffer,
    /// Where the life of its last value ends.
    until: usize,
    /// The one tensor it moves, if tensors are kept apart.
    moves: Option<ParamId>,
    shared: bool,
}

fn id(n: usize) -> BufferId {
    BufferId(u32::try_from(n).unwrap_or(u32::MAX))
}

fn rename(step: &mut Step, map: &BTreeMap<BufferId, BufferId>) {
    let to = |id: &mut BufferId| *id = map.get(id).copied().unwrap_or(*id);
    let operand = |o: &mut Operand| {
        if let Operand::Tile(id) = o {
            *id = map.get(id).copied().unwrap_or(*id);
        }
    };
    match step {
        Step::Load { dst, .. } | Step::Fill { dst, .. } | Step::Index { dst, .. } => to(dst),
        Step::Store { src, .. } => to(src),
        Step::Unary { dst, src, .. } => {
            to(dst);
            operand(src);
        }
        Step::Binary { dst, a, b, .. } => {
            to(dst);
            operand(a);
            operand(b);
        }
        Step::Select { dst, a, b, on_true, on_false, .. } => {
            to(dst);
            [a, b, on_true, on_false].into_iter().for_each(operand);
        }
        Step::Convert { dst, src } | Step::Copy { dst, src } | Step::Reduce { dst, src, .. } => {
            to(dst);
            to(src);
        }
        Step::Matmul { dst, a, b, .. } => [dst, a, b].into_iter().for_each(to),
        Step::For(l) => {
            l.carries.iter_mut().for_each(to);
            l.body.iter_mut().for_each(|inner| rename(inner, map));
        }
    }
}
