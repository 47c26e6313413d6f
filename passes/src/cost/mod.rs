//! The cost model: predicted time of ops and collectives on a device, in integer picoseconds.
//!
//! A roofline: an op takes the longer of its arithmetic and its memory traffic, plus a launch. Costs are
//! integers, so that comparing them never depends on a rounding mode. Where devices are described by a [`topology`],
//! a collective's time follows from the [`links`] that its group of ranks has.

mod json;
pub mod links;
pub mod topology;

pub use json::did_you_mean;

use links::{Links, Route};
use msc_ir::module::{AxisId, Mesh};
use msc_ir::ops::collective::Collective;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::slice::Slice;
use msc_ir::{Op, TensorType};

/// Rates of one device and its links. The defaults are an Ascend 910B3 in a server of eight (cube rate and
/// vector rate from core counts and clocks, HBM bandwidth as published, link bandwidth as measured by users).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceModel {
    /// Matrix products: bf16 floating-point operations per nanosecond.
    pub cube_flops_per_ns: u64,
    /// Elementwise operations on f32 per nanosecond.
    pub vector_ops_per_ns: u64,
    /// HBM bytes per nanosecond.
    pub hbm_bytes_per_ns: u64,
    /// Bytes per nanosecond to one peer; a group of n ranks has n − 1 such links (full mesh).
    pub link_bytes_per_ns: u64,
    /// Start of a kernel, in picoseconds.
    pub launch_ps: u64,
    /// Latency of a collective, in picoseconds.
    pub latency_ps: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The links between devices by level. Without levels every two devices have a link of `link_bytes_per_ns`.
    pub links: Links,
}

impl Default for DeviceModel {
    fn default() -> Self {
        DeviceModel {
            cube_flops_per_ns: 295_000,
            vector_ops_per_ns: 4_600,
            hbm_bytes_per_ns: 1_400,
            link_bytes_per_ns: 21,
            launch_ps: 5_000_000,
            latency_ps: 20_000_000,
            memory_bytes: 64 << 30,
            links: Links::default(),
        }
    }
}

fn per(amount: u64, rate_per_ns: u64) -> u64 {
    amount.saturating_mul(1_000) / rate_per_ns.max(1)
}

impl DeviceModel {
    /// Predicted time of one op at its local shapes, in picoseconds; 0 for ops that move and compute nothing.
    pub fn op_ps(&self, op: &Op, operands: &[&TensorType], results: &[&TensorType]) -> u64 {
        let bytes: u64 = operands.iter().chain(results).map(|t| t.bytes() as u64).sum();
        match op {
            Op::Constant(_) | Op::Iota(_) | Op::Reshape(_) | Op::Barrier(_) | Op::Call(_) => 0,
            // Broadcasts are read through, not written, once groups are generated.
            Op::Broadcast(_) => 0,
            Op::Collective(_) => 0,
            Op::DotGeneral(d) => {
                let (b, m, n, k) = d.matmul_sizes(operands[0], operands[1]);
                let flops = 2 * (b * m * n * k) as u64;
                per(flops, self.cube_flops_per_ns).max(per(bytes, self.hbm_bytes_per_ns)) + self.launch_ps
            }
            Op::Fused(f)
                if matches!(
                    f.kind,
                    FusedKind::GroupedMatmul { .. } | FusedKind::GroupedMatmulGrad { .. }
                ) =>
            {
                // Rows times what a row is multiplied by; the gradient does as much for rows and for matrices.
                let (products, width, at) = match f.kind {
                    FusedKind::GroupedMatmul { .. } => (1, 2, 1),
                    _ => (2, 1, 2),
                };
                let matrices = operands.get(at).and_then(|w| w.shape.get(width)).copied().unwrap_or(0);
                let flops = 2 * products * (operands[0].elements() * matrices) as u64;
                per(flops, self.cube_flops_per_ns).max(per(bytes, self.hbm_bytes_per_ns)) + self.launch_ps
            }
            Op::Slice(Slice::Update) => {
                per(2 * operands[1].bytes() as u64, self.hbm_bytes_per_ns) + self.launch_ps
            }
            _ => {
                let elements: u64 = results.iter().map(|t| t.elements() as u64).sum();
                per(elements, self.vector_ops_per_ns).max(per(bytes, self.hbm_bytes_per_ns)) + self.launch_ps
            }
        }
    }

    /// Predicted time of one generated kernel that does `elements` elementwise operations and moves `bytes`.
    pub fn kernel_ps(&self, elements: u64, bytes: u64) -> u64 {
        per(elements, self.vector_ops_per_ns).max(per(bytes, self.hbm_bytes_per_ns)) + self.launch_ps
    }

    /// Predicted time of a collective over a group of `n` ranks, in picoseconds; where links have levels, of `n`
    /// consecutive ranks. `operand` is the local operand.
    pub fn collective_ps(&self, op: &Collective, operand: &TensorType, n: usize) -> u64 {
        if n <= 1 {
            return 0;
        }
        let bytes = operand.bytes() as u64;
        if let Some(route) = self.links.route_of(op, bytes, n) {
            return self.latency_ps.saturating_add(route.ps);
        }
        let n = n as u64;
        let moved = match op {
            Collective::AllReduce { .. } => 2 * bytes * (n - 1) / n,
            Collective::AllGather { .. } => bytes * (n - 1),
            Collective::ReduceScatter { .. } => bytes * (n - 1) / n,
            _ => bytes,
        };
        self.latency_ps + per(moved, self.link_bytes_per_ns * (n - 1))
    }

    /// Predicted time of a collective over the groups of mesh axes, in picoseconds. `operand` is the local operand.
    pub fn collective_ps_on(
        &self,
        op: &Collective,
        operand: &TensorType,
        mesh: &Mesh,
        axes: &[AxisId],
    ) -> u64 {
        match self.route(op, operand.bytes() as u64, mesh, axes) {
            Some(route) => self.latency_ps.saturating_add(route.ps),
            None => self.collective_ps(op, operand, axes.iter().map(|&a| mesh.size(a)).product()),
        }
    }

    /// The way that a collective over the groups of mesh axes takes through the links, without the latency of its
    /// start; `None` where no levels are described.
    pub fn route(&self, op: &Collective, bytes: u64, mesh: &Mesh, axes: &[AxisId]) -> Option<Route> {
        self.links.route(op, bytes, mesh, axes)
    }
}
