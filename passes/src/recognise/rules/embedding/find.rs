//! Where embeddings and their gradients are.

use super::{BACKWARD, FORWARD, Operand, Site};
use crate::recognise::engine::region::{Part, Region, Source};
use crate::recognise::engine::term::Graph;
use egg::Id;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::{FusedKind, Outside};
use msc_ir::ops::gather::Gather;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::scatter::Scatter;
use msc_ir::ops::select::Select;
use msc_ir::{Monoid, Op, Operation, Shape, TensorType, ValueDef, ValueId};
use std::collections::BTreeSet;

/// Ops between a parameter and the table that is read; exporters have up to three.
const MAX_CHAIN: usize = 12;

/// Ops that indices are computed by; exporters have up to twenty.
const MAX_INDEX_OPS: usize = 200;

/// Embeddings and gradients of a region, and why what looks like one is none.
pub fn sites(graph: &Graph, region: &Region) -> (Vec<Site>, Vec<(&'static str, String)>) {
    let (mut out, mut refused) = (Vec::new(), Vec::new());
    // Shapes of tables with what their indices are computed from.
    let mut known: Vec<(Shape, BTreeSet<Id>)> = Vec::new();
    let mut scatters = Vec::new();
    for at in 0..region.parts.len() {
        let look = Look { graph, region, at, part: &region.parts[at] };
        for (_, data) in look.part.graph.ops() {
            match &data.op {
                Op::Gather(g) => match look.lookup(g, &data.operands, data.results[0]) {
                    None => {}
                    Some(Err(why)) => refused.push((FORWARD, why)),
                    Some(Ok((site, roots))) => {
                        known.push((look.ty(data.operands[0]).shape.clone(), roots));
                        out.push(site);
                    }
                },
                Op::Scatter(s) => scatters.push((at, s, data)),
                _ => {}
            }
        }
    }
    for (at, s, data) in scatters {
        let look = Look { graph, region, at, part: &region.parts[at] };
        match look.gradient(s, &data.operands, data.results[0], &known) {
            None => {}
            Some(Err(why)) => refused.push((BACKWARD, why)),
            Some(Ok(site)) => out.push(site),
        }
    }
    (out, refused)
}

/// One graph of a region.
struct Look<'g> {
    graph: &'g Graph,
    region: &'g Region,
    at: usize,
    part: &'g Part,
}

impl Look<'_> {
    fn ty(&self, v: ValueId) -> &TensorType {
        self.part.graph.ty(v)
    }

    fn class(&self, v: ValueId) -> Option<Id> {
        self.region.class(self.graph, self.at, v)
    }

    fn splat(&self, v: ValueId) -> Option<f64> {
        self.graph[self.class(v)?].data.splat.as_ref().map(|s| s.value())
    }

    /// The op that gives a value, and its operands.
    fn def(&self, v: ValueId) -> Option<(&Op, &[ValueId])> {
        let (op, _) = self.part.graph.def(v)?;
        let data = self.part.graph.op(op);
        Some((&data.op, &data.operands))
    }

    /// Behind barriers.
    fn seen(&self, mut v: ValueId) -> ValueId {
        while let Some((op, index)) = self.part.graph.def(v)
            && let data = self.part.graph.op(op)
            && matches!(data.op, Op::Barrier(_))
            && let Some(&o) = data.operands.get(index as usize)
        {
            v = o;
        }
        v
    }

    /// A gather of rows; `None` if it is something else altogether.
    fn lookup(
        &self,
        g: &Gather,
        operands: &[ValueId],
        result: ValueId,
    ) -> Option<Result<(Site, BTreeSet<Id>), String>> {
        let (table, index) = (operands[0], operands[1]);
        let ty = self.ty(table);
        let last = self.ty(result).rank().checked_sub(1)?;
        let rows = ty.rank() == 2
            && ty.dtype.is_float()
            && g.collapsed_slice_dims[..] == [0]
            && g.start_index_map[..] == [0]
            && g.operand_batching_dims.is_empty()
            && g.slice_sizes[..] == [1, ty.shape[1]]
            && g.offset_dims[..] == [last];
        if !rows {
            return None;
        }
        let Some(ids) = self.ids(index, g.index_vector_dim) else {
            return Some(Err("its indices have several components".into()));
        };
        if !self.is_parameter(table) {
            return Some(Err("the table is no parameter".into()));
        }
        let Some(roots) = self.roots(index) else {
            return Some(Err("the indices are computed from more than whole numbers".into()));
        };
        let (outside, output) = self.guarded(index, ty.shape[0], result);
        let at = |v| self.region.at(self.at, v);
        let table = Operand { name: "table", at: at(table), ops: Vec::new() };
        let site = Site {
            kind: FusedKind::Embedding { outside },
            operands: [table, ids],
            output: ("y", at(output)),
        };
        Some(Ok((site, roots)))
    }

    /// A sum of rows into zeros; `None` if it is something else altogether.
    fn gradient(
        &self,
        s: &Scatter,
        operands: &[ValueId],
        result: ValueId,
        known: &[(Shape, BTreeSet<Id>)],
    ) -> Option<Result<Site, String>> {
        let (zeros, index, dy) = (operands[0], operands[1], operands[2]);
        let (ty, update) = (self.ty(zeros), self.ty(dy));
        let last = update.rank().checked_sub(1)?;
        let rows = ty.rank() == 2
            && ty.dtype.is_float()
            && s.inserted_window_dims[..] == [0]
            && s.scatter_dims_to_operand_dims[..] == [0]
            && s.input_batching_dims.is_empty()
            && s.update_window_dims[..] == [last]
            && update.shape[last] == ty.shape[1];
        if !rows {
            return None;
        }
        let refuse = |why: &str| Some(Err(why.to_string()));
        if s.combine != Some(Monoid::Sum) {
            return refuse("rows are not added");
        }
        if self.splat(zeros) != Some(0.0) {
            return refuse("rows are added to something else than zeros");
        }
        let Some(ids) = self.ids(index, s.index_vector_dim) else {
            return refuse("its indices have several components");
        };
        let Some(roots) = self.roots(index) else {
            return refuse("the indices are computed from more than whole numbers");
        };
        // Either may wrap negative indices in its own way.
        if !known.iter().any(|(shape, of)| *shape == ty.shape && of.is_subset(&roots)) {
            return refuse("no embedding has these indices and a table of this shape");
        }
        let at = |v| self.region.at(self.at, v);
        let dy = Operand { name: "dy", at: at(dy), ops: Vec::new() };
        Some(Ok(Site {
            kind: FusedKind::EmbeddingGrad { rows: ty.shape[0] },
            operands: [dy, ids],
            output: ("dtable", at(result)),
        }))
    }

    /// Indices without the dimension of index vectors, which are of one component each.
    fn ids(&self, index: ValueId, vector: usize) -> Option<Operand> {
        let ty = self.ty(index);
        let at = |v| self.region.at(self.at, v);
        if vector >= ty.rank() {
            return Some(Operand { name: "ids", at: at(index), ops: Vec::new() });
        }
        if ty.shape[vector] != 1 {
            return None;
        }
        let mut shape = ty.shape.clone();
        shape.remove(vector);
        // The value before that dimension was added.
        if let Some((op, operands)) = self.def(index) {
            let same = match op {
                Op::Broadcast(b) => {
                    b.dims.iter().enumerate().all(|(i, &d)| d == i + usize::from(i >= vector))
                }
                Op::Reshape(_) => true,
                _ => false,
            };
            if same && self.ty(operands[0]).shape == shape {
                return Some(Operand { name: "ids", at: at(operands[0]), ops: Vec::new() });
            }
        }
        Some(Operand { name: "ids", at: at(index), ops: vec![Op::Reshape(Reshape { shape })] })
    }

    /// Whether a table is a parameter from outside, in another layout or float type or multiplied by a number perhaps.
    fn is_parameter(&self, table: ValueId) -> bool {
        let mut v = table;
        for _ in 0..MAX_CHAIN {
            v = self.seen(v);
            if let ValueDef::Param(i) = self.part.graph.value(v).def {
                return !matches!(self.part.spec.params.get(i as usize), Some(Source::Result { .. }));
            }
            let Some((op, operands)) = self.def(v) else { return false };
            v = match op {
                Op::Reshape(_) | Op::Permute(Permute::Transpose(_)) | Op::Convert(Convert::Value(_)) => {
                    operands[0]
                }
                Op::Binary(b) if b.kind == BinaryKind::Multiply => {
                    match operands.iter().position(|&o| self.splat(o).is_some()) {
                        Some(i) => operands[1 - i],
                        None => return false,
                    }
                }
                _ => return false,
            };
        }
        false
    }

    /// What indices are computed from; `None` if a float is part of it, or too much.
    fn roots(&self, index: ValueId) -> Option<BTreeSet<Id>> {
        let (mut out, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut todo = vec![self.seen(index)];
        while let Some(v) = todo.pop() {
            if !seen.insert(v) {
                continue;
            }
            if self.ty(v).dtype.is_float() || seen.len() > MAX_INDEX_OPS {
                return None;
            }
            match self.def(v) {
                // What is sorted or summed by windows is of the operands, whatever graph compares or adds them.
                Some((op, operands))
                    if op.callees().is_empty() || matches!(op, Op::Sort(_) | Op::Windowed(_)) =>
                {
                    todo.extend(operands.iter().map(|&o| self.seen(o)));
                }
                _ => {
                    out.insert(self.class(v)?);
                }
            }
        }
        Some(out)
    }

    /// What stands for rows outside the table, and the value that has it: a selection between the gathered rows and
    /// a number, by whether the index lies inside.
    fn guarded(&self, index: ValueId, n: usize, gathered: ValueId) -> (Outside, ValueId) {
        for u in &self.part.graph.value(gathered).uses {
            let data = self.part.graph.op(u.op);
            if data.op != Op::Select(Select::Select) || data.operands[1] != gathered {
                continue;
            }
            let outside = match self.splat(data.operands[2]) {
                Some(v) if v.is_nan() => Outside::Nan,
                Some(0.0) => Outside::Zero,
                _ => continue,
            };
            if self.interval(data.operands[0], index, &self.ty(gathered).shape, 0) == Some((0, n as i64 - 1))
            {
                return (outside, data.results[0]);
            }
        }
        (Outside::Nearest, gathered)
    }

    /// The interval of indices for which a condition holds, if it is one; `shape` is that of the gathered rows.
    fn interval(&self, v: ValueId, index: ValueId, shape: &Shape, depth: usize) -> Option<(i64, i64)> {
        let (op, operands) = self.def(v).filter(|_| depth < MAX_CHAIN)?;
        let of = |v| self.interval(v, index, shape, depth + 1);
        match op {
            Op::Binary(b) if b.kind == BinaryKind::And => {
                let (a, b) = (of(operands[0])?, of(operands[1])?);
                Some((a.0.max(b.0), a.1.min(b.1)))
            }
            Op::Reduce(r) if r.monoid == Monoid::Min || r.monoid == Monoid::And => {
                let from = self.ty(operands[0]);
                if r.dims.iter().all(|&d| from.shape[d] == 1) { of(operands[0]) } else { None }
            }
            Op::Compare(c) => {
                let (x, y) = (operands[0], operands[1]);
                let (number, flipped) = match (self.splat(x), self.splat(y)) {
                    (None, Some(n)) if self.is_index(x, index, shape) => (n, false),
                    (Some(n), None) if self.is_index(y, index, shape) => (n, true),
                    _ => return None,
                };
                let n = number as i64;
                let least = if self.ty(index).dtype.is_unsigned() { 0 } else { i64::MIN };
                match (c.direction, flipped) {
                    (Direction::Ge, false) | (Direction::Le, true) => Some((n, i64::MAX)),
                    (Direction::Gt, false) | (Direction::Lt, true) => Some((n + 1, i64::MAX)),
                    (Direction::Le, false) | (Direction::Ge, true) => Some((least, n)),
                    (Direction::Lt, false) | (Direction::Gt, true) => Some((least, n - 1)),
                    _ => None,
                }
            }
            _ => self.same_places(v, shape).and_then(of),
        }
    }

    /// Whether a value is the index, each at its own row.
    fn is_index(&self, mut v: ValueId, index: ValueId, shape: &Shape) -> bool {
        let top = |mut v: ValueId| {
            while let Some(o) = self.same_places(v, shape) {
                v = o;
            }
            v
        };
        v = top(v);
        self.class(v).is_some() && self.class(v) == self.class(top(index))
    }

    /// The operand of a layout op that leaves rows in their order: it only adds or drops dimensions of size 1, or repeats
    /// a row's element along the row.
    fn same_places(&self, v: ValueId, shape: &Shape) -> Option<ValueId> {
        let v = self.seen(v);
        let (op, operands) = self.def(v)?;
        let proper = |t: &TensorType| -> Shape { t.shape.iter().copied().filter(|&n| n > 1).collect() };
        let (from, to) = (proper(self.ty(operands[0])), proper(self.ty(v)));
        let kept = match op {
            Op::Reshape(_) => from == to,
            Op::Broadcast(b) => {
                let last = shape.len() - 1;
                let along = self.ty(v).shape == *shape && !b.dims.contains(&last) && shape[last] > 1;
                let rows = if along { &to[..to.len() - 1] } else { &to[..] };
                b.dims.is_sorted() && from[..] == *rows
            }
            _ => false,
        };
        kept.then_some(operands[0])
    }
}
