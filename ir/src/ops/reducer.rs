//! What combines elements in windows, variadic reductions and scatters: a monoid, or a graph.

use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::interp::EvalCx;
use crate::interp::lift::run_lifted;
use crate::module::{GraphId, Module};
use crate::monoid::Monoid;
use crate::ops::binary::combine;
use crate::ops::reduce::combiner;
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;

/// What combines two elements, or two tuples of `k` elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Reducer {
    /// One element each, starting from the monoid's identity.
    Monoid(Monoid),
    /// `k` accumulated scalars, then `k` new ones, to `k` scalars; the op has `k` initial values as operands.
    Graph(GraphId),
}

impl Reducer {
    /// Reads `monoid` or `body`.
    pub(crate) fn read(a: &mut AttrReader, module: &Module) -> Result<Reducer> {
        if a.has("body") {
            return Ok(Reducer::Graph(a.known_graph("body", module)?));
        }
        Ok(Reducer::Monoid(a.word_as("monoid", Monoid::from_name)?))
    }

    /// Writes `monoid` or `body`.
    pub(crate) fn write(self, module: &Module, m: &mut AttrMap) {
        match self {
            Reducer::Monoid(x) => m.insert("monoid", word(x.name())),
            Reducer::Graph(g) => m.insert("body", AttrValue::Graph(module.graph(g).name.clone())),
        };
    }

    /// Splits an op's operands into the reduced ones and the initial values (none for a monoid), and checks the
    /// reducer on them.
    pub(crate) fn operands<'a, 'b>(
        self,
        op: &str,
        operands: &'a [&'b TensorType],
        module: &Module,
    ) -> Result<(&'a [&'b TensorType], &'a [&'b TensorType])> {
        match self {
            Reducer::Monoid(m) => {
                super::expect_operands(op, operands, 1)?;
                if !m.supports(operands[0].dtype) {
                    return Err(IrError::ty(op, format!("{m} is not defined on {}", operands[0])));
                }
                Ok((operands, &[]))
            }
            Reducer::Graph(body) => {
                if operands.is_empty() || !operands.len().is_multiple_of(2) {
                    return Err(IrError::ty(op, "takes as many initial values as operands"));
                }
                let (inputs, inits) = operands.split_at(operands.len() / 2);
                let elements: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
                expect_reducer(op, body, &elements, module)?;
                for (t, init) in inputs.iter().zip(inits) {
                    if **init != TensorType::scalar(t.dtype) {
                        return Err(IrError::ty(op, format!("{init} does not start {t}")));
                    }
                    if t.shape != inputs[0].shape {
                        return Err(IrError::ty(op, format!("{t} and {} differ in shape", inputs[0])));
                    }
                }
                Ok((inputs, inits))
            }
        }
    }

    /// The graph, if it is one.
    pub(crate) fn graph(self) -> Option<GraphId> {
        match self {
            Reducer::Graph(g) => Some(g),
            Reducer::Monoid(_) => None,
        }
    }

    /// Where `n` accumulators start: the initial values, or the identity.
    pub(crate) fn start(self, inits: &[&Tensor], dtype: DType, n: usize) -> Vec<Storage> {
        match self {
            Reducer::Monoid(m) => {
                vec![crate::ops::reduce::identity(m, dtype).pick(std::iter::repeat_n(0, n))]
            }
            Reducer::Graph(_) => inits.iter().map(|t| t.data.pick(std::iter::repeat_n(0, n))).collect(),
        }
    }

    /// Combines `n` accumulators with `n` new elements. Sums and products of narrow floats are the caller's
    /// business to widen.
    pub(crate) fn fold(self, cx: &EvalCx<'_>, acc: Vec<Storage>, new: Vec<Storage>) -> Result<Vec<Storage>> {
        match self {
            Reducer::Monoid(m) => acc
                .iter()
                .zip(&new)
                .map(|(a, b)| {
                    combine(combiner(m), a, b)
                        .ok_or_else(|| IrError::ty("reduce", "operands of different element types"))
                })
                .collect(),
            Reducer::Graph(body) => {
                let n = acc.first().map_or(0, Storage::len);
                let tensors: Vec<Tensor> = acc.into_iter().chain(new).map(|s| Tensor::new([n], s)).collect();
                let refs: Vec<&Tensor> = tensors.iter().collect();
                Ok(run_lifted(cx, body, &refs, n)?.into_iter().map(|t| t.data).collect())
            }
        }
    }
}

/// Checks that `body` takes accumulated and new scalars of the element types and gives such scalars.
pub(crate) fn expect_reducer(op: &str, body: GraphId, elements: &[DType], module: &Module) -> Result<()> {
    let g =
        module.try_graph(body).ok_or_else(|| IrError::attr(op, "body", "is not a graph of the module"))?;
    let one: Vec<TensorType> = elements.iter().map(|&d| TensorType::scalar(d)).collect();
    let both: Vec<TensorType> = one.iter().chain(&one).cloned().collect();
    if g.param_types() != both || g.result_types() != one {
        return Err(IrError::ty(
            op,
            format!("@{} is {:?} → {:?}, not {both:?} → {one:?}", g.name, g.param_types(), g.result_types()),
        ));
    }
    Ok(())
}
