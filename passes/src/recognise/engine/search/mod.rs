//! Finding the matches of a rule: its first root anywhere, the others near what the first has bound.

mod context;
mod filter;
mod roots;

use context::{AsIs, Context};
use filter::Filter;
use roots::{computed, extend, is_computed, root_at};

use super::label::{Indexed, positional};
use super::polynomial;
use super::rule::{Binding, Frame, Match, Rule};
use super::run::is_taken;
use super::term::{Graph, Node, behind_barriers};
use super::view::{Views, is_product};
use egg::Id;
use msc_ir::Op;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Searches one clean e-graph for the matches of rules.
pub struct Searcher<'g> {
    graph: &'g Graph,
    /// Classes that values of the program belong to: later roots are looked for among these only, as no other class
    /// can be replaced.
    program: &'g BTreeSet<Id>,
    filter: Filter<'g>,
    /// What was read of the e-graph, by the classes that were left as they are: rules share them.
    contexts: BTreeMap<AsIs, Context<'g>>,
    arithmetic: Rc<OnceCell<polynomial::Users>>,
    /// For each class those that a row op computes from it directly.
    users: Option<BTreeMap<Id, BTreeSet<Id>>>,
    /// For each class asked for, those that row ops compute from it.
    computed: BTreeMap<Id, BTreeSet<Id>>,
    /// The classes that are results of named operations.
    named: OnceCell<BTreeSet<Id>>,
    /// Those that are first results of gradients.
    gradients: OnceCell<BTreeSet<Id>>,
}

/// All matches of a rule in a clean e-graph. `program` holds the classes that values of the program belong to.
pub fn search(graph: &Graph, rule: &Rule, program: &BTreeSet<Id>) -> Vec<Match> {
    Searcher::new(graph, program).search(rule)
}

impl<'g> Searcher<'g> {
    /// A searcher of an e-graph in which the program's values belong to the classes `program`.
    pub fn new(graph: &'g Graph, program: &'g BTreeSet<Id>) -> Searcher<'g> {
        Searcher {
            graph,
            program,
            filter: Filter::new(graph),
            contexts: BTreeMap::new(),
            arithmetic: Rc::default(),
            users: None,
            computed: BTreeMap::new(),
            named: OnceCell::new(),
            gradients: OnceCell::new(),
        }
    }

    /// All matches of a rule.
    pub fn search(&mut self, rule: &Rule) -> Vec<Match> {
        let Some((first, others)) = rule.roots.split_first() else { return Vec::new() };
        let mut states = Vec::new();
        let none = AsIs::default();
        let graph = self.graph;
        let classes = self.filter.candidates(first);
        let matcher = &mut self.context(&none).matcher;
        for c in classes {
            states.extend(root_at(matcher, graph, first, c, &Match::default()));
        }
        if others.is_empty() { states } else { self.extend(rule, states) }
    }

    /// Matches of the first root, extended by the others.
    pub(super) fn extend(&mut self, rule: &Rule, states: Vec<Match>) -> Vec<Match> {
        if rule.atoms.is_empty() { self.by_views(rule, states) } else { self.by_atoms(rule, states) }
    }

    /// Extends matches of the first root by the others, among classes whose views mention a root found before.
    /// What the first root binds, in any match, is a factor as it stands.
    fn by_views(&mut self, rule: &Rule, mut states: Vec<Match>) -> Vec<Match> {
        let (graph, program) = (self.graph, self.program);
        let bound = states.iter().flat_map(|m| m.vars.values());
        let opaque: BTreeSet<Id> = bound.filter_map(|b| class_of(graph, b)).collect();
        let positive = states.iter().flat_map(|m| taken_for_positive(graph, rule, m)).collect();
        let opaque = AsIs { opaque, positive };
        for (i, root) in rule.roots.iter().enumerate().skip(1) {
            if states.is_empty() {
                return states;
            }
            let before = &rule.roots[..i];
            // What mentions a class is computed from it.
            let found = |m: &Match| -> Vec<Id> {
                let all = before.iter().filter_map(|r| m.class(r.name));
                all.map(|at| behind_barriers(graph, at.class)).collect()
            };
            let mut around: BTreeSet<Id> = BTreeSet::new();
            if !is_computed(&root.pattern, before) {
                for c in states.iter().flat_map(found).collect::<BTreeSet<Id>>() {
                    around.extend(self.computed_from(c));
                }
            }
            let context = self.context(&opaque);
            context.look_at(graph, &around);
            let mut next = Vec::new();
            for m in states {
                if let Some(candidates) = computed(&mut context.matcher, graph, &root.pattern, before, &m) {
                    next.extend(extend(&mut context.matcher, graph, root, &candidates, program, m));
                    continue;
                }
                let mut candidates = BTreeSet::new();
                for seen in found(&m) {
                    candidates.extend(context.near.get(&seen).into_iter().flatten().copied());
                }
                next.extend(extend(&mut context.matcher, graph, root, &candidates, program, m));
            }
            states = next;
        }
        for m in &mut states {
            self.finish(rule, &opaque, m);
        }
        states
    }

    /// Extends each match of the first root by the others, among the classes that are computed from its atoms.
    fn by_atoms(&mut self, rule: &Rule, states: Vec<Match>) -> Vec<Match> {
        let (graph, program) = (self.graph, self.program);
        let mut done = Vec::new();
        let mut todo: Vec<(Match, usize)> = states.into_iter().rev().map(|m| (m, 1)).collect();
        while let Some((m, at)) = todo.pop() {
            let names = || rule.atoms.iter().chain(rule.independent);
            let opaque: BTreeSet<Id> =
                names().filter_map(|n| m.vars.get(n)).filter_map(|b| class_of(graph, b)).collect();
            let opaque = AsIs { opaque, positive: taken_for_positive(graph, rule, &m).collect() };
            let Some(root) = rule.roots.get(at) else {
                let mut m = m;
                self.finish(rule, &opaque, &mut m);
                done.push(m);
                continue;
            };
            let mut candidates = BTreeSet::new();
            for &c in &opaque.opaque {
                let seen = behind_barriers(graph, c);
                let all = self.computed_from(seen);
                // A statistic is an operand, made where the program has it under another shape only.
                match root.frame {
                    Frame::Rows => candidates.extend(all),
                    _ => candidates.extend(all.intersection(program)),
                }
            }
            let matcher = &mut self.context(&opaque).matcher;
            let mut found = extend(matcher, graph, root, &candidates, &candidates, m.clone());
            // Where that is too large, what the gradients of norms further on are made of is not multiplied out: they
            // are values.
            let mut as_is = opaque;
            if found.is_empty() && matcher.polynomials.is_limited() {
                let more = self.gradients.get_or_init(|| gradients(graph));
                let before = as_is.opaque.len();
                as_is.opaque.extend(more);
                if as_is.opaque.len() > before {
                    let matcher = &mut self.context(&as_is).matcher;
                    found = extend(matcher, graph, root, &candidates, &candidates, m);
                }
            }
            let opaque = as_is;
            let matcher = &mut self.context(&opaque).matcher;
            let views = &mut matcher.polynomials;
            let independent: Vec<bool> =
                found.iter().map(|m| is_independent(views, graph, rule, m)).collect();
            // Where a norm's result goes straight into the next norm, that one's gradient is computed from it: by way
            // of the named result, which is no operand of the first.
            let mut apart = None;
            let mut kept = independent.into_iter();
            found.retain(|m| {
                kept.next() == Some(true) || {
                    let views = apart.get_or_insert_with(|| {
                        let named = self.named.get_or_init(|| results(graph));
                        let as_is = named.union(&opaque.opaque).copied().collect();
                        Views::multiplied_out(graph, as_is).with_positive(&opaque.positive)
                    });
                    is_independent(views, graph, rule, m)
                }
            });
            todo.extend(found.into_iter().rev().map(|m| (m, at + 1)));
        }
        done
    }

    /// The classes that are computed from a class by ops on rows: all but contractions and gathers.
    fn computed_from(&mut self, class: Id) -> &BTreeSet<Id> {
        let graph = self.graph;
        let users = self.users.get_or_insert_with(|| {
            let mut users: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
            for c in graph.classes() {
                let seen = behind_barriers(graph, c.id);
                if seen != c.id {
                    users.entry(seen).or_default().insert(c.id);
                }
                for node in &c.nodes {
                    if let Node::Op { op, args } = node
                        && is_row_op(graph, graph.analysis.op(*op), args)
                    {
                        for &a in args {
                            users.entry(graph.find(a)).or_default().insert(c.id);
                        }
                    }
                }
            }
            users
        });
        self.computed.entry(class).or_insert_with(|| {
            let mut out = BTreeSet::from([class]);
            let mut todo = vec![class];
            while let Some(c) = todo.pop() {
                for &u in users.get(&c).into_iter().flatten() {
                    if out.insert(u) {
                        todo.push(u);
                    }
                }
            }
            out
        })
    }

    /// Looks up products among the classes, and whether the rule must not be applied.
    fn finish(&mut self, rule: &Rule, opaque: &AsIs, m: &mut Match) {
        let graph = self.graph;
        for b in m.vars.values_mut() {
            let Binding::Product(p) = b else { continue };
            // A class that is this product is computed from each of its factors.
            let mut factors = BTreeSet::new();
            p.factors.bases().for_each(|f| f.classes(&mut factors));
            let Some(&factor) = factors.first() else { continue };
            let around = self.computed_from(behind_barriers(graph, factor)).clone();
            let context = self.context(opaque);
            context.look_up(graph, &around);
            if let Some(class) = context.class_of(p)
                && let [ty] = graph[class].data.types.as_slice()
            {
                *b = Binding::Class(Indexed { class, labels: positional(ty, true) });
            }
        }
        // The variable is a factor as it stands, so its own terms are seen without that.
        let plain = &mut self.context(&AsIs::default()).matcher;
        m.unless = rule.unless.iter().find_map(|u| {
            let at = m.class(u.variable)?.clone();
            let fits = !plain.at(&u.pattern, &at, m).is_empty();
            fits.then_some(u.because)
        });
    }

    fn context(&mut self, opaque: &AsIs) -> &mut Context<'g> {
        let (graph, users) = (self.graph, self.arithmetic.clone());
        self.contexts.entry(opaque.clone()).or_insert_with(|| Context::new(graph, opaque, users))
    }
}

/// The classes that a rule takes for positive, because what is not known of them is the sign of an operand.
fn taken_for_positive<'m>(graph: &'m Graph, rule: &'m Rule, m: &'m Match) -> impl Iterator<Item = Id> + 'm {
    let taken = rule.facts.iter().filter(|(_, fact)| is_taken(graph, *fact, m));
    taken.filter_map(|(variable, _)| m.class(variable).map(|i| graph.find(i.class)))
}

fn class_of(graph: &Graph, b: &Binding) -> Option<Id> {
    match b {
        Binding::Class(i) => Some(graph.find(i.class)),
        _ => None,
    }
}

/// The classes that are results of named operations.
fn results(graph: &Graph) -> BTreeSet<Id> {
    let is = |n: &Node| matches!(n, Node::Project { .. });
    graph.classes().filter(|c| c.nodes.iter().any(is)).map(|c| c.id).collect()
}

/// The classes that are first results of named gradients.
fn gradients(graph: &Graph) -> BTreeSet<Id> {
    let of_gradient = |tuple: Id| {
        graph[graph.find(tuple)].nodes.iter().any(|n| match n {
            Node::Op { op, .. } => match graph.analysis.op(*op) {
                Op::Fused(f) => f.kind.name().ends_with("_grad"),
                _ => false,
            },
            _ => false,
        })
    };
    let is = |n: &Node| matches!(n, Node::Project { index: 0, tuple } if of_gradient(tuple[0]));
    graph.classes().filter(|c| c.nodes.iter().any(is)).map(|c| c.id).collect()
}

/// Whether an op computes elements or sums from elements, row by row or across rows.
fn is_row_op(graph: &Graph, op: &Op, args: &[Id]) -> bool {
    match op {
        Op::Convert(_) | Op::Unary(_) | Op::Binary(_) | Op::Select(_) | Op::Compare(_) => true,
        Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Reduce(_) => true,
        Op::DotGeneral(d) => match args {
            &[l, r] => match (graph[l].data.types.as_slice(), graph[r].data.types.as_slice()) {
                ([l], [r]) => is_product(d, l, r),
                _ => false,
            },
            _ => false,
        },
        _ => false,
    }
}

/// Whether none of the variables that should be independent is computed from the match's other atoms.
fn is_independent(polynomials: &mut Views<'_>, graph: &Graph, rule: &Rule, m: &Match) -> bool {
    let atoms: BTreeSet<Id> =
        rule.atoms.iter().filter_map(|v| m.class(v)).map(|i| behind_barriers(graph, i.class)).collect();
    rule.independent.iter().all(|name| {
        let mut mentioned = BTreeSet::new();
        match m.vars.get(name) {
            Some(Binding::Class(i)) => polynomials.polynomial(i).classes(&mut mentioned),
            Some(Binding::Product(p)) => p.factors.bases().for_each(|b| b.classes(&mut mentioned)),
            _ => {}
        }
        mentioned.is_disjoint(&atoms)
    })
}
