//! The driver: searches and applies rules until nothing changes or a named limit is reached.

use super::build::Builder;
use super::facts::Fact;
pub use super::made::Made;
use super::made::{made, reshaped};
use super::region::{At, Reach, Region};
use super::rule::{Match, MultiOutput, Rule, Tag, WhyNot};
use super::search::Searcher;
use super::term::{Graph, Node};
use crate::error::{PassError, Result};
use egg::Id;
use msc_ir::TensorType;
use std::collections::{BTreeMap, BTreeSet};

/// What bounds a run. Counts only: a clock would make the result depend on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Nodes allowed for each node of the program, plus [`Limits::SPARE_NODES`].
    pub growth: usize,
    /// Rounds of searching and applying.
    pub iterations: usize,
}

impl Limits {
    /// Room that a small program has in any case.
    pub const SPARE_NODES: usize = 4096;
}

impl Default for Limits {
    /// Growth 8: saturation adds about one node to each of the program's (a layer of 400 ops grows to 800), so
    /// eight is reached by a runaway rule only. Iterations 30: the longest chain of rules that feed each other
    /// is below ten.
    fn default() -> Limits {
        Limits { growth: 8, iterations: 30 }
    }
}

/// Why a run stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StopReason {
    /// No rule changed anything.
    Saturated,
    /// [`Limits::growth`] was reached.
    Nodes,
    /// [`Limits::iterations`] was reached.
    Iterations,
}

impl StopReason {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::Saturated => "saturated",
            StopReason::Nodes => "node limit",
            StopReason::Iterations => "iteration limit",
        }
    }
}

/// An input or output of an op that a rule introduced, as a value of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutValue {
    /// Name in the rule.
    pub name: &'static str,
    /// Type.
    pub ty: TensorType,
    /// Which result of the op it is; 0 for inputs.
    pub result: u32,
    /// The values of the program that it is, in program order, or that hold the same elements in the same order
    /// under another shape; empty if it is something that the rule made.
    pub values: Vec<At>,
    /// Layout ops, first to last, between the first of `values` and the op: from the value to an input, from the
    /// result to an output's value. Without any, a difference in shape is a reshape.
    pub layout: Vec<msc_ir::Op>,
    /// The result of another named op that it is, where no value of the program is: the op's class, the result.
    pub given_by: Option<(Id, u32)>,
    /// How it is made of values of the program, where it is nothing else.
    pub made_of: Option<Made>,
    /// Where the first of `values` comes from, for messages.
    pub source: String,
}

/// Why an op of several results stands for values of the program: which rule, at which cut. The union can be
/// tested again from this record, see [`crate::recognise::replay`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The rule.
    pub rule: &'static str,
    /// What the equality says.
    pub tag: Tag,
    /// The op's class.
    pub op: Id,
    /// The op's name and definition.
    pub fused: msc_ir::ops::fused::Fused,
    /// Inputs, in operand order.
    pub inputs: Vec<CutValue>,
    /// Outputs that the program has, with the result each is.
    pub outputs: Vec<CutValue>,
    /// Seeds of the random inputs of a replay.
    pub seeds: [u64; 2],
}

/// A match, or a place that a probe proposed, that did not become a named op or another spelling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The rule.
    pub rule: &'static str,
    /// Why, in words.
    pub why: String,
    /// Where: the first root's value, or the value that the probe started from.
    pub at: Option<At>,
}

/// A rule of spelling that gave a value of the program another spelling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The rule.
    pub rule: &'static str,
    /// What the equality says.
    pub tag: Tag,
    /// The value.
    pub at: At,
}

/// Refusals of one rule whose places are kept.
const MOST_REFUSALS: usize = 64;

/// What a run did.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// Rounds.
    pub iterations: usize,
    /// Nodes at the end.
    pub nodes: usize,
    /// Classes at the end.
    pub classes: usize,
    /// Why it stopped.
    pub stop: StopReason,
    /// By rule: unions that changed something.
    pub applied: BTreeMap<&'static str, usize>,
    /// By rule: why matches were refused, with counts of the last round.
    pub refused: BTreeMap<&'static str, BTreeMap<String, usize>>,
    /// The same with places; not more than a few dozen of one rule.
    pub refusals: Vec<Refusal>,
    /// Rules of spelling, in the order in which they applied. What is only a rule's own term is not told.
    pub steps: Vec<Step>,
    /// Reasons of the ops of several results, in order of first application.
    pub reasons: Vec<Reason>,
}

/// Runs rule sets one after another, each to saturation.
///
/// # Errors
/// [`PassError::Broken`] if a rule built or united terms of different types.
pub fn run(graph: &mut Graph, region: &Region, phases: &[&[Rule]], limits: Limits) -> Result<Run> {
    let allowed = graph.total_number_of_nodes() * limits.growth + Limits::SPARE_NODES;
    let mut out = Run {
        iterations: 0,
        nodes: 0,
        classes: 0,
        stop: StopReason::Saturated,
        applied: BTreeMap::new(),
        refused: BTreeMap::new(),
        refusals: Vec::new(),
        steps: Vec::new(),
        reasons: Vec::new(),
    };
    'phases: for rules in phases {
        loop {
            if out.iterations >= limits.iterations {
                out.stop = StopReason::Iterations;
                break 'phases;
            }
            out.iterations += 1;
            if !round(graph, region, rules, &mut out) {
                break;
            }
            if graph.total_number_of_nodes() > allowed {
                out.stop = StopReason::Nodes;
                break 'phases;
            }
        }
    }
    out.settle(graph)?;
    Ok(out)
}

impl Run {
    /// Records why a match or a place was refused.
    pub fn refuse(&mut self, rule: &'static str, why: impl Into<String>, at: Option<At>) {
        let refusal = Refusal { rule, why: why.into(), at };
        *self.refused.entry(rule).or_default().entry(refusal.why.clone()).or_insert(0) += 1;
        let known = self.refusals.iter().filter(|r| r.rule == rule);
        if known.clone().count() < MOST_REFUSALS && !known.into_iter().any(|r| *r == refusal) {
            self.refusals.push(refusal);
        }
    }

    /// Brings the record up to date with the e-graph.
    ///
    /// # Errors
    /// [`PassError::Broken`] if a rule built or united terms of different types.
    pub fn settle(&mut self, graph: &Graph) -> Result<()> {
        // Classes may have been united since their reasons were recorded.
        for r in &mut self.reasons {
            r.op = graph.find(r.op);
            for (tuple, _) in r.inputs.iter_mut().filter_map(|v| v.given_by.as_mut()) {
                *tuple = graph.find(*tuple);
            }
        }
        self.nodes = graph.total_number_of_nodes();
        self.classes = graph.number_of_classes();
        match graph.analysis.faults.first() {
            None => Ok(()),
            Some(f) => Err(PassError::Broken { pass: "recognise", message: f.clone() }),
        }
    }
}

/// One round; whether anything changed.
fn round(graph: &mut Graph, region: &Region, rules: &[Rule], out: &mut Run) -> bool {
    let values = region.values_by_class(graph);
    let program: BTreeSet<Id> = values.keys().copied().collect();
    let matches: Vec<(&Rule, Vec<Match>)> = {
        let mut searcher = Searcher::new(graph, &program);
        rules.iter().map(|r| (r, searcher.search(r))).collect()
    };
    let before = graph.total_size();
    let mut changed = false;
    for (rule, matches) in matches {
        // What is refused counts for the last round only: facts become known on the way.
        out.refused.remove(rule.name);
        out.refusals.retain(|r| r.rule != rule.name);
        for m in matches {
            match apply(graph, region, rule, &m, out) {
                Ok(true) => {
                    changed = true;
                    if let (Some(at), [_]) = (place(rule, &m, &values), rule.roots.as_slice()) {
                        out.steps.push(Step { rule: rule.name, tag: rule.tag, at });
                    }
                    *out.applied.entry(rule.name).or_insert(0) += 1;
                }
                Ok(false) => {}
                Err(why) => out.refuse(rule.name, why.to_string(), place(rule, &m, &values)),
            }
        }
    }
    graph.rebuild();
    changed || graph.total_size() != before
}

/// Where a match is: the first of its roots that is a value of the program.
pub(crate) fn place(rule: &Rule, m: &Match, values: &BTreeMap<Id, Vec<At>>) -> Option<At> {
    let mut roots = rule.roots.iter().filter_map(|r| m.class(r.name));
    roots.find_map(|i| values.get(&i.class)?.first().copied())
}

/// Whether a fact is taken for known, because what is not known of it is the sign of an operand.
pub(super) fn is_taken(graph: &Graph, fact: Fact, m: &Match) -> bool {
    let is_operand = |part| m.class(part).is_some_and(|i| graph[i.class].data.splat.is_none());
    matches!(fact, Fact::PositiveBut(part) if is_operand(part))
}

/// Whether the facts that a rule needs are known.
pub fn facts_hold(graph: &Graph, rule: &Rule, m: &Match) -> std::result::Result<(), WhyNot> {
    for &(variable, fact) in rule.facts {
        let known = m.class(variable).is_some_and(|i| graph[i.class].data.facts.holds(fact));
        if !known && !is_taken(graph, fact, m) {
            return Err(WhyNot::Fact { variable, fact });
        }
    }
    Ok(())
}

fn apply(
    graph: &mut Graph,
    region: &Region,
    rule: &Rule,
    m: &Match,
    out: &mut Run,
) -> std::result::Result<bool, WhyNot> {
    facts_hold(graph, rule, m)?;
    if let Some(why) = m.unless {
        return Err(WhyNot::Precondition(why.to_string()));
    }
    let applied = (rule.apply)(&mut Builder::new(graph), m)?;
    if applied.unions.iter().all(|&(a, b)| graph.find(a) == graph.find(b)) {
        return Ok(false);
    }
    if let Some(op) = &applied.op {
        // Reachability is asked on classes, so pending unions must be carried through first.
        graph.rebuild();
        acyclic(graph, region, op)?;
        let known = out.reasons.iter().any(|r| graph.find(r.op) == graph.find(op.tuple));
        if !known && let Some(reason) = reason(graph, region, (rule.name, rule.tag), op) {
            out.reasons.push(reason);
        }
    }
    let mut changed = false;
    for (a, b) in applied.unions {
        changed |= graph.union(a, b);
    }
    Ok(changed)
}

/// Unites the results of an op that was found otherwise than by a rule with the classes that they are, and records the
/// reason.
///
/// # Errors
/// If the program's order forbids it.
pub(crate) fn introduce(
    graph: &mut Graph,
    region: &Region,
    by: (&'static str, Tag),
    op: MultiOutput,
    run: &mut Run,
) -> std::result::Result<(), WhyNot> {
    let of = |&(_, result, class): &(_, u32, Id)| (class, Builder::new(graph).project(op.tuple, result));
    let unions: Vec<(Id, Id)> = op.outputs.iter().map(of).collect();
    let reason = |graph: &Graph, op: &MultiOutput| reason(graph, region, by, op);
    introduce_by(graph, region, by.0, (op, unions), reason, run)
}

/// The same with the unions that say so, and the reason as `reason` makes it once the op is known to fit.
///
/// # Errors
/// If the program's order forbids it.
pub(crate) fn introduce_by(
    graph: &mut Graph,
    region: &Region,
    rule: &'static str,
    (op, unions): (MultiOutput, Vec<(Id, Id)>),
    reason: impl FnOnce(&Graph, &MultiOutput) -> Option<Reason>,
    run: &mut Run,
) -> std::result::Result<(), WhyNot> {
    graph.rebuild();
    acyclic(graph, region, &op)?;
    run.reasons.extend(reason(graph, &op));
    for (a, b) in unions {
        graph.union(a, b);
    }
    graph.rebuild();
    *run.applied.entry(rule).or_insert(0) += 1;
    Ok(())
}

/// Refuses an op one of whose outputs is needed, in the program, to compute one of its inputs. That is all that
/// is asked: values between inputs and outputs that others use are computed by the program as before.
pub(crate) fn acyclic(graph: &Graph, region: &Region, op: &MultiOutput) -> std::result::Result<(), WhyNot> {
    let reach = Reach::new(graph, region);
    // What one segment gives, an op on values of a later segment cannot.
    let inputs = op.inputs.iter().filter_map(|&(n, c)| Some((reach.first(c)?.part, n)));
    if let Some((part, input)) = inputs.max_by_key(|i| i.0) {
        let early = op.outputs.iter().find(|o| reach.first(o.2).is_some_and(|at| at.part < part));
        if let Some(&(output, ..)) = early {
            return Err(WhyNot::Cycle { output, input });
        }
    }
    let outputs: BTreeSet<Id> = op.outputs.iter().map(|&(_, _, c)| graph.find(c)).collect();
    for &(input, c) in &op.inputs {
        if let Some(hit) = reach.first_reached(c, &outputs, op.tuple) {
            let output =
                op.outputs.iter().find(|&&(_, _, c)| graph.find(c) == hit).map_or("", |&(n, _, _)| n);
            return Err(WhyNot::Cycle { output, input });
        }
    }
    Ok(())
}

/// Why an op stands for values of the program, from the classes of its operands and results.
pub(crate) fn reason(
    graph: &Graph,
    region: &Region,
    by: (&'static str, Tag),
    op: &MultiOutput,
) -> Option<Reason> {
    let all = region.values_by_class(graph);
    let cut = |list: Vec<(&'static str, u32, Id)>| -> Vec<CutValue> {
        list.into_iter()
            .filter_map(|(name, result, c)| {
                let c = graph.find(c);
                let ty = graph[c].data.types.first()?.clone();
                let values_of = all.get(&c).cloned().unwrap_or_else(|| reshaped(graph, &all, c));
                let source = values_of.first().and_then(|&v| region.def(v).map(|op| (v, op)));
                let source = source.map_or_else(
                    || "a parameter or derived value".to_string(),
                    |(v, op)| {
                        let loc = region.parts[v.part].graph.op(op).loc;
                        graph.analysis.module.locations.describe(loc)
                    },
                );
                let given_by = graph[c].nodes.iter().find_map(|n| match n {
                    Node::Project { index, tuple } if graph.find(tuple[0]) != graph.find(op.tuple) => {
                        Some((graph.find(tuple[0]), *index))
                    }
                    _ => None,
                });
                let given_by = given_by.filter(|_| values_of.is_empty());
                let made_of = match values_of.is_empty() && given_by.is_none() {
                    true => made(graph, &all, c),
                    false => None,
                };
                Some(CutValue {
                    name,
                    ty,
                    result,
                    values: values_of,
                    layout: Vec::new(),
                    given_by,
                    made_of,
                    source,
                })
            })
            .collect()
    };
    let inputs = cut(op.inputs.iter().map(|&(n, c)| (n, 0, c)).collect());
    Reason::new(graph, by, op.tuple, inputs, cut(op.outputs.clone()))
}

impl Reason {
    /// Why the op of class `tuple` was introduced, and by which rule; `None` if the class holds no named op.
    pub(crate) fn new(
        graph: &Graph,
        (rule, tag): (&'static str, Tag),
        tuple: Id,
        inputs: Vec<CutValue>,
        outputs: Vec<CutValue>,
    ) -> Option<Reason> {
        let fused = graph[tuple].nodes.iter().find_map(|n| match n {
            Node::Op { op, .. } => match graph.analysis.op(*op) {
                msc_ir::Op::Fused(f) => Some(f.clone()),
                _ => None,
            },
            _ => None,
        })?;
        let name = seed(rule, &inputs);
        let seeds = [name, name.rotate_left(17) ^ 0x9e37_79b9_7f4a_7c15];
        Some(Reason { rule, tag, op: graph.find(tuple), fused: *fused, inputs, outputs, seeds })
    }
}

impl CutValue {
    /// A value of the program, of all the `values` of its class, and the layout ops between it and the op.
    pub(crate) fn of(
        (name, result): (&'static str, u32),
        ty: TensorType,
        values: Vec<At>,
        layout: &[msc_ir::Op],
        source: String,
    ) -> CutValue {
        CutValue { name, ty, result, values, layout: layout.to_vec(), given_by: None, made_of: None, source }
    }
}

/// A seed that depends on the rule and the cut's types alone (FNV-1a).
pub(crate) fn seed(rule: &str, inputs: &[CutValue]) -> u64 {
    let text = inputs.iter().fold(rule.to_string(), |s, v| format!("{s};{}:{}", v.name, v.ty));
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
