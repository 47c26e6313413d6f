//! Second pass: tiles that loads write or stores read get two slots where the memory allows it, so that
//! the transfer of one iteration overlaps the computation of another.

use std::collections::BTreeMap;

use super::lower::Lowered;
use super::{Item, Resource, SchedError, TileId, TileUse};
use crate::tile::LoopId;

/// Gives slots, two each if `most` allows, to tiles within `usable` bytes. Loads come first: they are what computation waits for.
///
/// A tile may rotate with the innermost loop around all its uses, unless that loop carries its value.
pub(super) fn assign_slots(
    lowered: &mut Lowered,
    kernel: &str,
    usable: i64,
    most: u32,
) -> Result<(), SchedError> {
    let mut bytes: i64 = lowered.tiles.iter().map(|t| t.bytes()).sum();
    if bytes > usable {
        return Err(SchedError::TooLarge { kernel: kernel.to_owned(), bytes, usable });
    }
    let mut around = BTreeMap::new();
    common_loops(&lowered.body, &mut Vec::new(), &mut around);
    for usage in [TileUse::Loaded, TileUse::Stored] {
        for n in 0..lowered.tiles.len() {
            let id = TileId(u32::try_from(n).unwrap_or(u32::MAX));
            let Some(&inner) = around.get(&id).and_then(|loops: &Vec<LoopId>| loops.last()) else { continue };
            let carried = lowered.carried.get(&inner).is_some_and(|tiles| tiles.contains(&id));
            let tile = &mut lowered.tiles[n];
            let fits = bytes + tile.slot_bytes() <= usable;
            if most > 1 && tile.usage == usage && fits && !carried && !lowered.single_trip.contains(&inner) {
                tile.slots = 2;
                tile.rotates = Some(inner);
                bytes += tile.slot_bytes();
            }
        }
    }
    Ok(())
}

/// For every tile the loops around all its uses, outermost first. Uses of all slots at once (in the
/// prologue) do not count.
fn common_loops(items: &[Item], around: &mut Vec<LoopId>, out: &mut BTreeMap<TileId, Vec<LoopId>>) {
    for item in items {
        match item {
            Item::Op(op) => {
                for access in op.accesses() {
                    let Resource::Tile(id) = access.resource else { continue };
                    let common = out.entry(id).or_insert_with(|| around.clone());
                    let same = common.iter().zip(around.iter()).take_while(|(a, b)| a == b).count();
                    common.truncate(same);
                }
            }
            Item::For(l) => {
                around.push(l.id);
                common_loops(&l.body, around, out);
                around.pop();
            }
            _ => {}
        }
    }
}
