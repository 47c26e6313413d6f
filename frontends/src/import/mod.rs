//! The importer: raw form → [`msc_ir::Module`].
//!
//! Functions that the entry reaches become graphs, callees first. Each op goes through msc's own inference, and
//! the type that the source gives must be the inferred one: a misread program is an error, not a wrong result.
//! Attribute and op names are those of the StableHLO specification.

mod annotations;
mod attrs;
mod broadcast;
mod calls;
mod chlo;
mod complex;
mod control;
mod dense;
mod dynamic;
mod elementwise;
mod entry;
mod erf_inv;
mod expand;
mod indexing;
mod linalg;
mod literal;
mod locs;
mod neural;
mod number;
mod ops;
mod parallel;
mod program;
mod ragged;
mod reducers;
mod shape_ops;
mod sorting;
pub(crate) mod types;
mod windows;

pub use annotations::{Annotations, MeshDecl, ShardingHint, Site};

use crate::error::{Code, FrontendError, Result};
use crate::raw::{Elem, Form, RawModule, RawOp, Type, TypeId, Value};
use msc_ir::{ConstId, Graph, GraphId, IrError, LocId, Module, TensorType, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What a reader returns.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program, at global shapes.
    pub module: Module,
    /// What the source says about sharding.
    pub annotations: Annotations,
}

/// Imports a raw module: every function that the entry (`main`, or the only public function) reaches becomes a
/// graph.
///
/// # Errors
/// An error with the op's place for every op, attribute or type that msc does not hold, and where a type in the
/// source is not the inferred one.
pub fn import(raw: &RawModule<'_>) -> Result<Imported> {
    let mut importer = Importer::new(raw);
    importer.program()?;
    Ok(Imported { module: importer.module, annotations: importer.annotations })
}

/// Values that an op gives.
type Results = SmallVec<[ValueId; 1]>;

/// The importer's state.
struct Importer<'r, 'a> {
    raw: &'r RawModule<'a>,
    module: Module,
    annotations: Annotations,
    /// The graph that is being built.
    graph: Graph,
    /// The graph's value for each raw value that has one.
    values: Vec<Option<ValueId>>,
    /// Raw values with a value of the graph, to be forgotten at the end of their block.
    defined: Vec<Value>,
    /// Tensor types by raw type.
    types: Vec<Option<TensorType>>,
    /// Graphs of functions that have been imported.
    graphs: BTreeMap<&'r str, GraphId>,
    /// Constants by where their bytes lie: an entry of a bytecode file is decoded once, however many ops use it.
    entries: FxHashMap<(usize, usize, TypeId), ConstId>,
    /// Comparators of descending sorts, by element type.
    descending: BTreeMap<msc_ir::DType, GraphId>,
    /// Sharding constraints of the graph that is being built.
    constraints: Vec<(ValueId, ShardingHint)>,
    /// Whether there are types of complex numbers.
    complex: bool,
    /// Whether types of complex numbers stand for those of their parts.
    part: bool,
    places: locs::Places,
    /// Ops imported so far: the ordinal of the next one.
    ordinal: u32,
}

impl<'r, 'a> Importer<'r, 'a> {
    fn new(raw: &'r RawModule<'a>) -> Importer<'r, 'a> {
        Importer {
            raw,
            module: Module::new(raw.name.as_ref()),
            annotations: Annotations { partitions: 1, replicas: 1, ..Annotations::default() },
            graph: Graph::default(),
            values: vec![None; raw.values.len()],
            defined: Vec::new(),
            types: vec![None; raw.types.len()],
            graphs: BTreeMap::new(),
            descending: BTreeMap::new(),
            entries: FxHashMap::default(),
            constraints: Vec::new(),
            complex: raw.types.iter().any(|t| matches!(t, Type::Tensor { elem: Elem::Complex(_), .. })),
            part: false,
            places: locs::Places::new(raw),
            ordinal: 0,
        }
    }

    /// An error at an op.
    fn error(&self, op: &RawOp<'_>, code: Code, message: impl Into<String>) -> FrontendError {
        self.place(op, FrontendError::new(code, message))
    }

    /// Gives an error the op's place.
    fn place(&self, op: &RawOp<'_>, e: FrontendError) -> FrontendError {
        match self.raw.form {
            Form::Text => e.at_text(&self.raw.file, self.raw.source, op.at),
            Form::Bytecode => e.at_bytes(&self.raw.file, op.at),
        }
    }

    /// An error of msc-ir about an op, at its place.
    fn refused(&self, op: &RawOp<'_>, e: IrError) -> FrontendError {
        let code = match &e {
            IrError::Unsupported { .. } => Code::UnsupportedForm,
            IrError::Structure { .. } | IrError::Parse { .. } => Code::Internal,
            IrError::Type { .. } | IrError::Attribute { .. } => Code::Invalid,
        };
        self.error(op, code, format!("{}: {e}", op.name))
    }

    /// Says which value of the graph a raw value is.
    fn bind(&mut self, v: Value, value: ValueId) {
        self.values[v.0 as usize] = Some(value);
        self.defined.push(v);
    }

    /// Ends the scope of the values bound so far.
    fn forget(&mut self) {
        for v in self.defined.drain(..) {
            self.values[v.0 as usize] = None;
        }
    }

    /// The graph's values of an op's operands.
    fn operands(&self, op: &RawOp<'_>) -> Result<SmallVec<[ValueId; 4]>> {
        op.operands
            .iter()
            .map(|v| {
                self.values.get(v.0 as usize).copied().flatten().ok_or_else(|| {
                    self.error(op, Code::Name, format!("an operand of {} is not defined before it", op.name))
                })
            })
            .collect()
    }

    /// The graph's values of exactly `N` operands.
    fn operands_n<const N: usize>(&self, op: &RawOp<'_>) -> Result<[ValueId; N]> {
        let v = self.operands(op)?;
        <[ValueId; N]>::try_from(&v[..]).map_err(|_| {
            self.error(op, Code::Invalid, format!("{} takes {N} operands, has {}", op.name, v.len()))
        })
    }

    /// The tensor type that the source gives for result `i`.
    fn result_type(&mut self, op: &RawOp<'_>, i: usize) -> Result<TensorType> {
        let v = op
            .results
            .get(i)
            .ok_or_else(|| self.error(op, Code::Invalid, format!("{} should have a result {i}", op.name)))?;
        let ty = self.raw.values[v.0 as usize];
        self.tensor_type(ty).map_err(|e| self.place(op, e))
    }

    /// Adds an op to the graph.
    fn emit(
        &mut self,
        op: &RawOp<'_>,
        what: impl Into<msc_ir::Op>,
        operands: &[ValueId],
        loc: LocId,
    ) -> Result<Results> {
        self.graph.add(&self.module, what, operands, loc).map_err(|e| self.refused(op, e))
    }

    /// Adds an op with one result to the graph.
    fn emit1(
        &mut self,
        op: &RawOp<'_>,
        what: impl Into<msc_ir::Op>,
        operands: &[ValueId],
        loc: LocId,
    ) -> Result<ValueId> {
        self.graph.add1(&self.module, what, operands, loc).map_err(|e| self.refused(op, e))
    }
}
