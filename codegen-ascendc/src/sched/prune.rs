//! Fourth pass: removes the synchronisation that the verifier shows to be unnecessary, and gives event ids.

use std::collections::BTreeMap;

use super::verify::ordered;
use super::{FlagId, Item, Pipe, Program, SchedError, UnitProgram};

/// Removes barriers of transfers, then flags, then barriers of computation, each if the program stays
/// ordered without it. Cheap things go last: a vector barrier costs less than a flag.
pub(super) fn prune(program: &mut Program) {
    number_apart(program);
    remove_barriers(program, |pipe| pipe != Pipe::V);
    for n in 0..program.flags.len() {
        let flag = FlagId(u32::try_from(n).unwrap_or(u32::MAX));
        let of = |item: &Item| matches!(item, Item::Set(f, _) | Item::Wait(f, _) if *f == flag);
        try_without(program, |units| {
            units.iter_mut().for_each(|u| retain(&mut u.body, &mut |item| !of(item)))
        });
    }
    remove_barriers(program, |pipe| pipe == Pipe::V);
    drop_unused(program);
}

/// Gives every flag event ids of its own, beyond 8 if need be, so that the verifier sees no sharing.
fn number_apart(program: &mut Program) {
    let mut next = 0;
    for f in &mut program.flags {
        f.id = next;
        next += f.slots;
    }
}

fn try_without(program: &mut Program, remove: impl FnOnce(&mut [UnitProgram])) -> bool {
    let before = program.units.clone();
    remove(&mut program.units);
    let fine = ordered(program).is_ok();
    if !fine {
        program.units = before;
    }
    fine
}

fn remove_barriers(program: &mut Program, which: impl Fn(Pipe) -> bool) {
    let mut kept = 0;
    loop {
        // Removes the barrier of the kind after the `kept` ones that have proven necessary.
        let mut seen = 0;
        let mut found = false;
        let removed = try_without(program, |units| {
            let mut wanted = |item: &Item| match item {
                Item::Barrier(pipe) if which(*pipe) => {
                    seen += 1;
                    found |= seen == kept + 1;
                    seen != kept + 1
                }
                _ => true,
            };
            units.iter_mut().for_each(|u| retain(&mut u.body, &mut wanted));
        });
        if !found {
            return;
        }
        if !removed {
            kept += 1;
        }
    }
}

fn retain(items: &mut Vec<Item>, keep: &mut dyn FnMut(&Item) -> bool) {
    items.retain(|item| keep(item));
    for item in items {
        if let Item::For(l) = item {
            retain(&mut l.body, keep);
        }
    }
}

/// Drops declarations of flags that no item uses any more.
fn drop_unused(program: &mut Program) {
    let mut used = BTreeMap::new();
    for u in &mut program.units {
        rename(&mut u.body, &mut |flag| {
            let next = FlagId(u32::try_from(used.len()).unwrap_or(u32::MAX));
            *used.entry(flag).or_insert(next)
        });
    }
    let mut order: Vec<(FlagId, FlagId)> = used.iter().map(|(old, new)| (*new, *old)).collect();
    order.sort();
    program.flags = order.iter().filter_map(|(_, old)| program.flag(*old).cloned()).collect();
}

fn rename(items: &mut [Item], to: &mut dyn FnMut(FlagId) -> FlagId) {
    for item in items {
        match item {
            Item::Set(flag, _) | Item::Wait(flag, _) => *flag = to(*flag),
            Item::For(l) => rename(&mut l.body, to),
            _ => {}
        }
    }
}

type Used = BTreeMap<(Pipe, Pipe), u32>;

/// Gives event ids: every flag its own if 8 suffice for its pair of pipes, else loops that follow each
/// other share, since each leaves its flags clear.
pub(super) fn assign_ids(program: &mut Program) -> Result<(), SchedError> {
    let bodies: Vec<Vec<Item>> = program.units.iter().map(|u| u.body.clone()).collect();
    for share in [false, true] {
        let mut over = None;
        for body in &bodies {
            let mut most = Used::new();
            let mut given = BTreeMap::new();
            number(program, body, &Used::new(), &mut given, &mut most, share);
            given.into_iter().for_each(|(flag, id)| program.flags[flag].id = id);
            over = over.or(most.into_iter().find(|(_, n)| *n > 8));
        }
        match over {
            None => return Ok(()),
            Some(((src, dst), needed)) if share => {
                let kernel = program.name.clone();
                return Err(SchedError::EventIds {
                    kernel,
                    needed,
                    src: src.to_string(),
                    dst: dst.to_string(),
                });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn number(
    program: &Program,
    items: &[Item],
    base: &Used,
    given: &mut BTreeMap<usize, u32>,
    most: &mut Used,
    share: bool,
) {
    let mut here = base.clone();
    for item in items {
        let (Item::Set(flag, _) | Item::Wait(flag, _)) = item else { continue };
        let at = flag.0 as usize;
        let Some(decl) = program.flags.get(at).filter(|_| !given.contains_key(&at)) else { continue };
        let pair = (decl.src, decl.dst);
        let top = if share { here.entry(pair).or_default() } else { most.entry(pair).or_default() };
        given.insert(at, *top);
        *top += decl.slots;
        let top = *top;
        let greatest = most.entry(pair).or_default();
        *greatest = (*greatest).max(top);
    }
    for item in items {
        if let Item::For(l) = item {
            number(program, &l.body, &here, given, most, share);
        }
    }
}
