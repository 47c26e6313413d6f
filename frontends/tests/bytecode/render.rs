//! The raw form as text: types by what they are, not by their number, and no places.

use msc_frontends::raw::{Attr, DenseData, RawModule, RawOp, TypeId};
use std::fmt::Write;

/// A raw module as text.
pub fn render(m: &RawModule<'_>) -> String {
    let mut out = format!("module {} {}\n", m.name, attrs(m, &m.attrs));
    ops(m, &m.body, 1, &mut out);
    out
}

fn ops(m: &RawModule<'_>, list: &[RawOp<'_>], depth: usize, out: &mut String) {
    for op in list {
        let results: Vec<String> =
            op.results.iter().map(|v| format!("{}: {}", v.0, ty(m, m.values[v.0 as usize]))).collect();
        let operands: Vec<String> = op.operands.iter().map(|v| v.0.to_string()).collect();
        let _ = writeln!(
            out,
            "{:depth$}[{}] = {} [{}] {}",
            "",
            results.join(", "),
            op.name,
            operands.join(", "),
            attrs(m, &op.attrs)
        );
        for block in op.regions.iter().flat_map(|r| &r.blocks) {
            let args: Vec<String> = block.args.iter().map(|v| ty(m, m.values[v.0 as usize])).collect();
            let _ = writeln!(out, "{:depth$}({})", "", args.join(", "));
            ops(m, &block.ops, depth + 1, out);
        }
    }
}

fn ty(m: &RawModule<'_>, id: TypeId) -> String {
    format!("{:?}", m.types.get(id))
}

fn attrs(m: &RawModule<'_>, list: &[(std::borrow::Cow<'_, str>, Attr<'_>)]) -> String {
    let list: Vec<String> = list.iter().map(|(k, v)| format!("{k} = {}", attr(m, v))).collect();
    format!("{{{}}}", list.join(", "))
}

fn attr(m: &RawModule<'_>, a: &Attr<'_>) -> String {
    match a {
        Attr::Int(n, t) => format!("{n} : {}", ty(m, *t)),
        Attr::Float(x, t) => format!("{x:?} : {}", ty(m, *t)),
        Attr::Array(v) => format!("[{}]", v.iter().map(|a| attr(m, a)).collect::<Vec<_>>().join(", ")),
        Attr::Dense(t, DenseData::Bytes(b)) => format!("dense {b:?} : {}", ty(m, *t)),
        Attr::Dict(f) => attrs(m, f),
        Attr::Struct(name, f) => format!("{name}{}", attrs(m, f)),
        Attr::Type(t) => match m.types.get(*t) {
            msc_frontends::raw::Type::Function { inputs, results } => {
                let list = |v: &[TypeId]| v.iter().map(|t| ty(m, *t)).collect::<Vec<_>>().join(", ");
                format!("({}) -> ({})", list(inputs), list(results))
            }
            _ => ty(m, *t),
        },
        other => format!("{other:?}"),
    }
}
