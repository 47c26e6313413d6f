//! Factors with exponents: a sorted list, shared until it is changed. Most products have one to three factors, and
//! views hold the same ones over and over.

use super::Base;
use std::rc::Rc;

/// Factors with exponents in halves, none zero; ascending, each once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Monomial(Option<Rc<Vec<(Base, i16)>>>);

impl Monomial {
    /// No factors.
    pub fn new() -> Monomial {
        Monomial(None)
    }

    /// One factor.
    pub fn of(base: Base, halves: i16) -> Monomial {
        Monomial(Some(Rc::new(vec![(base, halves)])))
    }

    fn list(&self) -> &[(Base, i16)] {
        self.0.as_ref().map_or(&[], |l| l)
    }

    fn place(&self, base: &Base) -> Result<usize, usize> {
        self.list().binary_search_by(|(b, _)| b.cmp(base))
    }

    /// How many different factors there are.
    pub fn len(&self) -> usize {
        self.list().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// The exponent of a factor; 0 where it is none.
    pub fn exponent(&self, base: &Base) -> i16 {
        self.place(base).map_or(0, |at| self.list()[at].1)
    }

    /// Sets the exponent of a factor; 0 takes it out.
    pub fn set(&mut self, base: &Base, halves: i16) {
        let place = self.place(base);
        if place.is_err() && halves == 0 {
            return;
        }
        let list = Rc::make_mut(self.0.get_or_insert_default());
        match (place, halves) {
            (Ok(at), 0) => {
                list.remove(at);
            }
            (Ok(at), _) => list[at].1 = halves,
            (Err(at), _) => list.insert(at, (base.clone(), halves)),
        }
        if list.is_empty() {
            self.0 = None;
        }
    }

    /// Factors with exponents, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&Base, i16)> + Clone {
        self.list().iter().map(|(b, e)| (b, *e))
    }

    /// The factors, ascending.
    pub fn bases(&self) -> impl Iterator<Item = &Base> {
        self.list().iter().map(|(b, _)| b)
    }
}

impl FromIterator<(Base, i16)> for Monomial {
    /// Of factors that differ, in any order.
    fn from_iter<I: IntoIterator<Item = (Base, i16)>>(factors: I) -> Monomial {
        let mut list: Vec<(Base, i16)> = factors.into_iter().filter(|(_, e)| *e != 0).collect();
        if list.is_empty() {
            return Monomial(None);
        }
        list.sort_by(|a, b| a.0.cmp(&b.0));
        Monomial(Some(Rc::new(list)))
    }
}
