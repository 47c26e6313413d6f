//! Cross-entropy: spellings that are found with their gradients, near misses that are not found wrongly, what crosses
//! the border of the named ops, and which dimensions of them can be split.

#[path = "graphs/losses.rs"]
#[allow(dead_code)]
mod losses;
mod recognised;

use losses::{Fault, Gradient, PLAIN, Pick, Smoothed, Spelling, Weights, losses};
use msc_ir::interp::{Mode, run};
use msc_ir::ops::fused::{FusedKind, Normalizer, Outside, Smoothing, Weighting};
use msc_ir::{DType, FactorKind, Module, Op, Operation, Tensor, TensorType, ValueId, text};
use msc_passes::recognise::check::random::Random;
use msc_passes::recognise::{Report, recognise_graph};
use msc_passes::simplify::simplify;
use recognised::{assert_reasons_hold, assert_same_numbers, sites};

/// Labels inside and outside, positive weights.
fn inputs(sp: &Spelling, types: &[TensorType], seed: u64) -> Vec<Tensor> {
    let mut rng = Random::new(seed);
    let mut one = |(i, t): (usize, &TensorType)| {
        let data: Vec<f64> = (0..t.elements())
            .map(|_| match (t.dtype.is_float(), i) {
                (true, 0) => rng.small(),
                (true, _) => rng.small() + 3.0,
                _ if rng.chance(70) => rng.below(sp.vocabulary) as f64,
                _ => rng.below(2 * sp.vocabulary) as f64 - 0.5 * sp.vocabulary as f64,
            })
            .collect();
        Tensor::from_f64s(t, &data)
    };
    types.iter().enumerate().map(&mut one).collect()
}

/// Recognises; the numbers must stay whatever was found.
fn recognised(sp: &Spelling) -> (Module, Report, usize, usize) {
    let before = losses(sp);
    msc_ir::verify::verify(&before).expect("a valid program");
    let mut after = before.clone();
    let entry = after.entry().expect("an entry").graph;
    let report = recognise_graph(&mut after, entry).expect("recognises");
    msc_ir::verify::verify(&after).unwrap_or_else(|e| panic!("{sp:?}: {e}\n{}", text::print(&after)));
    assert_eq!(text::print(&text::parse(&text::print(&after)).expect("parses")), text::print(&after));
    let types = before.graph(entry).param_types();
    if sp.length < 100 {
        for seed in [1, 2] {
            let inputs = inputs(sp, &types, seed);
            assert_same_numbers(&before, &after, entry, &inputs, Mode::Wide, 1e-6);
            let of = |m: &Module| run(m, entry, &inputs, Mode::Wide).expect("runs");
            for (a, b) in of(&before).iter().zip(&of(&after)) {
                let nan = |t: &Tensor| t.data.to_f64s().iter().map(|x| x.is_nan()).collect::<Vec<_>>();
                assert_eq!(nan(a), nan(b), "{sp:?}");
            }
        }
    }
    let counts = (sites(&report, "cross_entropy"), sites(&report, "cross_entropy_grad"));
    (after, report, counts.0, counts.1)
}

fn found(sp: &Spelling) -> (Module, Report) {
    let (module, report, forward, backward) = recognised(sp);
    let refused = &report.regions[0].refused;
    let gradient = usize::from(sp.gradient != Gradient::None);
    assert_eq!((forward, backward), (1, gradient), "{sp:?}: {refused:?}\n{}", text::print(&module));
    if sp.length < 100 {
        assert_reasons_hold(&module, &report, 4e-6);
    }
    // Nothing as large as the logits is left but their gradient.
    let entry = module.graph(module.entry().expect("an entry").graph);
    for (_, op) in entry.ops().filter(|(_, d)| !matches!(d.op, Op::Fused(_))) {
        for &v in &op.results {
            let ty = entry.ty(v);
            let wide = 2 * sp.length * sp.vocabulary;
            assert!(ty.elements() < wide, "{sp:?}: {} of {ty} is left", op.op.name());
        }
    }
    (module, report)
}

fn kinds(report: &Report) -> Vec<FusedKind> {
    report.regions[0].reasons.iter().map(|r| r.fused.kind.clone()).collect()
}

#[test]
fn every_spelling_with_its_gradient() {
    use Gradient::{Automatic, Direct, Scattered};
    let mut all = Vec::new();
    for (pick, gradient) in [
        (Pick::Guarded, Scattered),
        (Pick::Clamped, Scattered),
        (Pick::OneHot, Direct),
        (Pick::OneHot, Automatic),
        (Pick::Selected, Direct),
        (Pick::Guarded, Direct),
    ] {
        for flat in [false, true] {
            for weights in [Weights::Mean, Weights::Rows, Weights::Over] {
                all.push(Spelling { pick, gradient, flat, weights, ..PLAIN });
            }
        }
        all.push(Spelling { pick, gradient, weights: Weights::Columns, ..PLAIN });
        all.push(Spelling { pick, gradient, weights: Weights::One, ..PLAIN });
        all.push(Spelling { pick, gradient, shifted: false, ..PLAIN });
        all.push(Spelling { pick, gradient: Gradient::None, ..PLAIN });
    }
    all.push(Spelling { labels: DType::I64, ..PLAIN });
    all.push(Spelling { labels: DType::U32, pick: Pick::OneHot, gradient: Direct, ..PLAIN });
    for sp in &all {
        found(sp);
    }
}

/// What labels outside stand for is read from the program.
#[test]
fn labels_outside_are_what_the_program_says() {
    let kinds_of = |pick, gradient, weights| kinds(&found(&Spelling { pick, gradient, weights, ..PLAIN }).1);
    let smoothing = Smoothing::None;
    let ce = |outside| FusedKind::CrossEntropy { outside, smoothing };
    let normalizer = Normalizer::Same;
    let grad = |outside, weight| FusedKind::CrossEntropyGrad { outside, weight, normalizer, smoothing };
    use Weighting::{Over, Times};
    assert_eq!(
        kinds_of(Pick::Guarded, Gradient::Scattered, Weights::Rows),
        [ce(Outside::Nan), grad(Outside::Nothing, Times)]
    );
    assert_eq!(
        kinds_of(Pick::Clamped, Gradient::Scattered, Weights::Mean),
        [ce(Outside::Nearest), grad(Outside::Nothing, Times)]
    );
    assert_eq!(kinds_of(Pick::OneHot, Gradient::Automatic, Weights::Over)[0], ce(Outside::Zero));
    assert!(matches!(
        kinds_of(Pick::OneHot, Gradient::Automatic, Weights::Over)[1],
        FusedKind::CrossEntropyGrad { outside: Outside::Zero, weight: Over | Times, .. }
    ));
    assert_eq!(
        kinds_of(Pick::Selected, Gradient::Direct, Weights::Rows),
        [ce(Outside::Nothing), grad(Outside::Nothing, Times)]
    );
}

/// A function of the normalizer beside the loss: its gradient weights the softmax alone.
#[test]
fn a_loss_of_the_normalizer_beside() {
    for (pick, gradient, expected) in [
        (Pick::Guarded, Gradient::Scattered, Normalizer::Own),
        (Pick::OneHot, Gradient::Direct, Normalizer::Scaled),
    ] {
        for weights in [Weights::Mean, Weights::Rows, Weights::Over] {
            let sp = Spelling { pick, gradient, weights, squared: true, ..PLAIN };
            let (_, report) = found(&sp);
            let is = |k: &FusedKind| matches!(k, FusedKind::CrossEntropyGrad { normalizer, .. } if *normalizer == expected);
            assert!(kinds(&report).iter().any(is), "{sp:?}: {:?}", kinds(&report));
        }
        let sp = Spelling { pick, gradient, squared: true, ..PLAIN };
        for fault in [Fault::Sign, Fault::Unnormalised, Fault::RowShift, Fault::PlaceShift, Fault::LabelOnly]
        {
            let (_, report, forward, backward) = recognised(&Spelling { fault, ..sp });
            assert_eq!((forward, backward), (1, 0), "{fault:?} of {sp:?}: {:?}", kinds(&report));
        }
    }
}

/// Losses against all labels beside: mixed into the loss, or apart with weights of their own.
#[test]
fn smoothed_labels() {
    for smoothed in [Smoothed::Mixed, Smoothed::Apart] {
        let plain = Spelling { pick: Pick::OneHot, gradient: Gradient::Automatic, smoothed, ..PLAIN };
        let mut all = vec![plain, Spelling { flat: true, ..plain }];
        all.push(Spelling { gradient: Gradient::None, ..plain });
        all.push(Spelling { vocabulary: 997, length: 128, ..plain });
        if smoothed == Smoothed::Mixed {
            all.extend([Weights::Mean, Weights::One].map(|weights| Spelling { weights, ..plain }));
            all.push(Spelling { dtype: DType::BF16, ..plain });
        }
        for sp in &all {
            let (_, report) = found(sp);
            for kind in kinds(&report) {
                let (FusedKind::CrossEntropy { smoothing, .. }
                | FusedKind::CrossEntropyGrad { smoothing, .. }) = kind
                else {
                    continue;
                };
                let fits = match smoothing {
                    Smoothing::None => false,
                    Smoothing::Apart => smoothed == Smoothed::Apart,
                    Smoothing::Mixed { label, each } => {
                        let n = sp.vocabulary as f64;
                        (label.get() - 0.9).abs() < 1e-6 && (each.get() - 0.1 / n).abs() < 1e-6
                    }
                };
                assert!(fits, "{sp:?}: {smoothing:?}");
            }
        }
        for fault in [Fault::Twice, Fault::NoLog, Fault::FromOne] {
            let (_, report, forward, _) = recognised(&Spelling { fault, ..plain });
            assert!(forward == 0 || smoothed == Smoothed::Apart, "{fault:?}: {:?}", kinds(&report));
        }
        for fault in [Fault::Sign, Fault::Unnormalised, Fault::PlaceShift, Fault::RowShift, Fault::LabelOnly]
        {
            let (_, report, forward, backward) = recognised(&Spelling { fault, ..plain });
            assert_eq!((forward, backward), (1, 0), "{fault:?} of {smoothed:?}: {:?}", kinds(&report));
        }
    }
}

/// Logits in bf16, computed in f32: the ops take and give bf16, and round where the program does.
#[test]
fn narrow_logits_stay_narrow() {
    for (pick, gradient) in [(Pick::Guarded, Gradient::Scattered), (Pick::OneHot, Gradient::Direct)] {
        let sp = Spelling { dtype: DType::BF16, pick, gradient, ..PLAIN };
        let (after, _) = found(&sp);
        let before = losses(&sp);
        let entry = before.entry().expect("an entry").graph;
        let inputs = inputs(&sp, &before.graph(entry).param_types(), 3);
        let a = run(&before, entry, &inputs, Mode::Spec).expect("runs");
        let b = run(&after, after.entry().expect("an entry").graph, &inputs, Mode::Spec).expect("runs");
        let (x, y) = (a[1].data.to_f64s(), b[1].data.to_f64s());
        let same = x.iter().zip(&y).filter(|(p, q)| p == q).count();
        assert!(same as f64 >= 0.95 * x.len() as f64, "{sp:?}: {same} of {} agree", x.len());
    }
}

#[test]
fn near_misses_are_not_found() {
    let spellings = [
        (Pick::Guarded, Gradient::Scattered),
        (Pick::Clamped, Gradient::Scattered),
        (Pick::OneHot, Gradient::Direct),
        (Pick::OneHot, Gradient::Automatic),
        (Pick::Selected, Gradient::Direct),
    ];
    let mut tried = 0;
    for (pick, gradient) in spellings {
        for flat in [false, true] {
            let sp = Spelling { pick, gradient, flat, ..PLAIN };
            let mut none = vec![Fault::SquaredSum, Fault::Twice, Fault::NoLog];
            match pick {
                Pick::Guarded => none.push(Fault::Bound),
                Pick::OneHot | Pick::Selected => none.push(Fault::FromOne),
                Pick::Clamped => {}
            }
            for fault in none {
                let (_, report, forward, _) = recognised(&Spelling { fault, ..sp });
                assert_eq!(forward, 0, "{fault:?} of {sp:?}: {:?}", kinds(&report));
                tried += 1;
            }
            // The forward is one, its gradient is not.
            for fault in [
                Fault::Sign,
                Fault::Unnormalised,
                Fault::WeightTwice,
                Fault::RowShift,
                Fault::PlaceShift,
                Fault::LabelOnly,
            ] {
                let (_, report, forward, backward) = recognised(&Spelling { fault, ..sp });
                assert_eq!((forward, backward), (1, 0), "{fault:?} of {sp:?}: {:?}", kinds(&report));
                tried += 1;
            }
        }
    }
    // A square matrix, so that sums over rows have the place of sums over columns.
    let square = Spelling { flat: true, length: 5, vocabulary: 10, pick: Pick::OneHot, ..PLAIN };
    let other = Spelling { fault: Fault::OtherAxis, gradient: Gradient::None, ..square };
    let (_, report, forward, _) = recognised(&other);
    assert_eq!(forward, 0, "{:?}", kinds(&report));
    assert!(tried >= 90, "{tried} near misses");
}

/// Beyond the sizes that are tried as they stand: bounds and places are the vocabulary's at any size.
#[test]
fn large_vocabularies_are_tried_at_small_sizes() {
    let large = Spelling { vocabulary: 997, length: 128, ..PLAIN };
    for (pick, gradient) in [(Pick::Guarded, Gradient::Scattered), (Pick::OneHot, Gradient::Direct)] {
        let sp = Spelling { pick, gradient, ..large };
        found(&sp);
        let none = if pick == Pick::Guarded { Fault::Bound } else { Fault::FromOne };
        let (_, report, forward, _) = recognised(&Spelling { fault: none, ..sp });
        assert_eq!(forward, 0, "{:?}", kinds(&report));
        for fault in [Fault::Sign, Fault::PlaceShift, Fault::RowShift] {
            let (_, report, forward, backward) = recognised(&Spelling { fault, ..sp });
            assert_eq!((forward, backward), (1, 0), "{fault:?}: {:?}", kinds(&report));
        }
    }
}

/// Rows can be split; the op is then the same on fewer of them. The vocabulary is needed whole, see
/// `msc_passes::partition` for what is done about that.
#[test]
fn rows_split() {
    let (module, _) = found(&PLAIN);
    let graph = module.graph(module.entry().expect("an entry").graph);
    let mut seen = 0;
    for (f, rule) in recognised::fused_rules(&module, graph) {
        for d in [0, 1] {
            for &factor in &rule.operands[0][d] {
                assert_eq!(rule.factors[factor].kind, FactorKind::Pass, "{} dimension {d}", f.kind.name());
                assert!(rule.operands.iter().chain(&rule.results).all(|o| o[d].contains(&factor)));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 4);
}

/// Where the forward is computed again for the gradient's sake (rematerialization), the loss is not.
#[test]
fn a_gradient_without_the_loss() {
    for pick in [Pick::Guarded, Pick::Selected, Pick::OneHot] {
        let gradient = if pick == Pick::Guarded { Gradient::Scattered } else { Gradient::Direct };
        let sp = Spelling { pick, gradient, ..PLAIN };
        let mut before = losses(&sp);
        let entry = before.entry().expect("an entry").graph;
        let mut graph = before.take_graph(entry);
        let wide = 2 * sp.length * sp.vocabulary;
        let results: Vec<ValueId> =
            graph.results().iter().copied().filter(|&v| graph.ty(v).elements() == wide).collect();
        assert_eq!(results.len(), 1, "{sp:?}");
        graph.set_results(results);
        before.set_graph(entry, graph);
        before.entries[0].results.truncate(1);
        simplify(&mut before).expect("simplifies");
        let mut after = before.clone();
        let report = recognise_graph(&mut after, entry).expect("recognises");
        let counts = (sites(&report, "cross_entropy"), sites(&report, "cross_entropy_grad"));
        assert_eq!(counts, (1, 1), "{sp:?}: {:?}\n{}", report.regions[0].refused, text::print(&after));
        let inputs = inputs(&sp, &before.graph(entry).param_types(), 3);
        assert_same_numbers(&before, &after, entry, &inputs, Mode::Wide, 1e-6);
    }
}
