//! Reading: every index, type and rule is checked before anything is handed out.

use super::container::{self, Backing, Kind};
use super::{
    InputRole, Kernel, Meta, NO_GRAPH, Plan, PlanConstant, PlanData, PlanError, Role, StepInfo,
    check_programs, wire,
};
use crate::check::Compute;
use msc_ir::attr::AttrReader;
use msc_ir::module::{AxisId, Entry, GraphId, Member, MeshAxis, ParamInfo, ResultInfo, Sharding};
use msc_ir::outside::Outside;
use msc_ir::program::check::MAX_BUFFER_BYTES;
use msc_ir::program::{
    Action, Buffer, BufferId, Communicator, CommunicatorId, Instruction, InstructionId, KernelId, Placement,
    Program, RankClass, StreamId, StreamKind,
};
use msc_ir::{AttrValue, ConstId, DType, Graph, Loc, LocId, Module, Op, TensorType, ValueId};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

type Result<T> = std::result::Result<T, PlanError>;

fn malformed<T>(section: Kind, message: impl Into<String>) -> Result<T> {
    Err(PlanError::Malformed { section: section.name(), message: message.into() })
}

fn message<M: Message + Default>(kind: Kind, bytes: &[u8]) -> Result<M> {
    M::decode(bytes).or_else(|e| malformed(kind, e.to_string()))
}

/// Reads a plan of `length` bytes.
pub(super) fn read(backing: Backing, length: usize) -> Result<Plan> {
    let bytes = &backing.bytes()[..length];
    let mut sections: [Option<Range<usize>>; 5] = Default::default();
    let mut program_sections = Vec::new();
    for s in container::read(bytes)? {
        let slot = match s.kind {
            Kind::Program => {
                program_sections.push(s.range);
                continue;
            }
            Kind::Meta => 0,
            Kind::Tables => 1,
            Kind::Module => 2,
            Kind::Kernels => 3,
            Kind::Constants => 4,
        };
        if sections[slot].replace(s.range).is_some() {
            return malformed(s.kind, "there are two");
        }
    }
    let section = |slot: usize, kind: Kind| -> Result<&[u8]> {
        match &sections[slot] {
            Some(r) => Ok(&bytes[r.clone()]),
            None => malformed(kind, "is missing"),
        }
    };
    let wire_meta: wire::Meta = message(Kind::Meta, section(0, Kind::Meta)?)?;
    let tables = Tables::new(message(Kind::Tables, section(1, Kind::Tables)?)?)?;
    let wire_module: wire::Module = message(Kind::Module, section(2, Kind::Module)?)?;
    let kernels: wire::Kernels = message(Kind::Kernels, section(3, Kind::Kernels)?)?;
    section(4, Kind::Constants)?;
    let data = sections[4].clone().unwrap_or_default();
    let r = ModuleReader::read(&tables, &wire_module, bytes, data)?;
    let entry = match &wire_module.entry {
        Some(e) => entry(&tables, e)?,
        None => return malformed(Kind::Module, "has no entry"),
    };
    let outside = Outside::of(&entry).or_else(|message| malformed(Kind::Module, message))?;
    let meta = meta(wire_meta, outside.entry.params.len())?;
    let mut programs = Vec::with_capacity(program_sections.len());
    for range in program_sections {
        let p: wire::Program = message(Kind::Program, &bytes[range])?;
        programs.push(r.program(p, entry.clone())?);
    }
    let kernels: Vec<Kernel> =
        kernels.kernels.into_iter().map(|k| Kernel { name: k.name, payload: k.payload }).collect();
    let constants = &r.constants;
    check_programs(&r.module, &programs, kernels.len(), |id| {
        constants.get(id.0 as usize).map(|c| c.ty.clone())
    })?;
    let (module, constants) = (r.module, r.constants);
    Ok(Plan { meta, module, programs, kernels, outside, constants, backing })
}

fn meta(m: wire::Meta, params: usize) -> Result<Meta> {
    let (Ok(source_hash), Some(compute)) =
        (<[u8; 32]>::try_from(m.source_hash.as_slice()), Compute::from_name(&m.compute))
    else {
        return malformed(Kind::Meta, "the source's hash or the compute type is not one");
    };
    let options = m.options.into_iter().map(|o| (o.name, o.value)).collect();
    let step = step(m.step.unwrap_or_default(), params)?;
    Ok(Meta { msc_version: m.msc_version, source_hash, options, compute, step })
}

fn step(s: wire::StepInfo, params: usize) -> Result<StepInfo> {
    if !s.inputs.is_empty() && s.inputs.len() != params {
        return malformed(Kind::Meta, format!("{} roles for {params} inputs", s.inputs.len()));
    }
    let mut inputs = Vec::new();
    for i in s.inputs {
        match Role::from_parts(&i.role, i.number) {
            Some(Role::Copy(n)) if n as usize >= params => {
                return malformed(Kind::Meta, format!("there is no input {n} to copy"));
            }
            Some(role) => inputs.push(InputRole { role, why: i.why }),
            None => return malformed(Kind::Meta, format!("`{}` is no role of an input", i.role)),
        }
    }
    let (matmul_flops, vocabulary) = (s.matmul_flops, s.vocabulary);
    Ok(StepInfo { matmul_flops, vocabulary, shifts_labels: s.shifts_labels, inputs })
}

struct Tables {
    strings: Vec<Arc<str>>,
    types: Vec<TensorType>,
    locations: Vec<Loc>,
}

impl Tables {
    fn new(t: wire::Tables) -> Result<Tables> {
        let strings = t.strings.into_iter().map(Arc::from).collect();
        let mut tables = Tables { strings, types: Vec::new(), locations: Vec::new() };
        for t in t.types {
            let name = tables.string(Kind::Tables, t.dtype)?;
            let Some(dtype) = DType::from_name(name) else {
                return malformed(Kind::Tables, format!("`{name}` is no element type"));
            };
            let shape = t.shape.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX));
            let ty = TensorType::new(dtype, shape);
            // Bounds every size: sums and products that inference forms of a few of them cannot overflow.
            let small = |d: &usize| *d <= MAX_BUFFER_BYTES;
            if !ty.shape.iter().all(small) || ty.checked_bytes().is_none_or(|b| b > MAX_BUFFER_BYTES) {
                return malformed(Kind::Tables, format!("type {ty} is too large"));
            }
            tables.types.push(ty);
        }
        for l in t.locations {
            let file = tables.string(Kind::Tables, l.file)?.clone();
            let name = tables.string(Kind::Tables, l.name)?.clone();
            tables.locations.push(Loc { file, line: l.line, column: l.column, name });
        }
        Ok(tables)
    }

    fn string(&self, section: Kind, n: u32) -> Result<&Arc<str>> {
        match self.strings.get(n as usize) {
            Some(s) => Ok(s),
            None => malformed(section, format!("string {n} does not exist")),
        }
    }

    fn ty(&self, section: Kind, n: u32) -> Result<&TensorType> {
        match self.types.get(n as usize) {
            Some(t) => Ok(t),
            None => malformed(section, format!("type {n} does not exist")),
        }
    }

    fn location(&self, section: Kind, n: u32) -> Result<LocId> {
        if n as usize > self.locations.len() {
            return malformed(section, format!("location {n} does not exist"));
        }
        Ok(LocId(n))
    }
}

struct ModuleReader<'a> {
    tables: &'a Tables,
    wire: &'a wire::Module,
    module: Module,
    constants: Vec<PlanConstant>,
    /// Ops decoded so far.
    ops: BTreeMap<u32, Arc<Op>>,
}

impl<'a> ModuleReader<'a> {
    fn read(
        tables: &'a Tables,
        wire: &'a wire::Module,
        bytes: &[u8],
        data: Range<usize>,
    ) -> Result<ModuleReader<'a>> {
        let mut module = Module::new(&**tables.string(Kind::Module, wire.name)?);
        for a in &wire.mesh {
            let name = tables.string(Kind::Module, a.name)?.to_string();
            let size = usize::try_from(a.size).unwrap_or(usize::MAX);
            module.mesh.axes.push(MeshAxis { name, size });
        }
        let mut sizes = module.mesh.axes.iter().map(|a| a.size);
        let ranks = sizes.try_fold(1usize, |n, s| n.checked_mul(s).filter(|&n| n > 0));
        if ranks.is_none_or(|n| n > msc_ir::program::check::MAX_RANKS) || wire.mesh.len() > u8::MAX.into() {
            return malformed(Kind::Module, "the mesh is empty or too large");
        }
        for (n, l) in tables.locations.iter().enumerate() {
            if module.locations.intern(l.clone()) != LocId(n as u32 + 1) {
                return malformed(Kind::Tables, format!("location {} is there twice", n + 1));
            }
        }
        let mut r = ModuleReader { tables, wire, module, constants: Vec::new(), ops: BTreeMap::new() };
        r.constants(bytes, data)?;
        let mut names = BTreeSet::new();
        for g in &wire.graphs {
            if !names.insert(tables.string(Kind::Module, g.name)?) {
                return malformed(Kind::Module, "two graphs have one name");
            }
            let graph = r.graph(g)?;
            r.module.add_graph(graph);
        }
        for n in 0..wire.ops.len() as u32 {
            r.enter_op(n)?;
        }
        Ok(r)
    }

    fn constants(&mut self, bytes: &[u8], data: Range<usize>) -> Result<()> {
        for (n, c) in self.wire.constants.iter().enumerate() {
            let ty = self.tables.ty(Kind::Module, c.ty)?.clone();
            let bad = |what: &str| malformed(Kind::Module, format!("constant {n} of type {ty}: {what}"));
            let of_op = n < self.wire.op_constants as usize;
            let (data, id) = match &c.data {
                Some(wire::ConstantData::Splat(e)) => {
                    if e.len() != ty.dtype.size_bytes() || ty.elements() == 0 {
                        return bad("is not a repeated element");
                    }
                    let id = of_op.then(|| self.module.constants.intern_splat_bytes(ty.clone(), e));
                    (PlanData::Splat(e.clone()), id)
                }
                Some(wire::ConstantData::Dense(at)) => {
                    let start = usize::try_from(*at).ok().and_then(|a| a.checked_add(data.start));
                    let end = start.and_then(|s| s.checked_add(ty.bytes()));
                    let (Some(start), Some(end)) = (start, end.filter(|&e| e <= data.end)) else {
                        return bad("lies outside the section");
                    };
                    if at % msc_ir::program::ALIGNMENT != 0 {
                        return bad("is not aligned");
                    }
                    let id =
                        of_op.then(|| self.module.constants.intern_bytes(ty.clone(), &bytes[start..end]));
                    (PlanData::Dense(start..end), id)
                }
                None => return bad("has no content"),
            };
            if id.is_some_and(|id| id != ConstId(n as u32)) {
                return bad("is there twice");
            }
            self.constants.push(PlanConstant { ty, data });
        }
        if self.wire.op_constants as usize > self.constants.len() {
            return malformed(Kind::Module, "more constants are used than there are");
        }
        Ok(())
    }

    fn enter_op(&mut self, n: u32) -> Result<()> {
        if self.ops.contains_key(&n) {
            return Ok(());
        }
        let Some(op) = self.wire.ops.get(n as usize) else {
            return malformed(Kind::Module, format!("op {n} does not exist"));
        };
        let name = self.tables.string(Kind::Module, op.name)?;
        let mut attrs = BTreeMap::new();
        for a in &op.attrs {
            let key = self.tables.string(Kind::Module, a.key)?.to_string();
            let text = |n: u32| self.tables.string(Kind::Module, n).map(|s| s.to_string());
            let value = match &a.value {
                Some(wire::AttrValue::Bool(b)) => AttrValue::Bool(*b),
                Some(wire::AttrValue::Int(i)) => AttrValue::Int(*i),
                Some(wire::AttrValue::Ints(v)) => AttrValue::Ints(v.values.clone()),
                Some(wire::AttrValue::Float(f)) => AttrValue::Float(*f),
                Some(wire::AttrValue::Word(w)) => AttrValue::Word(text(*w)?),
                Some(wire::AttrValue::Text(t)) => AttrValue::Text(text(*t)?),
                Some(wire::AttrValue::Const(c)) => AttrValue::Const(*c),
                Some(wire::AttrValue::Graph(g)) => AttrValue::Graph(self.graph_name(*g)?),
                Some(wire::AttrValue::Graphs(v)) => {
                    AttrValue::Graphs(v.graphs.iter().map(|&g| self.graph_name(g)).collect::<Result<_>>()?)
                }
                None => return malformed(Kind::Module, format!("{name}: {key} has no value")),
            };
            if attrs.insert(key, value).is_some() {
                return malformed(Kind::Module, format!("{name} has an attribute twice"));
            }
        }
        let op = Op::from_attrs(AttrReader::new(name, attrs), &self.module)
            .or_else(|e| malformed(Kind::Module, e.to_string()))?;
        self.ops.insert(n, Arc::new(op));
        Ok(())
    }

    /// The name of a graph that has been read already.
    fn graph_name(&self, n: u32) -> Result<String> {
        match self.module.try_graph(GraphId(n)) {
            Some(g) => Ok(g.name.clone()),
            None => malformed(Kind::Module, format!("graph {n} is not before its use")),
        }
    }

    fn op(&self, n: u32) -> Result<Arc<Op>> {
        match self.ops.get(&n) {
            Some(op) => Ok(op.clone()),
            None => malformed(Kind::Program, format!("op {n} does not exist")),
        }
    }

    fn graph(&mut self, g: &wire::Graph) -> Result<Graph> {
        let name = self.tables.string(Kind::Module, g.name)?;
        let mut graph = Graph::new(&**name);
        for &t in &g.params {
            graph.add_param(self.tables.ty(Kind::Module, t)?.clone());
        }
        for node in &g.nodes {
            self.enter_op(node.op)?;
            let op = Op::clone(&self.ops[&node.op]);
            let operands = values(&graph, &node.operands)?;
            let loc = self.tables.location(Kind::Module, node.location)?;
            let results = graph
                .add(&self.module, op, &operands, loc)
                .or_else(|e| malformed(Kind::Module, format!("@{name}: {e}")))?;
            let types: Vec<&TensorType> =
                node.results.iter().map(|&t| self.tables.ty(Kind::Module, t)).collect::<Result<_>>()?;
            if !results.iter().map(|&r| graph.ty(r)).eq(types) {
                return malformed(Kind::Module, format!("@{name}: an op has not the results listed"));
            }
        }
        let results = values(&graph, &g.results)?;
        graph.set_results(results);
        Ok(graph)
    }

    fn program(&self, p: wire::Program, entry: Entry) -> Result<Program> {
        let mut fixed = Vec::with_capacity(p.fixed.len());
        for f in p.fixed {
            fixed.push((axis(f.axis), usize::try_from(f.coordinate).unwrap_or(usize::MAX)));
        }
        let mut streams = Vec::with_capacity(p.streams.len());
        for s in p.streams {
            let name = self.tables.string(Kind::Program, s)?;
            match StreamKind::ALL.into_iter().find(|k| k.name() == &**name) {
                Some(k) => streams.push(k),
                None => return malformed(Kind::Program, format!("`{name}` is no kind of stream")),
            }
        }
        let mut buffers = Vec::with_capacity(p.buffers.len());
        for b in p.buffers {
            let placement = match b.placement {
                Some(wire::Placement::Arena(at)) => Placement::Arena(at),
                Some(wire::Placement::Constant(c)) => Placement::Constant(ConstId(c)),
                None => return malformed(Kind::Program, "a buffer is placed nowhere"),
            };
            let name = self.tables.string(Kind::Program, b.name)?.clone();
            buffers.push(Buffer { ty: self.tables.ty(Kind::Program, b.ty)?.clone(), placement, name });
        }
        let mut instructions = Vec::with_capacity(p.instructions.len());
        for i in p.instructions {
            let Some(action) = i.action else {
                return malformed(Kind::Program, "an instruction does nothing");
            };
            instructions.push(Instruction {
                stream: StreamId(i.stream),
                action: self.action(action)?,
                reads: i.reads.into_iter().map(BufferId).collect(),
                writes: i.writes.into_iter().map(BufferId).collect(),
                loc: self.tables.location(Kind::Program, i.location)?,
            });
        }
        Ok(Program {
            class: RankClass { fixed },
            mesh: self.module.mesh.clone(),
            entry,
            streams,
            communicators: p.communicators.iter().map(|c| Communicator { axes: axes(c).into() }).collect(),
            buffers,
            inputs: p.inputs.into_iter().map(BufferId).collect(),
            outputs: p.outputs.into_iter().map(BufferId).collect(),
            instructions,
            arena_bytes: p.arena_bytes,
        })
    }

    fn action(&self, a: wire::Action) -> Result<Action> {
        Ok(match a {
            wire::Action::Interpret(op) => Action::Interpret(self.op(op)?),
            wire::Action::Kernel(k) => Action::Kernel(KernelId(k)),
            wire::Action::LibraryCall(c) => Action::LibraryCall {
                library: self.tables.string(Kind::Program, c.library)?.to_string(),
                op: Op::clone(&*self.op(c.op)?),
            },
            wire::Action::Collective(c) => Action::Collective {
                communicator: CommunicatorId(c.communicator),
                op: Op::clone(&*self.op(c.op)?),
            },
            wire::Action::Send(p) => {
                Action::Send { communicator: CommunicatorId(p.communicator), offset: p.offset }
            }
            wire::Action::Receive(p) => {
                Action::Receive { communicator: CommunicatorId(p.communicator), offset: p.offset }
            }
            wire::Action::Copy(()) => Action::Copy,
            wire::Action::Wait(on) => Action::Wait(InstructionId(on)),
        })
    }
}

/// An axis number as read; one that does not fit names no axis of any mesh.
fn axis(n: u32) -> AxisId {
    AxisId(u8::try_from(n).unwrap_or(u8::MAX))
}

fn axes(a: &wire::Axes) -> Vec<AxisId> {
    a.axes.iter().map(|&n| axis(n)).collect()
}

fn values(graph: &Graph, list: &[u32]) -> Result<Vec<ValueId>> {
    let one = |&v: &u32| match (v as usize) < graph.value_count() {
        true => Ok(ValueId(v)),
        false => {
            malformed(Kind::Module, format!("value {v} of @{} is not defined before its use", graph.name))
        }
    };
    list.iter().map(one).collect()
}

fn entry(tables: &Tables, e: &wire::Entry) -> Result<Entry> {
    let name = |n: u32| tables.string(Kind::Module, n).map(|s| s.to_string());
    let parts = |a: &wire::Axes| usize::try_from(a.parts).unwrap_or(usize::MAX).max(1);
    let sharding = |p: &wire::Param| {
        let mut s = Sharding { dims: p.sharding.iter().map(axes).collect(), ..Sharding::default() };
        if p.sharding.iter().any(|a| parts(a) != 1) {
            s.parts = p.sharding.iter().map(parts).collect();
        }
        if p.sharding.iter().any(|a| a.size != 0) {
            s.sizes = p.sharding.iter().map(|a| usize::try_from(a.size).unwrap_or(usize::MAX)).collect();
        }
        s
    };
    let stack = |p: &wire::Param| -> Result<Vec<Member>> {
        p.stack.iter().map(|m| Ok(Member { name: name(m.name)?, number: m.number })).collect()
    };
    let mut params = Vec::with_capacity(e.params.len());
    for p in &e.params {
        let (name, stack) = (name(p.name)?, stack(p)?);
        params.push(ParamInfo { name, alias: p.alias, sharding: sharding(p), stack });
    }
    let mut results = Vec::with_capacity(e.results.len());
    for r in &e.results {
        results.push(ResultInfo { name: name(r.name)?, sharding: sharding(r), stack: stack(r)? });
    }
    Ok(Entry { name: name(e.name)?, graph: NO_GRAPH, params, results })
}
