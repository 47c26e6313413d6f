//! What a source says about sharding, kept beside the module for the partitioner.

use crate::raw::Sharding;
use msc_ir::{GraphId, ValueId};

/// Where a sharding is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Site {
    /// Parameter of the entry.
    Param(u32),
    /// Result of the entry.
    Result(u32),
    /// A value of a graph that a constraint holds to a layout. The value may be used at other layouts elsewhere.
    /// The ids are those of the imported module: a pass that rewrites its graphs makes them void.
    Value(GraphId, ValueId),
}

/// A sharding in the form in which the source says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShardingHint {
    /// Shardy's.
    Sdy(Sharding),
    /// GSPMD's, as text: `{devices=[2,1]<=[2]}`.
    Gspmd(String),
}

/// A mesh that the source declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshDecl {
    /// Symbol.
    pub name: String,
    /// Axes and device order.
    pub mesh: crate::raw::Mesh,
}

/// Sharding annotations, in source order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Annotations {
    /// Declared meshes.
    pub meshes: Vec<MeshDecl>,
    /// Shardings.
    pub shardings: Vec<(Site, ShardingHint)>,
    /// `mhlo.num_partitions`, 1 if not written.
    pub partitions: u32,
    /// `mhlo.num_replicas`, 1 if not written.
    pub replicas: u32,
}
