//! A thin layer over LLVM's builder: vectors of [`LANES`] lanes, loops, and IEEE operations without
//! fast-math flags.

use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicType, BasicTypeEnum, FloatType, IntType, PointerType, VectorType};
use inkwell::values::{
    BasicValue, BasicValueEnum, FunctionValue, IntValue, PhiValue, PointerValue, VectorValue,
};
use inkwell::{AddressSpace, FloatPredicate, IntPredicate};

use super::LlvmError;
use crate::tile::DType;

/// Lanes of every vector operation, on every CPU: partial results of reductions are kept per lane, so
/// this number is part of the numeric meaning of the CPU back end.
pub(super) const LANES: u32 = 16;

pub(super) type Res<T> = Result<T, LlvmError>;
pub(super) type Vector<'c> = VectorValue<'c>;

/// The module under construction and the types used everywhere.
pub(super) struct Code<'c> {
    pub ctx: &'c Context,
    pub module: Module<'c>,
    pub b: Builder<'c>,
    pub f32t: FloatType<'c>,
    pub i16t: IntType<'c>,
    pub i32t: IntType<'c>,
    pub i64t: IntType<'c>,
    pub ptr: PointerType<'c>,
    pub f32v: VectorType<'c>,
    pub i16v: VectorType<'c>,
    pub i32v: VectorType<'c>,
}

/// A counted loop that is being filled. See [`Code::open`].
pub(super) struct OpenLoop<'c> {
    /// The variable, i64.
    pub var: IntValue<'c>,
    phi: PhiValue<'c>,
    head: BasicBlock<'c>,
    exit: BasicBlock<'c>,
    step: IntValue<'c>,
    /// Lane accumulators: their phis at the loop's head.
    carried: Vec<PhiValue<'c>>,
}

impl<'c> OpenLoop<'c> {
    /// The carried vectors' values in this iteration.
    pub fn carried(&self) -> Vec<Vector<'c>> {
        self.carried.iter().map(|phi| phi.as_basic_value().into_vector_value()).collect()
    }
}

impl<'c> Code<'c> {
    pub fn new(ctx: &'c Context, name: &str) -> Code<'c> {
        let (f32t, i32t, i16t) = (ctx.f32_type(), ctx.i32_type(), ctx.i16_type());
        Code {
            ctx,
            module: ctx.create_module(name),
            b: ctx.create_builder(),
            f32t,
            i16t,
            i32t,
            i64t: ctx.i64_type(),
            ptr: ctx.ptr_type(AddressSpace::default()),
            f32v: f32t.vec_type(LANES),
            i16v: i16t.vec_type(LANES),
            i32v: i32t.vec_type(LANES),
        }
    }

    /// Vector type of a tile's elements; 16-bit floats are handled as their bits.
    pub fn vector_type(&self, dtype: DType) -> VectorType<'c> {
        match dtype {
            DType::F32 => self.f32v,
            DType::I32 => self.i32v,
            DType::F16 | DType::BF16 => self.i16v,
        }
    }

    /// Scalar type of a tile's elements.
    pub fn scalar_type(&self, dtype: DType) -> BasicTypeEnum<'c> {
        match dtype {
            DType::F32 => self.f32t.into(),
            DType::I32 => self.i32t.into(),
            DType::F16 | DType::BF16 => self.i16t.into(),
        }
    }

    pub fn int(&self, value: i64) -> IntValue<'c> {
        self.i64t.const_int(value as u64, true)
    }

    /// The f32 literal in every lane.
    pub fn f32s(&self, value: f32) -> Vector<'c> {
        let lane = self.f32t.const_float(f64::from(value));
        VectorType::const_vector(&vec![lane; LANES as usize])
    }

    pub fn i32s(&self, value: i32) -> Vector<'c> {
        let lane = self.i32t.const_int(u64::from(value as u32), false);
        VectorType::const_vector(&vec![lane; LANES as usize])
    }

    /// `0, 1, …` as i32.
    pub fn iota(&self) -> Vector<'c> {
        let lanes: Vec<_> = (0..LANES).map(|n| self.i32t.const_int(u64::from(n), false)).collect();
        VectorType::const_vector(&lanes)
    }

    /// The scalar in every lane.
    pub fn splat(&self, value: BasicValueEnum<'c>) -> Res<Vector<'c>> {
        let ty = match value.get_type() {
            BasicTypeEnum::FloatType(t) => t.vec_type(LANES),
            BasicTypeEnum::IntType(t) => t.vec_type(LANES),
            other => return Err(LlvmError::Internal(format!("splat of {other}"))),
        };
        let first = self.b.build_insert_element(ty.get_poison(), value, self.i32t.const_zero(), "lane")?;
        Ok(self.b.build_shuffle_vector(first, ty.get_poison(), self.i32v.const_zero(), "splat")?)
    }

    pub fn fadd(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_float_add(a, b, "")?)
    }

    pub fn fsub(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_float_sub(a, b, "")?)
    }

    pub fn fmul(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_float_mul(a, b, "")?)
    }

    pub fn fdiv(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_float_div(a, b, "")?)
    }

    pub fn fneg(&self, a: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_float_neg(a, "")?)
    }

    pub fn iadd(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_int_add(a, b, "")?)
    }

    pub fn isub(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_int_sub(a, b, "")?)
    }

    pub fn and(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_and(a, b, "")?)
    }

    pub fn or(&self, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_or(a, b, "")?)
    }

    pub fn shl(&self, a: Vector<'c>, by: i32) -> Res<Vector<'c>> {
        Ok(self.b.build_left_shift(a, self.i32s(by), "")?)
    }

    /// Shifts right, filling with zeros.
    pub fn shr(&self, a: Vector<'c>, by: i32) -> Res<Vector<'c>> {
        Ok(self.b.build_right_shift(a, self.i32s(by), false, "")?)
    }

    /// Shifts right, filling with the sign.
    pub fn sar(&self, a: Vector<'c>, by: i32) -> Res<Vector<'c>> {
        Ok(self.b.build_right_shift(a, self.i32s(by), true, "")?)
    }

    pub fn icmp(&self, op: IntPredicate, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_int_compare(op, a, b, "")?)
    }

    pub fn fcmp(&self, op: FloatPredicate, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_float_compare(op, a, b, "")?)
    }

    pub fn select(&self, mask: Vector<'c>, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_select(mask, a, b, "")?.into_vector_value())
    }

    /// The same bits as lanes of another type of the same width.
    pub fn cast(&self, a: Vector<'c>, to: VectorType<'c>) -> Res<Vector<'c>> {
        Ok(self.b.build_bit_cast(a, to, "")?.into_vector_value())
    }

    /// Calls an overloaded intrinsic on vectors of one type.
    pub fn intrinsic(&self, name: &str, args: &[Vector<'c>]) -> Res<Vector<'c>> {
        let ty: BasicTypeEnum = args.first().map_or(self.f32v.into(), |v| v.get_type().into());
        let args: Vec<BasicValueEnum> = args.iter().map(|v| (*v).into()).collect();
        Ok(self.call(name, &[ty], &args)?.into_vector_value())
    }

    /// Calls an intrinsic that gives a value.
    pub fn call(
        &self,
        name: &str,
        overload: &[BasicTypeEnum<'c>],
        args: &[BasicValueEnum<'c>],
    ) -> Res<BasicValueEnum<'c>> {
        let value = self.call_any(name, overload, args)?;
        value.ok_or_else(|| LlvmError::Internal(format!("{name} gives no value")))
    }

    /// Calls an intrinsic.
    pub fn call_any(
        &self,
        name: &str,
        overload: &[BasicTypeEnum<'c>],
        args: &[BasicValueEnum<'c>],
    ) -> Res<Option<BasicValueEnum<'c>>> {
        let declared = Intrinsic::find(name).and_then(|i| i.get_declaration(&self.module, overload));
        let f = declared.ok_or_else(|| LlvmError::Internal(format!("no intrinsic {name}")))?;
        let args: Vec<_> = args.iter().map(|a| (*a).into()).collect();
        Ok(self.b.build_call(f, &args, "")?.try_as_basic_value().basic())
    }

    /// Address of element `index` of an array of `ty`.
    pub fn at(
        &self,
        ty: impl BasicType<'c>,
        base: PointerValue<'c>,
        index: IntValue<'c>,
    ) -> Res<PointerValue<'c>> {
        // SAFETY: only builds the instruction; that it stays in bounds is what the verifier of the
        // kernel IR proves.
        Ok(unsafe { self.b.build_in_bounds_gep(ty, base, &[index], "")? })
    }

    /// Loads with an alignment in bytes.
    pub fn load(
        &self,
        ty: impl BasicType<'c>,
        from: PointerValue<'c>,
        align: u32,
    ) -> Res<BasicValueEnum<'c>> {
        let value = self.b.build_load(ty, from, "")?;
        if let Some(i) = value.as_instruction_value() {
            i.set_alignment(align).map_err(|e| LlvmError::Internal(e.to_string()))?;
        }
        Ok(value)
    }

    /// Stores with an alignment in bytes.
    pub fn store(&self, to: PointerValue<'c>, value: impl BasicValue<'c>, align: u32) -> Res<()> {
        let i = self.b.build_store(to, value)?;
        i.set_alignment(align).map_err(|e| LlvmError::Internal(e.to_string()))
    }

    pub fn iadd64(&self, a: IntValue<'c>, b: IntValue<'c>) -> Res<IntValue<'c>> {
        Ok(self.b.build_int_nsw_add(a, b, "")?)
    }

    pub fn isub64(&self, a: IntValue<'c>, b: IntValue<'c>) -> Res<IntValue<'c>> {
        Ok(self.b.build_int_nsw_sub(a, b, "")?)
    }

    pub fn imul64(&self, a: IntValue<'c>, b: IntValue<'c>) -> Res<IntValue<'c>> {
        Ok(self.b.build_int_nsw_mul(a, b, "")?)
    }

    /// The lesser of two signed i64.
    pub fn min64(&self, a: IntValue<'c>, b: IntValue<'c>) -> Res<IntValue<'c>> {
        let less = self.b.build_int_compare(IntPredicate::SLT, a, b, "")?;
        Ok(self.b.build_select(less, a, b, "")?.into_int_value())
    }

    /// Opens `for var in start..end step step`, carrying vectors that start as `initial`. The code that
    /// follows is its body, until [`close`](Self::close).
    pub fn open(
        &self,
        start: IntValue<'c>,
        end: IntValue<'c>,
        step: i64,
        initial: &[Vector<'c>],
    ) -> Res<OpenLoop<'c>> {
        let before = self.block()?;
        let function = self.function()?;
        let head = self.ctx.append_basic_block(function, "loop");
        let body = self.ctx.append_basic_block(function, "body");
        let exit = self.ctx.append_basic_block(function, "exit");
        self.b.build_unconditional_branch(head)?;
        self.b.position_at_end(head);
        let phi = self.b.build_phi(self.i64t, "i")?;
        phi.add_incoming(&[(&start, before)]);
        let mut carried = Vec::new();
        for value in initial {
            let phi = self.b.build_phi(value.get_type(), "acc")?;
            phi.add_incoming(&[(value, before)]);
            carried.push(phi);
        }
        let var = phi.as_basic_value().into_int_value();
        let more = self.b.build_int_compare(IntPredicate::SLT, var, end, "")?;
        self.b.build_conditional_branch(more, body, exit)?;
        self.b.position_at_end(body);
        Ok(OpenLoop { var, phi, head, exit, step: self.int(step), carried })
    }

    /// Ends the loop's body with the carried vectors' next values; gives their values behind the loop.
    pub fn close(&self, l: OpenLoop<'c>, next: &[Vector<'c>]) -> Res<Vec<Vector<'c>>> {
        let last = self.block()?;
        let var = self.iadd64(l.var, l.step)?;
        l.phi.add_incoming(&[(&var, last)]);
        for (phi, value) in l.carried.iter().zip(next) {
            phi.add_incoming(&[(value, last)]);
        }
        self.b.build_unconditional_branch(l.head)?;
        self.b.position_at_end(l.exit);
        Ok(l.carried())
    }

    /// Runs `then` under a condition.
    pub fn when(&self, condition: IntValue<'c>, then: impl FnOnce() -> Res<()>) -> Res<()> {
        let function = self.function()?;
        let inside = self.ctx.append_basic_block(function, "then");
        let behind = self.ctx.append_basic_block(function, "endif");
        self.b.build_conditional_branch(condition, inside, behind)?;
        self.b.position_at_end(inside);
        then()?;
        self.b.build_unconditional_branch(behind)?;
        self.b.position_at_end(behind);
        Ok(())
    }

    fn block(&self) -> Res<BasicBlock<'c>> {
        self.b.get_insert_block().ok_or_else(|| LlvmError::Internal("no insertion point".to_owned()))
    }

    fn function(&self) -> Res<FunctionValue<'c>> {
        let block = self.block()?;
        block.get_parent().ok_or_else(|| LlvmError::Internal("block outside a function".to_owned()))
    }
}
