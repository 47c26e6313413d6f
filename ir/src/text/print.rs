//! Printing.

use crate::attr::AttrValue;
use crate::constant::{ConstData, ConstId};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::module::{Member, Module, Sharding};
use crate::op::Operation;
use crate::tensor::Storage;
use std::fmt::Write;

/// What to print beside the program itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintOptions {
    /// Source locations.
    pub locations: bool,
}

/// A module as text, without source locations.
pub fn print(module: &Module) -> String {
    print_with(module, PrintOptions::default())
}

/// A module as text.
pub fn print_with(module: &Module, options: PrintOptions) -> String {
    let mut out = format!("module {}", name(&module.name));
    if !module.mesh.axes.is_empty() {
        let axes: Vec<String> = module.mesh.axes.iter().map(|a| format!("{} = {}", a.name, a.size)).collect();
        let _ = write!(out, " mesh [{}]", axes.join(", "));
    }
    out.push('\n');
    let mut done = vec![false; module.graphs().count()];
    for (id, _) in module.graphs() {
        emit(module, id.0 as usize, &mut done, &mut out, options);
    }
    for e in &module.entries {
        let _ = writeln!(out, "\nentry {:?} {} {{", e.name, name(&module.graph(e.graph).name));
        for p in &e.params {
            let _ = write!(out, "  param {:?}", p.name);
            if let Some(a) = p.alias {
                let _ = write!(out, " alias {a}");
            }
            stack(&mut out, &p.stack);
            sharding(&mut out, &p.sharding);
        }
        for r in &e.results {
            let _ = write!(out, "  result {:?}", r.name);
            stack(&mut out, &r.stack);
            sharding(&mut out, &r.sharding);
        }
        out.push_str("}\n");
    }
    out
}

fn stack(out: &mut String, members: &[Member]) {
    if !members.is_empty() {
        let members: Vec<String> = members.iter().map(|m| format!("{:?} {}", m.name, m.number)).collect();
        let _ = write!(out, " stack [{}]", members.join(", "));
    }
}

fn sharding(out: &mut String, s: &Sharding) {
    if !s.is_replicated() || s.sizes.iter().any(|&n| n > 0) {
        let dims: Vec<String> = s
            .dims
            .iter()
            .enumerate()
            .map(|(d, axes)| {
                let parts = match s.parts(d) {
                    1 => String::new(),
                    n => format!(" parts {n}"),
                };
                let size = match s.size(d, 0) {
                    0 => String::new(),
                    n => format!(" size {n}"),
                };
                let axes: Vec<String> = axes.iter().map(|a| a.0.to_string()).collect();
                format!("[{}]{parts}{size}", axes.join(", "))
            })
            .collect();
        let _ = write!(out, " sharding [{}]", dims.join(", "));
    }
    out.push('\n');
}

fn emit(module: &Module, id: usize, done: &mut [bool], out: &mut String, options: PrintOptions) {
    if std::mem::replace(&mut done[id], true) {
        return;
    }
    let g = module.graph(crate::module::GraphId(id as u32));
    for (_, o) in g.ops() {
        for c in o.op.callees() {
            emit(module, c.0 as usize, done, out, options);
        }
    }
    out.push('\n');
    out.push_str(&print_graph(module, g, options));
}

/// One graph as text.
pub fn print_graph(module: &Module, g: &Graph, options: PrintOptions) -> String {
    let mut names = vec![u32::MAX; g.value_count()];
    let mut next = 0;
    let mut out = format!("graph {}(", name(&g.name));
    for (i, &p) in g.params().iter().enumerate() {
        names[p.0 as usize] = next;
        let _ = write!(out, "{}%{next}: {}", if i > 0 { ", " } else { "" }, g.ty(p));
        next += 1;
    }
    out.push_str(") {\n");
    for (_, data) in g.ops() {
        out.push_str("  ");
        for (i, &r) in data.results.iter().enumerate() {
            names[r.0 as usize] = next;
            let _ = write!(out, "{}%{next}", if i > 0 { ", " } else { "" });
            next += 1;
        }
        let _ = write!(out, "{}{}", if data.results.is_empty() { "" } else { " = " }, data.op.name());
        for (i, v) in data.operands.iter().enumerate() {
            let _ = write!(out, "{}%{}", if i > 0 { ", " } else { " " }, names[v.0 as usize] as i64);
        }
        let attrs = data.op.attrs(module);
        if !attrs.is_empty() {
            let list: Vec<String> = attrs.iter().map(|(k, v)| format!("{k} = {}", attr(module, v))).collect();
            let _ = write!(out, " {{{}}}", list.join(", "));
        }
        let types: Vec<String> = data.results.iter().map(|&r| g.ty(r).to_string()).collect();
        let _ = write!(out, " : {}", types.join(", "));
        let l = module.locations.get(data.loc);
        if options.locations && (!l.file.is_empty() || !l.name.is_empty()) {
            let _ = write!(out, " loc({:?}:{}:{}, {:?})", l.file, l.line, l.column, l.name);
        }
        out.push('\n');
    }
    let results: Vec<String> = g.results().iter().map(|r| format!("%{}", names[r.0 as usize])).collect();
    let _ = writeln!(out, "  return {}\n}}", results.join(", "));
    out
}

/// `@name`, quoted where it has characters that a word has not: MLIR's symbols may be any text.
fn name(s: &str) -> String {
    if s.chars().all(super::lexer::is_word) { format!("@{s}") } else { format!("@{s:?}") }
}

fn attr(module: &Module, v: &AttrValue) -> String {
    match v {
        AttrValue::Bool(b) => b.to_string(),
        AttrValue::Int(i) => i.to_string(),
        AttrValue::Ints(v) => format!("[{}]", v.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
        AttrValue::Float(b) => format!("{:?}", f64::from_bits(*b)),
        AttrValue::Word(w) => w.clone(),
        AttrValue::Graph(g) => name(g),
        AttrValue::Graphs(v) => {
            format!("[{}]", v.iter().map(|g| name(g)).collect::<Vec<_>>().join(", "))
        }
        AttrValue::Text(t) => format!("{t:?}"),
        AttrValue::Const(c) => constant(module, ConstId(*c)),
    }
}

/// `splat f32[4] 1.5`, or `dense f32[2] 0x…` with the little-endian bytes. A splat whose value does not survive
/// a decimal round trip (a NaN with payload) is written by its bytes: `splat f32[4] 0x…`.
fn constant(module: &Module, id: ConstId) -> String {
    let hex = |b: &[u8]| {
        b.iter().fold(String::from("0x"), |mut s, x| {
            let _ = write!(s, "{x:02x}");
            s
        })
    };
    let c = module.constants.get(id);
    match &c.data {
        ConstData::Dense(b) => format!("dense {} {}", c.ty, hex(b)),
        ConstData::Splat(b) => {
            let one = Storage::from_bytes(c.ty.dtype, b);
            let v = one.get_f64(0);
            let decimal = match c.ty.dtype {
                DType::F64 => format!("{v:?}"),
                d if d.is_float() => format!("{:?}", v as f32),
                _ => format!("{v:.0}"),
            };
            let back = decimal.parse::<f64>().ok().map(|x| Storage::from_f64s(c.ty.dtype, &[x]));
            if v.is_finite() && back.is_some_and(|s| s.bytes() == &b[..]) {
                format!("splat {} {decimal}", c.ty)
            } else {
                format!("splat {} {}", c.ty, hex(b))
            }
        }
    }
}
