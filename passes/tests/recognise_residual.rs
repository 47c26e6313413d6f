//! Norms of a sum of the residual stream and what a sublayer adds to it: one operation that gives the sum as well, where
//! the sum is one of two tensors of the norm's own type.

#[path = "graphs/named.rs"]
#[allow(dead_code)]
mod named;
mod recognised;

use msc_ir::ops::binary::BinaryKind::Add;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::{FusedKind, Number, Scalar};
use msc_ir::ops::reshape::Reshape;
use msc_ir::{DType, Op, Shape, ValueId};
use msc_passes::recognise::define;
use named::{Program, Recognised};
use recognised::sites;

const SHAPE: [usize; 3] = [2, 3, 8];

fn eps() -> Number {
    Number::Known(Scalar::new(1e-5))
}

impl Program {
    fn rms_norm(&mut self, x: ValueId, gamma: ValueId) -> Vec<ValueId> {
        let kind = FusedKind::RmsNorm { eps: eps(), scale: true, late: false, residual: false };
        self.named(kind, &[x, gamma], |module, types| {
            define::rms_norm::forward(module, types, eps(), true, (false, false))
        })
    }

    fn layer_norm(&mut self, x: ValueId, gamma: ValueId, beta: ValueId) -> Vec<ValueId> {
        let kind = FusedKind::LayerNorm { eps: eps(), scale: true, shift: true, residual: false };
        self.named(kind, &[x, gamma, beta], |module, types| {
            define::layer_norm::forward(module, types, eps(), (true, true, false))
        })
    }
}

impl Recognised {
    /// How many norms there are with a residual, and without.
    fn norms(&self) -> (usize, usize) {
        let mut out = (0, 0);
        for (_, d) in self.graph.ops() {
            let Op::Fused(f) = &d.op else { continue };
            match f.kind {
                FusedKind::RmsNorm { residual: true, .. } | FusedKind::LayerNorm { residual: true, .. } => {
                    out.0 += 1;
                }
                FusedKind::RmsNorm { .. } | FusedKind::LayerNorm { .. } => out.1 += 1,
                _ => {}
            }
        }
        let found = sites(&self.report, "rms_norm") + sites(&self.report, "layer_norm");
        assert_eq!(out.0 + out.1, found);
        out
    }
}

#[test]
fn a_sum_and_its_norm_are_one() {
    for dtype in [DType::F32, DType::BF16] {
        let mut p = Program::new();
        let (x, r, gamma) = (p.typed(dtype, &SHAPE), p.typed(dtype, &SHAPE), p.typed(dtype, &[8]));
        let h = p.op(Add, &[x, r]);
        let norm = p.rms_norm(h, gamma);
        let next = p.op(Add, &[h, norm[0]]);
        let r = p.finish(&[norm[0], norm[1], next]);
        assert_eq!((r.norms(), r.count("add")), ((1, 0), 1), "{dtype:?}");
        let reason = r.report.regions[0].reasons.iter().find(|r| r.fused.kind.name() == "rms_norm");
        let reason = reason.expect("a reason");
        let names: Vec<&str> = reason.inputs.iter().map(|i| i.name).collect();
        assert_eq!(names, ["x", "gamma", "r"]);
        assert!(reason.outputs.iter().any(|o| o.name == "h"));
    }
}

#[test]
fn a_layer_norm_takes_a_residual_behind_its_weights() {
    let mut p = Program::new();
    let (x, r) = (p.param(&SHAPE), p.param(&SHAPE));
    let (gamma, beta) = (p.param(&[8]), p.param(&[8]));
    let h = p.op(Add, &[x, r]);
    let norm = p.layer_norm(h, gamma, beta);
    let r = p.finish(&[norm[0], norm[1], h]);
    assert_eq!((r.norms(), r.count("add")), ((1, 0), 0));
}

/// What the gradient needs of the norm, its statistic, is the same operation's.
#[test]
fn of_two_norms_of_one_sum_one_gives_it() {
    let mut p = Program::new();
    let (x, r) = (p.param(&SHAPE), p.param(&SHAPE));
    let (first, second) = (p.param(&[8]), p.param(&[8]));
    let h = p.op(Add, &[x, r]);
    let a = p.rms_norm(h, first)[0];
    let b = p.rms_norm(h, second)[0];
    let r = p.finish(&[a, b, h]);
    assert_eq!((r.norms(), r.count("add")), ((1, 1), 0));
}

#[test]
fn what_is_no_residual_is_added_before() {
    // A bias.
    let mut p = Program::new();
    let (x, bias, gamma) = (p.param(&SHAPE), p.param(&[8]), p.param(&[8]));
    let spread = BroadcastInDim { shape: Shape::from_slice(&SHAPE), dims: Shape::from_slice(&[2]) };
    let bias = p.op(spread, &[bias]);
    let h = p.op(Add, &[x, bias]);
    let y = p.rms_norm(h, gamma)[0];
    let r = p.finish(&[y, h]);
    assert_eq!((r.norms(), r.count("add")), ((0, 1), 1));
    // A longer sum, whose terms may be partial on ranks.
    let mut p = Program::new();
    let (x, r, s, gamma) = (p.param(&SHAPE), p.param(&SHAPE), p.param(&SHAPE), p.param(&[8]));
    let h = p.op(Add, &[x, r]);
    let h = p.op(Add, &[h, s]);
    let y = p.rms_norm(h, gamma)[0];
    let r = p.finish(&[y, h]);
    assert_eq!((r.norms(), r.count("add")), ((0, 1), 2));
    // A sum that is rounded before the norm.
    let mut p = Program::new();
    let (x, r, gamma) = (p.param(&SHAPE), p.param(&SHAPE), p.typed(DType::BF16, &[8]));
    let h = p.op(Add, &[x, r]);
    let narrow = p.op(Convert::Value(DType::BF16), &[h]);
    let y = p.rms_norm(narrow, gamma)[0];
    let r = p.finish(&[y, h]);
    assert_eq!((r.norms(), r.count("add")), ((0, 1), 1));
    // Rows of another shape.
    let mut p = Program::new();
    let (x, r, gamma) = (p.param(&SHAPE), p.param(&SHAPE), p.param(&[4]));
    let h = p.op(Add, &[x, r]);
    let rows = p.op(Reshape { shape: Shape::from_slice(&[12, 4]) }, &[h]);
    let y = p.rms_norm(rows, gamma)[0];
    let r = p.finish(&[y, h]);
    assert_eq!((r.norms(), r.count("add")), ((0, 1), 1));
}
