//! The description of a row-wise group: what is computed, nothing about tiles.

use serde::{Deserialize, Serialize};

use super::BuildError;
use crate::tile::{BinaryOp, CompareOp, DType, Num, Over, ReduceOp, UnaryOp};

/// Index into [`RowGroup::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RowValueId(pub u32);

/// A group of operations on `[rows, cols]` values in which rows meet only in outputs that are reduced
/// over the rows.
///
/// Values are in definition order: a value's operands come before it. Broadcasting is implicit: where a
/// `Full` value is needed, a row is repeated over the rows and a column over the columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
pub struct RowGroup {
    /// Name: an identifier; the kernels' names start with it.
    pub name: String,
    /// What the group was made from, for reading and messages.
    pub origin: String,
    /// Number of rows R (all leading dimensions of the tensors, flattened).
    pub rows: i64,
    /// Number of columns H.
    pub cols: i64,
    /// Inputs, literals and steps.
    pub values: Vec<RowValue>,
    /// Outputs.
    pub outputs: Vec<RowOutput>,
}

/// One value of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowValue {
    /// How the value comes about.
    pub def: RowDef,
}

/// How a value comes about.
///
/// Elementwise steps work on floating-point operands of one element type (literals and scalars fit any)
/// and give that type: the step is computed in f32 and, for f16 and bf16, rounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RowDef {
    /// A tensor the kernels are launched with.
    Input {
        /// Name: an identifier, unique among inputs, scalars and outputs.
        name: String,
        /// Shape class; not [`RowShape::Single`].
        shape: RowShape,
        /// Element type.
        dtype: DType,
    },
    /// An f32 value the kernels are launched with.
    Scalar {
        /// Name: an identifier, unique among inputs, scalars and outputs.
        name: String,
    },
    /// A literal.
    Num(Num),
    /// An integer literal, for comparisons with i32 values.
    Int(i32),
    /// The row or column number of each element, i32: a column or a row.
    Position(Over),
    /// `op(a)`.
    Unary(UnaryOp, RowValueId),
    /// `op(a, b)`.
    Binary(BinaryOp, RowValueId, RowValueId),
    /// `(a op b) ? on_true : on_false`; `a` and `b` may be i32.
    Select {
        /// The comparison.
        op: CompareOp,
        /// Left side.
        a: RowValueId,
        /// Right side.
        b: RowValueId,
        /// Value where the comparison holds.
        on_true: RowValueId,
        /// Value elsewhere.
        on_false: RowValueId,
    },
    /// Conversion to another element type, rounding to nearest even.
    Convert(RowValueId, DType),
    /// Reduction of a `Full` value over its columns to a `Column`; summed in f32, result in the
    /// operand's type.
    Reduce(ReduceOp, RowValueId),
}

/// Shape class of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RowShape {
    /// One value for all: `[1, 1]`.
    Single,
    /// One value per column, `[H]` (gamma): `[1, cols]` on chip.
    Row,
    /// One value per row, `[R]` (rstd): `[rows, 1]` on chip.
    Column,
    /// `[R, H]`.
    Full,
}

impl RowShape {
    /// The shape of an elementwise step on operands of the two shapes.
    pub fn join(self, other: RowShape) -> RowShape {
        use RowShape::{Column, Full, Row, Single};
        match (self, other) {
            (Single, s) | (s, Single) => s,
            (Row, Row) => Row,
            (Column, Column) => Column,
            _ => Full,
        }
    }

    /// Global shape of a tensor of this class.
    pub fn global(self, rows: i64, cols: i64) -> Vec<i64> {
        match self {
            RowShape::Single => Vec::new(),
            RowShape::Row => vec![cols],
            RowShape::Column => vec![rows],
            RowShape::Full => vec![rows, cols],
        }
    }
}

/// What happens to an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sink {
    /// The value is stored: a `Full` value as `[R, H]`, a `Column` as `[R]`.
    Store,
    /// The value (`Full`) is reduced over all rows in f32 and stored as `[H]` (gamma's gradient).
    ReduceRows(ReduceOp),
}

/// One output of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowOutput {
    /// Name: an identifier, unique among inputs, scalars and outputs.
    pub name: String,
    /// The value.
    pub value: RowValueId,
    /// What happens to it.
    pub sink: Sink,
    /// Element type of the tensor: the value's own for [`Sink::Store`], any floating-point type for a
    /// reduction.
    pub dtype: DType,
}

/// Inferred type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowType {
    /// Shape class.
    pub shape: RowShape,
    /// Element type; `None` for literals and scalars, which take any floating-point type.
    pub dtype: Option<DType>,
    /// Number of column reductions in a row that must be complete before the value can be computed.
    pub level: u32,
}

impl RowGroup {
    /// An empty group over `[rows, cols]`.
    pub fn new(name: impl Into<String>, rows: i64, cols: i64) -> RowGroup {
        RowGroup { name: name.into(), rows, cols, ..RowGroup::default() }
    }

    /// Adds a value.
    pub fn push(&mut self, def: RowDef) -> RowValueId {
        self.values.push(RowValue { def });
        RowValueId(u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX))
    }

    /// Adds an input tensor.
    pub fn input(&mut self, name: impl Into<String>, shape: RowShape, dtype: DType) -> RowValueId {
        self.push(RowDef::Input { name: name.into(), shape, dtype })
    }

    /// Adds a literal.
    pub fn num(&mut self, value: f32) -> RowValueId {
        self.push(RowDef::Num(Num::new(value)))
    }

    /// Adds `op(a)`.
    pub fn unary(&mut self, op: UnaryOp, a: RowValueId) -> RowValueId {
        self.push(RowDef::Unary(op, a))
    }

    /// Adds `op(a, b)`.
    pub fn binary(&mut self, op: BinaryOp, a: RowValueId, b: RowValueId) -> RowValueId {
        self.push(RowDef::Binary(op, a, b))
    }

    /// Adds a conversion, unless the value already has the type.
    pub fn convert(&mut self, a: RowValueId, dtype: DType) -> RowValueId {
        let same = self.infer().ok().and_then(|types| types.get(a.0 as usize).and_then(|t| t.dtype));
        if same == Some(dtype) { a } else { self.push(RowDef::Convert(a, dtype)) }
    }

    /// Adds a reduction over the columns.
    pub fn reduce(&mut self, op: ReduceOp, a: RowValueId) -> RowValueId {
        self.push(RowDef::Reduce(op, a))
    }

    /// Adds an output that is stored.
    pub fn store(&mut self, name: impl Into<String>, value: RowValueId, dtype: DType) {
        self.outputs.push(RowOutput { name: name.into(), value, sink: Sink::Store, dtype });
    }

    /// Adds an output that is reduced over the rows.
    pub fn reduce_rows(&mut self, name: impl Into<String>, op: ReduceOp, value: RowValueId, dtype: DType) {
        self.outputs.push(RowOutput { name: name.into(), value, sink: Sink::ReduceRows(op), dtype });
    }

    /// The definition of a value.
    ///
    /// # Panics
    /// If `id` is not of this group; [`infer`](Self::infer) excludes that for operands and outputs.
    pub fn def(&self, id: RowValueId) -> &RowDef {
        &self.values[id.0 as usize].def
    }

    /// Checks the description and infers the type of every value.
    ///
    /// # Errors
    /// [`BuildError::Group`] or [`BuildError::Whole`] naming the first value or output at fault.
    pub fn infer(&self) -> Result<Vec<RowType>, BuildError> {
        if self.rows < 1 || self.cols < 1 {
            return Err(self.whole(format!("{} x {} is empty", self.rows, self.cols)));
        }
        let mut types: Vec<RowType> = Vec::with_capacity(self.values.len());
        for (n, value) in self.values.iter().enumerate() {
            let fail = |why: String| self.at(n, why);
            let ty = infer_one(&value.def, &types).map_err(fail)?;
            types.push(ty);
        }
        for output in &self.outputs {
            self.infer_output(output, &types)?;
        }
        Ok(types)
    }

    fn infer_output(&self, output: &RowOutput, types: &[RowType]) -> Result<(), BuildError> {
        let n = output.value.0 as usize;
        let Some(ty) = types.get(n) else {
            return Err(self.whole(format!("output `{}` names value {n}, which does not exist", output.name)));
        };
        let why = match output.sink {
            Sink::Store if !matches!(ty.shape, RowShape::Full | RowShape::Column) => {
                "only full values and columns can be stored"
            }
            Sink::Store if ty.dtype != Some(output.dtype) => "an output has its value's element type",
            Sink::ReduceRows(_) if ty.shape != RowShape::Full => "only full values are reduced over the rows",
            Sink::ReduceRows(_) if ty.dtype == Some(DType::I32) || output.dtype == DType::I32 => {
                "i32 values are not reduced"
            }
            _ => return Ok(()),
        };
        Err(self.at(n, format!("output `{}`: {why}", output.name)))
    }

    pub(super) fn whole(&self, why: String) -> BuildError {
        BuildError::Whole { group: self.name.clone(), why }
    }

    fn at(&self, n: usize, why: String) -> BuildError {
        BuildError::Group { group: self.name.clone(), value: u32::try_from(n).unwrap_or(u32::MAX), why }
    }
}

/// The type of a value whose operands have the given types.
fn infer_one(def: &RowDef, types: &[RowType]) -> Result<RowType, String> {
    let get = |id: &RowValueId| {
        types.get(id.0 as usize).copied().ok_or_else(|| format!("operand {} is not defined before it", id.0))
    };
    let float = |t: &RowType| {
        if t.dtype == Some(DType::I32) {
            Err("i32 operand of a floating-point step".to_owned())
        } else {
            Ok(())
        }
    };
    let of = |shape, dtype, level| RowType { shape, dtype, level };
    match def {
        RowDef::Input { shape: RowShape::Single, .. } => Err("an input cannot be a single value".to_owned()),
        RowDef::Input { shape, dtype, .. } => Ok(of(*shape, Some(*dtype), 0)),
        RowDef::Scalar { .. } | RowDef::Num(_) => Ok(of(RowShape::Single, None, 0)),
        RowDef::Int(_) => Ok(of(RowShape::Single, Some(DType::I32), 0)),
        RowDef::Position(Over::Rows) => Ok(of(RowShape::Column, Some(DType::I32), 0)),
        RowDef::Position(Over::Cols) => Ok(of(RowShape::Row, Some(DType::I32), 0)),
        RowDef::Unary(_, a) => {
            let a = get(a)?;
            float(&a)?;
            Ok(RowType { dtype: Some(a.dtype.unwrap_or(DType::F32)), ..a })
        }
        RowDef::Binary(_, a, b) => {
            let (a, b) = (get(a)?, get(b)?);
            float(&a)?;
            float(&b)?;
            let ty = join(a, b)?;
            Ok(RowType { dtype: Some(ty.dtype.unwrap_or(DType::F32)), ..ty })
        }
        RowDef::Select { a, b, on_true, on_false, .. } => {
            let (a, b, t, f) = (get(a)?, get(b)?, get(on_true)?, get(on_false)?);
            float(&t)?;
            float(&f)?;
            let (sides, values) = (join(a, b)?, join(t, f)?);
            let shape = sides.shape.join(values.shape);
            Ok(of(shape, Some(values.dtype.unwrap_or(DType::F32)), sides.level.max(values.level)))
        }
        RowDef::Convert(a, to) => {
            let a = get(a)?;
            match a.dtype {
                Some(from) if from != *to => Ok(RowType { dtype: Some(*to), ..a }),
                _ => Err(format!("conversion of {:?} to {to}", a.dtype)),
            }
        }
        RowDef::Reduce(_, a) => {
            let a = get(a)?;
            float(&a)?;
            if a.shape != RowShape::Full {
                return Err(format!("reduction of a {:?} value", a.shape));
            }
            Ok(RowType { shape: RowShape::Column, level: a.level + 1, ..a })
        }
    }
}

fn join(a: RowType, b: RowType) -> Result<RowType, String> {
    let dtype = match (a.dtype, b.dtype) {
        (Some(a), Some(b)) if a != b => return Err(format!("operands are {a} and {b}")),
        (a, b) => a.or(b),
    };
    Ok(RowType { shape: a.shape.join(b.shape), dtype, level: a.level.max(b.level) })
}

impl RowDef {
    /// The operands, in order.
    pub fn operands(&self) -> Vec<RowValueId> {
        match self {
            RowDef::Input { .. }
            | RowDef::Scalar { .. }
            | RowDef::Num(_)
            | RowDef::Int(_)
            | RowDef::Position(_) => Vec::new(),
            RowDef::Unary(_, a) | RowDef::Convert(a, _) | RowDef::Reduce(_, a) => vec![*a],
            RowDef::Binary(_, a, b) => vec![*a, *b],
            RowDef::Select { a, b, on_true, on_false, .. } => vec![*a, *b, *on_true, *on_false],
        }
    }
}
