//! Templates of a real step.

use msc_ir::interp::Mode;
use msc_passes::template::{ParamSource, Role, Segment};
use msc_passes::{simplify, template};
use msc_tests::{max_relative, run_split, step};

#[test]
fn the_layers_of_a_real_step_are_one_template() {
    let mut s = step("llama_torchax_tiny");
    simplify::simplify(&mut s.module).expect("simplifies");
    let flat = run_split(&s.module, &s.inputs, &s.outputs, Mode::Spec);
    let found = template::template(&mut s.module).expect("templates");
    msc_ir::verify::verify(&s.module).expect("verifies");
    for t in found.report(&s.module) {
        println!("{t:?}");
    }
    println!("{:?}", found.notes);
    let rows = run_split(&s.module, &s.inputs, &s.outputs, Mode::Spec);
    let worst = rows[0].iter().zip(&flat[0]).map(|(a, b)| max_relative(&a.1, &b.1)).fold(0.0, f64::max);
    assert_eq!(worst, 0.0, "outlining changes no bit");
    assert_eq!(found.templates[0].instances, 2);
    assert!(found.templates[0].segments.len() >= 2);
}

/// What a dense layer has in common with those behind it, which have experts and one expert more that looks like it, does
/// not make it one of them.
#[test]
fn a_dense_layer_before_those_with_experts() {
    let mut s = step("mla_shared_jax");
    simplify::simplify(&mut s.module).expect("simplifies");
    let found = template::template(&mut s.module).expect("templates");
    let [t] = found.templates.as_slice() else { panic!("{} templates", found.templates.len()) };
    let roles: Vec<Role> = t.segments.iter().map(|s| s.role).collect();
    assert_eq!((t.instances, roles), (3, vec![Role::Forward, Role::Backward]));
    // The residual stream, and what its gradient is a sum of.
    let carried = |s: &Segment| s.params.iter().filter(|p| matches!(p, ParamSource::Carry { .. })).count();
    assert_eq!(t.segments.iter().map(carried).collect::<Vec<_>>(), [1, 2]);
    assert!(found.notes.iter().any(|n| n.contains("before the first instance")), "{:?}", found.notes);
}
