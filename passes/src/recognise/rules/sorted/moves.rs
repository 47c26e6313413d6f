//! What moves rows by the order of sorted choices.

use super::index::{Sorted, Vector};
use crate::recognise::probe::found::{
    Bound, Found, Operand, Output, Solved, add_fused, operand, operands, results, solve,
};
use crate::recognise::probe::one_hot::behind_layout;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use msc_ir::factor::solve::{AtomId, AtomList};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::select::Select;
use msc_ir::{DType, LocId, Module, Monoid, Op, TensorType, ValueId};
use std::collections::BTreeSet;

/// Layouts in which a value is used; exporters have up to four.
const MAX_VIEWS: usize = 16;

/// Where rows go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Tokens to the places of their choices.
    Permute,
    /// Rows of the order to their tokens, summed.
    Sum,
    /// One row of each choice to its place.
    ToOrder,
    /// Rows of the order to their choices.
    FromOrder,
}

struct Move {
    way: Way,
    from: Index,
    to: Index,
}

/// `x[N,D]` of which a value repeats each row `k` times in a row.
fn repeated(p: &Program<'_>, i: Index, chosen: usize) -> Option<Index> {
    let Some(Op::Reshape(_)) = p.op(i) else { return None };
    let wide = p.values[i].operands[0];
    let Some(Op::Broadcast(b)) = p.op(wide) else { return None };
    let x = p.values[wide].operands[0];
    let fits =
        b.dims.as_slice() == [0, 2] && p.values[wide].ty.rank() == 3 && p.values[wide].ty.shape[1] == chosen;
    (fits && p.values[x].ty.rank() == 2).then_some(x)
}

/// What becomes of a value behind a guard of its indices that always holds.
fn guarded(p: &Program<'_>, s: &Sorted, i: Index) -> Index {
    let guard = p.values[i].users.iter().copied().find(|&u| {
        let holds = |c: Index| s.always.contains(&c) || s.always.contains(&behind_layout(p, c));
        matches!(p.op(u), Some(Op::Select(Select::Select)))
            && p.values[u].operands.get(1) == Some(&i)
            && holds(p.values[u].operands[0])
    });
    guard.unwrap_or(i)
}

/// Rows `[R,D]` that are moved by a vector of indices.
fn moved(p: &Program<'_>, s: &Sorted, i: Index) -> Option<Move> {
    let v = &p.values[i];
    let of = |i: Index| p.values[i].ty.shape.first().copied();
    if v.ty.rank() != 2 || !v.ty.dtype.is_float() {
        return None;
    }
    match p.op(i)? {
        Op::Gather(g) => {
            let &[from, at] = v.operands.as_slice() else { return None };
            let whole = p.values[from].ty.rank() == 2
                && g.slice_sizes.as_slice() == [1, p.values[from].ty.shape[1]]
                && g.offset_dims.as_slice() == [1]
                && g.collapsed_slice_dims.as_slice() == [0]
                && g.start_index_map.as_slice() == [0]
                && g.index_vector_dim == 1;
            let vector = s.vectors.get(&at).filter(|_| whole)?;
            let to = guarded(p, s, i);
            match vector {
                Vector::Token if of(from)? == s.tokens() => Some(Move { way: Way::Permute, from, to }),
                Vector::Order if of(from)? == s.all => Some(match repeated(p, from, s.chosen) {
                    Some(from) => Move { way: Way::Permute, from, to },
                    None => Move { way: Way::ToOrder, from, to },
                }),
                Vector::Place if of(from)? == s.all => Some(Move { way: Way::FromOrder, from, to }),
                _ => None,
            }
        }
        Op::Scatter(x) => {
            let &[base, at, from] = v.operands.as_slice() else { return None };
            let whole = x.combine == Some(Monoid::Sum)
                && p.splat(base) == Some(0.0)
                && x.update_window_dims.as_slice() == [1]
                && x.inserted_window_dims.as_slice() == [0]
                && x.scatter_dims_to_operand_dims.as_slice() == [0]
                && x.index_vector_dim == 1
                && p.values[from].ty.rank() == 2
                && p.values[from].ty.shape[1] == v.ty.shape[1];
            match s.vectors.get(&at).filter(|_| whole)? {
                Vector::Token if of(i)? == s.tokens() => Some(Move { way: Way::Sum, from, to: i }),
                Vector::Order if of(i)? == s.all => Some(Move { way: Way::FromOrder, from, to: i }),
                Vector::Place if of(i)? == s.all => Some(Move { way: Way::ToOrder, from, to: i }),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A value that is an operand as it is.
fn plain(name: &'static str, value: Index) -> Operand {
    Operand { name, value, ops: Vec::new(), cut: (value, Vec::new()) }
}

/// What a value is in another layout, or as another float type.
fn base(p: &Program<'_>, mut i: Index) -> Index {
    let is_float = |i: Index| p.values[i].ty.dtype.is_float();
    loop {
        i = behind_layout(p, i);
        match (p.op(i), p.values[i].operands.first()) {
            (Some(Op::Convert(Convert::Value(_))), Some(&from)) if is_float(i) && is_float(from) => i = from,
            _ => return i,
        }
    }
}

/// The operands of a product, behind layout.
fn factors(p: &Program<'_>, i: Index) -> Option<[Index; 2]> {
    let product = match p.op(i)? {
        Op::DotGeneral(_) => true,
        Op::Binary(b) => b.kind == BinaryKind::Multiply,
        _ => false,
    };
    let &[a, b] = p.values[i].operands.as_slice() else { return None };
    product.then(|| [behind_layout(p, a), behind_layout(p, b)])
}

/// A product of `n` elements, or the sum of it that has as many.
fn summed(p: &Program<'_>, product: Index, n: usize) -> Option<Index> {
    let elements = |i: Index| p.values[i].ty.elements();
    let sum = |i: Index| matches!(p.op(i), Some(Op::Reduce(Reduce { monoid: Monoid::Sum, .. })));
    match p.op(product)? {
        Op::DotGeneral(_) => (elements(product) == n).then_some(product),
        _ => p.values[product].users.iter().copied().find(|&u| sum(u) && elements(u) == n),
    }
}

/// Everything that is moved by an order, as named operations.
pub(super) fn found(
    p: &Program<'_>,
    module: &Module,
    s: &Sorted,
    refused: &mut Vec<(&'static str, Index, String)>,
) -> Vec<Found> {
    let moves: Vec<Move> = (0..p.values.len()).filter_map(|i| moved(p, s, i)).collect();
    let mut out = Vec::new();
    let mut keep = |rule, at, made: Result<Found, String>| match made {
        Ok(f) => out.push(f),
        Err(why) => refused.push((rule, at, why)),
    };
    for m in &moves {
        match m.way {
            Way::Permute => keep("moe-permute", m.to, Ok(permute(m))),
            Way::Sum => keep("moe-permute-grad", m.to, Ok(sum(m.from, s, vec![plain_output("dx", 0, m.to)]))),
            // Looked for from where the rows come back.
            Way::ToOrder => {}
            Way::FromOrder => {
                let width = p.values[m.to].ty.shape[1];
                for u in uses(p, m.to) {
                    let is_sum = matches!(p.op(u), Some(Op::Reduce(Reduce { monoid: Monoid::Sum, .. })));
                    if is_sum && p.values[u].ty.elements() == s.tokens() * width {
                        keep("moe-permute-grad", u, summed_rows(p, module, s, m, u));
                    }
                    let Some(both) = factors(p, u) else { continue };
                    let Some(&other) = both.iter().find(|&&f| base(p, f) != base(p, m.to)) else { continue };
                    let n = p.values[other].ty.elements();
                    if n == s.all
                        && let Some(y) = summed(p, u, s.tokens() * width)
                    {
                        keep("moe-unpermute", y, unpermute(p, module, m, (other, y)));
                    }
                    if n == s.tokens() * width
                        && let Some(dw) = summed(p, u, s.all)
                    {
                        keep("moe-unpermute-grad", dw, unpermute_grad(p, module, (&moves, m), (other, dw)));
                    }
                }
            }
        }
    }
    out
}

fn plain_output(name: &'static str, result: u32, value: Index) -> Output {
    Output { name, result, value, ops: Vec::new() }
}

fn permute(m: &Move) -> Found {
    Found {
        rule: "moe-permute",
        kind: FusedKind::MoePermute,
        operands: vec![plain("x", m.from)],
        given: vec![("order", 0)],
        outputs: vec![plain_output("rows", 0, m.to)],
    }
}

fn sum(from: Index, s: &Sorted, outputs: Vec<Output>) -> Found {
    Found {
        rule: "moe-permute-grad",
        kind: FusedKind::MoePermuteGrad { chosen: s.chosen },
        operands: vec![plain("d_rows", from)],
        given: vec![("place", 1)],
        outputs,
    }
}

/// What uses a value, in whatever layout, or as another float type.
fn uses(p: &Program<'_>, i: Index) -> Vec<Index> {
    let mut views = vec![i];
    let mut out = BTreeSet::new();
    let mut at = 0;
    while let Some(&v) = views.get(at) {
        at += 1;
        for &u in &p.values[v].users {
            let same = p.values[u].ty.elements() == p.values[i].ty.elements();
            let converted = matches!(p.op(u), Some(Op::Convert(Convert::Value(d))) if d.is_float());
            if (p.values[u].is_layout() || converted) && same && views.len() < MAX_VIEWS {
                views.push(u);
            } else {
                out.insert(u);
            }
        }
    }
    out.into_iter().collect()
}

/// The dimensions of rows back at their tokens: tokens, choices of one, width.
struct Dims {
    tokens: AtomList,
    chosen: AtomList,
    width: AtomList,
}

impl Dims {
    /// Of rows `back`, of which `token` has a row for each token.
    fn of(solved: &Solved, back: Index, token: Index) -> Result<Dims, String> {
        let lacks = || "a value without dimensions".to_string();
        let [rows, width] = <[AtomList; 2]>::try_from(solved.dims(back).ok_or_else(lacks)?)
            .map_err(|_| "rows are no matrix".to_string())?;
        let mine = solved.all(token).ok_or_else(lacks)?;
        let n = rows.iter().take_while(|a| mine.contains(a)).count();
        let (tokens, chosen): (AtomList, AtomList) =
            (rows[..n].iter().copied().collect(), rows[n..].iter().copied().collect());
        if chosen.iter().any(|a| mine.contains(a)) {
            return Err("the choices of a token do not follow each other".into());
        }
        Ok(Dims { tokens, chosen, width })
    }

    fn rows(&self) -> Vec<AtomList> {
        vec![self.tokens.iter().chain(&self.chosen).copied().collect(), self.width.clone()]
    }

    fn token(&self) -> Vec<AtomList> {
        vec![self.tokens.clone(), self.width.clone()]
    }

    fn weights(&self) -> Vec<AtomList> {
        vec![self.tokens.clone(), self.chosen.clone()]
    }
}

fn bound(name: &'static str, param: Index, dims: Vec<AtomList>) -> Bound {
    Bound { name, param, aliases: vec![param], dims }
}

/// Whether an op with orders of nothing moved as its last operands computes what the program does.
fn holds(
    scratch: &mut Module,
    solved: &Solved,
    (kind, orders): (&FusedKind, usize),
    bounds: &[Bound],
    outputs: &[(Index, Vec<AtomList>)],
) -> Result<(), String> {
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x736f_7274 };
    let values: Vec<Index> = outputs.iter().map(|o| o.0).collect();
    let held = trial.run(scratch, &mut |scratch, size, types| {
        let mut g = msc_ir::Graph::new("named");
        let mut args: Vec<ValueId> = operands(&mut g, scratch, solved, bounds, size, types)?;
        let choices = outputs_of(bounds, size);
        for _ in 0..orders {
            let straight = Iota { ty: TensorType::new(DType::I32, [choices]), dim: 0 };
            args.push(g.add1(scratch, straight, &[], LocId::UNKNOWN).map_err(|e| e.to_string())?);
        }
        let made = add_fused(&mut g, scratch, kind.clone(), &args)?;
        let of = |n: usize| (made[n], &outputs[n].1);
        let all = results(&mut g, scratch, solved, size, &values, of)?;
        g.set_results(all);
        Ok(g)
    })?;
    match held.iter().all(|&h| h) {
        true => Ok(()),
        false => Err("it computes something else than the program".into()),
    }
}

/// How many choices there are at some sizes: as many as the rows that an operand has.
fn outputs_of(bounds: &[Bound], size: &dyn Fn(AtomId) -> usize) -> usize {
    let rows = bounds.iter().find(|b| matches!(b.name, "rows" | "d_rows"));
    rows.map_or(0, |b| b.dims[0].iter().map(|&a| size(a)).product())
}

const LAYOUT: &str = "a result has other dimensions";

fn summed_rows(p: &Program<'_>, module: &Module, s: &Sorted, m: &Move, dx: Index) -> Result<Found, String> {
    let mut scratch = Module::new("trial");
    let mut solved = solve(p, module, &mut scratch, &[m.to], &[dx])?;
    let d = Dims::of(&solved, m.to, dx)?;
    let kind = FusedKind::MoePermuteGrad { chosen: s.chosen };
    // They are an attribute.
    solved.slice.kept.extend(d.chosen.iter().copied());
    holds(&mut scratch, &solved, (&kind, 1), &[bound("d_rows", m.to, d.rows())], &[(dx, d.token())])?;
    Ok(sum(m.from, s, vec![solved.output("dx", 0, dx, &d.token()).ok_or(LAYOUT)?]))
}

fn unpermute(p: &Program<'_>, module: &Module, m: &Move, (w, y): (Index, Index)) -> Result<Found, String> {
    let mut scratch = Module::new("trial");
    let solved = solve(p, module, &mut scratch, &[m.to, w], &[y])?;
    let d = Dims::of(&solved, m.to, y)?;
    let bounds = [bound("rows", m.to, d.rows()), bound("w", w, d.weights())];
    holds(&mut scratch, &solved, (&FusedKind::MoeUnpermute, 1), &bounds, &[(y, d.token())])?;
    Ok(Found {
        rule: "moe-unpermute",
        kind: FusedKind::MoeUnpermute,
        operands: vec![plain("rows", m.from), operand(p, &solved, &bounds[1])?],
        given: vec![("place", 1)],
        outputs: vec![solved.output("y", 0, y, &d.token()).ok_or(LAYOUT)?],
    })
}

fn unpermute_grad(
    p: &Program<'_>,
    module: &Module,
    (moves, back): (&[Move], &Move),
    (dy, dw): (Index, Index),
) -> Result<Found, String> {
    // The same gradient goes to the rows, by their weights.
    let each = moves.iter().filter(|m| m.way == Way::ToOrder).find_map(|m| {
        let [a, b] = factors(p, base(p, m.from))?;
        match (a == dy, b == dy) {
            (true, false) => Some((m, b)),
            (false, true) => Some((m, a)),
            _ => None,
        }
    });
    let (m, w) = each.ok_or("no rows are moved by the order with the gradient of their tokens")?;
    let mut scratch = Module::new("trial");
    let mut solved = solve(p, module, &mut scratch, &[dy, back.to, w], &[m.from, dw])?;
    let d = Dims::of(&solved, back.to, dy)?;
    // Nothing but their number ties the choices that have weights to those that have gradients of them.
    let mine = solved.all(w).ok_or("a value without dimensions")?;
    let chosen: AtomList = mine.into_iter().filter(|a| !d.tokens.contains(a)).collect();
    let of_w = Dims { tokens: d.tokens.clone(), chosen, width: d.width.clone() };
    solved.slice.kept.extend(d.chosen.iter().chain(&of_w.chosen).copied());
    let bounds =
        [bound("dy", dy, d.token()), bound("rows", back.to, d.rows()), bound("w", w, of_w.weights())];
    let outputs = [(m.from, of_w.rows()), (dw, d.weights())];
    holds(&mut scratch, &solved, (&FusedKind::MoeUnpermuteGrad, 2), &bounds, &outputs)?;
    Ok(Found {
        rule: "moe-unpermute-grad",
        kind: FusedKind::MoeUnpermuteGrad,
        operands: vec![
            operand(p, &solved, &bounds[0])?,
            plain("rows", back.from),
            operand(p, &solved, &bounds[2])?,
        ],
        given: vec![("order", 0), ("place", 1)],
        outputs: vec![
            plain_output("d_rows", 0, m.to),
            solved.output("dw", 1, dw, &d.weights()).ok_or(LAYOUT)?,
        ],
    })
}
