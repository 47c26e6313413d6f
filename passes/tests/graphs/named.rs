//! Programs written in named operations and spelled out in plain ones, to be recognised again.

use crate::recognised::{assert_reasons_hold, small};
use msc_ir::inline::inline;
use msc_ir::interp::{Mode, run};
use msc_ir::module::{Entry, ParamInfo, ResultInfo};
use msc_ir::ops::fused::{Fused, FusedKind};
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reshape::Reshape;
use msc_ir::{DType, Graph, LocId, Module, Op, Operation, Shape, Tensor, TensorType, ValueId, text};
use msc_passes::recognise::check::random::Random;
use msc_passes::recognise::{Report, recognise_graph};

/// A program under construction, in named ops that [`Program::finish`] spells out.
pub struct Program {
    pub module: Module,
    pub graph: Graph,
}

impl Program {
    pub fn new() -> Program {
        Program { module: Module::new("m"), graph: Graph::new("main") }
    }

    pub fn param(&mut self, shape: &[usize]) -> ValueId {
        self.typed(DType::F32, shape)
    }

    pub fn typed(&mut self, dtype: DType, shape: &[usize]) -> ValueId {
        self.graph.add_param(TensorType::new(dtype, shape.iter().copied()))
    }

    pub fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> ValueId {
        self.graph.add1(&self.module, op, operands, LocId::UNKNOWN).expect("fits")
    }

    pub fn transpose(&mut self, v: ValueId, order: &[usize]) -> ValueId {
        self.op(Permute::Transpose(Shape::from_slice(order)), &[v])
    }

    pub fn reshape(&mut self, v: ValueId, shape: &[usize]) -> ValueId {
        self.op(Reshape { shape: Shape::from_slice(shape) }, &[v])
    }

    pub fn named(
        &mut self,
        kind: FusedKind,
        operands: &[ValueId],
        define: impl FnOnce(&mut Module, &[TensorType]) -> msc_ir::Result<Graph>,
    ) -> Vec<ValueId> {
        let types: Vec<TensorType> = operands.iter().map(|&v| self.graph.ty(v).clone()).collect();
        let made = define(&mut self.module, &types).expect("defines");
        let definition = self.module.define(kind.clone(), made);
        self.graph
            .add(&self.module, Fused { kind, definition }, operands, LocId::UNKNOWN)
            .expect("fits")
            .to_vec()
    }

    /// The program in plain ops, and recognised; the same bits, and reasons that hold.
    pub fn finish(mut self, results: &[ValueId]) -> Recognised {
        self.graph.set_results(results.to_vec());
        let plain =
            inline(&self.module, &self.graph, |op| matches!(op, Op::Fused(_))).expect("spells it out");
        let mut before = self.module;
        let graph = before.add_graph(plain);
        let (params, results) = (before.graph(graph).params().len(), before.graph(graph).results().len());
        before.entries.push(Entry {
            name: "train".into(),
            graph,
            params: (0..params)
                .map(|i| ParamInfo { name: format!("p{i}"), ..ParamInfo::default() })
                .collect(),
            results: (0..results)
                .map(|i| ResultInfo { name: format!("r{i}"), ..ResultInfo::default() })
                .collect(),
        });
        before.drop_unreachable_graphs();
        let graph = before.entry().expect("an entry").graph;
        let mut module = before.clone();
        let report = recognise_graph(&mut module, graph).expect("recognises");
        let printed = text::print(&module);
        msc_ir::verify::verify(&module).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(text::print(&text::parse(&printed).expect("parses")), printed);
        let mut rng = Random::new(11);
        let inputs: Vec<Tensor> =
            before.graph(graph).param_types().iter().map(|t| small(t, &mut rng)).collect();
        for mode in [Mode::Spec, Mode::Wide] {
            let a = run(&before, graph, &inputs, mode).expect("runs");
            let b = run(&module, graph, &inputs, mode).expect("runs");
            for (a, b) in a.iter().zip(&b) {
                assert_eq!((a.ty(), a.data.to_f64s()), (b.ty(), b.data.to_f64s()), "{printed}");
            }
        }
        assert_reasons_hold(&module, &report, 1e-12);
        let graph = module.graph(graph).clone();
        Recognised { graph, report }
    }
}

/// What became of it.
pub struct Recognised {
    pub graph: Graph,
    pub report: Report,
}

impl Recognised {
    pub fn count(&self, name: &str) -> usize {
        self.graph.ops().filter(|(_, d)| d.op.name() == name).count()
    }
}
