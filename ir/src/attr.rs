//! Attributes in their outward form, for the text form and the plan.
//!
//! Inside the compiler an op's attributes are typed fields. Where an op leaves the process (text, plan) it is
//! written as a name and an [`AttrMap`]; [`Operation::attrs`](crate::Operation::attrs) and
//! [`Op::from_attrs`](crate::Op::from_attrs) are each other's inverse.

use crate::error::{IrError, Result};
use crate::module::{GraphId, Module};
use std::collections::BTreeMap;

/// An attribute's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttrValue {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A float, by its bits, so that attributes can be compared and hashed.
    Float(u64),
    /// A bare word: an element type, a direction, a monoid.
    Word(String),
    /// A reference to a graph of the module, by name.
    Graph(String),
    /// References to graphs of the module, by name.
    Graphs(Vec<String>),
    /// A reference to a constant of the module's store, by index.
    Const(u32),
    /// A quoted string.
    Text(String),
}

/// Named attributes in name order.
pub type AttrMap = BTreeMap<&'static str, AttrValue>;

/// Attributes as read, with the op's name for messages. Each `take_*` removes the attribute it reads;
/// [`AttrReader::finish`] refuses what was not read.
#[derive(Debug)]
pub struct AttrReader {
    op: String,
    map: BTreeMap<String, AttrValue>,
}

impl AttrReader {
    /// A reader over attributes of op `op`.
    pub fn new(op: &str, map: BTreeMap<String, AttrValue>) -> Self {
        AttrReader { op: op.to_string(), map }
    }

    /// The op's name.
    pub fn op(&self) -> &str {
        &self.op
    }

    fn take(&mut self, key: &str) -> Result<AttrValue> {
        self.map.remove(key).ok_or_else(|| IrError::attr(&self.op, key, "is missing"))
    }

    fn wrong(&self, key: &str, want: &str, got: &AttrValue) -> IrError {
        IrError::attr(&self.op, key, format!("should be {want}, is {got:?}"))
    }

    /// Whether an attribute is present and not yet read.
    pub fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// Whether an attribute is a bare word.
    pub fn is_word(&self, key: &str) -> bool {
        matches!(self.map.get(key), Some(AttrValue::Word(_)))
    }

    /// A boolean.
    pub fn bool(&mut self, key: &str) -> Result<bool> {
        match self.take(key)? {
            AttrValue::Bool(b) => Ok(b),
            v => Err(self.wrong(key, "true or false", &v)),
        }
    }

    /// An integer.
    pub fn int(&mut self, key: &str) -> Result<i64> {
        match self.take(key)? {
            AttrValue::Int(i) => Ok(i),
            v => Err(self.wrong(key, "an integer", &v)),
        }
    }

    /// A non-negative integer (a dimension number or a size).
    pub fn index(&mut self, key: &str) -> Result<usize> {
        let i = self.int(key)?;
        usize::try_from(i)
            .map_err(|_| IrError::attr(&self.op, key, format!("should not be negative, is {i}")))
    }

    /// A list of integers.
    pub fn ints(&mut self, key: &str) -> Result<Vec<i64>> {
        match self.take(key)? {
            AttrValue::Ints(v) => Ok(v),
            v => Err(self.wrong(key, "a list of integers", &v)),
        }
    }

    /// A list of non-negative integers.
    pub fn indices<C: FromIterator<usize>>(&mut self, key: &str) -> Result<C> {
        let v = self.ints(key)?;
        v.into_iter()
            .map(|i| {
                usize::try_from(i)
                    .map_err(|_| IrError::attr(&self.op, key, format!("should not be negative, is {i}")))
            })
            .collect()
    }

    /// A float, by its bits.
    pub fn float(&mut self, key: &str) -> Result<f64> {
        match self.take(key)? {
            AttrValue::Float(b) => Ok(f64::from_bits(b)),
            AttrValue::Int(i) => Ok(i as f64),
            v => Err(self.wrong(key, "a number", &v)),
        }
    }

    /// A bare word.
    pub fn word(&mut self, key: &str) -> Result<String> {
        match self.take(key)? {
            AttrValue::Word(w) => Ok(w),
            v => Err(self.wrong(key, "a word", &v)),
        }
    }

    /// A bare word that `parse` understands.
    pub fn word_as<T>(&mut self, key: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let w = self.word(key)?;
        parse(&w).ok_or_else(|| IrError::attr(&self.op, key, format!("unknown value `{w}`")))
    }

    /// A graph's name.
    pub fn graph(&mut self, key: &str) -> Result<String> {
        match self.take(key)? {
            AttrValue::Graph(g) => Ok(g),
            v => Err(self.wrong(key, "a graph", &v)),
        }
    }

    /// A graph of the module, by its name.
    pub fn known_graph(&mut self, key: &str, module: &Module) -> Result<GraphId> {
        let g = self.graph(key)?;
        self.lookup(key, &g, module)
    }

    /// A list of graphs of the module, by their names.
    pub fn known_graphs(&mut self, key: &str, module: &Module) -> Result<Vec<GraphId>> {
        let names = match self.take(key)? {
            AttrValue::Graphs(g) => g,
            AttrValue::Ints(v) if v.is_empty() => Vec::new(),
            v => return Err(self.wrong(key, "a list of graphs", &v)),
        };
        names.iter().map(|g| self.lookup(key, g, module)).collect()
    }

    fn lookup(&self, key: &str, name: &str, module: &Module) -> Result<GraphId> {
        module
            .graph_by_name(name)
            .ok_or_else(|| IrError::attr(&self.op, key, format!("there is no graph @{name} before this one")))
    }

    /// A constant's index.
    pub fn constant(&mut self, key: &str) -> Result<u32> {
        match self.take(key)? {
            AttrValue::Const(c) => Ok(c),
            v => Err(self.wrong(key, "a constant", &v)),
        }
    }

    /// A string.
    pub fn text(&mut self, key: &str) -> Result<String> {
        match self.take(key)? {
            AttrValue::Text(t) => Ok(t),
            v => Err(self.wrong(key, "a string", &v)),
        }
    }

    /// Refuses attributes that nobody read.
    pub fn finish(self) -> Result<()> {
        match self.map.keys().next() {
            Some(k) => Err(IrError::attr(&self.op, k, "is not known for this op")),
            None => Ok(()),
        }
    }
}

/// An [`AttrValue::Ints`] from dimension numbers or sizes.
pub fn ints<'a>(v: impl IntoIterator<Item = &'a usize>) -> AttrValue {
    AttrValue::Ints(v.into_iter().map(|&i| i as i64).collect())
}

/// An [`AttrValue::Word`].
pub fn word(w: impl Into<String>) -> AttrValue {
    AttrValue::Word(w.into())
}
