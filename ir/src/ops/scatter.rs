//! `scatter`.

use super::indexing::{OutOfRange, SplitComponent, expect_index_vectors, index_at, relative_indices, scalar};
use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, AttrValue, ints, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::EvalCx;
use crate::location::LocId;
use crate::module::Module;
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::ops::broadcast::BroadcastInDim;
use crate::ops::compare::{Compare, Direction};
use crate::ops::constant::ConstantOp;
use crate::ops::reduce::{combiner, identity};
use crate::ops::select::Select;
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::{Shape, TensorType, strides};
use smallvec::SmallVec;

/// `scatter` with one input: `T[…], i[…], T[updates] → T[…]`. Updates whose index is out of bounds are dropped
/// (StableHLO specification, "scatter").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scatter {
    /// Update dimensions that run within a window.
    pub update_window_dims: Shape,
    /// Input dimensions of window size 1 that the updates do not have.
    pub inserted_window_dims: Shape,
    /// Input dimensions indexed by the position in `scatter_indices_batching_dims`.
    pub input_batching_dims: Shape,
    /// Dimensions of the indices paired with `input_batching_dims`.
    pub scatter_indices_batching_dims: Shape,
    /// Which input dimension each component of an index vector addresses.
    pub scatter_dims_to_operand_dims: Shape,
    /// Dimension of the indices that holds the index vectors; the rank if each index is a scalar.
    pub index_vector_dim: usize,
    /// How an update combines with the element there; `None` overwrites, the last one winning.
    pub combine: Option<Monoid>,
    /// The exporter promises that no element is addressed twice.
    pub unique_indices: bool,
}

impl Scatter {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Scatter>> {
        if name != "scatter" || a.has("body") {
            return Ok(None);
        }
        let combine = match a.word("combine")?.as_str() {
            "replace" => None,
            w => Some(
                Monoid::from_name(w)
                    .ok_or_else(|| IrError::attr(name, "combine", format!("unknown value `{w}`")))?,
            ),
        };
        Ok(Some(Scatter { combine, ..Scatter::read_numbers(a)? }))
    }

    fn window_dims(&self, rank: usize) -> Shape {
        (0..rank)
            .filter(|d| !self.inserted_window_dims.contains(d) && !self.input_batching_dims.contains(d))
            .collect()
    }

    fn batch_dims(&self, indices_rank: usize) -> Shape {
        (0..indices_rank).filter(|&d| d != self.index_vector_dim).collect()
    }

    /// Pairs (element of the input, element of the updates), in update order, of the updates that hit.
    pub(crate) fn hits(&self, input: &[usize], ix: &Tensor, updates: &[usize]) -> Vec<(usize, usize)> {
        let st = strides(input);
        let window = self.window_dims(input.len());
        let batch_of = self.batch_dims(ix.shape.len());
        let mut hits: Vec<(usize, usize)> = Vec::new();
        'updates: for (n, at) in IndexSpace::new(updates).enumerate() {
            let batch: Shape =
                (0..updates.len()).filter(|d| !self.update_window_dims.contains(d)).map(|d| at[d]).collect();
            let mut full: SmallVec<[i64; 6]> = SmallVec::from_elem(0, input.len());
            for (c, &d) in self.scatter_dims_to_operand_dims.iter().enumerate() {
                full[d] = index_at(ix, self.index_vector_dim, &batch, c);
            }
            for (&d, b) in self.input_batching_dims.iter().zip(&self.scatter_indices_batching_dims) {
                let k = batch_of.iter().position(|x| x == b).unwrap_or(0);
                full[d] = batch[k] as i64;
            }
            for (&o, &d) in self.update_window_dims.iter().zip(&window) {
                full[d] = full[d].saturating_add(at[o] as i64);
            }
            let mut flat = 0;
            for d in 0..input.len() {
                if full[d] < 0 || full[d] >= input[d] as i64 {
                    continue 'updates;
                }
                flat += st[d] * full[d] as usize;
            }
            hits.push((flat, n));
        }
        hits
    }

    /// Reads the dimension numbers.
    pub(crate) fn read_numbers(a: &mut AttrReader) -> Result<Scatter> {
        Ok(Scatter {
            update_window_dims: a.indices("update_window_dims")?,
            inserted_window_dims: a.indices("inserted_window_dims")?,
            input_batching_dims: a.indices("input_batching_dims")?,
            scatter_indices_batching_dims: a.indices("scatter_indices_batching_dims")?,
            scatter_dims_to_operand_dims: a.indices("scatter_dims_to_operand_dims")?,
            index_vector_dim: a.index("index_vector_dim")?,
            combine: None,
            unique_indices: a.bool("unique_indices")?,
        })
    }
}

impl Operation for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("update_window_dims", ints(&self.update_window_dims)),
            ("inserted_window_dims", ints(&self.inserted_window_dims)),
            ("input_batching_dims", ints(&self.input_batching_dims)),
            ("scatter_indices_batching_dims", ints(&self.scatter_indices_batching_dims)),
            ("scatter_dims_to_operand_dims", ints(&self.scatter_dims_to_operand_dims)),
            ("index_vector_dim", AttrValue::Int(self.index_vector_dim as i64)),
            ("combine", word(self.combine.map_or("replace", Monoid::name))),
            ("unique_indices", AttrValue::Bool(self.unique_indices)),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 3)?;
        let op = self.name();
        let (x, ix, u) = (operands[0], operands[1], operands[2]);
        expect_index_vectors(op, ix, self.index_vector_dim, self.scatter_dims_to_operand_dims.len())?;
        let removed: Vec<usize> =
            self.inserted_window_dims.iter().chain(&self.input_batching_dims).copied().collect();
        expect_dims(op, "inserted_window_dims", &removed, x.rank())?;
        let addressed: Vec<usize> =
            self.scatter_dims_to_operand_dims.iter().chain(&self.input_batching_dims).copied().collect();
        expect_dims(op, "scatter_dims_to_operand_dims", &addressed, x.rank())?;
        expect_dims(op, "scatter_indices_batching_dims", &self.scatter_indices_batching_dims, ix.rank())?;
        if self.input_batching_dims.len() != self.scatter_indices_batching_dims.len() {
            return Err(IrError::attr(
                op,
                "input_batching_dims",
                "does not pair with scatter_indices_batching_dims",
            ));
        }
        for (&a, &b) in self.input_batching_dims.iter().zip(&self.scatter_indices_batching_dims) {
            if x.shape[a] != ix.shape[b] || b == self.index_vector_dim {
                return Err(IrError::attr(
                    op,
                    "input_batching_dims",
                    format!("{a} of {x} does not pair with {b} of {ix}"),
                ));
            }
        }
        let (window, batch) = (self.window_dims(x.rank()), self.batch_dims(ix.rank()));
        expect_dims(op, "update_window_dims", &self.update_window_dims, u.rank())?;
        let fits = u.dtype == x.dtype
            && u.rank() == window.len() + batch.len()
            && self.update_window_dims.len() == window.len()
            && self.update_window_dims.is_sorted()
            && self.update_window_dims.iter().zip(&window).all(|(&o, &d)| u.shape[o] <= x.shape[d])
            && (0..u.rank())
                .filter(|d| !self.update_window_dims.contains(d))
                .zip(&batch)
                .all(|(o, &d)| u.shape[o] == ix.shape[d]);
        if !fits {
            return Err(IrError::ty(op, format!("updates {u} do not fit input {x} at indices {ix}")));
        }
        if let Some(m) = self.combine
            && !m.supports(x.dtype)
        {
            return Err(IrError::ty(op, format!("{m} is not defined on {x}")));
        }
        Ok(vec![x.clone()])
    }

    /// Float sums are accumulated in f64 and rounded once, so the result does not depend on an order.
    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (x, u) = (inputs[0], inputs[2]);
        let hits = self.hits(&x.shape, inputs[1], &u.shape);
        let mut out = x.clone();
        let wrong = || IrError::ty(self.name(), "operands of different element types");
        match self.combine {
            Some(m) if x.dtype().is_float() => {
                let mut acc = x.data.to_f64s();
                for (to, from) in hits {
                    let v = u.data.get_f64(from);
                    acc[to] = match m {
                        Monoid::Product => acc[to] * v,
                        Monoid::Max | Monoid::Min if acc[to].is_nan() || v.is_nan() => f64::NAN,
                        Monoid::Max => acc[to].max(v),
                        Monoid::Min => acc[to].min(v),
                        _ => acc[to] + v,
                    };
                }
                out.data = Storage::from_f64s(x.dtype(), &acc);
            }
            _ => {
                let monoid = self.combine;
                macro_rules! write {
                    ($($v:ident),*) => {
                        match (&mut out.data, &u.data) {
                            $((Storage::$v(o), Storage::$v(n)) => for (to, from) in hits {
                                let new = match monoid {
                                    None => n[from],
                                    Some(m) => {
                                        let (a, b) = (Storage::$v(vec![o[to]]), Storage::$v(vec![n[from]]));
                                        match crate::ops::binary::combine(combiner(m), &a, &b) {
                                            Some(Storage::$v(r)) => r[0],
                                            _ => return Err(wrong()),
                                        }
                                    }
                                };
                                o[to] = new;
                            },)*
                            _ => return Err(wrong()),
                        }
                    };
                }
                write!(I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64);
            }
        }
        Ok(vec![out])
    }

    /// Factors in order: inserted dimensions (`range` of the table where indexed), window dimensions, batch
    /// dimensions of the indices (reduced, or passing where paired with the input's), the index vector.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let (x, ix, u) = (operands[0], operands[1], operands[2]);
        let mut r = FactorRule::empty(operands, results);
        for &d in &self.inserted_window_dims {
            let indexed = self.scatter_dims_to_operand_dims.contains(&d);
            let f = r.factor(x.shape[d], if indexed { FactorKind::Range } else { FactorKind::Whole });
            r.on_operand(0, d, f);
            r.on_result(0, d, f);
        }
        for (&o, &d) in self.update_window_dims.iter().zip(&self.window_dims(x.rank())) {
            let passes = u.shape[o] == x.shape[d] && !self.scatter_dims_to_operand_dims.contains(&d);
            let f = r.factor(x.shape[d], if passes { FactorKind::Pass } else { FactorKind::Whole });
            r.on_operand(0, d, f);
            r.on_result(0, d, f);
            let g = if passes { f } else { r.factor(u.shape[o], FactorKind::Whole) };
            r.on_operand(2, o, g);
        }
        let batch_of_update: Shape = (0..u.rank()).filter(|d| !self.update_window_dims.contains(d)).collect();
        for (&i, &o) in self.batch_dims(ix.rank()).iter().zip(&batch_of_update) {
            let paired = self.scatter_indices_batching_dims.iter().position(|&s| s == i);
            let kind = match (paired, self.combine) {
                (Some(_), _) => FactorKind::Pass,
                (None, Some(m)) => FactorKind::Reduce(m),
                (None, None) => FactorKind::Whole,
            };
            let f = r.factor(ix.shape[i], kind);
            r.on_operand(1, i, f);
            r.on_operand(2, o, f);
            if let Some(k) = paired {
                r.on_operand(0, self.input_batching_dims[k], f);
                r.on_result(0, self.input_batching_dims[k], f);
            }
        }
        if self.index_vector_dim < ix.rank() {
            let f = r.factor(ix.shape[self.index_vector_dim], FactorKind::Whole);
            r.on_operand(1, self.index_vector_dim, f);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }

    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        operands: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let xt = graph.ty(operands[0]).clone();
        let split: Vec<SplitComponent> = self
            .inserted_window_dims
            .iter()
            .enumerate()
            .filter_map(|(f, d)| {
                let start = *starts.get(&f)?;
                let component = self.scatter_dims_to_operand_dims.iter().position(|m| m == d)?;
                Some(SplitComponent { component, start, local: xt.shape[*d] })
            })
            .collect();
        let mut ops: SmallVec<[ValueId; 3]> = operands.into();
        if !split.is_empty() {
            // Updates outside the shard are dropped, as those outside the input are.
            (ops[1], _) = relative_indices(
                module,
                graph,
                operands[1],
                self.index_vector_dim,
                &split,
                OutOfRange::Keep,
                loc,
            )?;
        }
        // Where the updates are split, only the first shard keeps the input; the others start from the identity.
        if let Some(m) = self.combine {
            for s in starts.values().filter(|s| s.reduced) {
                let zero = scalar(module, graph, DType::I32, 0.0, loc)?;
                let first = graph.add1(
                    module,
                    Compare { direction: Direction::Eq, total_order: false },
                    &[s.value, zero],
                    loc,
                )?;
                let e = Tensor::new([], identity(m, results[0].dtype));
                let e = module.constants.intern_tensor(&e);
                let e = graph.add1(module, ConstantOp { id: e }, &[], loc)?;
                let e = graph.add1(module, BroadcastInDim::scalar(&results[0].shape), &[e], loc)?;
                ops[0] = graph.add1(module, Select::Select, &[first, ops[0], e], loc)?;
            }
        }
        graph.add(module, self.clone(), &ops, loc)
    }
}
