//! Calls: functions, composites, custom calls.

use super::entry::{frontend_attr, shipped_sharding};
use super::{Importer, Results, ShardingHint};
use crate::error::{Code, Result};
use crate::raw::{Attr, RawOp, attr};
use msc_ir::LocId;
use msc_ir::ops::call::Call;
use msc_ir::ops::unary::UnaryKind;
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
    pub(super) fn custom_call(&mut self, op: &RawOp<'a>, loc: LocId) -> Result<Results> {
        let Some(Attr::Str(target)) = op.attr("call_target_name") else {
            return Err(self.bad_attr(op, "call_target_name", "is missing"));
        };
        match target.as_ref() {
            "Sharding" | "xla.sdy.FuncResultSharding" => {
                let [x] = self.operands_n(op)?;
                if let Some(text) = frontend_attr(&op.attrs, "xla.sdy.sharding") {
                    let s = shipped_sharding(text).map_err(|e| self.place(op, e))?;
                    self.constraints.push((x, ShardingHint::Sdy(s)));
                } else if let Some(Attr::Str(s)) = op.attr("mhlo.sharding") {
                    self.constraints.push((x, ShardingHint::Gspmd(s.to_string())));
                }
                Ok(smallvec![x])
            }
            // Where a value is kept is msc's own decision.
            "annotate_device_placement" => {
                let [x] = self.operands_n(op)?;
                Ok(smallvec![x])
            }
            "mhlo.erf" => {
                let [x] = self.operands_n(op)?;
                self.emit(op, UnaryKind::Erf, &[x], loc)
            }
            "mhlo.topk" | "TopK" => {
                let [x] = self.operands_n(op)?;
                let fields = match op.attr("mhlo.attributes") {
                    Some(Attr::Dict(d)) => &d[..],
                    _ => &[],
                };
                if matches!(attr(fields, "largest"), Some(Attr::Bool(false))) {
                    return Err(self.error(op, Code::UnsupportedForm, "custom_call of the smallest elements"));
                }
                let Some(&k) = self.result_type(op, 0)?.shape.last() else {
                    return Err(self.error(op, Code::Invalid, format!("{target} gives a scalar")));
                };
                self.top_k(op, x, k, loc)
            }
            _ => Err(self
                .error(op, Code::CustomCall, format!("custom_call of unknown target {target}"))
                .help("export without the library or kernel behind this call (for a CPU, or with its plain form)")),
        }
    }
}
