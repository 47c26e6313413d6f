//! What was read of an e-graph, with some classes left as they are: which classes mention which, and by which factors
//! they are known. Both are filled in where a rule looks.

use super::super::label::{Indexed, positional};
use super::super::matching::{Matcher, is_literal};
use super::super::polynomial::Users;
use super::super::term::{Graph, Node};
use super::super::view::{Monomial, Product};
use egg::Id;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Levels of additions through which a class is looked at for the terms of a sum: as many as the longest sum
/// pattern has terms.
const SUM_LEVELS: u8 = 3;

/// Conversions that may lie between a root and what it mentions: dx is rounded, and so is the `γ·dy` in it.
const CONVERT_LEVELS: u8 = 2;

type Lookup = BTreeMap<Monomial, Vec<(f64, Id)>>;

/// The classes that a rule leaves as they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct AsIs {
    /// All of them: factors, whatever they hold.
    pub opaque: BTreeSet<Id>,
    /// Those that the rule takes for positive.
    pub positive: BTreeSet<Id>,
}

/// What was read.
pub struct Context<'g> {
    /// Matches and views.
    pub matcher: Matcher<'g>,
    /// For each class those that mention it, among those looked at.
    pub near: BTreeMap<Id, BTreeSet<Id>>,
    looked_at: BTreeSet<Id>,
    /// Classes by their factors, among those looked up.
    lookup: Lookup,
    looked_up: BTreeSet<Id>,
}

impl<'g> Context<'g> {
    /// Of a clean e-graph in which the classes of `as_is` are left as they are.
    pub fn new(graph: &'g Graph, as_is: &AsIs, users: Rc<OnceCell<Users>>) -> Context<'g> {
        Context {
            matcher: Matcher::new(graph, as_is.opaque.clone(), &as_is.positive, users),
            near: BTreeMap::new(),
            looked_at: BTreeSet::new(),
            lookup: Lookup::new(),
            looked_up: BTreeSet::new(),
        }
    }
}

impl Context<'_> {
    /// Records what the classes mention in their views as products, and in those of their terms.
    pub fn look_at(&mut self, graph: &Graph, classes: &BTreeSet<Id>) {
        for &c in classes {
            if !self.looked_at.insert(c) {
                continue;
            }
            let mut mentioned = BTreeSet::new();
            mentions(&mut self.matcher, graph, c, CONVERT_LEVELS, &mut mentioned);
            for a in mentioned {
                self.near.entry(a).or_default().insert(c);
            }
        }
    }

    /// Records the classes by their factors.
    pub fn look_up(&mut self, graph: &Graph, classes: &BTreeSet<Id>) {
        for &class in classes {
            if !self.looked_up.insert(class) {
                continue;
            }
            if let [ty] = graph[class].data.types.as_slice() {
                let at = Indexed { class, labels: positional(ty, true) };
                let p: Product = (*self.matcher.views.product(&at)).clone();
                self.lookup.entry(p.factors).or_default().push((p.coefficient, class));
            }
        }
    }

    /// The class that is a product, where one is.
    pub fn class_of(&self, p: &Product) -> Option<Id> {
        let known = self.lookup.get(&p.factors)?;
        known.iter().filter(|(c, _)| is_literal(*c, p.coefficient)).map(|k| k.1).min()
    }
}

/// The factors of a class and of its terms; behind a factor that is a conversion, also those of its operand.
fn mentions(matcher: &mut Matcher<'_>, graph: &Graph, class: Id, levels: u8, out: &mut BTreeSet<Id>) {
    let [ty] = graph[class].data.types.as_slice() else { return };
    if !ty.dtype.is_float() {
        return;
    }
    let at = Indexed { class, labels: positional(ty, false) };
    let mut here = BTreeSet::new();
    matcher.views.product(&at).factors.bases().for_each(|b| b.classes(&mut here));
    for first in 0.. {
        let Some(terms) = matcher.views.terms(&at, SUM_LEVELS, first) else { break };
        for t in terms {
            matcher.views.product(&t.of).factors.bases().for_each(|b| b.classes(&mut here));
        }
    }
    for &c in &here {
        if !out.insert(c) || levels == 0 {
            continue;
        }
        for node in &graph[c].nodes {
            if let Node::Op { op, args } = node
                && matches!(graph.analysis.op(*op), msc_ir::Op::Convert(_))
            {
                mentions(matcher, graph, args[0], levels - 1, out);
            }
        }
    }
}
