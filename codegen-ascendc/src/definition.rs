//! From a fused op's definition to the row family: a graph of plain ops becomes a [`RowGroup`].
//!
//! The definition's *full* shape is `[…, H]`; its leading dimensions together are the rows. A value is one of
//! four classes, found from its own shape for parameters and from its op otherwise: full, a column (one element
//! a row: `[…]` or `[…, 1]`), a row (`[H]`), or single. Broadcasts and reshapes between these forms cost
//! nothing: the row family repeats a row or a column wherever a full value is needed.
//!
//! Operand `i` becomes the group's input `in{i}`, result `i` its output `out{i}`.

use crate::tile::build::{RowGroup, RowShape, RowValueId};
use crate::tile::{BinaryOp, DType, Num, ReduceOp, UnaryOp};
use msc_ir::graph::ValueId;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Graph, Module, Monoid, Op, Operation};
use thiserror::Error;

/// Why a definition is not of the row family. The op is then executed through its definition instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("@{graph} is not a row group: {message}")]
pub struct NotRows {
    /// The definition.
    pub graph: String,
    /// What does not fit.
    pub message: String,
}

/// The tile element type of an IR element type, if kernels have it.
pub fn tile_dtype(d: msc_ir::DType) -> Option<DType> {
    match d {
        msc_ir::DType::F32 => Some(DType::F32),
        msc_ir::DType::F16 => Some(DType::F16),
        msc_ir::DType::BF16 => Some(DType::BF16),
        msc_ir::DType::I32 => Some(DType::I32),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Value {
    /// A value of the group with its class.
    At(RowValueId, RowShape),
    /// The sum (or another reduction) of a full value over all rows: good for an output only.
    OverRows(ReduceOp, RowValueId),
}

struct Lowering<'a> {
    module: &'a Module,
    graph: &'a Graph,
    full: Vec<usize>,
    group: RowGroup,
    values: Vec<Option<Value>>,
}

/// Lowers a definition.
///
/// # Errors
/// [`NotRows`] naming the first op or shape that the row family does not have.
pub fn row_group(module: &Module, graph: &Graph, name: &str) -> Result<RowGroup, NotRows> {
    let refuse = |message: String| NotRows { graph: graph.name.clone(), message };
    let full = graph
        .params()
        .iter()
        .chain(graph.results())
        .map(|&v| graph.ty(v))
        .filter(|t| t.rank() > 1 && t.dtype.is_float())
        .max_by_key(|t| (t.rank(), t.elements()))
        .map(|t| t.shape.to_vec())
        .ok_or_else(|| refuse("it has no value of rank 2 or more".into()))?;
    let (&cols, lead) = full.split_last().ok_or_else(|| refuse("no dimension".into()))?;
    let rows: usize = lead.iter().product();
    if rows == 0 || cols == 0 {
        return Err(refuse(format!("the full shape {full:?} is empty")));
    }
    let mut l = Lowering {
        module,
        graph,
        group: RowGroup::new(name, rows as i64, cols as i64),
        full,
        values: vec![None; graph.value_count()],
    };
    l.group.origin = graph.name.clone();
    l.run()?;
    Ok(l.group)
}

impl Lowering<'_> {
    fn refuse(&self, message: impl Into<String>) -> NotRows {
        NotRows { graph: self.graph.name.clone(), message: message.into() }
    }

    fn run(&mut self) -> Result<(), NotRows> {
        for (i, &p) in self.graph.params().iter().enumerate() {
            let t = self.graph.ty(p);
            let dtype = tile_dtype(t.dtype).ok_or_else(|| self.refuse(format!("parameter {i} is {t}")))?;
            let class = self.param_class(p)?;
            let id = self.group.input(format!("in{i}"), class, dtype);
            self.values[p.0 as usize] = Some(Value::At(id, class));
        }
        for (_, data) in self.graph.ops() {
            let v = self.op(&data.op, &data.operands, data.results[0])?;
            self.values[data.results[0].0 as usize] = Some(v);
        }
        for (i, &r) in self.graph.results().iter().enumerate() {
            let t = self.graph.ty(r);
            let dtype = tile_dtype(t.dtype).ok_or_else(|| self.refuse(format!("result {i} is {t}")))?;
            match self.values[r.0 as usize] {
                Some(Value::OverRows(op, v)) => self.group.reduce_rows(format!("out{i}"), op, v, dtype),
                Some(Value::At(v, class)) if class == self.own_class(t.shape.as_slice()) => {
                    self.group.store(format!("out{i}"), v, dtype);
                }
                _ => return Err(self.refuse(format!("result {i} is a broadcast"))),
            }
        }
        Ok(())
    }

    /// The class that a shape has by itself; `[H]` with as many rows as columns counts as a column here.
    fn own_class(&self, shape: &[usize]) -> RowShape {
        let lead = &self.full[..self.full.len() - 1];
        let trimmed = shape.strip_suffix(&[1]).unwrap_or(shape);
        if shape == self.full {
            RowShape::Full
        } else if shape == lead || (shape.len() == self.full.len() && trimmed == lead) {
            RowShape::Column
        } else if shape.iter().all(|&n| n == 1) {
            RowShape::Single
        } else {
            RowShape::Row
        }
    }

    /// A parameter's class: by its shape, and where that fits both a row and a column, by how it is broadcast.
    fn param_class(&self, p: ValueId) -> Result<RowShape, NotRows> {
        let shape = self.graph.ty(p).shape.as_slice();
        let class = self.own_class(shape);
        let h = self.full[self.full.len() - 1];
        let is_row = shape.last() == Some(&h) && shape[..shape.len() - 1].iter().all(|&n| n == 1);
        match class {
            RowShape::Row if !is_row => Err(self.refuse(format!("a parameter has the shape {shape:?}"))),
            RowShape::Column if shape.len() == 1 && is_row => {
                let as_row = self.broadcast_along(p) == Some(self.full.len() - 1);
                Ok(if as_row { RowShape::Row } else { RowShape::Column })
            }
            class => Ok(class),
        }
    }

    /// The full dimension that a rank-1 value, or what elementwise ops make of it, is broadcast along.
    fn broadcast_along(&self, v: ValueId) -> Option<usize> {
        let mut pending = vec![v];
        while let Some(v) = pending.pop() {
            for u in &self.graph.value(v).uses {
                let data = self.graph.op(u.op);
                match &data.op {
                    Op::Broadcast(b) if b.shape.len() == self.full.len() => return b.dims.first().copied(),
                    _ if self.graph.ty(data.results[0]).shape == self.graph.ty(v).shape => {
                        pending.push(data.results[0]);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    fn at(&self, v: ValueId) -> Result<(RowValueId, RowShape), NotRows> {
        match self.values[v.0 as usize] {
            Some(Value::At(id, class)) => Ok((id, class)),
            _ => Err(self.refuse("a reduction over the rows is used inside")),
        }
    }

    fn op(&mut self, op: &Op, operands: &[ValueId], result: ValueId) -> Result<Value, NotRows> {
        let out = self.graph.ty(result).clone();
        let name = op.name();
        match op {
            Op::Constant(c) => {
                let x = self
                    .module
                    .constants
                    .splat_value(c.id)
                    .filter(|_| out.dtype.is_float())
                    .ok_or_else(|| self.refuse("a constant has differing elements"))?;
                let id = self.group.push(crate::tile::build::RowDef::Num(Num::new(x as f32)));
                Ok(Value::At(id, RowShape::Single))
            }
            Op::Unary(u) => {
                let f = unary(u.kind).ok_or_else(|| self.refuse(format!("{name} has no vector step")))?;
                let (a, class) = self.at(operands[0])?;
                Ok(Value::At(self.group.unary(f, a), class))
            }
            Op::Binary(b) => {
                let f = binary(b.kind).filter(|_| out.dtype.is_float());
                let f = f.ok_or_else(|| self.refuse(format!("{name} on {out} has no vector step")))?;
                let ((a, x), (b, y)) = (self.at(operands[0])?, self.at(operands[1])?);
                Ok(Value::At(self.group.binary(f, a, b), x.join(y)))
            }
            Op::Convert(Convert::Value(d)) => {
                let d = tile_dtype(*d).ok_or_else(|| self.refuse(format!("convert to {d}")))?;
                let (a, class) = self.at(operands[0])?;
                Ok(Value::At(self.group.convert(a, d), class))
            }
            Op::Broadcast(b) => {
                let (a, class) = self.at(operands[0])?;
                let rank = self.full.len();
                let lead: Vec<usize> = (0..rank - 1).collect();
                let dims = b.dims.as_slice();
                let fits = match class {
                    RowShape::Single => true,
                    RowShape::Full => out.shape.as_slice() == self.full,
                    RowShape::Column => dims == lead || dims.iter().copied().eq(0..rank),
                    RowShape::Row => dims.last() == Some(&(out.rank() - 1)),
                };
                if fits {
                    Ok(Value::At(a, class))
                } else {
                    Err(self.refuse(format!("broadcast along {dims:?}")))
                }
            }
            Op::Reshape(_) => {
                let (a, class) = self.at(operands[0])?;
                if class == RowShape::Single || class == self.own_class(&out.shape) && class != RowShape::Row
                {
                    Ok(Value::At(a, class))
                } else {
                    Err(self.refuse(format!("reshape to {out}")))
                }
            }
            Op::Reduce(r) => {
                let (a, class) = self.at(operands[0])?;
                let f = reduction(r.monoid).ok_or_else(|| self.refuse(format!("reduce by {}", r.monoid)))?;
                let rank = self.full.len();
                if class != RowShape::Full {
                    return Err(self.refuse("a broadcast value is reduced"));
                }
                if r.dims.as_slice() == [rank - 1] {
                    return Ok(Value::At(self.group.reduce(f, a), RowShape::Column));
                }
                let over_rows =
                    r.dims.iter().copied().eq(0..rank - 1) && self.graph.value(result).uses.is_empty();
                if over_rows {
                    Ok(Value::OverRows(f, a))
                } else {
                    Err(self.refuse(format!("reduce along {:?}", r.dims)))
                }
            }
            _ => Err(self.refuse(format!("{name} is not a row-wise op"))),
        }
    }
}

fn unary(k: UnaryKind) -> Option<UnaryOp> {
    Some(match k {
        UnaryKind::Abs => UnaryOp::Abs,
        UnaryKind::Negate => UnaryOp::Neg,
        UnaryKind::Exponential => UnaryOp::Exp,
        UnaryKind::Log => UnaryOp::Log,
        UnaryKind::Sqrt => UnaryOp::Sqrt,
        UnaryKind::Rsqrt => UnaryOp::Rsqrt,
        UnaryKind::Tanh => UnaryOp::Tanh,
        UnaryKind::Logistic => UnaryOp::Logistic,
        _ => return None,
    })
}

fn binary(k: BinaryKind) -> Option<BinaryOp> {
    Some(match k {
        BinaryKind::Add => BinaryOp::Add,
        BinaryKind::Subtract => BinaryOp::Sub,
        BinaryKind::Multiply => BinaryOp::Mul,
        BinaryKind::Divide => BinaryOp::Div,
        BinaryKind::Maximum => BinaryOp::Max,
        BinaryKind::Minimum => BinaryOp::Min,
        _ => return None,
    })
}

fn reduction(m: Monoid) -> Option<ReduceOp> {
    Some(match m {
        Monoid::Sum => ReduceOp::Sum,
        Monoid::Max => ReduceOp::Max,
        Monoid::Min => ReduceOp::Min,
        _ => return None,
    })
}
