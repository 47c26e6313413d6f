//! A class as a sum of classes.

use super::super::label::{Indexed, through_layout};
use super::super::term::{Node, behind_barriers};
use super::expand::Views;
use egg::Id;
use msc_ir::Op;
use msc_ir::ops::binary::BinaryKind;

/// A term of a sum.
#[derive(Clone, PartialEq, Debug)]
pub struct Term {
    /// Whether it is subtracted.
    pub negative: bool,
    /// The class.
    pub of: Indexed,
}

impl Views<'_> {
    /// The terms of a class as a sum, expanded to `levels` additions deep, through addition `first` of the class
    /// itself. `None` if there is no such addition.
    pub fn terms(&self, of: &Indexed, levels: u8, first: usize) -> Option<Vec<Term>> {
        let (a, b, negative) = self.additions(of).into_iter().nth(first)?;
        let mut out = Vec::new();
        for (of, negative) in [(a, false), (b, negative)] {
            match (levels > 1).then(|| self.terms(&of, levels - 1, 0)).flatten() {
                Some(inner) => {
                    out.extend(
                        inner.into_iter().map(|t| Term { negative: t.negative != negative, of: t.of }),
                    );
                }
                None => out.push(Term { negative, of }),
            }
        }
        Some(out)
    }

    /// The additions and subtractions that a class is, through layout ops; whether the second operand is
    /// subtracted.
    pub fn additions(&self, of: &Indexed) -> Vec<(Indexed, Indexed, bool)> {
        let mut out = Vec::new();
        let mut at = of.clone();
        // Layout chains are short; the bound only guards against a cycle of them.
        for _ in 0..8 {
            let class = behind_barriers(self.graph, at.class);
            if self.opaque.contains(&class) {
                break;
            }
            let mut next = None;
            for node in &self.graph[class].nodes {
                let Node::Op { op, args } = node else { continue };
                match self.graph.analysis.op(*op) {
                    Op::Binary(b) if matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract) => {
                        if args.iter().any(|&a| self.graph.find(a) == class) {
                            continue;
                        }
                        let child = |a: Id| Indexed { class: self.graph.find(a), labels: at.labels.clone() };
                        out.push((child(args[0]), child(args[1]), b.kind == BinaryKind::Subtract));
                    }
                    op => {
                        if let (&[a], Some(ty), None) = (&args[..], self.ty(class), &next)
                            && let Some(from) = self.ty(a)
                            && let Some(labels) = through_layout(op, from, ty, &at.labels)
                            && self.graph.find(a) != class
                        {
                            next = Some(Indexed { class: a, labels });
                        }
                    }
                }
            }
            match next {
                Some(n) if out.is_empty() => at = n,
                _ => break,
            }
        }
        out
    }
}
