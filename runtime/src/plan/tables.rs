//! Tables of strings, types and locations, filled in order of first use.

use super::wire;
use msc_ir::{Loc, LocId, LocationTable, TensorType};
use rustc_hash::FxHashMap;

/// Tables being filled. The maps are only looked up; order is that of the lists.
#[derive(Default)]
pub(super) struct TableWriter {
    pub wire: wire::Tables,
    strings: FxHashMap<String, u32>,
    types: FxHashMap<TensorType, u32>,
    locations: FxHashMap<LocId, u32>,
}

impl TableWriter {
    pub fn string(&mut self, s: &str) -> u32 {
        if let Some(&n) = self.strings.get(s) {
            return n;
        }
        let n = self.wire.strings.len() as u32;
        self.wire.strings.push(s.to_string());
        self.strings.insert(s.to_string(), n);
        n
    }

    pub fn ty(&mut self, t: &TensorType) -> u32 {
        if let Some(&n) = self.types.get(t) {
            return n;
        }
        let dtype = self.string(t.dtype.name());
        let n = self.wire.types.len() as u32;
        self.wire.types.push(wire::Type { dtype, shape: t.shape.iter().map(|&d| d as u64).collect() });
        self.types.insert(t.clone(), n);
        n
    }

    pub fn location(&mut self, table: &LocationTable, id: LocId) -> u32 {
        if let Some(&n) = self.locations.get(&id) {
            return n;
        }
        let l = table.get(id);
        let n = if *l == Loc::default() {
            0
        } else {
            let (file, name) = (self.string(&l.file), self.string(&l.name));
            self.wire.locations.push(wire::Location { file, line: l.line, column: l.column, name });
            self.wire.locations.len() as u32
        };
        self.locations.insert(id, n);
        n
    }
}
