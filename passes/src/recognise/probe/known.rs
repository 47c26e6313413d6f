//! What is known of a value from outside a region.

use super::band::Band;
use msc_ir::ops::iota::Iota;
use msc_ir::{Graph, LocId, Module, Result, TensorType, ValueId};

/// What a value from outside is known to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// A constant, or a mask made of indices.
    Band(Band),
    /// The index along a dimension.
    Index(usize),
}

impl Known {
    /// The one value of its elements, if there is one.
    pub fn value(&self) -> Option<f64> {
        match self {
            Known::Band(b) => b.value(),
            Known::Index(_) => None,
        }
    }

    /// Builds the tensor of a type at the end of a graph.
    ///
    /// # Errors
    /// If the type has no such dimensions.
    pub fn build(&self, module: &mut Module, graph: &mut Graph, ty: &TensorType) -> Result<ValueId> {
        match *self {
            Known::Band(b) => b.build(module, graph, ty),
            Known::Index(dim) => graph.add1(module, Iota { ty: ty.clone(), dim }, &[], LocId::UNKNOWN),
        }
    }
}
