//! Transposes between named operations: those of heads and positions around an attention and its rotations are gone where
//! that moves less, stay where it does not, and no bit changes.

#[path = "graphs/named.rs"]
#[allow(dead_code)]
mod named;
mod recognised;

use msc_ir::ops::attention::{AttentionForm, AttentionLayout, ScoreStep};
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::fused::{Fused, FusedKind, Scalar};
use msc_ir::{DType, Op, Shape, ValueId};
use msc_passes::recognise::define;
use named::{Program, Recognised};
use recognised::sites;

/// Batch, positions, heads of queries and of keys, width of a head.
const SIZES: [usize; 5] = [2, 6, 4, 2, 8];

/// What a layer's attention is made of.
impl Program {
    /// `[B,S,n·h]` as heads: `[B,n,S,h]`.
    fn heads(&mut self, v: ValueId, n: usize) -> ValueId {
        let [b, s, .., h] = SIZES;
        let v = self.reshape(v, &[b, s, n, h]);
        self.transpose(v, &[0, 2, 1, 3])
    }

    fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId) -> Vec<ValueId> {
        let band = ScoreStep::Band { lo: Some(0), hi: None, fill: Scalar::new(-1e9), add: false };
        let steps = vec![ScoreStep::Scale(Scalar::new(0.25)), band];
        let kind = FusedKind::Attention(AttentionForm { steps, ..AttentionForm::default() });
        self.named(kind.clone(), &[q, k, v], |module, types| define::build(module, &kind, types))
    }

    fn rope(&mut self, v: ValueId, cos: ValueId, sin: ValueId) -> ValueId {
        let rotated = SIZES[4];
        let kind = FusedKind::Rope { interleaved: false, transposed: false, rotated };
        self.named(kind.clone(), &[v, cos, sin], |module, types| define::build(module, &kind, types))[0]
    }
}

/// What became of it.
impl Recognised {
    /// The layouts of its attentions, each of which has a reason that says the same.
    fn layouts(&self) -> Vec<AttentionLayout> {
        let of = |f: &Fused| match &f.kind {
            FusedKind::Attention(form) => Some(form.layout),
            _ => None,
        };
        let ops = self.graph.ops().filter_map(|(_, d)| match &d.op {
            Op::Fused(f) => of(f),
            _ => None,
        });
        let ops: Vec<AttentionLayout> = ops.collect();
        let reasons = self.report.regions.iter().flat_map(|r| &r.reasons).filter_map(|r| of(&r.fused));
        assert_eq!(ops, reasons.collect::<Vec<_>>());
        ops
    }
}

/// Heads of rotated queries and keys, and of values, transposed for the attention; `back` says whether its result is
/// transposed back.
fn layer(p: &mut Program, back: bool) -> ValueId {
    let [b, s, n, k, h] = SIZES;
    let params = [n, k, k].map(|heads| p.param(&[b, s, heads * h]));
    let (cos, sin) = (p.param(&[1, 1, s, h]), p.param(&[1, 1, s, h]));
    let [q, k, v] = [0, 1, 2].map(|i| p.heads(params[i], [n, k, k][i]));
    let (q, k) = (p.rope(q, cos, sin), p.rope(k, cos, sin));
    let o = p.attention(q, k, v)[0];
    if !back {
        return o;
    }
    let o = p.transpose(o, &[0, 2, 1, 3]);
    p.reshape(o, &[b, s, n * h])
}

#[test]
fn heads_stay_where_products_give_them() {
    let mut p = Program::new();
    let o = layer(&mut p, true);
    let r = p.finish(&[o]);
    assert_eq!((sites(&r.report, "attention"), sites(&r.report, "rope")), (1, 2));
    assert_eq!(r.layouts(), [AttentionLayout::Bsnd]);
    // Three into heads, one back, one for each table, which both rotations take.
    assert_eq!((r.count("transpose"), r.count("reshape")), (0, 6));
}

#[test]
fn a_result_that_is_taken_as_it_was_is_transposed_once() {
    let mut p = Program::new();
    let o = layer(&mut p, false);
    let r = p.finish(&[o]);
    assert_eq!(r.layouts(), [AttentionLayout::Bsnd]);
    assert_eq!(r.count("transpose"), 1);
}

#[test]
fn heads_that_come_first_stay_first() {
    let [b, s, n, k, h] = SIZES;
    let mut p = Program::new();
    let params = [n, k, k].map(|heads| p.param(&[b, heads, s, h]));
    let o = p.attention(params[0], params[1], params[2])[0];
    let r = p.finish(&[o]);
    assert_eq!(r.layouts(), [AttentionLayout::Bnsd]);
    // Values alone are no reason: queries and the result are larger.
    let mut p = Program::new();
    let (q, keys, v) = (p.param(&[b, n, s, h]), p.param(&[b, k, s, h]), p.param(&[b, s, k * h]));
    let v = p.heads(v, k);
    let o = p.attention(q, keys, v)[0];
    let r = p.finish(&[o]);
    assert_eq!((r.layouts(), r.count("transpose")), (vec![AttentionLayout::Bnsd], 1));
}

#[test]
fn other_transposes_are_no_layout_of_heads() {
    let [b, s, n, _, h] = SIZES;
    let mut p = Program::new();
    // The sequence first: exchanging heads and positions leads nowhere.
    let params = [n, n, n].map(|heads| p.param(&[s, b, heads * h]));
    let heads = params.map(|v| {
        let v = p.reshape(v, &[s, b, n, h]);
        p.transpose(v, &[1, 2, 0, 3])
    });
    let o = p.attention(heads[0], heads[1], heads[2])[0];
    let o = p.transpose(o, &[2, 0, 1, 3]);
    let r = p.finish(&[o]);
    assert_eq!((r.layouts(), r.count("transpose")), (vec![AttentionLayout::Bnsd], 4));
}

/// Grouped heads have a dimension of their own on the way, and more than one transpose.
#[test]
fn grouped_heads_are_seen_through() {
    let [b, s, n, k, h] = SIZES;
    let mut p = Program::new();
    let params = [n, k, k].map(|heads| p.param(&[b, s, heads * h]));
    let q = p.reshape(params[0], &[b, s, k, n / k, h]);
    let q = p.transpose(q, &[0, 2, 3, 1, 4]);
    let q = p.reshape(q, &[b, n, s, h]);
    let (keys, v) = (p.heads(params[1], k), p.heads(params[2], k));
    let o = p.attention(q, keys, v)[0];
    let o = p.reshape(o, &[b, k, n / k, s, h]);
    let o = p.transpose(o, &[0, 3, 1, 2, 4]);
    let o = p.reshape(o, &[b, s, n * h]);
    let r = p.finish(&[o]);
    assert_eq!((r.layouts(), r.count("transpose")), (vec![AttentionLayout::Bsnd], 0));
}

/// The product of two matrices, summed over these dimensions.
fn plain(lhs: usize, rhs: usize) -> DotGeneral {
    DotGeneral {
        lhs_batch: Shape::new(),
        rhs_batch: Shape::new(),
        lhs_contract: Shape::from_slice(&[lhs]),
        rhs_contract: Shape::from_slice(&[rhs]),
        dtype: DType::F32,
    }
}

/// A product says itself which dimensions of its matrices are summed.
#[test]
fn products_take_matrices_as_they_are_stored() {
    let [b, s, n, _, h] = SIZES;
    let mut p = Program::new();
    let (w, g) = (p.param(&[n * h, 5]), p.param(&[5, n * h]));
    let o = layer(&mut p, true);
    let wt = p.transpose(g, &[1, 0]);
    let y = p.op(plain(2, 0), &[o, wt]);
    let rows = p.reshape(o, &[b * s, n * h]);
    let turned = p.op(plain(0, 1), &[w, rows]);
    let turned = p.transpose(turned, &[1, 0]);
    let r = p.finish(&[y, turned]);
    assert_eq!(r.count("transpose"), 0);
    assert_eq!(r.count("dot_general"), 2);
}

/// Rows of a batch are flattened for a product, and so is what comes of it: they need not be.
#[test]
fn rows_stay_in_their_dimensions() {
    let [b, s, n, _, h] = SIZES;
    for flat in [false, true] {
        let mut p = Program::new();
        let (x, w, dy) = (p.param(&[b, s, n * h]), p.param(&[n * h, 5]), p.param(&[b, s, 5]));
        let o = layer(&mut p, true);
        let rows = p.reshape(x, &[b * s, n * h]);
        let product = p.op(plain(1, 0), &[rows, w]);
        let y = p.reshape(product, &[b, s, 5]);
        let dy = p.reshape(dy, &[b * s, 5]);
        let dw = p.op(plain(0, 0), &[rows, dy]);
        let mut results = vec![o, y, dw];
        // Who takes the rows flat takes them flat.
        results.extend(flat.then_some(product));
        let r = p.finish(&results);
        assert_eq!((r.count("dot_general"), r.count("transpose")), (2, 0));
        let beside = r.count("reshape") - 6;
        assert_eq!(beside, if flat { 2 } else { 0 });
    }
}
