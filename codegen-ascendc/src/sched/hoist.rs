//! Moves loads together, as early as their operands allow, so that one flag serves them all. Used when
//! there are not enough event ids for a flag each.

use super::Item;
use super::sync::{conflict, uses};

/// In every list, moves each load up to the load before it, or the list's start, unless something between
/// touches the same memory.
pub(super) fn hoist_loads(items: &mut Vec<Item>) {
    for item in items.iter_mut() {
        if let Item::For(l) = item {
            hoist_loads(&mut l.body);
        }
    }
    for at in 0..items.len() {
        if !is_load(&items[at]) {
            continue;
        }
        let mut own = Vec::new();
        uses(&items[at], &mut own);
        let free = |item: &Item| {
            let mut theirs = Vec::new();
            uses(item, &mut theirs);
            !is_load(item) && !own.iter().any(|(_, a)| theirs.iter().any(|(_, b)| conflict(a, b)))
        };
        let passed = items[..at].iter().rev().take_while(|item| free(item)).count();
        let load = items.remove(at);
        items.insert(at - passed, load);
    }
}

fn is_load(item: &Item) -> bool {
    matches!(item, Item::Op(super::Op::Load { .. }))
}
