//! Source locations: where in the user's file a value comes from, and what the user calls it.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Index into a [`LocationTable`]. `LocId::UNKNOWN` says nothing is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LocId(pub u32);

impl LocId {
    /// No location is known.
    pub const UNKNOWN: LocId = LocId(0);
}

/// One location.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Loc {
    /// The file that msc read (or the file a debug location in it names).
    pub file: Arc<str>,
    /// 1-based line; for bytecode the op's ordinal.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
    /// The source's own name for the value (a parameter path, an SSA name, a scope).
    pub name: Arc<str>,
}

/// Interned locations of a module. A copy shares them until one of both gets a new one.
#[derive(Clone, Debug, Default)]
pub struct LocationTable(Arc<Interned>);

#[derive(Clone, Debug)]
struct Interned {
    locs: Vec<Loc>,
    index: FxHashMap<Loc, LocId>,
}

impl Default for Interned {
    fn default() -> Self {
        Interned {
            locs: vec![Loc::default()],
            index: FxHashMap::from_iter([(Loc::default(), LocId::UNKNOWN)]),
        }
    }
}

impl LocationTable {
    /// The id of a location, added if new.
    pub fn intern(&mut self, loc: Loc) -> LocId {
        if let Some(&id) = self.0.index.get(&loc) {
            return id;
        }
        let table = Arc::make_mut(&mut self.0);
        let id = LocId(table.locs.len() as u32);
        table.locs.push(loc.clone());
        table.index.insert(loc, id);
        id
    }

    /// The location behind an id; the unknown location for an id of another table.
    pub fn get(&self, id: LocId) -> &Loc {
        self.0.locs.get(id.0 as usize).unwrap_or(&self.0.locs[0])
    }

    /// `file:line:column` with the user's name where known, for messages.
    pub fn describe(&self, id: LocId) -> String {
        let l = self.get(id);
        match (l.file.is_empty(), l.name.is_empty()) {
            (true, true) => "unknown location".to_string(),
            (true, false) => l.name.to_string(),
            (false, true) => format!("{}:{}:{}", l.file, l.line, l.column),
            (false, false) => format!("{}:{}:{} ({})", l.file, l.line, l.column, l.name),
        }
    }
}
