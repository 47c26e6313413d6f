//! Which values of a step lie inside a named operation: an edit elsewhere changes nothing about it.

use crate::mutants::Mutant;
use crate::mutants::edit::Change;
use crate::mutants::subject::Subject;
use msc_ir::module::GraphId;
use msc_ir::{Operation, ValueId};
use msc_passes::recognise::recognise_graph;
use std::collections::{BTreeMap, BTreeSet};

/// For values of the step's graphs the operations, gradients counted as their forwards, that they are computed in, each
/// with whether the value is a result of it.
pub struct Covers(BTreeMap<(GraphId, ValueId), BTreeMap<String, bool>>);

impl Covers {
    /// Of a step's own graphs, before layers become templates: edits are made there.
    ///
    /// # Errors
    /// What recognition says.
    pub fn new(s: &Subject) -> Result<Covers, String> {
        let mut out = Covers(BTreeMap::new());
        for graph in crate::mutants::facts::Facts::all(s).iter().map(|f| f.id) {
            let mut module = s.module.clone();
            let report = recognise_graph(&mut module, graph).map_err(|e| e.to_string())?;
            for r in report.regions.iter().flat_map(|r| &r.reasons) {
                let name = r.fused.name();
                let name = name.strip_suffix("_grad").unwrap_or(name);
                let cut: BTreeSet<ValueId> =
                    r.inputs.iter().flat_map(|i| &i.values).map(|a| a.value).collect();
                let mut todo: Vec<ValueId> =
                    r.outputs.iter().flat_map(|o| &o.values).map(|a| a.value).collect();
                let source = s.module.graph(graph);
                let results: BTreeSet<ValueId> = todo.iter().copied().collect();
                let mut seen = BTreeSet::new();
                while let Some(v) = todo.pop() {
                    if cut.contains(&v) || !seen.insert(v) {
                        continue;
                    }
                    let of = out.0.entry((graph, v)).or_default();
                    *of.entry(name.to_string()).or_insert(true) &= results.contains(&v);
                    todo.extend(
                        source.def(v).map(|(op, _)| source.op(op).operands.to_vec()).unwrap_or_default(),
                    );
                }
            }
        }
        Ok(out)
    }

    /// Whether an edit lies inside an operation of one of these kinds.
    pub fn touches(&self, s: &Subject, m: &Mutant, kinds: &[&str]) -> bool {
        let graph = s.module.graph(m.graph);
        // What stands in the place of a result is made of the result, which the operation gives as before.
        let of = |v: ValueId, results: bool| {
            let of = self.0.get(&(m.graph, v));
            of.is_some_and(|of| kinds.iter().any(|k| of.get(*k).is_some_and(|result| results || !result)))
        };
        m.changes.iter().any(|c| match c {
            Change::Op(op, _) | Change::Operand(op, ..) => graph.op(*op).results.iter().any(|&v| of(v, true)),
            Change::Value(v, _) | Change::Uses(v, _) => of(*v, false),
            Change::Result(..) => false,
        })
    }
}
