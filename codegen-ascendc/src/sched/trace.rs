//! Execution of a program's items for given trip counts: the events of each unit, in issue order.

use std::collections::BTreeMap;

use super::{FlagId, HandoverId, Item, Op, Pipe, Program, Resource, Turn, UnitProgram, Violation};
use crate::tile::{Affine, LoopId, Span, Var};

/// A resource with its slot or region settled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A slot of a tile.
    Tile(u32, u32),
    /// A box of a global tensor: per dimension first index and one past the last.
    Global(u32, Vec<(i64, i64)>),
    /// A slot of a hand-over's workspace.
    Handover(u32, u32),
}

impl Place {
    /// Whether the two share an element.
    pub(super) fn meets(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Global(a, x), Place::Global(b, y)) => {
                a == b && x.iter().zip(y).all(|(x, y)| x.0 < y.1 && y.0 < x.1)
            }
            (a, b) => a == b,
        }
    }
}

/// One event. Operations keep what they touch: the place and whether it is written.
#[derive(Debug, Clone)]
pub(super) enum Event<'p> {
    Op(&'p Op, Vec<(Place, bool)>),
    Set(FlagId, u32),
    Wait(FlagId, u32),
    Barrier(Pipe),
    CrossSet(HandoverId, Pipe),
    CrossWait(HandoverId, Pipe),
}

/// The events of a unit when loop `l` runs `trips(l)` times.
pub(super) fn trace<'p>(
    program: &'p Program,
    unit: &'p UnitProgram,
    trips: &dyn Fn(LoopId) -> i64,
) -> Result<Vec<Event<'p>>, Violation> {
    let mut t =
        Tracer { program, trips, iteration: BTreeMap::new(), value: BTreeMap::new(), events: Vec::new() };
    t.items(&unit.body)?;
    Ok(t.events)
}

/// All loops of a list of items.
pub(super) fn loops(items: &[Item], out: &mut Vec<LoopId>) {
    for item in items {
        if let Item::For(l) = item {
            out.push(l.id);
            loops(&l.body, out);
        }
    }
}

struct Tracer<'p, 't> {
    program: &'p Program,
    trips: &'t dyn Fn(LoopId) -> i64,
    iteration: BTreeMap<LoopId, i64>,
    value: BTreeMap<LoopId, i64>,
    events: Vec<Event<'p>>,
}

impl<'p> Tracer<'p, '_> {
    fn items(&mut self, items: &'p [Item]) -> Result<(), Violation> {
        for item in items {
            match item {
                Item::Op(op) => {
                    let mut touched = Vec::new();
                    for access in op.accesses() {
                        for place in self.places(&access.resource)? {
                            touched.push((place, access.write));
                        }
                    }
                    self.events.push(Event::Op(op, touched));
                }
                Item::Set(flag, turn) => {
                    let slot = self.turn(*turn, self.flag_slots(*flag)?)?;
                    self.events.push(Event::Set(*flag, slot));
                }
                Item::Wait(flag, turn) => {
                    let slot = self.turn(*turn, self.flag_slots(*flag)?)?;
                    self.events.push(Event::Wait(*flag, slot));
                }
                Item::Barrier(pipe) => self.events.push(Event::Barrier(*pipe)),
                Item::CrossSet(id, pipe) => self.events.push(Event::CrossSet(*id, *pipe)),
                Item::CrossWait(id, pipe) => self.events.push(Event::CrossWait(*id, *pipe)),
                Item::For(l) => {
                    let start = self.eval(&l.start)?;
                    for n in 0..(self.trips)(l.id) {
                        self.iteration.insert(l.id, n);
                        self.value.insert(l.id, start.saturating_add(l.step.saturating_mul(n)));
                        self.items(&l.body)?;
                    }
                    self.iteration.remove(&l.id);
                    self.value.remove(&l.id);
                }
            }
        }
        Ok(())
    }

    fn flag_slots(&self, flag: FlagId) -> Result<u32, Violation> {
        let decl = self.program.flag(flag);
        decl.map(|f| f.slots).ok_or_else(|| Violation::Unknown(format!("flag {} does not exist", flag.0)))
    }

    fn turn(&self, turn: Turn, slots: u32) -> Result<u32, Violation> {
        let slots = slots.max(1);
        match turn {
            Turn::Fixed(n) if n < slots => Ok(n),
            Turn::Fixed(n) => Err(Violation::Unknown(format!("slot {n} of {slots}"))),
            Turn::Of(l) => {
                let n = self.iteration.get(&l).copied();
                let n =
                    n.ok_or_else(|| Violation::Unknown(format!("loop i{} is not around a use of it", l.0)))?;
                Ok(u32::try_from(n.rem_euclid(i64::from(slots))).unwrap_or(0))
            }
        }
    }

    fn places(&self, resource: &Resource) -> Result<Vec<Place>, Violation> {
        match resource {
            Resource::Tile(id) | Resource::AllSlots(id) => {
                let tile = self.program.tile(*id);
                let tile = tile.ok_or_else(|| Violation::Unknown(format!("tile {} does not exist", id.0)))?;
                let slots = tile.slots.max(1);
                if matches!(resource, Resource::AllSlots(_)) {
                    return Ok((0..slots).map(|slot| Place::Tile(id.0, slot)).collect());
                }
                let turn = tile.rotates.map_or(Turn::Fixed(0), Turn::Of);
                Ok(vec![Place::Tile(id.0, self.turn(turn, slots)?)])
            }
            Resource::Global(param, view, [rows, cols]) => {
                let mut dims = Vec::new();
                for (dim, origin) in view.origin.iter().enumerate() {
                    let part =
                        [(&view.rows, *rows), (&view.cols, *cols)].into_iter().find_map(|(part, extent)| {
                            part.as_ref().filter(|(d, _)| *d == dim).map(|(_, span)| (span, extent))
                        });
                    dims.push(match part {
                        Some((Span { start, .. }, extent)) => {
                            let start = self.eval(start)?;
                            (start, start.saturating_add(extent))
                        }
                        None => {
                            let at = self.eval(origin)?;
                            (at, at.saturating_add(1))
                        }
                    });
                }
                Ok(vec![Place::Global(param.0, dims)])
            }
            Resource::Handover(id, turn) => {
                let decl = self.program.handover(*id);
                let slots = decl.map(|h| h.slots);
                let slots =
                    slots.ok_or_else(|| Violation::Unknown(format!("hand-over {} does not exist", id.0)))?;
                Ok(vec![Place::Handover(id.0, self.turn(*turn, slots)?)])
            }
        }
    }

    /// The value in block 0: hazards between blocks are the tile verifier's.
    fn eval(&self, f: &Affine) -> Result<i64, Violation> {
        let mut missing = None;
        let value = f.eval(|var| match var {
            Var::Grid(_) => 0,
            Var::Loop(id) => self.value.get(&id).copied().unwrap_or_else(|| {
                missing = Some(id);
                0
            }),
        });
        missing.map_or(Ok(value), |id| {
            Err(Violation::Unknown(format!("loop i{} is not around a use of it", id.0)))
        })
    }
}
