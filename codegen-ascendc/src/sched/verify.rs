//! The verifier: executes a program's items for small trip counts and checks that every two conflicting
//! accesses are ordered.
//!
//! It knows nothing of how flags were placed. For every pipe it keeps a clock: how many operations of
//! each pipe (of each unit) are known to be complete when the pipe's next one starts. A flag carries the
//! clock of its source pipe, with all of that pipe's own operations complete, to the pipe that waits.
//!
//! Trip counts: slots and flags repeat every `k` iterations, `k` being the most slots of anything, and
//! orders reach at most `k` iterations back; all counts from 0 to 2k + 2 are run, for all loops alike and
//! with each loop alone running not at all or once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::trace::{Event, Place, loops, trace};
use super::{FlagId, HandoverId, Item, Pipe, Program, TileId, Unit, Violation};
use crate::tile::{DeviceSpec, LoopId};

const EVENT_IDS: u32 = 8;
const CROSS_SETS: usize = 15;
const UNITS: [Unit; 2] = [Unit::Aiv, Unit::Aic];
const PIPES: usize = Pipe::ALL.len();

/// Checks a program against the rules of this level (see [the module](super)).
///
/// # Errors
/// The first rule found broken.
pub fn verify(program: &Program, device: &DeviceSpec) -> Result<(), Violation> {
    let (bytes, usable) = (program.bytes_of(Unit::Aiv), device.vector_usable());
    if bytes > usable {
        return Err(Violation::Memory { bytes, usable });
    }
    event_ids(program)?;
    pipes(program)?;
    ordered(program)
}

fn event_ids(program: &Program) -> Result<(), Violation> {
    for (n, f) in program.flags.iter().enumerate() {
        if f.slots == 0 || f.id.saturating_add(f.slots) > EVENT_IDS {
            let text = format!("flag {n} {}_{} has ids {}.. of {}", f.src, f.dst, f.id, f.slots);
            return Err(Violation::EventIds(text));
        }
    }
    for h in &program.handovers {
        if h.id >= 16 || h.slots == 0 {
            return Err(Violation::EventIds(format!("hand-over `{}` has id {} of 16", h.name, h.id)));
        }
    }
    Ok(())
}

/// Every operation runs on a pipe of its unit.
fn pipes(program: &Program) -> Result<(), Violation> {
    fn walk(items: &[Item], unit: Unit) -> Result<(), Violation> {
        for item in items {
            match item {
                Item::Op(op) if !op.pipe().is_of(unit) => {
                    return Err(Violation::Unknown(format!("{unit:?} has no pipe {}", op.pipe())));
                }
                Item::For(l) => walk(&l.body, unit)?,
                _ => {}
            }
        }
        Ok(())
    }
    program.units.iter().try_for_each(|u| walk(&u.body, u.unit))
}

/// Checks order, pairing and progress alone, whatever the event ids.
pub(super) fn ordered(program: &Program) -> Result<(), Violation> {
    let mut all = Vec::new();
    program.units.iter().for_each(|u| loops(&u.body, &mut all));
    let distinct: BTreeSet<LoopId> = all.into_iter().collect();
    let slots = program.tiles.iter().map(|t| t.slots).chain(program.flags.iter().map(|f| f.slots));
    let k = i64::from(slots.max().unwrap_or(1));
    for trips in 0..=2 * k + 2 {
        run(program, &|_| trips)?;
    }
    for alone in distinct {
        for trips in 0..=1 {
            run(program, &|l| if l == alone { trips } else { k + 1 })?;
        }
    }
    Ok(())
}

/// Operations known complete, per unit and pipe.
type Clock = [u32; 2 * PIPES];

fn join(a: &mut Clock, b: &Clock) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
}

fn index(unit: Unit, pipe: Pipe) -> usize {
    let u = UNITS.iter().position(|x| *x == unit).unwrap_or(0);
    u * PIPES + Pipe::ALL.iter().position(|p| *p == pipe).unwrap_or(0)
}

/// An access that happened.
struct Past {
    place: Place,
    write: bool,
    /// Pipe and number of the operation.
    pipe: usize,
    number: u32,
    name: String,
}

struct Machine<'p> {
    program: &'p Program,
    /// Operations issued to each pipe.
    issued: Clock,
    /// What is complete when each pipe's next operation starts.
    known: Vec<Clock>,
    /// Set flags, by event id.
    flags: BTreeMap<(Unit, Pipe, Pipe, u32), Clock>,
    crossed: BTreeMap<HandoverId, VecDeque<Clock>>,
    /// The accesses that a new one may still have to be ordered after, per tensor or tile.
    past: BTreeMap<u64, Vec<Past>>,
}

fn run(program: &Program, trips: &dyn Fn(LoopId) -> i64) -> Result<(), Violation> {
    let traces = program.units.iter().map(|u| Ok((u.unit, trace(program, u, trips)?)));
    let traces: Vec<(Unit, Vec<Event<'_>>)> = traces.collect::<Result<_, Violation>>()?;
    let mut m = Machine {
        program,
        issued: [0; 2 * PIPES],
        known: vec![[0; 2 * PIPES]; 2 * PIPES],
        flags: BTreeMap::new(),
        crossed: BTreeMap::new(),
        past: BTreeMap::new(),
    };
    let mut at = vec![0; traces.len()];
    loop {
        let mut progress = false;
        for (n, (unit, events)) in traces.iter().enumerate() {
            while let Some(event) = events.get(at[n]) {
                if !m.step(*unit, event)? {
                    break;
                }
                at[n] += 1;
                progress = true;
            }
        }
        if !progress {
            break;
        }
    }
    for (n, (unit, events)) in traces.iter().enumerate() {
        if let Some(event) = events.get(at[n]) {
            return Err(Violation::Deadlock(format!("{unit:?} at {event:?}")));
        }
    }
    if let Some(((_, src, dst, id), _)) = m.flags.first_key_value() {
        return Err(Violation::LeftSet(format!("flag {src}_{dst} {id}")));
    }
    match m.crossed.iter().find(|(_, queue)| !queue.is_empty()) {
        Some((id, _)) => Err(Violation::LeftSet(format!("hand-over {}", id.0))),
        None => Ok(()),
    }
}

impl Machine<'_> {
    /// Executes one event; `false` if it has to wait for another unit.
    fn step(&mut self, unit: Unit, event: &Event<'_>) -> Result<bool, Violation> {
        match event {
            Event::Op(op, touched) => {
                let pipe = index(unit, op.pipe());
                self.issued[pipe] += 1;
                for (place, write) in touched {
                    self.touch(op.name(), pipe, place, *write)?;
                }
            }
            Event::Set(flag, slot) => {
                let key = self.key(*flag, *slot)?;
                let clock = self.complete(index(key.0, key.1));
                if self.flags.insert(key, clock).is_some() {
                    return Err(Violation::SetTwice(format!("{}_{} {}", key.1, key.2, key.3)));
                }
            }
            Event::Wait(flag, slot) => {
                let key = self.key(*flag, *slot)?;
                let Some(clock) = self.flags.remove(&key) else {
                    return Err(Violation::Deadlock(format!(
                        "pipe {} at flag {}_{} {}",
                        key.2, key.1, key.2, key.3
                    )));
                };
                join(&mut self.known[index(key.0, key.2)], &clock);
            }
            Event::Barrier(pipe) => {
                let pipe = index(unit, *pipe);
                self.known[pipe][pipe] = self.issued[pipe];
            }
            Event::CrossSet(id, pipe) => {
                let clock = self.complete(index(unit, *pipe));
                let queue = self.crossed.entry(*id).or_default();
                queue.push_back(clock);
                if queue.len() > CROSS_SETS {
                    return Err(Violation::SetTwice(format!("hand-over {} (more than 15 ahead)", id.0)));
                }
            }
            Event::CrossWait(id, pipe) => {
                let Some(clock) = self.crossed.get_mut(id).and_then(VecDeque::pop_front) else {
                    return Ok(false);
                };
                join(&mut self.known[index(unit, *pipe)], &clock);
            }
        }
        Ok(true)
    }

    fn key(&self, flag: FlagId, slot: u32) -> Result<(Unit, Pipe, Pipe, u32), Violation> {
        let f = self.program.flag(flag);
        let f = f.ok_or_else(|| Violation::Unknown(format!("flag {} does not exist", flag.0)))?;
        Ok((f.unit, f.src, f.dst, f.id + slot))
    }

    /// The clock when everything issued to the pipe so far is complete.
    fn complete(&self, pipe: usize) -> Clock {
        let mut clock = self.known[pipe];
        clock[pipe] = self.issued[pipe];
        clock
    }

    fn touch(&mut self, name: &str, pipe: usize, place: &Place, write: bool) -> Result<(), Violation> {
        let (known, number) = (self.known[pipe], self.issued[pipe]);
        let group = match place {
            Place::Tile(id, _) => u64::from(*id),
            Place::Global(id, _) => (1 << 32) + u64::from(*id),
            Place::Handover(id, _) => (2 << 32) + u64::from(*id),
        };
        let unordered = |p: &&Past| {
            (p.write || write)
                && p.place.meets(place)
                && (p.pipe, p.number) != (pipe, number)
                && known[p.pipe] < p.number
        };
        if let Some(p) = self.past.get(&group).and_then(|list| list.iter().find(unordered)) {
            let kind = match (p.write, write) {
                (true, false) => "read after write",
                (false, true) => "write after read",
                _ => "write after write",
            };
            return Err(Violation::Hazard {
                resource: self.resource(place),
                kind,
                earlier: p.name.clone(),
                later: named(name, pipe),
            });
        }
        let list = self.past.entry(group).or_default();
        // A write hides the accesses it is ordered after: whoever is ordered after it is so after them.
        if write {
            list.retain(|p| p.place != *place || (p.pipe, p.number) == (pipe, number));
        }
        let name = named(name, pipe);
        list.retain(|p| p.place != *place || p.pipe != pipe || p.write != write);
        list.push(Past { place: place.clone(), write, pipe, number, name });
        Ok(())
    }

    fn resource(&self, place: &Place) -> String {
        match place {
            Place::Tile(id, slot) => {
                let name = self.program.tile(TileId(*id)).map_or("?", |t| t.name.as_str());
                format!("tile `{name}` slot {slot}")
            }
            Place::Global(id, dims) => {
                let name = self.program.params.get(*id as usize).map_or("?", |p| p.name.as_str());
                format!("`{name}` {dims:?}")
            }
            Place::Handover(id, slot) => {
                let name = self.program.handovers.get(*id as usize).map_or("?", |h| h.name.as_str());
                format!("hand-over `{name}` slot {slot}")
            }
        }
    }
}

fn named(name: &str, pipe: usize) -> String {
    format!("{name} on {:?} {}", UNITS[pipe / PIPES], Pipe::ALL[pipe % PIPES])
}
