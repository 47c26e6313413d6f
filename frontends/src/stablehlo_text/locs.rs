//! Locations.

use super::Parser;
use crate::error::Result;
use crate::raw::{LocRef, RawLoc};

impl<'a> Parser<'a> {
    /// A trailing `loc(…)`, if there is one.
    pub(super) fn trailing_loc(&mut self) -> Result<LocRef> {
        self.skip_space();
        if !self.looking_at("loc(") {
            return Ok(LocRef::UNKNOWN);
        }
        self.pos += "loc(".len();
        let loc = self.loc_body()?;
        self.expect(")")?;
        Ok(loc)
    }

    /// What stands in `loc(…)`.
    pub(super) fn loc_body(&mut self) -> Result<LocRef> {
        self.nested(Self::loc_inner)
    }

    fn loc_inner(&mut self) -> Result<LocRef> {
        match self.peek_token() {
            Some(b'#') => {
                self.pos += 1;
                let name = self.suffix_name()?;
                Ok(self.loc_alias(name))
            }
            Some(b'"') => {
                let name = self.string()?;
                if self.eat("(") {
                    let child = self.loc_body()?;
                    self.expect(")")?;
                    return Ok(self.m.new_loc(RawLoc::Name { name, child }));
                }
                if !self.eat(":") {
                    return Ok(self.m.new_loc(RawLoc::Name { name, child: LocRef::UNKNOWN }));
                }
                let line = self.line_number()?;
                let column = if self.eat(":") { self.line_number()? } else { 0 };
                if self.eat_word("to") {
                    if self.peek_token() != Some(b':') {
                        self.line_number()?;
                    }
                    self.expect(":")?;
                    self.line_number()?;
                }
                Ok(self.m.new_loc(RawLoc::File { file: name, line, column }))
            }
            _ if self.eat_word("callsite") => {
                self.expect("(")?;
                let callee = self.loc_body()?;
                if !self.eat_word("at") {
                    return Err(self.expected("`at`"));
                }
                let caller = self.loc_body()?;
                self.expect(")")?;
                Ok(self.m.new_loc(RawLoc::CallSite { callee, caller }))
            }
            _ if self.eat_word("fused") => {
                if self.peek() == Some(b'<') {
                    self.balanced()?;
                }
                let mut parts = Vec::new();
                self.list("[", "]", |p| {
                    parts.push(p.loc_body()?);
                    Ok(())
                })?;
                Ok(self.m.new_loc(RawLoc::Fused(parts)))
            }
            _ if self.eat_word("unknown") => Ok(LocRef::UNKNOWN),
            _ if self.looking_at("loc(") => {
                self.pos += "loc(".len();
                let loc = self.loc_body()?;
                self.expect(")")?;
                Ok(loc)
            }
            _ => Err(self.expected("a location")),
        }
    }

    /// The location that an alias stands for; one not defined yet is unknown until then.
    pub(super) fn loc_alias(&mut self, name: &'a str) -> LocRef {
        if let Some(&l) = self.loc_aliases.get(name) {
            return l;
        }
        let l = self.m.new_loc(RawLoc::Unknown);
        self.loc_aliases.insert(name, l);
        l
    }

    /// Defines a location alias; the cursor is behind `=`.
    pub(super) fn loc_alias_def(&mut self, name: &'a str) -> Result<()> {
        let target = self.trailing_loc()?;
        let alias = self.loc_alias(name);
        if alias != target {
            self.m.locs[alias.0 as usize] = RawLoc::Alias(target);
        }
        Ok(())
    }
}
