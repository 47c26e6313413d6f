//! Readable text of kernels, steps and views. Used for golden tests and messages; it is not parsed.

use std::fmt::{self, Display, Write};

use super::{Kernel, Loop, Operand, Over, Step, View};

impl Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel {}", self.name)?;
        for line in self.origin.lines() {
            writeln!(f, "  // {line}")?;
        }
        for (n, dim) in self.grid.iter().enumerate() {
            writeln!(f, "  grid g{n} ({}) {}", dim.name, dim.size)?;
        }
        for p in &self.params {
            writeln!(f, "  {} {}: {}{}", p.role, p.name, p.dtype, shape(&p.shape))?;
        }
        for s in &self.scalars {
            writeln!(f, "  scalar {}: f32", s.name)?;
        }
        for b in &self.buffers {
            writeln!(f, "  {} {}: {}{}", b.space, b.name, b.dtype, shape(&b.shape()))?;
        }
        writeln!(f, "{{")?;
        for step in &self.body {
            write_step(f, self, step, 1)?;
        }
        writeln!(f, "}}")
    }
}

impl Kernel {
    /// One step as text, without the body of a loop.
    pub fn step_text(&self, step: &Step) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write_head(&mut text, self, step);
        text
    }
}

fn shape(sizes: &[i64]) -> String {
    let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

fn write_step(out: &mut dyn Write, k: &Kernel, step: &Step, depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    out.write_str(&indent)?;
    write_head(out, k, step)?;
    if let Step::For(Loop { body, .. }) = step {
        writeln!(out, " {{")?;
        for inner in body {
            write_step(out, k, inner, depth + 1)?;
        }
        write!(out, "{indent}}}")?;
    }
    writeln!(out)
}

fn write_head(out: &mut dyn Write, k: &Kernel, step: &Step) -> fmt::Result {
    let name = |id: super::BufferId| k.buffers.get(id.0 as usize).map_or("?", |b| b.name.as_str());
    let operand = |o: &Operand| match o {
        Operand::Tile(id) => name(*id).to_owned(),
        Operand::Num(v) => v.to_string(),
        Operand::Int(v) => v.to_string(),
        Operand::Scalar(id) => {
            k.scalars.get(id.0 as usize).map_or_else(|| "?".to_owned(), |s| s.name.clone())
        }
    };
    match step {
        Step::Load { dst, from, fill } => {
            write!(out, "{} = load {}, fill {fill}", name(*dst), view_text(k, from))
        }
        Step::Store { src, to } => write!(out, "store {}, {}", name(*src), view_text(k, to)),
        Step::Fill { dst, value } => write!(out, "{} = fill {value}", name(*dst)),
        Step::Index { dst, along, start } => {
            write!(out, "{} = index along {along} from {start}", name(*dst))
        }
        Step::Unary { op, dst, src } => write!(out, "{} = {op} {}", name(*dst), operand(src)),
        Step::Binary { op, dst, a, b } => {
            write!(out, "{} = {op} {}, {}", name(*dst), operand(a), operand(b))
        }
        Step::Select { op, dst, a, b, on_true, on_false } => write!(
            out,
            "{} = select {} {op} {} ? {} : {}",
            name(*dst),
            operand(a),
            operand(b),
            operand(on_true),
            operand(on_false)
        ),
        Step::Convert { dst, src } => {
            let dtype = k.buffers.get(dst.0 as usize).map_or_else(String::new, |b| b.dtype.to_string());
            write!(out, "{} = convert {} to {dtype}", name(*dst), name(*src))
        }
        Step::Copy { dst, src } => {
            let space = k.buffers.get(dst.0 as usize).map_or_else(String::new, |b| b.space.to_string());
            write!(out, "{} = copy {} to {space}", name(*dst), name(*src))
        }
        Step::Reduce { op, over, dst, src, valid, accumulate } => {
            let sign = if *accumulate { format!(" {op}=") } else { " =".to_owned() };
            write!(out, "{}{sign} reduce {op} over {over} {}", name(*dst), name(*src))?;
            match valid {
                Some(span) => write!(out, ", valid {span}"),
                None => Ok(()),
            }
        }
        Step::Matmul { dst, a, b, transpose_a, transpose_b, accumulate } => {
            let sign = if *accumulate { "+=" } else { "=" };
            let t = |on: &bool| if *on { "^T" } else { "" };
            let (a, b) = (name(*a), name(*b));
            write!(out, "{} {sign} matmul {a}{}, {b}{}", name(*dst), t(transpose_a), t(transpose_b))
        }
        Step::For(Loop { id, name: over, start, end, step, carries, .. }) => {
            write!(out, "for i{} ({over}) in {start}..{end} step {step}", id.0)?;
            if carries.is_empty() {
                return Ok(());
            }
            let carried: Vec<&str> = carries.iter().map(|id| name(*id)).collect();
            write!(out, " carry [{}]", carried.join(", "))
        }
    }
}

/// `x[i0..min(8*g0 + 8, 32), 0..64]`; says how the tile lies where the spans alone do not.
fn view_text(k: &Kernel, view: &View) -> String {
    let name = k.params.get(view.param.0 as usize).map_or("?", |p| p.name.as_str());
    let mut dims: Vec<String> = view.origin.iter().map(ToString::to_string).collect();
    for (dim, span) in view.rows.iter().chain(&view.cols) {
        if let Some(text) = dims.get_mut(*dim) {
            *text = span.to_string();
        }
    }
    let how = match (&view.rows, &view.cols) {
        (Some((r, _)), Some((c, _))) if r > c => " transposed",
        (Some(_), None) => " as column",
        (None, Some(_)) => " as row",
        _ => "",
    };
    format!("{name}[{}]{how}", dims.join(", "))
}

impl Over {
    /// The shape that a reduction in this direction leaves of `[rows, cols]`.
    pub const fn reduced(self, [rows, cols]: [i64; 2]) -> [i64; 2] {
        match self {
            Over::Rows => [1, cols],
            Over::Cols => [rows, 1],
        }
    }
}
