//! The comparison with a reference notices mistakes in a step. The whole table: `make oracle-mutants`.

use msc_ir::ops::binary::BinaryKind;
use msc_tests::fixture;
use msc_tests::mutants::edit::{Change, make};
use msc_tests::mutants::facts::{Facts, Role};
use msc_tests::mutants::judge::{Verdict, judge};
use msc_tests::mutants::subject::Subject;
use msc_tests::mutants::table::{Budget, run};
use msc_tests::mutants::{Mutant, mutants};

fn subject(name: &str) -> Subject {
    Subject::open(&fixture(name)).expect("the fixture runs")
}

/// One of each family: none is missed, and the families that a model of this kind has are found.
fn few_of(name: &str, families: &[&str]) {
    let s = subject(name);
    assert!(s.baseline.passed(), "{}", s.baseline.render(5));
    let c = run(&s, &Budget { per_family: 1, generic: 10, seed: 3, threads: 2 });
    let missed: Vec<String> =
        c.missed().map(|o| format!("{}, {}: {:?}", o.family, o.site, o.verdict)).collect();
    assert!(missed.is_empty(), "{name}:\n{}", missed.join("\n"));
    assert!(c.caught() >= 30, "{name}: only {} are caught", c.caught());
    for family in families {
        let caught = |o: &msc_tests::mutants::table::Outcome| matches!(o.verdict, Verdict::Caught(..));
        assert!(
            c.outcomes.iter().any(|o| o.family == *family && caught(o)),
            "{name}: no `{family}` is caught"
        );
    }
}

#[test]
fn of_a_step_by_jax() {
    few_of(
        "llama_lora",
        &[
            "betas swapped",
            "no weight decay",
            "one gradient zeroed",
            "loss: sum for mean",
            "scale missing",
            "mask off by one",
            "RoPE sign",
            "RoPE halves swapped",
            "wrong group of heads",
            "eps outside the root",
            "residual missing",
            "microbatch lost",
            "state unchanged",
            "moments unchanged",
        ],
    );
}

#[test]
fn of_a_step_by_pytorch() {
    few_of(
        "llama_torchxla_tiny_const",
        &[
            "betas swapped",
            "no weight decay",
            "no clip",
            "one gradient doubled",
            "one gradient transposed",
            "scale missing",
            "RoPE sign",
            "wrong group of heads",
            "weight of another norm",
            "residual missing",
            "step count unchanged",
        ],
    );
}

/// The judge tells apart what it must: mutations of known size of one weight's update.
#[test]
fn verdicts() {
    let s = subject("llama_lora");
    let f = Facts::new(&s, s.entry.graph);
    let states = f.states();
    let w = states.iter().find(|s| s.role == Role::Weight).expect("a weight");
    let p = f.graph.params()[w.param];
    let of = |family: &'static str, by: f64| -> Verdict {
        let update = make(move |e, v| {
            let old = e.get(p)?;
            let moved = e.op(BinaryKind::Subtract, &[v, old])?;
            let more = e.with(BinaryKind::Multiply, moved, by)?;
            e.op(BinaryKind::Add, &[v, more])
        });
        let changes = vec![Change::Result(w.result, update)];
        judge(&s, &Mutant { family, site: String::new(), graph: f.id, changes, rounds: false })
    };
    let scaled = |by: f64| of("any: scaled", by);
    assert!(matches!(scaled(1.0), Verdict::Caught(..)), "{:?}", scaled(1.0));
    assert!(matches!(scaled(1e-3), Verdict::Caught(..)), "{:?}", scaled(1e-3));
    assert!(matches!(scaled(1e-9), Verdict::BelowRounding(_)), "{:?}", scaled(1e-9));
    assert!(matches!(scaled(0.0), Verdict::Equivalent(_)), "{:?}", scaled(0.0));
    // A mistake that is not small by nature is missed, however little it changes.
    assert!(matches!(of("scaled", 1e-3), Verdict::Caught(..)));
    assert!(matches!(of("scaled", 1e-9), Verdict::Missed(..)));
    assert!(matches!(of("scaled", 0.0), Verdict::Equivalent(_)));
    let wrong = Mutant {
        family: "",
        site: String::new(),
        graph: f.id,
        changes: vec![Change::Result(
            w.result,
            make(move |e, _| e.constant(&msc_ir::Tensor::scalar(msc_ir::DType::F32, 1.0))),
        )],
        rounds: false,
    };
    assert!(matches!(judge(&s, &wrong), Verdict::Inapplicable(_)));
}

/// Running only what a change reaches gives what running all gives.
#[test]
fn partial_runs_are_whole_runs() {
    use msc_ir::interp::{Mode, run as interpret};
    let s = subject("llama_lora");
    let all = mutants(&s, 1, 4, 9);
    for m in all.iter().step_by(9) {
        let mut module = s.module.clone();
        let Ok(edited) = msc_tests::mutants::edit::apply(&mut module, m.graph, &m.changes) else { continue };
        for mode in [Mode::Spec, Mode::Wide] {
            let part = s.run(&module, m.graph, &edited, mode).expect("runs");
            let mut whole = module.clone();
            whole.set_graph(m.graph, edited.graph.clone());
            msc_ir::verify::verify(&whole).expect("a mutant is a sound module");
            let whole = interpret(&whole, s.entry.graph, &s.inputs, mode).expect("runs");
            for (a, b) in part.iter().zip(&whole) {
                assert_eq!(a.data.bytes(), b.data.bytes(), "{}, {}", m.family, m.site);
            }
        }
    }
}
