//! What tests of recognition share: recognising a text, with its numbers and its reasons checked.

#![allow(dead_code)]

use msc_ir::factor::FactorRule;
use msc_ir::interp::{Mode, run};
use msc_ir::ops::fused::Fused;
use msc_ir::{Graph, GraphId, Module, Op, OpData, Operation, Tensor, TensorType, text};
use msc_passes::recognise::check::difference;
use msc_passes::recognise::check::random::Random;
use msc_passes::recognise::{Report, recognise_graph, replay};

/// How far numbers may be apart.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Of the program before and after, in each mode that is run.
    pub modes: &'static [(Mode, f64)],
    /// Of the two sides of a reason.
    pub replay: f64,
}

/// Recognises `@main`, checks the module, its text form, its numbers and its reasons.
pub fn recognised(source: &str, bounds: Bounds) -> (Module, Report) {
    let before = text::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    msc_ir::verify::verify(&before).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let mut after = before.clone();
    let main = after.graph_by_name("main").expect("main");
    let report = recognise_graph(&mut after, main).expect("recognises");
    let printed = text::print(&after);
    msc_ir::verify::verify(&after).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(text::print(&text::parse(&printed).expect("parses")), printed);
    let mut rng = Random::new(3);
    for &(mode, bound) in bounds.modes {
        let types = before.graph(main).param_types();
        let inputs: Vec<Tensor> = types.iter().map(|t| small(t, &mut rng)).collect();
        assert_same_numbers(&before, &after, main, &inputs, mode, bound);
    }
    assert_reasons_hold(&after, &report, bounds.replay);
    (after, report)
}

/// The text with values numbered in order: changes may add some of other names.
pub fn numbered(source: &str) -> String {
    let mut out = String::new();
    let mut names: Vec<String> = Vec::new();
    for (i, piece) in source.split('%').enumerate() {
        if i == 0 {
            out += piece;
            continue;
        }
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(piece.len());
        let at = names.iter().position(|n| n == &piece[..end]).unwrap_or_else(|| {
            names.push(piece[..end].to_string());
            names.len() - 1
        });
        out += &format!("%{at}{}", &piece[end..]);
        if piece.contains("graph @") {
            names.clear();
        }
    }
    out
}

/// How often an op was found.
pub fn sites(report: &Report, name: &str) -> usize {
    report.fusions.get(name).map_or(0, |f| f.sites)
}

/// A tensor of small numbers.
pub fn small(ty: &TensorType, rng: &mut Random) -> Tensor {
    Tensor::from_f64s(ty, &(0..ty.elements()).map(|_| rng.small()).collect::<Vec<_>>())
}

/// A graph computes the same in two modules.
pub fn assert_same_numbers(
    before: &Module,
    after: &Module,
    graph: GraphId,
    inputs: &[Tensor],
    mode: Mode,
    bound: f64,
) {
    let a = run(before, graph, inputs, mode).expect("runs");
    let b = run(after, graph, inputs, mode).expect("runs");
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        let d = difference(x, y);
        assert!(d < bound, "{mode:?}: output {i} differs by {d}\n{}", text::print(after));
    }
}

/// Every reason of a report of one region can be executed again.
pub fn assert_reasons_hold(after: &Module, report: &Report, bound: f64) {
    for r in report.regions.iter().flat_map(|r| &r.reasons) {
        let d = replay(after, &report.regions[0], r)
            .unwrap_or_else(|e| panic!("{e}: {r:?}\n{}", text::print(after)));
        assert!(d < bound, "{} differs by {d}", r.rule);
    }
}

/// The named ops of a graph with their factor rules.
pub fn fused_rules(module: &Module, graph: &Graph) -> Vec<(Fused, FactorRule)> {
    let rule = |data: &OpData| {
        let Op::Fused(f) = &data.op else { return None };
        let operands: Vec<&TensorType> = data.operands.iter().map(|&v| graph.ty(v)).collect();
        let results: Vec<TensorType> = data.results.iter().map(|&v| graph.ty(v).clone()).collect();
        Some(((**f).clone(), f.factor_rule(&operands, &results, module)))
    };
    graph.ops().filter_map(|(_, data)| rule(data)).collect()
}
