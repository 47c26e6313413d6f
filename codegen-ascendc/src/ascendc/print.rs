//! The kernel function: arguments, buffers, event ids, loops, flags.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::EmitError;
use super::expr::{affine, at, float, moved_type, type_name};
use crate::sched::{
    Count, Function, Item, Loop, Op, Pipe, Program, Tile, TileId, TileUse, Turn, Unit, Value,
};
use crate::tile::{BinaryOp, DType, LoopId};

/// Prints a program that passed [`sched::verify`](crate::sched::verify()).
///
/// # Errors
/// [`EmitError::Unsupported`] for programs with a cube-core part.
pub fn print(program: &Program) -> Result<String, EmitError> {
    let mut p = Printer { program, out: String::new(), depth: 1 };
    let [unit] = program.units.as_slice() else { return p.unsupported("a program of several units") };
    if unit.unit != Unit::Aiv {
        return p.unsupported("a cube-core program");
    }
    p.head();
    p.buffers();
    p.events();
    p.items(&unit.body)?;
    p.out.push_str("}\n");
    Ok(p.out)
}

/// Source being written.
pub(super) struct Printer<'p> {
    pub(super) program: &'p Program,
    pub(super) out: String,
    depth: usize,
}

impl Printer<'_> {
    pub(super) fn unsupported<T>(&self, what: impl Into<String>) -> Result<T, EmitError> {
        Err(EmitError::Unsupported { kernel: self.program.name.clone(), what: what.into() })
    }

    /// One line at the current depth.
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{:width$}{}", "", text.as_ref(), width = 2 * self.depth);
    }

    /// `head {`, the lines that `body` writes, `}`.
    pub(super) fn block(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.line(if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.line("}");
    }

    /// The lines once for every `var` below `count`; once with an empty variable if that is 1.
    pub(super) fn each(&mut self, var: &str, count: i64, body: impl FnOnce(&mut Self, &str)) {
        if count == 1 {
            body(self, "");
        } else {
            self.block(&format!("for (uint32_t {var} = 0; {var} < {count}; {var}++)"), |p| body(p, var));
        }
    }

    pub(super) fn tile(&self, id: TileId) -> Result<&Tile, EmitError> {
        match self.program.tile(id) {
            Some(tile) => Ok(tile),
            None => self.unsupported(format!("tile {}, which does not exist", id.0)),
        }
    }

    /// A count as an expression; a variable `name` is defined for it if it is known only at run time.
    pub(super) fn count(&mut self, name: &str, count: &Count) -> String {
        let Some(span) = &count.span else { return count.extent.to_string() };
        self.line(format!("int64_t {name} = {};", count.extent));
        for end in span.end.ends() {
            let length = affine(&end.minus(&span.start));
            self.line(format!("if ({length} < {name}) {name} = {length};"));
        }
        name.to_owned()
    }

    pub(super) fn value(&self, value: Value) -> String {
        match value {
            Value::Num(v) => float(v.get()),
            Value::Scalar(id, negative) => {
                let name = self.program.scalars.get(id.0 as usize).map_or("?", |s| s.name.as_str());
                format!("{}v_{name}", if negative { "-" } else { "" })
            }
        }
    }

    fn head(&mut self) {
        let p = self.program;
        let _ = writeln!(self.out, "#include \"kernel_operator.h\"\n");
        for line in p.origin.lines() {
            let _ = writeln!(self.out, "// {line}");
        }
        let pointers = p.params.iter().map(|param| format!("GM_ADDR a_{}", param.name));
        let scalars = p.scalars.iter().map(|s| format!("float v_{}", s.name));
        let arguments: Vec<String> = pointers.chain(scalars).collect();
        let _ = writeln!(
            self.out,
            "extern \"C\" __global__ __aicore__ void {}({}) {{",
            p.name,
            arguments.join(", ")
        );
        self.line("KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);");
        self.line("using namespace AscendC;");
        if !p.grid.is_empty() {
            self.line("int64_t block = GetBlockIdx();");
        }
        for (n, dim) in p.grid.iter().enumerate().rev() {
            self.line(format!("const int64_t g{n} = block % {}; // {}", dim.size, dim.name));
            if n > 0 {
                self.line(format!("block /= {};", dim.size));
            }
        }
        for param in &p.params {
            let (name, ty) = (&param.name, moved_type(param.dtype));
            self.line(format!("GlobalTensor<{ty}> g_{name};"));
            let pointer = format!("reinterpret_cast<__gm__ {ty} *>(a_{name})");
            self.line(format!("g_{name}.SetGlobalBuffer({pointer}, {});", param.elements()));
        }
        self.line("TPipe pipe;");
    }

    fn buffers(&mut self) {
        for tile in &self.program.tiles {
            let position = match tile.usage {
                TileUse::Loaded => "VECIN",
                TileUse::Stored => "VECOUT",
                TileUse::Computed => "VECCALC",
            };
            let (name, ty) = (&tile.name, type_name(tile.dtype));
            let slots = if tile.slots > 1 { format!(", {} slots", tile.slots) } else { String::new() };
            self.line(format!(
                "TBuf<TPosition::{position}> q_{name}; // {}x{}{slots}",
                tile.rows, tile.lanes
            ));
            self.line(format!("pipe.InitBuffer(q_{name}, {});", tile.bytes()));
            let all = if tile.rotates.is_some() { "all_" } else { "" };
            self.line(format!("LocalTensor<{ty}> {all}{name} = q_{name}.Get<{ty}>();"));
        }
    }

    /// One array of event ids per pair of pipes.
    fn events(&mut self) {
        let mut ids: BTreeMap<(Pipe, Pipe), u32> = BTreeMap::new();
        for flag in &self.program.flags {
            let most = ids.entry((flag.src, flag.dst)).or_default();
            *most = (*most).max(flag.id + flag.slots);
        }
        for ((src, dst), count) in ids {
            let one = format!("static_cast<int32_t>(pipe.AllocEventID<HardEvent::{src}_{dst}>())");
            let all = vec![one; count as usize].join(", ");
            self.line(format!("const int32_t {}[{count}] = {{{all}}};", event_array(src, dst)));
        }
    }

    fn items(&mut self, items: &[Item]) -> Result<(), EmitError> {
        for item in items {
            match item {
                Item::Op(op) => self.op(op)?,
                Item::Set(flag, turn) => self.flag("SetFlag", *flag, *turn)?,
                Item::Wait(flag, turn) => self.flag("WaitFlag", *flag, *turn)?,
                Item::Barrier(pipe) => self.line(format!("PipeBarrier<PIPE_{pipe}>();")),
                Item::For(l) => self.repeat(l)?,
                Item::CrossSet(..) | Item::CrossWait(..) => return self.unsupported("a hand-over"),
            }
        }
        Ok(())
    }

    fn flag(&mut self, call: &str, flag: crate::sched::FlagId, turn: Turn) -> Result<(), EmitError> {
        let Some(f) = self.program.flag(flag) else {
            return self.unsupported(format!("flag {}, which does not exist", flag.0));
        };
        let slot = match turn {
            Turn::Of(l) if f.slots > 1 => {
                super::expr::sum(&f.id.to_string(), &format!("n{} % {}", l.0, f.slots))
            }
            Turn::Of(_) => f.id.to_string(),
            Turn::Fixed(n) => (f.id + n).to_string(),
        };
        let array = event_array(f.src, f.dst);
        self.line(format!("{call}<HardEvent::{}_{}>({array}[{slot}]);", f.src, f.dst));
        Ok(())
    }

    fn repeat(&mut self, l: &Loop) -> Result<(), EmitError> {
        let (i, n) = (format!("i{}", l.id.0), format!("n{}", l.id.0));
        let conditions: Vec<String> =
            l.end.ends().iter().map(|end| format!("{i} < {}", affine(end))).collect();
        let counts = self.counts_turns(l);
        if counts {
            self.line(format!("uint32_t {n} = 0; // iteration, for the slots"));
        }
        self.line(format!(
            "for (int64_t {i} = {}; {}; {i} += {}{}) {{ // {}",
            affine(&l.start),
            conditions.join(" && "),
            l.step,
            if counts { format!(", {n}++") } else { String::new() },
            l.name
        ));
        self.depth += 1;
        let rotating: Vec<&Tile> = self.program.tiles.iter().filter(|t| t.rotates == Some(l.id)).collect();
        for tile in rotating {
            let slot = format!("({n} % {}) * {}", tile.slots, tile.slot_elements());
            let (name, ty) = (&tile.name, type_name(tile.dtype));
            self.line(format!("LocalTensor<{ty}> {name} = all_{name}[{slot}];"));
        }
        let result = self.items(&l.body);
        self.depth -= 1;
        self.line("}");
        result
    }

    /// Whether something takes turns with the loop's iterations.
    fn counts_turns(&self, l: &Loop) -> bool {
        let mut flags = BTreeSet::new();
        turning(&l.body, l.id, &mut flags);
        let slots = |flag: &crate::sched::FlagId| self.program.flag(*flag).is_some_and(|f| f.slots > 1);
        flags.iter().any(slots) || self.program.tiles.iter().any(|t| t.rotates == Some(l.id))
    }

    fn op(&mut self, op: &Op) -> Result<(), EmitError> {
        match op {
            Op::Load { dst, from, fill } => self.load(*dst, from, *fill),
            Op::Pad { dst, rows, lanes, fill } => self.pad(*dst, rows, lanes, *fill),
            Op::Store { src, to } => self.store(*src, to),
            Op::Duplicate { dst, value } => {
                let tile = self.tile(*dst)?;
                let count = if tile.column { tile.lanes } else { tile.slot_elements() };
                let line = format!("Duplicate({}, {}, {count});", tile.name, self.value(*value));
                self.line(line);
                Ok(())
            }
            Op::Clear { dst } => {
                let tile = self.tile(*dst)?;
                let all = if tile.rotates.is_some() { "all_" } else { "" };
                let count = tile.slot_elements() * i64::from(tile.slots);
                let line = format!("Duplicate({all}{}, 0.0f, {count});", tile.name);
                self.line(line);
                Ok(())
            }
            Op::Spread { dst, src } => {
                let (to, from) = (self.tile(*dst)?, self.tile(*src)?);
                let line =
                    format!("Brcb({}, {}, {}, BrcbRepeatParams{{1, 8}});", to.name, from.name, to.lanes / 64);
                self.line(line);
                Ok(())
            }
            Op::Unary { op, dst, src } => {
                let (to, from) = (self.tile(*dst)?, self.tile(*src)?);
                let name = match op {
                    Function::Exp => "Exp",
                    Function::Ln => "Ln",
                    Function::Sqrt => "Sqrt",
                    Function::Abs => "Abs",
                };
                let line = format!("{name}({}, {}, {});", to.name, from.name, to.rows * to.active());
                self.line(line);
                Ok(())
            }
            Op::WithScalar { op, dst, src, value } => {
                let name = match op {
                    BinaryOp::Add => "Adds",
                    BinaryOp::Mul => "Muls",
                    BinaryOp::Max => "Maxs",
                    BinaryOp::Min => "Mins",
                    BinaryOp::Sub | BinaryOp::Div => return self.unsupported(format!("scalar {op}")),
                };
                let value = self.value(*value);
                self.lanes(name, *dst, &[*src], Some(&value))
            }
            Op::Binary { op, dst, a, b } => self.lanes(binary_name(*op), *dst, &[*a, *b], None),
            Op::Cast { dst, src } => self.cast(*dst, *src),
            Op::ReduceLanes { op, dst, src, lanes, level } => {
                self.reduce_lanes(*op, *dst, *src, lanes, *level)
            }
            Op::FoldRows { op, dst, src, rows } => self.fold_rows(*op, *dst, *src, rows),
            Op::Opaque { name, .. } => self.unsupported(format!("operation `{name}`")),
        }
    }

    fn cast(&mut self, dst: TileId, src: TileId) -> Result<(), EmitError> {
        let (to, from) = (self.tile(dst)?.clone(), self.tile(src)?.clone());
        let mode = match (from.dtype, to.dtype) {
            (DType::F16 | DType::BF16, DType::F32) => "CAST_NONE",
            (DType::F32, DType::I32) => "CAST_TRUNC",
            _ => "CAST_RINT",
        };
        let call = |d: &str, s: &str, count: i64| {
            format!("Cast({}, {}, RoundMode::{mode}, {count});", at(&to.name, d), at(&from.name, s))
        };
        let flat = to.pitch == from.pitch || to.rows == 1;
        let lanes = if to.column { to.lanes } else { to.pitch.min(from.pitch) };
        if flat {
            self.line(call("0", "0", to.rows * lanes));
        } else {
            // The two types pad rows to different lengths.
            self.each("r", to.rows, |p, r| {
                let (d, s) = (super::expr::linear(r, to.pitch, 0), super::expr::linear(r, from.pitch, 0));
                p.line(call(&d, &s, lanes));
            });
        }
        Ok(())
    }
}

pub(super) fn binary_name(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "Add",
        BinaryOp::Sub => "Sub",
        BinaryOp::Mul => "Mul",
        BinaryOp::Div => "Div",
        BinaryOp::Max => "Max",
        BinaryOp::Min => "Min",
    }
}

fn event_array(src: Pipe, dst: Pipe) -> String {
    format!("{src}_{dst}").to_lowercase()
}

/// Flags that items take in turn with the loop.
fn turning(items: &[Item], l: LoopId, out: &mut BTreeSet<crate::sched::FlagId>) {
    for item in items {
        match item {
            Item::Set(flag, Turn::Of(of)) | Item::Wait(flag, Turn::Of(of)) if *of == l => {
                out.insert(*flag);
            }
            Item::For(inner) => turning(&inner.body, l, out),
            _ => {}
        }
    }
}
