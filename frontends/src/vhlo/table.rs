//! The ops that a portable artifact can hold: their StableHLO names and their properties in stored order.
//!
//! Properties are stored by attribute name in byte order, so a row lists them sorted. A name that ends in `?` is
//! optional and is stored with a presence flag; VHLO's are all required. Rows of one name are layouts that
//! versions of a library without format versions wrote; the number of stored properties tells them apart.

/// An op.
#[derive(Debug, PartialEq, Eq)]
pub struct OpRow {
    /// Name in the file, with dialect and version.
    pub name: &'static str,
    /// Name in the raw form.
    pub canonical: &'static str,
    /// Properties in stored order.
    pub properties: &'static [&'static str],
}

macro_rules! rows {
    ($($name:literal => $canonical:literal: $($property:literal)*;)*) => {
        &[$(OpRow { name: $name, canonical: $canonical, properties: &[$($property),*] },)*]
    };
}

/// Rows for an op's name in the file.
pub fn rows_of(name: &str) -> impl Iterator<Item = &'static OpRow> {
    [WITH_PROPERTIES, PLAIN, MIXED].into_iter().flatten().filter(move |r| r.name == name)
}

/// VHLO's ops with properties.
const WITH_PROPERTIES: &[OpRow] = rows! {
    "vhlo.all_gather_v1" => "stablehlo.all_gather":
        "all_gather_dim" "channel_id" "replica_groups" "use_global_device_ids";
    "vhlo.all_gather_v2" => "stablehlo.all_gather":
        "all_gather_dim" "channel_id" "replica_groups" "use_global_device_ids";
    "vhlo.all_reduce_v1" => "stablehlo.all_reduce": "channel_id" "replica_groups" "use_global_device_ids";
    "vhlo.all_reduce_v2" => "stablehlo.all_reduce": "channel_id" "replica_groups" "use_global_device_ids";
    "vhlo.all_to_all_v1" => "stablehlo.all_to_all":
        "channel_id" "concat_dimension" "replica_groups" "split_count" "split_dimension";
    "vhlo.all_to_all_v2" => "stablehlo.all_to_all":
        "channel_id" "concat_dimension" "replica_groups" "split_count" "split_dimension";
    "vhlo.batch_norm_grad_v1" => "stablehlo.batch_norm_grad": "epsilon" "feature_index";
    "vhlo.batch_norm_inference_v1" => "stablehlo.batch_norm_inference": "epsilon" "feature_index";
    "vhlo.batch_norm_training_v1" => "stablehlo.batch_norm_training": "epsilon" "feature_index";
    "vhlo.broadcast_in_dim_v1" => "stablehlo.broadcast_in_dim": "broadcast_dimensions";
    "vhlo.broadcast_v1" => "stablehlo.broadcast": "broadcast_sizes";
    "vhlo.call_v1" => "func.call": "callee";
    "vhlo.cbrt_v2" => "stablehlo.cbrt": "result_accuracy";
    "vhlo.cholesky_v1" => "stablehlo.cholesky": "lower";
    "vhlo.collective_broadcast_v1" => "stablehlo.collective_broadcast": "channel_id" "replica_groups";
    "vhlo.collective_broadcast_v2" => "stablehlo.collective_broadcast":
        "channel_id" "has_dynamic_root" "replica_groups";
    "vhlo.collective_reduce_v1" => "stablehlo.collective_reduce":
        "channel_id" "has_dynamic_root" "replica_groups" "use_global_device_ids";
    "vhlo.collective_permute_v1" => "stablehlo.collective_permute": "channel_id" "source_target_pairs";
    "vhlo.compare_v1" => "stablehlo.compare": "compare_type" "comparison_direction";
    "vhlo.composite_v1" => "stablehlo.composite": "composite_attributes" "decomposition" "name" "version";
    "vhlo.composite_v2" => "stablehlo.composite": "composite_attributes" "decomposition" "name" "version";
    "vhlo.concatenate_v1" => "stablehlo.concatenate": "dimension";
    "vhlo.constant_v1" => "stablehlo.constant": "value";
    "vhlo.convolution_v1" => "stablehlo.convolution":
        "batch_group_count" "feature_group_count" "input_batch_dimension"
        "input_feature_dimension" "input_spatial_dimensions" "kernel_input_feature_dimension"
        "kernel_output_feature_dimension" "kernel_spatial_dimensions" "lhs_dilation"
        "output_batch_dimension" "output_feature_dimension" "output_spatial_dimensions" "padding"
        "precision_config" "rhs_dilation" "window_reversal" "window_strides";
    "vhlo.cosine_v2" => "stablehlo.cosine": "result_accuracy";
    "vhlo.cross-replica-sum_v1" => "stablehlo.cross-replica-sum": "replica_groups";
    "vhlo.custom_call_v1" => "stablehlo.custom_call":
        "api_version" "backend_config" "call_target_name" "called_computations" "has_side_effect"
        "operand_layouts" "output_operand_aliases" "result_layouts";
    "vhlo.custom_call_v2" => "stablehlo.custom_call":
        "api_version" "backend_config" "call_target_name" "called_computations" "has_side_effect"
        "operand_layouts" "output_operand_aliases" "result_layouts" "result_tilings";
    "vhlo.dot_general_v1" => "stablehlo.dot_general":
        "lhs_batching_dimensions" "lhs_contracting_dimensions" "precision_config"
        "rhs_batching_dimensions" "rhs_contracting_dimensions";
    "vhlo.dot_general_v2" => "stablehlo.dot_general":
        "accumulation_type" "allow_imprecise_accumulation" "lhs_batching_dimensions"
        "lhs_component_count" "lhs_contracting_dimensions" "lhs_precision_type"
        "num_primitive_operations" "precision_config" "rhs_batching_dimensions"
        "rhs_component_count" "rhs_contracting_dimensions" "rhs_precision_type";
    "vhlo.dot_v1" => "stablehlo.dot": "precision_config";
    "vhlo.dynamic_broadcast_in_dim_v1" => "stablehlo.dynamic_broadcast_in_dim":
        "broadcast_dimensions" "known_expanding_dimensions" "known_nonexpanding_dimensions";
    "vhlo.dynamic_conv_v1" => "stablehlo.dynamic_conv":
        "batch_group_count" "feature_group_count" "input_batch_dimension"
        "input_feature_dimension" "input_spatial_dimensions" "kernel_input_feature_dimension"
        "kernel_output_feature_dimension" "kernel_spatial_dimensions" "lhs_dilation"
        "output_batch_dimension" "output_feature_dimension" "output_spatial_dimensions" "padding"
        "precision_config" "rhs_dilation" "window_reversal" "window_strides";
    "vhlo.dynamic_conv_v2" => "stablehlo.dynamic_conv":
        "batch_group_count" "feature_group_count" "input_batch_dimension"
        "input_feature_dimension" "input_spatial_dimensions" "kernel_input_feature_dimension"
        "kernel_output_feature_dimension" "kernel_spatial_dimensions" "lhs_dilation"
        "output_batch_dimension" "output_feature_dimension" "output_spatial_dimensions"
        "precision_config" "rhs_dilation" "window_reversal" "window_strides";
    "vhlo.dynamic_gather_v1" => "stablehlo.dynamic_gather":
        "collapsed_slice_dims" "index_vector_dim" "indices_are_sorted" "offset_dims"
        "start_index_map";
    "vhlo.dynamic_gather_v2" => "stablehlo.dynamic_gather":
        "collapsed_slice_dims" "index_vector_dim" "indices_are_sorted" "offset_dims"
        "operand_batching_dims" "start_index_map" "start_indices_batching_dims";
    "vhlo.dynamic_iota_v1" => "stablehlo.dynamic_iota": "iota_dimension";
    "vhlo.dynamic_slice_v1" => "stablehlo.dynamic_slice": "slice_sizes";
    "vhlo.einsum_v1" => "stablehlo.einsum": "einsum_config";
    "vhlo.exponential_minus_one_v2" => "stablehlo.exponential_minus_one": "result_accuracy";
    "vhlo.exponential_v2" => "stablehlo.exponential": "result_accuracy";
    "vhlo.fft_v1" => "stablehlo.fft": "fft_length" "fft_type";
    "vhlo.func_v1" => "func.func": "arg_attrs" "function_type" "res_attrs" "sym_name" "sym_visibility";
    "vhlo.gather_v1" => "stablehlo.gather":
        "collapsed_slice_dims" "index_vector_dim" "indices_are_sorted" "offset_dims" "slice_sizes"
        "start_index_map";
    "vhlo.gather_v2" => "stablehlo.gather":
        "collapsed_slice_dims" "index_vector_dim" "indices_are_sorted" "offset_dims"
        "operand_batching_dims" "slice_sizes" "start_index_map" "start_indices_batching_dims";
    "vhlo.get_dimension_size_v1" => "stablehlo.get_dimension_size": "dimension";
    "vhlo.get_tuple_element_v1" => "stablehlo.get_tuple_element": "index";
    "vhlo.infeed_v1" => "stablehlo.infeed": "infeed_config" "layout";
    "vhlo.iota_v1" => "stablehlo.iota": "iota_dimension";
    "vhlo.log_plus_one_v2" => "stablehlo.log_plus_one": "result_accuracy";
    "vhlo.logistic_v2" => "stablehlo.logistic": "result_accuracy";
    "vhlo.log_v2" => "stablehlo.log": "result_accuracy";
    "vhlo.map_v1" => "stablehlo.map": "dimensions";
    "vhlo.outfeed_v1" => "stablehlo.outfeed": "outfeed_config";
    "vhlo.pad_v1" => "stablehlo.pad": "edge_padding_high" "edge_padding_low" "interior_padding";
    "vhlo.recv_v1" => "stablehlo.recv": "channel_id" "channel_type" "is_host_transfer";
    "vhlo.recv_v2" => "stablehlo.recv": "channel_id" "channel_type" "is_host_transfer" "source_target_pairs";
    "vhlo.reduce_v1" => "stablehlo.reduce": "dimensions";
    "vhlo.reduce_precision_v1" => "stablehlo.reduce_precision": "exponent_bits" "mantissa_bits";
    "vhlo.reduce_scatter_v1" => "stablehlo.reduce_scatter":
        "channel_id" "replica_groups" "scatter_dimension" "use_global_device_ids";
    "vhlo.reduce_window_v1" => "stablehlo.reduce_window":
        "base_dilations" "padding" "window_dilations" "window_dimensions" "window_strides";
    "vhlo.reverse_v1" => "stablehlo.reverse": "dimensions";
    "vhlo.rng_bit_generator_v1" => "stablehlo.rng_bit_generator": "rng_algorithm";
    "vhlo.rng_v1" => "stablehlo.rng": "rng_distribution";
    "vhlo.rsqrt_v2" => "stablehlo.rsqrt": "result_accuracy";
    "vhlo.scatter_v1" => "stablehlo.scatter":
        "index_vector_dim" "indices_are_sorted" "inserted_window_dims"
        "scatter_dims_to_operand_dims" "unique_indices" "update_window_dims";
    "vhlo.scatter_v2" => "stablehlo.scatter":
        "index_vector_dim" "indices_are_sorted" "input_batching_dims" "inserted_window_dims"
        "scatter_dims_to_operand_dims" "scatter_indices_batching_dims" "unique_indices"
        "update_window_dims";
    "vhlo.select_and_scatter_v1" => "stablehlo.select_and_scatter":
        "padding" "window_dimensions" "window_strides";
    "vhlo.send_v1" => "stablehlo.send": "channel_id" "channel_type" "is_host_transfer";
    "vhlo.send_v2" => "stablehlo.send": "channel_id" "channel_type" "is_host_transfer" "source_target_pairs";
    "vhlo.set_dimension_size_v1" => "stablehlo.set_dimension_size": "dimension";
    "vhlo.sine_v2" => "stablehlo.sine": "result_accuracy";
    "vhlo.slice_v1" => "stablehlo.slice": "limit_indices" "start_indices" "strides";
    "vhlo.sort_v1" => "stablehlo.sort": "dimension" "is_stable";
    "vhlo.sqrt_v2" => "stablehlo.sqrt": "result_accuracy";
    "vhlo.tan_v2" => "stablehlo.tan": "result_accuracy";
    "vhlo.tanh_v2" => "stablehlo.tanh": "result_accuracy";
    "vhlo.torch_index_select_v1" => "stablehlo.torch_index_select": "batch_dims" "dim";
    "vhlo.transpose_v1" => "stablehlo.transpose": "permutation";
    "vhlo.triangular_solve_v1" => "stablehlo.triangular_solve":
        "left_side" "lower" "transpose_a" "unit_diagonal";
    "vhlo.unary_einsum_v1" => "stablehlo.unary_einsum": "einsum_config";
};

/// VHLO's ops without properties.
const PLAIN: &[OpRow] = rows! {
    "vhlo.abs_v1" => "stablehlo.abs":;
    "vhlo.add_v1" => "stablehlo.add":;
    "vhlo.after_all_v1" => "stablehlo.after_all":;
    "vhlo.and_v1" => "stablehlo.and":;
    "vhlo.async_start_v1" => "stablehlo.async_start":;
    "vhlo.async_done_v1" => "stablehlo.async_done":;
    "vhlo.atan2_v1" => "stablehlo.atan2":;
    "vhlo.bitcast_convert_v1" => "stablehlo.bitcast_convert":;
    "vhlo.case_v1" => "stablehlo.case":;
    "vhlo.cbrt_v1" => "stablehlo.cbrt":;
    "vhlo.ceil_v1" => "stablehlo.ceil":;
    "vhlo.clamp_v1" => "stablehlo.clamp":;
    "vhlo.count_leading_zeros_v1" => "stablehlo.count_leading_zeros":;
    "vhlo.complex_v1" => "stablehlo.complex":;
    "vhlo.convert_v1" => "stablehlo.convert":;
    "vhlo.cosine_v1" => "stablehlo.cosine":;
    "vhlo.create_token_v1" => "stablehlo.create_token":;
    "vhlo.divide_v1" => "stablehlo.divide":;
    "vhlo.dynamic_pad_v1" => "stablehlo.dynamic_pad":;
    "vhlo.dynamic_reshape_v1" => "stablehlo.dynamic_reshape":;
    "vhlo.dynamic_update_slice_v1" => "stablehlo.dynamic_update_slice":;
    "vhlo.exponential_minus_one_v1" => "stablehlo.exponential_minus_one":;
    "vhlo.exponential_v1" => "stablehlo.exponential":;
    "vhlo.floor_v1" => "stablehlo.floor":;
    "vhlo.if_v1" => "stablehlo.if":;
    "vhlo.imag_v1" => "stablehlo.imag":;
    "vhlo.is_finite_v1" => "stablehlo.is_finite":;
    "vhlo.log_plus_one_v1" => "stablehlo.log_plus_one":;
    "vhlo.logistic_v1" => "stablehlo.logistic":;
    "vhlo.log_v1" => "stablehlo.log":;
    "vhlo.maximum_v1" => "stablehlo.maximum":;
    "vhlo.minimum_v1" => "stablehlo.minimum":;
    "vhlo.multiply_v1" => "stablehlo.multiply":;
    "vhlo.negate_v1" => "stablehlo.negate":;
    "vhlo.not_v1" => "stablehlo.not":;
    "vhlo.optimization_barrier_v1" => "stablehlo.optimization_barrier":;
    "vhlo.or_v1" => "stablehlo.or":;
    "vhlo.partition_id_v1" => "stablehlo.partition_id":;
    "vhlo.popcnt_v1" => "stablehlo.popcnt":;
    "vhlo.power_v1" => "stablehlo.power":;
    "vhlo.real_dynamic_slice_v1" => "stablehlo.real_dynamic_slice":;
    "vhlo.real_v1" => "stablehlo.real":;
    "vhlo.remainder_v1" => "stablehlo.remainder":;
    "vhlo.replica_id_v1" => "stablehlo.replica_id":;
    "vhlo.reshape_v1" => "stablehlo.reshape":;
    "vhlo.return_v1" => "stablehlo.return":;
    "vhlo.round_nearest_even_v1" => "stablehlo.round_nearest_even":;
    "vhlo.round_nearest_afz_v1" => "stablehlo.round_nearest_afz":;
    "vhlo.rsqrt_v1" => "stablehlo.rsqrt":;
    "vhlo.select_v1" => "stablehlo.select":;
    "vhlo.shift_left_v1" => "stablehlo.shift_left":;
    "vhlo.shift_right_arithmetic_v1" => "stablehlo.shift_right_arithmetic":;
    "vhlo.shift_right_logical_v1" => "stablehlo.shift_right_logical":;
    "vhlo.sign_v1" => "stablehlo.sign":;
    "vhlo.sine_v1" => "stablehlo.sine":;
    "vhlo.sqrt_v1" => "stablehlo.sqrt":;
    "vhlo.subtract_v1" => "stablehlo.subtract":;
    "vhlo.tan_v1" => "stablehlo.tan":;
    "vhlo.tanh_v1" => "stablehlo.tanh":;
    "vhlo.tuple_v1" => "stablehlo.tuple":;
    "vhlo.uniform_dequantize_v1" => "stablehlo.uniform_dequantize":;
    "vhlo.uniform_quantize_v1" => "stablehlo.uniform_quantize":;
    "vhlo.while_v1" => "stablehlo.while":;
    "vhlo.xor_v1" => "stablehlo.xor":;
};

/// Ops of the dialects that are mixed in, and of the builtin one.
const MIXED: &[OpRow] = rows! {
    "builtin.module" => "builtin.module": "sym_name?" "sym_visibility?";
    "builtin.unrealized_conversion_cast" => "builtin.unrealized_conversion_cast":;
    "sdy.mesh" => "sdy.mesh": "mesh" "sym_name";
    "sdy.sharding_constraint" => "sdy.sharding_constraint": "sharding";
    "sdy.reshard" => "sdy.reshard": "sharding";
    "sdy.manual_computation" => "sdy.manual_computation": "in_shardings" "manual_axes" "out_shardings";
    "sdy.sharding_group" => "sdy.sharding_group": "group_id";
    "sdy.constant" => "sdy.constant": "value";
    "sdy.data_flow_edge" => "sdy.data_flow_edge": "sharding?";
    "sdy.propagation_barrier" => "sdy.propagation_barrier": "allowed_direction";
    "sdy.named_computation" => "sdy.named_computation": "in_shardings?" "name" "out_shardings?";
    "sdy.all_gather" => "sdy.all_gather": "gathering_axes" "out_sharding";
    "sdy.all_slice" => "sdy.all_slice": "out_sharding" "slicing_axes";
    "sdy.all_to_all" => "sdy.all_to_all": "out_sharding" "params";
    "sdy.collective_permute" => "sdy.collective_permute": "out_sharding";
    "sdy.all_reduce" => "sdy.all_reduce": "out_sharding" "reduction_axes";
    "sdy.all_reduce" => "sdy.all_reduce": "out_sharding" "reduction_axes" "reduction_op?";
    "sdy.reduce_scatter" => "sdy.reduce_scatter": "out_sharding" "reduce_scatter_axes";
    "sdy.reduce_scatter" => "sdy.reduce_scatter": "out_sharding" "reduce_scatter_axes" "reduction_op?";
    "sdy.sharded_to_unreduced" => "sdy.sharded_to_unreduced": "axes" "out_sharding";
    "sdy.replicated_to_unreduced" => "sdy.replicated_to_unreduced": "axes" "out_sharding";
    "sdy.return" => "sdy.return":;
    "chlo.top_k" => "chlo.top_k": "k";
    "chlo.top_k" => "chlo.top_k": "is_stable?" "k";
    "chlo.ragged_dot" => "chlo.ragged_dot": "precision_config?" "ragged_dot_dimension_numbers";
    "chlo.constant" => "chlo.constant": "value";
    "chlo.constant_like" => "chlo.constant_like": "value";
    "chlo.broadcast_compare" => "chlo.broadcast_compare":
        "broadcast_dimensions?" "compare_type?" "comparison_direction";
    "chlo.broadcast_add" => "chlo.broadcast_add": "broadcast_dimensions?";
    "chlo.broadcast_and" => "chlo.broadcast_and": "broadcast_dimensions?";
    "chlo.broadcast_atan2" => "chlo.broadcast_atan2": "broadcast_dimensions?";
    "chlo.broadcast_complex" => "chlo.broadcast_complex": "broadcast_dimensions?";
    "chlo.broadcast_divide" => "chlo.broadcast_divide": "broadcast_dimensions?";
    "chlo.broadcast_maximum" => "chlo.broadcast_maximum": "broadcast_dimensions?";
    "chlo.broadcast_minimum" => "chlo.broadcast_minimum": "broadcast_dimensions?";
    "chlo.broadcast_multiply" => "chlo.broadcast_multiply": "broadcast_dimensions?";
    "chlo.broadcast_next_after" => "chlo.broadcast_next_after": "broadcast_dimensions?";
    "chlo.broadcast_or" => "chlo.broadcast_or": "broadcast_dimensions?";
    "chlo.broadcast_polygamma" => "chlo.broadcast_polygamma": "broadcast_dimensions?";
    "chlo.broadcast_power" => "chlo.broadcast_power": "broadcast_dimensions?";
    "chlo.broadcast_remainder" => "chlo.broadcast_remainder": "broadcast_dimensions?";
    "chlo.broadcast_shift_left" => "chlo.broadcast_shift_left": "broadcast_dimensions?";
    "chlo.broadcast_shift_right_arithmetic" => "chlo.broadcast_shift_right_arithmetic":
        "broadcast_dimensions?";
    "chlo.broadcast_shift_right_logical" => "chlo.broadcast_shift_right_logical": "broadcast_dimensions?";
    "chlo.broadcast_subtract" => "chlo.broadcast_subtract": "broadcast_dimensions?";
    "chlo.broadcast_xor" => "chlo.broadcast_xor": "broadcast_dimensions?";
    "chlo.broadcast_zeta" => "chlo.broadcast_zeta": "broadcast_dimensions?";
    "chlo.acos" => "chlo.acos":;
    "chlo.acosh" => "chlo.acosh":;
    "chlo.asin" => "chlo.asin":;
    "chlo.asinh" => "chlo.asinh":;
    "chlo.atan" => "chlo.atan":;
    "chlo.atanh" => "chlo.atanh":;
    "chlo.bessel_i1e" => "chlo.bessel_i1e":;
    "chlo.broadcast_select" => "chlo.broadcast_select":;
    "chlo.conj" => "chlo.conj":;
    "chlo.cosh" => "chlo.cosh":;
    "chlo.digamma" => "chlo.digamma":;
    "chlo.erf" => "chlo.erf":;
    "chlo.erf_inv" => "chlo.erf_inv":;
    "chlo.erfc" => "chlo.erfc":;
    "chlo.is_inf" => "chlo.is_inf":;
    "chlo.is_neg_inf" => "chlo.is_neg_inf":;
    "chlo.is_pos_inf" => "chlo.is_pos_inf":;
    "chlo.lgamma" => "chlo.lgamma":;
    "chlo.next_after" => "chlo.next_after":;
    "chlo.polygamma" => "chlo.polygamma":;
    "chlo.sinh" => "chlo.sinh":;
    "chlo.square" => "chlo.square":;
    "chlo.tan" => "chlo.tan":;
    "chlo.zeta" => "chlo.zeta":;
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The order rule of the format, which is what the rows are for.
    #[test]
    fn properties_are_in_byte_order() {
        for row in [WITH_PROPERTIES, PLAIN, MIXED].into_iter().flatten() {
            assert!(row.properties.is_sorted(), "{}", row.name);
        }
    }

    /// Layouts of one op must be told apart by their number of properties.
    #[test]
    fn layouts_differ_in_length() {
        for row in [WITH_PROPERTIES, PLAIN, MIXED].into_iter().flatten() {
            let same = rows_of(row.name).filter(|r| r.properties.len() == row.properties.len());
            assert_eq!(same.count(), 1, "{}", row.name);
        }
    }
}
