//! Operations, regions and SSA names.

use super::Parser;
use crate::error::{Code, Result};
use crate::raw::{ArgInfo, Attrs, Block, LocRef, RawOp, Region, TypeId, Value, Values};
use smallvec::SmallVec;
use std::borrow::Cow;

/// What an op's syntax says, before its results are named.
pub(super) struct Parsed<'a> {
    pub name: Cow<'a, str>,
    pub operands: SmallVec<[Value; 3]>,
    pub attrs: Attrs<'a>,
    pub regions: Vec<Region<'a>>,
    pub results: SmallVec<[TypeId; 2]>,
}

impl<'a> Parsed<'a> {
    pub(super) fn new(name: &'a str) -> Parsed<'a> {
        Parsed {
            name: Cow::Borrowed(name),
            operands: SmallVec::new(),
            attrs: Attrs::new(),
            regions: Vec::new(),
            results: SmallVec::new(),
        }
    }
}

/// One group of result names: `%name` or `%name:count`.
type ResultName<'a> = (&'a str, u32, usize);

impl<'a> Parser<'a> {
    /// An op; `None` for a module, whose content goes into [`RawModule::body`](crate::raw::RawModule::body).
    pub(super) fn op(&mut self) -> Result<Option<RawOp<'a>>> {
        self.nested(Self::op_inner)
    }

    fn op_inner(&mut self) -> Result<Option<RawOp<'a>>> {
        let mut names: SmallVec<[ResultName<'a>; 1]> = SmallVec::new();
        if self.peek_token() == Some(b'%') {
            loop {
                self.expect("%")?;
                let at = self.pos - 1;
                let name = self.suffix_name()?;
                let n = if self.eat(":") { self.int()? } else { 1 };
                let count = u32::try_from(n)
                    .map_err(|_| self.error_at(at, Code::Syntax, "a result count that is not one"))?;
                names.push((name, count, at));
                if !self.eat(",") {
                    break;
                }
                self.skip_space();
            }
            self.expect("=")?;
        }
        self.skip_space();
        let at = self.pos;
        let parsed = if self.peek() == Some(b'"') {
            self.generic_op()?
        } else {
            let name = self.word();
            match name {
                "" => return Err(self.expected("an operation")),
                "module" | "builtin.module" => {
                    self.module()?;
                    return Ok(None);
                }
                _ => self.pretty_op(name, at)?,
            }
        };
        if parsed.name == "builtin.module" {
            self.module_parts(parsed);
            self.trailing_loc()?;
            return Ok(None);
        }
        let loc = self.trailing_loc()?;
        let named: usize = names.iter().map(|n| n.1 as usize).sum();
        if named != parsed.results.len() && !names.is_empty() {
            return Err(self.error_at(
                names[0].2,
                Code::Type,
                format!("{} has {} results, {named} are named", parsed.name, parsed.results.len()),
            ));
        }
        let results = self.m.new_values(&parsed.results);
        let mut first = results.first;
        for (name, count, at) in names {
            self.define(name, Values { first, count }, at)?;
            first += count;
        }
        Ok(Some(RawOp {
            name: parsed.name,
            operands: parsed.operands,
            results,
            attrs: parsed.attrs,
            regions: parsed.regions,
            loc,
            at,
        }))
    }

    /// `"name"(%operands) <{properties}> ({regions}) {attributes} : (T, …) -> (T, …)`.
    fn generic_op(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("");
        op.name = self.string()?;
        self.list("(", ")", |p| {
            let v = p.operand()?;
            op.operands.push(v);
            Ok(())
        })?;
        if self.peek_token() == Some(b'[') {
            return Err(self.error(Code::UnsupportedForm, "branches between blocks are not held"));
        }
        if self.peek_token() == Some(b'<') {
            self.expect("<")?;
            self.dict_into("{", "}", &mut op.attrs)?;
            self.expect(">")?;
        }
        if self.peek_token() == Some(b'(') {
            let isolated = op.name == "func.func";
            let mut regions = Vec::new();
            self.list("(", ")", |p| {
                regions.push(if isolated { p.isolated(|p| p.region(&[]))? } else { p.region(&[])? });
                Ok(())
            })?;
            op.regions = regions;
        }
        self.optional_dict(&mut op.attrs)?;
        self.expect(":")?;
        self.skip_space();
        let at = self.pos;
        let (inputs, results) = self.signature()?;
        self.check_operands(&op.operands, &inputs, at)?;
        op.results.extend(results);
        Ok(op)
    }

    /// A use of a value: `%name` or `%name#index`.
    pub(super) fn operand(&mut self) -> Result<Value> {
        self.skip_space();
        let at = self.pos;
        self.expect("%")?;
        let name = self.suffix_name()?;
        let mut index = 0;
        if self.peek() == Some(b'#') {
            self.pos += 1;
            index = usize::try_from(self.int()?).unwrap_or(usize::MAX);
        }
        let Some(values) = self.names.get(name) else {
            return Err(self.error_at(at, Code::Name, format!("%{name} is not defined before this use")));
        };
        values.get(index).ok_or_else(|| {
            self.error_at(at, Code::Name, format!("%{name} has {} results, not {index}", values.len()))
        })
    }

    /// Checks the operand types that the text gives against the values'.
    pub(super) fn check_operands(&self, operands: &[Value], types: &[TypeId], at: usize) -> Result<()> {
        if operands.len() != types.len() {
            return Err(self.error_at(
                at,
                Code::Type,
                format!("{} operands but {} operand types", operands.len(), types.len()),
            ));
        }
        for (i, (v, t)) in operands.iter().zip(types).enumerate() {
            let have = self.m.values[v.0 as usize];
            if have != *t {
                let show = |t| crate::import::types::show(&self.m.types, t);
                return Err(self.error_at(
                    at,
                    Code::Type,
                    format!("operand {i} is {}, but {} is written", show(have), show(*t)),
                ));
            }
        }
        Ok(())
    }

    /// Brings a name into scope.
    pub(super) fn define(&mut self, name: &'a str, values: Values, at: usize) -> Result<()> {
        let old = self.names.insert(name, values);
        if old.is_some() {
            return Err(self.error_at(at, Code::Name, format!("%{name} is defined twice")));
        }
        self.undo.push((name, old));
        Ok(())
    }

    /// Runs `f` where no outer value is visible.
    pub(super) fn isolated<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let names = std::mem::take(&mut self.names);
        let undo = std::mem::take(&mut self.undo);
        let r = f(self);
        self.names = names;
        self.undo = undo;
        r
    }

    /// Runs `f`, and takes the names it brings into scope out again.
    pub(super) fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mark = self.undo.len();
        let r = f(self)?;
        for (name, old) in self.undo.drain(mark..).rev() {
            match old {
                Some(v) => self.names.insert(name, v),
                None => self.names.remove(name),
            };
        }
        Ok(r)
    }

    /// `{ … }`. `args` are the entry block's arguments where the op's syntax names them.
    pub(super) fn region(&mut self, args: &[(&'a str, TypeId, LocRef)]) -> Result<Region<'a>> {
        self.nested(|p| p.scoped(|p| p.region_inner(args)))
    }

    fn region_inner(&mut self, args: &[(&'a str, TypeId, LocRef)]) -> Result<Region<'a>> {
        self.expect("{")?;
        let mut region = Region::default();
        let mut block = self.block_with(args)?;
        let mut first = true;
        loop {
            match self.peek_token() {
                Some(b'}') => {
                    self.pos += 1;
                    region.blocks.push(block);
                    return Ok(region);
                }
                Some(b'^') => {
                    self.pos += 1;
                    self.suffix_name()?;
                    let mut args = Vec::new();
                    if self.peek_token() == Some(b'(') {
                        self.list("(", ")", |p| {
                            args.push(p.argument()?);
                            Ok(())
                        })?;
                    }
                    self.expect(":")?;
                    let next = self.block_with(&args)?;
                    let empty_entry = first && block.ops.is_empty() && block.args.is_empty();
                    let done = std::mem::replace(&mut block, next);
                    if !empty_entry {
                        region.blocks.push(done);
                    }
                    first = false;
                }
                None => return Err(self.expected("`}`")),
                Some(_) => {
                    first = false;
                    if let Some(op) = self.op()? {
                        block.ops.push(op);
                    }
                }
            }
        }
    }

    /// `%name: T loc(…)`.
    pub(super) fn argument(&mut self) -> Result<(&'a str, TypeId, LocRef)> {
        self.expect("%")?;
        let name = self.suffix_name()?;
        self.expect(":")?;
        let ty = self.ty()?;
        let loc = self.trailing_loc()?;
        Ok((name, ty, loc))
    }

    fn block_with(&mut self, args: &[(&'a str, TypeId, LocRef)]) -> Result<Block<'a>> {
        let types: SmallVec<[TypeId; 4]> = args.iter().map(|a| a.1).collect();
        let values = self.m.new_values(&types);
        let mut arg_info = Vec::with_capacity(args.len());
        for (value, &(name, _, loc)) in values.iter().zip(args) {
            self.define(name, Values { first: value.0, count: 1 }, self.pos)?;
            arg_info.push(ArgInfo { name, loc });
        }
        Ok(Block { args: values, arg_info, ops: Vec::new() })
    }
}
