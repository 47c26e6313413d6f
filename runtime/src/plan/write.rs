//! Writing.

use super::container::{self, Kind, Section};
use super::tables::TableWriter;
use super::{Meta, PlanError, PlanSource, StepInfo, check_programs, wire};
use msc_ir::constant::ConstData;
use msc_ir::module::{AxisId, Entry, GraphId, Member, Sharding};
use msc_ir::program::{Action, Placement, Program};
use msc_ir::{AttrValue, ConstId, Graph, Module, Op, Operation};
use prost::Message;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// A plan's bytes. For tests and small plans; [`write()`](fn@write) does not hold constants twice.
///
/// # Errors
/// [`PlanError::Program`], [`PlanError::Malformed`]: bugs in msc.
pub fn encode(source: &PlanSource<'_>) -> Result<Vec<u8>, PlanError> {
    let mut out = Vec::new();
    let io = |error| PlanError::Io { path: "memory".into(), error };
    emit(source, &mut |sections| container::write(sections, &mut out).map_err(io))?;
    Ok(out)
}

/// Writes a plan file. A file of that name is replaced only when the new one is complete.
///
/// # Errors
/// As [`encode`], and [`PlanError::Io`].
pub fn write(source: &PlanSource<'_>, path: &Path) -> Result<(), PlanError> {
    let io = |error| PlanError::Io { path: path.to_path_buf(), error };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    emit(source, &mut |sections| {
        let mut file = tempfile::Builder::new().prefix(".plan").tempfile_in(folder).map_err(io)?;
        let mut buffered = io::BufWriter::new(file.as_file_mut());
        container::write(sections, &mut buffered).and_then(|()| buffered.flush()).map_err(io)?;
        drop(buffered);
        file.persist(path).map_err(|e| io(e.error))?;
        Ok(())
    })
}

type Sink<'s> = dyn FnMut(&[Section<'_>]) -> Result<(), PlanError> + 's;

fn emit(source: &PlanSource<'_>, sink: &mut Sink<'_>) -> Result<(), PlanError> {
    let constant = |id: ConstId| source.module.constants.try_get(id).map(|c| c.ty.clone());
    check_programs(source.module, source.programs, source.kernels.len(), constant)?;
    let mut w = Writer::new(source.module);
    w.ops_of(source.programs)?;
    let programs: Vec<Vec<u8>> = source
        .programs
        .iter()
        .map(|p| Ok(w.program(p)?.encode_to_vec()))
        .collect::<Result<_, PlanError>>()?;
    let entry = source.programs.first().map(|p| w.entry(&p.entry));
    let module = w.module(entry).encode_to_vec();
    let meta = meta(source.meta).encode_to_vec();
    let tables = w.tables.wire.encode_to_vec();
    let kernels = source.kernels.iter();
    let kernels =
        kernels.map(|k| wire::Kernel { name: k.name.clone(), payload: k.payload.clone() }).collect();
    let kernels = wire::Kernels { kernels }.encode_to_vec();
    let mut sections = vec![
        Section { kind: Kind::Meta, pieces: vec![&meta] },
        Section { kind: Kind::Tables, pieces: vec![&tables] },
        Section { kind: Kind::Module, pieces: vec![&module] },
    ];
    sections.extend(programs.iter().map(|p| Section { kind: Kind::Program, pieces: vec![p] }));
    sections.push(Section { kind: Kind::Kernels, pieces: vec![&kernels] });
    sections.push(Section { kind: Kind::Constants, pieces: w.dense() });
    sink(&sections)
}

fn meta(m: &Meta) -> wire::Meta {
    let options = m.options.iter();
    wire::Meta {
        msc_version: m.msc_version.clone(),
        source_hash: m.source_hash.to_vec(),
        options: options.map(|(n, v)| wire::NamedOption { name: n.clone(), value: v.clone() }).collect(),
        compute: m.compute.name().to_string(),
        step: Some(step(&m.step)),
    }
}

fn step(s: &StepInfo) -> wire::StepInfo {
    let role = |i: &super::InputRole| wire::InputRole {
        role: i.role.name().to_string(),
        number: i.role.number(),
        why: i.why.clone(),
    };
    wire::StepInfo {
        matmul_flops: s.matmul_flops,
        vocabulary: s.vocabulary,
        shifts_labels: s.shifts_labels,
        inputs: s.inputs.iter().map(role).collect(),
    }
}

/// What has been met so far. Numbers are given in order of first use.
struct Writer<'a> {
    source: &'a Module,
    by_name: BTreeMap<&'a str, GraphId>,
    tables: TableWriter,
    ops: Vec<wire::Op>,
    op_index: FxHashMap<Op, u32>,
    /// The numbers of ops that instructions share, by address: they stay where they are while this writes.
    shared_ops: FxHashMap<*const Op, u32>,
    graphs: Vec<wire::Graph>,
    graph_index: FxHashMap<GraphId, u32>,
    /// Those that ops refer to, then those of buffers.
    constants: Vec<ConstId>,
    constant_index: FxHashMap<ConstId, u32>,
    op_constants: u32,
}

impl<'a> Writer<'a> {
    fn new(source: &'a Module) -> Writer<'a> {
        Writer {
            source,
            by_name: source.graphs().map(|(id, g)| (g.name.as_str(), id)).collect(),
            tables: TableWriter::default(),
            ops: Vec::new(),
            shared_ops: FxHashMap::default(),
            op_index: FxHashMap::default(),
            graphs: Vec::new(),
            graph_index: FxHashMap::default(),
            constants: Vec::new(),
            constant_index: FxHashMap::default(),
            op_constants: 0,
        }
    }

    fn constant(&mut self, id: ConstId) -> u32 {
        let next = self.constants.len() as u32;
        *self.constant_index.entry(id).or_insert_with(|| {
            self.constants.push(id);
            next
        })
    }

    fn op(&mut self, op: &Op) -> Result<u32, PlanError> {
        if let Some(&n) = self.op_index.get(op) {
            return Ok(n);
        }
        for g in op.callees() {
            self.graph(g)?;
        }
        let mut attrs = Vec::new();
        for (key, value) in op.attrs(self.source) {
            let value = match value {
                AttrValue::Bool(b) => wire::AttrValue::Bool(b),
                AttrValue::Int(i) => wire::AttrValue::Int(i),
                AttrValue::Ints(values) => wire::AttrValue::Ints(wire::Ints { values }),
                AttrValue::Float(bits) => wire::AttrValue::Float(bits),
                AttrValue::Word(s) => wire::AttrValue::Word(self.tables.string(&s)),
                AttrValue::Graph(name) => wire::AttrValue::Graph(self.named_graph(&name)?),
                AttrValue::Graphs(names) => {
                    let graphs = names.iter().map(|n| self.named_graph(n)).collect::<Result<_, _>>()?;
                    wire::AttrValue::Graphs(wire::Graphs { graphs })
                }
                AttrValue::Const(c) => wire::AttrValue::Const(self.constant(ConstId(c))),
                AttrValue::Text(s) => wire::AttrValue::Text(self.tables.string(&s)),
            };
            attrs.push(wire::Attr { key: self.tables.string(key), value: Some(value) });
        }
        let name = self.tables.string(op.name());
        self.ops.push(wire::Op { name, attrs });
        let n = self.ops.len() as u32 - 1;
        self.op_index.insert(op.clone(), n);
        Ok(n)
    }

    /// The number of an op that instructions share.
    fn shared(&mut self, op: &Arc<Op>) -> Result<u32, PlanError> {
        if let Some(&n) = self.shared_ops.get(&Arc::as_ptr(op)) {
            return Ok(n);
        }
        let n = self.op(op)?;
        self.shared_ops.insert(Arc::as_ptr(op), n);
        Ok(n)
    }

    fn named_graph(&mut self, name: &str) -> Result<u32, PlanError> {
        match self.by_name.get(name) {
            Some(&id) => self.graph(id),
            None => Err(PlanError::Malformed { section: "module", message: format!("no graph @{name}") }),
        }
    }

    fn graph(&mut self, id: GraphId) -> Result<u32, PlanError> {
        if let Some(&n) = self.graph_index.get(&id) {
            return Ok(n);
        }
        let g: &Graph = self.source.graph(id);
        let mut number = vec![u32::MAX; g.value_count()];
        let mut next = 0;
        let mut params = Vec::new();
        for &v in g.params() {
            number[v.0 as usize] = next;
            next += 1;
            params.push(self.tables.ty(g.ty(v)));
        }
        let mut nodes = Vec::new();
        for (_, o) in g.ops() {
            let op = self.op(&o.op)?;
            let operands = o.operands.iter().map(|v| number[v.0 as usize]).collect();
            let mut results = Vec::new();
            for &r in &o.results {
                number[r.0 as usize] = next;
                next += 1;
                results.push(self.tables.ty(g.ty(r)));
            }
            let location = self.tables.location(&self.source.locations, o.loc);
            nodes.push(wire::Node { op, operands, results, location });
        }
        let results = g.results().iter().map(|v| number[v.0 as usize]).collect();
        let name = self.tables.string(&g.name);
        self.graphs.push(wire::Graph { name, params, nodes, results });
        let n = self.graphs.len() as u32 - 1;
        self.graph_index.insert(id, n);
        Ok(n)
    }

    fn axes(axes: &[AxisId]) -> wire::Axes {
        wire::Axes { axes: axes.iter().map(|a| a.0.into()).collect(), parts: 0, size: 0 }
    }

    fn param(&mut self, name: &str, alias: Option<u32>, s: &Sharding, stack: &[Member]) -> wire::Param {
        let dim = |(d, axes): (usize, &Vec<AxisId>)| {
            let parts = if s.parts(d) == 1 { 0 } else { s.parts(d) as u64 };
            wire::Axes { parts, size: s.size(d, 0) as u64, ..Self::axes(axes) }
        };
        let sharding = s.dims.iter().enumerate().map(dim).collect();
        let name = self.tables.string(name);
        let member = |m: &Member| wire::Member { name: self.tables.string(&m.name), number: m.number };
        wire::Param { name, alias, sharding, stack: stack.iter().map(member).collect() }
    }

    fn entry(&mut self, e: &Entry) -> wire::Entry {
        let name = self.tables.string(&e.name);
        let params = e.params.iter().map(|p| self.param(&p.name, p.alias, &p.sharding, &p.stack)).collect();
        let results = e.results.iter().map(|r| self.param(&r.name, None, &r.sharding, &r.stack)).collect();
        wire::Entry { name, params, results }
    }

    /// Enters the ops of all instructions, so that the constants they refer to come before those of buffers.
    fn ops_of(&mut self, programs: &[Program]) -> Result<(), PlanError> {
        for i in programs.iter().flat_map(|p| &p.instructions) {
            match (&i.action, i.action.op()) {
                (Action::Interpret(op), _) => self.shared(op)?,
                (_, Some(op)) => self.op(op)?,
                _ => continue,
            };
        }
        self.op_constants = self.constants.len() as u32;
        Ok(())
    }

    fn program(&mut self, p: &Program) -> Result<wire::Program, PlanError> {
        let mut instructions = Vec::with_capacity(p.instructions.len());
        for i in &p.instructions {
            let action = match &i.action {
                Action::Interpret(op) => wire::Action::Interpret(self.shared(op)?),
                Action::Kernel(k) => wire::Action::Kernel(k.0),
                Action::LibraryCall { library, op } => wire::Action::LibraryCall(wire::LibraryCall {
                    library: self.tables.string(library),
                    op: self.op(op)?,
                }),
                Action::Collective { communicator, op } => wire::Action::Collective(wire::Collective {
                    communicator: communicator.0,
                    op: self.op(op)?,
                }),
                Action::Send { communicator, offset } => {
                    wire::Action::Send(wire::Peer { communicator: communicator.0, offset: *offset })
                }
                Action::Receive { communicator, offset } => {
                    wire::Action::Receive(wire::Peer { communicator: communicator.0, offset: *offset })
                }
                Action::Copy => wire::Action::Copy(()),
                Action::Wait(on) => wire::Action::Wait(on.0),
            };
            instructions.push(wire::Instruction {
                stream: i.stream.0,
                reads: i.reads.iter().map(|b| b.0).collect(),
                writes: i.writes.iter().map(|b| b.0).collect(),
                location: self.tables.location(&self.source.locations, i.loc),
                action: Some(action),
            });
        }
        let fixed = p.class.fixed.iter();
        let mut buffers = Vec::with_capacity(p.buffers.len());
        for b in &p.buffers {
            let placement = match b.placement {
                Placement::Arena(at) => wire::Placement::Arena(at),
                Placement::Constant(c) => wire::Placement::Constant(self.constant(c)),
            };
            let (ty, name) = (self.tables.ty(&b.ty), self.tables.string(&b.name));
            buffers.push(wire::Buffer { ty, name, placement: Some(placement) });
        }
        Ok(wire::Program {
            fixed: fixed.map(|&(a, c)| wire::Fixed { axis: a.0.into(), coordinate: c as u64 }).collect(),
            streams: p.streams.iter().map(|s| self.tables.string(s.name())).collect(),
            communicators: p.communicators.iter().map(|c| Self::axes(&c.axes)).collect(),
            buffers,
            inputs: p.inputs.iter().map(|b| b.0).collect(),
            outputs: p.outputs.iter().map(|b| b.0).collect(),
            instructions,
            arena_bytes: p.arena_bytes,
        })
    }

    fn module(&mut self, entry: Option<wire::Entry>) -> wire::Module {
        let mesh = self.source.mesh.axes.iter();
        let mesh =
            mesh.map(|a| wire::MeshAxis { name: self.tables.string(&a.name), size: a.size as u64 }).collect();
        let mut offsets = container::constant_offsets(self.dense().into_iter()).into_iter();
        let mut constants = Vec::new();
        for &id in &self.constants {
            let c = self.source.constants.get(id);
            let data = match &c.data {
                ConstData::Splat(b) => wire::ConstantData::Splat(b.to_vec()),
                ConstData::Dense(_) => wire::ConstantData::Dense(offsets.next().unwrap_or_default()),
            };
            constants.push(wire::Constant { ty: self.tables.ty(&c.ty), data: Some(data) });
        }
        wire::Module {
            name: self.tables.string(&self.source.name),
            mesh,
            ops: std::mem::take(&mut self.ops),
            graphs: std::mem::take(&mut self.graphs),
            constants,
            op_constants: self.op_constants,
            entry,
        }
    }

    /// The bytes of the dense constants, in order.
    fn dense(&self) -> Vec<&'a [u8]> {
        let each = self.constants.iter().filter_map(|&id| match &self.source.constants.get(id).data {
            ConstData::Splat(_) => None,
            ConstData::Dense(b) => Some(&b[..]),
        });
        each.collect()
    }
}
