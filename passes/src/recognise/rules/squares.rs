//! Sums of a tensor's squares, which global norms are made of, as a probe: nothing is tried on numbers, as two ops say all.

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{Found, Operand, Output};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::unite::unite_all;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::fused::FusedKind;
use msc_ir::{Monoid, Op};

/// Name of the rule in reports.
const RULE: &str = "sum-of-squares";

/// Looks for sums of squares in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let program = Program::new(graph, region);
    let found = |i: Index| {
        let x = summed(&program, i)?;
        Some(Found {
            rule: RULE,
            kind: FusedKind::SumOfSquares,
            operands: vec![Operand { name: "x", value: x, ops: Vec::new(), cut: (x, Vec::new()) }],
            given: Vec::new(),
            outputs: vec![Output { name: "s", result: 0, value: i, ops: Vec::new() }],
        })
    };
    let all: Vec<Found> = (0..program.values.len()).filter_map(found).collect();
    if let Err(why) = unite_all(graph, region, &program, &all, run) {
        run.refuse(RULE, why.to_string(), None);
    }
}

/// The tensor of whose squares, all of them, a scalar is the sum.
fn summed(p: &Program<'_>, sum: Index) -> Option<Index> {
    let Some(Op::Reduce(r)) = p.op(sum) else { return None };
    let squares = p.values[sum].operands[0];
    let ty = p.values[squares].ty;
    if r.monoid != Monoid::Sum || ty.rank() == 0 || r.dims.len() != ty.rank() || !ty.dtype.is_float() {
        return None;
    }
    let Some(Op::Binary(b)) = p.op(squares) else { return None };
    let (x, y) = (p.values[squares].operands[0], p.values[squares].operands[1]);
    let is =
        b.kind == BinaryKind::Multiply && x == y || b.kind == BinaryKind::Power && p.splat(y) == Some(2.0);
    (is && p.splat(x).is_none()).then_some(x)
}
