//! Steps as upstream MLIR on tensors.
//!
//! Buffers become SSA values: a step's result is the buffer's value from there on, and what a loop
//! carries becomes the loop's iteration arguments.

use std::collections::BTreeMap;

use super::NpuirError;
use super::text::{Spelling, Text, dims, element, float, list, memref, strided, tensor};
use crate::tile::{
    BinaryOp, Buffer, BufferId, CompareOp, DType, GridId, Kernel, Loop, Num, Operand, Over, Ranges, ReduceOp,
    Space, Span, Step, UnaryOp, Var, View,
};

/// Emits one kernel as a module.
pub(super) fn module(kernel: &Kernel, spelling: Spelling) -> Result<String, NpuirError> {
    let mut e = Emit {
        kernel,
        spelling,
        text: Text::new(),
        values: BTreeMap::new(),
        vars: BTreeMap::new(),
        ranges: Ranges::new(&kernel.grid),
    };
    e.grid();
    e.steps(&kernel.body)?;
    e.text.line("return");
    let mut args = vec!["%lock: memref<?xi8>".to_owned(), "%workspace: memref<?xi8>".to_owned()];
    args.extend(
        kernel.params.iter().enumerate().map(|(n, p)| format!("%p{n}: memref<?x{}>", element(p.dtype))),
    );
    args.extend((0..kernel.scalars.len()).map(|n| format!("%s{n}: f32")));
    args.extend(["gx", "gy", "gz", "px", "py", "pz"].map(|name| format!("%{name}: i32")));
    let attributes = format!(
        "SyncBlockLockArgIdx = 0 : i64, WorkspaceArgIdx = 1 : i64, global_kernel = \"local\", mix_mode = \"{}\", parallel_mode = \"simd\"",
        mix_mode(kernel)
    );
    Ok(format!(
        "module {{\n  func.func @{}({}) attributes {{{attributes}}} {{\n{}  }}\n}}\n",
        kernel.name,
        args.join(", "),
        e.text.finish()
    ))
}

/// Which cores a kernel needs: vector (`aiv`), cube (`aic`) or both (`mix`).
fn mix_mode(kernel: &Kernel) -> &'static str {
    let has = |space| kernel.buffers.iter().any(|b| b.space == space);
    match (has(Space::Vector), has(Space::Accumulator)) {
        (true, true) => "mix",
        (false, true) => "aic",
        _ => "aiv",
    }
}

struct Emit<'k> {
    kernel: &'k Kernel,
    spelling: Spelling,
    text: Text,
    /// Current value of every buffer.
    values: BTreeMap<BufferId, String>,
    vars: BTreeMap<Var, String>,
    ranges: Ranges,
}

/// A region of a tensor as a memref value, with its valid part.
struct Region {
    value: String,
    ty: String,
    strides: Vec<i64>,
    /// Size along each dimension, if the region may be smaller than the tile.
    valid: Option<Vec<String>>,
}

impl<'k> Emit<'k> {
    /// The block's coordinates, from its number.
    fn grid(&mut self) {
        if self.kernel.grid.is_empty() {
            return;
        }
        let mut rest = self.text.def("arith.index_cast %px : i32 to index");
        for (n, dim) in self.kernel.grid.iter().enumerate().rev() {
            let var = Var::Grid(GridId(u32::try_from(n).unwrap_or(u32::MAX)));
            if n == 0 {
                self.vars.insert(var, rest.clone());
                break;
            }
            let size = self.text.index(dim.size);
            let at = self.text.def(&format!("arith.remsi {rest}, {size} : index"));
            rest = self.text.def(&format!("arith.divsi {rest}, {size} : index"));
            self.vars.insert(var, at);
        }
    }

    fn steps(&mut self, steps: &'k [Step]) -> Result<(), NpuirError> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &'k Step) -> Result<(), NpuirError> {
        let value = match step {
            Step::Load { dst, from, fill } => self.load(*dst, from, *fill),
            Step::Store { src, to } => {
                self.store(*src, to);
                return Ok(());
            }
            Step::Fill { dst, value } => self.filled(self.kernel.buffer(*dst), *value),
            Step::Index { dst, along, start } => {
                let start = self.text.affine(start, &self.vars);
                self.positions(self.kernel.buffer(*dst), *along, &start)
            }
            Step::Unary { op, dst, src } => {
                let src = self.operand(src, *dst)?;
                self.unary(*op, &src, *dst)
            }
            Step::Binary { op, dst, a, b } => {
                let (a, b) = (self.operand(a, *dst)?, self.operand(b, *dst)?);
                let ty = self.ty(*dst);
                self.text.def(&format!("{} {a}, {b} : {ty}", binary(*op)))
            }
            Step::Select { op, dst, a, b, on_true, on_false } => {
                let ints = self.is_int(a);
                let (a, b) = (self.compared(a, *dst, ints)?, self.compared(b, *dst, ints)?);
                let (t, f) = (self.operand(on_true, *dst)?, self.operand(on_false, *dst)?);
                let ty = self.ty(*dst);
                let sides =
                    if ints { tensor(&dims(self.kernel.buffer(*dst)), DType::I32) } else { ty.clone() };
                let mask = self.text.def(&format!("{} {a}, {b} : {sides}", compare(*op, ints)));
                let bits = ty.replace("f32", "i1");
                self.text.def(&format!("arith.select {mask}, {t}, {f} : {bits}, {ty}"))
            }
            Step::Convert { dst, src } => {
                let op = conversion(self.kernel.buffer(*src).dtype, self.kernel.buffer(*dst).dtype);
                let (value, from, to) = (self.value(*src)?, self.ty(*src), self.ty(*dst));
                self.text.def(&format!("{op} {value} : {from} to {to}"))
            }
            Step::Copy { src, .. } => self.value(*src)?,
            Step::Reduce { op, over, dst, src, valid, accumulate } => {
                let value = self.reduce(*op, *over, *dst, *src, valid.as_ref())?;
                if *accumulate {
                    let (old, ty) = (self.value(*dst)?, self.ty(*dst));
                    self.text.def(&format!("{} {old}, {value} : {ty}", binary(op.combine())))
                } else {
                    value
                }
            }
            Step::Matmul { .. } => self.matmul(step)?,
            Step::For(l) => return self.for_loop(l),
        };
        if let Some(dst) = step.writes() {
            self.values.insert(dst, value);
        }
        Ok(())
    }

    fn for_loop(&mut self, l: &'k Loop) -> Result<(), NpuirError> {
        let start = self.text.affine(&l.start, &self.vars);
        let end = self.text.bound(&l.end, &self.vars);
        let step = self.text.index(l.step);
        let var = self.text.name();
        let (mut initial, mut types, mut inside, mut names) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for id in &l.carries {
            let name = self.text.name();
            initial.push(format!("{name} = {}", self.value(*id)?));
            types.push(self.ty(*id));
            inside.push((*id, name));
        }
        let results = self.text.name();
        let head = format!("scf.for {var} = {start} to {end} step {step}");
        if l.carries.is_empty() {
            self.text.line(&format!("{head} {{"));
        } else {
            let (args, types) = (initial.join(", "), types.join(", "));
            let count = l.carries.len();
            self.text.line(&format!("{results}:{count} = {head} iter_args({args}) -> ({types}) {{"));
        }
        let outside = self.values.clone();
        self.values.extend(inside);
        self.vars.insert(Var::Loop(l.id), var);
        self.ranges.push(l);
        self.text.indent();
        self.steps(&l.body)?;
        for id in &l.carries {
            names.push(self.value(*id)?);
        }
        if !names.is_empty() {
            self.text.line(&format!("scf.yield {} : {}", names.join(", "), types.join(", ")));
        }
        self.text.dedent();
        self.text.line("}");
        self.ranges.pop();
        self.vars.remove(&Var::Loop(l.id));
        self.values = outside;
        for (n, id) in l.carries.iter().enumerate() {
            self.values.insert(*id, format!("{results}#{n}"));
        }
        Ok(())
    }

    fn value(&self, id: BufferId) -> Result<String, NpuirError> {
        let value = self.values.get(&id).cloned();
        value.ok_or_else(|| NpuirError::Internal(format!("`{}` has no value", self.kernel.buffer(id).name)))
    }

    fn ty(&self, id: BufferId) -> String {
        let buffer = self.kernel.buffer(id);
        tensor(&dims(buffer), buffer.dtype)
    }

    fn filled(&mut self, buffer: &Buffer, value: Num) -> String {
        let scalar = self.text.constant(&format!("arith.constant {} : f32", float(value, DType::F32)));
        self.spread(buffer, &scalar)
    }

    /// A tile with the f32 value everywhere.
    fn spread(&mut self, buffer: &Buffer, scalar: &str) -> String {
        let ty = tensor(&dims(buffer), DType::F32);
        let empty = self.text.def(&format!("tensor.empty() : {ty}"));
        self.text.def(&format!("linalg.fill ins({scalar} : f32) outs({empty} : {ty}) -> {ty}"))
    }

    /// Position numbers from `start` on, i32. The compiler takes a position generator in one dimension
    /// and without an offset only; offset and repetition are steps of their own.
    fn positions(&mut self, buffer: &Buffer, along: Over, start: &str) -> String {
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

    fn is_int(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Tile(id) => self.kernel.buffer(*id).dtype == DType::I32,
            Operand::Int(_) => true,
            Operand::Num(_) | Operand::Scalar(_) => false,
        }
    }

    /// An f32 operand with the shape of `dst`.
    fn operand(&mut self, operand: &Operand, dst: BufferId) -> Result<String, NpuirError> {
        self.compared(operand, dst, false)
    }

    fn compared(&mut self, operand: &Operand, dst: BufferId, int: bool) -> Result<String, NpuirError> {
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
    fn repeated(&mut self, id: BufferId, to: &Buffer) -> Result<String, NpuirError> {
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
    fn broadcast(
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

    fn unary(&mut self, op: UnaryOp, src: &str, dst: BufferId) -> String {
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

    fn reduce(
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

    fn matmul(&mut self, step: &Step) -> Result<String, NpuirError> {
        let Step::Matmul { dst, a, b, transpose_a, transpose_b, accumulate } = step else {
            return Err(NpuirError::Internal("not a matrix step".to_owned()));
        };
        if [dst, a, b].iter().any(|id| self.kernel.buffer(**id).cols == 1) {
            return Err(NpuirError::Unsupported("a matrix step on a tile of one column".to_owned()));
        }
        let (a, a_ty) = self.transposed(*a, *transpose_a)?;
        let (b, b_ty) = self.transposed(*b, *transpose_b)?;
        let ty = self.ty(*dst);
        let start =
            if *accumulate { self.value(*dst)? } else { self.filled(self.kernel.buffer(*dst), Num::ZERO) };
        Ok(self
            .text
            .def(&format!("linalg.matmul ins({a}, {b} : {a_ty}, {b_ty}) outs({start} : {ty}) -> {ty}")))
    }

    fn transposed(&mut self, id: BufferId, on: bool) -> Result<(String, String), NpuirError> {
        let (value, ty) = (self.value(id)?, self.ty(id));
        if !on {
            return Ok((value, ty));
        }
        let buffer = self.kernel.buffer(id);
        let to = tensor(&[buffer.cols, buffer.rows], buffer.dtype);
        let empty = self.text.def(&format!("tensor.empty() : {to}"));
        let value = self
            .text
            .def(&format!("linalg.transpose ins({value} : {ty}) outs({empty} : {to}) permutation = [1, 0]"));
        Ok((value, to))
    }

    fn load(&mut self, dst: BufferId, view: &View, fill: Num) -> String {
        let buffer = self.kernel.buffer(dst);
        let region = self.region(view, buffer);
        let (shape, dtype) = (dims(buffer), buffer.dtype);
        let local_ty = memref(&shape, dtype);
        let local = self.text.def(&format!("memref.alloc() : {local_ty}"));
        match &region.valid {
            None => {
                let copy = format!("memref.copy {}, {local} : {} to {local_ty}", region.value, region.ty);
                self.text.line(&copy);
            }
            Some(valid) => {
                let fill = self.fill_constant(fill, dtype);
                let ty = element(dtype);
                self.text.line(&format!("linalg.fill ins({fill} : {ty}) outs({local} : {local_ty})"));
                let dense = dense_strides(&shape);
                let (from, from_ty) =
                    self.part(&region.value, &region.ty, valid, &region.strides, true, dtype);
                let (to, to_ty) = self.part(&local, &local_ty, valid, &dense, false, dtype);
                self.text.line(&format!("memref.copy {from}, {to} : {from_ty} to {to_ty}"));
            }
        }
        let ty = match self.spelling {
            Spelling::Mlir19 => local_ty,
            Spelling::Mlir22 => format!("{local_ty} to {}", tensor(&shape, dtype)),
        };
        self.text.def(&format!("bufferization.to_tensor {local} restrict writable : {ty}"))
    }

    fn fill_constant(&mut self, fill: Num, dtype: DType) -> String {
        let literal = match dtype {
            DType::I32 => format!("{}", fill.get() as i32),
            _ => float(fill, dtype),
        };
        self.text.constant(&format!("arith.constant {literal} : {}", element(dtype)))
    }

    fn store(&mut self, src: BufferId, view: &View) {
        let (buffer, param) = (self.kernel.buffer(src), self.kernel.param(view.param));
        let region = self.region(view, buffer);
        let (mut value, mut ty) = (self.values.get(&src).cloned().unwrap_or_default(), self.ty(src));
        if buffer.dtype != param.dtype {
            let to = tensor(&dims(buffer), param.dtype);
            value = self.text.def(&format!("arith.truncf {value} : {ty} to {to}"));
            ty = to;
        }
        let (mut to, mut to_ty) = (region.value.clone(), region.ty.clone());
        if let Some(valid) = &region.valid {
            let n = valid.len();
            let part = tensor(&vec![-1; n], param.dtype);
            let (zeros, ones, sizes) = (list(&vec![0; n]), list(&vec![1; n]), valid.join(", "));
            value = self
                .text
                .def(&format!("tensor.extract_slice {value}{zeros} [{sizes}] {ones} : {ty} to {part}"));
            ty = part;
            (to, to_ty) = self.part(&region.value, &region.ty, valid, &region.strides, true, param.dtype);
        }
        self.text.line(&format!(
            "bufferization.materialize_in_destination {value} in writable {to} : ({ty}, {to_ty}) -> ()"
        ));
    }

    /// The first `valid` elements of a memref along each dimension.
    fn part(
        &mut self,
        value: &str,
        ty: &str,
        valid: &[String],
        strides: &[i64],
        offset: bool,
        dtype: DType,
    ) -> (String, String) {
        let n = valid.len();
        let to = strided(&vec![-1; n], strides, offset, dtype);
        let (zeros, ones, sizes) = (list(&vec![0; n]), list(&vec![1; n]), valid.join(", "));
        let name = self.text.def(&format!("memref.subview {value}{zeros} [{sizes}] {ones} : {ty} to {to}"));
        (name, to)
    }

    /// The region as a memref of the tile's shape.
    fn region(&mut self, view: &View, tile: &Buffer) -> Region {
        let param = self.kernel.param(view.param);
        let tensor_strides = param.strides();
        let mut offset = crate::tile::Affine::zero();
        for (start, stride) in view.starts().iter().zip(&tensor_strides) {
            offset = offset.plus(&start.times(*stride));
        }
        let offset = self.text.affine(&offset, &self.vars);
        let shape = dims(tile);
        let dense = dense_strides(&shape);
        let parts = [(&view.rows, tile.rows), (&view.cols, tile.cols)];
        let mut strides = Vec::new();
        let mut partial = false;
        for (n, (part, extent)) in parts.into_iter().take(shape.len()).enumerate() {
            strides.push(part.as_ref().map_or(dense[n], |(dim, _)| tensor_strides[*dim]));
            partial |= part.as_ref().is_some_and(|(_, span)| !self.ranges.always_full(span, extent));
        }
        let valid = partial.then(|| {
            let count = |e: &mut Self, (part, extent): (&Option<(usize, Span)>, i64)| match part {
                Some((_, span)) => e.count(span, extent),
                None => e.text.index(extent),
            };
            parts.into_iter().take(shape.len()).map(|p| count(self, p)).collect()
        });
        let ty = strided(&shape, &strides, true, param.dtype);
        let value = self.text.def(&format!(
            "memref.reinterpret_cast %p{} to offset: [{offset}], sizes: {}, strides: {} : memref<?x{}> to {ty}",
            view.param.0,
            list(&shape),
            list(&strides),
            element(param.dtype)
        ));
        Region { value, ty, strides, valid }
    }

    /// Number of valid indices of a span.
    fn count(&mut self, span: &Span, extent: i64) -> String {
        let start = self.text.affine(&span.start, &self.vars);
        let end = self.text.bound(&span.end, &self.vars);
        let length = self.text.def(&format!("arith.subi {end}, {start} : index"));
        let extent = self.text.index(extent);
        self.text.def(&format!("arith.minsi {length}, {extent} : index"))
    }
}

fn dense_strides(shape: &[i64]) -> Vec<i64> {
    if let [_, cols] = shape { vec![*cols, 1] } else { vec![1] }
}

fn binary(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "arith.addf",
        BinaryOp::Sub => "arith.subf",
        BinaryOp::Mul => "arith.mulf",
        BinaryOp::Div => "arith.divf",
        BinaryOp::Max => "arith.maximumf",
        BinaryOp::Min => "arith.minimumf",
    }
}

fn compare(op: CompareOp, ints: bool) -> &'static str {
    match (op, ints) {
        (CompareOp::Eq, false) => "arith.cmpf oeq,",
        (CompareOp::Ne, false) => "arith.cmpf une,",
        (CompareOp::Lt, false) => "arith.cmpf olt,",
        (CompareOp::Le, false) => "arith.cmpf ole,",
        (CompareOp::Gt, false) => "arith.cmpf ogt,",
        (CompareOp::Ge, false) => "arith.cmpf oge,",
        (CompareOp::Eq, true) => "arith.cmpi eq,",
        (CompareOp::Ne, true) => "arith.cmpi ne,",
        (CompareOp::Lt, true) => "arith.cmpi slt,",
        (CompareOp::Le, true) => "arith.cmpi sle,",
        (CompareOp::Gt, true) => "arith.cmpi sgt,",
        (CompareOp::Ge, true) => "arith.cmpi sge,",
    }
}

fn conversion(from: DType, to: DType) -> &'static str {
    match (from, to) {
        (DType::I32, _) => "arith.sitofp",
        (_, DType::I32) => "arith.fptosi",
        (_, DType::F32) => "arith.extf",
        _ => "arith.truncf",
    }
}
