//! First pass, continued: the operations of each step.

use super::lower::Lowering;
use super::op::Function;
use super::{Lane, Op, SchedError, TileId, Value};
use crate::tile::{BinaryOp, BufferId, Num, Operand, Over, ReduceOp, Span, Step, UnaryOp, div_ceil};

const ONE: Value = Value::Num(Num::new(1.0));
const TWO: Value = Value::Num(Num::new(2.0));
const MINUS_ONE: Value = Value::Num(Num::new(-1.0));

impl Lowering<'_> {
    /// Lowers one step that is not a loop.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), SchedError> {
        match step {
            Step::Load { dst, from, fill } => {
                let region = self.region(*dst, from)?;
                let (rows, lanes) = (region.rows.clone(), region.lanes.clone());
                let dst = self.of(*dst);
                self.emit(Op::Load { dst, from: Box::new(region), fill: *fill });
                if rows.span.is_some() || lanes.span.is_some() {
                    self.emit(Op::Pad { dst, rows, lanes, fill: *fill });
                }
                Ok(())
            }
            Step::Store { src, to } => {
                let to = Box::new(self.region(*src, to)?);
                self.emit(Op::Store { src: self.of(*src), to });
                Ok(())
            }
            Step::Fill { dst, value } => {
                self.emit(Op::Duplicate { dst: self.of(*dst), value: Value::Num(*value) });
                Ok(())
            }
            Step::Convert { dst, src } => {
                self.emit(Op::Cast { dst: self.of(*dst), src: self.of(*src) });
                Ok(())
            }
            Step::Unary { op, dst, src } => self.unary(*op, *dst, src),
            Step::Binary { op, dst, a, b } => self.binary(*op, *dst, a, b),
            Step::Reduce { op, over, dst, src, valid, accumulate } => {
                self.reduce(*op, *over, *dst, *src, valid.as_ref(), *accumulate)
            }
            Step::Index { .. } => self.unsupported("step `index`"),
            Step::Select { .. } => self.unsupported("step `select`"),
            Step::Copy { .. } => self.unsupported("copy between memory classes"),
            Step::Matmul { .. } => self.unsupported("step `matmul`"),
            Step::For(_) => self.unsupported("loop in this place"),
        }
    }

    fn unary(&mut self, op: UnaryOp, dst: BufferId, src: &Operand) -> Result<(), SchedError> {
        let (to, shape) = (self.of(dst), self.kernel.buffer(dst).shape());
        // Where the operand lies in a tile of the destination's shape; else it is first copied to the
        // destination, and the function works in place.
        let from = match src {
            Operand::Tile(id) => match self.lane(shape, *id)? {
                Lane::Full(tile) => tile,
                lane => {
                    self.with_scalar(BinaryOp::Mul, to, lane, ONE);
                    to
                }
            },
            scalar => {
                let value = Self::value(scalar).unwrap_or(ONE);
                self.emit(Op::Duplicate { dst: to, value });
                to
            }
        };
        let simple = |op| Op::Unary { op, dst: to, src: from };
        match op {
            UnaryOp::Copy if from == to => {}
            UnaryOp::Copy => self.with_scalar(BinaryOp::Mul, to, Lane::Full(from), ONE),
            UnaryOp::Neg => self.with_scalar(BinaryOp::Mul, to, Lane::Full(from), MINUS_ONE),
            UnaryOp::Abs => self.emit(simple(Function::Abs)),
            UnaryOp::Exp => self.emit(simple(Function::Exp)),
            UnaryOp::Log => self.emit(simple(Function::Ln)),
            UnaryOp::Sqrt => self.emit(simple(Function::Sqrt)),
            // The unit's own reciprocal square root and reciprocal are approximations.
            UnaryOp::Rsqrt => {
                self.emit(simple(Function::Sqrt));
                self.divide_constant(ONE, to, to);
            }
            UnaryOp::Recip => self.divide_constant(ONE, to, from),
            UnaryOp::Logistic => {
                self.with_scalar(BinaryOp::Mul, to, Lane::Full(from), MINUS_ONE);
                self.emit(Op::Unary { op: Function::Exp, dst: to, src: to });
                self.with_scalar(BinaryOp::Add, to, Lane::Full(to), ONE);
                self.divide_constant(ONE, to, to);
            }
            // 1 - 2 / (e^2a + 1): absolute error of a few units of 2^-24; near zero not relative.
            UnaryOp::Tanh => {
                self.with_scalar(BinaryOp::Mul, to, Lane::Full(from), TWO);
                self.emit(Op::Unary { op: Function::Exp, dst: to, src: to });
                self.with_scalar(BinaryOp::Add, to, Lane::Full(to), ONE);
                self.divide_constant(TWO, to, to);
                self.with_scalar(BinaryOp::Mul, to, Lane::Full(to), MINUS_ONE);
                self.with_scalar(BinaryOp::Add, to, Lane::Full(to), ONE);
            }
        }
        Ok(())
    }

    fn with_scalar(&mut self, op: BinaryOp, dst: TileId, src: Lane, value: Value) {
        self.emit(Op::WithScalar { op, dst, src, value });
    }

    /// `dst = value / src`.
    fn divide_constant(&mut self, value: Value, dst: TileId, src: TileId) {
        let a = Lane::Single(self.constant(value));
        self.emit(Op::Binary { op: BinaryOp::Div, dst, a, b: Lane::Full(src) });
    }

    fn binary(&mut self, op: BinaryOp, dst: BufferId, a: &Operand, b: &Operand) -> Result<(), SchedError> {
        let (to, shape) = (self.of(dst), self.kernel.buffer(dst).shape());
        let lane = |l: &mut Self, operand: &Operand| match operand {
            Operand::Tile(id) => l.lane(shape, *id).map(Some),
            _ => Ok(None),
        };
        let (left, right) = (lane(self, a)?, lane(self, b)?);
        match (left, right) {
            (Some(a), Some(b)) => self.emit(Op::Binary { op, dst: to, a, b }),
            (Some(a), None) => self.right_scalar(op, to, a, Self::value(b).unwrap_or(ONE)),
            (None, Some(b)) => self.left_scalar(op, to, Self::value(a).unwrap_or(ONE), b),
            (None, None) => {
                self.emit(Op::Duplicate { dst: to, value: Self::value(a).unwrap_or(ONE) });
                self.right_scalar(op, to, Lane::Full(to), Self::value(b).unwrap_or(ONE));
            }
        }
        Ok(())
    }

    fn right_scalar(&mut self, op: BinaryOp, dst: TileId, a: Lane, value: Value) {
        match op {
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min => {
                self.with_scalar(op, dst, a, value)
            }
            // a - v and a + (-v) are the same value.
            BinaryOp::Sub => self.with_scalar(BinaryOp::Add, dst, a, value.negated()),
            // Not a · (1/v), which rounds twice.
            BinaryOp::Div => {
                let b = Lane::Single(self.constant(value));
                self.emit(Op::Binary { op, dst, a, b });
            }
        }
    }

    fn left_scalar(&mut self, op: BinaryOp, dst: TileId, value: Value, b: Lane) {
        match op {
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min => {
                self.with_scalar(op, dst, b, value)
            }
            BinaryOp::Sub => {
                self.with_scalar(BinaryOp::Mul, dst, b, MINUS_ONE);
                self.with_scalar(BinaryOp::Add, dst, Lane::Full(dst), value);
            }
            BinaryOp::Div => {
                let a = Lane::Single(self.constant(value));
                self.emit(Op::Binary { op, dst, a, b });
            }
        }
    }

    fn reduce(
        &mut self,
        op: ReduceOp,
        over: Over,
        dst: BufferId,
        src: BufferId,
        valid: Option<&Span>,
        accumulate: bool,
    ) -> Result<(), SchedError> {
        let [rows, cols] = self.kernel.buffer(src).shape();
        let (to, from) = (self.of(dst), self.of(src));
        if over == Over::Rows && cols > 1 {
            let rows = self.count(valid, rows);
            if !accumulate {
                self.emit(Op::Duplicate { dst: to, value: Value::Num(op.neutral()) });
            }
            self.emit(Op::FoldRows { op, dst: to, src: from, rows });
            return Ok(());
        }
        // Over the lanes of each row; a column is one row of lanes.
        let (results, lanes) = match over {
            Over::Cols if cols == 1 => {
                // One element a row: nothing to reduce.
                let result = Lane::Full(from);
                if accumulate {
                    self.emit(Op::Binary { op: op.combine(), dst: to, a: Lane::Full(to), b: result });
                } else {
                    self.with_scalar(BinaryOp::Mul, to, result, ONE);
                }
                return Ok(());
            }
            Over::Cols => (rows, cols),
            Over::Rows => (1, rows),
        };
        let lanes = self.count(valid, lanes);
        let target = if accumulate { self.part(results, 1) } else { to };
        let (mut src, mut width, mut level) = (from, lanes.extent, 0);
        loop {
            width = div_ceil(width, 64);
            let dst = if width == 1 { target } else { self.part(results, width) };
            self.emit(Op::ReduceLanes { op, dst, src, lanes: lanes.clone(), level });
            if width == 1 {
                break;
            }
            (src, level) = (dst, level + 1);
        }
        if accumulate {
            let (a, b) = (Lane::Full(to), Lane::Full(target));
            self.emit(Op::Binary { op: op.combine(), dst: to, a, b });
        }
        Ok(())
    }
}
