#alias = dense<[1, 2]> : tensor<2xi32>
!t = tensor<2x3xf32>
#loc = loc("a"("b.py":1:2))
module @m attributes {mhlo.num_partitions = 2 : i32, x = [1.5 : f32, @s, {y}]} {
  sdy.mesh @mesh = <["a"=2]>
  func.func public @main(%arg0: !t {tf.aliasing_output = 0 : i32, sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {?}p1]>} loc("w"), %arg1: tensor<i32>) -> (!t {jax.result_info = "w\22"}) {
    %c = stablehlo.constant dense<"0x0000803F"> : tensor<f32>
    %d = stablehlo.constant dense<[[1.0, 0x7FC00000, -2.5e-3], [0.0, 1.0, 2.0]]> : tensor<2x3xf32> loc(#loc)
    %r = stablehlo.constant dense_resource<k> : tensor<2xi1>
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{}, {"a":(1)2}]> : !t
    %1 = stablehlo.dot_general %0, %d, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (!t, !t) -> tensor<2x2xf32>
    %2 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<2x2xf32>, tensor<f32>) -> tensor<2xf32>
    %3 = "stablehlo.gather"(%0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (!t, tensor<i32>) -> tensor<3xf32>
    %4:2 = stablehlo.while(%i = %arg1, %x = %0) : tensor<i32>, !t cond {
      %p = stablehlo.compare LT, %i, %arg1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %q = stablehlo.multiply %x, %d : !t
      stablehlo.return %i, %q : tensor<i32>, !t
    }
    %5 = call @f(%4#1) : (!t) -> !t
    %6 = "stablehlo.scatter"(%5, %arg1, %3) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (!t, tensor<i32>, tensor<3xf32>) -> !t
    %7 = stablehlo.slice %6 [0:2, 0:3:1] : (!t) -> !t
    return %7 : !t
  }
  func.func private @f(%arg0: !t) -> !t {
    %0 = chlo.square %arg0 : !t -> !t
    return %0 : !t
  }
}
{-# dialect_resources: { builtin: { k: "0x040000000100" } } #-}
