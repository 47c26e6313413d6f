//! Axes are split after sizes were padded that they do not divide.
//!
//! What is padded in vain, because the axis splits something else in the end, is not padded. The batch is padded where it
//! has no part in common with the ranks of an axis, or where parts would leave ranks that compute the same: before the
//! sequence is split in its place, which attention needs whole.

use super::{Padding, Wanted, is_little, pad, worth};
use crate::error::Result;
use crate::partition::problem::Problem;
use crate::partition::{Stages, base};
use msc_ir::factor::common_divisor;
use msc_ir::module::AxisId;

/// The axes that split the batch, in the order in which they are taken.
pub(in crate::partition) const OF_BATCH: [&str; 3] = ["dp", "fsdp", "ep"];

impl Stages {
    /// Splits along an axis after sizes were padded that it does not divide.
    ///
    /// # Errors
    /// Those of `split`.
    pub(in crate::partition) fn padded(
        &mut self,
        name: &str,
        wanted: Wanted<'_>,
        split: &dyn Fn(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let Some(axis) = self.draft.module.mesh.axis(name) else { return split(self) };
        let paddings = self.worth(axis, wanted)?;
        self.padded_by(name, paddings, split)
    }

    /// Splits the batch along an axis, padded if need be, or else the sequence.
    ///
    /// # Errors
    /// If there is nothing to split.
    pub(in crate::partition) fn batch(&mut self, name: &str, free: &dyn Fn(&str) -> bool) -> Result<()> {
        let mesh = &self.draft.module.mesh;
        let Some(axis) = mesh.axis(name) else { return Ok(()) };
        let n = mesh.size(axis);
        let left = OF_BATCH.iter().skip_while(|a| **a != name).filter(|a| free(a));
        let all: usize = left.filter_map(|a| mesh.axis(a)).map(|a| mesh.size(a)).product();
        let needed = if self.pads_for_all { all } else { n };
        if !self.batch_may_be_padded(needed)? && !self.batch_may_be_padded(n)? {
            return self.in_parts(name);
        }
        let paddings = self.worth(axis, Wanted::Batch(all))?;
        let Some(batch) = paddings.first().copied() else { return self.in_parts(name) };
        let split = |s: &mut Self| s.in_parts(name);
        if self.pads_for_all || common_divisor([batch.size, n]) == 1 {
            return self.padded_by(name, paddings, &split);
        }
        let before = (self.draft.clone(), self.report.clone());
        let done = self.in_parts(name);
        if done.is_ok() && self.report.idle.len() == before.1.idle.len() {
            return done;
        }
        (self.draft, self.report) = before;
        self.padded_by(name, paddings, &split)
    }

    /// Whether padding the first dimension of some input that may be data makes so many ranks divide it.
    pub(in crate::partition) fn batch_may_be_padded(&self, n: usize) -> Result<bool> {
        let entry = self.draft.module.entry()?;
        let g = self.draft.module.graph(entry.graph);
        let data = entry.params.iter().zip(g.params()).filter(|(p, _)| p.alias.is_none());
        let mut sizes = data.filter_map(|(_, &v)| g.ty(v).shape.first().copied());
        Ok(sizes.any(|s| !s.is_multiple_of(n) && is_little(s, n)))
    }

    fn worth(&self, axis: AxisId, wanted: Wanted<'_>) -> Result<Vec<Padding>> {
        let module = &self.draft.module;
        Ok(worth(&Problem::new(module)?, module, axis, module.mesh.size(axis), wanted))
    }

    fn padded_by(
        &mut self,
        name: &str,
        mut paddings: Vec<Padding>,
        split: &dyn Fn(&mut Self) -> Result<()>,
    ) -> Result<()> {
        while !paddings.is_empty() {
            let Some(draft) = pad(&self.draft, &paddings)? else { break };
            let before = (std::mem::replace(&mut self.draft, draft), self.report.clone());
            let done = split(self);
            let entry = self.draft.module.entry()?;
            let is_split = |p: &Padding| {
                let axes = entry.params[p.param].sharding.axes(p.dim);
                axes.iter().any(|a| base(&self.draft.module.mesh.axes[a.0 as usize].name) == name)
            };
            let needed: Vec<Padding> = paddings.iter().copied().filter(is_split).collect();
            if done.is_ok() && needed.len() == paddings.len() {
                let named =
                    |p: &Padding| (format!("{}[{}]", entry.params[p.param].name, p.dim), p.size, p.padded);
                self.report.padded.extend(needed.iter().map(named));
                return Ok(());
            }
            (self.draft, self.report) = before;
            // Something is left out each time, so that this ends.
            paddings = if done.is_ok() { needed } else { Vec::new() };
        }
        split(self)
    }
}
