//! Modules: named graphs, entries, constants, locations, mesh.

use crate::constant::ConstantStore;
use crate::error::{IrError, Result};
use crate::graph::Graph;
use crate::location::LocationTable;
use crate::ops::fused::FusedKind;
use crate::types::TensorType;
use std::collections::BTreeMap;

/// Index of a graph in its module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GraphId(pub u32);

/// Index of a mesh axis in [`Module::mesh`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AxisId(pub u8);

/// One axis of the device mesh.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshAxis {
    /// `tp`, `dp`, `fsdp`, `cp`, `ep`, `pp`, or a name of the user's.
    pub name: String,
    /// Number of ranks along the axis.
    pub size: usize,
}

/// The device mesh. Ranks are numbered row-major: the last axis varies fastest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mesh {
    /// Axes, outermost (slowest links) first.
    pub axes: Vec<MeshAxis>,
}

impl Mesh {
    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// Names and sizes of the axes, outermost first.
    pub fn sizes(&self) -> Vec<(String, usize)> {
        self.axes.iter().map(|a| (a.name.clone(), a.size)).collect()
    }

    /// Size of an axis.
    pub fn size(&self, axis: AxisId) -> usize {
        self.axes.get(axis.0 as usize).map_or(1, |a| a.size)
    }

    /// Position of a rank along an axis.
    pub fn coordinate(&self, rank: usize, axis: AxisId) -> usize {
        let inner: usize = self.axes[axis.0 as usize + 1..].iter().map(|a| a.size).product();
        rank / inner % self.size(axis)
    }

    /// The ranks that differ from `rank` along `axes` only, in the order of their coordinates.
    pub fn group(&self, rank: usize, axes: &[AxisId]) -> Vec<usize> {
        (0..self.ranks())
            .filter(|&r| {
                (0..self.axes.len() as u8)
                    .map(AxisId)
                    .all(|a| axes.contains(&a) || self.coordinate(r, a) == self.coordinate(rank, a))
            })
            .collect()
    }

    /// The axis with this name.
    pub fn axis(&self, name: &str) -> Option<AxisId> {
        self.axes.iter().position(|a| a.name == name).map(|i| AxisId(i as u8))
    }
}

/// How a tensor is laid over the mesh: for each dimension the axes that split it, outermost first.
/// An empty list (or a missing entry) leaves the dimension whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sharding {
    /// Axes per dimension.
    pub dims: Vec<Vec<AxisId>>,
    /// For each dimension the number of equal parts it consists of, each of which is cut on its own (the projections of
    /// queries, keys and values in one weight); 1 where an entry is missing.
    pub parts: Vec<usize>,
    /// For each dimension the size of what is held there, where the ranks' blocks together have room for more: the last
    /// elements of the last blocks are padding then, of every part. 0 where the blocks are full, and where an entry is
    /// missing.
    pub sizes: Vec<usize>,
}

impl Sharding {
    /// Whether every rank holds the whole tensor.
    pub fn is_replicated(&self) -> bool {
        self.dims.iter().all(Vec::is_empty)
    }

    /// The axes that split a dimension.
    pub fn axes(&self, dim: usize) -> &[AxisId] {
        self.dims.get(dim).map_or(&[], |a| a)
    }

    /// The number of parts of a dimension, at least 1.
    pub fn parts(&self, dim: usize) -> usize {
        self.parts.get(dim).map_or(1, |&n| n.max(1))
    }

    /// The size of a dimension of which `room` elements have a place, padding among them.
    pub fn size(&self, dim: usize, room: usize) -> usize {
        match self.sizes.get(dim) {
            None | Some(0) => room,
            Some(&n) => n,
        }
    }

    /// The layout without the first dimension.
    pub fn inner(&self) -> Sharding {
        let rest = |n: usize| 1.min(n);
        Sharding {
            dims: self.dims[rest(self.dims.len())..].to_vec(),
            parts: self.parts[rest(self.parts.len())..].to_vec(),
            sizes: self.sizes[rest(self.sizes.len())..].to_vec(),
        }
    }

    /// Whether two layouts say the same.
    pub fn same(&self, other: &Sharding) -> bool {
        let n = self.dims.len().max(other.dims.len());
        let of = |s: &Sharding, d| {
            (s.axes(d).to_vec(), if s.axes(d).is_empty() { 1 } else { s.parts(d) }, s.size(d, 0))
        };
        (0..n).all(|d| of(self, d) == of(other, d))
    }
}

/// One of several tensors of the outside that are one of the entry's ([`crate::outside`]).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// The user's name.
    pub name: String,
    /// Which of the outside's parameters, or results, it is.
    pub number: u32,
}

/// What the outside knows of an entry's parameter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ParamInfo {
    /// The user's name (a parameter path), or `argN`.
    pub name: String,
    /// The result that is this parameter's next value: the argument is donated state.
    pub alias: Option<u32>,
    /// Layout over the mesh.
    pub sharding: Sharding,
    /// The parameters it holds, one behind the other along its first dimension; empty if it is one itself.
    pub stack: Vec<Member>,
}

/// What the outside knows of an entry's result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResultInfo {
    /// The user's name, or `resultN`.
    pub name: String,
    /// Layout over the mesh.
    pub sharding: Sharding,
    /// The results it holds, as in [`ParamInfo::stack`].
    pub stack: Vec<Member>,
}

/// A computation the runtime can start; several entries of one module share state by parameter name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// `train`, `eval`, …
    pub name: String,
    /// The graph.
    pub graph: GraphId,
    /// One per parameter of the graph.
    pub params: Vec<ParamInfo>,
    /// One per result of the graph.
    pub results: Vec<ResultInfo>,
}

/// A whole program.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Name, from the source.
    pub name: String,
    graphs: Vec<Graph>,
    /// Entries; the first is the default.
    pub entries: Vec<Entry>,
    /// Constants.
    pub constants: ConstantStore,
    /// Source locations.
    pub locations: LocationTable,
    /// The mesh over which the program is split; empty (one rank) before partitioning.
    pub mesh: Mesh,
    definitions: BTreeMap<(FusedKind, Vec<TensorType>), GraphId>,
}

impl Module {
    /// An empty module.
    pub fn new(name: impl Into<String>) -> Module {
        Module { name: name.into(), ..Module::default() }
    }

    /// Adds a graph; its name is made unique by a numeric suffix if taken.
    pub fn add_graph(&mut self, mut graph: Graph) -> GraphId {
        if self.graph_by_name(&graph.name).is_some() {
            let n = (1..).find(|n| self.graph_by_name(&format!("{}_{n}", graph.name)).is_none()).unwrap_or(0);
            graph.name = format!("{}_{n}", graph.name);
        }
        let id = GraphId(self.graphs.len() as u32);
        self.graphs.push(graph);
        id
    }

    /// The graph behind an id.
    ///
    /// # Panics
    /// If the id is of another module.
    pub fn graph(&self, id: GraphId) -> &Graph {
        &self.graphs[id.0 as usize]
    }

    /// The graph behind an id, if there is one.
    pub fn try_graph(&self, id: GraphId) -> Option<&Graph> {
        self.graphs.get(id.0 as usize)
    }

    /// Replaces a graph's body; calls of it must still fit (the verifier checks).
    pub fn set_graph(&mut self, id: GraphId, graph: Graph) {
        self.graphs[id.0 as usize] = graph;
    }

    /// Takes a graph out for editing; put it back with [`Module::set_graph`].
    pub fn take_graph(&mut self, id: GraphId) -> Graph {
        std::mem::take(&mut self.graphs[id.0 as usize])
    }

    /// All graphs with their ids.
    pub fn graphs(&self) -> impl Iterator<Item = (GraphId, &Graph)> {
        self.graphs.iter().enumerate().map(|(i, g)| (GraphId(i as u32), g))
    }

    /// The graph with this name.
    pub fn graph_by_name(&self, name: &str) -> Option<GraphId> {
        self.graphs.iter().position(|g| g.name == name).map(|i| GraphId(i as u32))
    }

    /// The default entry.
    ///
    /// # Errors
    /// If the module has none.
    pub fn entry(&self) -> Result<&Entry> {
        self.entries.first().ok_or_else(|| IrError::Structure {
            graph: self.name.clone(),
            message: "the module has no entry".to_string(),
        })
    }

    /// The definition of a fused op at given operand types, if it was made before.
    pub fn definition(&self, kind: &FusedKind, operands: &[TensorType]) -> Option<GraphId> {
        self.definitions.get(&(kind.clone(), operands.to_vec())).copied()
    }

    /// Interns the definition of a fused op: the graph that computes it in plain ops.
    pub fn define(&mut self, kind: FusedKind, graph: Graph) -> GraphId {
        let key = (kind, graph.param_types());
        debug_assert!(key.0 != FusedKind::RowGroup, "generated groups are told apart by their definitions");
        if let Some(&id) = self.definitions.get(&key) {
            return id;
        }
        let id = self.add_graph(graph);
        self.definitions.insert(key, id);
        id
    }

    /// Records that a graph already in the module defines a fused op (for readers of the text form).
    pub(crate) fn note_definition(&mut self, kind: FusedKind, graph: GraphId) {
        if kind == FusedKind::RowGroup {
            return;
        }
        let key = (kind, self.graph(graph).param_types());
        self.definitions.entry(key).or_insert(graph);
    }

    /// All definitions of fused ops.
    pub fn definitions(&self) -> impl Iterator<Item = (&FusedKind, GraphId)> {
        self.definitions.iter().map(|((k, _), &g)| (k, g))
    }

    /// Drops graphs that no entry reaches and renumbers the rest, definitions included.
    pub fn drop_unreachable_graphs(&mut self) {
        crate::ops::call::drop_unreachable(self);
    }

    pub(crate) fn replace_graphs(&mut self, graphs: Vec<Graph>, remap: &[Option<GraphId>]) {
        self.graphs = graphs;
        self.definitions = std::mem::take(&mut self.definitions)
            .into_iter()
            .filter_map(|(k, g)| remap[g.0 as usize].map(|n| (k, n)))
            .collect();
        for e in &mut self.entries {
            if let Some(n) = remap[e.graph.0 as usize] {
                e.graph = n;
            }
        }
    }
}
