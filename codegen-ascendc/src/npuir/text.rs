//! Text of MLIR: types, literals and fresh names.

use std::fmt::Write;

use crate::tile::{Affine, Bound, Buffer, DType, Num, Var};
use std::collections::BTreeMap;

/// Which MLIR reads the text. The constructs used are spelled alike but for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// MLIR 19, which the AscendNPU IR compiler is built on.
    Mlir19,
    /// MLIR 22, which this crate links; for verification.
    Mlir22,
}

/// Element type.
pub(super) fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I32 => "i32",
    }
}

/// Shape of the tensor that stands for a tile: `[rows, 1]` is one-dimensional, as reductions leave it.
pub(super) fn dims(buffer: &Buffer) -> Vec<i64> {
    if buffer.cols == 1 { vec![buffer.rows] } else { vec![buffer.rows, buffer.cols] }
}

/// `tensor<4x64xf32>`; a negative size is dynamic.
pub(super) fn tensor(dims: &[i64], dtype: DType) -> String {
    format!("tensor<{}{}>", sizes(dims), element(dtype))
}

/// `memref<4x64xf32>`, dense.
pub(super) fn memref(dims: &[i64], dtype: DType) -> String {
    format!("memref<{}{}>", sizes(dims), element(dtype))
}

/// A region of memory with these strides; `offset` unless it starts at the memory's own start.
pub(super) fn strided(dims: &[i64], strides: &[i64], offset: bool, dtype: DType) -> String {
    let offset = if offset { ", offset: ?" } else { "" };
    format!("memref<{}{}, strided<{}{offset}>>", sizes(dims), element(dtype), list(strides))
}

fn sizes(dims: &[i64]) -> String {
    let mut text = String::new();
    for d in dims {
        // Writing to a string cannot fail.
        let _ = if *d < 0 { write!(text, "?x") } else { write!(text, "{d}x") };
    }
    text
}

/// `[4, 64]`.
pub(super) fn list(values: &[i64]) -> String {
    let values: Vec<String> = values.iter().map(i64::to_string).collect();
    format!("[{}]", values.join(", "))
}

/// A floating-point literal of the given type, exactly.
pub(super) fn float(value: Num, dtype: DType) -> String {
    let v = value.get();
    match dtype {
        _ if v.is_finite() => {
            let text = format!("{v:e}");
            if text.contains('.') { text } else { text.replace('e', ".0e") }
        }
        // MLIR reads bits for what has no decimal form.
        DType::F32 | DType::I32 => format!("0x{:08X}", value.bits()),
        DType::BF16 => format!("0x{:04X}", value.bits() >> 16),
        DType::F16 if v.is_nan() => "0x7E00".to_owned(),
        DType::F16 if v < 0.0 => "0xFC00".to_owned(),
        DType::F16 => "0x7C00".to_owned(),
    }
}

/// The text under construction: indented lines, constants on first use, fresh names.
pub(super) struct Text {
    lines: String,
    /// Constants go to the function's start, so that every place may use them.
    constants: String,
    names: BTreeMap<String, String>,
    indent: usize,
    fresh: usize,
}

impl Text {
    pub fn new() -> Text {
        let (lines, constants) = (String::new(), String::new());
        Text { lines, constants, names: BTreeMap::new(), indent: 2, fresh: 0 }
    }

    /// Adds a line.
    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.lines, "{}{text}", "  ".repeat(self.indent));
    }

    /// Adds `%n = text` and gives `%n`.
    pub fn def(&mut self, text: &str) -> String {
        let name = self.name();
        self.line(&format!("{name} = {text}"));
        name
    }

    /// A fresh value name.
    pub fn name(&mut self) -> String {
        self.fresh += 1;
        format!("%{}", self.fresh - 1)
    }

    pub fn indent(&mut self) {
        self.indent += 1;
    }

    pub fn dedent(&mut self) {
        self.indent -= 1;
    }

    /// A value defined by `text` at the function's start; the same text gives the same value.
    pub fn constant(&mut self, text: &str) -> String {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name = format!("%c{}", self.names.len());
        let _ = writeln!(self.constants, "    {name} = {text}");
        self.names.insert(text.to_owned(), name.clone());
        name
    }

    /// An index constant.
    pub fn index(&mut self, value: i64) -> String {
        self.constant(&format!("arith.constant {value} : index"))
    }

    /// An affine function of index values.
    pub fn affine(&mut self, f: &Affine, vars: &BTreeMap<Var, String>) -> String {
        let mut sum: Option<String> = None;
        for (var, c) in f.terms() {
            let mut term = vars.get(var).cloned().unwrap_or_default();
            if *c != 1 {
                let c = self.index(*c);
                term = self.def(&format!("arith.muli {term}, {c} : index"));
            }
            sum = Some(match sum {
                None => term,
                Some(sum) => self.def(&format!("arith.addi {sum}, {term} : index")),
            });
        }
        match (sum, f.offset()) {
            (None, k) => self.index(k),
            (Some(sum), 0) => sum,
            (Some(sum), k) => {
                let k = self.index(k);
                self.def(&format!("arith.addi {sum}, {k} : index"))
            }
        }
    }

    /// The value of a bound.
    pub fn bound(&mut self, bound: &Bound, vars: &BTreeMap<Var, String>) -> String {
        let mut least: Option<String> = None;
        for end in bound.ends() {
            let end = self.affine(end, vars);
            least = Some(match least {
                None => end,
                Some(least) => self.def(&format!("arith.minsi {least}, {end} : index")),
            });
        }
        least.unwrap_or_else(|| self.index(0))
    }

    /// Constants, then lines.
    pub fn finish(self) -> String {
        self.constants + &self.lines
    }
}
