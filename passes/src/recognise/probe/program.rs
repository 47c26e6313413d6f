//! The program of a region as a list of values in program order, one per class of the e-graph.
//!
//! What the normal form has found equal is one node, so aliases of a value (`x·1`, a layout that does nothing) are
//! not seen; an optimization barrier is its operand.

use super::band::{Band, Bands, Source as Origin, Values};
use super::known::Known;
use crate::recognise::engine::region::{At, Region, Source};
use crate::recognise::engine::term::Graph;
use msc_ir::constant::ConstData;
use msc_ir::factor::solve::AtomId;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{ConstId, GraphId, LocId, Module, Op, Operation, TensorType, ValueDef, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A node's index: its place in program order.
pub type Index = usize;

/// A value.
#[derive(Clone, Debug)]
pub struct Value<'r> {
    /// The first value of its class.
    pub at: At,
    /// Its type.
    pub ty: &'r TensorType,
    /// The op that defines it and which result it is; `None` for values from outside.
    pub op: Option<(&'r Op, usize)>,
    /// Operands of the op.
    pub operands: SmallVec<[Index; 3]>,
    /// Values of which it is an operand.
    pub users: Vec<Index>,
    /// The one value of its elements, if known.
    pub splat: Option<f64>,
    /// What a value from outside is known to be.
    pub known: Option<Known>,
    /// Where it comes from, for messages.
    pub loc: LocId,
}

impl Value<'_> {
    /// Whether it takes no operands: a constant or an `iota`.
    pub fn is_closed(&self) -> bool {
        self.op.is_some() && self.operands.is_empty()
    }

    /// Whether its op only moves or repeats elements.
    pub fn is_layout(&self) -> bool {
        matches!(
            self.op,
            Some((
                Op::Reshape(_) | Op::Broadcast(_) | Op::Permute(msc_ir::ops::permute::Permute::Transpose(_)),
                _
            ))
        )
    }
}

/// All values of a region.
#[derive(Debug)]
pub struct Program<'r> {
    /// In program order.
    pub values: Vec<Value<'r>>,
    index: FxHashMap<At, Index>,
}

impl<'r> Program<'r> {
    /// The program of a region.
    pub fn new(graph: &Graph, region: &'r Region) -> Program<'r> {
        let classes = region.values_by_class(graph);
        let mut first: FxHashMap<At, At> = FxHashMap::default();
        let mut heads: Vec<(At, egg::Id)> = Vec::new();
        for (&c, all) in classes.iter() {
            heads.push((all[0], c));
            first.extend(all.iter().map(|&a| (a, all[0])));
        }
        heads.sort();
        let mut program = Program { values: Vec::new(), index: FxHashMap::default() };
        for (at, class) in heads {
            let part = &region.parts[at.part];
            let find = |v: ValueId, index: &FxHashMap<At, Index>| -> Option<Index> {
                let a = region.at(at.part, v);
                index.get(first.get(&a).unwrap_or(&a)).copied()
            };
            let ty = part.graph.ty(at.value);
            let splat = graph[class].data.splat.as_ref().map(|s| s.value());
            let mut value = Value {
                at,
                ty,
                op: None,
                operands: SmallVec::new(),
                users: Vec::new(),
                splat,
                known: None,
                loc: LocId::UNKNOWN,
            };
            match part.graph.value(at.value).def {
                ValueDef::Param(i) => {
                    if let Some(Source::Known(b)) = part.spec.params.get(i as usize) {
                        value.known = Some(*b);
                    }
                }
                ValueDef::Result(op, i) => {
                    let data = part.graph.op(op);
                    let operands: Option<SmallVec<[Index; 3]>> =
                        data.operands.iter().map(|&v| find(v, &program.index)).collect();
                    value.loc = data.loc;
                    // What only calls see has no class; their results are values from outside.
                    if let Some(operands) = operands {
                        if let (Op::Barrier(_), Some(&o)) = (&data.op, operands.get(i as usize)) {
                            program.index.insert(at, o);
                            continue;
                        }
                        value.op = Some((&data.op, i as usize));
                        value.operands = operands;
                    }
                }
            }
            let n = program.values.len();
            for &o in &value.operands {
                if program.values[o].users.last() != Some(&n) {
                    program.values[o].users.push(n);
                }
            }
            program.index.insert(at, n);
            program.values.push(value);
        }
        program
    }

    /// Whether every element is a constant that the e-graph knows.
    pub fn splat(&self, i: Index) -> Option<f64> {
        self.values[i].splat
    }

    /// The op of a value.
    pub fn op(&self, i: Index) -> Option<&'r Op> {
        self.values[i].op.map(|o| o.0)
    }

    /// Whether the value is a unary op of a kind.
    pub fn is_unary(&self, i: Index, kind: UnaryKind) -> bool {
        matches!(self.op(i), Some(Op::Unary(u)) if u.kind == kind)
    }

    /// An analysis of masks among the values.
    pub fn bands<'p>(&'p self, module: &'p Module) -> Bands<'p, Program<'r>> {
        Bands::new(self, module)
    }

    /// A graph in `scratch` that computes `outputs` from `params`.
    ///
    /// # Errors
    /// The value that `outputs` depend on beside `params`, or one whose op runs other graphs.
    pub fn slice(
        &self,
        module: &Module,
        scratch: &mut Module,
        params: &[Index],
        outputs: &[Index],
    ) -> Result<Slice, Index> {
        let mut slice = Slice::default();
        for &p in params {
            let v = slice.graph.add_param(self.values[p].ty.clone());
            slice.made.insert(p, v);
        }
        // Masks stand for themselves: two dimensions counted by one `iota` are not one dimension.
        let mut bands = self.bands(module);
        let mut todo: Vec<Index> = outputs.to_vec();
        while let Some(&i) = todo.last() {
            if slice.made.contains_key(&i) {
                todo.pop();
                continue;
            }
            let v = &self.values[i];
            if v.op.is_some()
                && let Some(band) = bands.steps(i).and_then(|s| s.band())
            {
                slice.band(scratch, i, &band, v.ty)?;
                todo.pop();
                continue;
            }
            // A mask that keeps everything, or nothing, depends on no index.
            if !v.operands.is_empty()
                && !v.ty.dtype.is_float()
                && let Some(value) = bands.uniform(i)
            {
                slice.band(scratch, i, &Band::uniform(value), v.ty)?;
                todo.pop();
                continue;
            }
            let missing: Vec<Index> =
                v.operands.iter().copied().filter(|o| !slice.made.contains_key(o)).collect();
            if v.op.is_some() && !missing.is_empty() {
                todo.extend(missing);
                continue;
            }
            self.copy(module, scratch, &mut slice, i)?;
            todo.pop();
        }
        let results = outputs.iter().map(|o| slice.made[o]).collect();
        slice.graph.set_results(results);
        Ok(slice)
    }

    /// A graph of the values `inside`, in program order; what they need beside constants is a parameter.
    pub fn neighbourhood(&self, module: &Module, scratch: &mut Module, inside: &[Index]) -> Option<Slice> {
        let mut slice = Slice::default();
        for &i in inside {
            for &o in self.values[i].operands.iter().chain(self.values[i].op.is_none().then_some(&i)) {
                if slice.made.contains_key(&o) {
                    continue;
                }
                if self.values[o].is_closed() {
                    self.copy(module, scratch, &mut slice, o).ok()?;
                } else if inside.binary_search(&o).is_err() || self.values[o].op.is_none() {
                    let v = slice.graph.add_param(self.values[o].ty.clone());
                    slice.made.insert(o, v);
                }
            }
            if !slice.made.contains_key(&i) {
                self.copy(module, scratch, &mut slice, i).ok()?;
            }
        }
        Some(slice)
    }

    /// Copies one op whose operands are there already.
    fn copy(&self, module: &Module, scratch: &mut Module, slice: &mut Slice, i: Index) -> Result<(), Index> {
        let v = &self.values[i];
        let made = match (v.op, &v.known) {
            (Some((Op::Constant(c), _)), _) => {
                let id = constant(module, scratch, c.id);
                slice.graph.add_typed(ConstantOp { id }.into(), &[], vec![v.ty.clone()], v.loc)[0]
            }
            (Some((op, index)), _)
                if op.callees().is_empty() || matches!(op, Op::Sort(_) | Op::Windowed(_)) =>
            {
                let args: Option<Vec<ValueId>> =
                    v.operands.iter().map(|o| slice.made.get(o).copied()).collect();
                let args = args.ok_or(i)?;
                let mut op = op.clone();
                for callee in op.callees_mut() {
                    *callee = scalar_graph(module, scratch, *callee).ok_or(i)?;
                }
                let made = slice.graph.add(scratch, op, &args, v.loc).map_err(|_| i)?;
                *made.get(index).ok_or(i)?
            }
            (None, Some(Known::Band(b))) => return slice.band(scratch, i, b, v.ty),
            (None, Some(index)) => index.build(scratch, &mut slice.graph, v.ty).map_err(|_| i)?,
            _ => return Err(i),
        };
        match (v.op, v.known) {
            (Some((Op::Iota(x), _)), _) => slice.indexed.push((made, x.dim)),
            (None, Some(Known::Index(dim))) => slice.indexed.push((made, dim)),
            _ => {}
        }
        slice.made.insert(i, made);
        Ok(())
    }
}

/// A constant in another module.
fn constant(module: &Module, scratch: &mut Module, id: ConstId) -> ConstId {
    let c = module.constants.get(id);
    match &c.data {
        ConstData::Splat(e) => scratch.constants.intern_splat_bytes(c.ty.clone(), e),
        ConstData::Dense(b) => scratch.constants.intern_shared(c.ty.clone(), b.clone()),
    }
}

/// A comparator or reducer in another module; `None` if it runs other graphs.
fn scalar_graph(module: &Module, scratch: &mut Module, id: GraphId) -> Option<GraphId> {
    let source = module.graph(id);
    let mut g = msc_ir::Graph::new(source.name.clone());
    let mut map: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for &p in source.params() {
        map.insert(p, g.add_param(source.ty(p).clone()));
    }
    for (_, data) in source.ops() {
        let op = match &data.op {
            Op::Constant(c) => ConstantOp { id: constant(module, scratch, c.id) }.into(),
            op if op.callees().is_empty() => op.clone(),
            _ => return None,
        };
        let args: Vec<ValueId> = data.operands.iter().map(|v| map[v]).collect();
        let types = data.results.iter().map(|&r| source.ty(r).clone());
        let made = g.add_typed(op, &args, types, data.loc);
        map.extend(data.results.iter().copied().zip(made));
    }
    g.set_results(source.results().iter().map(|v| map[v]).collect());
    Some(scratch.add_graph(g))
}

/// A part of the program as a graph of its own.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// The graph.
    pub graph: msc_ir::Graph,
    /// What each value is in it.
    pub made: BTreeMap<Index, ValueId>,
    /// The masks that it makes.
    pub bands: Vec<Band>,
    /// Other values that are indices, with the dimension along which.
    pub indexed: Vec<(ValueId, usize)>,
    /// Atoms that keep their sizes in trials: indices reach into them.
    pub kept: Vec<AtomId>,
    /// Atoms that are cut to the fewest in trials: beside what is kept, more would be too many.
    pub few: Vec<AtomId>,
}

impl Slice {
    /// Makes a mask.
    fn band(&mut self, scratch: &mut Module, i: Index, band: &Band, ty: &TensorType) -> Result<(), Index> {
        let made = band.build(scratch, &mut self.graph, ty).map_err(|_| i)?;
        self.made.insert(i, made);
        self.bands.push(*band);
        Ok(())
    }
}

impl Values for Program<'_> {
    type Id = Index;

    fn source(&self, id: Index) -> Origin<'_, Index> {
        let v = &self.values[id];
        match (v.op, v.known) {
            (Some((op, _)), _) => Origin::Op(op, v.operands.to_vec()),
            (None, Some(b)) => Origin::Known(b),
            _ => Origin::Opaque,
        }
    }

    fn ty(&self, id: Index) -> &TensorType {
        self.values[id].ty
    }
}
