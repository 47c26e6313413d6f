//! Matching one root of a rule, and where the next may be.

use super::super::label::{COL, Indexed, positional};
use super::super::matching::Matcher;
use super::super::pattern::{Head, Pattern};
use super::super::rule::{Binding, Count, Frame, Match, Root};
use super::super::term::{Graph, Node};
use egg::Id;
use std::collections::BTreeSet;

/// Whether [`computed`] says where a pattern may match.
pub fn is_computed(pattern: &Pattern, before: &[Root]) -> bool {
    match pattern {
        Pattern::Multiplied(_) | Pattern::Op(Head::Unary(_) | Head::Binary(_) | Head::Select, _) => true,
        Pattern::Or(all) => all.iter().all(|p| is_computed(p, before)),
        Pattern::As(name, inner) => {
            before.iter().any(|r| r.pattern.variables().contains(name)) || is_computed(inner, before)
        }
        _ => false,
    }
}

/// For an expression multiplied out, or a function of something, the classes that are computed from its known
/// variables; for an op as it stands, those computed from the roots that it mentions, for a selection from all that is
/// known; for what a known variable is made of, its class. `None` for other patterns.
pub fn computed(
    matcher: &mut Matcher<'_>,
    graph: &Graph,
    pattern: &Pattern,
    before: &[Root],
    m: &Match,
) -> Option<BTreeSet<Id>> {
    let reached = |matcher: &mut Matcher<'_>, of: &Pattern| {
        let known = matcher.known(&matcher.with_numbers(of, m), m);
        matcher.users().reached(known.into_values())
    };
    // As far as a variable is from the whole, and not less than this.
    const LEVELS: usize = 2;
    let levels = |name: &str| pattern.depth_of(name).unwrap_or(0).max(LEVELS);
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
            Some(roots.flat_map(|(v, c)| matcher.users().within(c, levels(v))).collect())
        }
        Pattern::Op(Head::Select, _) => {
            let known = matcher.known(pattern, m);
            let values = known.into_iter().filter(|(_, c)| graph[*c].data.splat.is_none());
            Some(values.flat_map(|(v, c)| matcher.users().within(c, levels(v))).collect())
        }
        Pattern::Or(all) => {
            let each = all.iter().map(|p| computed(matcher, graph, p, before, m));
            Some(each.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
        }
        Pattern::As(name, inner) => match m.class(name) {
            Some(at) => Some([graph.find(at.class)].into()),
            None => computed(matcher, graph, inner, before, m),
        },
        _ => None,
    }
}

/// Matches of one root at one class.
pub fn root_at(matcher: &mut Matcher<'_>, graph: &Graph, root: &Root, class: Id, m: &Match) -> Vec<Match> {
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

pub fn extend(
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
