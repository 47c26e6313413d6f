//! `msc-ir`: the one intermediate representation that every stage of msc reads and writes.
//!
//! A [`Module`] holds named computations ([`Graph`]s) of tensor operations in SSA form, an entry, a
//! store of constants interned by content, and a table of source locations. The op set is StableHLO's,
//! normalised ([`Op`]); beside it stand collectives and [`ops::fused::Fused`], whose *definition* is a graph of
//! plain ops. Each op family is one file under [`ops`] with everything the op needs: inference and
//! verification, interpretation, text attributes, and its [factor rule](factor::FactorRule).
//!
//! The [interpreter](interp) is the specification in code and the oracle of every rewrite.
//! The text form ([`text`]) satisfies `parse(print(m)) == m`.

pub mod attr;
pub mod constant;
pub mod dtype;
pub mod error;
pub mod factor;
pub mod graph;
pub mod inline;
pub mod interp;
pub mod location;
pub mod module;
pub mod monoid;
pub mod op;
pub mod ops;
pub mod outside;
pub mod program;
pub mod tensor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod types;
pub mod verify;
mod view;

pub use attr::{AttrMap, AttrValue};
pub use constant::{ConstId, ConstantStore};
pub use dtype::DType;
pub use error::{IrError, Result};
pub use factor::{Factor, FactorKind, FactorRule};
pub use graph::{Graph, OpData, OpId, Use, ValueData, ValueDef, ValueId};
pub use location::{Loc, LocId, LocationTable};
pub use module::{Entry, GraphId, Member, Module, ParamInfo, ResultInfo};
pub use monoid::Monoid;
pub use op::{Op, Operation};
pub use tensor::{Storage, Tensor};
pub use types::{Shape, TensorType};
