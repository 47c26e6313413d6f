//! Which named operations know more than one order of dimensions, and what each is in the other.

use msc_ir::ops::attention::AttentionForm;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::permute::Permute;
use msc_ir::{Shape, TensorType};

/// A named operation whose operands and results may have their dimensions 1 and 2 exchanged: heads and positions, between
/// the batch and the width of a head.
pub(super) struct Law {
    /// The operation on exchanged operands.
    pub kind: FusedKind,
    /// Operands that are exchanged: those that are as large as results, and their tables.
    pub operands: Vec<Exchanged>,
    /// Results that are exchanged.
    pub results: Vec<bool>,
}

/// How an operand takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exchanged {
    /// Not.
    No,
    /// It is, and what gives it should be as well.
    Yes,
    /// It is; a table, which is small and mostly everybody's.
    Table,
}

/// The law of an operation with these operands. Definitions say that it holds: an attention's layout is transposes around
/// one computation, and a rotation treats rows one by one, each with its own row of the tables.
pub(super) fn law(kind: &FusedKind, operands: &[&TensorType]) -> Option<Law> {
    let only = |n: usize, which: &[usize]| -> Vec<Exchanged> {
        (0..n).map(|i| if which.contains(&i) { Exchanged::Yes } else { Exchanged::No }).collect()
    };
    let other = |form: &AttentionForm| AttentionForm { layout: form.layout.other(), ..form.clone() };
    match kind {
        FusedKind::Attention(form) => Some(Law {
            kind: FusedKind::Attention(other(form)),
            operands: only(operands.len(), &[0, 1, 2]),
            results: vec![true, false, false],
        }),
        FusedKind::AttentionGrad { form, output } => {
            let n = 3 + form.operands();
            let mut which = vec![0, 1, 2, n];
            which.extend(output.then_some(n + 3));
            let sinks = usize::from(form.sink);
            Some(Law {
                kind: FusedKind::AttentionGrad { form: other(form), output: *output },
                operands: only(operands.len(), &which),
                results: [true; 3].into_iter().chain(std::iter::repeat_n(false, sinks)).collect(),
            })
        }
        FusedKind::Rope { .. } if operands.iter().all(|t| t.rank() == 4) => Some(Law {
            kind: kind.clone(),
            operands: vec![Exchanged::Yes, Exchanged::Table, Exchanged::Table],
            results: vec![true],
        }),
        _ => None,
    }
}

/// The op that exchanges dimensions 1 and 2, its own inverse.
pub(super) fn exchange() -> Permute {
    Permute::Transpose(Shape::from_slice(&[0, 2, 1, 3]))
}

/// A type with dimensions 1 and 2 exchanged.
pub(super) fn exchanged(ty: &TensorType) -> TensorType {
    let mut shape = ty.shape.clone();
    shape.swap(1, 2);
    TensorType { dtype: ty.dtype, shape }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recognise::define;
    use msc_ir::interp::{Mode, run};
    use msc_ir::ops::attention::ScoreStep;
    use msc_ir::ops::fused::Scalar;
    use msc_ir::testing::Rng;
    use msc_ir::{DType, Graph, LocId, Module, Tensor};

    fn ty(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType { dtype, shape: shape.iter().copied().collect() }
    }

    fn turned(t: &Tensor) -> Tensor {
        let (mut module, mut g) = (Module::new("m"), Graph::new("g"));
        let p = g.add_param(t.ty());
        let r = g.add1(&module, exchange(), &[p], LocId::UNKNOWN).expect("transposes");
        assert_eq!(*g.ty(r), exchanged(&t.ty()));
        g.set_results(vec![r]);
        let g = module.add_graph(g);
        run(&module, g, std::slice::from_ref(t), Mode::Spec).expect("runs").remove(0)
    }

    /// The operation on exchanged operands gives the same bits, exchanged.
    fn holds(kind: &FusedKind, types: &[TensorType], seed: u64) {
        let law = law(kind, &types.iter().collect::<Vec<_>>()).expect("a law");
        let mut module = Module::new("m");
        let mut rng = Rng::new(seed);
        let inputs: Vec<Tensor> = types.iter().map(|t| rng.tensor(t.dtype, &t.shape)).collect();
        let others: Vec<Tensor> = inputs
            .iter()
            .zip(&law.operands)
            .map(|(t, e)| if *e == Exchanged::No { t.clone() } else { turned(t) })
            .collect();
        let theirs: Vec<TensorType> = others.iter().map(Tensor::ty).collect();
        let one = define::build(&mut module, kind, types).expect("defines");
        let one = module.add_graph(one);
        let other = define::build(&mut module, &law.kind, &theirs).expect("defines the other");
        let other = module.add_graph(other);
        for mode in [Mode::Spec, Mode::Wide] {
            let a = run(&module, one, &inputs, mode).expect("runs");
            let b = run(&module, other, &others, mode).expect("runs");
            assert_eq!((a.len(), b.len()), (law.results.len(), law.results.len()));
            for ((a, b), is) in a.iter().zip(&b).zip(&law.results) {
                let b = if *is { turned(b) } else { b.clone() };
                assert_eq!(a.ty(), b.ty());
                let bits = |t: &Tensor| t.data.to_f64s().into_iter().map(f64::to_bits).collect::<Vec<_>>();
                assert_eq!(bits(a), bits(&b), "{kind:?}");
            }
        }
    }

    #[test]
    fn attention_is_the_same_in_either_layout() {
        let steps = vec![
            ScoreStep::Scale(Scalar::new(0.5)),
            ScoreStep::Band { lo: Some(0), hi: None, fill: Scalar::new(-1e9), add: false },
            ScoreStep::Bias,
        ];
        let plain = AttentionForm { steps, ..AttentionForm::default() };
        let sink = AttentionForm { sink: true, weighted: true, ..plain.clone() };
        let late = AttentionForm { late: true, ties: true, repeated: true, ..plain.clone() };
        for (seed, dtype) in [(1, DType::F32), (2, DType::BF16)] {
            for form in [&plain, &sink, &late] {
                let mut types = vec![
                    ty(dtype, &[2, 4, 5, 6]),
                    ty(dtype, &[2, 2, 3, 6]),
                    ty(dtype, &[2, 2, 3, 7]),
                    ty(dtype, &[2, 1, 5, 3]),
                ];
                if form.sink {
                    types.extend([ty(dtype, &[1, 4, 1, 1]), ty(dtype, &[1, 1, 5, 3])]);
                }
                holds(&FusedKind::Attention(form.clone()), &types, seed);
                types.extend([ty(dtype, &[2, 4, 5, 7]), ty(dtype, &[2, 4, 5]), ty(dtype, &[2, 4, 5])]);
                for output in [false, true] {
                    types.extend(output.then(|| ty(dtype, &[2, 4, 5, 7])));
                    holds(&FusedKind::AttentionGrad { form: form.clone(), output }, &types, seed);
                }
            }
        }
    }

    #[test]
    fn a_rotation_is_the_same_in_either_order() {
        for (x, table) in
            [([2, 4, 5, 8], [1, 1, 5, 8]), ([2, 4, 5, 8], [2, 4, 1, 4]), ([1, 3, 5, 8], [1, 3, 5, 4])]
        {
            for (interleaved, transposed) in [(false, false), (false, true), (true, false), (true, true)] {
                for (seed, dtype) in [(3, DType::F32), (4, DType::BF16)] {
                    let types = [ty(dtype, &x), ty(DType::F32, &table), ty(DType::F32, &table)];
                    let rotated = 8.min(2 * table[3]);
                    holds(&FusedKind::Rope { interleaved, transposed, rotated }, &types, seed);
                }
            }
        }
    }

    #[test]
    fn others_have_no_law() {
        let t = ty(DType::F32, &[2, 4, 5, 8]);
        assert!(law(&FusedKind::Softmax, &[&t]).is_none());
        let flat = ty(DType::F32, &[2, 5, 8]);
        let rope = FusedKind::Rope { interleaved: false, transposed: false, rotated: 8 };
        assert!(law(&rope, &[&flat, &flat, &flat]).is_none());
    }
}
