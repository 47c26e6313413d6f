//! The check of all rank classes' programs together: every rank runs exactly one program, ranks that meet in
//! a communication are in the same one, and no wait-for cycle runs through ranks and streams.
//!
//! Nothing in a program depends on data, each stream is sequential, and messages and collectives of a group
//! are matched in order. All executions therefore get equally far, and one dry run decides: if it gets to the
//! end, every execution does. Sends wait for their receives here (rendezvous), so that no plan relies on a
//! transport's buffering.
//!
//! Ranks of one class that differ only along axes that no class fixes behave alike. The dry run keeps one
//! *cell* for all of them, so its cost depends on the number of classes and not of ranks.

use super::check::{MAX_RANKS, ProgramError};
use super::{Action, CommunicatorId, Program};
use crate::module::{AxisId, Mesh};
use crate::op::Operation;
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, ProgramError>;

/// Checks the programs of all rank classes together. Each must have passed [`super::check::check`].
///
/// # Errors
/// [`ProgramError::Coverage`], [`ProgramError::Mismatch`], [`ProgramError::Deadlock`].
pub fn agree(programs: &[Program]) -> Result<()> {
    coverage(programs)?;
    let cells = cells(programs)?;
    DryRun::new(programs, &cells).run()
}

/// Which communicator of the same axes this is, in list order: the `n`-th of one rank and the `n`-th of another
/// are the same communicator.
pub fn ordinal(p: &Program, c: CommunicatorId) -> usize {
    let axes = sorted(&p.communicators[c.0 as usize].axes);
    p.communicators[..c.0 as usize].iter().filter(|o| sorted(&o.axes) == axes).count()
}

/// The position in its group of the peer of the rank at `position`: offsets wrap around.
pub fn peer(position: usize, offset: i32, ranks: usize) -> usize {
    (position as i64 + i64::from(offset)).rem_euclid(ranks.max(1) as i64) as usize
}

fn sorted(axes: &[AxisId]) -> Vec<AxisId> {
    let mut v = axes.to_vec();
    v.sort();
    v
}

fn coverage(programs: &[Program]) -> Result<()> {
    let err = |message: String| Err(ProgramError::Coverage { message });
    let Some(first) = programs.first() else { return err("there is no program".into()) };
    let mut ranks = 0usize;
    for (n, p) in programs.iter().enumerate() {
        if p.mesh != first.mesh {
            return err(format!("rank classes 0 and {n} have different meshes"));
        }
        let (a, b) = (&p.entry, &first.entry);
        if (&a.name, &a.params, &a.results) != (&b.name, &b.params, &b.results) {
            return err(format!("rank classes 0 and {n} have different inputs or outputs"));
        }
        let mut size = p.mesh.ranks();
        for &(a, _) in &p.class.fixed {
            size /= p.mesh.size(a);
        }
        ranks += size;
        for (m, q) in programs[..n].iter().enumerate() {
            let apart =
                p.class.fixed.iter().any(|(a, c)| q.class.fixed.iter().any(|(b, d)| a == b && c != d));
            if !apart {
                return err(format!("some ranks are in the rank classes {m} and {n} both"));
            }
        }
    }
    let want = first.mesh.ranks();
    if ranks != want {
        return err(format!("the rank classes hold {ranks} of the mesh's {want} ranks"));
    }
    Ok(())
}

/// Ranks that behave alike: coordinates along the distinguishing axes, and whose program they run.
struct Cell {
    /// The lowest of the ranks.
    rank: usize,
    program: usize,
}

struct Cells {
    /// Axes along which ranks may behave differently.
    axes: Vec<AxisId>,
    list: Vec<Cell>,
    /// From lowest rank to index in `list`.
    index: BTreeMap<usize, usize>,
}

fn cells(programs: &[Program]) -> Result<Cells> {
    let mesh = &programs[0].mesh;
    let mut axes: Vec<AxisId> = programs.iter().flat_map(|p| p.class.fixed.iter().map(|f| f.0)).collect();
    // A message along several axes at once reaches peers that only all of their coordinates tell.
    for p in programs {
        for i in &p.instructions {
            if let Action::Send { communicator, .. } | Action::Receive { communicator, .. } = i.action {
                let group = &p.communicators[communicator.0 as usize].axes;
                if group.len() > 1 {
                    axes.extend(group.iter());
                }
            }
        }
    }
    axes.sort();
    axes.dedup();
    let count: usize = axes.iter().map(|&a| mesh.size(a)).product();
    let mut list = Vec::with_capacity(count.min(MAX_RANKS));
    let mut index = BTreeMap::new();
    for n in 0..count {
        let mut rest = n;
        let mut rank = 0;
        for &a in axes.iter().rev() {
            rank += rest % mesh.size(a) * stride(mesh, a);
            rest /= mesh.size(a);
        }
        let program = programs.iter().position(|p| p.class.contains(mesh, rank));
        let Some(program) = program else {
            return Err(ProgramError::Coverage { message: format!("rank {rank} is in no rank class") });
        };
        index.insert(rank, list.len());
        list.push(Cell { rank, program });
    }
    Ok(Cells { axes, list, index })
}

/// Distance in rank numbers between neighbours along an axis.
fn stride(mesh: &Mesh, axis: AxisId) -> usize {
    mesh.axes[axis.0 as usize + 1..].iter().map(|a| a.size).product()
}

/// Where communications meet: the communicator (axes and ordinal), and what tells its groups apart.
type Place = (Vec<AxisId>, usize, Meeting);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Meeting {
    /// All cells of a group; the group's lowest cell rank.
    Group(usize),
    /// One message: sending cell, receiving cell, offset along an axis on which a cell stands for all ranks.
    Message(usize, usize, usize),
}

/// A stream that has arrived at a place.
#[derive(Clone, Copy)]
struct Arrival {
    cell: usize,
    stream: usize,
    at: usize,
}

struct DryRun<'a> {
    programs: &'a [Program],
    cells: &'a Cells,
    /// For each program and stream, its instructions.
    lists: Vec<Vec<Vec<usize>>>,
    /// For each program and communicator, its sorted axes and ordinal.
    names: Vec<Vec<(Vec<AxisId>, usize)>>,
    /// For each cell and stream, how many of its instructions are complete.
    done: Vec<Vec<usize>>,
    met: BTreeMap<Place, Vec<Arrival>>,
}

impl<'a> DryRun<'a> {
    fn new(programs: &'a [Program], cells: &'a Cells) -> DryRun<'a> {
        let mut lists = Vec::new();
        let mut names = Vec::new();
        for p in programs {
            let mut list = vec![Vec::new(); p.streams.len()];
            for (at, i) in p.instructions.iter().enumerate() {
                list[i.stream.0 as usize].push(at);
            }
            lists.push(list);
            let ids = (0..p.communicators.len() as u32).map(CommunicatorId);
            names.push(ids.map(|c| (sorted(&p.communicators[c.0 as usize].axes), ordinal(p, c))).collect());
        }
        let done = cells.list.iter().map(|c| vec![0; programs[c.program].streams.len()]).collect();
        DryRun { programs, cells, lists, names, done, met: BTreeMap::new() }
    }

    fn program(&self, cell: usize) -> &'a Program {
        &self.programs[self.cells.list[cell].program]
    }

    /// The instruction a stream is at, if it is not at its end.
    fn current(&self, cell: usize, stream: usize) -> Option<usize> {
        self.lists[self.cells.list[cell].program][stream].get(self.done[cell][stream]).copied()
    }

    fn run(mut self) -> Result<()> {
        let mut work: Vec<(usize, usize)> = Vec::new();
        for (c, streams) in self.done.iter().enumerate() {
            work.extend((0..streams.len()).map(|s| (c, s)));
        }
        while let Some((cell, stream)) = work.pop() {
            self.advance(cell, stream, &mut work)?;
        }
        self.finished()
    }

    /// Goes on with a stream until it waits. Streams that this lets go on are added to `work`.
    fn advance(&mut self, cell: usize, stream: usize, work: &mut Vec<(usize, usize)>) -> Result<()> {
        let p = self.program(cell);
        let mut moved = false;
        while let Some(at) = self.current(cell, stream) {
            if let Action::Wait(on) = p.instructions[at].action {
                let other = p.instructions[on.0 as usize].stream.0 as usize;
                if self.current(cell, other).is_some_and(|now| now <= on.0 as usize) {
                    break;
                }
            } else if let Some((place, needed)) = self.place(cell, at)? {
                let here = self.met.entry(place.clone()).or_default();
                if here.iter().any(|a| a.cell == cell && a.at == at) {
                    break;
                }
                here.push(Arrival { cell, stream, at });
                if here.len() < needed {
                    break;
                }
                let here = self.met.remove(&place).unwrap_or_default();
                self.compare(&here)?;
                for a in here {
                    self.done[a.cell][a.stream] += 1;
                    // Every stream of the cell may have waited for it.
                    work.extend((0..self.done[a.cell].len()).map(|s| (a.cell, s)));
                }
                return Ok(());
            }
            self.done[cell][stream] += 1;
            moved = true;
        }
        if moved {
            work.extend((0..self.done[cell].len()).filter(|&s| s != stream).map(|s| (cell, s)));
        }
        Ok(())
    }

    /// Where an instruction meets others, and how many cells come there; `None` if it does not communicate.
    fn place(&self, cell: usize, at: usize) -> Result<Option<(Place, usize)>> {
        let p = self.program(cell);
        let (mesh, rank) = (&p.mesh, self.cells.list[cell].rank);
        let (c, offset) = match &p.instructions[at].action {
            Action::Collective { communicator, .. } => (*communicator, None),
            Action::Send { communicator, offset } | Action::Receive { communicator, offset } => {
                (*communicator, Some(*offset))
            }
            _ => return Ok(None),
        };
        let (axes, ordinal) = &self.names[self.cells.list[cell].program][c.0 as usize];
        let within: Vec<AxisId> = axes.iter().filter(|a| self.cells.axes.contains(a)).copied().collect();
        let Some(offset) = offset else {
            let lowest = within.iter().fold(rank, |r, &a| r - mesh.coordinate(rank, a) * stride(mesh, a));
            let needed = within.iter().map(|&a| mesh.size(a)).product();
            return Ok(Some(((axes.clone(), *ordinal, Meeting::Group(lowest)), needed)));
        };
        let sends = matches!(p.instructions[at].action, Action::Send { .. });
        let ranks: usize = axes.iter().map(|&a| mesh.size(a)).product();
        let forward = peer(0, if sends { offset } else { offset.wrapping_neg() }, ranks);
        let message = if within.len() == axes.len() {
            let mut position = 0;
            for &a in axes {
                position = position * mesh.size(a) + mesh.coordinate(rank, a);
            }
            let mut rest = peer(position, offset, ranks);
            let mut other = rank;
            for &a in axes.iter().rev() {
                other = other - mesh.coordinate(rank, a) * stride(mesh, a)
                    + rest % mesh.size(a) * stride(mesh, a);
                rest /= mesh.size(a);
            }
            let other = self.cells.index.get(&other).copied().unwrap_or(cell);
            if sends { Meeting::Message(cell, other, 0) } else { Meeting::Message(other, cell, 0) }
        } else {
            Meeting::Message(cell, cell, forward)
        };
        Ok(Some(((axes.clone(), *ordinal, message), 2)))
    }

    /// What an instruction does, as far as all participants must do the same.
    fn what(&self, a: &Arrival) -> String {
        let p = self.program(a.cell);
        let i = &p.instructions[a.at];
        match &i.action {
            Action::Collective { op, .. } => {
                format!("{} {} of {}", op.name(), attributes(op), p.buffer(i.reads[0]).ty)
            }
            Action::Send { .. } => format!("send of {}", p.buffer(i.reads[0]).ty),
            Action::Receive { .. } => format!("receive of {}", p.buffer(i.writes[0]).ty),
            other => other.name().to_string(),
        }
    }

    fn describe(&self, a: &Arrival) -> String {
        format!("rank {} is at instruction {}, {}", self.cells.list[a.cell].rank, a.at, self.what(a))
    }

    fn compare(&self, here: &[Arrival]) -> Result<()> {
        let mismatch = |a: &Arrival, b: &Arrival| {
            Err(ProgramError::Mismatch { first: self.describe(a), second: self.describe(b) })
        };
        for (a, b) in here.iter().zip(&here[1..]) {
            let (p, q) = (self.program(a.cell), self.program(b.cell));
            let (x, y) = (&p.instructions[a.at], &q.instructions[b.at]);
            let same = match (&x.action, &y.action) {
                (Action::Collective { op: f, .. }, Action::Collective { op: g, .. }) => {
                    f == g && p.buffer(x.reads[0]).ty == q.buffer(y.reads[0]).ty
                }
                (Action::Send { .. }, Action::Receive { .. }) => {
                    p.buffer(x.reads[0]).ty == q.buffer(y.writes[0]).ty
                }
                (Action::Receive { .. }, Action::Send { .. }) => {
                    p.buffer(x.writes[0]).ty == q.buffer(y.reads[0]).ty
                }
                _ => false,
            };
            if !same {
                return mismatch(a, b);
            }
        }
        Ok(())
    }

    /// Everything is at its end, or some streams wait for each other.
    fn finished(&self) -> Result<()> {
        let mut waiting = Vec::new();
        for cell in 0..self.done.len() {
            for stream in 0..self.done[cell].len() {
                let Some(at) = self.current(cell, stream) else { continue };
                let p = self.program(cell);
                let a = Arrival { cell, stream, at };
                waiting.push(match p.instructions[at].action {
                    Action::Wait(on) => {
                        let rank = self.cells.list[cell].rank;
                        format!("rank {rank} is at instruction {at}, which waits for instruction {}", on.0)
                    }
                    _ => self.describe(&a),
                });
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        waiting.truncate(8);
        Err(ProgramError::Deadlock { waiting })
    }
}

/// A collective's attributes, for messages.
fn attributes(op: &crate::op::Op) -> String {
    let list: Vec<String> = op
        .attrs(&crate::module::Module::default())
        .into_iter()
        .map(|(k, v)| match v {
            crate::attr::AttrValue::Word(w) => format!("{k} = {w}"),
            crate::attr::AttrValue::Int(i) => format!("{k} = {i}"),
            v => format!("{k} = {v:?}"),
        })
        .collect();
    format!("{{{}}}", list.join(", "))
}
