//! Attention: spellings that are found with their gradients, near misses that are not found wrongly, what crosses
//! the border of the named ops, and which dimensions of them can be split.

#[path = "graphs/attention.rs"]
#[allow(dead_code)]
mod attention;
mod recognised;

use attention::{Fault, Mask, PLAIN, Scale, Spelling, attention};
use msc_ir::interp::{Mode, run};
use msc_ir::ops::attention::ScoreStep;
use msc_ir::ops::fused::FusedKind;
use msc_ir::{DType, FactorKind, Module, Operation, Tensor, TensorType, text};
use msc_passes::recognise::check::random::Random;
use msc_passes::recognise::{Report, recognise_graph};
use recognised::{assert_reasons_hold, assert_same_numbers, sites};

fn inputs(types: &[TensorType], seed: u64) -> Vec<Tensor> {
    let mut rng = Random::new(seed);
    let mut one = |t: &TensorType| {
        let float = t.dtype.is_float();
        let data: Vec<f64> = (0..t.elements())
            .map(|_| if float { rng.small() } else { f64::from(u8::from(rng.chance(70))) })
            .collect();
        Tensor::from_f64s(t, &data)
    };
    types.iter().map(&mut one).collect()
}

/// Recognises; the numbers must stay whatever was found.
fn recognised(sp: &Spelling) -> (Module, Report, usize, usize) {
    let before = attention(sp);
    msc_ir::verify::verify(&before).expect("a valid program");
    let mut after = before.clone();
    let entry = after.entry().expect("an entry").graph;
    let report = recognise_graph(&mut after, entry).expect("recognises");
    msc_ir::verify::verify(&after).unwrap_or_else(|e| panic!("{sp:?}: {e}\n{}", text::print(&after)));
    assert_eq!(text::print(&text::parse(&text::print(&after)).expect("parses")), text::print(&after));
    let types = before.graph(entry).param_types();
    for seed in [1, 2] {
        // Scales that were combined are rounded to f32 once.
        assert_same_numbers(&before, &after, entry, &inputs(&types, seed), Mode::Wide, 1e-6);
    }
    let counts = (sites(&report, "attention"), sites(&report, "attention_grad"));
    (after, report, counts.0, counts.1)
}

fn found(sp: &Spelling) -> (Module, Report) {
    let (module, report, forward, backward) = recognised(sp);
    let refused = &report.regions[0].refused;
    assert_eq!((forward, backward), (1, usize::from(sp.gradient)), "{sp:?}: {refused:?}");
    assert_reasons_hold(&module, &report, 4e-6);
    // Nothing as large as the scores is left, but for layout of a mask that is an input.
    let scores = scores(sp);
    let entry = module.graph(module.entry().expect("an entry").graph);
    for (_, op) in entry.ops() {
        for &v in &op.results {
            let ty = entry.ty(v);
            assert!(ty.elements() < scores, "{sp:?}: {} of {ty} is left", op.op.name());
        }
    }
    (module, report)
}

/// Elements of the scores.
fn scores(sp: &Spelling) -> usize {
    2 * 3 * sp.group * sp.length * sp.length
}

#[test]
fn every_spelling_with_its_gradient() {
    let mut all = Vec::new();
    for scale in [Scale::Queries, Scale::Products, Scale::Divided, Scale::Split] {
        for (grouped, flat) in [(false, false), (false, true), (true, false)] {
            all.push(Spelling { scale, grouped, flat, ..PLAIN });
        }
    }
    for mask in [Mask::None, Mask::Window(3), Mask::Padding, Mask::Bias] {
        for (grouped, flat) in [(false, true), (true, false)] {
            all.push(Spelling { mask, grouped, flat, ..PLAIN });
        }
    }
    for cap in [false, true] {
        all.push(Spelling { cap, group: 1, ..PLAIN });
        all.push(Spelling { cap, mask: Mask::Window(2), scale: Scale::Queries, ..PLAIN });
    }
    all.push(Spelling { late: true, ..PLAIN });
    all.push(Spelling { late: true, grouped: true, mask: Mask::Window(4), ..PLAIN });
    all.push(Spelling { gradient: false, ..PLAIN });
    for sp in &all {
        found(sp);
    }
}

/// A sink is an operand, and its gradient a result.
#[test]
fn sinks_are_operands() {
    let plain = Spelling { sink: true, ..PLAIN };
    for sp in [
        plain,
        Spelling { flat: true, mask: Mask::Window(3), ..plain },
        Spelling { grouped: true, mask: Mask::Padding, ..plain },
        Spelling { group: 1, mask: Mask::Bias, ..plain },
        Spelling { ties: true, ..plain },
        Spelling { late: true, grouped: true, ..plain },
        Spelling { gradient: false, ..plain },
    ] {
        let (_, report) = found(&sp);
        let reasons = &report.regions[0].reasons;
        assert!(reasons[0].inputs.iter().any(|i| i.name == "sink"), "{sp:?}");
        let gradient = reasons.iter().flat_map(|r| &r.outputs).any(|o| o.name == "dsink");
        assert_eq!(gradient, sp.gradient, "{sp:?}");
    }
    // The sink of an exponential is another operand, and the numbers stay.
    found(&Spelling { fault: Fault::SinkOfExponential, gradient: false, ..plain });
    for (fault, counts) in [
        (Fault::SquaredSum, (0, 0)),
        (Fault::OtherAxis, (0, 0)),
        (Fault::GradientSign, (1, 0)),
        (Fault::GradientTwice, (1, 0)),
        (Fault::GradientOfKeys, (1, 0)),
    ] {
        let (_, _, forward, backward) = recognised(&Spelling { fault, ..plain });
        assert_eq!((forward, backward), counts, "{fault:?}");
    }
    // What is not the sink's gradient is left as it is.
    let (_, report, ..) = recognised(&Spelling { fault: Fault::SinkGradientSign, ..plain });
    let mut outputs = report.regions[0].reasons.iter().flat_map(|r| &r.outputs);
    assert!(outputs.any(|o| o.name == "dsink"), "it is one before it is negated");
}

/// Rounding stays where the program has it: the bits of most elements are the same.
#[test]
fn narrow_floats_keep_their_rounding() {
    let narrow = Spelling { dtype: DType::BF16, ..PLAIN };
    let plain = [(1, false), (2, true), (2, false)].map(|(group, flat)| Spelling { group, flat, ..narrow });
    let late = [false, true].map(|ties| Spelling { late: true, grouped: true, ties, ..narrow });
    let wide = [(1, false), (2, true), (2, false)].map(|(group, grouped)| Spelling {
        group,
        grouped,
        wide: true,
        ..narrow
    });
    for sp in plain.into_iter().chain(late).chain(wide) {
        let (after, report) = found(&sp);
        for r in &report.regions[0].reasons {
            let (FusedKind::Attention(form) | FusedKind::AttentionGrad { form, .. }) = &r.fused.kind else {
                continue;
            };
            assert_eq!(form.wide, sp.wide, "{sp:?}");
        }
        let before = attention(&sp);
        let entry = before.entry().expect("an entry").graph;
        let inputs = inputs(&before.graph(entry).param_types(), 3);
        let a = run(&before, entry, &inputs, Mode::Spec).expect("runs");
        let b = run(&after, after.entry().expect("an entry").graph, &inputs, Mode::Spec).expect("runs");
        for (x, y) in a.iter().zip(&b) {
            let (x, y) = (x.data.to_f64s(), y.data.to_f64s());
            let same = x.iter().zip(&y).filter(|(p, q)| p == q).count();
            assert!(same as f64 >= 0.95 * x.len() as f64, "{sp:?}: {same} of {} agree", x.len());
        }
    }
}

#[test]
fn masks_are_read_from_the_program() {
    let band = |sp: &Spelling| {
        let (_, report) = found(sp);
        let FusedKind::Attention(form) = &report.regions[0].reasons[0].fused.kind else {
            panic!("{:?}", report.regions[0].reasons)
        };
        let bands: Vec<_> = form
            .steps
            .iter()
            .filter_map(|s| match *s {
                ScoreStep::Band { lo, hi, add, .. } => Some((lo, hi, add)),
                _ => None,
            })
            .collect();
        (bands, form.operands())
    };
    assert_eq!(band(&PLAIN), (vec![(Some(0), None, true)], 0));
    // The query itself and those before it, n in all.
    for n in [1, 2, 3, 4] {
        let sp = Spelling { mask: Mask::Window(n), ..PLAIN };
        assert_eq!(band(&sp), (vec![(Some(0), Some(n - 1), false)], 0));
    }
    assert_eq!(band(&Spelling { mask: Mask::Padding, ..PLAIN }), (vec![], 1));
    assert_eq!(band(&Spelling { mask: Mask::None, ..PLAIN }), (vec![], 0));
}

#[test]
fn near_misses_are_not_found() {
    // Neither forward nor gradient.
    for fault in [Fault::OtherAxis, Fault::SquaredSum, Fault::ColumnShift] {
        for flat in [false, true] {
            let sp = Spelling { fault, flat, ..PLAIN };
            let (_, _, forward, backward) = recognised(&sp);
            assert_eq!((forward, backward), (0, 0), "{sp:?}");
        }
    }
    let (_, _, forward, backward) = recognised(&Spelling { fault: Fault::Tiled, ..PLAIN });
    assert_eq!((forward, backward), (0, 0), "values in another order of heads");
    // The forward is one, its gradient is not.
    for fault in [
        Fault::GradientWithoutScale,
        Fault::GradientScaleTwice,
        Fault::GradientSign,
        Fault::GradientOfKeys,
        Fault::GradientMask,
        Fault::GradientTwice,
    ] {
        for (grouped, flat) in [(false, false), (false, true), (true, false)] {
            for mask in [Mask::CausalAdd, Mask::Window(3)] {
                let sp = Spelling { fault, grouped, flat, mask, ..PLAIN };
                let (_, report, forward, backward) = recognised(&sp);
                assert_eq!((forward, backward), (1, 0), "{sp:?}");
                assert!(report.regions[0].refused.contains_key("attention-grad"), "{sp:?}");
            }
        }
    }
}

/// Where sizes are too large to be tried as they are, a mask of the gradient alone that smaller ones do not show is no
/// reason to believe in it; the forward's own mask is.
#[test]
fn masks_beyond_the_sizes_that_are_tried() {
    let long = Spelling { length: 64, group: 1, ..PLAIN };
    found(&Spelling { mask: Mask::Window(40), ..long });
    let (_, report, forward, backward) = recognised(&Spelling { fault: Fault::GradientWindow(40), ..long });
    assert_eq!((forward, backward), (1, 0), "{:?}", report.regions[0].refused);
}

/// In narrow floats the place of a division is part of what is found, and so is a gradient that is zero but for rounding.
#[test]
fn late_divisions_and_ties_are_attributes() {
    let forms = |ties: bool| -> Vec<(bool, bool)> {
        let sp = Spelling { dtype: DType::BF16, late: true, grouped: true, ties, ..PLAIN };
        let (_, report) = found(&sp);
        let form = |k: &FusedKind| match k {
            FusedKind::Attention(form) | FusedKind::AttentionGrad { form, .. } => (form.late, form.ties),
            other => panic!("{other:?}"),
        };
        report.regions[0].reasons.iter().map(|r| form(&r.fused.kind)).collect()
    };
    assert_eq!(forms(false), [(true, false), (true, false)]);
    assert_eq!(forms(true), [(true, false), (true, true)]);
    // The forward is one, its gradient is not.
    for fault in [Fault::GradientSign, Fault::GradientTwice, Fault::GradientOfKeys, Fault::GradientScaleTwice]
    {
        for ties in [false, true] {
            let sp = Spelling { dtype: DType::BF16, late: true, grouped: true, ties, fault, ..PLAIN };
            let (_, _, forward, backward) = recognised(&sp);
            assert_eq!((forward, backward), (1, 0), "{sp:?}");
        }
    }
}

/// Batch and heads of keys can be split; the op is then the same on fewer of them.
#[test]
fn batch_and_heads_split() {
    let (module, _) = found(&PLAIN);
    let graph = module.graph(module.entry().expect("an entry").graph);
    let mut seen = 0;
    for (f, rule) in recognised::fused_rules(&module, graph) {
        let (FusedKind::Attention(form) | FusedKind::AttentionGrad { form, .. }) = &f.kind else { continue };
        // Keys are operand 1: [B,K,T,h] or [B,T,K,h].
        for d in [0, form.layout.other().positions()] {
            for &factor in &rule.operands[1][d] {
                assert_eq!(rule.factors[factor].kind, FactorKind::Pass, "{} dimension {d}", f.kind.name());
                assert!(rule.operands.iter().filter(|o| o[d].contains(&factor)).count() >= 3);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 4);
}
