//! Parsing.

use super::lexer::{Lexer, Token};
use crate::attr::{AttrReader, AttrValue};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::graph::{Graph, ValueId};
use crate::location::{Loc, LocId};
use crate::module::{AxisId, Entry, Member, Mesh, MeshAxis, Module, ParamInfo, ResultInfo, Sharding};
use crate::op::Op;
use crate::tensor::Storage;
use crate::types::{Shape, TensorType};
use std::collections::BTreeMap;

/// Parses a module and verifies it.
///
/// # Errors
/// [`IrError::Parse`] with line and column, or what the verifier says.
pub fn parse(text: &str) -> Result<Module> {
    let mut l = Lexer::new(text)?;
    if !l.eat_word("module")? {
        return Err(l.error("expected `module`"));
    }
    let mut m = Module::new(l.name()?);
    if l.eat_word("mesh")? {
        l.expect('[')?;
        let mut mesh = Mesh::default();
        while !l.eat(']')? {
            let name = l.word()?.to_string();
            l.expect('=')?;
            mesh.axes.push(MeshAxis { name, size: l.number::<usize>()?.clamp(1, 1 << 20) });
            l.eat(',')?;
        }
        let ranks = mesh.axes.iter().try_fold(1usize, |n, a| n.checked_mul(a.size));
        if ranks.is_none_or(|n| n > 1 << 20) {
            return Err(l.error("the mesh has more than 2^20 ranks"));
        }
        m.mesh = mesh;
    }
    loop {
        if l.eat_word("graph")? {
            graph(&mut l, &mut m)?;
        } else if l.eat_word("entry")? {
            entry(&mut l, &mut m)?;
        } else if *l.peek() == Token::End {
            break;
        } else {
            return Err(l.error("expected `graph` or `entry`"));
        }
    }
    crate::verify::verify(&m)?;
    Ok(m)
}

fn ty(l: &mut Lexer) -> Result<TensorType> {
    let here = l.place();
    let dtype = DType::from_name(l.word()?).ok_or_else(|| l.error_at(here, "expected an element type"))?;
    l.expect('[')?;
    let mut shape = Shape::new();
    while !l.eat(']')? {
        shape.push(l.number()?);
        l.eat(',')?;
    }
    let t = TensorType { dtype, shape };
    t.checked_bytes().ok_or_else(|| l.error("a tensor of this type does not fit in memory"))?;
    Ok(t)
}

fn value(l: &mut Lexer, values: &[ValueId]) -> Result<ValueId> {
    match l.next()? {
        Token::Value(n) => {
            values.get(n as usize).copied().ok_or_else(|| l.error(format!("%{n} is not defined before")))
        }
        _ => Err(l.error("expected a value")),
    }
}

fn graph(l: &mut Lexer, m: &mut Module) -> Result<()> {
    let name = l.name()?;
    if m.graph_by_name(&name).is_some() {
        return Err(l.error(format!("there are two graphs @{name}")));
    }
    let mut g = Graph::new(name);
    let mut values = Vec::new();
    l.expect('(')?;
    while !l.eat(')')? {
        match l.next()? {
            Token::Value(n) if n as usize == values.len() => {}
            _ => return Err(l.error(format!("expected %{} before", values.len()))),
        }
        l.expect(':')?;
        values.push(g.add_param(ty(l)?));
        l.eat(',')?;
    }
    l.expect('{')?;
    while !l.eat_word("return")? {
        op(l, m, &mut g, &mut values)?;
    }
    let mut results = Vec::new();
    while matches!(l.peek(), Token::Value(_)) {
        results.push(value(l, &values)?);
        l.eat(',')?;
    }
    l.expect('}')?;
    g.set_results(results);
    m.add_graph(g);
    Ok(())
}

fn op(l: &mut Lexer, m: &mut Module, g: &mut Graph, values: &mut Vec<ValueId>) -> Result<()> {
    let mut count = 0;
    while let Token::Value(n) = *l.peek() {
        if n as usize != values.len() + count {
            return Err(l.error(format!("expected %{}", values.len() + count)));
        }
        l.next()?;
        count += 1;
        l.eat(',')?;
    }
    if count > 0 {
        l.expect('=')?;
    }
    let here = l.place();
    let name = l.word()?;
    let mut operands = Vec::new();
    while matches!(l.peek(), Token::Value(_)) {
        operands.push(value(l, values)?);
        l.eat(',')?;
    }
    let mut attrs = BTreeMap::new();
    if l.eat('{')? {
        while !l.eat('}')? {
            let key = l.word()?.to_string();
            l.expect('=')?;
            let v = attr(l, m)?;
            attrs.insert(key, v);
            l.eat(',')?;
        }
    }
    l.expect(':')?;
    let mut types = Vec::new();
    for _ in 0..count {
        types.push(ty(l)?);
        l.eat(',')?;
    }
    let loc = if l.eat_word("loc")? { location(l, m)? } else { LocId::UNKNOWN };
    let parsed =
        Op::from_attrs(AttrReader::new(name, attrs), m).map_err(|e| l.error_at(here, e.to_string()))?;
    let definition = match &parsed {
        Op::Fused(fused) => Some((fused.kind.clone(), fused.definition)),
        _ => None,
    };
    let results = g.add(m, parsed, &operands, loc).map_err(|e| l.error_at(here, e.to_string()))?;
    let inferred: Vec<&TensorType> = results.iter().map(|&r| g.ty(r)).collect();
    if !types.iter().eq(inferred.iter().copied()) {
        let e = IrError::ty(name, format!("is written as {types:?} but gives {inferred:?}"));
        return Err(l.error_at(here, e.to_string()));
    }
    if let Some((kind, id)) = definition {
        m.note_definition(kind, id);
    }
    values.extend(results);
    Ok(())
}

fn location(l: &mut Lexer, m: &mut Module) -> Result<LocId> {
    l.expect('(')?;
    let file = l.text()?;
    l.expect(':')?;
    let line = l.number()?;
    l.expect(':')?;
    let column = l.number()?;
    l.expect(',')?;
    let name = l.text()?;
    l.expect(')')?;
    Ok(m.locations.intern(Loc { file: file.into(), line, column, name: name.into() }))
}

fn attr(l: &mut Lexer, m: &mut Module) -> Result<AttrValue> {
    if l.eat('[')? {
        let (mut v, mut graphs) = (Vec::new(), Vec::new());
        while matches!(l.peek(), Token::At(_)) {
            graphs.push(l.name()?.into_owned());
            l.eat(',')?;
        }
        if !graphs.is_empty() {
            l.expect(']')?;
            return Ok(AttrValue::Graphs(graphs));
        }
        while !l.eat(']')? {
            v.push(l.number()?);
            l.eat(',')?;
        }
        return Ok(AttrValue::Ints(v));
    }
    match l.next()? {
        Token::At(n) => Ok(AttrValue::Graph(n.into_owned())),
        Token::Text(t) => Ok(AttrValue::Text(t)),
        Token::Word("true") => Ok(AttrValue::Bool(true)),
        Token::Word("false") => Ok(AttrValue::Bool(false)),
        Token::Word("splat") => constant(l, m, true),
        Token::Word("dense") => constant(l, m, false),
        Token::Word(w) => {
            if let Ok(i) = w.parse::<i64>() {
                return Ok(AttrValue::Int(i));
            }
            match w.parse::<f64>() {
                Ok(x) if !w.starts_with(|c: char| c.is_ascii_alphabetic()) || matches!(w, "inf" | "NaN") => {
                    Ok(AttrValue::Float(x.to_bits()))
                }
                _ => Ok(AttrValue::Word(w.to_string())),
            }
        }
        _ => Err(l.error("expected an attribute value")),
    }
}

fn constant(l: &mut Lexer, m: &mut Module, splat: bool) -> Result<AttrValue> {
    let t = ty(l)?;
    let w = l.word()?;
    let bytes = match w.strip_prefix("0x") {
        Some(hex) => unhex(hex).ok_or_else(|| l.error("malformed hexadecimal bytes"))?,
        None => {
            let x: f64 = w.parse().map_err(|_| l.error(format!("`{w}` is not a number")))?;
            Storage::from_f64s(t.dtype, &[x]).bytes().to_vec()
        }
    };
    let want = if splat { t.dtype.size_bytes() } else { t.bytes() };
    if bytes.len() != want {
        return Err(l.error(format!("a constant of type {t} takes {want} bytes here, not {}", bytes.len())));
    }
    let id = if splat && t.elements() > 0 {
        m.constants.intern_splat_bytes(t, &bytes)
    } else {
        m.constants.intern_bytes(t.clone(), if t.elements() == 0 { &[] } else { &bytes })
    };
    Ok(AttrValue::Const(id.0))
}

fn unhex(s: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = s.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits?;
    (digits.len() % 2 == 0).then(|| digits.chunks_exact(2).map(|p| p[0] << 4 | p[1]).collect())
}

fn entry(l: &mut Lexer, m: &mut Module) -> Result<()> {
    let name = l.text()?;
    let g = l.name()?;
    let graph = m.graph_by_name(&g).ok_or_else(|| l.error(format!("there is no graph @{g}")))?;
    let mut e = Entry { name, graph, params: Vec::new(), results: Vec::new() };
    l.expect('{')?;
    loop {
        if l.eat_word("param")? {
            let name = l.text()?;
            let alias = if l.eat_word("alias")? { Some(l.number()?) } else { None };
            let stack = stack(l)?;
            e.params.push(ParamInfo { name, alias, sharding: sharding(l)?, stack });
        } else if l.eat_word("result")? {
            let name = l.text()?;
            let stack = stack(l)?;
            e.results.push(ResultInfo { name, sharding: sharding(l)?, stack });
        } else {
            l.expect('}')?;
            break;
        }
    }
    m.entries.push(e);
    Ok(())
}

fn stack(l: &mut Lexer) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    if l.eat_word("stack")? {
        l.expect('[')?;
        while !l.eat(']')? {
            members.push(Member { name: l.text()?, number: l.number()? });
            l.eat(',')?;
        }
    }
    Ok(members)
}

fn sharding(l: &mut Lexer) -> Result<Sharding> {
    let mut s = Sharding::default();
    if l.eat_word("sharding")? {
        l.expect('[')?;
        while !l.eat(']')? {
            l.expect('[')?;
            let mut axes = Vec::new();
            while !l.eat(']')? {
                axes.push(AxisId(l.number()?));
                l.eat(',')?;
            }
            s.dims.push(axes);
            let parts = if l.eat_word("parts")? { l.number()? } else { 1 };
            if parts != 1 {
                s.parts.resize(s.dims.len(), 1);
                s.parts[s.dims.len() - 1] = parts;
            }
            let size = if l.eat_word("size")? { l.number()? } else { 0 };
            if size != 0 {
                s.sizes.resize(s.dims.len(), 0);
                s.sizes[s.dims.len() - 1] = size;
            }
            l.eat(',')?;
        }
    }
    Ok(s)
}
