//! Emission of instructions.

use super::{Argument, Kernels};
use crate::error::{PassError, Result};
use msc_ir::constant::ConstId;
use msc_ir::graph::{OpData, OpId, ValueId};
use msc_ir::ops::fused::Fused;
use msc_ir::ops::while_loop::trip_count;
use msc_ir::program::{
    Action, Buffer, BufferId, Communicator, CommunicatorId, Instruction, InstructionId, Placement, Program,
    RankClass, StreamId, StreamKind,
};
use msc_ir::{Graph, GraphId, LocId, Module, Op, Operation, TensorType};
use std::collections::BTreeMap;

/// Ops that one loop may become. A step of 128 layers of 1,000 ops each is far below it, and a plan beyond it would
/// take gigabytes.
const MAX_UNROLLED: u64 = 1 << 21;

const COMPUTE: StreamId = StreamId(0);
const COMMUNICATION: StreamId = StreamId(1);

/// Who touched a buffer, by position in the instruction list.
#[derive(Clone, Default)]
struct Touched {
    writer: Option<usize>,
    readers: Vec<usize>,
}

pub(super) struct Emitter<'a> {
    module: &'a Module,
    kernels: &'a Kernels,
    program: Program,
    touched: Vec<Touched>,
    constants: BTreeMap<ConstId, BufferId>,
    /// `seen[s][t]`: instructions of stream `t` up to this position are complete for stream `s`.
    seen: Vec<Vec<usize>>,
    /// The same at the completion of each instruction, one number for each stream.
    done: Vec<usize>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(module: &'a Module, kernels: &'a Kernels) -> Result<Emitter<'a>> {
        let entry = module.entry()?.clone();
        let communicates = module
            .graphs()
            .any(|(_, g)| g.ops().any(|(_, o)| matches!(&o.op, Op::Collective(c) if !c.axes().is_empty())));
        let mut streams = vec![StreamKind::Compute];
        if communicates {
            streams.push(StreamKind::Communication);
        }
        let n = streams.len();
        Ok(Emitter {
            module,
            kernels,
            program: Program {
                class: RankClass::default(),
                mesh: module.mesh.clone(),
                entry,
                streams,
                communicators: Vec::new(),
                buffers: Vec::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                instructions: Vec::new(),
                arena_bytes: 0,
            },
            touched: Vec::new(),
            constants: BTreeMap::new(),
            seen: vec![vec![0; n]; n],
            done: Vec::new(),
        })
    }

    pub(super) fn run(mut self) -> Result<Program> {
        let module = self.module;
        let entry = self.program.entry.clone();
        let g = module.graph(entry.graph);
        for (info, &v) in entry.params.iter().zip(g.params()) {
            let b = self.buffer(g.ty(v).clone(), info.name.clone());
            self.program.inputs.push(b);
        }
        let inputs = self.program.inputs.clone();
        let outputs = self.graph(entry.graph, &inputs)?;
        for (&b, info) in outputs.iter().zip(&entry.results) {
            if !self.program.inputs.contains(&b) {
                self.program.buffers[b.0 as usize].name = info.name.clone();
            }
        }
        self.program.outputs = outputs;
        // The step ends when every stream has: the compute stream waits for what is still under way.
        for stream in 1..self.program.streams.len() {
            let last = self.program.instructions.iter().rposition(|i| i.stream.0 as usize == stream);
            if let Some(at) = last {
                self.wait(COMPUTE, at);
            }
        }
        super::in_place::run(&mut self.program);
        Ok(self.program)
    }

    fn buffer(&mut self, ty: TensorType, name: String) -> BufferId {
        let id = BufferId(self.program.buffers.len() as u32);
        self.program.buffers.push(Buffer { ty, placement: Placement::Arena(0), name });
        self.touched.push(Touched::default());
        id
    }

    fn graph(&mut self, id: GraphId, inputs: &[BufferId]) -> Result<Vec<BufferId>> {
        let module = self.module;
        let g = module.graph(id);
        let mut at: Vec<Option<BufferId>> = vec![None; g.value_count()];
        for (&p, &b) in g.params().iter().zip(inputs) {
            at[p.0 as usize] = Some(b);
        }
        let lost = |v: ValueId| PassError::Broken {
            pass: "schedule",
            message: format!("@{}: value {} has no buffer", g.name, v.0),
        };
        for (op, data) in g.ops() {
            let reads: Vec<BufferId> = data
                .operands
                .iter()
                .map(|&v| at[v.0 as usize].ok_or_else(|| lost(v)))
                .collect::<Result<_>>()?;
            let writes = match &data.op {
                Op::Call(c) => self.graph(c.graph, &reads)?,
                // Without a kernel of its own it is the ops that define it.
                Op::Fused(f) if !self.kernels.contains_key(&f.definition) => {
                    self.graph(f.definition, &reads)?
                }
                Op::Constant(c) => vec![self.constant(c.id)],
                Op::While(w) if self.needs_instructions(w.body) => self.unroll(g, op, w.body, reads)?,
                other if other.callees().iter().any(|&c| self.communicates(c)) => {
                    return Err(PassError::Layout {
                        message: format!(
                            "{} at {} holds a collective that not every rank may reach",
                            other.name(),
                            self.module.locations.describe(data.loc)
                        ),
                        help: "choose a layout that does not split what it works on".into(),
                    });
                }
                _ => self.op(g, data, &reads)?,
            };
            for (&r, b) in data.results.iter().zip(writes) {
                at[r.0 as usize] = Some(b);
            }
        }
        g.results().iter().map(|&v| at[v.0 as usize].ok_or_else(|| lost(v))).collect()
    }

    /// Whether a graph holds a collective, itself or in what it runs.
    fn communicates(&self, id: GraphId) -> bool {
        self.module.graph(id).ops().any(|(_, o)| {
            matches!(&o.op, Op::Collective(c) if !c.axes().is_empty())
                || o.op.callees().iter().any(|&c| self.communicates(c))
        })
    }

    /// Whether a loop's body holds what the interpreter cannot do: collectives, and kernels.
    fn needs_instructions(&self, id: GraphId) -> bool {
        self.module.graph(id).ops().any(|(_, o)| match &o.op {
            Op::Collective(c) => !c.axes().is_empty(),
            Op::Fused(f) => self.kernels.contains_key(&f.definition),
            op => op.callees().iter().any(|&c| self.needs_instructions(c)),
        })
    }

    /// A loop of known length as the instructions of its trips.
    fn unroll(
        &mut self,
        g: &Graph,
        op: OpId,
        body: GraphId,
        carries: Vec<BufferId>,
    ) -> Result<Vec<BufferId>> {
        let place = || self.module.locations.describe(g.op(op).loc);
        let Some(trips) = trip_count(self.module, g, op) else {
            if self.communicates(body) {
                return Err(PassError::Layout {
                    message: format!(
                        "the loop at {} communicates, and its number of trips is not known",
                        place()
                    ),
                    help: "let the loop count from a constant to a constant".into(),
                });
            }
            let data = g.op(op);
            return self.op(g, data, &carries);
        };
        let ops = self.module.graph(body).order().len() as u64;
        if trips.saturating_mul(ops.max(1)) > MAX_UNROLLED {
            return Err(PassError::TooLarge {
                message: format!("the loop at {} makes {trips} trips of {ops} ops", place()),
                help: format!("at most {MAX_UNROLLED} ops are expanded; export fewer trips a step"),
            });
        }
        let mut carries = carries;
        for _ in 0..trips {
            carries = self.graph(body, &carries)?;
        }
        Ok(carries)
    }

    fn constant(&mut self, id: ConstId) -> BufferId {
        if let Some(&b) = self.constants.get(&id) {
            return b;
        }
        let b = self.buffer(self.module.constants.get(id).ty.clone(), String::new());
        self.program.buffers[b.0 as usize].placement = Placement::Constant(id);
        self.constants.insert(id, b);
        b
    }

    fn op(&mut self, g: &Graph, data: &OpData, reads: &[BufferId]) -> Result<Vec<BufferId>> {
        let user = &self.module.locations.get(data.loc).name;
        let name = if user.is_empty() { data.op.name().to_string() } else { user.clone() };
        let writes: Vec<BufferId> =
            data.results.iter().map(|&r| self.buffer(g.ty(r).clone(), name.clone())).collect();
        match &data.op {
            Op::Collective(c) if !c.axes().is_empty() => {
                let communicator = self.communicator(c.axes());
                let action = Action::Collective { communicator, op: data.op.clone() };
                self.push(COMMUNICATION, action, reads.to_vec(), writes.clone(), data.loc);
            }
            Op::Fused(Fused { definition, .. }) if self.kernels.contains_key(definition) => {
                self.kernel(*definition, reads, &writes, data.loc);
            }
            op => self.push(COMPUTE, Action::Interpret(op.clone()), reads.to_vec(), writes.clone(), data.loc),
        }
        Ok(writes)
    }

    fn kernel(&mut self, definition: GraphId, reads: &[BufferId], writes: &[BufferId], loc: LocId) {
        let spec = &self.kernels[&definition];
        let temporaries: Vec<BufferId> =
            spec.temporaries.iter().map(|t| self.buffer(t.clone(), "temporary".into())).collect();
        let bind = |a: &Argument| match *a {
            Argument::Operand(i) => reads[i],
            Argument::Result(i) => writes[i],
            Argument::Temporary(i) => temporaries[i],
        };
        for call in &spec.calls {
            let (r, w) = (call.reads.iter().map(bind).collect(), call.writes.iter().map(bind).collect());
            self.push(COMPUTE, Action::Kernel(call.kernel), r, w, loc);
        }
    }

    fn communicator(&mut self, axes: &[msc_ir::module::AxisId]) -> CommunicatorId {
        let known = self.program.communicators.iter().position(|c| c.axes.as_slice() == axes);
        let at = known.unwrap_or_else(|| {
            self.program.communicators.push(Communicator { axes: axes.into() });
            self.program.communicators.len() - 1
        });
        CommunicatorId(at as u32)
    }

    /// Appends an instruction, with the waits it needs before it.
    fn push(
        &mut self,
        stream: StreamId,
        action: Action,
        reads: Vec<BufferId>,
        writes: Vec<BufferId>,
        loc: LocId,
    ) {
        let mut after: Vec<usize> = reads.iter().filter_map(|b| self.touched[b.0 as usize].writer).collect();
        for b in &writes {
            let t = &self.touched[b.0 as usize];
            after.extend(t.writer);
            after.extend(&t.readers);
        }
        after.sort_unstable();
        // The latest first: it often covers the earlier ones.
        for &at in after.iter().rev() {
            self.wait(stream, at);
        }
        let at = self.append(Instruction { stream, action, reads, writes, loc });
        let i = &self.program.instructions[at];
        for b in &i.reads {
            self.touched[b.0 as usize].readers.push(at);
        }
        for b in &i.writes {
            self.touched[b.0 as usize] = Touched { writer: Some(at), readers: Vec::new() };
        }
    }

    fn wait(&mut self, stream: StreamId, on: usize) {
        let other = self.program.instructions[on].stream;
        let (s, t) = (stream.0 as usize, other.0 as usize);
        if s == t || self.seen[s][t] > on {
            return;
        }
        let theirs = &self.done[on * self.seen.len()..];
        self.seen[s].iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        let action = Action::Wait(InstructionId(on as u32));
        self.append(Instruction {
            stream,
            action,
            reads: Vec::new(),
            writes: Vec::new(),
            loc: LocId::UNKNOWN,
        });
    }

    fn append(&mut self, i: Instruction) -> usize {
        let at = self.program.instructions.len();
        let s = i.stream.0 as usize;
        self.seen[s][s] = at + 1;
        self.done.extend_from_slice(&self.seen[s]);
        self.program.instructions.push(i);
        at
    }
}
