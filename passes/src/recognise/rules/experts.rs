//! Matrix products of experts, as a probe: products over a batch of as many matrices as a router of the same e-graph
//! chooses among, with weights on one side, whatever their layout.
//!
//! A product is a grouped one as it stands, so nothing is tried on numbers: what is found is which products belong
//! together. Two with the same weights contract different dimensions of them, and a third contracts the rows of one
//! with the rows of the other: that is `x·w`, `dy·wᵀ` and `xᵀ·dy`. Which of the two is the gradient, the values say that
//! they are computed from: a gradient depends on all that its forward depends on, and on more.

use crate::recognise::engine::region::{At, Region};
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{Found, Operand, Output};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::unite::unite;
use msc_ir::Op;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::permute::Permute;
use std::collections::BTreeSet;

/// Ops between weights as the e-graph gets them and a product: a slice of a stack, a conversion, layout.
const MAX_CHAIN: usize = 16;

/// An operand of a product.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Side {
    value: Index,
    /// The dimension of the experts.
    batch: usize,
    contract: Vec<usize>,
    free: Vec<usize>,
}

/// A product over experts.
#[derive(Clone, Debug)]
struct Product {
    at: Index,
    /// The side whose free dimensions come first in the result.
    first: Side,
    second: Side,
}

/// A product of rows and weights.
#[derive(Clone, Debug)]
struct Layer {
    at: Index,
    rows: Side,
    weights: Side,
    /// Whether the result's rows come before what the weights give.
    rows_first: bool,
}

/// Looks for products of experts in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let routes = run.reasons.iter().filter(|r| matches!(r.fused.kind, FusedKind::MoeRoute(_)));
    let experts: BTreeSet<usize> =
        routes.filter_map(|r| r.inputs.first()?.ty.shape.last().copied()).filter(|&n| n > 1).collect();
    if experts.is_empty() {
        return;
    }
    let program = Program::new(graph, region);
    // What moves tokens to slots and back is a product over groups of tokens.
    let moves = run.reasons.iter().filter(|r| moves_tokens(&r.fused.kind));
    let moved: BTreeSet<At> = moves.flat_map(|r| &r.outputs).flat_map(|o| &o.values).copied().collect();
    let products: Vec<Product> = (0..program.values.len())
        .filter(|&i| !moved.contains(&program.values[i].at))
        .filter_map(|i| product(&program, i, &experts))
        .collect();
    let layers: Vec<Layer> = products.iter().filter_map(|p| layer(&program, p)).collect();
    let (mut found, mut gradients) = (Vec::new(), BTreeSet::new());
    for grad in &products {
        if let Some((f, g)) = gradient(&program, &layers, grad) {
            found.push(f);
            // Rows that a loop saved come in from outside as weights do.
            gradients.extend([g, grad.at]);
        }
    }
    let forwards = layers.iter().filter(|l| !gradients.contains(&l.at));
    let found: Vec<Found> = forwards.map(forward).chain(found).collect();
    for f in found {
        if let Err(why) = unite(graph, region, &program, &f, None, run) {
            run.refuse(f.rule, why.to_string(), f.outputs.first().map(|o| program.values[o.value].at));
        }
    }
}

fn moves_tokens(kind: &FusedKind) -> bool {
    use FusedKind::*;
    matches!(kind, MoeDispatch(_) | MoeDispatchGrad(_) | MoeCombine(_) | MoeCombineGrad(_))
}

/// The product over experts that a value is, if it rounds as its operands do.
fn product(p: &Program<'_>, i: Index, experts: &BTreeSet<usize>) -> Option<Product> {
    let Some(Op::DotGeneral(d)) = p.op(i) else { return None };
    let (l, r) = (p.values[i].operands[0], p.values[i].operands[1]);
    let (&[a], &[b]) = (d.lhs_batch.as_slice(), d.rhs_batch.as_slice()) else { return None };
    let ty = p.values[l].ty;
    let one_type = ty.dtype == p.values[r].ty.dtype && ty.dtype == p.values[i].ty.dtype;
    if !one_type || !ty.dtype.is_float() || !experts.contains(&ty.shape[a]) {
        return None;
    }
    let side = |value: Index, batch: usize, contract: &[usize]| {
        let rank = p.values[value].ty.rank();
        let free = (0..rank).filter(|d| *d != batch && !contract.contains(d)).collect();
        Side { value, batch, contract: contract.to_vec(), free }
    };
    let (first, second) = (side(l, a, &d.lhs_contract), side(r, b, &d.rhs_contract));
    (!first.free.is_empty() && !second.free.is_empty()).then_some(Product { at: i, first, second })
}

/// A product as one of rows and weights, if one side are weights.
fn layer(p: &Program<'_>, product: &Product) -> Option<Layer> {
    let (first, second) = (&product.first, &product.second);
    let (rows, weights, rows_first) = match (is_weight(p, first), is_weight(p, second)) {
        (false, true) => (first, second, true),
        (true, false) => (second, first, false),
        _ => return None,
    };
    let fits = weights.contract.len() == 1 && weights.free.len() == 1;
    fits.then(|| Layer { at: product.at, rows: rows.clone(), weights: weights.clone(), rows_first })
}

/// Whether a side are matrices that come in from outside as they are, or out of a stack of layers.
fn is_weight(p: &Program<'_>, side: &Side) -> bool {
    let mut at = side.value;
    for _ in 0..MAX_CHAIN {
        let v = &p.values[at];
        at = match p.op(at) {
            None => return v.ty.dtype.is_float(),
            Some(Op::Slice(_) | Op::Convert(Convert::Value(_))) => v.operands[0],
            Some(_) if v.is_layout() => v.operands[0],
            Some(_) => return false,
        };
    }
    false
}

/// Values from outside that a value is computed from.
pub(super) fn leaves(p: &Program<'_>, of: Index) -> BTreeSet<Index> {
    let (mut out, mut seen, mut todo) = (BTreeSet::new(), BTreeSet::from([of]), vec![of]);
    while let Some(i) = todo.pop() {
        if p.op(i).is_none() {
            out.insert(i);
        }
        todo.extend(p.values[i].operands.iter().copied().filter(|&o| seen.insert(o)));
    }
    out
}

/// Whether of two layers with the same weights the second is the gradient of the first.
fn precedes(p: &Program<'_>, first: &Layer, second: &Layer) -> bool {
    let (a, b) = (leaves(p, first.rows.value), leaves(p, second.rows.value));
    match (a.is_subset(&b), b.is_subset(&a)) {
        (true, false) => true,
        (false, true) => false,
        _ => first.at < second.at,
    }
}

/// The gradient whose dw a product is, and the layer that is its dx.
fn gradient(p: &Program<'_>, layers: &[Layer], grad: &Product) -> Option<(Found, Index)> {
    let (a, b) = (&grad.first, &grad.second);
    let ([_], [_]) = (a.free.as_slice(), b.free.as_slice()) else { return None };
    let is = |rows: &Side, side: &Side| {
        let sorted = |dims: &[usize]| dims.iter().copied().collect::<BTreeSet<usize>>();
        rows.value == side.value
            && rows.batch == side.batch
            && rows.contract == side.free
            && sorted(&rows.free) == sorted(&side.contract)
    };
    for (x, dy) in [(a, b), (b, a)] {
        for f in layers.iter().filter(|f| is(&f.rows, x)) {
            let same = |g: &&Layer| {
                let (w, v) = (&f.weights, &g.weights);
                (w.value, w.batch, &w.free, &w.contract) == (v.value, v.batch, &v.contract, &v.free)
            };
            let of_dy = |g: &&Layer| is(&g.rows, dy) && g.at != f.at;
            let mut all = layers.iter().filter(same).filter(of_dy);
            if let Some(g) = all.find(|g| precedes(p, f, g)) {
                return Some((found(f, g, (x, dy), grad), g.at));
            }
        }
    }
    None
}

/// Whether a value is computed from another.
pub(super) fn depends(p: &Program<'_>, value: Index, on: Index) -> bool {
    let (mut seen, mut todo) = (BTreeSet::from([value]), vec![value]);
    while let Some(i) = todo.pop() {
        if i == on {
            return true;
        }
        // Operands come first.
        todo.extend(p.values[i].operands.iter().copied().filter(|&o| o >= on && seen.insert(o)));
    }
    false
}

/// The op that brings dimensions into an order, unless they are.
pub(super) fn ordered(order: Vec<usize>) -> Vec<Op> {
    match order.is_sorted() {
        true => Vec::new(),
        false => vec![Permute::Transpose(order.into_iter().collect()).into()],
    }
}

fn operand(name: &'static str, value: Index, order: Vec<usize>) -> Operand {
    let ops = ordered(order);
    Operand { name, value, ops: ops.clone(), cut: (value, ops) }
}

fn in_order(side: &Side) -> Vec<usize> {
    [side.batch].into_iter().chain(side.free.iter().copied()).chain(side.contract.iter().copied()).collect()
}

fn matrices(side: &Side) -> Vec<usize> {
    [side.batch].into_iter().chain(side.contract.iter().copied()).chain(side.free.iter().copied()).collect()
}

fn forward(l: &Layer) -> Found {
    let n = l.rows.free.len() + 2;
    let order = match l.rows_first {
        true => (0..n).collect(),
        false => [0, n - 1].into_iter().chain(1..n - 1).collect(),
    };
    Found {
        rule: "grouped-matmul",
        kind: FusedKind::GroupedMatmul { ragged: false },
        operands: vec![
            operand("x", l.rows.value, in_order(&l.rows)),
            operand("w", l.weights.value, matrices(&l.weights)),
        ],
        given: Vec::new(),
        outputs: vec![Output { name: "y", result: 0, value: l.at, ops: ordered(order) }],
    }
}

/// The gradient of `f` with `g` as its dx and `grad`, of `x` and `dy`, as its dw.
fn found(f: &Layer, g: &Layer, (x, dy): (&Side, &Side), grad: &Product) -> Found {
    let n = f.rows.free.len() + 2;
    // Rows in the order of x.
    let partner = |d: &usize| x.contract.iter().position(|c| c == d).map(|k| dy.contract[k]);
    let rows: Vec<usize> = f.rows.free.iter().filter_map(partner).collect();
    let of_dy = [dy.batch].into_iter().chain(rows.iter().copied()).chain(dy.free.iter().copied());
    // Where the dimensions of dx stand in the result of `g`, which has the rows in the order of dy.
    let place = |d: &usize| rows.iter().position(|r| r == d).map(|k| k + 1);
    let mut order: Vec<usize> = g.rows.free.iter().filter_map(place).collect();
    order.insert(if g.rows_first { order.len() } else { 0 }, n - 1);
    order.insert(0, 0);
    let turned = if grad.first == *x { vec![0, 1, 2] } else { vec![0, 2, 1] };
    Found {
        rule: "grouped-matmul-grad",
        kind: FusedKind::GroupedMatmulGrad { ragged: false },
        operands: vec![
            operand("dy", dy.value, of_dy.collect()),
            operand("x", x.value, in_order(&f.rows)),
            operand("w", f.weights.value, matrices(&f.weights)),
        ],
        given: Vec::new(),
        outputs: vec![
            Output { name: "dx", result: 0, value: g.at, ops: ordered(order) },
            Output { name: "dw", result: 1, value: grad.at, ops: ordered(turned) },
        ],
    }
}
