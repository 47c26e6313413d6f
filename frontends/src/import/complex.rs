//! Complex numbers, as pairs of floats.
//!
//! A tensor of complex numbers is held as a tensor of floats with one more dimension, the last, of two elements: the
//! real and the imaginary part, as they lie in memory. Functions, loops and branches hand such tensors on like any other.
//! Ops that are linear are done part by part, products by their four products; the functions of complex numbers that
//! models use are written by their parts. What remains, transforms and solvers, is refused.

use super::dense::{Decoded, bad, decode};
use super::reducers::{Combine, recognise};
use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::{Attr, DenseData, Elem, RawOp, Type, TypeId};
use msc_ir::ops::binary::BinaryKind::{Add, And, Divide, Multiply, Or, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind::{Cosine, Exponential, Negate, Sine, Sqrt};
use msc_ir::{LocId, Monoid, Op, Shape, TensorType, ValueId};
use smallvec::{SmallVec, smallvec};

/// The parts of a complex number.
type Parts = [ValueId; 2];

/// Ops that work on each part alone.
const BY_PARTS: [&str; 17] = [
    "add",
    "subtract",
    "negate",
    "select",
    "broadcast",
    "broadcast_in_dim",
    "reshape",
    "transpose",
    "reverse",
    "slice",
    "dynamic_slice",
    "dynamic_update_slice",
    "pad",
    "concatenate",
    "gather",
    "reduce",
    "scatter",
];

/// Ops that hand values on, whatever they are.
const AS_THEY_ARE: [&str; 8] = [
    "stablehlo.while",
    "stablehlo.if",
    "stablehlo.case",
    "stablehlo.optimization_barrier",
    "stablehlo.composite",
    "stablehlo.custom_call",
    "func.call",
    "sdy.sharding_constraint",
];

impl<'r, 'a> Importer<'r, 'a> {
    /// Whether a type is of complex numbers.
    fn is_complex(&self, id: TypeId) -> bool {
        matches!(self.raw.types.get(id), Type::Tensor { elem: Elem::Complex(_), .. })
    }

    /// Whether an op takes or gives complex numbers.
    pub(super) fn has_complex(&self, op: &RawOp<'_>) -> bool {
        let results = op.results.iter();
        let mut all = op.operands.iter().copied().chain(results);
        self.complex && all.any(|v| self.is_complex(self.raw.values[v.0 as usize]))
    }

    /// Imports an op that takes or gives complex numbers.
    pub(super) fn complex_op(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        if AS_THEY_ARE.contains(&op.name.as_ref()) {
            // What is said of its sharding is said of other dimensions.
            let constraints = self.constraints.len();
            let results = self.dispatch(op, loc);
            self.constraints.truncate(constraints);
            return results;
        }
        let name = op.name.strip_prefix("stablehlo.").unwrap_or("");
        if BY_PARTS.contains(&name) {
            return self.by_parts(op, name, loc);
        }
        let parts = |this: &mut Self, i: usize| -> Result<Parts> {
            let v = this.operands(op)?.get(i).copied();
            let v =
                v.ok_or_else(|| this.error(op, Code::Invalid, format!("{} lacks operand {i}", op.name)))?;
            this.parts(op, v, loc)
        };
        let pair: Parts = match (name, op.name.as_ref()) {
            ("complex", _) => self.operands_n::<2>(op)?,
            ("constant", _) => return self.complex_constant(op, loc),
            ("real" | "imag", _) => return Ok(smallvec![parts(self, 0)?[usize::from(name == "imag")]]),
            ("multiply" | "dot_general" | "dot" | "convolution", _) => self.product(op, name, loc)?,
            ("convert", _) if self.is_complex(self.raw.values[op.operands[0].0 as usize]) => {
                return self.by_parts(op, name, loc);
            }
            ("convert", _) => {
                let [x] = self.operands_n(op)?;
                let to = self.result_type(op, 0)?.dtype;
                let mut e = self.expand(op, loc);
                let re = e.convert(x, to)?;
                [re, e.number(e.ty(re), 0.0)?]
            }
            ("divide", _) => {
                let ([a, b], [c, d]) = (parts(self, 0)?, parts(self, 1)?);
                let mut e = self.expand(op, loc);
                let (cc, dd) = (e.bin(Multiply, c, c)?, e.bin(Multiply, d, d)?);
                let norm = e.bin(Add, cc, dd)?;
                let (ac, bd) = (e.bin(Multiply, a, c)?, e.bin(Multiply, b, d)?);
                let (bc, ad) = (e.bin(Multiply, b, c)?, e.bin(Multiply, a, d)?);
                let (re, im) = (e.bin(Add, ac, bd)?, e.bin(Subtract, bc, ad)?);
                [e.bin(Divide, re, norm)?, e.bin(Divide, im, norm)?]
            }
            ("exponential", _) => {
                let [a, b] = parts(self, 0)?;
                let mut e = self.expand(op, loc);
                let (size, cos, sin) = (e.un(Exponential, a)?, e.un(Cosine, b)?, e.un(Sine, b)?);
                [e.bin(Multiply, size, cos)?, e.bin(Multiply, size, sin)?]
            }
            ("abs", _) => {
                let [a, b] = parts(self, 0)?;
                let mut e = self.expand(op, loc);
                let (aa, bb) = (e.bin(Multiply, a, a)?, e.bin(Multiply, b, b)?);
                let sum = e.bin(Add, aa, bb)?;
                return Ok(smallvec![e.un(Sqrt, sum)?]);
            }
            ("compare", _) => {
                let ([a, b], [c, d]) = (parts(self, 0)?, parts(self, 1)?);
                let (direction, both) = match self.word(op, "comparison_direction")? {
                    Some("EQ") => (Direction::Eq, And),
                    Some("NE") => (Direction::Ne, Or),
                    _ => return Err(self.no_complex(op)),
                };
                let mut e = self.expand(op, loc);
                let (re, im) = (e.compare(direction, a, c)?, e.compare(direction, b, d)?);
                return Ok(smallvec![e.bin(both, re, im)?]);
            }
            (_, "chlo.conj") => {
                let [a, b] = parts(self, 0)?;
                [a, self.expand(op, loc).un(Negate, b)?]
            }
            _ => return Err(self.no_complex(op)),
        };
        Ok(smallvec![self.pair(op, pair, loc)?])
    }

    fn no_complex(&self, op: &RawOp<'_>) -> crate::FrontendError {
        let message = format!("{} of complex numbers is not held", op.name);
        self.error(op, Code::UnsupportedType, message).help("write it by real and imaginary parts")
    }

    /// The tensor that holds two parts.
    fn pair(&mut self, op: &RawOp<'a>, parts: Parts, loc: LocId) -> Result<ValueId> {
        let shape = self.graph.ty(parts[0]).shape.clone();
        let mut one = shape.clone();
        one.push(1);
        let re = self.emit1(op, Reshape { shape: one.clone() }, &[parts[0]], loc)?;
        let im = self.emit1(op, Reshape { shape: one }, &[parts[1]], loc)?;
        self.emit1(op, Concatenate { dim: shape.len() }, &[re, im], loc)
    }

    /// The parts of a tensor that holds both.
    fn parts(&mut self, op: &RawOp<'a>, v: ValueId, loc: LocId) -> Result<Parts> {
        if let Some(known) = self.known_parts(v) {
            return Ok(known);
        }
        let shape = self.graph.ty(v).shape.clone();
        let Some((_, outer)) = shape.split_last() else {
            return Err(self.error(op, Code::Internal, "a complex number has no parts"));
        };
        let mut part = |at: usize| -> Result<ValueId> {
            let mut start = Shape::from_elem(0, shape.len());
            let mut limit = shape.clone();
            (start[outer.len()], limit[outer.len()]) = (at, at + 1);
            let stride = Shape::from_elem(1, shape.len());
            let one = self.emit1(op, Slice::Static { start, limit, stride }, &[v], loc)?;
            self.emit1(op, Reshape { shape: Shape::from_slice(outer) }, &[one], loc)
        };
        Ok([part(0)?, part(1)?])
    }

    /// The parts that a tensor was put together of.
    fn known_parts(&self, v: ValueId) -> Option<Parts> {
        let rank = self.graph.ty(v).rank();
        let made = |v: ValueId| self.graph.def(v).map(|(op, _)| self.graph.op(op));
        let whole = made(v)?;
        let (Op::Concatenate(c), [re, im]) = (&whole.op, &whole.operands[..]) else { return None };
        let part = |v: ValueId| match (&made(v)?.op, self.graph.ty(v).shape.last()) {
            (Op::Reshape(_), Some(1)) => made(v)?.operands.first().copied(),
            _ => None,
        };
        let parts = [part(*re)?, part(*im)?];
        let fits = |v: ValueId| self.graph.ty(v).rank() + 1 == rank;
        (c.dim + 1 == rank && parts.into_iter().all(fits)).then_some(parts)
    }

    /// An op of the source on parts of its complex operands: of operand `i` on part `which[i]`.
    fn on_parts(
        &mut self,
        op: &'r RawOp<'a>,
        name: &str,
        (parts, which): (&[Option<Parts>], &dyn Fn(usize) -> usize),
        loc: LocId,
    ) -> Result<Results> {
        let whole = self.operands(op)?;
        for (i, v) in op.operands.iter().enumerate() {
            if let Some(parts) = parts[i] {
                self.values[v.0 as usize] = Some(parts[which(i)]);
            }
        }
        self.part = true;
        let results = self.stablehlo(op, name, loc);
        self.part = false;
        for (v, whole) in op.operands.iter().zip(whole) {
            self.values[v.0 as usize] = Some(whole);
        }
        results
    }

    /// For each operand of an op its parts, if it is complex.
    fn operand_parts(&mut self, op: &RawOp<'a>, loc: LocId) -> Result<SmallVec<[Option<Parts>; 4]>> {
        let operands = self.operands(op)?;
        let complex = |this: &Self, i: usize| this.is_complex(this.raw.values[op.operands[i].0 as usize]);
        (0..operands.len())
            .map(|i| complex(self, i).then(|| self.parts(op, operands[i], loc)).transpose())
            .collect()
    }

    /// A linear op.
    fn by_parts(&mut self, op: &'r RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        if matches!(name, "reduce" | "scatter") {
            let sums = |c: &Combine| matches!(c, Combine::Monoid(Monoid::Sum) | Combine::Second);
            let region = self.single_region(op)?;
            if !recognise(region, op.results.len()).is_some_and(|all| all.iter().all(sums)) {
                return Err(self.no_complex(op));
            }
        }
        let parts = self.operand_parts(op, loc)?;
        let re = self.on_parts(op, name, (&parts, &|_| 0), loc)?;
        let im = self.on_parts(op, name, (&parts, &|_| 1), loc)?;
        let mut out = Results::new();
        for ((re, im), v) in re.into_iter().zip(im).zip(op.results.iter()) {
            let complex = self.is_complex(self.raw.values[v.0 as usize]);
            out.push(if complex { self.pair(op, [re, im], loc)? } else { re });
        }
        Ok(out)
    }

    /// A product of two operands: `(a + bi)(c + di) = (ac − bd) + (ad + bc)i`.
    fn product(&mut self, op: &'r RawOp<'a>, name: &str, loc: LocId) -> Result<Parts> {
        let parts = self.operand_parts(op, loc)?;
        let mut one = |l: usize, r: usize| -> Result<ValueId> {
            let product = self.on_parts(op, name, (&parts, &|i| if i == 0 { l } else { r }), loc)?;
            product.first().copied().ok_or_else(|| self.error(op, Code::Internal, "a product gives nothing"))
        };
        let (ac, bd, ad, bc) = (one(0, 0)?, one(1, 1)?, one(0, 1)?, one(1, 0)?);
        let mut e = self.expand(op, loc);
        Ok([e.bin(Subtract, ac, bd)?, e.bin(Add, ad, bc)?])
    }

    fn complex_constant(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let Attr::Dense(ty, data) = self.need(op, "value")? else {
            return Err(self.bad_attr(op, "value", "should be a dense constant"));
        };
        let ty = self.tensor_type(*ty).map_err(|e| self.place(op, e))?;
        let one = TensorType::new(ty.dtype, [2]);
        // Lists of pairs in parentheses are lists.
        let bracketed = |text: &[u8]| -> Vec<u8> {
            let bracket = |b: &u8| match b {
                b'(' => b'[',
                b')' => b']',
                b => *b,
            };
            text.iter().map(bracket).collect()
        };
        let (text, literal);
        let (data, splat) = match data {
            DenseData::Literal(t) => {
                text = bracketed(t);
                literal = DenseData::Literal(&text);
                (&literal, t.trim_ascii_start().starts_with(b"("))
            }
            DenseData::Bytes(b) => (data, b.len() == one.bytes()),
            DenseData::Hex(h) => (data, h.len() == 2 * one.bytes()),
            DenseData::Resource(_) => (data, false),
        };
        let splat = splat && ty.elements() != 2;
        let decoded =
            decode(self.raw, if splat { &one } else { &ty }, data).map_err(|e| self.place(op, e))?;
        if !splat {
            let id = self.intern(ty, decoded);
            return self.emit(op, ConstantOp { id }, &[], loc);
        }
        let bytes = match &decoded {
            // Both parts are the same.
            Decoded::Splat(b) => [&b[..], &b[..]].concat(),
            Decoded::Full(b) => b.to_vec(),
        };
        let Some(outer) = ty.shape.split_last().map(|(_, outer)| TensorType::new(ty.dtype, outer.to_vec()))
        else {
            return Err(self.place(op, bad("a complex constant has no parts")));
        };
        let mut part = |bytes: &[u8]| -> Result<ValueId> {
            let id = self.module.constants.intern_splat_bytes(TensorType::scalar(ty.dtype), bytes);
            let number = self.emit1(op, ConstantOp { id }, &[], loc)?;
            self.emit1(op, BroadcastInDim::scalar(&outer.shape), &[number], loc)
        };
        let (re, im) = bytes.split_at(ty.dtype.size_bytes());
        let parts = [part(re)?, part(im)?];
        Ok(smallvec![self.pair(op, parts, loc)?])
    }
}
