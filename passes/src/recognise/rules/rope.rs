//! Rotary position embedding, forward and gradient, as a probe: a sum of a value times one table and of its turned
//! pairs times another, however pairs are cut out and put together.

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{Bound, Found, Solved, add_fused, operand, operands, results, solve};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use crate::recognise::probe::unite::unite;
use msc_ir::factor::solve::AtomList;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Module, Op, Shape};
use std::collections::BTreeSet;

/// Ops of one rotation; exporters have up to twenty.
const MAX_OPS: usize = 40;

/// Layout ops between a table and where it is used.
const MAX_CHAIN: usize = 8;

/// Looks for rotations in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let mut all = Vec::new();
    let mut refused = Vec::new();
    let program = Program::new(graph, region);
    for y in 0..program.values.len() {
        let mut last = None;
        for place in [false, true].into_iter().flat_map(|cut| places(&program, y, cut)) {
            match attempt(&program, &graph.analysis.module, &place) {
                Ok(found) => {
                    all.push((y, found));
                    last = None;
                    break;
                }
                Err(why) => last = Some(why),
            }
        }
        refused.extend(last.map(|why| (y, why)));
    }
    for (y, found) in all {
        if let Err(why) = unite(graph, region, &program, &found, None, run) {
            refused.push((y, why.to_string()));
        }
    }
    for (y, why) in refused {
        run.refuse("rope", why, Some(program.values[y].at));
    }
}

/// A value with what it is computed from.
struct Place {
    y: Index,
    x: Index,
    tables: [Index; 2],
    /// The shape of what is rotated; the last dimension of `x` and `y` may be cut in pairs.
    shape: Shape,
}

/// A shape with the pairs of its last dimension joined with the dimension that counts them.
fn joined(shape: &[usize]) -> Option<Shape> {
    match shape {
        [outer @ .., n, 2] if !outer.is_empty() => Some(outer.iter().copied().chain([2 * n]).collect()),
        _ => None,
    }
}

/// The dimensions of a value of shape `shape` as those of a value of shape `of`, whose last dimension is not cut.
fn whole(mut dims: Vec<AtomList>, shape: &[usize], of: &[usize]) -> Vec<AtomList> {
    if shape.len() == of.len() + 1
        && let Some(pairs) = dims.pop()
        && let Some(last) = dims.last_mut()
    {
        last.extend(pairs);
    }
    dims
}

/// What a value may be a rotation of: it is linear in a value of its own type and in two tables, which are spread
/// unless there is one row for all of them. With `cut` it may be what is cut in two, whatever it is made of.
fn places(p: &Program<'_>, y: Index, cut: bool) -> Vec<Place> {
    let Some(leaves) = leaves(p, y, cut) else { return Vec::new() };
    let ty = p.values[y].ty;
    let grows = |i: Index| p.values[source(p, i)].ty.elements() < p.values[i].ty.elements();
    let mut all: Vec<(Index, bool)> = leaves.into_iter().map(|i| (i, grows(i))).collect();
    // A table that is spread twice is one table.
    all.sort_by_key(|&(i, _)| source(p, i));
    all.dedup_by_key(|&mut (i, _)| source(p, i));
    if all.len() != 3 {
        return Vec::new();
    }
    let shapes = [Some(ty.shape.clone()), joined(&ty.shape)];
    let values = all.iter().filter(|(i, grows)| !grows && p.values[*i].ty.dtype == ty.dtype);
    values
        .flat_map(|&(x, _)| {
            let mine = &p.values[x].ty.shape;
            let fits = |s: &&Shape| *s == mine || joined(mine).as_ref() == Some(*s);
            let tables: Vec<Index> = all.iter().filter(|t| t.0 != x).map(|t| source(p, t.0)).collect();
            let place = move |s: &Shape| Place { y, x, tables: [tables[0], tables[1]], shape: s.clone() };
            shapes.iter().flatten().filter(fits).map(place).collect::<Vec<_>>()
        })
        .collect()
}

/// What a sum of products is made of, up to cutting and joining; roundings to its own type included.
fn leaves(p: &Program<'_>, y: Index, cut: bool) -> Option<BTreeSet<Index>> {
    let top = &p.values[y];
    let kind = match p.op(y)? {
        Op::Binary(b) => matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract),
        Op::Concatenate(_) | Op::Reshape(_) => true,
        Op::Convert(c) => matches!(c, Convert::Value(_)),
        _ => false,
    };
    if !kind || !top.ty.dtype.is_float() || top.ty.rank() < 2 {
        return None;
    }
    let mut leaves = BTreeSet::new();
    let mut seen = BTreeSet::from([y]);
    let mut todo = vec![y];
    let mut cuts = false;
    let mut multiplies = 0;
    while let Some(i) = todo.pop() {
        if seen.len() > MAX_OPS {
            return None;
        }
        let v = &p.values[i];
        let inner = match p.op(i) {
            _ if p.splat(i).is_some() => continue,
            Some(Op::Binary(b)) => {
                multiplies += usize::from(
                    b.kind == BinaryKind::Multiply && v.operands.iter().all(|&o| p.splat(o).is_none()),
                );
                matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract | BinaryKind::Multiply)
            }
            Some(Op::Unary(u)) => u.kind == UnaryKind::Negate,
            Some(Op::Slice(_)) => {
                cuts = true;
                v.operands.len() == 1
            }
            Some(Op::Concatenate(_) | Op::Pad(_)) => true,
            // Computed in a wider type than what is rotated, and rounded.
            Some(Op::Convert(Convert::Value(_))) => {
                let o = v.operands[0];
                let (from, to) = (p.values[o].ty.dtype, v.ty.dtype);
                let wider = if to == top.ty.dtype { from } else { to };
                let fits = (from == top.ty.dtype || to == top.ty.dtype)
                    && top.ty.dtype.is_float()
                    && wider.is_float()
                    && wider.size_bytes() > top.ty.dtype.size_bytes();
                // What is widened is what is rotated, unless it is put together of parts.
                let parts = matches!(
                    p.op(o),
                    Some(Op::Slice(_) | Op::Concatenate(_) | Op::Pad(_) | Op::Unary(_) | Op::Reshape(_))
                );
                if fits && i != y && from == top.ty.dtype && !parts {
                    leaves.insert(o);
                    continue;
                }
                fits
            }
            // Pairs of neighbours are a dimension of their own for a while.
            Some(Op::Reshape(_) | Op::Broadcast(_)) => splits_last(p, i),
            _ => false,
        };
        // The value itself is cut up and used whole.
        if inner && i != y && is_source(p, i, top.ty.elements(), cut) {
            leaves.insert(i);
        } else if inner {
            todo.extend(v.operands.iter().copied().filter(|&o| seen.insert(o)));
        } else if i == y {
            return None;
        } else {
            leaves.insert(i);
        }
    }
    (cuts && multiplies >= 2).then_some(leaves)
}

/// Whether layout splits the last dimension in pairs, or joins them.
fn splits_last(p: &Program<'_>, i: Index) -> bool {
    if !p.values[i].is_layout() {
        return false;
    }
    let (a, b) = (p.values[p.values[i].operands[0]].ty, p.values[i].ty);
    if a.elements() != b.elements() {
        return false;
    }
    let (short, long) = if a.rank() < b.rank() { (a, b) } else { (b, a) };
    let n = short.rank();
    n > 0 && long.rank() == n + 1 && short.shape[..n - 1] == long.shape[..n - 1]
}

/// Whether a value inside a sum is where the rotation starts: it is used whole, twice or also in parts, or with `cut` in
/// two parts.
fn is_source(p: &Program<'_>, i: Index, elements: usize, cut: bool) -> bool {
    let v = &p.values[i];
    let count = |f: &dyn Fn(&Op) -> bool| v.users.iter().filter(|&&u| p.op(u).is_some_and(f)).count();
    let parts = count(&|op| matches!(op, Op::Slice(_)));
    let whole = count(&|op| matches!(op, Op::Binary(b) if b.kind == BinaryKind::Multiply));
    v.ty.elements() == elements && (whole > 0 && parts + whole > 1 || cut && parts > 1)
}

/// Where a spread table is made.
fn source(p: &Program<'_>, from: Index) -> Index {
    let mut at = from;
    for _ in 0..MAX_CHAIN {
        let v = &p.values[at];
        let whole = matches!(p.op(at), Some(Op::Broadcast(_))) || at != from && v.is_layout();
        if !whole || p.splat(v.operands[0]).is_some() {
            break;
        }
        at = v.operands[0];
    }
    at
}

fn attempt(p: &Program<'_>, module: &Module, place: &Place) -> Result<Found, String> {
    let mut scratch = Module::new("trial");
    let params = [place.x, place.tables[0], place.tables[1]];
    let solved = solve(p, module, &mut scratch, &params, &[place.y])?;
    let last = place.shape.len() - 1;
    let dims = solved.dims(place.x).ok_or("the rotated value is not part of the computation")?;
    let dims = whole(dims, &p.values[place.x].ty.shape, &place.shape);
    let table = |i: Index| -> Result<(Vec<AtomList>, Bound, usize), String> {
        let atoms = solved.all(i).ok_or("a table is not part of the computation")?;
        let t = p.values[i].ty;
        let width = *t.shape.last().ok_or("a table is one number")?;
        let own = solved.dims(i).and_then(|mut d| d.pop()).ok_or("a table is one number")?;
        let mut want = Vec::new();
        for d in &dims[..last] {
            want.push(match d.iter().filter(|a| atoms.contains(a)).count() {
                0 => AtomList::new(),
                n if n == d.len() => d.clone(),
                _ => return Err("a table has part of a dimension".into()),
            });
        }
        want.push(own);
        let bound = Bound { name: "table", param: i, aliases: vec![i], dims: want.clone() };
        Ok((want, bound, width))
    };
    let (first, second) = (table(place.tables[0])?, table(place.tables[1])?);
    if first.2 != second.2 {
        return Err("the tables have different widths".into());
    }
    let x = Bound { name: "x", param: place.x, aliases: vec![place.x], dims: dims.clone() };
    let mut widths = vec![first.2];
    if 2 * first.2 <= place.shape[last] {
        widths.push(2 * first.2);
    }
    let mut last_error = String::from("it computes something else than the program");
    for rotated in widths {
        for interleaved in [false, true] {
            for transposed in [false, true] {
                for (cos, sin) in [(&first, &second), (&second, &first)] {
                    let kind = FusedKind::Rope { interleaved, transposed, rotated };
                    let bounds = [
                        x.clone(),
                        Bound { name: "cos", ..cos.1.clone() },
                        Bound { name: "sin", ..sin.1.clone() },
                    ];
                    match trial(p, &mut scratch, &solved, place, &kind, &bounds) {
                        Ok(Some(found)) => return Ok(found),
                        Ok(None) => {}
                        Err(why) => last_error = why,
                    }
                }
            }
        }
    }
    Err(last_error)
}

fn trial(
    p: &Program<'_>,
    scratch: &mut Module,
    solved: &Solved,
    place: &Place,
    kind: &FusedKind,
    bounds: &[Bound; 3],
) -> Result<Option<Found>, String> {
    // The trial's parameters are in the order of the slice's.
    let order: Vec<usize> = [place.x, place.tables[0], place.tables[1]]
        .iter()
        .filter_map(|i| bounds.iter().position(|b| b.param == *i))
        .collect();
    let sorted: Vec<Bound> = order.iter().map(|&i| bounds[i].clone()).collect();
    // A cut dimension has no atom in common with what is put together again.
    let to = solved.dims(place.y).ok_or("the result is not part of the computation")?;
    let to = whole(to, &p.values[place.y].ty.shape, &place.shape);
    let mut wide = bounds[0].dims.clone();
    if let (Some(mine), Some(last)) = (wide.last_mut(), to.last()) {
        mine.clone_from(last);
    }
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x726f_7065 };
    let holds = trial.run(scratch, &mut |scratch, size, types| {
        let mut g = msc_ir::Graph::new("named");
        let args = operands(&mut g, scratch, solved, &sorted, size, types)?;
        let mut in_order = args.clone();
        for (at, v) in order.iter().zip(args) {
            in_order[*at] = v;
        }
        // All pairs that there are in the trial, where all are rotated.
        let mut kind = kind.clone();
        if let (FusedKind::Rope { rotated, .. }, Some(last)) = (&mut kind, bounds[0].dims.last())
            && place.shape.last() == Some(&*rotated)
        {
            *rotated = last.iter().map(|&a| size(a)).product();
        }
        let made = add_fused(&mut g, scratch, kind, &in_order)?;
        let results = results(&mut g, scratch, solved, size, &[place.y], |_| (made[0], &wide))?;
        g.set_results(results);
        Ok(g)
    })?;
    if holds != [true] {
        return Ok(None);
    }
    let y = solved.output("y", 0, place.y, &wide).ok_or("the result has other dimensions")?;
    let args = bounds.iter().map(|b| operand(p, solved, b)).collect::<Result<_, _>>()?;
    Ok(Some(Found { rule: "rope", kind: kind.clone(), operands: args, given: Vec::new(), outputs: vec![y] }))
}
