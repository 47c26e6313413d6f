//! The choice of experts.

use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::Result;

/// How experts are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Route {
    /// Experts per token.
    pub chosen: usize,
    /// Whether weights are shares of their sum (Jiang et al., "Mixtral of Experts").
    pub shares: bool,
}

impl Route {
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        m.insert("chosen", AttrValue::Int(self.chosen as i64));
        m.insert("shares", AttrValue::Bool(self.shares));
    }

    pub(super) fn read(a: &mut AttrReader) -> Result<Route> {
        Ok(Route { chosen: a.index("chosen")?, shares: a.bool("shares")? })
    }
}
