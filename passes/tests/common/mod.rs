//! Programs that several tests use.

use msc_ir::interp::{Mode, run, run_ranks};
use msc_ir::module::{Entry, Mesh, MeshAxis, ParamInfo, ResultInfo, Sharding};
use msc_ir::outside::Outside;
use msc_ir::tensor::IndexSpace;
use msc_ir::testing::split::compare;
use msc_ir::testing::stack::stacked;
use msc_ir::testing::{Rng, graphs};
use msc_ir::{Module, Storage, Tensor, TensorType};
use msc_passes::PassError;
use msc_passes::partition::{Options, Report, partition};

/// A vocabulary-parallel embedding, a two-layer network whose weights are updated, and a mean over the batch.
#[allow(dead_code)]
pub const MLP: &str = r#"module @mlp

graph @layer(%0: f32[4,6], %1: f32[6,8], %2: f32[8,6]) {
  %3 = dot_general %0, %1 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,8]
  %4 = tanh %3 : f32[4,8]
  %5 = dot_general %4, %2 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,6]
  %6 = add %0, %5 : f32[4,6]
  return %6
}

graph @main(%0: f32[10,6], %1: f32[6,8], %2: f32[8,6], %3: f32[6,8], %4: f32[8,6], %5: i32[4]) {
  %6 = gather %0, %5 {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 6], start_index_map = [0], start_indices_batching_dims = []} : f32[4,6]
  %7 = multiply %6, %6 : f32[4,6]
  %8 = reduce %7 {dims = [1], monoid = sum} : f32[4]
  %9 = rsqrt %8 : f32[4]
  %10 = broadcast_in_dim %9 {dims = [0], shape = [4, 6]} : f32[4,6]
  %11 = multiply %6, %10 : f32[4,6]
  %12 = call %11, %1, %2 {graph = @layer} : f32[4,6]
  %13 = call %12, %3, %4 {graph = @layer} : f32[4,6]
  %14 = slice %13 {limit = [4, 5], start = [0, 0], stride = [1, 1]} : f32[4,5]
  %15 = reduce %14 {dims = [0, 1], monoid = sum} : f32[]
  %16 = negate %1 : f32[6,8]
  %17 = negate %2 : f32[8,6]
  %18 = multiply %1, %1 : f32[6,8]
  %19 = reduce %18 {dims = [0, 1], monoid = sum} : f32[]
  %20 = multiply %0, %0 : f32[10,6]
  %21 = reduce %20 {dims = [0, 1], monoid = sum} : f32[]
  %22 = add %19, %15 : f32[]
  %23 = add %22, %21 : f32[]
  return %0, %16, %17, %3, %4, %23
}

entry "train" @main {
  param "embed" alias 0
  param "up.0" alias 1
  param "down.0" alias 2
  param "up.1" alias 3
  param "down.1" alias 4
  param "tokens"
  result "embed"
  result "up.0"
  result "down.0"
  result "up.1"
  result "down.1"
  result "loss"
}
"#;

/// Tokens looked up in a table that is the head too, their loss, and the table's gradient. The width is odd.
#[allow(dead_code)]
pub const LOSS: &str = r#"module @loss

graph @main(%0: f32[10,5], %1: i32[4], %2: i32[4]) {
  %3 = gather %0, %1 {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 5], start_index_map = [0], start_indices_batching_dims = []} : f32[4,5]
  %4 = dot_general %3, %0 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : f32[4,10]
  %5 = broadcast_in_dim %2 {dims = [0], shape = [4, 10]} : i32[4,10]
  %6 = iota {dim = 1, dtype = i32, shape = [4, 10]} : i32[4,10]
  %7 = compare %5, %6 {direction = EQ} : i1[4,10]
  %8 = convert %7 {dtype = f32} : f32[4,10]
  %9 = reduce %4 {dims = [1], monoid = max} : f32[4]
  %10 = broadcast_in_dim %9 {dims = [0], shape = [4, 10]} : f32[4,10]
  %11 = subtract %4, %10 : f32[4,10]
  %12 = exponential %11 : f32[4,10]
  %13 = reduce %12 {dims = [1], monoid = sum} : f32[4]
  %14 = log %13 : f32[4]
  %15 = broadcast_in_dim %14 {dims = [0], shape = [4, 10]} : f32[4,10]
  %16 = subtract %11, %15 : f32[4,10]
  %17 = multiply %8, %16 : f32[4,10]
  %18 = reduce %17 {dims = [1], monoid = sum} : f32[4]
  %19 = negate %18 : f32[4]
  %20 = reduce %19 {dims = [0], monoid = sum} : f32[]
  %21 = broadcast_in_dim %13 {dims = [0], shape = [4, 10]} : f32[4,10]
  %22 = divide %12, %21 : f32[4,10]
  %23 = subtract %22, %8 : f32[4,10]
  %24 = constant {value = splat f32[4,10] 0.25} : f32[4,10]
  %25 = multiply %23, %24 : f32[4,10]
  %26 = dot_general %25, %3 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[10,5]
  %27 = dot_general %25, %0 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,5]
  %28 = constant {value = splat f32[10,5] 0.0} : f32[10,5]
  %29 = scatter %28, %1, %27 {combine = sum, index_vector_dim = 1, input_batching_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = [1]} : f32[10,5]
  %30 = add %26, %29 : f32[10,5]
  return %30, %20
}

entry "train" @main {
  param "embed" alias 0
  param "tokens"
  param "labels"
  result "embed"
  result "loss"
}
"#;

/// A mesh from names and sizes.
pub fn mesh(axes: &[(&str, usize)]) -> Mesh {
    Mesh { axes: axes.iter().map(|&(n, size)| MeshAxis { name: n.into(), size }).collect() }
}

/// A rank's block: of each part of a dimension, the one at the rank's place. Padding is arbitrary: not a number, and of
/// integers one that is no index.
#[allow(dead_code)]
pub fn block(mesh: &Mesh, t: &Tensor, s: &Sharding, rank: usize, local: &TensorType) -> Tensor {
    let padding = if t.dtype().is_float() { f64::NAN } else { 1e6 };
    padded_block(mesh, t, s, rank, local, |_| padding)
}

/// The block that a rank should give: what it gives as padding is right.
#[allow(dead_code)]
pub fn wanted(mesh: &Mesh, t: &Tensor, s: &Sharding, rank: usize, got: &Tensor) -> Tensor {
    let ty = got.ty();
    padded_block(mesh, t, s, rank, &ty, |i| if i < got.len() { got.data.get_f64(i) } else { f64::NAN })
}

fn padded_block(
    mesh: &Mesh,
    t: &Tensor,
    s: &Sharding,
    rank: usize,
    local: &TensorType,
    padding: impl Fn(usize) -> f64,
) -> Tensor {
    // Of each dimension: elements of a part, of a block, and where the block starts in its part.
    let places: Vec<(usize, usize, usize)> = (0..t.shape.len())
        .map(|d| {
            let part = t.shape[d] / s.parts(d);
            let size = match s.size(d, 0) {
                0 => part / s.axes(d).iter().map(|&a| mesh.size(a)).product::<usize>(),
                _ => local.shape[d] / s.parts(d),
            };
            let index = s.axes(d).iter().fold(0, |i, &a| i * mesh.size(a) + mesh.coordinate(rank, a));
            (part, size, index * size)
        })
        .collect();
    let shape: Vec<usize> = places.iter().enumerate().map(|(d, p)| s.parts(d) * p.1).collect();
    let values: Vec<f64> = IndexSpace::new(&shape)
        .enumerate()
        .map(|(n, ix)| {
            let is_padding =
                |(i, &(part, size, start)): (&usize, &(usize, usize, usize))| start + i % size >= part;
            if ix.iter().zip(&places).any(is_padding) {
                return padding(n);
            }
            let at = |(i, &(part, size, start)): (&usize, &(usize, usize, usize))| {
                i / size * part + start + i % size
            };
            let flat = ix.iter().zip(&places).map(at).zip(&t.shape).fold(0, |n, (i, m)| n * m + i);
            t.data.get_f64(flat)
        })
        .collect();
    Tensor::new(shape, Storage::from_f64s(t.dtype(), &values))
}

/// Splits a program and compares every rank's results with its blocks of the whole ones.
#[allow(dead_code)]
pub fn split(m: &Module, inputs: &[Tensor], options: &Options) -> Result<(Module, Report), String> {
    let mut local = m.clone();
    let report = partition(&mut local, options).map_err(|e| match e {
        PassError::Layout { .. } => format!("refused: {e}"),
        e => e.to_string(),
    })?;
    msc_ir::verify::verify(&local).map_err(|e| e.to_string())?;
    let want = run(m, m.entry().expect("entry").graph, inputs, Mode::Wide).map_err(|e| e.to_string())?;
    let entry = local.entry().expect("entry");
    let outside = Outside::of(entry)?;
    let inputs = stacked(&outside.params, entry.params.len(), inputs);
    let want = stacked(&outside.results, entry.results.len(), &want);
    let types = local.graph(entry.graph).param_types();
    let rows: Vec<Vec<Tensor>> = (0..local.mesh.ranks())
        .map(|r| {
            let blocks = inputs.iter().zip(&entry.params).zip(&types);
            blocks.map(|((t, p), ty)| block(&local.mesh, t, &p.sharding, r, ty)).collect()
        })
        .collect();
    let got = run_ranks(&local, entry.graph, &rows, Mode::Wide).map_err(|e| e.to_string())?;
    for (r, row) in got.iter().enumerate() {
        for ((g, w), info) in row.iter().zip(&want).zip(&entry.results) {
            compare(&wanted(&local.mesh, w, &info.sharding, r, g), g)
                .map_err(|e| format!("rank {r}, {}: {e}", info.name))?;
        }
    }
    Ok((local, report))
}

/// Options with a mesh.
#[allow(dead_code)]
pub fn axes(list: &[(&str, usize)]) -> Options {
    Options { mesh: mesh(list), ..Options::default() }
}

/// Random inputs of a program.
#[allow(dead_code)]
pub fn inputs(m: &Module, seed: u64) -> Vec<Tensor> {
    graphs::inputs(&mut Rng::new(seed), &m.graph(m.entry().expect("entry").graph).param_types())
}

/// The kinds of a program's collectives.
#[allow(dead_code)]
pub fn kinds(r: &Report) -> Vec<&'static str> {
    r.collectives.iter().map(|c| c.kind).collect()
}

/// A random program as a step: parameters that a result can replace are state.
#[allow(dead_code)]
pub fn step(r: &mut Rng) -> (Module, Vec<Tensor>) {
    let (mut m, graph) = graphs::module(r).expect("builds");
    let g = m.graph(graph);
    let inputs = graphs::inputs(r, &g.param_types());
    let mut taken: Vec<usize> = Vec::new();
    let params = g.params().iter().enumerate().map(|(i, &p)| {
        let fits = |&n: &usize| !taken.contains(&n) && g.ty(g.results()[n]) == g.ty(p);
        let alias = (0..g.results().len()).find(fits).filter(|_| g.ty(p).dtype.is_float());
        taken.extend(alias);
        ParamInfo { name: format!("p{i}"), alias: alias.map(|n| n as u32), ..ParamInfo::default() }
    });
    let params: Vec<ParamInfo> = params.collect();
    let results =
        (0..g.results().len()).map(|i| ResultInfo { name: format!("r{i}"), ..ResultInfo::default() });
    let results: Vec<ResultInfo> = results.collect();
    m.entries.push(Entry { name: "train".into(), graph, params, results });
    (m, inputs)
}
