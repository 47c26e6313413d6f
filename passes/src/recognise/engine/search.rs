//! Finding the matches of a rule: its first root anywhere, the others near what the first has bound.

use super::label::{COL, Indexed, positional};
use super::matching::{Matcher, is_literal};
use super::pattern::{Head, Pattern};
use super::polynomial;
use super::rule::{Binding, Count, Frame, Match, Root, Rule};
use super::term::{Graph, Node, behind_barriers};
use super::view::{Base, Product, Views, is_product};
use egg::Id;
use msc_ir::Op;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Levels of additions through which a class is looked at for the terms of a sum: as many as the longest sum
/// pattern has terms.
const SUM_LEVELS: u8 = 3;

/// Conversions that may lie between a root and what it mentions: dx is rounded, and so is the `γ·dy` in it.
const CONVERT_LEVELS: u8 = 2;

/// Searches one clean e-graph for the matches of rules.
pub struct Searcher<'g> {
    graph: &'g Graph,
    /// Classes that values of the program belong to: later roots are looked for among these only, as no other class
    /// can be replaced.
    program: &'g BTreeSet<Id>,
    classes: Vec<Id>,
    /// What was read of the e-graph, by the classes that were left as they are: rules share them.
    contexts: BTreeMap<BTreeSet<Id>, Context<'g>>,
    arithmetic: Rc<OnceCell<polynomial::Users>>,
    /// For each class those that a row op computes from it directly.
    users: Option<BTreeMap<Id, BTreeSet<Id>>>,
    /// For each class asked for, those that row ops compute from it.
    computed: BTreeMap<Id, BTreeSet<Id>>,
}

struct Context<'g> {
    matcher: Matcher<'g>,
    /// For each class those that mention it.
    near: Option<BTreeMap<Id, BTreeSet<Id>>>,
    lookup: Option<Lookup>,
}

/// All matches of a rule in a clean e-graph. `program` holds the classes that values of the program belong to.
pub fn search(graph: &Graph, rule: &Rule, program: &BTreeSet<Id>) -> Vec<Match> {
    Searcher::new(graph, program).search(rule)
}

impl<'g> Searcher<'g> {
    /// A searcher of an e-graph in which the program's values belong to the classes `program`.
    pub fn new(graph: &'g Graph, program: &'g BTreeSet<Id>) -> Searcher<'g> {
        let mut classes: Vec<Id> = graph.classes().map(|c| c.id).collect();
        classes.sort();
        Searcher {
            graph,
            program,
            classes,
            contexts: BTreeMap::new(),
            arithmetic: Rc::default(),
            users: None,
            computed: BTreeMap::new(),
        }
    }

    /// All matches of a rule.
    pub fn search(&mut self, rule: &Rule) -> Vec<Match> {
        let Some((first, others)) = rule.roots.split_first() else { return Vec::new() };
        let mut states = Vec::new();
        let none = BTreeSet::new();
        let graph = self.graph;
        for i in 0..self.classes.len() {
            let c = self.classes[i];
            let matcher = &mut self.context(&none).matcher;
            states.extend(root_at(matcher, graph, first, c, &Match::default()));
        }
        if others.is_empty() {
            return states;
        }
        if rule.atoms.is_empty() { self.by_views(rule, states) } else { self.by_atoms(rule, states) }
    }

    /// Extends matches of the first root by the others, among classes whose views mention a root found before.
    /// What the first root binds, in any match, is a factor as it stands.
    fn by_views(&mut self, rule: &Rule, mut states: Vec<Match>) -> Vec<Match> {
        let (graph, program) = (self.graph, self.program);
        let bound = states.iter().flat_map(|m| m.vars.values());
        let opaque: BTreeSet<Id> = bound.filter_map(|b| class_of(graph, b)).collect();
        for (i, root) in rule.roots.iter().enumerate().skip(1) {
            if states.is_empty() {
                return states;
            }
            let before = &rule.roots[..i];
            let classes = std::mem::take(&mut self.classes);
            let context = self.context(&opaque);
            let mut next = Vec::new();
            for m in states {
                if let Some(candidates) = computed(&mut context.matcher, graph, &root.pattern, before, &m) {
                    next.extend(extend(&mut context.matcher, graph, root, &candidates, program, m));
                    continue;
                }
                let near = context.near.get_or_insert_with(|| near(&mut context.matcher, graph, &classes));
                let mut candidates = BTreeSet::new();
                for at in before.iter().filter_map(|r| m.class(r.name)) {
                    let seen = behind_barriers(graph, at.class);
                    candidates.extend(near.get(&seen).into_iter().flatten().copied());
                }
                next.extend(extend(&mut context.matcher, graph, root, &candidates, program, m));
            }
            states = next;
            self.classes = classes;
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
            let Some(root) = rule.roots.get(at) else {
                let mut m = m;
                self.finish(rule, &opaque, &mut m);
                done.push(m);
                continue;
            };
            let mut candidates = BTreeSet::new();
            for &c in &opaque {
                let seen = behind_barriers(graph, c);
                let all = self.computed_from(seen);
                // A statistic is an operand, made where the program has it under another shape only.
                match root.frame {
                    Frame::Rows => candidates.extend(all),
                    _ => candidates.extend(all.intersection(program)),
                }
            }
            let matcher = &mut self.context(&opaque).matcher;
            let mut found = extend(matcher, graph, root, &candidates, &candidates, m);
            found.retain(|m| is_independent(&mut matcher.polynomials, graph, rule, m));
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
    fn finish(&mut self, rule: &Rule, opaque: &BTreeSet<Id>, m: &mut Match) {
        let (graph, classes) = (self.graph, std::mem::take(&mut self.classes));
        let Context { matcher, lookup, .. } = self.context(opaque);
        resolve(matcher, graph, &classes, lookup, m);
        self.classes = classes;
        // The variable is a factor as it stands, so its own terms are seen without that.
        let plain = &mut self.context(&BTreeSet::new()).matcher;
        m.unless = rule.unless.iter().find_map(|u| {
            let at = m.class(u.variable)?.clone();
            let fits = !plain.at(&u.pattern, &at, m).is_empty();
            fits.then_some(u.because)
        });
    }

    fn context(&mut self, opaque: &BTreeSet<Id>) -> &mut Context<'g> {
        let (graph, users) = (self.graph, self.arithmetic.clone());
        self.contexts.entry(opaque.clone()).or_insert_with(|| Context {
            matcher: Matcher::new(graph, opaque.clone(), users),
            near: None,
            lookup: None,
        })
    }
}

fn class_of(graph: &Graph, b: &Binding) -> Option<Id> {
    match b {
        Binding::Class(i) => Some(graph.find(i.class)),
        _ => None,
    }
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
            Some(Binding::Product(p)) => p.factors.keys().for_each(|b| b.classes(&mut mentioned)),
            _ => {}
        }
        mentioned.is_disjoint(&atoms)
    })
}

/// For an expression multiplied out, or a function of something, the classes that are computed from its known
/// variables; for an op as it stands, those computed from the roots that it mentions. `None` for other patterns.
fn computed(
    matcher: &mut Matcher<'_>,
    graph: &Graph,
    pattern: &Pattern,
    before: &[Root],
    m: &Match,
) -> Option<BTreeSet<Id>> {
    let reached = |matcher: &mut Matcher<'_>, of: &Pattern| {
        let known = matcher.known(of, m);
        matcher.users().reached(known.into_values())
    };
    match pattern {
        Pattern::Multiplied(expression) => Some(reached(matcher, expression)),
        Pattern::Op(Head::Unary(kind), args) => {
            let operands = reached(matcher, &args[0]);
            let of = |n: &Node| match n {
                Node::Op { op, args } if args.len() == 1 && operands.contains(&graph.find(args[0])) => {
                    matches!(graph.analysis.op(*op), msc_ir::Op::Unary(u) if u.kind == *kind)
                }
                _ => false,
            };
            Some(graph.classes().filter(|c| c.nodes.iter().any(of)).map(|c| c.id).collect())
        }
        Pattern::Op(Head::Binary(_), _) => {
            let known = matcher.known(pattern, m);
            let roots = known.into_iter().filter(|(v, _)| before.iter().any(|r| r.name == *v));
            Some(matcher.users().direct(roots.map(|r| r.1)))
        }
        _ => None,
    }
}

/// For each class the classes whose view as a product, or whose terms' views, mention it.
fn near(matcher: &mut Matcher<'_>, graph: &Graph, classes: &[Id]) -> BTreeMap<Id, BTreeSet<Id>> {
    let mut out: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    for &c in classes {
        let mut mentioned = BTreeSet::new();
        mentions(matcher, graph, c, CONVERT_LEVELS, &mut mentioned);
        for a in mentioned {
            out.entry(a).or_default().insert(c);
        }
    }
    out
}

/// The factors of a class and of its terms; behind a factor that is a conversion, also those of its operand.
fn mentions(matcher: &mut Matcher<'_>, graph: &Graph, class: Id, levels: u8, out: &mut BTreeSet<Id>) {
    let [ty] = graph[class].data.types.as_slice() else { return };
    if !ty.dtype.is_float() {
        return;
    }
    let at = Indexed { class, labels: positional(ty, false) };
    let mut here = BTreeSet::new();
    matcher.views.product(&at).factors.keys().for_each(|b| b.classes(&mut here));
    for first in 0.. {
        let Some(terms) = matcher.views.terms(&at, SUM_LEVELS, first) else { break };
        for t in terms {
            matcher.views.product(&t.of).factors.keys().for_each(|b| b.classes(&mut here));
        }
    }
    for &c in &here {
        if !out.insert(c) || levels == 0 {
            continue;
        }
        for node in &graph[c].nodes {
            if let Node::Op { op, args } = node
                && matches!(graph.analysis.op(*op), msc_ir::Op::Convert(_))
            {
                mentions(matcher, graph, args[0], levels - 1, out);
            }
        }
    }
}

/// Matches of one root at one class.
fn root_at(matcher: &mut Matcher<'_>, graph: &Graph, root: &Root, class: Id, m: &Match) -> Vec<Match> {
    let mut m = m.clone();
    let at = match root.frame {
        Frame::Any => Indexed::unlabelled(class),
        frame => {
            let [ty] = graph[class].data.types.as_slice() else { return Vec::new() };
            if !ty.dtype.is_float() {
                return Vec::new();
            }
            m.framed = true;
            let at = Indexed { class, labels: positional(ty, frame != Frame::Rows) };
            let proper = at.proper();
            let rows = match frame {
                Frame::Rows => Some(proper.len()),
                Frame::Full if at.labels.last() == Some(&COL) => Some(proper.len() - 1),
                Frame::Cols if proper.len() == 1 => m.rows,
                _ => return Vec::new(),
            };
            if m.rows.is_some_and(|r| Some(r) != rows) {
                return Vec::new();
            }
            m.rows = rows;
            if frame != Frame::Rows {
                let size = ty.shape[at.labels.iter().position(|&l| l == COL).unwrap_or(0)];
                if m.row_size.is_some_and(|d| d != size) {
                    return Vec::new();
                }
                m.row_size = Some(size);
            }
            // A layout of a sum is not the sum: the class below it is found by itself.
            if matches!(root.pattern, Pattern::Sum(..)) && !matcher.views.product(&at).is_atom(class) {
                return Vec::new();
            }
            at
        }
    };
    let mut found = matcher.at(&root.pattern, &at, &m);
    for m in &mut found {
        m.vars.insert(root.name, Binding::Class(at.clone()));
    }
    found
}

fn extend(
    matcher: &mut Matcher<'_>,
    graph: &Graph,
    root: &Root,
    candidates: &BTreeSet<Id>,
    program: &BTreeSet<Id>,
    m: Match,
) -> Vec<Match> {
    match root.count {
        Count::One | Count::Optional => {
            let mut out = Vec::new();
            for &c in candidates.intersection(program) {
                out.extend(root_at(matcher, graph, root, c, &m));
                if root.count == Count::Optional && !out.is_empty() {
                    out.truncate(1);
                    return out;
                }
            }
            if root.count == Count::Optional { vec![m] } else { out }
        }
        Count::Each => {
            let mut all = Vec::new();
            for &c in candidates {
                for n in root_at(matcher, graph, root, c, &m) {
                    if let Some(at) = n.class(root.name) {
                        all.push(at.clone());
                    }
                }
            }
            let mut m = m;
            m.vars.insert(root.name, Binding::Classes(all));
            vec![m]
        }
    }
}

type Lookup = BTreeMap<BTreeMap<Base, i16>, Vec<(f64, Id)>>;

/// Replaces variables that stand for several factors by the class that is their product, where there is one.
fn resolve(
    matcher: &mut Matcher<'_>,
    graph: &Graph,
    classes: &[Id],
    lookup: &mut Option<Lookup>,
    m: &mut Match,
) {
    if !m.vars.values().any(|b| matches!(b, Binding::Product(_))) {
        return;
    }
    let table = lookup.get_or_insert_with(|| {
        let mut table = Lookup::new();
        for &c in classes {
            if let [ty] = graph[c].data.types.as_slice() {
                let at = Indexed { class: c, labels: positional(ty, true) };
                let p: Product = (*matcher.views.product(&at)).clone();
                table.entry(p.factors).or_default().push((p.coefficient, c));
            }
        }
        table
    });
    for b in m.vars.values_mut() {
        if let Binding::Product(p) = b
            && let Some(known) = table.get(&p.factors)
            && let Some(&(_, class)) = known.iter().find(|(c, _)| is_literal(*c, p.coefficient))
            && let [ty] = graph[class].data.types.as_slice()
        {
            *b = Binding::Class(Indexed { class, labels: positional(ty, true) });
        }
    }
}
