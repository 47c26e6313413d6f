//! Every family's random instances verify, print, parse back to the same op, and evaluate in both modes to the
//! types that inference says.

use msc_ir::interp::{EvalCx, Mode, run};
use msc_ir::testing::{Rng, families};
use msc_ir::{Graph, LocId, Operation, TensorType, text, verify};

#[test]
fn print_parse_and_evaluate() {
    for (family, generate) in families() {
        for seed in 0..200 {
            let case = generate(&mut Rng::new(seed));
            let mut m = case.module;
            let mut g = Graph::new("main");
            let params: Vec<_> = case.inputs.iter().map(|t| g.add_param(t.ty())).collect();
            let out = g
                .add(&m, case.op.clone(), &params, LocId::UNKNOWN)
                .unwrap_or_else(|e| panic!("{family}, seed {seed}: {e}\n{:?}", case.op));
            g.set_results(out.to_vec());
            let types = g.result_types();
            let id = m.add_graph(g);
            verify::verify(&m).unwrap_or_else(|e| panic!("{family}, seed {seed}: {e}"));
            let printed = text::print(&m);
            let back =
                text::parse(&printed).unwrap_or_else(|e| panic!("{family}, seed {seed}: {e}\n{printed}"));
            assert_eq!(text::print(&back), printed, "{family}, seed {seed}");
            let main = back.graph_by_name("main").expect("has @main");
            for mode in [Mode::Spec, Mode::Wide] {
                let a = run(&m, id, &case.inputs, mode);
                let a = a.unwrap_or_else(|e| panic!("{family}, seed {seed}: {e}\n{printed}"));
                let held: Vec<TensorType> = types.iter().map(|t| EvalCx::new(&m, mode, 0).held(t)).collect();
                assert_eq!(a.iter().map(|t| t.ty()).collect::<Vec<_>>(), held, "{family}, seed {seed}");
                assert_eq!(run(&back, main, &case.inputs, mode).as_ref(), Ok(&a), "{family}, seed {seed}");
            }
        }
    }
}

/// Ops are refused, never mis-read or a panic, when one operand is missing or of another type.
#[test]
fn wrong_operands_are_refused_or_inferred() {
    for (family, generate) in families() {
        let mut refused = 0;
        for seed in 0..100 {
            let mut r = Rng::new(seed);
            let case = generate(&mut r);
            let types: Vec<TensorType> = case.inputs.iter().map(|t| t.ty()).collect();
            for drop in 0..types.len() {
                let mut fewer: Vec<&TensorType> = types.iter().collect();
                fewer.remove(drop);
                refused += usize::from(case.op.infer(&fewer, &case.module).is_err());
                let mut other = types.clone();
                other[drop].shape.push(3);
                let refs: Vec<&TensorType> = other.iter().collect();
                refused += usize::from(case.op.infer(&refs, &case.module).is_err());
            }
        }
        // Those without operands have none to spoil, and a barrier takes what comes.
        let takes_any = matches!(family, "constant" | "iota" | "barrier");
        assert_eq!(refused > 0, !takes_any, "{family}");
    }
}
