//! Reading attributes of ops, with errors at the op.

use super::Importer;
use super::dense;
use crate::error::{Code, FrontendError, Result};
use crate::raw::{Attr, DenseData, RawOp, TypeId, attr};
use msc_ir::Shape;

/// Longest list that one literal may stand for in an attribute: ranks and replica groups are far shorter.
const MAX_SPLAT: usize = 1 << 16;

impl<'r, 'a> Importer<'r, 'a> {
    /// A complaint about an attribute.
    pub(super) fn bad_attr(&self, op: &RawOp<'_>, name: &str, what: &str) -> FrontendError {
        self.error(op, Code::Attribute, format!("{}: attribute {name} {what}", op.name))
    }

    /// An attribute that must be there.
    pub(super) fn need<'o>(&self, op: &'o RawOp<'a>, name: &str) -> Result<&'o Attr<'a>> {
        op.attr(name).ok_or_else(|| self.bad_attr(op, name, "is missing"))
    }

    /// A list of integers in any of the forms in which versions of MLIR write one.
    pub(super) fn int_values(&mut self, a: &Attr<'a>) -> Option<Vec<i64>> {
        match a {
            Attr::Ints(v) => Some(v.clone()),
            Attr::Array(v) => v
                .iter()
                .map(|a| match a {
                    Attr::Int(n, _) => Some(*n),
                    Attr::Bool(b) => Some(i64::from(*b)),
                    _ => None,
                })
                .collect(),
            Attr::Dense(ty, data) => self.dense_ints(*ty, data),
            _ => None,
        }
    }

    fn dense_ints(&mut self, ty: TypeId, data: &DenseData<'a>) -> Option<Vec<i64>> {
        let ty = dense::index_as_i64(&self.raw.types, ty)?;
        let decoded = dense::decode(self.raw, &ty, data).ok()?;
        let n = ty.elements();
        // A splat's type may announce any number of elements; no list of an op is nearly this long.
        if n > 1 << 20 {
            return None;
        }
        let one = msc_ir::Storage::from_bytes(ty.dtype, decoded.bytes());
        let splat = one.len() == 1 && n != 1;
        if splat && n > MAX_SPLAT {
            return None;
        }
        Some((0..n).map(|i| one.get_i64(if splat { 0 } else { i })).collect())
    }

    /// A list of integers.
    pub(super) fn ints(&mut self, op: &RawOp<'a>, name: &str) -> Result<Vec<i64>> {
        let a = self.need(op, name)?;
        self.int_values(a).ok_or_else(|| self.bad_attr(op, name, "should be a list of integers"))
    }

    /// A list of dimension numbers or sizes.
    pub(super) fn dims(&mut self, op: &RawOp<'a>, name: &str) -> Result<Shape> {
        let v = self.ints(op, name)?;
        self.to_dims(op, name, &v)
    }

    fn to_dims(&self, op: &RawOp<'_>, name: &str, v: &[i64]) -> Result<Shape> {
        v.iter()
            .map(|&n| usize::try_from(n).map_err(|_| self.bad_attr(op, name, "should not be negative")))
            .collect()
    }

    /// The fields of a struct attribute.
    pub(super) fn fields<'o>(&self, op: &'o RawOp<'a>, name: &str) -> Result<&'o [Field<'a>]> {
        match self.need(op, name)? {
            Attr::Struct(_, fields) => Ok(fields),
            _ => Err(self.bad_attr(op, name, "is not of the known form")),
        }
    }

    /// A list of dimension numbers in a struct; empty if it is not there.
    pub(super) fn field_dims(&mut self, op: &RawOp<'a>, fields: &[Field<'a>], name: &str) -> Result<Shape> {
        let Some(a) = attr(fields, name) else { return Ok(Shape::new()) };
        let v = self.int_values(a).ok_or_else(|| self.bad_attr(op, name, "should be a list of integers"))?;
        self.to_dims(op, name, &v)
    }

    /// A dimension number in a struct; 0 if it is not there.
    pub(super) fn field_index(&self, op: &RawOp<'a>, fields: &[Field<'a>], name: &str) -> Result<usize> {
        match attr(fields, name) {
            None => Ok(0),
            Some(Attr::Int(n, _)) if *n >= 0 => Ok(*n as usize),
            Some(_) => Err(self.bad_attr(op, name, "should be an integer, not negative")),
        }
    }

    /// An integer.
    pub(super) fn int(&self, op: &RawOp<'a>, name: &str) -> Result<i64> {
        match self.need(op, name)? {
            Attr::Int(n, _) => Ok(*n),
            _ => Err(self.bad_attr(op, name, "should be an integer")),
        }
    }

    /// A dimension number or count.
    pub(super) fn index(&self, op: &RawOp<'a>, name: &str) -> Result<usize> {
        let n = self.int(op, name)?;
        usize::try_from(n).map_err(|_| self.bad_attr(op, name, "should not be negative"))
    }

    /// A boolean; false if it is not there.
    pub(super) fn flag(&self, op: &RawOp<'a>, name: &str) -> Result<bool> {
        match op.attr(name) {
            None => Ok(false),
            Some(Attr::Bool(b)) => Ok(*b),
            Some(Attr::Unit) => Ok(true),
            Some(_) => Err(self.bad_attr(op, name, "should be true or false")),
        }
    }

    /// An enum's keyword, if the attribute is there. Old versions wrote some as strings.
    pub(super) fn word<'o>(&self, op: &'o RawOp<'a>, name: &str) -> Result<Option<&'o str>> {
        match op.attr(name) {
            None => Ok(None),
            Some(Attr::Word(w) | Attr::Str(w)) => Ok(Some(w)),
            Some(_) => Err(self.bad_attr(op, name, "should be a keyword")),
        }
    }
}

/// One named attribute.
pub(super) type Field<'a> = (std::borrow::Cow<'a, str>, Attr<'a>);
