//! Emission of instructions.

use super::{Argument, Kernels};
use crate::error::{PassError, Result};
use msc_ir::constant::ConstId;
use msc_ir::graph::{OpData, OpId, ValueId};
use msc_ir::ops::collective::Axes;
use msc_ir::ops::while_loop::trip_count;
use msc_ir::program::{
    Action, Buffer, BufferId, Buffers, Communicator, CommunicatorId, Instruction, InstructionId, Placement,
    Program, RankClass, StreamId, StreamKind,
};
use msc_ir::{Graph, GraphId, LocId, Module, Op, Operation, TensorType};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ops that one loop may become. A step of 128 layers of 1,000 ops each is far below it, and a plan beyond it would
/// take gigabytes.
const MAX_UNROLLED: u64 = 1 << 21;

/// A value that no op has given a buffer yet.
const NOWHERE: BufferId = BufferId(u32::MAX);

const COMPUTE: StreamId = StreamId(0);
const COMMUNICATION: StreamId = StreamId(1);

/// Who touched a buffer, by position in the instruction list.
#[derive(Clone, Default)]
struct Touched {
    writer: Option<u32>,
    /// The last reader of each stream: it stands for those before it.
    readers: SmallVec<[(StreamId, u32); 2]>,
}

/// What an op becomes, the same wherever its graph runs.
#[derive(Clone)]
enum Step {
    /// What the op calls, or is defined by, in its place.
    Inside(GraphId),
    /// A constant.
    Constant(ConstId),
    /// A loop that the interpreter cannot run, as its trips.
    Unroll { body: GraphId, trips: u64 },
    /// One instruction; its results' name.
    One { op: Arc<Op>, name: Arc<str> },
    /// A collective; its results' name.
    Collective { op: Box<Op>, axes: Axes, name: Arc<str> },
    /// The kernels of a fused op; its results' name.
    Kernels { definition: GraphId, name: Arc<str> },
}

pub(super) struct Emitter<'a> {
    module: &'a Module,
    kernels: &'a Kernels,
    program: Program,
    /// By buffer; empty where there is one stream, which needs no waits.
    touched: Vec<Touched>,
    constants: BTreeMap<ConstId, BufferId>,
    /// What the ops of each graph become, in its order.
    steps: FxHashMap<GraphId, Arc<[Step]>>,
    /// Names of ops, as names of buffers.
    names: FxHashMap<&'static str, Arc<str>>,
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
            steps: FxHashMap::default(),
            names: FxHashMap::default(),
            seen: vec![vec![0; n]; n],
            done: Vec::new(),
        })
    }

    pub(super) fn run(mut self) -> Result<Program> {
        let module = self.module;
        let entry = self.program.entry.clone();
        let g = module.graph(entry.graph);
        let ops = self.expanded(entry.graph, &mut FxHashMap::default());
        self.program.instructions.reserve(ops);
        self.program.buffers.reserve(ops + g.params().len());
        for (info, &v) in entry.params.iter().zip(g.params()) {
            let b = self.buffer(g.ty(v).clone(), info.name.as_str().into());
            self.program.inputs.push(b);
        }
        let inputs = self.program.inputs.clone();
        let outputs = self.graph(entry.graph, &inputs)?;
        let given: BTreeSet<BufferId> = inputs.into_iter().collect();
        for (&b, info) in outputs.iter().zip(&entry.results) {
            if !given.contains(&b) {
                self.program.buffers[b.0 as usize].name = info.name.as_str().into();
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

    /// About how many instructions a graph becomes.
    fn expanded(&self, id: GraphId, known: &mut FxHashMap<GraphId, usize>) -> usize {
        if let Some(&n) = known.get(&id) {
            return n;
        }
        let mut all = 0usize;
        for (_, data) in self.module.graph(id).ops() {
            all += match &data.op {
                Op::Call(c) => self.expanded(c.graph, known),
                Op::Fused(f) if !self.kernels.contains_key(&f.definition) => {
                    self.expanded(f.definition, known)
                }
                _ => 1,
            };
            all = all.min(MAX_UNROLLED as usize);
        }
        known.insert(id, all);
        all
    }

    fn buffer(&mut self, ty: TensorType, name: Arc<str>) -> BufferId {
        let id = BufferId(self.program.buffers.len() as u32);
        self.program.buffers.push(Buffer { ty, placement: Placement::Arena(0), name });
        id
    }

    fn graph(&mut self, id: GraphId, inputs: &[BufferId]) -> Result<Vec<BufferId>> {
        let module = self.module;
        let g = module.graph(id);
        let steps = self.steps(id)?;
        let mut at: Vec<BufferId> = vec![NOWHERE; g.value_count()];
        for (&p, &b) in g.params().iter().zip(inputs) {
            at[p.0 as usize] = b;
        }
        let found = |at: &[BufferId], v: ValueId| match at[v.0 as usize] {
            NOWHERE => Err(PassError::Broken {
                pass: "schedule",
                message: format!("@{}: value {} has no buffer", g.name, v.0),
            }),
            b => Ok(b),
        };
        for ((_, data), step) in g.ops().zip(steps.iter()) {
            let mut reads = Buffers::new();
            for &v in &data.operands {
                reads.push(found(&at, v)?);
            }
            let writes: Buffers = match step {
                Step::Inside(graph) => self.graph(*graph, &reads)?.into(),
                Step::Constant(c) => smallvec![self.constant(*c)],
                Step::Unroll { body, trips } => {
                    let mut carries = reads.into_vec();
                    for _ in 0..*trips {
                        carries = self.graph(*body, &carries)?;
                    }
                    carries.into()
                }
                Step::One { op, name } => {
                    let writes = self.results(g, data, name);
                    self.push(COMPUTE, Action::Interpret(Arc::clone(op)), reads, writes.clone(), data.loc);
                    writes
                }
                Step::Collective { op, axes, name } => {
                    let communicator = self.communicator(axes);
                    let writes = self.results(g, data, name);
                    let action = Action::Collective { communicator, op: Op::clone(op) };
                    self.push(COMMUNICATION, action, reads, writes.clone(), data.loc);
                    writes
                }
                Step::Kernels { definition, name } => {
                    let writes = self.results(g, data, name);
                    self.kernel(*definition, &reads, &writes, data.loc);
                    writes
                }
            };
            for (&r, b) in data.results.iter().zip(writes) {
                at[r.0 as usize] = b;
            }
        }
        g.results().iter().map(|&v| found(&at, v)).collect()
    }

    /// What the ops of a graph become.
    fn steps(&mut self, id: GraphId) -> Result<Arc<[Step]>> {
        if let Some(known) = self.steps.get(&id) {
            return Ok(Arc::clone(known));
        }
        let module = self.module;
        let g = module.graph(id);
        let steps: Arc<[Step]> = g.ops().map(|(op, data)| self.step(g, op, data)).collect::<Result<_>>()?;
        self.steps.insert(id, Arc::clone(&steps));
        Ok(steps)
    }

    fn step(&mut self, g: &Graph, op: OpId, data: &OpData) -> Result<Step> {
        Ok(match &data.op {
            Op::Call(c) => Step::Inside(c.graph),
            Op::Fused(f) if self.kernels.contains_key(&f.definition) => {
                Step::Kernels { definition: f.definition, name: self.name(data) }
            }
            // Without a kernel of its own it is the ops that define it.
            Op::Fused(f) => Step::Inside(f.definition),
            Op::Constant(c) => Step::Constant(c.id),
            Op::While(w) if self.needs_instructions(w.body) => match self.trips(g, op, w.body)? {
                Some(trips) => Step::Unroll { body: w.body, trips },
                None => self.interpreted(data),
            },
            Op::Collective(c) if !c.axes().is_empty() => {
                let axes = c.axes().into();
                Step::Collective { op: Box::new(data.op.clone()), axes, name: self.name(data) }
            }
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
            _ => self.interpreted(data),
        })
    }

    fn interpreted(&mut self, data: &OpData) -> Step {
        Step::One { op: Arc::new(data.op.clone()), name: self.name(data) }
    }

    /// What the results of an op are called.
    fn name(&mut self, data: &OpData) -> Arc<str> {
        let user = &self.module.locations.get(data.loc).name;
        if !user.is_empty() {
            return Arc::clone(user);
        }
        let name = data.op.name();
        Arc::clone(self.names.entry(name).or_insert_with(|| name.into()))
    }

    fn results(&mut self, g: &Graph, data: &OpData, name: &Arc<str>) -> Buffers {
        let mut out = Buffers::new();
        for &r in &data.results {
            out.push(self.buffer(g.ty(r).clone(), Arc::clone(name)));
        }
        out
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

    /// The trips of a loop that is to become the instructions of its trips; none where the interpreter has to run it.
    fn trips(&self, g: &Graph, op: OpId, body: GraphId) -> Result<Option<u64>> {
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
            return Ok(None);
        };
        let ops = self.module.graph(body).order().len() as u64;
        if trips.saturating_mul(ops.max(1)) > MAX_UNROLLED {
            return Err(PassError::TooLarge {
                message: format!("the loop at {} makes {trips} trips of {ops} ops", place()),
                help: format!("at most {MAX_UNROLLED} ops are expanded; export fewer trips a step"),
            });
        }
        Ok(Some(trips))
    }

    fn constant(&mut self, id: ConstId) -> BufferId {
        if let Some(&b) = self.constants.get(&id) {
            return b;
        }
        let b = self.buffer(self.module.constants.get(id).ty.clone(), Arc::default());
        self.program.buffers[b.0 as usize].placement = Placement::Constant(id);
        self.constants.insert(id, b);
        b
    }

    fn kernel(&mut self, definition: GraphId, reads: &[BufferId], writes: &[BufferId], loc: LocId) {
        let spec = &self.kernels[&definition];
        let name: Arc<str> = Arc::clone(self.names.entry("temporary").or_insert_with(|| "temporary".into()));
        let temporaries: Vec<BufferId> =
            spec.temporaries.iter().map(|t| self.buffer(t.clone(), Arc::clone(&name))).collect();
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
    fn push(&mut self, stream: StreamId, action: Action, reads: Buffers, writes: Buffers, loc: LocId) {
        if self.seen.len() > 1 {
            self.waits(stream, &reads, &writes);
        }
        self.append(Instruction { stream, action, reads, writes, loc });
    }

    /// The waits of the instruction that comes next, and its marks on what it touches.
    fn waits(&mut self, stream: StreamId, reads: &[BufferId], writes: &[BufferId]) {
        self.touched.resize(self.program.buffers.len(), Touched::default());
        let mut after: SmallVec<[u32; 8]> =
            reads.iter().filter_map(|b| self.touched[b.0 as usize].writer).collect();
        for b in writes {
            let t = &self.touched[b.0 as usize];
            after.extend(t.writer);
            after.extend(t.readers.iter().map(|r| r.1));
        }
        after.sort_unstable();
        // The latest first: it often covers the earlier ones.
        for &at in after.iter().rev() {
            self.wait(stream, at as usize);
        }
        let at = self.program.instructions.len() as u32;
        for b in reads {
            let readers = &mut self.touched[b.0 as usize].readers;
            match readers.iter_mut().find(|r| r.0 == stream) {
                Some((_, last)) => *last = at,
                None => readers.push((stream, at)),
            }
        }
        for b in writes {
            self.touched[b.0 as usize] = Touched { writer: Some(at), readers: SmallVec::new() };
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
        let (reads, writes) = (Buffers::new(), Buffers::new());
        self.append(Instruction { stream, action, reads, writes, loc: LocId::UNKNOWN });
    }

    fn append(&mut self, i: Instruction) {
        if self.seen.len() > 1 {
            let s = i.stream.0 as usize;
            self.seen[s][s] = self.program.instructions.len() + 1;
            self.done.extend_from_slice(&self.seen[s]);
        }
        self.program.instructions.push(i);
    }
}
