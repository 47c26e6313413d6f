//! The choice of experts, and what it loads them with.

use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::Result;

/// How experts are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Route {
    /// Experts per token.
    pub chosen: usize,
    /// Whether weights are shares of their sum (Jiang et al., "Mixtral of Experts").
    pub shares: bool,
    /// Whether weights are taken from other numbers than those that choose, as where a bias balances experts (Wang et al.,
    /// "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts").
    pub apart: bool,
}

impl Route {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        m.insert("chosen", AttrValue::Int(self.chosen as i64));
        m.insert("shares", AttrValue::Bool(self.shares));
        if self.apart {
            m.insert("apart", AttrValue::Bool(true));
        }
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Route> {
        let apart = a.has("apart") && a.bool("apart")?;
        Ok(Route { chosen: a.index("chosen")?, shares: a.bool("shares")?, apart })
    }
}

/// What is counted of a choice of experts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Load {
    /// Leading dimensions that stay: tokens are counted group by group.
    pub groups: usize,
    /// How many of the largest probabilities choose; `None` if the choice is an operand.
    pub chosen: Option<usize>,
}

impl Load {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        m.insert("groups", AttrValue::Int(self.groups as i64));
        if let Some(chosen) = self.chosen {
            m.insert("chosen", AttrValue::Int(chosen as i64));
        }
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Load> {
        let chosen = if a.has("chosen") { Some(a.index("chosen")?) } else { None };
        Ok(Load { groups: a.index("groups")?, chosen })
    }
}

/// How tokens take the slots of experts with a capacity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slots {
    /// Slots of an expert, its capacity.
    pub slots: usize,
    /// The number of the first slot, 0 or 1: tokens with a number outside have none.
    pub first: usize,
    /// Whether only tokens whose share is not zero are moved.
    pub weighted: bool,
}

impl Slots {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        m.insert("slots", AttrValue::Int(self.slots as i64));
        m.insert("first", AttrValue::Int(self.first as i64));
        m.insert("weighted", AttrValue::Bool(self.weighted));
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Slots> {
        Ok(Slots { slots: a.index("slots")?, first: a.index("first")?, weighted: a.bool("weighted")? })
    }
}
