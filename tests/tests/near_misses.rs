//! Near misses of named operations: none is taken for what it is not. The whole set: `make test-all`, or the binary
//! `near-misses`, which prints the table.

use msc_ir::Operation;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{Module, Op};
use msc_tests::fixture;
use msc_tests::mutants::subject::Subject;
use msc_tests::near::covers::Covers;
use msc_tests::near::judge::{Outcome, Recognised, Unchanged, judge, recognised};
use msc_tests::near::near_misses;
use msc_tests::near::table::{Budget, judged, made, markdown, wrong};

/// The fixtures with data.
const STEPS: [&str; 9] = [
    "llama_torchax_tiny",
    "llama_torchxla_tiny_const",
    "llama_lora",
    "llama_flax_scan_remat_tiny",
    "llama_maxtext_fsdp2_tp2_tiny",
    "gpt2_dropout_flax_tiny",
    "qwen2_torchax_bf16master_tiny",
    "moe_capacity_jax",
    "moe_ragged_jax",
];

fn subject(name: &str) -> Subject {
    Subject::open(&fixture(name)).expect("the fixture runs")
}

#[test]
fn a_sample() {
    let b = Budget { per_family: 1, generic: 2, seed: 5, every: 4, own: false, threads: 2 };
    let rows = judged(&subject("llama_lora"), &b).expect("the step itself passes");
    assert!(wrong(&rows).is_empty(), "{}", wrong(&rows).join("\n"));
    assert!(made(&rows) >= 8, "{}", markdown(&rows));
}

/// Of gates within bounds and what is rectified.
#[test]
fn of_gates() {
    let s = subject("gates_smoothed_jax");
    let found = recognised(s.module.clone()).expect("recognises").found();
    let unchanged = Unchanged { found, covers: Covers::new(&s).expect("covers") };
    let families = ["swish's factor", "a gate's bound", "ReLU's threshold"];
    let all = near_misses(&s, 1, 0, 5);
    for family in families {
        let n = all.iter().find(|n| n.mutant.family == family).expect("there is one");
        let outcome = judge(&s, n, &unchanged, false);
        assert!(!matches!(outcome, Outcome::Wrong(_)), "{family}: {outcome:?}");
    }
}

#[test]
#[ignore = "minutes"]
fn all_of_them() {
    let mut rows = Vec::new();
    for name in STEPS {
        let b = Budget { per_family: 1, generic: 6, seed: 5, every: 1, own: true, threads: 2 };
        rows.extend(judged(&subject(name), &b).expect("the step itself passes"));
    }
    println!("{}", markdown(&rows));
    let wrong = wrong(&rows);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(made(&rows) >= 200, "only {}", made(&rows));
}

/// The judge is judged: a definition that is not the operation's is noticed, by replay and by the whole step.
#[test]
fn a_wrong_definition_is_caught() {
    let s = subject("llama_lora");
    let good = recognised(s.module.clone()).expect("recognises");
    good.replay(1).expect("replays");
    good.compare(&s, true).expect("agrees");
    for (kind, from, to) in [("rms_norm", 1e-6, 2e-6), ("rms_norm", 64.0, 63.0)] {
        let mut bad = Recognised {
            before: good.before.clone(),
            after: good.after.clone(),
            report: good.report.clone(),
        };
        assert!(corrupt(&mut bad.after, kind, from, to) > 0, "{kind} has no {from}");
        let replay = bad.replay(1);
        assert!(replay.as_ref().is_err_and(|e| e.contains("rms-norm")), "{kind} {from}: {replay:?}");
        assert!(bad.compare(&s, false).is_err(), "{kind} {from}");
    }
}

/// Sets every constant of a value in the definitions of a kind; how many there were.
fn corrupt(m: &mut Module, kind: &str, from: f64, to: f64) -> usize {
    let fused = m.graphs().flat_map(|(_, g)| g.ops().map(|(_, d)| d.op.clone()).collect::<Vec<_>>());
    let definitions: Vec<_> = fused
        .filter_map(|op| match op {
            Op::Fused(f) if f.name() == kind => Some(f.definition),
            _ => None,
        })
        .collect();
    let mut changed = 0;
    for id in definitions {
        let old = m.graph(id).clone();
        let mut new = msc_ir::Graph::new(old.name.clone());
        let mut map: Vec<Option<msc_ir::ValueId>> = vec![None; old.value_count()];
        for &p in old.params() {
            map[p.0 as usize] = Some(new.add_param(old.ty(p).clone()));
        }
        for (op, d) in old.ops() {
            if let Op::Constant(ConstantOp { id }) = &d.op
                && m.constants.splat_value(*id).is_some_and(|v| (v - from).abs() < 1e-3 * from)
            {
                let id = m.constants.intern_splat(old.ty(d.results[0]).clone(), to);
                let v = new.add1(m, ConstantOp { id }, &[], d.loc).expect("a constant");
                map[d.results[0].0 as usize] = Some(v);
                changed += 1;
                continue;
            }
            new.copy_op(&old, op, &mut map).expect("copies");
        }
        new.set_results(old.results().iter().map(|r| map[r.0 as usize].expect("made")).collect());
        m.set_graph(id, new);
    }
    changed
}
