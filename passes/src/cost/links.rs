//! Links between devices, and what a collective takes over them.
//!
//! Devices stand in nested blocks (a server, a cluster of servers); each block has links of one kind between its parts.
//! A group of ranks is looked at level by level: how many of its ranks share a block, how many such blocks share the
//! next one. The algorithm follows: exchange with every peer at once inside a block, around a ring, or both stages one
//! after the other (hierarchical). The model is α–β: each step costs the level's latency and its bytes over its
//! bandwidth; a collective that crosses levels takes the cheaper of the hierarchical form and one ring through all.

use super::per;
use msc_ir::module::{AxisId, Mesh};
use msc_ir::ops::collective::Collective;
use serde::Serialize;

/// Most levels of a topology: package, node, rack, cluster and two to spare.
pub const MAX_LEVELS: usize = 6;

/// How the parts of a block are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkKind {
    /// A link to each other part.
    #[default]
    FullMesh,
    /// A port on each device into a switch that blocks nothing.
    Switch,
    /// A link to each of two neighbours.
    Ring,
}

impl LinkKind {
    /// Every kind.
    pub const ALL: [LinkKind; 3] = [LinkKind::FullMesh, LinkKind::Switch, LinkKind::Ring];

    /// The kind's name in topology files.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::FullMesh => "full_mesh",
            LinkKind::Switch => "switch",
            LinkKind::Ring => "ring",
        }
    }
}

/// One level of links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Devices in a block: consecutive ranks.
    pub devices: usize,
    /// How the blocks of the level below are joined within one.
    pub kind: LinkKind,
    /// Bytes per microsecond in one direction: of the link to one peer (full mesh, ring), of a port (switch).
    pub bytes_per_us: u64,
    /// What one exchange costs beside its bytes, in picoseconds.
    pub latency_ps: u64,
}

/// How a collective goes over its group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Every rank exchanges with every other at once, each over a link of its own.
    FullMesh,
    /// Every rank exchanges with every other through a switch.
    Switch,
    /// Around a ring.
    Ring,
    /// Within blocks first, then between them.
    Hierarchical,
}

impl Algorithm {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::FullMesh => "full_mesh",
            Algorithm::Switch => "switch",
            Algorithm::Ring => "ring",
            Algorithm::Hierarchical => "hierarchical",
        }
    }
}

/// A collective over a group: which way, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// How.
    pub algorithm: Algorithm,
    /// The outermost level whose links it uses.
    pub level: usize,
    /// Predicted time, in picoseconds.
    pub ps: u64,
}

/// The levels of a topology, innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Links {
    levels: [Level; MAX_LEVELS],
    count: usize,
}

/// How many ranks of a group meet at each level: of those that share a block, in how many blocks of the level below
/// they lie. The product is the size of the group if `regular`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    sizes: [u64; MAX_LEVELS],
    ranks: u64,
    regular: bool,
}

impl Links {
    /// Levels, innermost first; those above [`MAX_LEVELS`] are not kept.
    pub fn new(levels: &[Level]) -> Links {
        let mut out = Links { count: levels.len().min(MAX_LEVELS), ..Links::default() };
        out.levels[..out.count].copy_from_slice(&levels[..out.count]);
        out
    }

    /// The levels, innermost first.
    pub fn levels(&self) -> &[Level] {
        &self.levels[..self.count]
    }

    /// The way of a collective over the groups of mesh axes, the slowest group's where they differ. `bytes` is the
    /// size of the local operand. `None` for a group of one rank, or without levels.
    pub fn route(&self, op: &Collective, bytes: u64, mesh: &Mesh, axes: &[AxisId]) -> Option<Route> {
        self.over(op, bytes, &self.shape(mesh, axes)?)
    }

    /// The same for a group of `n` consecutive ranks.
    pub fn route_of(&self, op: &Collective, bytes: u64, n: usize) -> Option<Route> {
        let mut sizes = [1; MAX_LEVELS];
        let mut below = 1;
        for (size, level) in sizes.iter_mut().zip(self.levels()) {
            let inside = n.min(level.devices);
            *size = inside.div_ceil(below) as u64;
            below = inside.max(1);
        }
        let regular = sizes.iter().product::<u64>() == n as u64;
        self.over(op, bytes, &Shape { sizes, ranks: n as u64, regular })
    }

    /// The shape of the groups of these axes.
    fn shape(&self, mesh: &Mesh, axes: &[AxisId]) -> Option<Shape> {
        let ranks: usize = axes.iter().map(|&a| mesh.size(a)).product();
        if ranks <= 1 || self.count == 0 {
            return None;
        }
        let mut inside = [1usize; MAX_LEVELS];
        for (n, level) in inside.iter_mut().zip(self.levels()) {
            match inside_block(mesh, axes, level.devices) {
                Some(shared) => *n = shared,
                // Blocks cut groups at different places.
                None => return Some(self.irregular(mesh, axes, ranks)),
            }
        }
        let mut sizes = [1; MAX_LEVELS];
        let mut below = 1;
        for (size, n) in sizes.iter_mut().zip(&inside[..self.count]) {
            *size = (n / below) as u64;
            below = *n;
        }
        Some(Shape { sizes, ranks: ranks as u64, regular: below == ranks })
    }

    /// The shape of groups that the blocks cut unevenly: what matters is which level the widest of them reaches.
    fn irregular(&self, mesh: &Mesh, axes: &[AxisId], ranks: usize) -> Shape {
        // A group begins where its axes' coordinates are 0 and spans what they add.
        let first = |r: &usize| axes.iter().all(|&a| mesh.coordinate(*r, a) == 0);
        let last: usize = (0..mesh.ranks()).rev().find(|r| first(r)).map_or(0, |r| mesh.ranks() - 1 - r);
        let top = (0..mesh.ranks()).filter(first).map(|r| {
            let shares = |l: &Level| r / l.devices == (r + last) / l.devices;
            self.levels().iter().position(shares).unwrap_or(self.count.saturating_sub(1))
        });
        let mut sizes = [1; MAX_LEVELS];
        sizes[top.max().unwrap_or(0)] = ranks as u64;
        Shape { sizes, ranks: ranks as u64, regular: false }
    }

    fn over(&self, op: &Collective, bytes: u64, shape: &Shape) -> Option<Route> {
        let used = |l: &usize| shape.sizes[*l] > 1;
        let level = (0..self.count).rev().find(used)?;
        let ring = Route { algorithm: Algorithm::Ring, level, ps: self.ring_ps(op, bytes, shape, level) };
        if !shape.regular {
            return Some(ring);
        }
        let ps = self.staged_ps(op, bytes, shape);
        let several = (0..self.count).filter(used).count() > 1;
        let algorithm = match self.levels[level].kind {
            _ if several => Algorithm::Hierarchical,
            LinkKind::FullMesh => Algorithm::FullMesh,
            LinkKind::Switch => Algorithm::Switch,
            LinkKind::Ring => Algorithm::Ring,
        };
        let staged = Route { algorithm, level, ps };
        Some(if several && ring.ps < staged.ps { ring } else { staged })
    }

    /// One ring through all ranks, as fast as its slowest link.
    fn ring_ps(&self, op: &Collective, bytes: u64, shape: &Shape, top: usize) -> u64 {
        let n = shape.ranks;
        let used = self.levels[..=top].iter().zip(shape.sizes).filter(|(_, s)| *s > 1).map(|(l, _)| l);
        let rate = used.clone().map(|l| l.bytes_per_us).min().unwrap_or(1);
        let latency = used.map(|l| l.latency_ps).max().unwrap_or(0);
        let (steps, each) = match op {
            Collective::AllReduce { .. } => (2 * (n - 1), bytes.div_ceil(n)),
            Collective::AllGather { .. } => (n - 1, bytes),
            Collective::ReduceScatter { .. } => (n - 1, bytes.div_ceil(n)),
            // What is meant for a rank k places on passes through k links.
            Collective::AllToAll { .. } => (n - 1, bytes.div_ceil(2)),
            Collective::Permute { .. } => (1, bytes),
            Collective::Broadcast { .. } => (2 * (n - 1), bytes.div_ceil(n)),
            Collective::PartitionId | Collective::AxisIndex { .. } => return 0,
        };
        steps.saturating_mul(latency.saturating_add(time(each, rate)))
    }

    /// Level by level.
    fn staged_ps(&self, op: &Collective, bytes: u64, shape: &Shape) -> u64 {
        let used = || self.levels().iter().zip(shape.sizes).filter(|(_, n)| *n > 1);
        match op {
            Collective::AllReduce { .. } => {
                // Scattered inwards to outwards, gathered on the way back.
                self.staged_ps(&scatter(), bytes, shape).saturating_mul(2)
            }
            Collective::ReduceScatter { .. } => {
                let mut left = bytes;
                let mut ps = 0u64;
                for (l, n) in used() {
                    left = left.div_ceil(n);
                    ps = ps.saturating_add(exchange(l, n, left));
                }
                ps
            }
            Collective::AllGather { .. } => {
                // Outermost first, while the blocks are small.
                let mut have = bytes;
                let mut ps = 0u64;
                for (l, n) in used().collect::<Vec<_>>().into_iter().rev() {
                    ps = ps.saturating_add(exchange(l, n, have));
                    have = have.saturating_mul(n);
                }
                ps
            }
            Collective::AllToAll { .. } => {
                // The levels work side by side: each carries what goes to ranks that meet there first.
                let mut below = 1;
                let mut longest = 0;
                for (l, n) in used() {
                    let each = bytes.div_ceil(shape.ranks).saturating_mul(below);
                    let ps = match l.kind {
                        // What is meant for a part k places on passes through k links.
                        LinkKind::Ring => {
                            let half = each.saturating_mul(n - 1).div_ceil(2);
                            (n - 1).saturating_mul(l.latency_ps.saturating_add(time(half, l.bytes_per_us)))
                        }
                        _ => exchange(l, n, each),
                    };
                    longest = longest.max(ps);
                    below *= n;
                }
                longest
            }
            Collective::Broadcast { .. } => {
                // Scattered, then gathered.
                self.staged_ps(&scatter(), bytes, shape).saturating_mul(2)
            }
            Collective::Permute { .. } => used()
                .map(|(l, _)| l.latency_ps.saturating_add(time(bytes, l.bytes_per_us)))
                .max()
                .unwrap_or(0),
            Collective::PartitionId | Collective::AxisIndex { .. } => 0,
        }
    }
}

/// A reduce-scatter, for what costs like one.
fn scatter() -> Collective {
    Collective::ReduceScatter { monoid: msc_ir::Monoid::Sum, dim: 0, axes: Default::default() }
}

/// Every one of `n` parts sends `bytes` to each other part.
fn exchange(l: &Level, n: u64, bytes: u64) -> u64 {
    match l.kind {
        LinkKind::FullMesh => l.latency_ps.saturating_add(time(bytes, l.bytes_per_us)),
        LinkKind::Switch => l.latency_ps.saturating_add(time(bytes.saturating_mul(n - 1), l.bytes_per_us)),
        LinkKind::Ring => (n - 1).saturating_mul(l.latency_ps.saturating_add(time(bytes, l.bytes_per_us))),
    }
}

/// Picoseconds for bytes at a rate.
fn time(bytes: u64, bytes_per_us: u64) -> u64 {
    per(bytes.saturating_mul(1_000), bytes_per_us)
}

/// How many ranks of each group share a block of `block` consecutive ranks; `None` if that differs.
fn inside_block(mesh: &Mesh, axes: &[AxisId], block: usize) -> Option<usize> {
    if block >= mesh.ranks() {
        return Some(axes.iter().map(|&a| mesh.size(a)).product());
    }
    let mut stride = 1;
    let mut shared = 1;
    for (i, axis) in mesh.axes.iter().enumerate().rev() {
        // Ranks along an axis of the group are `stride` apart; where that is a block or more, no two share one.
        if axes.contains(&AxisId(i as u8)) && block > stride {
            let n = block / stride;
            shared *= match () {
                () if !block.is_multiple_of(stride) => return None,
                () if n.is_multiple_of(axis.size) => axis.size,
                () if axis.size.is_multiple_of(n) => n,
                () => return None,
            };
        }
        stride *= axis.size;
    }
    Some(shared)
}
