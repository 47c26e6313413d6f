//! The splitting test of solved graphs: one atom is cut, every value is computed on every shard, and each shard
//! must hold its block of the whole value.
//!
//! Ops run through their local forms, as a partitioner builds them; a partial result is combined where it comes
//! up. The blocks must cover the value, and must agree with it by number.

use super::split::{Cut, Shard, compare, fold};
use crate::error::IrError;
use crate::factor::solve::{AtomId, Atoms};
use crate::factor::{FactorKind, FactorRule};
use crate::graph::{OpId, ValueId};
use crate::interp::{EvalCx, Mode};
use crate::module::{GraphId, Module};
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;

/// A value: whole, and each shard's.
#[derive(Clone)]
struct Both {
    whole: Tensor,
    shards: Vec<Tensor>,
}

/// Cuts `atom` into shards of the sizes `parts` and runs scope 0 of `atoms`, which is the graph `entry`.
///
/// # Errors
/// A sentence that says which value is wrong.
pub fn check_atom(
    module: &Module,
    entry: GraphId,
    atoms: &Atoms,
    (atom, parts): (AtomId, &[usize]),
    inputs: &[Tensor],
) -> Result<(), String> {
    let layout = Layout { module, atoms, atom, parts };
    let g = module.graph(entry);
    let held = |v: ValueId, t: &Tensor| t.converted(EvalCx::new(module, Mode::Wide, 0).held(g.ty(v)).dtype);
    let both = g.params().iter().zip(inputs).map(|(&v, t)| layout.place(0, v, &held(v, t))).collect();
    layout.run(0, entry, both).map(|_| ())
}

struct Layout<'a> {
    module: &'a Module,
    atoms: &'a Atoms,
    atom: AtomId,
    parts: &'a [usize],
}

impl Layout<'_> {
    /// Values as the tensors of one rule whose factors are atoms.
    fn rule(&self, scope: usize, operands: &[ValueId], results: &[ValueId]) -> (FactorRule, Vec<Cut>) {
        let mut rule = FactorRule::default();
        let mut known: Vec<AtomId> = Vec::new();
        let mut dims = |v: &ValueId| {
            let mut out = Vec::new();
            for d in 0..self.atoms.rank_in(scope, *v) {
                let list = self.atoms.dim_in(scope, *v, d);
                let factor = |a: AtomId| {
                    known.iter().position(|&k| k == a).unwrap_or_else(|| {
                        known.push(a);
                        rule.factor(self.atoms.size(a), FactorKind::Pass)
                    })
                };
                out.push(list.into_iter().map(factor).collect());
            }
            out
        };
        let operands = operands.iter().map(&mut dims).collect();
        let results = results.iter().map(&mut dims).collect();
        let cut = known.iter().position(|&k| k == self.atom).map(|f| (f, self.parts.to_vec()));
        (FactorRule { operands, results, ..rule }, cut.into_iter().collect())
    }

    /// A whole value and its blocks.
    fn place(&self, scope: usize, v: ValueId, whole: &Tensor) -> Both {
        let (rule, cuts) = self.rule(scope, &[v], &[]);
        let block = |k: usize| {
            let at = if cuts.is_empty() { vec![] } else { vec![k] };
            let shard = Shard { rule: &rule, cuts: &cuts, at: &at };
            let shape = shard.shape(&rule.operands[0], &whole.shape);
            let elements = shard.elements(&rule.operands[0], &whole.shape);
            Tensor::new(shape, whole.data.pick(elements.into_iter()))
        };
        Both { whole: whole.clone(), shards: (0..self.parts.len()).map(block).collect() }
    }

    /// Whether the blocks that the layout prescribes are all of a value.
    fn covers(&self, scope: usize, v: ValueId, shape: &[usize]) -> bool {
        let (rule, cuts) = self.rule(scope, &[v], &[]);
        let mut seen = vec![false; shape.iter().product()];
        for k in 0..self.parts.len() {
            let at = if cuts.is_empty() { vec![] } else { vec![k] };
            for e in (Shard { rule: &rule, cuts: &cuts, at: &at }).elements(&rule.operands[0], shape) {
                seen[e] = true;
            }
        }
        seen.into_iter().all(|s| s)
    }

    fn run(&self, scope: usize, graph: GraphId, inputs: Vec<Both>) -> Result<Vec<Both>, String> {
        let g = self.module.graph(graph);
        let mut values: Vec<Option<Both>> = vec![None; g.value_count()];
        for (&v, b) in g.params().iter().zip(inputs) {
            values[v.0 as usize] = Some(b);
        }
        for (id, data) in g.ops() {
            let operands: Vec<Both> = data
                .operands
                .iter()
                .map(|v| values[v.0 as usize].clone())
                .collect::<Option<_>>()
                .ok_or("order")?;
            let made = match &data.op {
                Op::Call(c) if let Some(callee) = self.atoms.scope_of(c.graph) => {
                    self.run(callee, c.graph, operands)?
                }
                Op::While(w)
                    if let (Some(cond), Some(body)) =
                        (self.atoms.scope_of(w.cond), self.atoms.scope_of(w.body)) =>
                {
                    let mut carries = operands;
                    while self.run(cond, w.cond, carries.clone())?[0].whole.data.get_i64(0) != 0 {
                        carries = self.run(body, w.body, carries)?;
                    }
                    carries
                }
                Op::Branch(b) if let Some(arm) = self.atoms.scope_of(b.chosen(&operands[0].whole)) => {
                    self.run(arm, b.chosen(&operands[0].whole), operands[1..].to_vec())?
                }
                _ => self.op(scope, graph, id, &operands).map_err(|e| e.to_string())?,
            };
            for (&v, b) in data.results.iter().zip(made) {
                let say = |e: String| format!("@{} value {} of {}: {e}", g.name, v.0, data.op.name());
                if !self.covers(scope, v, &b.whole.shape) {
                    return Err(say("the shards leave elements out".into()));
                }
                for (k, want) in self.place(scope, v, &b.whole).shards.iter().enumerate() {
                    compare(want, &b.shards[k]).map_err(|e| say(format!("shard {k}: {e}")))?;
                }
                values[v.0 as usize] = Some(b);
            }
        }
        g.results()
            .iter()
            .map(|v| values[v.0 as usize].clone().ok_or_else(|| "a result is missing".into()))
            .collect()
    }

    /// One op, whole and on every shard, partial results combined.
    fn op(&self, scope: usize, graph: GraphId, id: OpId, operands: &[Both]) -> Result<Vec<Both>, IrError> {
        let g = self.module.graph(graph);
        let data = g.op(id);
        let types: Vec<_> = data.results.iter().map(|&v| g.ty(v).clone()).collect();
        let inputs: Vec<Tensor> = operands.iter().map(|b| b.whole.clone()).collect();
        let refs: Vec<&Tensor> = inputs.iter().collect();
        let whole = EvalCx::new(self.module, Mode::Wide, 0).eval(&data.op, &refs, &types)?;
        let (rule, cuts) = self.rule(scope, &data.operands, &data.results);
        let own = self.atoms.rule_in(scope, id);
        let split: Vec<usize> = (0..own.factors.len())
            .filter(|&f| self.atoms.factor_in(scope, id, f).first() == Some(&self.atom))
            .collect();
        let monoid = |r: usize| -> Option<Monoid> {
            (0..own.factors.len()).find_map(|f| match own.factors[f].kind {
                _ if own.in_result(r, f) || !self.atoms.factor_in(scope, id, f).contains(&self.atom) => None,
                FactorKind::Reduce(m) => Some(m),
                FactorKind::Range => Some(Monoid::Sum),
                _ => None,
            })
        };
        let mut rows: Vec<Vec<Tensor>> = Vec::new();
        for k in 0..self.parts.len() {
            let at = if cuts.is_empty() { vec![] } else { vec![k] };
            let shard = Shard { rule: &rule, cuts: &cuts, at: &at };
            let dtypes = data.operands.iter().map(|&v| g.ty(v).dtype);
            let mine: Vec<_> = dtypes.zip(operands.iter().map(|b| b.shards[k].clone())).collect();
            let unit: usize = self.parts[..k].iter().sum();
            // A factor may be the atom and more inside of it.
            let start = |f: usize| unit * (own.factors[f].size / self.parts.iter().sum::<usize>());
            let starts = split.iter().map(|&f| (f, start(f), own.factors[f].clone())).collect::<Vec<_>>();
            rows.push(shard.run_on(self.module, &data.op, &mine, &types, &starts)?);
        }
        let mut out = Vec::new();
        for (r, whole) in whole.into_iter().enumerate() {
            let mut shards: Vec<Tensor> = rows.iter().map(|row| row[r].clone()).collect();
            if let Some(m) = monoid(r) {
                let sum =
                    fold(m, &shards).ok_or_else(|| IrError::unsupported(data.op.name(), "partial types"))?;
                shards = vec![sum; shards.len()];
            }
            out.push(Both { whole, shards });
        }
        Ok(out)
    }
}
