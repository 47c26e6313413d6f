//! Raw locations → [`msc_ir::Loc`].

use super::Importer;
use crate::raw::{Form, LocRef, RawLoc, RawModule, RawOp};
use msc_ir::{Loc, LocId};
use std::sync::Arc;

/// How far references between locations are followed.
const MAX_HOPS: u32 = 32;

/// Where lines start, and debug locations that were looked up.
pub(super) struct Places {
    /// Byte offsets of line starts.
    lines: Vec<usize>,
    /// Debug locations by [`LocRef`].
    known: Vec<Option<Debug>>,
}

/// What a debug location says.
#[derive(Clone, Default)]
pub(super) struct Debug {
    /// File, line, column.
    place: Option<(Arc<str>, u32, u32)>,
    /// The outermost name.
    pub name: Arc<str>,
}

impl Places {
    pub(super) fn new(raw: &RawModule<'_>) -> Places {
        let mut lines = vec![0];
        if raw.form == Form::Text {
            lines.extend(memchr::memchr_iter(b'\n', raw.source).map(|n| n + 1));
        }
        Places { lines, known: vec![None; raw.locs.len()] }
    }

    /// Line and column of a byte, both from 1.
    fn line_column(&self, at: usize) -> (u32, u32) {
        let line = self.lines.partition_point(|&start| start <= at).max(1);
        let column = at - self.lines[line - 1] + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }
}

impl Importer<'_, '_> {
    /// The location of an op: the debug location's place where it has one, else the op's in the source; and the
    /// name that the debug location gives.
    pub(super) fn loc(&mut self, op: &RawOp<'_>) -> LocId {
        self.ordinal = self.ordinal.saturating_add(1);
        let debug = self.debug(op.loc);
        let (file, line, column) = match debug.place {
            Some(place) => place,
            None if self.raw.form == Form::Bytecode => (self.raw.file.clone(), self.ordinal, 1),
            None => {
                let (line, column) = self.places.line_column(op.at);
                (self.raw.file.clone(), line, column)
            }
        };
        self.module.locations.intern(Loc { file, line, column, name: debug.name })
    }

    /// What a debug location says.
    pub(super) fn debug(&mut self, loc: LocRef) -> Debug {
        if loc == LocRef::UNKNOWN {
            return Debug::default();
        }
        if let Some(Some(d)) = self.places.known.get(loc.0 as usize) {
            return d.clone();
        }
        let mut d = Debug::default();
        let mut budget = MAX_HOPS;
        self.follow(loc, &mut d, &mut budget);
        if let Some(slot) = self.places.known.get_mut(loc.0 as usize) {
            *slot = Some(d.clone());
        }
        d
    }

    /// Takes the first place and the first name on the way.
    fn follow(&self, loc: LocRef, d: &mut Debug, budget: &mut u32) {
        if *budget == 0 {
            return;
        }
        *budget -= 1;
        match self.raw.locs.get(loc.0 as usize) {
            None | Some(RawLoc::Unknown) => {}
            Some(RawLoc::File { file, line, column }) => {
                // Line 0 is how some exporters write "no file".
                if d.place.is_none() && !file.is_empty() && *line > 0 {
                    d.place = Some((Arc::from(&**file), *line, *column));
                }
            }
            Some(RawLoc::Name { name, child }) => {
                if d.name.is_empty() {
                    d.name = Arc::from(&**name);
                }
                self.follow(*child, d, budget);
            }
            Some(RawLoc::CallSite { callee, caller }) => {
                self.follow(*callee, d, budget);
                if d.place.is_none() {
                    self.follow(*caller, d, budget);
                }
            }
            Some(RawLoc::Fused(parts)) => {
                for &p in parts {
                    self.follow(p, d, budget);
                    if d.place.is_some() && !d.name.is_empty() {
                        break;
                    }
                }
            }
            Some(RawLoc::Alias(target)) => self.follow(*target, d, budget),
        }
    }
}
