//! Relaxed patterns: one part is left open, or left out. What matches then and did not before lacks that part alone.

use super::{Item, Pattern};

/// The variable that stands for the part that is left open.
pub const OPEN: &str = "any";

/// A pattern with one part relaxed.
#[derive(Clone, PartialEq, Debug)]
pub struct Relaxed {
    /// The pattern.
    pub pattern: Pattern,
    /// The part.
    pub part: Pattern,
    /// Whether the part is left out, rather than open.
    pub dropped: bool,
}

impl Pattern {
    /// The number of ops, variables and numbers in the pattern.
    pub fn size(&self) -> usize {
        let mut n = 0;
        self.visit(&mut |_| n += 1);
        n
    }

    /// The pattern with each of its parts relaxed, small parts first. The whole is no part.
    pub fn relaxed(&self) -> Vec<Relaxed> {
        let mut out = Vec::new();
        self.parts(&mut |whole, part, dropped| {
            out.push(Relaxed { pattern: whole, part: part.clone(), dropped });
        });
        out.retain(|r| !matches!(r.part, Pattern::Var(_)) || r.dropped);
        out.sort_by_key(|r| (r.part.size(), r.dropped));
        out
    }

    /// Calls `f` for each part with the pattern that is left.
    fn parts(&self, f: &mut dyn FnMut(Pattern, &Pattern, bool)) {
        let inside =
            |old: &Pattern, with: &dyn Fn(Pattern) -> Pattern, f: &mut dyn FnMut(_, &Pattern, bool)| {
                f(with(Pattern::Var(OPEN)), old, false);
                old.parts(&mut |new, part, dropped| f(with(new), part, dropped));
            };
        let list = |all: &[Pattern],
                    droppable: bool,
                    with: &dyn Fn(Vec<Pattern>) -> Pattern,
                    f: &mut dyn FnMut(Pattern, &Pattern, bool)| {
            for (i, old) in all.iter().enumerate() {
                let replaced = |new: Pattern| {
                    let mut all = all.to_vec();
                    all[i] = new;
                    with(all)
                };
                inside(old, &replaced, f);
                if droppable && all.len() > 1 {
                    let mut rest = all.to_vec();
                    rest.remove(i);
                    // A sum of one term is that term.
                    let one = if rest.len() == 1 { rest.pop() } else { None };
                    f(one.unwrap_or_else(|| with(rest)), old, true);
                }
            }
        };
        match self {
            Pattern::Op(head, args) => {
                let head = *head;
                list(args, false, &|a| Pattern::Op(head, a), f);
            }
            Pattern::Sum(terms, None) => list(terms, true, &|t| Pattern::Sum(t, None), f),
            Pattern::Sum(terms, rest) => list(terms, false, &|t| Pattern::Sum(t, *rest), f),
            Pattern::Or(all) => list(all, false, &Pattern::Or, f),
            Pattern::As(name, inner) => inside(inner, &|p| Pattern::As(name, Box::new(p)), f),
            Pattern::Product(items) => {
                for (i, item) in items.iter().enumerate() {
                    let replaced = |new: Pattern| {
                        let mut all = items.clone();
                        all[i] = Item { pattern: new, ..item.clone() };
                        Pattern::Product(all)
                    };
                    inside(&item.pattern, &replaced, f);
                    if items.len() > 1 {
                        let mut rest = items.clone();
                        rest.remove(i);
                        f(Pattern::Product(rest), &item.pattern, true);
                    }
                }
            }
            // Multiplied out, a part has no place of its own.
            Pattern::Polynomial(..) | Pattern::Multiplied(_) => {}
            Pattern::Var(_) | Pattern::Const(_) | Pattern::Scalar(_) | Pattern::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn parts_small_ones_first() {
        let p = Pattern::parse("(sum (product 1/D (rows (reduce.sum.last (multiply ?x ?x)))) ?eps:const)");
        let all = p.expect("parses").relaxed();
        let told: Vec<(String, bool)> = all.iter().map(|r| (r.part.to_string(), r.dropped)).collect();
        assert!(told.contains(&("eps".into(), true)) && told.contains(&("x·x".into(), false)), "{told:?}");
        assert!(all.is_sorted_by_key(|r| r.part.size()));
        let without_eps = all.iter().find(|r| r.dropped && r.part.to_string() == "eps").expect("there");
        assert_eq!(without_eps.pattern.to_string(), "1/D·sum over the last dimension (x·x)");
    }
}
