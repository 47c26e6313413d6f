//! A kernel as an LLVM module of two functions.
//!
//! `NAME.block(params…, buffers…, scalars…, grid ids…)` runs one block; every pointer is `noalias`.
//! `NAME(ptr params, ptr scalars, ptr scratch, i64 first, i64 last)` runs the blocks `first..last`:
//! `params` are the tensors' addresses, `scalars` f32 values, `scratch` the memory of one thread that the
//! buffers lie in.

use std::collections::{BTreeMap, BTreeSet};

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, PointerValue};

use super::LlvmError;
use super::code::{Code, LANES, Res};
use super::group::{Part, parts};
use crate::tile::{
    Affine, Bound, Buffer, BufferId, GridId, Kernel, Loop, ParamId, Ranges, ScalarId, Step, Var, div_ceil,
};

/// Alignment of buffers in bytes; a vector of [`LANES`] f32.
pub(super) const ALIGN: i64 = 64;

/// Elements from one row to the next in the scratch memory of the CPU. A tile of one column is dense.
pub(super) fn row_elements(buffer: &Buffer) -> i64 {
    if buffer.cols == 1 { 1 } else { div_ceil(buffer.cols, i64::from(LANES)) * i64::from(LANES) }
}

/// Byte offset of every buffer in the scratch memory, and its size.
pub(super) fn scratch_layout(kernel: &Kernel) -> (Vec<i64>, i64) {
    let mut at = 0;
    let mut offsets = Vec::new();
    for buffer in &kernel.buffers {
        offsets.push(at);
        // Whole vectors are read and written at the end of a dense column, too.
        let elements = div_ceil(buffer.rows * row_elements(buffer), i64::from(LANES)) * i64::from(LANES);
        at += div_ceil(elements * buffer.dtype.bytes(), ALIGN) * ALIGN;
    }
    (offsets, at)
}

/// Lowers a verified kernel. `target` gives the CPU's name and features for the functions' attributes.
pub(super) fn lower<'c>(ctx: &'c Context, kernel: &Kernel, target: (&str, &str)) -> Res<Code<'c>> {
    let code = Code::new(ctx, &kernel.name);
    let block = declare_block(&code, kernel);
    entry(&code, kernel, block, target)?;
    attributes(&code, block, target);
    let start = ctx.append_basic_block(block, "start");
    code.b.position_at_end(start);
    let mut lowering = Lowering::new(&code, kernel, block)?;
    lowering.steps(&kernel.body, &BTreeSet::new())?;
    code.b.build_return(None)?;
    code.module.verify().map_err(|e| LlvmError::Internal(e.to_string()))?;
    Ok(code)
}

fn attributes(code: &Code<'_>, f: FunctionValue<'_>, (cpu, features): (&str, &str)) {
    let kind = |name| code.ctx.create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0);
    f.add_attribute(AttributeLoc::Function, kind("nounwind"));
    f.add_attribute(AttributeLoc::Function, code.ctx.create_string_attribute("target-cpu", cpu));
    f.add_attribute(AttributeLoc::Function, code.ctx.create_string_attribute("target-features", features));
}

fn declare_block<'c>(code: &Code<'c>, kernel: &Kernel) -> FunctionValue<'c> {
    let pointers = kernel.params.len() + kernel.buffers.len();
    let mut types: Vec<BasicMetadataTypeEnum<'c>> = vec![code.ptr.into(); pointers];
    types.resize(types.len() + kernel.scalars.len(), code.f32t.into());
    types.resize(types.len() + kernel.grid.len(), code.i64t.into());
    let ty = code.ctx.void_type().fn_type(&types, false);
    let f = code.module.add_function(&format!("{}.block", kernel.name), ty, Some(Linkage::Internal));
    let kind = |name| code.ctx.create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0);
    for n in 0..pointers {
        f.add_attribute(AttributeLoc::Param(u32::try_from(n).unwrap_or(u32::MAX)), kind("noalias"));
    }
    f.add_attribute(AttributeLoc::Function, kind("noinline"));
    f
}

/// The function that is called from outside.
fn entry<'c>(code: &Code<'c>, kernel: &Kernel, block: FunctionValue<'c>, target: (&str, &str)) -> Res<()> {
    let types = [code.ptr.into(), code.ptr.into(), code.ptr.into(), code.i64t.into(), code.i64t.into()];
    let ty = code.ctx.void_type().fn_type(&types, false);
    let f = code.module.add_function(&kernel.name, ty, None);
    attributes(code, f, target);
    let start = code.ctx.append_basic_block(f, "start");
    code.b.position_at_end(start);
    let pointer = |n| argument(f, n).map(BasicValueEnum::into_pointer_value);
    let (params, scalars, scratch) = (pointer(0)?, pointer(1)?, pointer(2)?);
    let (first, last) = (argument(f, 3)?.into_int_value(), argument(f, 4)?.into_int_value());
    let mut args: Vec<BasicMetadataValueEnum> = Vec::new();
    for n in 0..kernel.params.len() {
        let slot = code.at(code.ptr, params, code.int(n as i64))?;
        args.push(code.load(code.ptr, slot, 8)?.into());
    }
    for offset in scratch_layout(kernel).0 {
        args.push(code.at(code.ctx.i8_type(), scratch, code.int(offset))?.into());
    }
    for n in 0..kernel.scalars.len() {
        let slot = code.at(code.f32t, scalars, code.int(n as i64))?;
        args.push(code.load(code.f32t, slot, 4)?.into());
    }
    let l = code.open(first, last, 1, &[])?;
    let mut rest = l.var;
    let mut coordinates = Vec::new();
    for dim in kernel.grid.iter().rev() {
        let size = code.int(dim.size);
        coordinates.push(code.b.build_int_signed_rem(rest, size, "")?);
        rest = code.b.build_int_signed_div(rest, size, "")?;
    }
    args.extend(coordinates.into_iter().rev().map(BasicMetadataValueEnum::from));
    code.b.build_call(block, &args, "")?;
    code.close(l, &[])?;
    code.b.build_return(None)?;
    Ok(())
}

fn argument(f: FunctionValue<'_>, n: usize) -> Res<BasicValueEnum<'_>> {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    f.get_nth_param(n).ok_or_else(|| LlvmError::Internal(format!("no argument {n}")))
}

/// State while one block's code is written.
pub(super) struct Lowering<'a, 'c> {
    pub code: &'a Code<'c>,
    pub kernel: &'a Kernel,
    pub ranges: Ranges,
    params: Vec<PointerValue<'c>>,
    buffers: Vec<PointerValue<'c>>,
    scalars: Vec<BasicValueEnum<'c>>,
    vars: BTreeMap<Var, IntValue<'c>>,
}

impl<'a, 'c> Lowering<'a, 'c> {
    fn new(code: &'a Code<'c>, kernel: &'a Kernel, block: FunctionValue<'c>) -> Res<Lowering<'a, 'c>> {
        let mut args = block.get_params().into_iter();
        let params: Vec<_> =
            args.by_ref().take(kernel.params.len()).map(BasicValueEnum::into_pointer_value).collect();
        let buffers: Vec<_> =
            args.by_ref().take(kernel.buffers.len()).map(BasicValueEnum::into_pointer_value).collect();
        let scalars: Vec<_> = args.by_ref().take(kernel.scalars.len()).collect();
        let mut vars = BTreeMap::new();
        for (n, value) in args.enumerate() {
            let dim = GridId(u32::try_from(n).unwrap_or(u32::MAX));
            vars.insert(Var::Grid(dim), value.into_int_value());
        }
        let ranges = Ranges::new(&kernel.grid);
        Ok(Lowering { code, kernel, ranges, params, buffers, scalars, vars })
    }

    fn steps(&mut self, steps: &'a [Step], behind: &BTreeSet<BufferId>) -> Res<()> {
        for part in parts(self.kernel, steps, behind) {
            match part {
                Part::Group(group) => self.group(&group)?,
                Part::Loop(l) => self.for_loop(l)?,
                Part::Matmul(step) => self.matmul(step)?,
            }
        }
        Ok(())
    }

    fn for_loop(&mut self, l: &'a Loop) -> Res<()> {
        let (start, end) = (self.affine(&l.start)?, self.bound(&l.end)?);
        let open = self.code.open(start, end, l.step, &[])?;
        let var = Var::Loop(l.id);
        self.vars.insert(var, open.var);
        self.ranges.push(l);
        self.steps(&l.body, &l.carries.iter().copied().collect())?;
        self.ranges.pop();
        self.vars.remove(&var);
        self.code.close(open, &[])?;
        Ok(())
    }

    /// The value of an affine function, i64.
    pub fn affine(&self, f: &Affine) -> Res<IntValue<'c>> {
        let mut sum = self.code.int(f.offset());
        for &(var, c) in f.terms() {
            let value = self.vars.get(&var).copied();
            let value = value.ok_or_else(|| LlvmError::Internal(format!("{var} has no value")))?;
            sum = self.code.iadd64(sum, self.code.imul64(value, self.code.int(c))?)?;
        }
        Ok(sum)
    }

    /// The value of a bound, i64.
    pub fn bound(&self, bound: &Bound) -> Res<IntValue<'c>> {
        let mut least = None;
        for end in bound.ends() {
            let end = self.affine(end)?;
            least = Some(match least {
                None => end,
                Some(other) => self.code.min64(other, end)?,
            });
        }
        least.ok_or_else(|| LlvmError::Internal("bound without an end".to_owned()))
    }

    pub fn param(&self, id: ParamId) -> PointerValue<'c> {
        self.params[id.0 as usize]
    }

    pub fn buffer(&self, id: BufferId) -> PointerValue<'c> {
        self.buffers[id.0 as usize]
    }

    pub fn scalar(&self, id: ScalarId) -> BasicValueEnum<'c> {
        self.scalars[id.0 as usize]
    }
}
