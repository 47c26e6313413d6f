//! Shared parts of msc's end-to-end tests: fixtures, comparison, mutants, near misses.

pub mod curves;
pub mod layouts;
pub mod meta;
pub mod mutants;
pub mod near;

use msc_frontends::npz;
use msc_ir::interp::{Mode, run_ranks};
use msc_ir::module::Sharding;
use msc_ir::outside::Outside;
use msc_ir::testing::stack::stacked;
use msc_ir::{Module, Storage, Tensor};
use msc_runtime::layout::Block;
use std::path::PathBuf;

/// The folder of a fixture of the repository.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo").join(name)
}

/// A real training step with its inputs and the reference's outputs.
pub struct Step {
    /// The program as imported.
    pub module: Module,
    /// Inputs in the entry's order.
    pub inputs: Vec<Tensor>,
    /// Reference outputs in the entry's order.
    pub outputs: Vec<Tensor>,
}

/// Reads a fixture.
///
/// # Panics
/// If the fixture is damaged: a test cannot go on without it.
pub fn step(name: &str) -> Step {
    let dir = fixture(name);
    let module = msc_frontends::read_file(&dir.join("model.mlir")).expect("the fixture imports").module;
    let graph = module.graph(module.entry().expect("an entry").graph);
    let load = |file: &str, types: Vec<msc_ir::TensorType>| -> Vec<Tensor> {
        let all = npz::read(&dir.join(file)).expect("the fixture's data");
        all.values().zip(types).map(|(t, ty)| npz::fit(t, &ty).expect("of the entry's type")).collect()
    };
    let inputs = load("inputs.npz", graph.param_types());
    let outputs = load("outputs.npz", graph.result_types());
    Step { module, inputs, outputs }
}

/// The block of a tensor that a rank holds.
pub fn block(module: &Module, t: &Tensor, s: &Sharding, rank: usize) -> Tensor {
    let local = t.ty().with_shape(t.shape.iter().enumerate().map(|(d, n)| {
        let blocks: usize = s.axes(d).iter().map(|&a| module.mesh.size(a)).product();
        n / blocks
    }));
    let mut bytes = vec![0; local.bytes()];
    Block::of_rank(&local, s, &module.mesh, rank).cut(t.data.bytes(), &mut bytes);
    Tensor::new(local.shape, Storage::from_bytes(local.dtype, &bytes))
}

/// Runs the default entry of a partitioned module on all ranks, from the whole inputs. Returns each rank's
/// results beside the blocks of `outputs` that they should be, with the results' names.
///
/// # Panics
/// If the module cannot be interpreted.
pub fn run_split(
    module: &Module,
    inputs: &[Tensor],
    outputs: &[Tensor],
    mode: Mode,
) -> Vec<Vec<(String, Tensor, Tensor)>> {
    let entry = module.entry().expect("an entry");
    let outside = Outside::of(entry).expect("consistent stacks");
    let inputs = stacked(&outside.params, entry.params.len(), inputs);
    let outputs = stacked(&outside.results, entry.results.len(), outputs);
    let rows: Vec<Vec<Tensor>> = (0..module.mesh.ranks())
        .map(|r| inputs.iter().zip(&entry.params).map(|(t, p)| block(module, t, &p.sharding, r)).collect())
        .collect();
    let got = run_ranks(module, entry.graph, &rows, mode).expect("the program runs");
    got.into_iter()
        .enumerate()
        .map(|(r, row)| {
            row.into_iter()
                .zip(&outputs)
                .zip(&entry.results)
                .map(|((g, w), info)| (info.name.clone(), g, block(module, w, &info.sharding, r)))
                .collect()
        })
        .collect()
}

/// max|a−b| / max|b|; infinite where the shapes differ or a value is not a number on one side only.
pub fn max_relative(a: &Tensor, b: &Tensor) -> f64 {
    if a.shape != b.shape {
        return f64::INFINITY;
    }
    let (a, b) = (a.data.to_f64s(), b.data.to_f64s());
    let scale = b.iter().fold(0f64, |m, x| m.max(x.abs()));
    let worst = a.iter().zip(&b).fold(0f64, |m, (x, y)| {
        let d = (x - y).abs();
        if d.is_nan() && !(x.is_nan() && y.is_nan()) { f64::INFINITY } else { m.max(d) }
    });
    if worst == 0.0 { 0.0 } else { worst / scale }
}
