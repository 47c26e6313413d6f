//! Operands brought to a step's shape, and the steps that change shapes.

use super::NpuirError;
use super::emit::{Emit, binary};
use super::text::{dims, float, list, tensor};
use crate::tile::{Buffer, BufferId, DType, Num, Operand, Over, ReduceOp, Span, UnaryOp};

impl Emit<'_> {
    pub(super) fn filled(&mut self, buffer: &Buffer, value: Num) -> String {
        let scalar = self.text.constant(&format!("arith.constant {} : f32", float(value, DType::F32)));
        self.spread(buffer, &scalar)
    }

    /// A tile with the f32 value everywhere.
    pub(super) fn spread(&mut self, buffer: &Buffer, scalar: &str) -> String {
        let ty = tensor(&dims(buffer), DType::F32);
        let empty = self.text.def(&format!("tensor.empty() : {ty}"));
        self.text.def(&format!("linalg.fill ins({scalar} : f32) outs({empty} : {ty}) -> {ty}"))
    }

    /// Position numbers from `start` on, i32. The compiler takes a position generator in one dimension
    /// and without an offset only; offset and repetition are steps of their own.
    pub(super) fn positions(&mut self, buffer: &Buffer, along: Over, start: &str) -> String {
        let shape = dims(buffer);
        let dim = if along == Over::Rows { 0 } else { shape.len() - 1 };
        let extent = if along == Over::Rows { buffer.rows } else { buffer.cols };
        let ty = tensor(&[extent], DType::I32);
        let empty = self.text.def(&format!("tensor.empty() : {ty}"));
        let name = self.text.name();
        let map = "indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [\"parallel\"]";
        self.text.line(&format!("{name} = linalg.generic {{{map}}} outs({empty} : {ty}) {{"));
        self.text.line("^bb0(%out: i32):");
        self.text.indent();
        let at = self.text.def("linalg.index 0 : index");
        let at = self.text.def(&format!("arith.index_cast {at} : index to i32"));
        self.text.line(&format!("linalg.yield {at} : i32"));
        self.text.dedent();
        self.text.line(&format!("}} -> {ty}"));
        let start = self.text.def(&format!("arith.index_cast {start} : index to i32"));
        let empty = self.text.def(&format!("tensor.empty() : {ty}"));
        let offset = self.text.def(&format!("linalg.fill ins({start} : i32) outs({empty} : {ty}) -> {ty}"));
        let sum = self.text.def(&format!("arith.addi {name}, {offset} : {ty}"));
        if shape == [extent] {
            return sum;
        }
        self.broadcast(&sum, &[extent], &shape, &[1 - dim], DType::I32)
    }

    pub(super) fn is_int(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Tile(id) => self.kernel.buffer(*id).dtype == DType::I32,
            Operand::Int(_) => true,
            Operand::Num(_) | Operand::Scalar(_) => false,
        }
    }

    /// An f32 operand with the shape of `dst`.
    pub(super) fn operand(&mut self, operand: &Operand, dst: BufferId) -> Result<String, NpuirError> {
        self.compared(operand, dst, false)
    }

    pub(super) fn compared(
        &mut self,
        operand: &Operand,
        dst: BufferId,
        int: bool,
    ) -> Result<String, NpuirError> {
        let to = self.kernel.buffer(dst);
        let ty = tensor(&dims(to), if int { DType::I32 } else { DType::F32 });
        match operand {
            Operand::Tile(id) => self.repeated(*id, to),
            Operand::Num(v) => {
                Ok(self.text.constant(&format!("arith.constant dense<{}> : {ty}", float(*v, DType::F32))))
            }
            Operand::Int(v) => Ok(self.text.constant(&format!("arith.constant dense<{v}> : {ty}"))),
            Operand::Scalar(id) => Ok(self.spread(to, &format!("%s{}", id.0))),
        }
    }

    /// The tile repeated to the shape of `to`.
    pub(super) fn repeated(&mut self, id: BufferId, to: &Buffer) -> Result<String, NpuirError> {
        let from = self.kernel.buffer(id);
        let mut value = self.value(id)?;
        if from.shape() == to.shape() {
            return Ok(value);
        }
        let (mut shape, wanted) = (dims(from), dims(to));
        // Bring the operand to the rank that `linalg.broadcast` extends: drop every repeated dimension.
        let missing: Vec<usize> = match (from.rows, from.cols) {
            (1, 1) if to.rows > 1 => (0..wanted.len()).collect(),
            (_, 1) => vec![1],
            _ => vec![0],
        };
        let kept = wanted.len() - missing.len();
        if shape.len() > kept {
            let old = tensor(&shape, from.dtype);
            shape = if kept == 0 { Vec::new() } else { vec![from.rows * from.cols] };
            let new = tensor(&shape, from.dtype);
            let groups = match (dims(from).len(), kept) {
                (_, 0) => "[]",
                (2, 1) => "[[0, 1]]",
                _ => "[[0]]",
            };
            value = self.text.def(&format!("tensor.collapse_shape {value} {groups} : {old} into {new}"));
        }
        Ok(self.broadcast(&value, &shape, &wanted, &missing, from.dtype))
    }

    /// `linalg.broadcast` of a value of shape `from` to shape `to` along its `missing` dimensions.
    pub(super) fn broadcast(
        &mut self,
        value: &str,
        from: &[i64],
        to: &[i64],
        missing: &[usize],
        dtype: DType,
    ) -> String {
        let (ty, result) = (tensor(from, dtype), tensor(to, dtype));
        let empty = self.text.def(&format!("tensor.empty() : {result}"));
        let missing: Vec<String> = missing.iter().map(usize::to_string).collect();
        self.text.def(&format!(
            "linalg.broadcast ins({value} : {ty}) outs({empty} : {result}) dimensions = [{}]",
            missing.join(", ")
        ))
    }

    pub(super) fn unary(&mut self, op: UnaryOp, src: &str, dst: BufferId) -> String {
        let ty = self.ty(dst);
        let mut apply = |op: &str, a: &str| self.text.def(&format!("{op} {a} : {ty}"));
        match op {
            UnaryOp::Copy => return src.to_owned(),
            UnaryOp::Neg => return apply("arith.negf", src),
            UnaryOp::Abs => return apply("math.absf", src),
            UnaryOp::Exp => return apply("math.exp", src),
            UnaryOp::Log => return apply("math.log", src),
            UnaryOp::Sqrt => return apply("math.sqrt", src),
            UnaryOp::Tanh => return apply("math.tanh", src),
            UnaryOp::Rsqrt | UnaryOp::Recip | UnaryOp::Logistic => {}
        }
        // By division: the device's reciprocal instructions are approximate.
        let below = match op {
            UnaryOp::Rsqrt => apply("math.sqrt", src),
            UnaryOp::Logistic => {
                let negated = apply("arith.negf", src);
                let e = apply("math.exp", &negated);
                let one = self.text.constant(&format!("arith.constant dense<1.0e0> : {ty}"));
                self.text.def(&format!("arith.addf {e}, {one} : {ty}"))
            }
            _ => src.to_owned(),
        };
        let one = self.text.constant(&format!("arith.constant dense<1.0e0> : {ty}"));
        self.text.def(&format!("arith.divf {one}, {below} : {ty}"))
    }

    pub(super) fn reduce(
        &mut self,
        op: ReduceOp,
        over: Over,
        dst: BufferId,
        src: BufferId,
        valid: Option<&Span>,
    ) -> Result<String, NpuirError> {
        let from = self.kernel.buffer(src);
        let mut value = self.value(src)?;
        let extent = if over == Over::Rows { from.rows } else { from.cols };
        if extent == 1 {
            return Ok(value); // Nothing to reduce; the shapes are the same.
        }
        let mut shape = dims(from);
        let dim = if over == Over::Rows { 0 } else { shape.len() - 1 };
        if let Some(span) = valid.filter(|span| !self.ranges.always_full(span, extent)) {
            let count = self.count(span, extent);
            let whole = tensor(&shape, DType::F32);
            let mut sizes: Vec<String> = shape.iter().map(i64::to_string).collect();
            sizes[dim].clone_from(&count);
            shape[dim] = -1;
            let part = tensor(&shape, DType::F32);
            let (zeros, ones) = (list(&vec![0; shape.len()]), list(&vec![1; shape.len()]));
            let sizes = sizes.join(", ");
            value = self
                .text
                .def(&format!("tensor.extract_slice {value}{zeros} [{sizes}] {ones} : {whole} to {part}"));
        }
        let result: Vec<i64> = shape.iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, s)| *s).collect();
        let (ty, part) = (tensor(&result, DType::F32), tensor(&shape, DType::F32));
        let neutral =
            self.text.constant(&format!("arith.constant {} : f32", float(op.neutral(), DType::F32)));
        let empty = self.text.def(&format!("tensor.empty() : {ty}"));
        let start = self.text.def(&format!("linalg.fill ins({neutral} : f32) outs({empty} : {ty}) -> {ty}"));
        let name = binary(op.combine());
        let sum = self.text.def(&format!(
            "linalg.reduce {{{name}}} ins({value} : {part}) outs({start} : {ty}) dimensions = [{dim}]"
        ));
        let wanted = self.kernel.buffer(dst);
        if dims(wanted) == result {
            return Ok(sum);
        }
        let shape = dims(wanted);
        let groups = if result.is_empty() { "[]" } else { "[[0, 1]]" };
        let (sizes, to) = (list(&shape), tensor(&shape, DType::F32));
        Ok(self
            .text
            .def(&format!("tensor.expand_shape {sum} {groups} output_shape {sizes} : {ty} into {to}")))
    }
}
