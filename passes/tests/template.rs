//! Templates of made-up models: depth, order, alternation, differences, and nothing to find.

mod graphs;

use graphs::layers::{Layer, shuffled, step, uniform};
use graphs::{Random, assert_same, inputs, plain_tensor, random_module};
use msc_ir::ops::unary::UnaryKind;
use msc_ir::verify::verify;
use msc_ir::{Module, text};
use msc_passes::simplify::simplify;
use msc_passes::template::{ParamSource, Role, Template, Templates, template};

/// Runs both passes, checks every bit, and returns the outlined module and what was found.
fn outlined(before: &Module) -> (Module, Templates) {
    let mut after = before.clone();
    simplify(&mut after).expect("simplifies");
    let found = template(&mut after).expect("templates");
    verify(&after).expect("verifies");
    assert_same(before, &after, &inputs(before, &mut Random::new(3), plain_tensor));
    (after, found)
}

fn shape(t: &Template) -> (usize, Vec<Role>) {
    (t.instances, t.segments.iter().map(|s| s.role).collect())
}

const STEP: [Role; 3] = [Role::Forward, Role::Backward, Role::Update];

/// How many values each instance hands to the next of the same segment.
fn carried(t: &Template) -> Vec<usize> {
    let own = |at: usize, p: &ParamSource| matches!(p, ParamSource::Carry { segment, .. } if *segment == at);
    t.segments.iter().enumerate().map(|(at, s)| s.params.iter().filter(|p| own(at, p)).count()).collect()
}

#[test]
fn equal_layers_are_one_template_at_any_depth() {
    let mut texts = Vec::new();
    for n in [2, 3, 7, 12] {
        let (m, found) = outlined(&uniform(n));
        let [t] = &found.templates[..] else { panic!("{n} layers: {found:?}") };
        assert_eq!(shape(t), (n, STEP.to_vec()));
        assert_eq!(carried(t), [1, 1, 0]);
        let own = |s: usize| t.segments[s].params.iter().filter(|p| **p == ParamSource::Instance).count();
        assert_eq!((own(0), own(2)), (3, 6), "weights; weights and moments");
        assert_eq!(found.notes, Vec::<String>::new());
        let graphs = t.segments.iter().map(|s| text::print_graph(&m, m.graph(s.graph), Default::default()));
        texts.push(graphs.collect::<Vec<_>>());
    }
    assert!(texts.windows(2).all(|w| w[0] == w[1]), "the layer depends on the depth");
}

#[test]
fn the_segments_are_what_a_reader_expects() {
    let (m, found) = outlined(&uniform(3));
    let graphs: Vec<String> = found.templates[0]
        .segments
        .iter()
        .map(|s| text::print_graph(&m, m.graph(s.graph), Default::default()))
        .collect();
    insta::assert_snapshot!(graphs.join("\n"));
}

#[test]
fn order_does_not_matter() {
    let plain = uniform(4);
    for seed in 0..12 {
        let (_, found) = outlined(&shuffled(&plain, seed));
        let [t] = &found.templates[..] else { panic!("seed {seed}: {:?}", found.notes) };
        assert_eq!(shape(t), (4, STEP.to_vec()), "seed {seed}");
        assert_eq!(carried(t), [1, 1, 0], "seed {seed}");
    }
}

/// `layers.0, layers.1, layers.10, layers.11, layers.2, …`, as sorted names give it.
#[test]
fn parameters_in_the_order_of_their_names() {
    let n = 13;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(usize::to_string);
    let (_, found) = outlined(&step(&vec![Layer::default(); n], &order));
    let [t] = &found.templates[..] else { panic!("{:?}", found.notes) };
    assert_eq!(shape(t), (n, STEP.to_vec()));
}

#[test]
fn a_scalar_that_differs_is_a_parameter() {
    let layers: Vec<Layer> =
        (2..=5).map(|i| Layer { scale: 1.0 / f64::from(i), ..Layer::default() }).collect();
    let (m, found) = outlined(&step(&layers, &[0, 1, 2, 3]));
    let [t] = &found.templates[..] else { panic!("{:?}", found.notes) };
    assert_eq!(shape(t), (4, STEP.to_vec()));
    let g = m.graph(t.segments[0].graph);
    let scalar =
        |i: usize| g.ty(g.params()[i]).rank() == 0 && t.segments[0].params[i] == ParamSource::Instance;
    assert_eq!((0..g.params().len()).filter(|&i| scalar(i)).count(), 1);
}

#[test]
fn alternating_tables_and_alternating_layers_are_one_template_of_two() {
    let masks = |i: usize| Layer { mask: 2 + i % 2, ..Layer::default() };
    let square = |i: usize| Layer { square: i % 2 == 1, ..Layer::default() };
    let kinds: [&dyn Fn(usize) -> Layer; 2] = [&masks, &square];
    for kind in kinds {
        let layers: Vec<Layer> = (0..6).map(kind).collect();
        let (m, found) = outlined(&step(&layers, &[0, 1, 2, 3, 4, 5]));
        let [t] = &found.templates[..] else { panic!("{found:?}") };
        assert_eq!(shape(t), (3, STEP.to_vec()));
        assert_eq!(carried(t), [1, 1, 0]);
        // Each layer of the pair knows its own mask: no parameter is a table of booleans or integers that differs.
        let g = m.graph(t.segments[0].graph);
        for (p, source) in g.params().iter().zip(&t.segments[0].params) {
            assert!(g.ty(*p).dtype.is_float() || *source == ParamSource::Shared, "{source:?}");
        }
    }
}

#[test]
fn what_all_layers_share_is_computed_once() {
    let layers = vec![Layer { mask: 3, ..Layer::default() }; 3];
    let (m, found) = outlined(&step(&layers, &[0, 1, 2]));
    let entry = m.graph(m.entry().expect("entry").graph);
    let compares =
        m.graphs().flat_map(|(_, g)| g.ops()).filter(|(_, d)| matches!(d.op, msc_ir::Op::Compare(_)));
    assert_eq!(compares.count(), 1, "the mask");
    let first: Vec<_> = entry.order()[..found.prologue.len()].to_vec();
    assert_eq!(first, found.prologue, "the prologue comes first");
    assert!(found.prologue.iter().any(|&op| matches!(entry.op(op).op, msc_ir::Op::Compare(_))));
}

/// In the sum over all gradients' squares the last norm's weight stands where a layer before the first would have its
/// second norm's; the last norm is no part of it.
#[test]
fn layers_of_two_norms_of_one_value_are_one_template() {
    for n in [2, 3, 5] {
        let layers = vec![Layer { parallel: true, ..Layer::default() }; n];
        let (_, found) = outlined(&step(&layers, &(0..n).collect::<Vec<_>>()));
        let [t] = &found.templates[..] else { panic!("{n} layers: {found:?}") };
        assert_eq!(shape(t), (n, STEP.to_vec()), "{n} layers");
        let own = |s: usize| t.segments[s].params.iter().filter(|p| **p == ParamSource::Instance).count();
        assert_eq!((own(0), own(2)), (4, 8), "weights; weights and moments");
    }
}

#[test]
fn a_few_layers_of_another_kind_first_are_a_template_of_their_own() {
    let layers: Vec<Layer> = (0..7).map(|i| Layer { square: i >= 2, ..Layer::default() }).collect();
    let (_, found) = outlined(&step(&layers, &[0, 1, 2, 3, 4, 5, 6]));
    let shapes: Vec<_> = found.templates.iter().map(shape).collect();
    assert_eq!(shapes, [(5, STEP.to_vec()), (2, STEP.to_vec())]);
}

#[test]
fn a_first_layer_that_differs_is_explained() {
    let mut layers = vec![Layer::default(); 5];
    layers[0].activation = UnaryKind::Logistic;
    let (_, found) = outlined(&step(&layers, &[0, 1, 2, 3, 4]));
    let [t] = &found.templates[..] else { panic!("{:?}", found.notes) };
    assert_eq!(shape(t), (4, STEP.to_vec()));
    let note = found.notes.join("\n");
    assert!(
        note.contains("before the first") && note.contains("`logistic` at model:") && note.contains("`tanh`"),
        "{note}"
    );
}

/// The layer at an end has everything that the others have, and an op between that they have not.
#[test]
fn a_layer_at_an_end_with_more_is_outside() {
    for (at, which) in [(0, "before the first"), (4, "after the last")] {
        let mut layers = vec![Layer::default(); 5];
        layers[at].biased = true;
        let (_, found) = outlined(&step(&layers, &[0, 1, 2, 3, 4]));
        let [t] = &found.templates[..] else { panic!("{:?}", found.notes) };
        assert_eq!(shape(t), (4, STEP.to_vec()));
        assert!(found.notes.iter().any(|n| n.contains(which)), "{:?}", found.notes);
    }
}

#[test]
fn two_layers_that_differ_are_no_template_and_the_difference_is_named() {
    let layers = [Layer::default(), Layer { activation: UnaryKind::Logistic, ..Layer::default() }];
    let (m, found) = outlined(&step(&layers, &[0, 1]));
    assert_eq!(found.templates, []);
    assert!(m.graphs().all(|(_, g)| g.ops().all(|(_, d)| !matches!(d.op, msc_ir::Op::Call(_)))));
    let note = found.notes.join("\n");
    assert!(note.contains("`tanh` at model:") && note.contains("`logistic` at model:"), "{note}");
}

#[test]
fn one_layer_is_no_template() {
    let (_, found) = outlined(&uniform(1));
    assert_eq!(found.templates, []);
}

#[test]
fn random_graphs_keep_every_bit() {
    for seed in 0..100 {
        let before = random_module(seed, 80);
        let mut after = before.clone();
        simplify(&mut after).expect("simplifies");
        template(&mut after).expect("templates");
        verify(&after).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_same(&before, &after, &inputs(&before, &mut Random::new(seed), plain_tensor));
    }
}

#[test]
fn the_result_is_a_function_of_the_program() {
    let print = || {
        let (m, _) = outlined(&uniform(5));
        text::print(&m)
    };
    let first = print();
    assert!((0..3).all(|_| print() == first));
}
