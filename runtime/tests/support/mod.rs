//! A plain lowering for tests: every op is interpreted, nothing is reused, collectives have a stream of their
//! own and waits on both sides.
#![allow(dead_code, reason = "each test binary uses a part")]

use msc_ir::module::AxisId;
use msc_ir::ops::collective::Axes;
use msc_ir::program::*;
use msc_ir::{Graph, LocId, Module, Op, TensorType, ValueId};
use msc_runtime::plan::{Kernel, Meta, Plan, PlanSource, encode};
use std::sync::Arc;

pub const COMPUTE: StreamId = StreamId(0);
pub const COMMUNICATION: StreamId = StreamId(1);

/// A program being made.
pub struct Builder {
    pub program: Program,
    /// For each buffer the instruction that wrote it last.
    writer: Vec<Option<InstructionId>>,
}

impl Builder {
    pub fn new(module: &Module) -> Builder {
        let program = Program {
            class: RankClass::default(),
            mesh: module.mesh.clone(),
            entry: module.entries[0].clone(),
            streams: vec![StreamKind::Compute, StreamKind::Communication],
            communicators: Vec::new(),
            buffers: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            instructions: Vec::new(),
            arena_bytes: 0,
        };
        Builder { program, writer: Vec::new() }
    }

    /// A new buffer at the end of the arena.
    pub fn buffer(&mut self, ty: &TensorType, name: &str) -> BufferId {
        let at = self.program.arena_bytes;
        self.program.arena_bytes += (ty.bytes() as u64).div_ceil(ALIGNMENT) * ALIGNMENT;
        self.place(ty, Placement::Arena(at), name)
    }

    pub fn place(&mut self, ty: &TensorType, placement: Placement, name: &str) -> BufferId {
        self.program.buffers.push(Buffer { ty: ty.clone(), placement, name: name.into() });
        self.writer.push(None);
        BufferId(self.program.buffers.len() as u32 - 1)
    }

    pub fn communicator(&mut self, axes: &[AxisId]) -> CommunicatorId {
        let axes: Axes = axes.into();
        let known = self.program.communicators.iter().position(|c| c.axes == axes);
        let n = known.unwrap_or_else(|| {
            self.program.communicators.push(Communicator { axes });
            self.program.communicators.len() - 1
        });
        CommunicatorId(n as u32)
    }

    /// Adds an instruction, after waits for what other streams wrote.
    pub fn push(
        &mut self,
        stream: StreamId,
        action: Action,
        reads: &[BufferId],
        writes: &[BufferId],
        loc: LocId,
    ) -> InstructionId {
        for b in reads.iter().chain(writes) {
            if let Some(w) = self.writer[b.0 as usize]
                && self.program.instructions[w.0 as usize].stream != stream
            {
                self.raw(stream, Action::Wait(w), &[], &[], loc);
            }
        }
        self.raw(stream, action, reads, writes, loc)
    }

    pub fn raw(
        &mut self,
        stream: StreamId,
        action: Action,
        reads: &[BufferId],
        writes: &[BufferId],
        loc: LocId,
    ) -> InstructionId {
        let id = InstructionId(self.program.instructions.len() as u32);
        for &b in writes {
            self.writer[b.0 as usize] = Some(id);
        }
        let (reads, writes) = (reads.into(), writes.into());
        self.program.instructions.push(Instruction { stream, action, reads, writes, loc });
        id
    }
}

/// Lowers the first entry of a module for one rank class of all ranks.
pub fn lower(module: &Module) -> Program {
    lower_with(module, false)
}

/// As [`lower`]; with `kernel`, kernel 0 copies the first op's result, and the copy is used in its place.
pub fn lower_with(module: &Module, mut kernel: bool) -> Program {
    let entry = &module.entries[0];
    let g: &Graph = module.graph(entry.graph);
    let mut b = Builder::new(module);
    let mut buffer_of: Vec<Option<BufferId>> = vec![None; g.value_count()];
    for (&v, info) in g.params().iter().zip(&entry.params) {
        let buffer = b.buffer(g.ty(v), &info.name);
        buffer_of[v.0 as usize] = Some(buffer);
        b.program.inputs.push(buffer);
    }
    let of = |map: &[Option<BufferId>], v: ValueId| map[v.0 as usize].expect("defined before its use");
    for (_, o) in g.ops() {
        let name = module.locations.get(o.loc).name.clone();
        if let Op::Constant(c) = &o.op {
            let v = o.results[0];
            buffer_of[v.0 as usize] = Some(b.place(g.ty(v), Placement::Constant(c.id), &name));
            continue;
        }
        let reads: Vec<BufferId> = o.operands.iter().map(|&v| of(&buffer_of, v)).collect();
        let writes: Vec<BufferId> = o.results.iter().map(|&v| b.buffer(g.ty(v), &name)).collect();
        for (&v, &w) in o.results.iter().zip(&writes) {
            buffer_of[v.0 as usize] = Some(w);
        }
        match &o.op {
            Op::Collective(c) if !c.axes().is_empty() => {
                let communicator = b.communicator(c.axes());
                let action = Action::Collective { communicator, op: o.op.clone() };
                b.push(COMMUNICATION, action, &reads, &writes, o.loc);
            }
            op => {
                b.push(COMPUTE, Action::Interpret(op.clone().into()), &reads, &writes, o.loc);
                if std::mem::take(&mut kernel) {
                    let copy = b.buffer(g.ty(o.results[0]), "copy");
                    b.push(COMPUTE, Action::Kernel(KernelId(0)), &writes, &[copy], o.loc);
                    buffer_of[o.results[0].0 as usize] = Some(copy);
                }
            }
        }
    }
    b.program.outputs = g.results().iter().map(|&v| of(&buffer_of, v)).collect();
    b.program
}

pub fn meta() -> Meta {
    Meta {
        msc_version: "0.1.0".into(),
        source_hash: [7; 32],
        options: vec![("tp".into(), "2".into())],
        ..Meta::default()
    }
}

/// A plan's bytes.
pub fn bytes_of(module: &Module, programs: &[Program], kernels: &[Kernel]) -> Vec<u8> {
    let source = PlanSource { meta: &meta(), module, programs, kernels };
    encode(&source).unwrap_or_else(|e| panic!("the plan is right: {e}"))
}

pub fn plan_of(module: &Module, programs: &[Program], kernels: &[Kernel]) -> Arc<Plan> {
    let bytes = bytes_of(module, programs, kernels);
    Arc::new(Plan::from_bytes(&bytes).unwrap_or_else(|e| panic!("the plan is read: {e}")))
}

/// Plain training of one matrix, split over two ranks: `w` by columns, the gradient's norm reduced, `m` a
/// moment; a definition, dense and splat constants, and a collective along the last dimension.
pub const STEP: &str = r#"module @step mesh [tp = 2]

graph @scaled(%0: f32[4,3], %1: f32[]) {
  %2 = broadcast_in_dim %1 {dims = [], shape = [4, 3]} : f32[4,3]
  %3 = multiply %0, %2 : f32[4,3]
  return %3
}

graph @main(%0: f32[4,3], %1: f32[4,3], %2: f32[2,4], %3: f32[], %4: i32[]) {
  %5 = dot_general %2, %0 {lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0], dtype = f32} : f32[2,3] loc("step.mlir":7:3, "hidden")
  %6 = all_gather %5 {axes = [0], dim = 1} : f32[2,6] loc("step.mlir":8:3, "gathered")
  %7 = constant {value = dense f32[2,6] 0x0000803f0000004000004040000080400000a0400000c0400000003f0000803e0000003e0000803d0000003d0000803c} : f32[2,6]
  %8 = subtract %6, %7 : f32[2,6]
  %9 = multiply %8, %8 : f32[2,6]
  %10 = reduce %9 {dims = [0, 1], monoid = sum} : f32[] loc("step.mlir":11:3, "loss")
  %11 = axis_index {axis = 0} : i32[]
  %12 = constant {value = splat i32[] 0} : i32[]
  %13 = constant {value = splat i32[] 3} : i32[]
  %14 = multiply %11, %13 : i32[]
  %15 = dynamic_slice %8, %12, %14 {sizes = [2, 3]} : f32[2,3]
  %16 = dot_general %2, %15 {lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0], dtype = f32} : f32[4,3] loc("step.mlir":16:3, "gradient")
  %17 = multiply %16, %16 : f32[4,3]
  %18 = reduce %17 {dims = [0, 1], monoid = sum} : f32[]
  %19 = all_reduce %18 {axes = [0], monoid = sum} : f32[] loc("step.mlir":19:3, "norm")
  %20 = rsqrt %19 : f32[]
  %21 = multiply %20, %3 : f32[]
  %22 = call %16, %21 {graph = @scaled} : f32[4,3]
  %23 = constant {value = splat f32[4,3] 0.5} : f32[4,3]
  %24 = multiply %1, %23 : f32[4,3]
  %25 = add %24, %22 : f32[4,3] loc("step.mlir":25:3, "m")
  %26 = subtract %0, %25 : f32[4,3] loc("step.mlir":26:3, "w")
  %27 = constant {value = splat i32[] 1} : i32[]
  %28 = add %4, %27 : i32[]
  return %10, %26, %25, %28
}

entry "train" @main {
  param "w" alias 1 sharding [[], [0]]
  param "m" alias 2 sharding [[], [0]]
  param "x"
  param "lr"
  param "count" alias 3
  result "loss"
  result "w" sharding [[], [0]]
  result "m" sharding [[], [0]]
  result "count"
}
"#;

/// Global inputs of [`STEP`].
pub fn step_inputs() -> Vec<msc_ir::Tensor> {
    use msc_ir::{DType, Tensor};
    let f = |shape: &[usize], scale: f64, phase: f64| {
        let ty = TensorType::new(DType::F32, shape.iter().copied());
        let v: Vec<f64> = (0..ty.elements()).map(|i| scale * (i as f64 * 1.7 + phase).sin()).collect();
        Tensor::from_f64s(&ty, &v)
    };
    vec![
        f(&[4, 6], 0.3, 0.1),
        f(&[4, 6], 0.01, 0.7),
        f(&[2, 4], 1.0, 1.3),
        Tensor::scalar(DType::F32, 0.05),
        Tensor::scalar(DType::I32, 3.0),
    ]
}
