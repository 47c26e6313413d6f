//! Calls: functions, composites, custom calls.

use super::{Importer, Results, ShardingHint};
use crate::error::{Code, Result};
use crate::raw::{Attr, RawOp};
use msc_ir::LocId;
use msc_ir::ops::call::Call;
use smallvec::smallvec;

impl<'r, 'a> Importer<'r, 'a> {
    /// A call of the function that attribute `key` names. A composite is a call of its decomposition.
    pub(super) fn call(&mut self, op: &RawOp<'a>, key: &str, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let (Attr::Symbol(name) | Attr::Str(name)) = self.need(op, key)? else {
            return Err(self.bad_attr(op, key, "should be a function"));
        };
        let Some(&graph) = self.graphs.get(name.as_ref()) else {
            return Err(self.error(op, Code::Name, format!("there is no function @{name}")));
        };
        self.emit(op, Call { graph }, &operands, loc)
    }

    /// A `custom_call`: known targets are expanded.
    pub(super) fn custom_call(&mut self, op: &RawOp<'a>, _loc: LocId) -> Result<Results> {
        let Some(Attr::Str(target)) = op.attr("call_target_name") else {
            return Err(self.bad_attr(op, "call_target_name", "is missing"));
        };
        match target.as_ref() {
            "Sharding" => {
                let [x] = self.operands_n(op)?;
                if let Some(Attr::Str(s)) = op.attr("mhlo.sharding") {
                    self.constraints.push((x, ShardingHint::Gspmd(s.to_string())));
                }
                Ok(smallvec![x])
            }
            _ => Err(self
                .error(op, Code::CustomCall, format!("custom_call of unknown target {target}"))
                .help("export without the library or kernel behind this call (for a CPU, or with its plain form)")),
        }
    }
}
