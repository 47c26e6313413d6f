//! Collectives and the rank's own number, as far as a program of one partition has them.
//!
//! msc partitions programs itself, so it reads global ones. Among one partition and one replica every collective
//! is the identity, and the rank's number is 0.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::{Attr, RawOp};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{DType, LocId, TensorType};

impl<'r, 'a> Importer<'r, 'a> {
    /// One of the ops of this file.
    pub(super) fn parallel(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        if self.annotations.partitions > 1 || self.annotations.replicas > 1 {
            return Err(self
                .error(
                    op,
                    Code::UnsupportedForm,
                    format!("{} in a program that is already split over devices", op.name),
                )
                .help("export the program as it is written for one device, with sharding annotations if you like"));
        }
        if matches!(name, "partition_id" | "replica_id") {
            let id = self.module.constants.intern_splat(TensorType::scalar(DType::U32), 0.0);
            return self.emit(op, ConstantOp { id }, &[], loc);
        }
        for key in ["replica_groups", "source_target_pairs"] {
            let numbers = match op.attr(key) {
                // A mesh's axes: of one device each.
                None | Some(Attr::Other(_)) => continue,
                Some(a) => self.int_values(a),
            };
            if numbers.is_none_or(|v| v.iter().any(|&n| n > 0)) {
                return Err(self.bad_attr(op, key, "names a device that the program does not have"));
            }
        }
        if name == "collective_permute" && self.ints(op, "source_target_pairs")?.is_empty() {
            return Err(self.error(op, Code::UnsupportedForm, format!("{} without pairs", op.name)));
        }
        Ok(self.operands(op)?.into_iter().collect())
    }
}
