//! Patterns: s-expressions over the names of the IR's ops.
//!
//! ```text
//! ?x                      a variable: any class, the same one at every occurrence
//! ?c:const                a class of one known value
//! ?c:scalar               the same, or a scalar of the program spread out
//! 2   -inf   1/D   D      a class of this value (relative tolerance 1e-6); D is the size of the row
//! (multiply ?x 1)         an op; commutative ops are tried both ways round
//! (reduce.sum.last ?x)    predicates on attributes follow the name, see `Head`
//! (product ?x (pow ?v -1/2) (cols ?g) (rows ?s) (scalars ?k))
//! (sum ?a ?b ?r*)
//! (as ?c (sum ?x ?m))     the pattern, its class bound to a variable
//! (or (divide ?x 2) (multiply ?x 0.5))
//! (polynomial (product ?x (rows ?s)) ?r*)
//! (multiplied (multiply ?d (add ?s (multiply ?x ?s))))
//! ```
//!
//! `product` and `sum` look at a class as an n-ary product or sum (see [`super::view`]): whatever order,
//! association, reciprocals and layout ops the program uses, the factors and terms are the same. They need a
//! frame (see [`super::rule::Frame`]), which says what the dimensions mean: `rows` places a factor that has the
//! row dimensions only, `cols` one that has the last dimension only, and a factor without placement has all.
//! Of the variables in one product, one may be free: it takes the factors that are left (`(cols ?g)`: those of
//! the last dimension only). `?r*` in a sum takes the terms that are left, if any.
//!
//! `polynomial` asks whether a class is equal to the sum that it lists when both are multiplied out, with the
//! rule's atoms as indeterminates ([`super::rule::Rule::atoms`]): however the program arranges the terms. Its
//! variables must be bound already, but for `?r*`, the terms of the program that are left; `(maybe ?k)` is a factor
//! that counts as 1 where `?k` is not bound.
//!
//! `multiplied` compares a class with an expression of `add`, `subtract`, `multiply` and `negate`, both multiplied
//! out (see [`super::polynomial`]). One of its variables may be free: it must be a factor of the whole.

mod parse;
pub mod relax;
mod show;

use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, Op, TensorType};
use parse::Tokens;

/// A number in a pattern.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// The value itself.
    Literal(f64),
    /// This over the size of the row.
    PerRow(f64),
    /// The size of the row.
    RowSize,
}

/// A pattern.
#[derive(Clone, PartialEq, Debug)]
pub enum Pattern {
    /// `?x`.
    Var(&'static str),
    /// `?x:const`.
    Const(&'static str),
    /// `?x:scalar`.
    Scalar(&'static str),
    /// A number.
    Number(Number),
    /// An op of one result.
    Op(Head, Vec<Pattern>),
    /// An n-ary product.
    Product(Vec<Item>),
    /// An n-ary sum, with the variable for the terms that are left.
    Sum(Vec<Pattern>, Option<&'static str>),
    /// A sum multiplied out, with the variable for the terms that are left.
    Polynomial(Vec<Pattern>, Option<&'static str>),
    /// What equals an expression when both are multiplied out.
    Multiplied(Box<Pattern>),
    /// Any of these.
    Or(Vec<Pattern>),
    /// A pattern whose class is bound to a variable.
    As(&'static str, Box<Pattern>),
}

/// Which dimensions a factor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Those of the product.
    Full,
    /// All but the last.
    Rows,
    /// The last.
    Cols,
    /// None: scalars of the program, with the product's number. At least one.
    Scalars,
}

/// A factor of a product.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    /// Its dimensions.
    pub place: Place,
    /// Its exponent in halves.
    pub halves: i16,
    /// Whether it is left out where its variable is not bound; in a polynomial only.
    pub optional: bool,
    /// The factor.
    pub pattern: Pattern,
}

/// The op at the head of a pattern.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Head {
    /// A unary op by name.
    Unary(UnaryKind),
    /// `unary.any`.
    AnyUnary,
    /// A binary op by name.
    Binary(BinaryKind),
    /// `binary.any`.
    AnyBinary,
    /// `broadcast_in_dim`.
    Broadcast,
    /// `reshape`.
    Reshape,
    /// `transpose`.
    Transpose,
    /// `convert`.
    Convert,
    /// `select`.
    Select,
    /// `clamp`.
    Clamp,
    /// `compare.DIRECTION`: `eq`, `ne`, `ge`, `gt`, `le`, `lt`, of numbers.
    Compare(Direction),
    /// `reduce`, `reduce.MONOID`, and `.last` (the last dimension alone), `.leading` (all others), `.unit`
    /// (dimensions of size 1 only).
    Reduce(Option<Monoid>, Option<Reduced>),
}

/// Which dimensions a `reduce` reduces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduced {
    /// The last.
    Last,
    /// All but the last.
    Leading,
    /// Some of size 1 only.
    Unit,
}

impl Head {
    fn parse(word: &str) -> Result<Head, String> {
        let (name, rest) = word.split_once('.').unwrap_or((word, ""));
        let plain =
            |h: Head| if rest.is_empty() { Ok(h) } else { Err(format!("`{word}` takes no predicate")) };
        match name {
            "unary" if rest == "any" => Ok(Head::AnyUnary),
            "binary" if rest == "any" => Ok(Head::AnyBinary),
            "broadcast_in_dim" => plain(Head::Broadcast),
            "reshape" => plain(Head::Reshape),
            "transpose" => plain(Head::Transpose),
            "convert" => plain(Head::Convert),
            "select" => plain(Head::Select),
            "clamp" => plain(Head::Clamp),
            "compare" => {
                let direction = Direction::ALL.iter().find(|d| d.name().eq_ignore_ascii_case(rest));
                Ok(Head::Compare(*direction.ok_or(format!("unknown direction `{rest}`"))?))
            }
            "reduce" => {
                let (mut monoid, mut dims) = (None, None);
                for p in rest.split('.').filter(|p| !p.is_empty()) {
                    match p {
                        "last" => dims = Some(Reduced::Last),
                        "leading" => dims = Some(Reduced::Leading),
                        "unit" => dims = Some(Reduced::Unit),
                        p => monoid = Some(Monoid::from_name(p).ok_or(format!("unknown predicate `{p}`"))?),
                    }
                }
                Ok(Head::Reduce(monoid, dims))
            }
            n => {
                if let Some(&k) = UnaryKind::ALL.iter().find(|k| k.name() == n) {
                    return plain(Head::Unary(k));
                }
                if let Some(&k) = BinaryKind::ALL.iter().find(|k| k.name() == n) {
                    return plain(Head::Binary(k));
                }
                Err(format!("`{word}` is no op that patterns know"))
            }
        }
    }

    /// Whether an op on operands of these types is meant.
    pub fn matches(self, op: &Op, operands: &[&TensorType]) -> bool {
        match (self, op) {
            (Head::Unary(k), Op::Unary(u)) => u.kind == k,
            (Head::AnyUnary, Op::Unary(_)) => true,
            (Head::Binary(k), Op::Binary(b)) => b.kind == k,
            (Head::AnyBinary, Op::Binary(_)) => true,
            (Head::Broadcast, Op::Broadcast(_)) | (Head::Reshape, Op::Reshape(_)) => true,
            (Head::Transpose, Op::Permute(Permute::Transpose { .. })) => true,
            (Head::Convert, Op::Convert(msc_ir::ops::convert::Convert::Value(_))) => true,
            (Head::Select, Op::Select(Select::Select)) | (Head::Clamp, Op::Select(Select::Clamp)) => true,
            (Head::Compare(d), Op::Compare(c)) => c.direction == d && !c.total_order,
            (Head::Reduce(monoid, dims), Op::Reduce(r)) => {
                let rank = operands[0].rank();
                monoid.is_none_or(|m| m == r.monoid)
                    && match dims {
                        None => true,
                        Some(Reduced::Last) => rank > 0 && r.dims.as_slice() == [rank - 1],
                        Some(Reduced::Leading) => rank > 0 && r.dims.iter().copied().eq(0..rank - 1),
                        Some(Reduced::Unit) => r.dims.iter().all(|&d| operands[0].shape[d] == 1),
                    }
            }
            _ => false,
        }
    }

    /// The name of the ops it may be; `None` for ops of several names.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Head::Unary(k) => k.name(),
            Head::Binary(k) => k.name(),
            Head::AnyUnary | Head::AnyBinary => return None,
            Head::Broadcast => "broadcast_in_dim",
            Head::Reshape => "reshape",
            Head::Transpose => "transpose",
            Head::Convert => "convert",
            Head::Select => "select",
            Head::Clamp => "clamp",
            Head::Compare(_) => "compare",
            Head::Reduce(..) => "reduce",
        })
    }

    /// Whether operands may be swapped. `binary.any` is not, so that an applier sees them as they stand.
    pub fn is_commutative(self) -> bool {
        match self {
            Head::Binary(k) => k.is_commutative(),
            Head::Compare(d) => matches!(d, Direction::Eq | Direction::Ne),
            _ => false,
        }
    }
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// What is malformed, in words; patterns are written in rules, so this is a bug in a rule.
    pub fn parse(text: &'static str) -> Result<Pattern, String> {
        let mut tokens = Tokens { rest: text };
        let p = tokens.pattern()?;
        match tokens.next() {
            None => Ok(p),
            Some(t) => Err(format!("`{t}` after the end of `{text}`")),
        }
    }

    /// The variables in the pattern, in order of first occurrence.
    pub fn variables(&self) -> Vec<&'static str> {
        let mut out = Vec::new();
        self.visit(&mut |p| match p {
            Pattern::Var(v)
            | Pattern::Const(v)
            | Pattern::Scalar(v)
            | Pattern::As(v, _)
            | Pattern::Sum(_, Some(v))
            | Pattern::Polynomial(_, Some(v))
                if !out.contains(v) =>
            {
                out.push(*v)
            }
            _ => {}
        });
        out
    }

    /// The pattern with numbers for the variables of which `value` knows one.
    pub fn with_numbers(&self, value: &impl Fn(&str) -> Option<f64>) -> Pattern {
        let all = |list: &[Pattern]| list.iter().map(|p| p.with_numbers(value)).collect();
        match self {
            Pattern::Const(v) => {
                value(v).map_or_else(|| self.clone(), |n| Pattern::Number(Number::Literal(n)))
            }
            Pattern::Op(head, args) => Pattern::Op(*head, all(args)),
            Pattern::Or(list) => Pattern::Or(all(list)),
            other => other.clone(),
        }
    }

    /// The most ops that stand around a variable; `None` where it does not occur.
    pub fn depth_of(&self, variable: &str) -> Option<usize> {
        match self {
            Pattern::Var(v) | Pattern::Const(v) | Pattern::Scalar(v) => (*v == variable).then_some(0),
            Pattern::Op(_, args) => args.iter().filter_map(|a| a.depth_of(variable)).max().map(|n| n + 1),
            Pattern::Or(all) => all.iter().filter_map(|a| a.depth_of(variable)).max(),
            Pattern::As(v, inner) => inner.depth_of(variable).or((*v == variable).then_some(0)),
            Pattern::Multiplied(inner) => inner.depth_of(variable),
            _ => None,
        }
    }

    /// Whether the pattern needs a frame.
    pub fn needs_frame(&self) -> bool {
        let mut found = false;
        self.visit(&mut |p| {
            found |= matches!(
                p,
                Pattern::Product(_) | Pattern::Sum(..) | Pattern::Polynomial(..) | Pattern::Multiplied(_)
            )
        });
        found
    }

    fn visit(&self, f: &mut impl FnMut(&Pattern)) {
        f(self);
        match self {
            Pattern::Op(_, args)
            | Pattern::Sum(args, _)
            | Pattern::Polynomial(args, _)
            | Pattern::Or(args) => args.iter().for_each(|a| a.visit(f)),
            Pattern::As(_, inner) | Pattern::Multiplied(inner) => inner.visit(f),
            Pattern::Product(items) => items.iter().for_each(|i| i.pattern.visit(f)),
            _ => {}
        }
    }
}
