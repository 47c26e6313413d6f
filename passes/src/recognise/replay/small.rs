//! Large slices at small sizes: the interpreter is slow, and rows are alike.
//!
//! Both graphs of a replay keep the same parameters. A dimension takes another size where nobody needs it whole in either
//! graph and all that it is tied to, through ops or through parameters of the other graph, takes it too. What is last in a
//! tensor is what ops reduce over, and programs divide by its size: it keeps it, unless what is left is still too large. The
//! named op takes part by its definition, whose sizes are free where the op's own rule needs one whole on every rank.

use crate::error::{PassError, Result};
use msc_ir::factor::resize::resize_atoms;
use msc_ir::factor::solve::{AtomId, Atoms};
use msc_ir::inline::inline;
use msc_ir::{Graph, Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Elements of the largest parameter beyond which sizes are cut.
const LARGE: usize = 1 << 14;

/// Elements of the largest value beyond which more is cut.
const TOO_LARGE: usize = 1 << 21;

/// Elements of the largest value that are still run: a gibibyte of doubles.
const MOST: usize = 1 << 27;

/// What dimensions are cut to.
struct Cut {
    /// Those that are never the last.
    rows: usize,
    /// Those that are the last of some parameter and not of another: positions of queries and of keys.
    both: usize,
    /// Those that are always the last.
    columns: usize,
}

/// In turn, until one can be made and is small enough.
const CUTS: [Cut; 4] = [
    Cut { rows: 2, both: 12, columns: usize::MAX },
    Cut { rows: 2, both: usize::MAX, columns: usize::MAX },
    Cut { rows: 2, both: 12, columns: 48 },
    Cut { rows: 2, both: usize::MAX, columns: 48 },
];

/// An atom of the program's graph (0) or of the named op's (1).
type Node = (usize, AtomId);

/// The two graphs with few rows, if they are large.
///
/// # Errors
/// If they cannot be made small enough to be run.
pub(super) fn small(module: &mut Module, program: Graph, named: Graph) -> Result<(Graph, Graph)> {
    if program.param_types().iter().all(|t| t.elements() <= LARGE) {
        return Ok((program, named));
    }
    let graphs = [program, inline(module, &named, |op| matches!(op, Op::Fused(_)))?];
    let tied = Tied::new(module, &graphs);
    let mut kept: Option<(usize, [Graph; 2])> = None;
    let mut failed = None;
    for cut in &CUTS {
        let made = tied.cut(module, &graphs, cut);
        let [a, b] = match made {
            Ok(made) if made[0].param_types() == made[1].param_types() => made,
            Ok(_) => continue,
            Err(e) => {
                failed.get_or_insert(e);
                continue;
            }
        };
        let size = largest(&a).max(largest(&b));
        if kept.as_ref().is_none_or(|(n, _)| size < *n) {
            kept = Some((size, [a, b]));
        }
        if size <= TOO_LARGE {
            break;
        }
    }
    let (size, [a, b]) = match (kept, failed) {
        (Some(kept), _) => kept,
        (None, Some(e)) => return Err(e),
        (None, None) => (largest(&graphs[0]).max(largest(&graphs[1])), graphs),
    };
    if size > MOST {
        return Err(PassError::TooLarge {
            message: format!(
                "a replay would hold values of {size} elements, and its dimensions cannot be cut"
            ),
            help: "verify the model at smaller sizes".into(),
        });
    }
    Ok((a, b))
}

fn largest(g: &Graph) -> usize {
    g.ops().flat_map(|(_, d)| &d.results).chain(g.params()).map(|&v| g.ty(v).elements()).max().unwrap_or(0)
}

/// The atoms of both graphs, and which have one size.
struct Tied {
    atoms: [Atoms; 2],
    /// The group of each atom.
    group: BTreeMap<Node, usize>,
    /// Groups that keep their size.
    whole: BTreeSet<usize>,
    /// Groups that are the last dimension of a parameter, and groups that are another one.
    last: BTreeSet<usize>,
    other: BTreeSet<usize>,
}

impl Tied {
    fn new(module: &Module, graphs: &[Graph; 2]) -> Tied {
        let atoms = [Atoms::solve(module, &graphs[0]), Atoms::solve(module, &graphs[1])];
        let all = atoms.iter().enumerate().flat_map(|(side, a)| a.all().into_iter().map(move |x| (side, x)));
        let mut t = Tied {
            group: all.enumerate().map(|(i, node)| (node, i)).collect(),
            atoms,
            whole: BTreeSet::new(),
            last: BTreeSet::new(),
            other: BTreeSet::new(),
        };
        let (mut pairs, mut unequal) = (Vec::new(), Vec::new());
        let mut places = Vec::new();
        for (&v, &w) in graphs[0].params().iter().zip(graphs[1].params()) {
            let rank = graphs[0].ty(v).rank();
            for d in 0..rank {
                let of = |side: usize, v| t.atoms[side].dim(v, d).into_iter().map(move |a| (side, a));
                let (a, b): (Vec<Node>, Vec<Node>) = (of(0, v).collect(), of(1, w).collect());
                let size = |n: &Node| t.atoms[n.0].size(n.1);
                places.extend(a.iter().chain(&b).map(|&n| (n, d + 1 == rank)));
                if a.iter().map(size).eq(b.iter().map(size)) {
                    pairs.extend(a.into_iter().zip(b));
                } else {
                    unequal.extend(a.into_iter().chain(b));
                }
            }
        }
        for (a, b) in pairs {
            let (from, to) = (t.group[&a], t.group[&b]);
            t.group.values_mut().filter(|g| **g == from).for_each(|g| *g = to);
        }
        let needed = t.group.keys().copied().filter(|n| t.atoms[n.0].is_whole(n.1));
        t.whole = needed.chain(unequal).map(|n| t.group[&n]).collect();
        for (n, is_last) in places {
            if is_last { &mut t.last } else { &mut t.other }.insert(t.group[&n]);
        }
        t
    }

    /// Both graphs at the sizes of a cut.
    fn cut(&self, module: &mut Module, graphs: &[Graph; 2], cut: &Cut) -> Result<[Graph; 2]> {
        let most = |group: &usize| match (self.last.contains(group), self.other.contains(group)) {
            _ if self.whole.contains(group) => usize::MAX,
            (true, true) => cut.both,
            (true, false) => cut.columns,
            (false, true) => cut.rows,
            (false, false) => usize::MAX,
        };
        let mut make = |side: usize| {
            let atoms = &self.atoms[side];
            let mine = self.group.iter().filter(|((s, _), _)| *s == side);
            let sizes = mine.map(|((_, a), g)| (*a, atoms.size(*a).min(most(g)))).collect();
            resize_atoms(module, &graphs[side], atoms, &sizes)
        };
        Ok([make(0)?, make(1)?])
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, largest, small};
    use crate::error::PassError;
    use msc_ir::{Module, text};

    /// Scores of 4096 queries and keys, and their rows' sums twice: as `@program` and as `@named` have them.
    fn module(program: &str, named: &str) -> Module {
        let graph = |name: &str, ops: &str| {
            format!(
                "graph @{name}(%0: f32[16,4096,64], %1: f32[16,4096,64]) {{\n  %2 = dot_general %0, %1 {{dtype = f32, lhs_batch = \
                 [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]}} : f32[16,4096,4096]\n{ops}  return %{}\n}}\n\n",
                2 + ops.lines().count()
            )
        };
        let text = format!("module @m\n\n{}{}", graph("program", program), graph("named", named));
        text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    const SUM: &str = "  %3 = reduce %2 {dims = [2], monoid = sum} : f32[16,4096]\n";
    const REVERSED: &str = "  %3 = reverse %2 {dims = [2]} : f32[16,4096,4096]\n  \
                            %4 = reduce %3 {dims = [2], monoid = sum} : f32[16,4096]\n";

    fn shapes(program: &str, named: &str) -> Result<Vec<String>, PassError> {
        let mut m = module(program, named);
        let graph = |m: &Module, name| m.graph(m.graph_by_name(name).expect("is there")).clone();
        let (a, b) = (graph(&m, "program"), graph(&m, "named"));
        let (a, b) = small(&mut m, a, b)?;
        assert_eq!(a.param_types(), b.param_types());
        assert!(largest(&a).max(largest(&b)) <= MOST);
        Ok(a.param_types().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rows_are_cut_and_columns_are_not() {
        assert_eq!(shapes(SUM, SUM).expect("can be cut"), ["f32[2,2,64]", "f32[2,2,64]"]);
    }

    /// What one graph needs whole keeps its size in both.
    #[test]
    fn what_either_graph_needs_whole_stays() {
        for (program, named) in [(SUM, REVERSED), (REVERSED, SUM)] {
            assert_eq!(shapes(program, named).expect("can be cut"), ["f32[2,2,64]", "f32[2,4096,64]"]);
        }
    }

    #[test]
    fn what_cannot_be_made_small_is_refused() {
        // Reversed in every dimension.
        let all =
            REVERSED.replace("dims = [2]} : f32[16,4096,4096]", "dims = [0, 1, 2]} : f32[16,4096,4096]");
        match shapes(&all, SUM) {
            Err(e @ PassError::TooLarge { .. }) => assert!(e.to_string().contains("268435456"), "{e}"),
            other => panic!("{other:?}"),
        }
    }
}
