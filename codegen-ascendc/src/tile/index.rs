//! Affine index expressions, bounds and spans.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a grid dimension, an index into [`Kernel::grid`](super::Kernel::grid).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GridId(pub u32);

/// Number of a loop, unique within the kernel (see [`Loop::id`](super::Loop::id)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LoopId(pub u32);

/// What an index expression may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Var {
    /// The block's coordinate in a grid dimension.
    Grid(GridId),
    /// The current value of an enclosing loop's variable.
    Loop(LoopId),
}

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Var::Grid(g) => write!(f, "g{}", g.0),
            Var::Loop(l) => write!(f, "i{}", l.0),
        }
    }
}

/// `constant + Σ coefficient · variable`, in elements.
///
/// Invariant: terms are sorted by variable, without duplicates and without zero coefficients, so equal
/// functions are equal values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Affine {
    constant: i64,
    terms: Vec<(Var, i64)>,
}

impl Affine {
    /// The constant function.
    pub fn constant(value: i64) -> Affine {
        Affine { constant: value, terms: Vec::new() }
    }

    /// Zero.
    pub fn zero() -> Affine {
        Affine::default()
    }

    /// The variable itself.
    pub fn var(var: Var) -> Affine {
        Affine { constant: 0, terms: vec![(var, 1)] }
    }

    /// The coordinate of the block in grid dimension `dim`.
    pub fn grid(dim: GridId) -> Affine {
        Affine::var(Var::Grid(dim))
    }

    /// The variable of loop `id`.
    pub fn loop_var(id: LoopId) -> Affine {
        Affine::var(Var::Loop(id))
    }

    /// The constant part.
    pub fn offset(&self) -> i64 {
        self.constant
    }

    /// The variable part: `(variable, coefficient)`, sorted by variable, coefficients nonzero.
    pub fn terms(&self) -> &[(Var, i64)] {
        &self.terms
    }

    /// The value, if the function is constant.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The coefficient of `var`; zero if it does not occur.
    pub fn coefficient(&self, var: Var) -> i64 {
        self.terms.iter().find(|(v, _)| *v == var).map_or(0, |(_, c)| *c)
    }

    /// `self + other`, saturating at the ends of `i64` (the verifier rejects what lies out there).
    #[must_use]
    pub fn plus(&self, other: &Affine) -> Affine {
        let mut sum = self.clone();
        sum.constant = sum.constant.saturating_add(other.constant);
        for &(var, c) in &other.terms {
            sum.add_term(var, c);
        }
        sum
    }

    /// `self + value`.
    #[must_use]
    pub fn plus_const(&self, value: i64) -> Affine {
        self.plus(&Affine::constant(value))
    }

    /// `self - other`.
    #[must_use]
    pub fn minus(&self, other: &Affine) -> Affine {
        self.plus(&other.times(-1))
    }

    /// `self · factor`.
    #[must_use]
    pub fn times(&self, factor: i64) -> Affine {
        if factor == 0 {
            return Affine::zero();
        }
        Affine {
            constant: self.constant.saturating_mul(factor),
            terms: self.terms.iter().map(|&(v, c)| (v, c.saturating_mul(factor))).collect(),
        }
    }

    /// The function with `var` replaced by `value`.
    #[must_use]
    pub fn substitute(&self, var: Var, value: &Affine) -> Affine {
        let c = self.coefficient(var);
        if c == 0 {
            return self.clone();
        }
        let mut rest = self.clone();
        rest.terms.retain(|(v, _)| *v != var);
        rest.plus(&value.times(c))
    }

    /// The value under an assignment of all variables.
    pub fn eval(&self, mut value_of: impl FnMut(Var) -> i64) -> i64 {
        self.terms.iter().fold(self.constant, |sum, &(v, c)| sum + c * value_of(v))
    }

    fn add_term(&mut self, var: Var, coefficient: i64) {
        match self.terms.binary_search_by_key(&var, |(v, _)| *v) {
            Ok(at) => {
                let c = self.terms[at].1.saturating_add(coefficient);
                if c == 0 {
                    self.terms.remove(at);
                } else {
                    self.terms[at].1 = c;
                }
            }
            Err(at) if coefficient != 0 => self.terms.insert(at, (var, coefficient)),
            Err(_) => {}
        }
    }
}

impl From<i64> for Affine {
    fn from(value: i64) -> Affine {
        Affine::constant(value)
    }
}

impl fmt::Display for Affine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return write!(f, "{}", self.constant);
        }
        for (n, &(var, c)) in self.terms.iter().enumerate() {
            let sign = match (n, c < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            match c.unsigned_abs() {
                1 => write!(f, "{sign}{var}")?,
                c => write!(f, "{sign}{c}*{var}")?,
            }
        }
        match self.constant {
            0 => Ok(()),
            c if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            c => write!(f, " + {c}"),
        }
    }
}

/// An exclusive upper end: the least of one or more affine functions.
///
/// `min(128*g0 + 128, rows)` is how an uneven split over blocks says where a block's last rows end.
/// Invariant: never empty (an empty list, which deserialisation could produce, is rejected by the
/// verifier and evaluates to `i64::MIN`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bound(Vec<Affine>);

impl Bound {
    /// The bound that is just `end`.
    pub fn at(end: impl Into<Affine>) -> Bound {
        Bound(vec![end.into()])
    }

    /// The lesser of this bound and `end`.
    #[must_use]
    pub fn or(mut self, end: impl Into<Affine>) -> Bound {
        let end = end.into();
        if !self.0.contains(&end) {
            self.0.push(end);
        }
        self
    }

    /// The functions whose least is the bound.
    pub fn ends(&self) -> &[Affine] {
        &self.0
    }

    /// The value under an assignment of all variables.
    pub fn eval(&self, mut value_of: impl FnMut(Var) -> i64) -> i64 {
        self.0.iter().map(|end| end.eval(&mut value_of)).min().unwrap_or(i64::MIN)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [end] = self.0.as_slice() {
            return write!(f, "{end}");
        }
        f.write_str("min(")?;
        for (n, end) in self.0.iter().enumerate() {
            write!(f, "{}{end}", if n == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

/// The indices `start, start+1, …` along one dimension that a tile of extent `n` covers, up to `end`.
///
/// The number of valid indices is `min(n, end - start)` and at least 1 (the verifier proves it). What a
/// tile holds beyond them is never stored and, for a load, is the fill value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First index.
    pub start: Affine,
    /// Exclusive end of the valid indices; may lie beyond `start + n`.
    pub end: Bound,
}

impl Span {
    /// The span from `start` up to `end`.
    pub fn new(start: impl Into<Affine>, end: Bound) -> Span {
        Span { start: start.into(), end }
    }

    /// The `count` indices from `start` on.
    pub fn exact(start: impl Into<Affine>, count: i64) -> Span {
        let start = start.into();
        let end = Bound::at(start.plus_const(count));
        Span { start, end }
    }

    /// Number of valid indices of a tile of extent `extent` under an assignment of all variables.
    pub fn valid(&self, extent: i64, mut value_of: impl FnMut(Var) -> i64) -> i64 {
        let start = self.start.eval(&mut value_of);
        extent.min(self.end.eval(value_of).saturating_sub(start))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// `a / b` rounded up, for `a >= 0` and `b >= 1`.
pub(crate) fn div_ceil(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}
