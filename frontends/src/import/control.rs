//! Control flow: `while`, `if`, `case`; and graphs for regions.
//!
//! A region may use values of outside, a graph may not. Such a value becomes a parameter of the graph (for a loop:
//! a carry that stays as it is); a constant is repeated inside.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::{Block, RawOp, Region, Value};
use msc_ir::ops::branch::Branch;
use msc_ir::ops::while_loop::While;
use msc_ir::{Graph, GraphId, LocId, Op, ValueId};
use rustc_hash::FxHashSet;

/// Values of outside that regions use.
#[derive(Default)]
pub(super) struct Captures {
    /// Those that become parameters, in order of first use.
    values: Vec<Value>,
    /// Those that are constants.
    constants: Vec<Value>,
}

impl<'r, 'a> Importer<'r, 'a> {
    /// The one block of a region.
    pub(super) fn single_block(&self, op: &RawOp<'_>, region: &'r Region<'a>) -> Result<&'r Block<'a>> {
        match &region.blocks[..] {
            [block] => Ok(block),
            _ => {
                let message = format!("a region of {} has {} blocks, not one", op.name, region.blocks.len());
                Err(self.error(op, Code::UnsupportedForm, message))
            }
        }
    }

    /// Values of outside that blocks use. Before a region is imported, just the values of outside are known.
    pub(super) fn captures(&self, blocks: &[&Block<'a>]) -> Captures {
        let mut out = Captures::default();
        let mut seen = FxHashSet::default();
        let mut stack: Vec<&RawOp<'a>> = Vec::new();
        for block in blocks {
            stack.extend(block.ops.iter().rev());
            while let Some(op) = stack.pop() {
                for &v in &op.operands {
                    let Some(Some(value)) = self.values.get(v.0 as usize) else { continue };
                    if seen.insert(v) {
                        let list =
                            if self.is_constant(*value) { &mut out.constants } else { &mut out.values };
                        list.push(v);
                    }
                }
                stack.extend(op.regions.iter().flat_map(|r| &r.blocks).flat_map(|b| &b.ops).rev());
            }
        }
        out
    }

    fn is_constant(&self, v: ValueId) -> bool {
        self.graph.def(v).is_some_and(|(op, _)| matches!(self.graph.op(op).op, Op::Constant(_)))
    }

    /// The graph's values for captured ones, as operands of the op that has the region.
    pub(super) fn captured(&self, captures: &Captures) -> Vec<ValueId> {
        captures.values.iter().filter_map(|v| self.values[v.0 as usize]).collect()
    }

    /// A block as a graph: its parameters are the block's arguments, then the captures; its results what the block
    /// returns, then the captures if `pass_on`.
    pub(super) fn block_graph(
        &mut self,
        op: &'r RawOp<'a>,
        block: &'r Block<'a>,
        captures: &Captures,
        suffix: &str,
        pass_on: bool,
    ) -> Result<GraphId> {
        let inner = Graph::new(format!("{}.{suffix}", self.graph.name));
        let outer = std::mem::replace(&mut self.graph, inner);
        let constraints = std::mem::take(&mut self.constraints);
        let defined = std::mem::take(&mut self.defined);
        let bound = captures.values.iter().chain(&captures.constants);
        let hidden: Vec<(Value, Option<ValueId>)> = bound.map(|&v| (v, self.values[v.0 as usize])).collect();

        self.block_params(op, block)?;
        let mut extra = Vec::new();
        for (i, &(v, old)) in hidden.iter().enumerate() {
            let Some(old) = old else { continue };
            let new = if i < captures.values.len() {
                let p = self.graph.add_param(outer.ty(old).clone());
                extra.push(p);
                p
            } else {
                let Some((def, _)) = outer.def(old) else { continue };
                let data = outer.op(def);
                self.emit1(op, data.op.clone(), &[], data.loc)?
            };
            self.values[v.0 as usize] = Some(new);
        }
        let mut results = self.block(op, &block.ops, &["stablehlo.return", "sdy.return"])?;
        if pass_on {
            results.extend(extra);
        }
        self.graph.set_results(results);

        self.forget();
        self.defined = defined;
        for (v, old) in hidden {
            self.values[v.0 as usize] = old;
        }
        let inner = std::mem::replace(&mut self.graph, outer);
        let graph = self.finish_graph(inner);
        self.constraints = constraints;
        Ok(graph)
    }

    /// `while`.
    pub(super) fn while_loop(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let [cond, body] = &op.regions[..] else {
            return Err(self.error(op, Code::Invalid, "stablehlo.while has two regions: condition and body"));
        };
        let (cond, body) = (self.single_block(op, cond)?, self.single_block(op, body)?);
        let captures = self.captures(&[cond, body]);
        let mut operands = self.operands(op)?;
        operands.extend(self.captured(&captures));
        let what = While {
            cond: self.block_graph(op, cond, &captures, "cond", false)?,
            body: self.block_graph(op, body, &captures, "body", true)?,
        };
        let mut results = self.emit(op, what, &operands, loc)?;
        results.truncate(op.operands.len());
        Ok(results)
    }

    /// `if` and `case`.
    pub(super) fn branch(&mut self, op: &'r RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        let [decider] = self.operands_n(op)?;
        let mut blocks = Vec::new();
        for region in &op.regions {
            blocks.push(self.single_block(op, region)?);
        }
        let captures = self.captures(&blocks);
        let mut operands = vec![decider];
        operands.extend(self.captured(&captures));
        let graphs = blocks
            .iter()
            .map(|block| self.block_graph(op, block, &captures, name, false))
            .collect::<Result<Vec<_>>>()?;
        let what = match (name, &graphs[..]) {
            ("if", &[then, otherwise]) => Branch::If { then, otherwise },
            ("case", [_, ..]) => Branch::Case { branches: graphs.into() },
            _ => {
                let message = format!("{} cannot have {} regions", op.name, graphs.len());
                return Err(self.error(op, Code::Invalid, message));
            }
        };
        self.emit(op, what, &operands, loc)
    }
}
