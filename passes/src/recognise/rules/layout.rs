//! Spelling of layout: broadcasts, reshapes, transposes and reductions that do nothing or could be one op.

use super::{refuse, root_is, root_is_x};
use crate::recognise::engine::{Applied, Builder, Match, Rule, Tag, WhyNot};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reshape::Reshape;
use msc_ir::{Monoid, Op};

/// The family.
pub fn rules() -> Vec<Rule> {
    use Tag::Exact;
    vec![
        Rule::simple("broadcast-nothing", Exact, "(broadcast_in_dim ?x)", same_layout),
        Rule::simple("reshape-nothing", Exact, "(reshape ?x)", same_layout),
        Rule::simple("transpose-nothing", Exact, "(transpose ?x)", same_layout),
        Rule::simple("convert-nothing", Exact, "(convert ?x)", same_type),
        Rule::simple("broadcast-broadcast", Exact, "(broadcast_in_dim (broadcast_in_dim ?x))", compose),
        Rule::simple("reshape-reshape", Exact, "(reshape (reshape ?x))", reshape),
        Rule::simple("reshape-broadcast", Exact, "(reshape (broadcast_in_dim ?x))", undo),
        // A reshape that inserts dimensions of size 1.
        Rule::simple("reshape-is-broadcast", Exact, "(reshape ?x)", insert_units),
        Rule::simple("sum-of-one", Exact, "(reduce.sum.unit ?x)", drop_units),
        Rule::simple("max-of-one", Exact, "(reduce.max.unit ?x)", drop_units),
        Rule::simple("min-of-one", Exact, "(reduce.min.unit ?x)", drop_units),
        // Row statistics live at [rows]: elementwise ops go below the broadcasts of their operands.
        Rule::simple("unary-of-broadcast", Exact, "(unary.any (broadcast_in_dim ?x))", pull_unary),
        Rule::simple(
            "binary-of-broadcasts",
            Exact,
            "(binary.any (broadcast_in_dim ?x) (broadcast_in_dim ?y))",
            pull_binary,
        ),
        Rule::simple(
            "broadcast-with-constant",
            Exact,
            "(binary.any (broadcast_in_dim ?x) ?c:const)",
            pull_left,
        ),
        Rule::simple(
            "constant-with-broadcast",
            Exact,
            "(binary.any ?c:const (broadcast_in_dim ?x))",
            pull_right,
        ),
    ]
}

fn broadcast(op: &Op) -> Result<&BroadcastInDim, WhyNot> {
    match op {
        Op::Broadcast(b) => Ok(b),
        _ => Err(refuse("the op is no broadcast")),
    }
}

fn same_layout(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (x, root) = (b.ty(b.var(m, "x")?)?, b.ty(b.var(m, "root")?)?);
    let in_order = match &m.ops[0].op {
        Op::Broadcast(op) => op.dims.is_sorted(),
        Op::Permute(Permute::Transpose(p)) => p.is_sorted(),
        _ => true,
    };
    if x != root || !in_order {
        return Err(refuse("the layout changes"));
    }
    root_is_x(b, m)
}

fn same_type(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.ty(b.var(m, "x")?)?;
    if m.ops[0].op != Convert::Value(x.dtype).into() {
        return Err(refuse("the element type changes"));
    }
    root_is_x(b, m)
}

fn compose(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (outer, inner) = (broadcast(&m.ops[0].op)?.clone(), broadcast(&m.ops[1].op)?.clone());
    let x = b.var(m, "x")?;
    let dims = inner.dims.iter().map(|&d| outer.dims[d]).collect();
    let new = b.add(BroadcastInDim { shape: outer.shape, dims }, &[x])?;
    root_is(b, m, new)
}

fn reshape(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let new = b.add(m.ops[0].op.clone(), &[x])?;
    root_is(b, m, new)
}

/// A reshape that undoes a broadcast which only inserted dimensions of size 1.
fn undo(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (x, root) = (b.ty(b.var(m, "x")?)?, b.ty(b.var(m, "root")?)?);
    if x != root || !broadcast(&m.ops[1].op)?.dims.is_sorted() {
        return Err(refuse("the reshape does not undo the broadcast"));
    }
    root_is_x(b, m)
}

fn insert_units(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let (from, to) = (b.ty(x)?, b.ty(b.var(m, "root")?)?);
    let mut dims = Vec::new();
    for (d, &n) in to.shape.iter().enumerate() {
        if from.shape.get(dims.len()) == Some(&n) {
            dims.push(d);
        } else if n != 1 {
            return Err(refuse("the reshape does more than insert dimensions of size 1"));
        }
    }
    if dims.len() != from.rank() || from.rank() == to.rank() {
        return Err(refuse("the reshape does not insert dimensions of size 1"));
    }
    let new = b.add(BroadcastInDim { shape: to.shape, dims: dims.into_iter().collect() }, &[x])?;
    root_is(b, m, new)
}

fn drop_units(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let Op::Reduce(r) = &m.ops[0].op else { return Err(refuse("the op is no reduction")) };
    debug_assert!(matches!(r.monoid, Monoid::Sum | Monoid::Max | Monoid::Min));
    let shape = b.ty(b.var(m, "root")?)?.shape;
    let new = if r.dims.is_empty() { x } else { b.add(Reshape { shape }, &[x])? };
    root_is(b, m, new)
}

/// The root is a broadcast of `below`.
fn lifted(b: &mut Builder<'_>, m: &Match, by: &BroadcastInDim, below: egg::Id) -> Result<Applied, WhyNot> {
    let new = b.add(by.clone(), &[below])?;
    root_is(b, m, new)
}

fn pull_unary(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let below = b.add(m.ops[0].op.clone(), &[x])?;
    lifted(b, m, broadcast(&m.ops[1].op)?, below)
}

fn pull_binary(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (x, y) = (b.var(m, "x")?, b.var(m, "y")?);
    let (p, q) = (broadcast(&m.ops[1].op)?, broadcast(&m.ops[2].op)?);
    if p != q || b.ty(x)? != b.ty(y)? {
        return Err(refuse("the broadcasts differ"));
    }
    let below = b.add(m.ops[0].op.clone(), &[x, y])?;
    lifted(b, m, p, below)
}

fn pull_constant(b: &mut Builder<'_>, m: &Match, constant_first: bool) -> Result<Applied, WhyNot> {
    let (x, c) = (b.var(m, "x")?, b.var(m, "c")?);
    let Some(value) = b.splat_value(c) else { return Err(refuse("the constant is not known")) };
    let dtype = b.ty(c)?.dtype;
    if !dtype.is_float() || b.splat_value(x).is_some() {
        return Err(refuse("not a float, or a constant altogether"));
    }
    let ty = b.ty(x)?.with_dtype(dtype);
    let below = b.splat(&ty, value)?;
    let args = if constant_first { [below, x] } else { [x, below] };
    let below = b.add(m.ops[0].op.clone(), &args)?;
    lifted(b, m, broadcast(&m.ops[1].op)?, below)
}

fn pull_left(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    pull_constant(b, m, false)
}

fn pull_right(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    pull_constant(b, m, true)
}
