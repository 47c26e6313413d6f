//! Views: a class seen as an n-ary product, as a sum, or multiplied out as a polynomial.
//!
//! Exporters write one product in many ways: `x/√v`, `x·rsqrt v`, `(x·c)·(1/√v)`, with row statistics broadcast
//! before or after they are combined. A view is the common form: a coefficient and a sorted map from factors to
//! exponents, with layout ops folded into the labels of the factors. Associativity and commutativity are thus
//! never saturated. Two classes with equal views are equal over the reals; that a product is rearranged makes
//! every rule that uses a view `real`.
//!
//! A product sees an addition as a factor. A polynomial ([`Views::multiplied_out`]) sees through additions too, up
//! to the classes that it is told to leave as they are: `Σx²/D − (Σx/D)²` and `Σ(x − Σx/D)²/D` are one polynomial
//! in `x`. [`algebra`] computes, [`expand`] reads classes, [`terms`] lists the terms of a sum.
//!
//! What holds over the reals only where a value is not negative (`√v·√v = v`, `1/√v = v^-½`) or not zero
//! (`v/v = 1`) is used only where that fact is known; otherwise the term is a factor of its own. A rule may say that it
//! concerns positive values only ([`super::facts::Fact::PositiveBut`]): its views take them for positive.

mod algebra;
mod expand;
mod monomial;
mod terms;

pub use expand::{Views, is_product};
pub use monomial::Monomial;
pub use terms::Term;

use super::label::{Indexed, Label, UNIT};
use egg::Id;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A factor.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Base {
    /// A class that is no product itself.
    Class(Indexed),
    /// A sum of a product over bound dimensions.
    Sum(Sum),
}

/// `Σ` over `bound` of the product of `factors`; factors that do not depend on a bound dimension stand outside.
#[derive(Clone, Debug)]
pub struct Sum {
    /// Bound labels with their sizes.
    pub bound: SmallVec<[(Label, usize); 2]>,
    /// Factors with exponents in halves.
    pub factors: Monomial,
    /// The summed class, where the body is that class alone. Not compared.
    pub operand: Option<Indexed>,
}

impl Sum {
    fn key(&self) -> (&[(Label, usize)], &Monomial) {
        (&self.bound, &self.factors)
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Sum) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Sum {}
impl std::hash::Hash for Sum {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
impl PartialOrd for Sum {
    fn partial_cmp(&self, other: &Sum) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Sum {
    fn cmp(&self, other: &Sum) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Base {
    /// The proper labels of the factor's dimensions, bound ones aside, ascending.
    pub fn free_labels(&self) -> BTreeSet<Label> {
        match self {
            Base::Class(i) => i.proper().into_iter().collect(),
            Base::Sum(s) => {
                let mut out: BTreeSet<Label> = s.factors.bases().flat_map(Base::free_labels).collect();
                s.bound.iter().for_each(|(l, _)| {
                    out.remove(l);
                });
                out
            }
        }
    }

    /// The same factor with every label changed by `f`.
    pub fn relabelled(&self, f: &impl Fn(Label) -> Label) -> Base {
        let indexed = |i: &Indexed| Indexed {
            class: i.class,
            labels: i.labels.iter().map(|&l| if l == UNIT { UNIT } else { f(l) }).collect(),
        };
        match self {
            Base::Class(i) => Base::Class(indexed(i)),
            Base::Sum(s) => Base::Sum(Sum {
                bound: s.bound.iter().map(|&(l, n)| (f(l), n)).collect(),
                factors: s.factors.iter().map(|(b, e)| (b.relabelled(f), e)).collect(),
                operand: s.operand.as_ref().map(indexed),
            }),
        }
    }

    /// Sums inside sums: 0 for a class.
    pub fn height(&self) -> u8 {
        match self {
            Base::Class(_) => 0,
            Base::Sum(s) => 1 + s.factors.bases().map(Base::height).max().unwrap_or(0),
        }
    }

    /// Adds every class in the factor to `out`.
    pub fn classes(&self, out: &mut BTreeSet<Id>) {
        match self {
            Base::Class(i) => {
                out.insert(i.class);
            }
            Base::Sum(s) => s.factors.bases().for_each(|b| b.classes(out)),
        }
    }
}

/// A coefficient and factors.
#[derive(Clone, PartialEq, Debug)]
pub struct Product {
    /// The constant factor.
    pub coefficient: f64,
    /// The other factors.
    pub factors: Monomial,
}

impl Product {
    /// Whether the view says nothing about the class: it is one factor, the class itself.
    pub fn is_atom(&self, class: Id) -> bool {
        self.coefficient == 1.0
            && self.factors.len() == 1
            && self.factors.iter().all(|(b, e)| e == 2 && matches!(b, Base::Class(i) if i.class == class))
    }
}

/// A sum of products: the coefficient of each.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Polynomial {
    /// Coefficients by factors.
    pub terms: BTreeMap<Monomial, f64>,
}
