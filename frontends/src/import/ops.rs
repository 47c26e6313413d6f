//! One op: which reader it goes to, and the check of its result types.

use super::{Importer, Results, ShardingHint};
use crate::error::{Code, Result};
use crate::raw::{Attr, DenseData, RawOp};
use msc_ir::ops::barrier::OptimizationBarrier;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{ConstId, LocId, TensorType};
use smallvec::smallvec;
use std::borrow::Cow;

impl<'r, 'a> Importer<'r, 'a> {
    /// Imports one op.
    pub(super) fn op(&mut self, op: &'r RawOp<'a>) -> Result<()> {
        let loc = self.loc(op);
        let complex = self.has_complex(op);
        let results = if complex { self.complex_op(op, loc)? } else { self.dispatch(op, loc)? };
        if results.len() != op.results.len() {
            let message =
                format!("{} has {} results, the file says {}", op.name, results.len(), op.results.len());
            return Err(self.error(op, Code::Type, message));
        }
        for (v, &result) in op.results.iter().zip(&results) {
            let written = self.tensor_type(self.raw.values[v.0 as usize]).map_err(|e| self.place(op, e))?;
            let inferred = self.graph.ty(result);
            if *inferred != written {
                let message = format!("{} gives {inferred}, but the file says {written}", op.name);
                return Err(self.error(op, Code::Type, message));
            }
            self.bind(v, result);
        }
        // What an exporter's own propagation found out.
        if let Some(Attr::Shardings(list)) = op.attr("sdy.sharding").filter(|_| !complex) {
            let hints = results.iter().zip(list).map(|(&r, s)| (r, ShardingHint::Sdy(s.clone())));
            self.constraints.extend(hints);
        }
        Ok(())
    }

    pub(super) fn dispatch(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let (dialect, name) = op.name.split_once('.').unwrap_or(("", &op.name));
        match dialect {
            "stablehlo" => self.stablehlo(op, name, loc),
            "chlo" => self.chlo(op, name, loc),
            "func" if name == "call" => self.call(op, "callee", loc),
            "sdy" => self.sdy(op, name),
            _ => Err(self.unknown(op)),
        }
    }

    /// An op of the Shardy dialect: what it says is kept as an annotation.
    fn sdy(&mut self, op: &RawOp<'a>, name: &str) -> Result<Results> {
        match name {
            "sharding_constraint" | "reshard" => {
                let [x] = self.operands_n(op)?;
                let Some(Attr::Sharding(s)) = op.attr("sharding") else {
                    return Err(self.bad_attr(op, "sharding", "is missing or not a sharding"));
                };
                self.constraints.push((x, ShardingHint::Sdy((**s).clone())));
                Ok(smallvec![x])
            }
            "propagation_barrier" => {
                let [x] = self.operands_n(op)?;
                Ok(smallvec![x])
            }
            "sharding_group" => Ok(Results::new()),
            "manual_computation" => Err(self
                .error(op, Code::UnsupportedForm, "sdy.manual_computation holds code for single devices")
                .help("msc splits programs itself: export without shard_map, with sharding constraints if you like")),
            _ => Err(self.unknown(op)),
        }
    }

    /// The error for an op that msc does not have.
    pub(super) fn unknown(&self, op: &RawOp<'_>) -> crate::FrontendError {
        match crate::foreign::refuse(&op.name) {
            Some(e) => self.place(op, e),
            None => self.error(op, Code::UnknownOp, format!("{} is not supported", op.name)),
        }
    }

    pub(super) fn stablehlo(&mut self, op: &'r RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        if let Some(r) = self.elementwise(op, name, loc)? {
            return Ok(r);
        }
        match name {
            "constant" => {
                let Attr::Dense(ty, data) = self.need(op, "value")? else {
                    return Err(self.bad_attr(op, "value", "should be a dense constant"));
                };
                let entry = match data {
                    DenseData::Bytes(Cow::Borrowed(b)) => Some((b.as_ptr() as usize, b.len(), *ty)),
                    _ => None,
                };
                let known = entry.and_then(|e| self.entries.get(&e).copied());
                let id = match known {
                    Some(id) => id,
                    None => {
                        let ty = self.tensor_type(*ty).map_err(|e| self.place(op, e))?;
                        let decoded =
                            super::dense::decode(self.raw, &ty, data).map_err(|e| self.place(op, e))?;
                        self.intern(ty, decoded)
                    }
                };
                if let Some(entry) = entry {
                    self.entries.insert(entry, id);
                }
                self.emit(op, ConstantOp { id }, &[], loc)
            }
            "broadcast_in_dim"
            | "broadcast"
            | "iota"
            | "reshape"
            | "transpose"
            | "reverse"
            | "slice"
            | "dynamic_slice"
            | "dynamic_update_slice"
            | "pad"
            | "concatenate" => self.shape_op(op, name, loc),
            "dot_general" | "dot" => self.dot(op, name, loc),
            "cholesky" | "triangular_solve" => self.triangular(op, name, loc),
            "gather" => self.gather(op, loc),
            "scatter" => self.scatter(op, loc),
            "reduce" => self.reduce(op, loc),
            "reduce_window" => self.reduce_window(op, loc),
            "select_and_scatter" => self.select_and_scatter(op, loc),
            "map" => self.map(op, loc),
            "sort" => self.sort(op, loc),
            "convolution" => self.convolution(op, loc),
            "batch_norm_training" | "batch_norm_inference" | "batch_norm_grad" => {
                self.batch_norm(op, name, loc)
            }
            "rng_bit_generator" => self.random_bits(op, loc),
            "rng" => Err(self.refuse_rng(op)),
            "dynamic_iota"
            | "dynamic_reshape"
            | "dynamic_broadcast_in_dim"
            | "real_dynamic_slice"
            | "dynamic_pad"
            | "dynamic_gather"
            | "get_dimension_size" => self.dynamic_op(op, name, loc),
            "all_reduce"
            | "all_gather"
            | "all_to_all"
            | "reduce_scatter"
            | "collective_permute"
            | "collective_broadcast"
            | "cross-replica-sum"
            | "partition_id"
            | "replica_id" => self.parallel(op, name, loc),
            "while" => self.while_loop(op, loc),
            "if" | "case" => self.branch(op, name, loc),
            "optimization_barrier" => {
                let operands = self.operands(op)?;
                self.emit(op, OptimizationBarrier, &operands, loc)
            }
            "composite" => self.call(op, "decomposition", loc),
            "custom_call" => self.custom_call(op, loc),
            _ => Err(self.unknown(op)),
        }
    }

    /// Interns a decoded constant.
    pub(super) fn intern(&mut self, ty: TensorType, decoded: super::dense::Decoded) -> ConstId {
        match decoded {
            super::dense::Decoded::Splat(one) if ty.elements() > 0 => {
                self.module.constants.intern_splat_bytes(ty, &one)
            }
            super::dense::Decoded::Splat(_) => self.module.constants.intern_bytes(ty, &[]),
            super::dense::Decoded::Full(bytes) => self.module.constants.intern_shared(ty, bytes),
        }
    }
}
