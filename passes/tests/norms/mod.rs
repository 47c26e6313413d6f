//! What tests of norms share: recognising a text, with its numbers and its reasons checked.

use msc_ir::interp::{Mode, run};
use msc_ir::{Module, Tensor, text};
use msc_passes::recognise::check::difference;
use msc_passes::recognise::check::random::Random;
use msc_passes::recognise::{Report, recognise_graph, replay};

/// Recognises, checks the module and its numbers, and returns how often both kinds were found.
pub fn recognised(source: &str, kinds: [&str; 2]) -> ((usize, usize), Module, Report) {
    let before = text::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let mut after = before.clone();
    let main = after.graph_by_name("main").expect("main");
    let report = recognise_graph(&mut after, main).expect("recognises");
    msc_ir::verify::verify(&after).expect("verifies");
    let mut rng = Random::new(3);
    for mode in [Mode::Spec, Mode::Wide] {
        let inputs: Vec<Tensor> = before
            .graph(main)
            .param_types()
            .iter()
            .map(|t| Tensor::from_f64s(t, &(0..t.elements()).map(|_| rng.small()).collect::<Vec<_>>()))
            .collect();
        let a = run(&before, main, &inputs, mode).expect("runs");
        let b = run(&after, main, &inputs, mode).expect("runs");
        for (x, y) in a.iter().zip(&b) {
            // Summation order in f32; literals rounded to f32 in wide mode.
            assert!(difference(x, y) < 4e-6, "{mode:?}: {}", text::print(&after));
        }
    }
    let sites = |n: &str| report.fusions.get(n).map_or(0, |f| f.sites);
    let found = (sites(kinds[0]), sites(kinds[1]));
    for r in report.regions.iter().flat_map(|r| &r.reasons) {
        let d = replay(&after, &report.regions[0], r).expect("the reason can be replayed");
        assert!(d < 4e-6, "{}: {d}", r.rule);
    }
    (found, after, report)
}
