//! Finding the matches of a rule: its first root anywhere, the others near what the first has bound.

use super::label::{COL, Indexed, positional};
use super::matching::{Matcher, is_literal};
use super::pattern::{Head, Pattern};
use super::rule::{Binding, Count, Frame, Match, Root, Rule};
use super::term::{Graph, Node};
use super::view::{Base, Product};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Levels of additions through which a class is looked at for the terms of a sum: as many as the longest sum
/// pattern has terms.
const SUM_LEVELS: u8 = 3;

/// Conversions that may lie between a root and what it mentions: dx is rounded, and so is the `γ·dy` in it.
const CONVERT_LEVELS: u8 = 2;

/// All matches of a rule in a clean e-graph. `program` holds the classes that values of the program belong to:
/// later roots are looked for among these only, as no other class can be replaced.
pub fn search(graph: &Graph, rule: &Rule, program: &BTreeSet<Id>) -> Vec<Match> {
    let Some((first, others)) = rule.roots.split_first() else { return Vec::new() };
    let mut classes: Vec<Id> = graph.classes().map(|c| c.id).collect();
    classes.sort();
    let mut found = Vec::new();
    let mut matcher = Matcher::new(graph, BTreeSet::new());
    for &c in &classes {
        found.extend(root_at(&mut matcher, graph, first, c, &Match::default()));
    }
    if others.is_empty() || found.is_empty() {
        return found;
    }
    // What the first root has bound is a factor as it stands, even where it is a product itself.
    let mut opaque = BTreeSet::new();
    for b in found.iter().flat_map(|m| m.vars.values()) {
        if let Binding::Class(i) = b {
            opaque.insert(graph.find(i.class));
        }
    }
    let mut plain = matcher;
    let mut matcher = Matcher::new(graph, opaque);
    let mut mentioned: Option<BTreeMap<Id, BTreeSet<Id>>> = None;
    let mut lookup = None;
    let mut out = Vec::new();
    for m in found {
        let mut states = vec![m];
        for (i, root) in others.iter().enumerate() {
            let before = &rule.roots[..=i];
            let mut next = Vec::new();
            for m in states {
                let mut candidates = BTreeSet::new();
                if let Some(computed) = computed(&mut matcher, graph, &root.pattern, &m) {
                    candidates = computed;
                } else {
                    let near = mentioned.get_or_insert_with(|| near(&mut matcher, graph, &classes));
                    // A root mentions one of those before it.
                    for at in before.iter().filter_map(|r| m.class(r.name)) {
                        candidates.extend(near.get(&graph.find(at.class)).into_iter().flatten().copied());
                    }
                }
                next.extend(extend(&mut matcher, graph, root, &candidates, program, m));
            }
            states = next;
        }
        for mut m in states {
            resolve(&mut matcher, graph, &classes, &mut lookup, &mut m);
            m.unless = rule.unless.iter().find_map(|u| {
                let at = m.class(u.variable)?.clone();
                // The variable is a factor as it stands, so its own terms are seen without that.
                let fits = !plain.at(&u.pattern, &at, &m).is_empty();
                fits.then_some(u.because)
            });
            out.push(m);
        }
    }
    out
}

/// For a polynomial, or a function of something, the classes that are computed from its known variables; `None` for
/// other patterns.
fn computed(matcher: &mut Matcher<'_>, graph: &Graph, pattern: &Pattern, m: &Match) -> Option<BTreeSet<Id>> {
    let reached = |matcher: &mut Matcher<'_>, of: &Pattern| {
        let known = matcher.known(of, m);
        matcher.users().reached(known.into_values())
    };
    match pattern {
        Pattern::Polynomial(expression) => Some(reached(matcher, expression)),
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
