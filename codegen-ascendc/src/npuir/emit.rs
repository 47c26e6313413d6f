//! Steps as upstream MLIR on tensors.
//!
//! Buffers become SSA values: a step's result is the buffer's value from there on, and what a loop
//! carries becomes the loop's iteration arguments.

use std::collections::BTreeMap;

use super::NpuirError;
use super::text::{Spelling, Text, dims, element, tensor};
use crate::tile::{
    BinaryOp, BufferId, CompareOp, DType, GridId, Kernel, Loop, Num, Ranges, Space, Step, Var,
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

pub(super) struct Emit<'k> {
    pub kernel: &'k Kernel,
    pub spelling: Spelling,
    pub text: Text,
    /// Current value of every buffer.
    pub values: BTreeMap<BufferId, String>,
    pub vars: BTreeMap<Var, String>,
    pub ranges: Ranges,
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

    pub fn value(&self, id: BufferId) -> Result<String, NpuirError> {
        let value = self.values.get(&id).cloned();
        value.ok_or_else(|| NpuirError::Internal(format!("`{}` has no value", self.kernel.buffer(id).name)))
    }

    pub fn ty(&self, id: BufferId) -> String {
        let buffer = self.kernel.buffer(id);
        tensor(&dims(buffer), buffer.dtype)
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
}

pub(super) fn binary(op: BinaryOp) -> &'static str {
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
