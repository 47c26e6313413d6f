//! The IR section: operations, regions, values.

use super::container::{Container, read_section, section};
use super::cursor::Cursor;
use super::decode::Decoder;
use super::fault::{Fault, Result};
use super::properties::Properties;
use super::resource::{Resource, ResourceValue};
use super::tables::Tables;
use super::values::{Scope, skip_use_lists};
use crate::error::Code;
use crate::raw::{ArgInfo, Attr, Block, DenseData, Form, LocRef, RawModule, RawOp, Region, TypeId, Value};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Deepest nesting of regions. Real files reach 5.
pub const MAX_REGION_DEPTH: usize = 128;

/// Fewest bytes of an op: name, mask, location.
const MIN_OP_BYTES: u64 = 3;

/// Bits of an op's mask.
mod mask {
    pub const ATTRS: u8 = 0x01;
    pub const RESULTS: u8 = 0x02;
    pub const OPERANDS: u8 = 0x04;
    pub const SUCCESSORS: u8 = 0x08;
    pub const REGIONS: u8 = 0x10;
    pub const USE_LISTS: u8 = 0x20;
    pub const PROPERTIES: u8 = 0x40;
    pub const UNKNOWN: u8 = 0x80;
}

/// Reads the module. `base` is where the artifact starts in `source`.
///
/// # Errors
/// Where the section is malformed, or holds an op, attribute or type that is not known.
pub fn read_module<'a>(
    file: &str,
    source: &'a [u8],
    base: usize,
    container: &Container<'a>,
    tables: &Tables<'a>,
    resources: &[Resource<'a>],
) -> Result<RawModule<'a>> {
    let mut c = container.section(section::IR);
    let mut raw = RawModule::new(file, source, Form::Bytecode);
    for r in resources {
        if let ResourceValue::Blob(bytes) = r.value {
            raw.resources.insert(Cow::Borrowed(r.key), DenseData::Bytes(Cow::Borrowed(bytes)));
        }
    }
    let mut reader = OpReader {
        d: Decoder::new(tables, resources, source.len()),
        properties: Properties::new(tables, container.vhlo_version()),
        raw,
        base,
        end: c.at() + c.left(),
        undefined: 0,
        depth: 0,
    };
    let module = match c.flagged()? {
        (1, false) => reader.op(&mut c, &mut Scope::default(), false)?,
        _ => None,
    };
    let Some(module) = module.filter(|m| m.name == "builtin.module") else {
        return c.bad("the file does not hold one module");
    };
    c.finish("the IR section")?;
    Ok(reader.finish(module))
}

struct OpReader<'a, 'f> {
    d: Decoder<'a, 'f>,
    properties: Properties<'a, 'f>,
    raw: RawModule<'a>,
    base: usize,
    /// Where the IR section ends.
    end: usize,
    /// Values that open regions have announced and not defined yet.
    undefined: usize,
    depth: usize,
}

impl<'a> OpReader<'a, '_> {
    /// The raw module out of its op.
    fn finish(self, module: RawOp<'a>) -> RawModule<'a> {
        let mut raw = self.raw;
        for (name, value) in module.attrs {
            match (name.as_ref(), value) {
                ("sym_name", Attr::Str(s)) => raw.name = s,
                (_, value) => raw.attrs.push((name, value)),
            }
        }
        raw.body = module.regions.into_iter().flat_map(|r| r.blocks).flat_map(|b| b.ops).collect();
        raw.types = self.d.types;
        raw.locs = self.d.locs;
        raw
    }

    /// An op; `None` for a conversion between a type and itself, which is left out. `in_function` says whether
    /// the op stands directly in a function.
    fn op(&mut self, c: &mut Cursor<'a>, scope: &mut Scope, in_function: bool) -> Result<Option<RawOp<'a>>> {
        let at = c.at();
        let tables = self.d.tables;
        let name = c.index(tables.op_names.len(), "op name")?;
        self.op_named(c, scope, name, at, in_function)
            .map_err(|f| f.in_op(&tables.op_names[name as usize].full))
    }

    fn op_named(
        &mut self,
        c: &mut Cursor<'a>,
        scope: &mut Scope,
        name: u32,
        at: usize,
        in_function: bool,
    ) -> Result<Option<RawOp<'a>>> {
        let version = self.d.tables.version;
        let mask = c.byte()?;
        let too_new =
            (version < 5 && mask & mask::PROPERTIES != 0) || (version < 3 && mask & mask::USE_LISTS != 0);
        if mask & mask::UNKNOWN != 0 || too_new {
            return c.bad(format!("an op mask of {mask:#04x} in bytecode version {version}"));
        }
        let loc = self.d.attr_index(c)?;
        let loc = self.d.loc(loc)?;
        let dict = if mask & mask::ATTRS != 0 { Some(self.d.attr_index(c)?) } else { None };
        let properties = match mask & mask::PROPERTIES {
            0 => None,
            _ => Some(c.index(self.d.tables.properties.len(), "property entry")?),
        };
        let (canonical, attrs) = self.properties.attributes(&mut self.d, name, properties, dict, at)?;
        let mut types: SmallVec<[TypeId; 2]> = SmallVec::new();
        if mask & mask::RESULTS != 0 {
            for _ in 0..c.count("results")? {
                types.push(self.d.type_ref(c)?);
            }
        }
        let mut operands: SmallVec<[Value; 3]> = SmallVec::new();
        if mask & mask::OPERANDS != 0 {
            for _ in 0..c.count("operands")? {
                operands.push(scope.value(c)?);
            }
        }
        if mask & mask::SUCCESSORS != 0 {
            return Err(Fault::new(Code::UnsupportedForm, at, "branches between blocks are not held"));
        }
        if mask & mask::USE_LISTS != 0 {
            skip_use_lists(c, types.len())?;
        }
        if canonical == "builtin.unrealized_conversion_cast" {
            let same = operands.iter().map(|v| self.raw.values[v.0 as usize]).eq(types.iter().copied());
            if !same || mask & mask::REGIONS != 0 {
                return Err(Fault::new(Code::UnsupportedForm, at, "a conversion between different types"));
            }
            for v in operands {
                self.define(scope, v, c)?;
            }
            return Ok(None);
        }
        let results = self.new_values(&types, at)?;
        for v in results.iter() {
            self.define(scope, v, c)?;
        }
        let in_this_function = canonical == "func.func";
        let regions = match mask & mask::REGIONS {
            0 => Vec::new(),
            _ => self.regions(c, scope, in_this_function)?,
        };
        let name = match canonical {
            "stablehlo.return" if in_function => "func.return",
            name => name,
        };
        Ok(Some(RawOp {
            name: Cow::Borrowed(name),
            operands,
            results,
            attrs,
            regions,
            loc,
            at: self.base + at,
        }))
    }

    /// The regions of an op. Those of an isolated op see no outer value, and stand in a section of their own from
    /// bytecode version 2 on.
    fn regions(&mut self, c: &mut Cursor<'a>, scope: &mut Scope, function: bool) -> Result<Vec<Region<'a>>> {
        let (n, isolated) = c.flagged()?;
        let n = c.check_count(n, 1, "regions")?;
        if !isolated {
            return (0..n).map(|_| self.region(c, scope, function)).collect();
        }
        let mut inner = Scope::default();
        if self.d.tables.version < 2 {
            return (0..n).map(|_| self.region(c, &mut inner, function)).collect();
        }
        let at = c.at();
        let (id, mut body) = read_section(c)?;
        if id != section::IR {
            return Err(Fault::malformed(
                at,
                format!("a section {} that should hold regions", section::name(id)),
            ));
        }
        let out = (0..n).map(|_| self.region(&mut body, &mut inner, function)).collect::<Result<_>>()?;
        body.finish("the section of an op's regions")?;
        Ok(out)
    }

    fn region(&mut self, c: &mut Cursor<'a>, scope: &mut Scope, function: bool) -> Result<Region<'a>> {
        let blocks = c.count("blocks")?;
        if blocks == 0 {
            return Ok(Region::default());
        }
        if self.depth >= MAX_REGION_DEPTH {
            return Err(Fault::limit(c.at(), format!("regions nested deeper than {MAX_REGION_DEPTH}")));
        }
        // Every value of an open region takes at least one byte of what is left of the whole section, so that
        // nested regions cannot each announce as many as there are bytes.
        let values = c.count("values of a region")?;
        if self.undefined + values > self.end - c.at() {
            return c.bad(format!("a region of {values} values, more than the bytes left can define"));
        }
        self.depth += 1;
        self.undefined += values;
        scope.enter(values);
        let out = (0..blocks).map(|_| self.block(c, scope, function)).collect::<Result<_>>()?;
        scope.leave(c)?;
        self.depth -= 1;
        Ok(Region { blocks: out })
    }

    fn block(&mut self, c: &mut Cursor<'a>, scope: &mut Scope, function: bool) -> Result<Block<'a>> {
        let (ops, has_args) = c.flagged()?;
        let ops = c.check_count(ops, MIN_OP_BYTES, "ops")?;
        let mut block = Block::default();
        if has_args {
            self.block_args(c, scope, &mut block)?;
        }
        block.ops.reserve(ops);
        for _ in 0..ops {
            if let Some(op) = self.op(c, scope, function)? {
                block.ops.push(op);
            }
        }
        Ok(block)
    }

    fn block_args(&mut self, c: &mut Cursor<'a>, scope: &mut Scope, block: &mut Block<'a>) -> Result<()> {
        let version = self.d.tables.version;
        let at = c.at();
        let n = c.count("block arguments")?;
        let mut types: SmallVec<[TypeId; 4]> = SmallVec::with_capacity(n);
        for _ in 0..n {
            let mut loc = LocRef::UNKNOWN;
            let has_loc = if version >= 4 {
                let at = c.at();
                let (ty, has_loc) = c.flagged()?;
                let ty = super::cursor::checked_index(ty, self.d.tables.types.len(), "type", at)?;
                types.push(self.d.type_id(ty)?);
                has_loc
            } else {
                types.push(self.d.type_ref(c)?);
                true
            };
            if has_loc {
                let index = self.d.attr_index(c)?;
                loc = self.d.loc(index)?;
            }
            block.arg_info.push(ArgInfo { name: "", loc });
        }
        block.args = self.new_values(&types, at)?;
        for v in block.args.iter() {
            self.define(scope, v, c)?;
        }
        if version >= 3 && c.byte()? != 0 {
            skip_use_lists(c, n)?;
        }
        Ok(())
    }

    fn new_values(&mut self, types: &[TypeId], at: usize) -> Result<crate::raw::Values> {
        if self.raw.values.len() + types.len() > u32::MAX as usize {
            return Err(Fault::limit(at, "more than 2^32 values"));
        }
        Ok(self.raw.new_values(types))
    }

    fn define(&mut self, scope: &mut Scope, v: Value, c: &Cursor<'a>) -> Result<()> {
        scope.define(v, c)?;
        self.undefined -= 1;
        Ok(())
    }
}
