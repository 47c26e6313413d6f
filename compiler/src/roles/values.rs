//! What a float parameter meets in the program.

use super::flow::{Flow, Node, Step, What, is_form};
use msc_ir::ops::batch_norm::BatchNormKind;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Op, TensorType};
use std::collections::BTreeSet;

/// Facts about all values.
pub(super) struct Facts {
    /// It goes into a matrix product, a convolution, or a table that is gathered from.
    mixes: Vec<bool>,
    /// Some float parameter decides it.
    depends: Vec<bool>,
    /// Some parameter decides it.
    any_param: Vec<bool>,
    /// Some result is it plus a number.
    counted: Vec<bool>,
}

/// Whether an operand of an op meets other elements than those at its own place.
fn mixing(op: &Op, operand: u32) -> bool {
    match op {
        Op::DotGeneral(_) | Op::Convolution(_) | Op::BatchNorm(_) => true,
        // Graphs that were not followed.
        Op::While(_) | Op::Branch(_) | Op::Call(_) => true,
        Op::Gather(_) => operand == 0,
        _ => false,
    }
}

impl Facts {
    pub fn new(f: &Flow<'_>) -> Facts {
        let mut mixes = vec![false; f.types.len()];
        for s in f.steps.iter().rev() {
            let passed_on = s.writes.iter().any(|&w| mixes[w as usize]);
            for (i, &r) in s.reads.iter().enumerate() {
                let here = matches!(s.what, What::Op(op) if mixing(op, i as u32));
                mixes[r as usize] |= passed_on || here;
            }
        }
        let mut any_param = vec![false; f.types.len()];
        let mut depends = vec![false; f.types.len()];
        for &p in &f.params {
            any_param[p as usize] = true;
            depends[p as usize] = f.types[p as usize].dtype.is_float();
        }
        for s in &f.steps {
            let (any, float) = s
                .reads
                .iter()
                .fold((false, false), |(a, d), &r| (a || any_param[r as usize], d || depends[r as usize]));
            for &w in &s.writes {
                any_param[w as usize] |= any;
                depends[w as usize] |= float;
            }
        }
        let mut counted = vec![false; f.types.len()];
        for &r in &f.results {
            let Some((op, s)) = f.op(stays(f, r)) else { continue };
            // A counter may stop at its largest value.
            let added = match op {
                Op::Select(_) => s.reads.iter().find_map(|&v| sum(f, v)),
                _ => sum(f, s.writes[0]),
            };
            if let Some((v, _)) = added.filter(|&(_, c)| c != 0.0) {
                counted[stays(f, v) as usize] = true;
            }
        }
        Facts { mixes, depends, any_param, counted }
    }

    /// Whether a value goes into a matrix product, a convolution, or a table that is gathered from.
    pub fn mixes(&self, v: Node) -> bool {
        self.mixes[v as usize]
    }

    /// Whether a float parameter decides a value.
    pub fn depends(&self, v: Node) -> bool {
        self.depends[v as usize]
    }

    /// Whether a parameter decides a value.
    pub fn any_param(&self, v: Node) -> bool {
        self.any_param[v as usize]
    }

    /// Whether nothing uses a parameter, and no result is it.
    pub fn unused(&self, f: &Flow<'_>, p: Node) -> bool {
        f.uses[p as usize].is_empty() && !f.results.contains(&p)
    }

    /// Whether some result is the parameter plus a number.
    pub fn counts(&self, f: &Flow<'_>, p: Node) -> bool {
        f.types[p as usize].elements() <= 4096 && self.counted[p as usize]
    }

    /// Whether a parameter, element by element, goes into a result of its own type.
    pub fn reaches_alike(&self, f: &Flow<'_>, p: Node) -> bool {
        let ty = f.types[p as usize];
        let mut seen = BTreeSet::from([p]);
        let mut todo = vec![p];
        while let Some(v) = todo.pop() {
            if v != p && f.results.contains(&v) && f.types[v as usize] == ty {
                return true;
            }
            for &(n, _) in &f.uses[v as usize] {
                todo.extend(f.steps[n as usize].writes.iter().filter(|&&w| seen.insert(w)));
            }
        }
        false
    }

    /// Whether a parameter itself, in some form, is an operand of a matrix product, a convolution or a gather.
    pub fn is_operand(&self, f: &Flow<'_>, p: Node) -> bool {
        forms(f, p).iter().any(|&(v, _)| {
            let mixed = |&(n, i): &(u32, u32)| match f.steps[n as usize].what {
                What::Op(op) => mixing(op, i),
                What::Copy => false,
            };
            f.uses[v as usize].iter().any(mixed)
        })
    }

    /// The value that a result is a conversion of, if it is one.
    pub fn converted_from(&self, f: &Flow<'_>, result: Node) -> Option<Node> {
        match f.op(stays(f, result))? {
            (Op::Convert(Convert::Value(_)), s) => Some(s.reads[0]),
            _ => None,
        }
    }
}

/// The value under its first number.
fn stays(f: &Flow<'_>, mut v: Node) -> Node {
    while let [n] = f.defs[v as usize].as_slice()
        && let s = &f.steps[*n as usize]
        && matches!(s.what, What::Copy)
    {
        v = s.reads[0];
    }
    v
}

/// `(x, c)` of a value that is `x + c` with a number `c`.
fn sum(f: &Flow<'_>, v: Node) -> Option<(Node, f64)> {
    let (Op::Binary(b), s) = f.op(stays(f, v))? else { return None };
    if b.kind != BinaryKind::Add {
        return None;
    }
    let number = |v: Node| constant(f, v);
    match (number(s.reads[0]), number(s.reads[1])) {
        (None, Some(c)) => Some((s.reads[0], c)),
        (Some(c), None) => Some((s.reads[1], c)),
        _ => None,
    }
}

/// The number that every element of a value is, if it is a constant.
fn constant(f: &Flow<'_>, v: Node) -> Option<f64> {
    match f.op(f.origin(v))? {
        (Op::Constant(c), _) => f.module.constants.splat_value(c.id),
        _ => None,
    }
}

/// Whether a value, times others, becomes the argument of a cosine or sine.
pub(super) fn becomes_angle(f: &Flow<'_>, from: Node) -> bool {
    /// Far more than any exporter puts between positions and angles.
    const MOST: usize = 256;
    let mut seen = BTreeSet::from([from]);
    let mut todo = vec![from];
    while let Some(v) = todo.pop() {
        if seen.len() > MOST {
            return false;
        }
        for &(n, _) in &f.uses[v as usize] {
            let s = &f.steps[n as usize];
            let passes = match s.what {
                What::Copy => true,
                What::Op(Op::Unary(u)) if matches!(u.kind, UnaryKind::Cosine | UnaryKind::Sine) => {
                    return true;
                }
                What::Op(Op::Binary(b)) => matches!(b.kind, BinaryKind::Multiply | BinaryKind::Divide),
                What::Op(op) => {
                    is_form(op) || matches!(op, Op::Concatenate(_) | Op::DotGeneral(_) | Op::Pad(_))
                }
            };
            if passes {
                todo.extend(s.writes.iter().filter(|&&w| seen.insert(w)));
            }
        }
    }
    false
}

/// How a vector is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum VectorUse {
    /// It multiplies normalised rows, after a number was added to it.
    Scale {
        /// The number.
        offset: f64,
    },
    /// It is added to rows.
    Bias,
}

/// How a form of a value came about.
#[derive(Clone, Copy, Default)]
struct Form {
    /// The number added on the way.
    offset: f64,
    /// Whether it was repeated, and was a vector before.
    repeated: bool,
}

/// The forms of a value: converted, reshaped, sliced, repeated, with a number added.
fn forms(f: &Flow<'_>, from: Node) -> Vec<(Node, Form)> {
    let mut out = vec![(from, Form::default())];
    let mut seen = BTreeSet::from([from]);
    let mut at = 0;
    while let Some(&(v, form)) = out.get(at) {
        at += 1;
        for &(n, operand) in &f.uses[v as usize] {
            let s = &f.steps[n as usize];
            let Some(next) = form_of(f, s, v, operand, form) else { continue };
            let to = match s.what {
                What::Op(Op::Barrier(_)) => s.writes.get(operand as usize),
                _ => s.writes.first(),
            };
            if let Some(&w) = to.filter(|w| seen.insert(**w)) {
                out.push((w, next));
            }
        }
    }
    out
}

fn form_of(f: &Flow<'_>, s: &Step<'_>, v: Node, operand: u32, form: Form) -> Option<Form> {
    let op = match s.what {
        What::Copy => return Some(form),
        What::Op(op) => op,
    };
    match op {
        Op::Barrier(_) => Some(form),
        Op::Binary(b) if b.kind == BinaryKind::Add => {
            let c = constant(f, s.reads[1 - operand as usize])?;
            Some(Form { offset: form.offset + c, ..form })
        }
        Op::Broadcast(_) => {
            let (from, to) = (f.types[v as usize], f.types[s.writes[0] as usize]);
            let repeated = form.repeated || (is_vector(from) && to.elements() > from.elements());
            Some(Form { repeated, ..form })
        }
        _ if operand == 0 && is_form(op) => Some(form),
        _ => None,
    }
}

/// Whether only one dimension is larger than 1.
fn is_vector(ty: &TensorType) -> bool {
    ty.shape.iter().filter(|&&d| d > 1).count() == 1
}

/// Whether a parameter is the scale of a norm or a bias.
pub(super) fn vector_use(f: &Flow<'_>, facts: &Facts, p: Node) -> Option<VectorUse> {
    let mut bias = false;
    for (v, form) in forms(f, p) {
        for &(n, operand) in &f.uses[v as usize] {
            let s = &f.steps[n as usize];
            let What::Op(op) = s.what else { continue };
            match op {
                Op::BatchNorm(b) if b.kind != BatchNormKind::Grad && operand == 1 => {
                    return Some(VectorUse::Scale { offset: form.offset });
                }
                Op::BatchNorm(b) if b.kind != BatchNormKind::Grad && operand == 2 => bias = true,
                // An einsum that contracts nothing multiplies element by element.
                Op::DotGeneral(d)
                    if d.lhs_contract.is_empty()
                        && is_vector(f.types[v as usize])
                        && normalised(f, s.reads[1 - operand as usize], 12) =>
                {
                    return Some(VectorUse::Scale { offset: form.offset });
                }
                Op::Binary(b) if form.repeated => {
                    let other = s.reads[1 - operand as usize];
                    if b.kind == BinaryKind::Multiply && normalised(f, other, 12) {
                        return Some(VectorUse::Scale { offset: form.offset });
                    }
                    bias |= b.kind == BinaryKind::Add && constant(f, other).is_none() && facts.depends(other);
                }
                _ => {}
            }
        }
    }
    bias.then_some(VectorUse::Bias)
}

/// Whether a value is a product with a reciprocal root, or a quotient by a root.
fn normalised(f: &Flow<'_>, v: Node, depth: usize) -> bool {
    let v = f.origin(v);
    let Some((op, s)) = f.op(v).filter(|_| depth > 0) else { return false };
    let is_root = |v: Node| matches!(f.op(f.origin(v)), Some((Op::Unary(u), _)) if u.kind == UnaryKind::Sqrt);
    match op {
        Op::Unary(u) => u.kind == UnaryKind::Rsqrt,
        Op::BatchNorm(b) => b.kind != BatchNormKind::Grad && s.writes.first() == Some(&v),
        Op::Binary(b) => match b.kind {
            BinaryKind::Multiply => s.reads.iter().any(|&r| normalised(f, r, depth - 1)),
            BinaryKind::Divide => is_root(s.reads[1]) || normalised(f, s.reads[0], depth - 1),
            BinaryKind::Power => constant(f, s.reads[1]) == Some(-0.5),
            _ => false,
        },
        _ => false,
    }
}
