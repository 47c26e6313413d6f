//! Building a mutant: a copy of one graph in which some ops, operands or values are others.

use msc_ir::module::GraphId;
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{Graph, IrError, LocId, Module, OpId, Result, Tensor, TensorType, ValueDef, ValueId};
use std::sync::Arc;

/// Builds the value to be used in place of the one given (an id of the new graph), of the same type.
pub type Make = Arc<dyn Fn(&mut Edit<'_>, ValueId) -> Result<ValueId> + Send + Sync>;

/// One change of a graph. Ids are those of the graph before.
#[derive(Clone)]
pub enum Change {
    /// The op becomes another that gives the same types.
    Op(OpId, Box<Op>),
    /// One operand of one op.
    Operand(OpId, usize, Make),
    /// Every use of a value, as a result of the graph too.
    Value(ValueId, Make),
    /// Every use of a value by an op, but not as a result of the graph.
    Uses(ValueId, Make),
    /// One result of the graph.
    Result(usize, Make),
}

/// A graph while its mutant is built.
pub struct Edit<'a> {
    module: &'a mut Module,
    source: &'a Graph,
    out: Graph,
    map: Vec<Option<ValueId>>,
}

/// A mutant's graph. `origin` gives for each new op the old one that it copies, if it is the same op.
pub struct Edited {
    /// The graph.
    pub graph: Graph,
    /// For each op id of `graph` the op of the source that it copies unchanged.
    pub origin: Vec<Option<OpId>>,
}

impl Edit<'_> {
    /// What a value of the source is in the new graph.
    ///
    /// # Errors
    /// If it is not defined yet: the change cannot be made there.
    pub fn get(&self, v: ValueId) -> Result<ValueId> {
        self.map[v.0 as usize].ok_or_else(|| IrError::Structure {
            graph: self.source.name.clone(),
            message: format!("value {} is not defined there", v.0),
        })
    }

    /// Type of a value of the new graph.
    pub fn ty(&self, v: ValueId) -> TensorType {
        self.out.ty(v).clone()
    }

    /// Adds an op with one result.
    ///
    /// # Errors
    /// Those of its inference.
    pub fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId> {
        self.out.add1(self.module, op, operands, LocId::UNKNOWN)
    }

    /// A constant.
    ///
    /// # Errors
    /// None for a sound tensor.
    pub fn constant(&mut self, t: &Tensor) -> Result<ValueId> {
        let id = self.module.constants.intern_tensor(t);
        self.op(ConstantOp { id }, &[])
    }

    /// A constant of the type of `like`, every element `c`.
    ///
    /// # Errors
    /// As [`Edit::constant`].
    pub fn splat(&mut self, like: ValueId, c: f64) -> Result<ValueId> {
        let ty = self.ty(like);
        let id = self.module.constants.intern_splat(ty, c);
        self.op(ConstantOp { id }, &[])
    }

    /// `v` combined with the constant `c`.
    ///
    /// # Errors
    /// Where the element type does not know the function.
    pub fn with(&mut self, kind: BinaryKind, v: ValueId, c: f64) -> Result<ValueId> {
        let c = self.splat(v, c)?;
        self.op(kind, &[v, c])
    }
}

/// A closure as a [`Make`].
pub fn make(f: impl Fn(&mut Edit<'_>, ValueId) -> Result<ValueId> + Send + Sync + 'static) -> Make {
    Arc::new(f)
}

/// Another value of the graph.
pub fn other(v: ValueId) -> Make {
    make(move |e, _| e.get(v))
}

/// The value times a constant.
pub fn times(c: f64) -> Make {
    make(move |e, v| e.with(BinaryKind::Multiply, v, c))
}

/// The constant `c` in the value's place.
pub fn splat(c: f64) -> Make {
    make(move |e, v| e.splat(v, c))
}

/// Applies changes to a graph of `module`, which takes in the constants they need.
///
/// # Errors
/// Where a change does not fit: a value that is not defined there, or of another type.
pub fn apply(module: &mut Module, id: GraphId, changes: &[Change]) -> Result<Edited> {
    let source = module.graph(id).clone();
    let (map, out) = (vec![None; source.value_count()], Graph::new(source.name.clone()));
    let mut e = Edit { module, source: &source, out, map };
    let mut origin = Vec::new();
    for &p in source.params() {
        e.map[p.0 as usize] = Some(e.out.add_param(source.ty(p).clone()));
    }
    // A changed value that is also a result only where the change says so.
    let mut whole: Vec<Option<ValueId>> = vec![None; source.value_count()];
    for &p in source.params() {
        value(&mut e, changes, p, &mut whole)?;
    }
    for (op, data) in source.ops() {
        let mut operands: Vec<ValueId> = data.operands.iter().map(|&v| e.get(v)).collect::<Result<_>>()?;
        let mut same = true;
        let mut new = data.op.clone();
        for c in changes {
            match c {
                Change::Operand(o, i, f) if *o == op => {
                    operands[*i] = fitting(&mut e, operands[*i], f)?;
                }
                Change::Op(o, with) if *o == op => {
                    new = Op::clone(with);
                    same = false;
                }
                _ => {}
            }
        }
        origin.resize(e.out.op_count(), None);
        let results = e.out.add(e.module, new, &operands, data.loc)?;
        origin.push(same.then_some(op));
        for (&old, &new) in data.results.iter().zip(&results) {
            if source.ty(old) != e.out.ty(new) {
                return Err(IrError::ty("mutation", "the changed op gives another type"));
            }
            e.map[old.0 as usize] = Some(new);
            value(&mut e, changes, old, &mut whole)?;
        }
    }
    let mut results = Vec::new();
    for (i, &r) in source.results().iter().enumerate() {
        let mut v = whole[r.0 as usize].map_or_else(|| e.get(r), Ok)?;
        for c in changes {
            if let Change::Result(at, f) = c
                && *at == i
            {
                v = fitting(&mut e, v, f)?;
            }
        }
        results.push(v);
    }
    let mut graph = e.out;
    graph.set_results(results);
    origin.resize(graph.op_count(), None);
    Ok(Edited { graph, origin })
}

fn value(e: &mut Edit<'_>, changes: &[Change], v: ValueId, whole: &mut [Option<ValueId>]) -> Result<()> {
    for c in changes {
        let (f, results_too) = match c {
            Change::Value(x, f) if *x == v => (f, true),
            Change::Uses(x, f) if *x == v => (f, false),
            _ => continue,
        };
        let old = e.get(v)?;
        let new = fitting(e, old, f)?;
        e.map[v.0 as usize] = Some(new);
        if !results_too && whole[v.0 as usize].is_none() {
            whole[v.0 as usize] = Some(old);
        }
    }
    Ok(())
}

fn fitting(e: &mut Edit<'_>, old: ValueId, f: &Make) -> Result<ValueId> {
    let new = f(e, old)?;
    if e.ty(new) != e.ty(old) {
        return Err(IrError::ty("mutation", format!("{} in place of {}", e.ty(new), e.ty(old))));
    }
    Ok(new)
}

/// Whether a value is a parameter of its graph.
pub fn is_param(g: &Graph, v: ValueId) -> bool {
    matches!(g.value(v).def, ValueDef::Param(_))
}
