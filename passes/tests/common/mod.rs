//! Programs that several tests use.

use msc_ir::module::{Mesh, MeshAxis};

/// A vocabulary-parallel embedding, a two-layer network whose weights are updated, and a mean over the batch.
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

/// A mesh from names and sizes.
pub fn mesh(axes: &[(&str, usize)]) -> Mesh {
    Mesh { axes: axes.iter().map(|&(n, size)| MeshAxis { name: n.into(), size }).collect() }
}
