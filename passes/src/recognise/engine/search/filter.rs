//! At which classes a pattern may match at all, judged by the kinds of the ops: most rules match at few classes, and
//! matching costs far more than seeing that.

use super::super::pattern::{Head, Pattern};
use super::super::rule::{Frame, Root};
use super::super::term::{Graph, Node, behind_barriers};
use egg::Id;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::{Op, Operation, TensorType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

type Operands = SmallVec<[Id; 3]>;

/// A class as seen behind optimization barriers.
#[derive(Default)]
struct Seen<'g> {
    ops: SmallVec<[(&'g Op, Operands); 2]>,
    ty: Option<&'g TensorType>,
    splat: bool,
}

/// All classes of a clean e-graph.
pub struct Filter<'g> {
    /// By the class's number.
    seen: Vec<Seen<'g>>,
    all: Vec<Id>,
    /// The classes that are an op of a name, ascending.
    by_name: FxHashMap<&'static str, Vec<Id>>,
}

impl<'g> Filter<'g> {
    /// Of an e-graph.
    pub fn new(graph: &'g Graph) -> Filter<'g> {
        let mut all: Vec<Id> = graph.classes().map(|c| c.id).collect();
        all.sort_unstable();
        let count = all.last().map_or(0, |&c| usize::from(c) + 1);
        let mut seen: Vec<Seen<'g>> = std::iter::repeat_with(Seen::default).take(count).collect();
        let mut by_name: FxHashMap<&'static str, Vec<Id>> = FxHashMap::default();
        for &c in &all {
            let class = &graph[behind_barriers(graph, c)];
            let here = &mut seen[usize::from(c)];
            here.splat = graph[c].data.splat.is_some();
            here.ty = graph[c].data.types.first();
            for node in &class.nodes {
                let Node::Op { op, args } = node else { continue };
                let op = graph.analysis.op(*op);
                here.ops.push((op, args.iter().map(|&a| graph.find(a)).collect()));
                let list = by_name.entry(op.name()).or_default();
                if list.last() != Some(&c) {
                    list.push(c);
                }
            }
        }
        Filter { seen, all, by_name }
    }

    /// The classes at which a first root may match, ascending.
    pub fn candidates(&self, root: &Root) -> Vec<Id> {
        let list = |names: &[&str]| -> Vec<Id> {
            let mut out: Vec<Id> =
                names.iter().flat_map(|n| self.by_name.get(n).into_iter().flatten().copied()).collect();
            out.sort_unstable();
            out.dedup();
            out
        };
        let mut out = match &root.pattern {
            Pattern::Op(head, _) => head.name().map_or_else(|| self.all.clone(), |n| list(&[n])),
            p if is_addition(root, p) => list(&["add", "subtract"]),
            _ => return self.all.clone(),
        };
        out.retain(|&c| match &root.pattern {
            Pattern::Sum(terms, None) if terms.len() == 2 => self.adds(terms, c),
            p => self.may(p, c),
        });
        out
    }

    /// Whether a pattern may match at a class.
    fn may(&self, pattern: &Pattern, class: Id) -> bool {
        let seen = &self.seen[usize::from(class)];
        match pattern {
            Pattern::Const(_) | Pattern::Number(_) => seen.splat,
            Pattern::Scalar(_) => seen.splat || self.spreads(seen),
            Pattern::Op(head, patterns) => seen.ops.iter().any(|(op, args)| {
                let fits = |order: &[usize]| patterns.iter().zip(order).all(|(p, &i)| self.may(p, args[i]));
                args.len() == patterns.len()
                    && self.is(*head, op, args)
                    && (args.len() > 3 || fits(&[0, 1, 2]) || head.is_commutative() && fits(&[1, 0]))
            }),
            Pattern::Or(all) => all.iter().any(|p| self.may(p, class)),
            Pattern::As(_, inner) => self.may(inner, class),
            // Views see through layout and arithmetic.
            _ => true,
        }
    }

    /// Whether a class is a scalar spread out.
    fn spreads(&self, seen: &Seen<'g>) -> bool {
        let scalar = |c: &Id| self.seen[usize::from(*c)].ty.is_some_and(|t| t.rank() == 0);
        let layout = |op: &Op| matches!(op, Op::Broadcast(_) | Op::Reshape(_));
        seen.ops.iter().any(|(op, args)| layout(op) && args.iter().all(scalar))
    }

    fn is(&self, head: Head, op: &Op, args: &[Id]) -> bool {
        let types: Option<SmallVec<[&TensorType; 3]>> =
            args.iter().map(|&a| self.seen[usize::from(a)].ty).collect();
        types.is_some_and(|t| head.matches(op, &t))
    }

    /// Whether a class is an addition whose operands may be the two terms.
    fn adds(&self, terms: &[Pattern], class: Id) -> bool {
        self.seen[usize::from(class)].ops.iter().any(|(op, args)| {
            let add = matches!(op, Op::Binary(b) if matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract));
            add && [[0, 1], [1, 0]]
                .iter()
                .any(|order| terms.iter().zip(order).all(|(p, &i)| self.may(p, args[i])))
        })
    }
}

/// Whether a first root matches at classes that are additions only: in a frame what is a sum under another layout is
/// found at the sum.
fn is_addition(root: &Root, pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Sum(terms, rest) => root.frame != Frame::Any && (terms.len() > 1 || rest.is_none()),
        _ => false,
    }
}
