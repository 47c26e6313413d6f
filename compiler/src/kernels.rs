//! Which kernels a program needs, and their form in a plan.
//!
//! Kernels are built before the schedule, because a group may take several launches with temporaries between
//! them; a plan carries them in the form of the kernel IR, and each back end compiles them from there.

use crate::error::Result;
use msc_codegen::definition::row_group;
use msc_codegen::tile::build::{RowKernels, build_rows};
use msc_codegen::tile::{self, DeviceSpec};
use msc_ir::ops::fused::Fused;
use msc_ir::program::KernelId;
use msc_ir::{DType, GraphId, Module, Op, TensorType};
use msc_passes::schedule::{Argument, KernelCall, KernelSpec, Kernels};
use msc_runtime::plan::Kernel;
use std::collections::BTreeMap;

/// Kernels of a program.
#[derive(Debug, Default)]
pub struct Selection {
    /// For the schedule: launches per definition.
    pub specs: Kernels,
    /// For the plan, indexed by [`KernelId`].
    pub kernels: Vec<Kernel>,
    /// The kernels themselves, in the same order.
    pub tiles: Vec<tile::Kernel>,
    /// Fused ops that no kernel family has, with the reason. They are interpreted; so are updates in place.
    pub interpreted: Vec<String>,
}

/// Builds kernels for every fused op that the entry reaches.
///
/// # Errors
/// Never for an op that no family has; that is noted in [`Selection::interpreted`].
pub fn select(module: &Module, device: &DeviceSpec) -> Result<Selection> {
    let mut s = Selection::default();
    // Equal groups of different layers or segments share their kernels.
    let mut known: BTreeMap<Vec<u8>, Vec<KernelId>> = BTreeMap::new();
    for graph in msc_ir::ops::call::reachable(module) {
        for (_, data) in module.graph(graph).ops() {
            let Op::Fused(fused) = &data.op else { continue };
            let Fused { kind, definition } = &**fused;
            // An update writes over the state that it reads, which so far only interpreted instructions may.
            if s.specs.contains_key(definition) || kind.is_update() {
                continue;
            }
            let built = row_group(module, module.graph(*definition), "group")
                .map_err(|e| e.to_string())
                .and_then(|mut g| {
                    // Kernels are told apart by what they compute, not by where it stands; the name carries the
                    // content, so that an object cache can be keyed by it.
                    g.origin.clear();
                    let key = serde_json::to_vec(&g).map_err(|e| e.to_string())?;
                    let hash = blake3::hash(&key).to_hex();
                    g.name = format!("{}_{}", kind.name(), &hash[..12]);
                    g.origin = module.locations.describe(data.loc);
                    let rows = build_rows(&g, device).map_err(|e| e.to_string())?;
                    Ok((key, rows))
                });
            match built {
                Ok((key, rows)) => {
                    let ids = known.entry(key).or_insert_with(|| add(&mut s, &rows)).clone();
                    s.specs.insert(*definition, spec(&rows, &ids));
                }
                Err(why) => s.interpreted.push(why),
            }
        }
    }
    Ok(s)
}

fn add(s: &mut Selection, rows: &RowKernels) -> Vec<KernelId> {
    rows.kernels
        .iter()
        .map(|k| {
            let id = KernelId(s.kernels.len() as u32);
            // A kernel is plain data; writing it as JSON cannot fail.
            let payload = serde_json::to_vec(k).unwrap_or_default();
            s.kernels.push(Kernel { name: k.name.clone(), payload });
            s.tiles.push(k.clone());
            id
        })
        .collect()
}

/// Arguments of a launch: what the kernel only reads, then what it writes, each in the order of its parameters.
fn spec(rows: &RowKernels, ids: &[KernelId]) -> KernelSpec {
    let argument = |name: &str| {
        let number = |prefix: &str| name.strip_prefix(prefix).and_then(|n| n.parse().ok());
        match (number("in"), number("out"), rows.temps.iter().position(|t| t.name == name)) {
            (_, _, Some(t)) => Argument::Temporary(t),
            (Some(i), _, _) => Argument::Operand(i),
            (_, Some(i), _) => Argument::Result(i),
            _ => Argument::Temporary(usize::MAX),
        }
    };
    let calls = rows
        .kernels
        .iter()
        .zip(ids)
        .map(|(k, &kernel)| KernelCall {
            kernel,
            reads: k.params.iter().filter(|p| !p.role.writable()).map(|p| argument(&p.name)).collect(),
            writes: k.params.iter().filter(|p| p.role.writable()).map(|p| argument(&p.name)).collect(),
        })
        .collect();
    let temporaries = rows
        .temps
        .iter()
        .map(|t| TensorType::new(ir_dtype(t.dtype), t.shape.iter().map(|&n| n.max(0) as usize)))
        .collect();
    KernelSpec { calls, temporaries }
}

fn ir_dtype(d: tile::DType) -> DType {
    match d {
        tile::DType::F32 => DType::F32,
        tile::DType::F16 => DType::F16,
        tile::DType::BF16 => DType::BF16,
        tile::DType::I32 => DType::I32,
    }
}

/// The definitions that have kernels, for reports.
pub fn definitions(s: &Selection) -> Vec<GraphId> {
    s.specs.keys().copied().collect()
}
