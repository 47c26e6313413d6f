//! Patterns as formulas, for people: `x·x`, `v^-1/2`, `Σ (g·x)`.

use super::{Head, Item, Number, Pattern, Reduced};
use msc_ir::Monoid;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use std::fmt;

/// How tightly a formula binds: what is looser than its surroundings stands in parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Sum,
    Product,
    Atom,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.formula(Level::Sum))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Number::Literal(x) => write!(f, "{x}"),
            Number::PerRow(x) => write!(f, "{x}/D"),
            Number::RowSize => f.write_str("D"),
        }
    }
}

impl Pattern {
    fn formula(&self, around: Level) -> String {
        let (text, level) = match self {
            Pattern::Var(v) | Pattern::Const(v) | Pattern::Scalar(v) => ((*v).to_string(), Level::Atom),
            Pattern::Number(n) => (n.to_string(), Level::Atom),
            Pattern::Op(head, args) => head.formula(args),
            Pattern::Product(items) => {
                let all: Vec<String> = items.iter().map(factor).collect();
                (all.join("·"), Level::Product)
            }
            Pattern::Sum(terms, rest) | Pattern::Polynomial(terms, rest) => {
                let mut all: Vec<String> = terms.iter().map(|t| t.formula(Level::Sum)).collect();
                all.extend(rest.map(|_| "…".to_string()));
                (all.join(" + "), Level::Sum)
            }
            Pattern::Multiplied(inner) => return inner.formula(around),
            Pattern::Or(all) => {
                let all: Vec<String> = all.iter().map(|p| p.formula(Level::Sum)).collect();
                (all.join(" or "), Level::Sum)
            }
            Pattern::As(name, inner) => (format!("{name} = {}", inner.formula(Level::Product)), Level::Sum),
        };
        if level < around { format!("({text})") } else { text }
    }
}

fn factor(i: &Item) -> String {
    match i.halves {
        2 => i.pattern.formula(Level::Product),
        h if h % 2 == 0 => format!("{}^{}", i.pattern.formula(Level::Atom), h / 2),
        h => format!("{}^({h}/2)", i.pattern.formula(Level::Atom)),
    }
}

impl Head {
    fn formula(self, args: &[Pattern]) -> (String, Level) {
        let infix = |by: &str, level: Level, right: Level| {
            let all: Vec<String> =
                args.iter().enumerate().map(|(i, a)| a.formula(if i == 0 { level } else { right })).collect();
            (all.join(by), level)
        };
        let call = |name: &str| {
            let all: Vec<String> = args.iter().map(|a| a.formula(Level::Sum)).collect();
            (format!("{name}({})", all.join(", ")), Level::Atom)
        };
        match self {
            Head::Binary(BinaryKind::Add) => infix(" + ", Level::Sum, Level::Sum),
            Head::Binary(BinaryKind::Subtract) => infix(" - ", Level::Sum, Level::Product),
            Head::Binary(BinaryKind::Multiply) => infix("·", Level::Product, Level::Product),
            Head::Binary(BinaryKind::Divide) => infix("/", Level::Product, Level::Atom),
            Head::Binary(BinaryKind::Power) => infix("^", Level::Atom, Level::Atom),
            Head::Binary(k) => call(k.name()),
            Head::Unary(UnaryKind::Negate) => {
                let all: Vec<String> = args.iter().map(|a| a.formula(Level::Atom)).collect();
                (format!("-{}", all.join("")), Level::Product)
            }
            Head::Unary(k) => call(k.name()),
            Head::AnyUnary => call("a function"),
            Head::AnyBinary => call("a function"),
            // How a number is spread is no part of a formula.
            Head::Broadcast | Head::Reshape => match args.first() {
                Some(a) => (a.formula(Level::Atom), Level::Atom),
                None => call("layout"),
            },
            Head::Transpose => call("transpose"),
            Head::Convert => call("convert"),
            Head::Select => call("select"),
            Head::Clamp => call("clamp"),
            Head::Compare(d) => call(&d.name().to_lowercase()),
            Head::Reduce(monoid, dims) => {
                let name = match monoid {
                    Some(Monoid::Sum) => "sum",
                    Some(m) => m.name(),
                    None => "reduce",
                };
                match dims {
                    Some(Reduced::Last) => call(&format!("{name} over the last dimension ")),
                    Some(Reduced::Leading) => call(&format!("{name} over all but the last dimension ")),
                    _ => call(name),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn formulas() {
        for (pattern, formula) in [
            ("(multiply ?x ?x)", "x·x"),
            ("(product (cols ?gamma) ?x (rows (pow ?v -1/2)))", "gamma·x·v^(-1/2)"),
            ("(product 0.5 (sum ?x ?m:const))", "0.5·(x + m)"),
            ("(divide (add ?x ?y) (multiply ?a ?b))", "(x + y)/(a·b)"),
            ("(add (sqrt ?v) ?eps:const)", "sqrt(v) + eps"),
            ("(reduce.sum.last (multiply ?x ?x))", "sum over the last dimension (x·x)"),
        ] {
            assert_eq!(Pattern::parse(pattern).expect("parses").to_string(), formula);
        }
    }
}
