//! What a probe found, and the pieces of trials: slices with their atoms, named ops between layouts.

use super::layout::arrange;
use super::program::{Index, Program, Slice};
use super::trial::Sizes;
use crate::recognise::define;
use msc_ir::factor::solve::{AtomId, AtomList, Atoms};
use msc_ir::ops::fused::{Fused, FusedKind};
use msc_ir::ops::slice::Slice as SliceOp;
use msc_ir::{Graph, LocId, Module, Op, TensorType, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// A value of the program as an operand: which, and the layout ops that bring it to the operand's layout.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its name in reasons.
    pub name: &'static str,
    /// The value.
    pub value: Index,
    /// Layout ops, first to last.
    pub ops: Vec<Op>,
    /// The cut: where the value is made, with the ops that bring it from there to the operand's layout.
    pub cut: (Index, Vec<Op>),
}

/// A result of a named op as a value of the program: which, and the layout ops that bring it there.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name in reasons.
    pub name: &'static str,
    /// Which result.
    pub result: u32,
    /// The value.
    pub value: Index,
    /// Layout ops, first to last.
    pub ops: Vec<Op>,
}

/// A named op that agreed with the program.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rule.
    pub rule: &'static str,
    /// What it is.
    pub kind: FusedKind,
    /// Operands that are values of the program.
    pub operands: Vec<Operand>,
    /// Results of the forward op that follow as operands, with their names.
    pub given: Vec<(&'static str, u32)>,
    /// Results that the program has.
    pub outputs: Vec<Output>,
}

/// A parameter of a trial that a named op takes as an operand of these dimensions.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Its name in reasons.
    pub name: &'static str,
    /// The parameter.
    pub param: Index,
    /// Other values that are the same in another layout, from the parameter on.
    pub aliases: Vec<Index>,
    /// The operand's dimensions.
    pub dims: Vec<AtomList>,
}

/// A slice with its solved atoms.
pub struct Solved {
    /// The slice.
    pub slice: Slice,
    /// Its atoms.
    pub atoms: Atoms,
}

impl Solved {
    /// A slice with its atoms. What a column is put beside is the dimension that is left once the column is cut off.
    pub fn new(scratch: &Module, slice: Slice) -> Solved {
        let mut atoms = Atoms::solve(scratch, &slice.graph);
        let mut parts: BTreeMap<(AtomId, usize), BTreeSet<AtomId>> = BTreeMap::new();
        for (whole, part, dim, start) in beside(&slice.graph) {
            let (whole, part) = (atoms.dim(whole, dim), atoms.dim(part, dim));
            if let ([whole], [part]) = (whole.as_slice(), part.as_slice())
                && atoms.is_whole(*whole)
                && atoms.is_whole(*part)
            {
                parts.entry((*whole, start)).or_default().insert(*part);
            }
        }
        for same in parts.into_values().filter(|s| s.len() > 1) {
            atoms.identify(&same.into_iter().collect::<Vec<_>>());
        }
        Solved { slice, atoms }
    }

    /// The atoms of each dimension of a value of the slice.
    pub fn dims(&self, i: Index) -> Option<Vec<AtomList>> {
        let v = *self.slice.made.get(&i)?;
        Some((0..self.slice.graph.ty(v).rank()).map(|d| self.atoms.dim(v, d)).collect())
    }

    /// A value of the slice as a result, of these dimensions, of a named op. `None` if no layout op leads there.
    pub fn output(&self, name: &'static str, result: u32, value: Index, from: &[AtomList]) -> Option<Output> {
        let size = |a: AtomId| self.atoms.size(a);
        let shape: Vec<usize> = from.iter().map(|l| l.iter().map(|&a| size(a)).product()).collect();
        let ops = arrange(&shape, from, &self.dims(value)?, size)?;
        Some(Output { name, result, value, ops })
    }

    /// The atoms of a value, in order.
    pub fn all(&self, i: Index) -> Option<AtomList> {
        Some(self.dims(i)?.into_iter().flatten().collect())
    }
}

/// Applies layout ops in a graph.
///
/// # Errors
/// If they do not fit.
pub fn lay_out(g: &mut Graph, module: &Module, v: ValueId, ops: Vec<Op>) -> Result<ValueId, String> {
    ops.into_iter().try_fold(v, |v, op| g.add1(module, op, &[v], LocId::UNKNOWN)).map_err(|e| e.to_string())
}

/// Brings the parameters of a trial to the layout of operands.
///
/// # Errors
/// If they have no such layout.
pub fn operands(
    g: &mut Graph,
    module: &Module,
    solved: &Solved,
    bounds: &[Bound],
    size: Sizes<'_>,
    types: &[TensorType],
) -> Result<Vec<ValueId>, String> {
    let params: Vec<ValueId> = types.iter().map(|t| g.add_param(t.clone())).collect();
    bounds
        .iter()
        .zip(params)
        .zip(types)
        .map(|((b, v), ty)| {
            let dims = solved.dims(b.param).ok_or("a parameter without dimensions")?;
            let ops = arrange(&ty.shape, &dims, &b.dims, size).ok_or("an operand has other dimensions")?;
            lay_out(g, module, v, ops)
        })
        .collect()
}

/// Adds a named op to a graph.
///
/// # Errors
/// If the operands do not fit it.
pub fn add_fused(
    g: &mut Graph,
    scratch: &mut Module,
    kind: FusedKind,
    args: &[ValueId],
) -> Result<Vec<ValueId>, String> {
    let types: Vec<TensorType> = args.iter().map(|&v| g.ty(v).clone()).collect();
    let definition = match scratch.definition(&kind, &types) {
        Some(d) => d,
        None => {
            let graph = define::build(scratch, &kind, &types);
            scratch.define(kind.clone(), graph.map_err(|e| e.to_string())?)
        }
    };
    let made = g.add(scratch, Fused { kind, definition }, args, LocId::UNKNOWN).map_err(|e| e.to_string())?;
    Ok(made.to_vec())
}

/// Of the values that are the same as a parameter, the one that needs the fewest ops to become the operand.
///
/// # Errors
/// If none has such a layout.
pub fn operand(p: &Program<'_>, solved: &Solved, bound: &Bound) -> Result<Operand, String> {
    let size = |a: AtomId| solved.atoms.size(a);
    let way = |i: Index| arrange(&p.values[i].ty.shape, &solved.dims(i)?, &bound.dims, size);
    let lacks = || format!("{} has no layout of an operand", bound.name);
    let cut = (bound.param, way(bound.param).ok_or_else(lacks)?);
    let ways = bound.aliases.iter().filter_map(|&i| Some((i, way(i)?)));
    let (value, ops) = ways.min_by_key(|w| w.1.len()).ok_or_else(lacks)?;
    Ok(Operand { name: bound.name, value, ops, cut })
}

/// Results of a named op in the layout of the slice's results.
///
/// # Errors
/// If they have no such layout.
pub fn results<'d>(
    g: &mut Graph,
    scratch: &Module,
    solved: &Solved,
    size: Sizes<'_>,
    candidates: &[Index],
    of: impl Fn(usize) -> (ValueId, &'d Vec<AtomList>),
) -> Result<Vec<ValueId>, String> {
    candidates
        .iter()
        .enumerate()
        .map(|(n, &i)| {
            let (v, from) = of(n);
            let to = solved.dims(i).ok_or("a result without dimensions")?;
            let ops =
                arrange(&g.ty(v).shape.clone(), from, &to, size).ok_or("a result has other dimensions")?;
            lay_out(g, scratch, v, ops)
        })
        .collect()
}

/// The slice from `params` to `outputs`, with its atoms.
///
/// # Errors
/// If it needs more than `params`, in words.
pub fn solve(
    p: &Program<'_>,
    module: &Module,
    scratch: &mut Module,
    params: &[Index],
    outputs: &[Index],
) -> Result<Solved, String> {
    let slice = p.slice(module, scratch, params, outputs).map_err(|i| {
        let v = &p.values[i];
        format!("{} is computed from more than the operands", v.ty)
    })?;
    Ok(Solved::new(scratch, slice))
}

/// Values with all but one column of others: those, these, the dimension along which and the place where they start.
fn beside(graph: &Graph) -> Vec<(ValueId, ValueId, usize, usize)> {
    let mut out = Vec::new();
    let mut add = |whole: ValueId, part: ValueId, dim: usize, start: usize| {
        if graph.ty(part).shape[dim] > 1 && graph.ty(part).shape[dim] + 1 == graph.ty(whole).shape[dim] {
            out.push((whole, part, dim, start));
        }
    };
    for (_, d) in graph.ops() {
        let (result, rank) = (d.results[0], graph.ty(d.results[0]).rank());
        match &d.op {
            Op::Concatenate(c) => {
                let mut start = 0;
                for &o in &d.operands {
                    add(result, o, c.dim, start);
                    start += graph.ty(o).shape[c.dim];
                }
            }
            Op::Slice(SliceOp::Static { start, stride, .. }) if stride.iter().all(|&s| s == 1) => {
                (0..rank).for_each(|dim| add(d.operands[0], result, dim, start[dim]));
            }
            Op::Pad(p) if p.interior.iter().all(|&n| n == 0) => {
                let low = |dim: usize| usize::try_from(p.low[dim]).ok();
                (0..rank).filter_map(|dim| Some((dim, low(dim)?))).for_each(|(dim, low)| {
                    add(result, d.operands[0], dim, low);
                });
            }
            _ => {}
        }
    }
    out
}

/// Whether a value is computed from `params` and constants alone.
pub fn closed(p: &Program<'_>, params: &[Index], value: Index) -> bool {
    let mut seen = BTreeSet::from([value]);
    let mut todo = vec![value];
    while let Some(i) = todo.pop() {
        if params.contains(&i) {
            continue;
        }
        let v = &p.values[i];
        if v.op.is_none() && v.known.is_none() {
            return false;
        }
        todo.extend(v.operands.iter().copied().filter(|&o| seen.insert(o)));
    }
    true
}
