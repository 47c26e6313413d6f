//! Matrix products of runs of rows, as a probe: products over groups of rows that are zero outside of their group, with one
//! matrix for each.
//!
//! Which rows are in which group is read exactly: two comparisons of the row with vectors of bounds. That those are the ends
//! of runs of given lengths is tried on numbers. Which products belong together, they say themselves as they stand: two with the
//! same matrices contract different dimensions of them, and a third contracts the rows of one with the rows of the other:
//! that is `x·w`, `dy·wᵀ` and `xᵀ·dy`.

mod masked;

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{Found, Operand, Output};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::unite::unite;
use crate::recognise::rules::experts::{depends, leaves, ordered};
use masked::{Masked, Runs, masked};
use msc_ir::Op;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::slice::Slice;
use std::collections::BTreeSet;

/// A product of rows in runs and their matrices.
struct Layer {
    /// The rows `[M,C]` and their dimensions.
    x: Index,
    x_dims: [usize; 2],
    sizes: Index,
    w: Index,
    /// Dimensions of the matrices: of runs, of what is contracted, of what is left.
    w_dims: [usize; 3],
    /// The result `[M,F]`, or `[F,M]`.
    y: Index,
    turned: bool,
}

/// A product of two kinds of rows over each run.
struct Weights {
    sides: [(Index, [usize; 2]); 2],
    sizes: Index,
    dw: Index,
    /// Dimensions of the result: of runs, of the first side, of the second.
    dims: [usize; 3],
}

/// Looks for products of runs in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let program = Program::new(graph, region);
    let (mut layers, mut weights) = (Vec::new(), Vec::new());
    let mut runs = Runs::default();
    for i in 0..program.values.len() {
        let Some(Op::DotGeneral(_)) = program.op(i) else { continue };
        let sides = [0, 1].map(|n| masked(&program, program.values[i].operands[n]));
        if sides.iter().all(Option::is_none) {
            continue;
        }
        let module = &graph.analysis.module;
        let sizes = sides.iter().flatten().map(|s| runs.sizes(&program, module, s));
        let sizes: BTreeSet<Option<Index>> = sizes.collect();
        let Some(&sizes) = sizes.first().filter(|_| sizes.len() == 1) else { continue };
        let Some(sizes) = sizes else {
            let why = "rows are in groups, and those are no runs of given lengths";
            run.refuse("grouped-matmul", why, Some(program.values[i].at));
            continue;
        };
        layers.extend(layer(&program, i, &sides, sizes));
        weights.extend(product(&program, i, &sides, sizes));
    }
    let mut found = Vec::new();
    let mut gradients = BTreeSet::new();
    for w in &weights {
        if let Some((f, dx)) = gradient(&program, &layers, w) {
            found.push(f);
            gradients.insert(dx);
        }
    }
    let forwards = layers.iter().filter(|l| !gradients.contains(&l.y)).map(forward);
    for f in forwards.chain(found).collect::<Vec<_>>() {
        if let Err(why) = unite(graph, region, &program, &f, None, run) {
            run.refuse(f.rule, why.to_string(), f.outputs.first().map(|o| program.values[o.value].at));
        }
    }
}

/// A product that contracts runs and a dimension of each row with matrices.
fn layer(p: &Program<'_>, i: Index, sides: &[Option<Masked>; 2], sizes: Index) -> Option<Layer> {
    let Some(Op::DotGeneral(d)) = p.op(i) else { return None };
    let (side, first) = match sides {
        [Some(s), None] => (s, true),
        [None, Some(s)] => (s, false),
        _ => return None,
    };
    let (mine, other) = match first {
        true => (&d.lhs_contract, &d.rhs_contract),
        false => (&d.rhs_contract, &d.lhs_contract),
    };
    let w = p.values[i].operands[usize::from(first)];
    let ty = p.values[w].ty;
    if !d.lhs_batch.is_empty() || mine.len() != 2 || ty.rank() != 3 || ty.dtype != p.values[i].ty.dtype {
        return None;
    }
    let partner = |dim: usize| mine.iter().position(|&m| m == dim).map(|k| other[k]);
    let (of_run, contract) = (partner(side.run)?, partner(side.column)?);
    let free = (0..3).find(|&d| d != of_run && d != contract)?;
    let (x, x_dims, cut) = side.rows(p);
    // Rows that were added are cut off again.
    let row = if first { 0 } else { 1 };
    let y = match cut {
        Some(rows) => shortened(p, i, row, rows),
        None => Some(i),
    };
    let (x, x_dims, y) = match y {
        Some(y) => (x, x_dims, y),
        None => (side.x, side.x_dims, i),
    };
    let one_type = p.values[x].ty.dtype == ty.dtype;
    one_type.then_some(Layer { x, x_dims, sizes, w, w_dims: [of_run, contract, free], y, turned: !first })
}

/// The first `rows` of a value along a dimension, if that is all that is used of it.
fn shortened(p: &Program<'_>, i: Index, dim: usize, rows: usize) -> Option<Index> {
    let &[u] = p.values[i].users.as_slice() else { return None };
    let (from, to) = (&p.values[i].ty.shape, &p.values[u].ty.shape);
    let rest = |d: &usize| *d == dim || from[*d] == to[*d];
    let starts = match p.op(u)? {
        Op::Slice(Slice::Static { start, stride, .. }) => {
            start.iter().all(|&s| s == 0) && stride.iter().all(|&s| s == 1)
        }
        Op::Pad(pad) => pad.low.iter().all(|&l| l == 0) && pad.interior.iter().all(|&n| n == 0),
        _ => false,
    };
    (starts && to[dim] == rows && (0..from.len()).all(|d| rest(&d))).then_some(u)
}

/// A product that contracts the rows of each run.
fn product(p: &Program<'_>, i: Index, sides: &[Option<Masked>; 2], sizes: Index) -> Option<Weights> {
    let Some(Op::DotGeneral(d)) = p.op(i) else { return None };
    let (&[l], &[r]) = (d.lhs_contract.as_slice(), d.rhs_contract.as_slice()) else { return None };
    let (a, b) = (p.values[i].operands[0], p.values[i].operands[1]);
    let dtype = p.values[i].ty.dtype;
    if p.values[a].ty.dtype != dtype || p.values[b].ty.dtype != dtype {
        return None;
    }
    let of = |s: &Masked| {
        let (x, dims, _) = s.rows(p);
        (x, dims)
    };
    match sides {
        [Some(x), Some(y)] => {
            let over_runs = d.lhs_batch.as_slice() == [x.run] && d.rhs_batch.as_slice() == [y.run];
            (over_runs && l == x.row && r == y.row).then(|| Weights {
                sides: [of(x), of(y)],
                sizes,
                dw: i,
                dims: [0, 1, 2],
            })
        }
        // Rows outside of a run are zeros on one side.
        [Some(x), None] if d.lhs_batch.is_empty() && l == x.row && p.values[b].ty.rank() == 2 => {
            let runs_first = x.run < x.column;
            Some(Weights {
                sides: [of(x), unpadded(p, b, [r, 1 - r])],
                sizes,
                dw: i,
                dims: if runs_first { [0, 1, 2] } else { [1, 0, 2] },
            })
        }
        [None, Some(y)] if d.lhs_batch.is_empty() && r == y.row && p.values[a].ty.rank() == 2 => {
            let runs_first = y.run < y.column;
            Some(Weights {
                sides: [unpadded(p, a, [l, 1 - l]), of(y)],
                sizes,
                dw: i,
                dims: if runs_first { [1, 0, 2] } else { [2, 0, 1] },
            })
        }
        _ => None,
    }
}

/// Rows without the zeros that were added behind them.
fn unpadded(p: &Program<'_>, x: Index, dims: [usize; 2]) -> (Index, [usize; 2]) {
    (masked::unpadded(p, x, dims[0]).unwrap_or(x), dims)
}

fn operand(name: &'static str, value: Index, order: &[usize]) -> Operand {
    let ops = ordered(order.to_vec());
    Operand { name, value, ops: ops.clone(), cut: (value, ops) }
}

fn forward(l: &Layer) -> Found {
    Found {
        rule: "grouped-matmul-ragged",
        kind: FusedKind::GroupedMatmul { ragged: true },
        operands: vec![
            operand("x", l.x, &l.x_dims),
            operand("w", l.w, &l.w_dims),
            operand("sizes", l.sizes, &[0]),
        ],
        given: Vec::new(),
        outputs: vec![Output { name: "y", result: 0, value: l.y, ops: turned(l.turned) }],
    }
}

fn turned(turned: bool) -> Vec<Op> {
    ordered(if turned { vec![1, 0] } else { vec![0, 1] })
}

/// Whether of two layers with the same matrices the first is computed before the second.
fn precedes(p: &Program<'_>, first: &Layer, second: &Layer) -> bool {
    let (a, b) = (leaves(p, first.x), leaves(p, second.x));
    match (a.is_subset(&b), b.is_subset(&a)) {
        (true, false) => true,
        (false, true) => false,
        _ => first.y < second.y,
    }
}

/// The gradient whose dw a product is, and the result of the layer that is its dx.
fn gradient(p: &Program<'_>, layers: &[Layer], grad: &Weights) -> Option<(Found, Index)> {
    let [a, b] = &grad.sides;
    for (turned, x, dy) in [(false, a, b), (true, b, a)] {
        let of = |l: &&Layer, rows: &(Index, [usize; 2])| l.x == rows.0 && l.sizes == grad.sizes;
        let shape = &p.values[grad.dw].ty.shape;
        for g in layers.iter().filter(|l| of(l, dy)) {
            // The matrices that dw is of: what dy has is contracted.
            let [run, contract, free] = g.w_dims;
            let w = &p.values[g.w].ty.shape;
            let [of_run, of_x, of_dy] = match turned {
                false => grad.dims,
                true => [grad.dims[0], grad.dims[2], grad.dims[1]],
            };
            if [w[run], w[free], w[contract]] != [shape[of_run], shape[of_x], shape[of_dy]] {
                continue;
            }
            let forward =
                layers.iter().filter(|f| of(f, x) && f.w == g.w && f.w_dims == [run, free, contract]);
            let fits = match forward.max_by_key(|f| f.y) {
                Some(f) => f.y != g.y && precedes(p, f, g),
                // The forward product may be somewhere else; its rows are not computed from the gradient.
                None => !depends(p, x.0, g.y),
            };
            if fits {
                return Some((backward(g, grad, x, [of_run, of_x, of_dy]), g.y));
            }
        }
    }
    None
}

fn backward(g: &Layer, grad: &Weights, x: &(Index, [usize; 2]), dims: [usize; 3]) -> Found {
    let [run, contract, free] = g.w_dims;
    // From runs, x, dy to where they are in the result.
    let mut order = vec![0; 3];
    dims.iter().enumerate().for_each(|(k, &d)| order[d] = k);
    Found {
        rule: "grouped-matmul-grad-ragged",
        kind: FusedKind::GroupedMatmulGrad { ragged: true },
        operands: vec![
            operand("dy", g.x, &g.x_dims),
            operand("x", x.0, &x.1),
            operand("w", g.w, &[run, free, contract]),
            operand("sizes", g.sizes, &[0]),
        ],
        given: Vec::new(),
        outputs: vec![
            Output { name: "dx", result: 0, value: g.y, ops: turned(g.turned) },
            Output { name: "dw", result: 1, value: grad.dw, ops: ordered(order) },
        ],
    }
}
