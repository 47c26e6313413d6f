//! The op set: one enum over the families of [`crate::ops`], and the trait every family implements.
//!
//! Adding an op touches its family's file under `ops/` and the list in `op_set!` below; see `docs/add-an-op.md`.

use crate::attr::{AttrMap, AttrReader};
use crate::error::{IrError, Result};
use crate::factor::{FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::{EvalCx, RanksCx, Row};
use crate::location::LocId;
use crate::module::{GraphId, Module};
use crate::ops;
use crate::tensor::Tensor;
use crate::types::TensorType;
use smallvec::SmallVec;
use std::sync::Arc;

/// What every op family defines. Operand and result types are the op's actual ones; implementations may rely
/// on them having passed [`Operation::infer`].
pub trait Operation {
    /// Name in the text form: StableHLO's where StableHLO has the op.
    fn name(&self) -> &'static str;

    /// Attributes in outward form.
    fn attrs(&self, module: &Module) -> AttrMap;

    /// Result types; also verifies the op against its operand types.
    ///
    /// # Errors
    /// [`IrError::Type`] or [`IrError::Attribute`] naming what does not fit.
    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>>;

    /// Computes the results. `results` are the inferred types, with every float type f64 in wide mode.
    ///
    /// # Errors
    /// [`IrError::Unsupported`] where the op cannot be evaluated.
    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>>;

    /// Computes the results on several ranks in lockstep: row `i` is that of rank `cx.ranks()[i]`. Ops that
    /// communicate or run graphs define it; others evaluate rank by rank. `results` are the inferred types.
    ///
    /// # Errors
    /// As [`Operation::eval`].
    fn eval_ranks(&self, inputs: Vec<Row>, results: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
        let rank = |(i, row): (usize, Row)| -> Result<Row> {
            let cx = cx.of_row(i);
            let held: Vec<TensorType> = results.iter().map(|t| cx.held(t)).collect();
            let refs: SmallVec<[&Tensor; 4]> = row.iter().map(|t| &**t).collect();
            Ok(self.eval(&refs, &held, &cx)?.into_iter().map(Arc::new).collect())
        };
        inputs.into_iter().enumerate().map(rank).collect()
    }

    /// How the op's dimensions correspond, named as an einsum does.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], module: &Module) -> FactorRule;

    /// The same op at other sizes: shape-carrying attributes take the sizes of `operands` and `results`.
    ///
    /// # Errors
    /// Where the op has no form at those sizes.
    fn resized(&self, operands: &[&TensorType], results: &[TensorType]) -> Result<Op>;

    /// The graphs the op refers to, in a fixed order.
    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        SmallVec::new()
    }

    /// The same references, to be pointed elsewhere; as many and in the same order as [`Operation::callees`].
    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        SmallVec::new()
    }

    /// Builds the op's local form for one shard at the end of `graph` and returns the local results.
    ///
    /// `operands` are the local operands, `results` the local result types, and `starts` gives for each split
    /// factor where the shard starts. Results of reduced factors come
    /// out partial; combining them is the caller's business.
    ///
    /// # Errors
    /// Where a split factor has no local form.
    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        operands: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let _ = starts;
        let types: Vec<TensorType> = operands.iter().map(|&v| graph.ty(v).clone()).collect();
        let refs: Vec<&TensorType> = types.iter().collect();
        let op = self.resized(&refs, results)?;
        graph.add(module, op, operands, loc)
    }
}

/// How an op is held: large ones apart, as a step has tens of thousands of small ones.
macro_rules! held {
    ($path:path) => { $path };
    ($path:path, apart) => { Box<$path> };
}

macro_rules! op_set {
    ($($(#[$doc:meta])* $variant:ident($path:path $(, $apart:ident)?)),* $(,)?) => {
        /// An operation with its attributes.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Op {
            $($(#[$doc])* $variant(held!($path $(, $apart)?)),)*
        }

        $(impl From<$path> for Op {
            fn from(op: $path) -> Op {
                Op::$variant(op.into())
            }
        })*

        impl Operation for Op {
            fn name(&self) -> &'static str {
                match self { $(Op::$variant(o) => o.name(),)* }
            }
            fn attrs(&self, module: &Module) -> AttrMap {
                match self { $(Op::$variant(o) => o.attrs(module),)* }
            }
            fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
                match self { $(Op::$variant(o) => o.infer(operands, module),)* }
            }
            fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
                match self { $(Op::$variant(o) => o.eval(inputs, results, cx),)* }
            }
            fn eval_ranks(&self, inputs: Vec<Row>, results: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
                match self { $(Op::$variant(o) => o.eval_ranks(inputs, results, cx),)* }
            }
            fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], module: &Module) -> FactorRule {
                match self { $(Op::$variant(o) => o.factor_rule(operands, results, module),)* }
            }
            fn resized(&self, operands: &[&TensorType], results: &[TensorType]) -> Result<Op> {
                match self { $(Op::$variant(o) => o.resized(operands, results),)* }
            }
            fn callees(&self) -> SmallVec<[GraphId; 2]> {
                match self { $(Op::$variant(o) => o.callees(),)* }
            }
            fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
                match self { $(Op::$variant(o) => o.callees_mut(),)* }
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
                match self { $(Op::$variant(o) => o.build_shard(module, graph, operands, results, starts, loc),)* }
            }
        }

        impl Op {
            /// The op named `name` with the attributes in `attrs`; the inverse of [`Operation::attrs`].
            ///
            /// # Errors
            /// For an unknown name, and for attributes that are missing, malformed or unknown.
            pub fn from_attrs(mut attrs: AttrReader, module: &Module) -> Result<Op> {
                let name = attrs.op().to_string();
                $(if let Some(op) = <$path>::from_attrs(&name, &mut attrs, module)? {
                    attrs.finish()?;
                    return Ok(op.into());
                })*
                Err(IrError::unsupported(name, "there is no op of this name"))
            }
        }
    };
}

op_set! {
    /// Elementwise, one operand.
    Unary(ops::unary::Unary),
    /// Elementwise, two operands.
    Binary(ops::binary::Binary),
    /// Comparison.
    Compare(ops::compare::Compare),
    /// Selection and clamping.
    Select(ops::select::Select),
    /// Conversion between element types.
    Convert(ops::convert::Convert),
    /// Constant.
    Constant(ops::constant::ConstantOp),
    /// Index ramp.
    Iota(ops::iota::Iota),
    /// `broadcast_in_dim`.
    Broadcast(ops::broadcast::BroadcastInDim),
    /// `reshape`.
    Reshape(ops::reshape::Reshape),
    /// `transpose` and `reverse`.
    Permute(ops::permute::Permute),
    /// Slices, static and dynamic.
    Slice(ops::slice::Slice),
    /// `pad`.
    Pad(ops::pad::Pad),
    /// `concatenate`.
    Concatenate(ops::concatenate::Concatenate),
    /// `gather`.
    Gather(ops::gather::Gather, apart),
    /// `scatter` with a monoid or an overwriting update.
    Scatter(ops::scatter::Scatter, apart),
    /// `scatter` by a graph.
    ScatterBy(ops::scatter_by::ScatterBy, apart),
    /// `dot_general`.
    DotGeneral(ops::dot_general::DotGeneral, apart),
    /// Reduction by a monoid.
    Reduce(ops::reduce::Reduce),
    /// Reduction by a graph.
    ReduceBy(ops::reduce_by::ReduceBy),
    /// `reduce_window` and `select_and_scatter`.
    Windowed(ops::window::Windowed, apart),
    /// `sort`.
    Sort(ops::sort::Sort),
    /// `map`.
    Map(ops::map::Map),
    /// `reduce_precision`.
    ReducePrecision(ops::precision::ReducePrecision),
    /// `convolution`.
    Convolution(ops::convolution::Convolution, apart),
    /// `cholesky` and `triangular_solve`.
    Triangular(ops::triangular::Triangular),
    /// `rng_bit_generator`.
    Rng(ops::rng::RngBitGenerator),
    /// `batch_norm_training`, `batch_norm_inference`, `batch_norm_grad`.
    BatchNorm(ops::batch_norm::BatchNorm),
    /// `optimization_barrier`.
    Barrier(ops::barrier::OptimizationBarrier),
    /// Call of a graph.
    Call(ops::call::Call),
    /// `while`.
    While(ops::while_loop::While),
    /// `if` and `case`.
    Branch(ops::branch::Branch),
    /// `reshard`.
    Reshard(ops::reshard::Reshard),
    /// Collectives and the rank's own position.
    Collective(ops::collective::Collective),
    /// A named or generated operation with a definition.
    Fused(ops::fused::Fused, apart),
}
