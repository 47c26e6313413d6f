//! `pad`.

use super::{expect_operands, expect_padding};
use crate::attr::{AttrMap, AttrReader, AttrValue, ints};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, common_divisor};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::{Shape, TensorType, strides};
use smallvec::SmallVec;

/// `pad`: `T[…], T[] → T[…]`; negative padding crops (StableHLO specification, "pad").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pad {
    /// Elements before each dimension; negative removes.
    pub low: SmallVec<[i64; 4]>,
    /// Elements after each dimension; negative removes.
    pub high: SmallVec<[i64; 4]>,
    /// Elements between neighbours.
    pub interior: Shape,
}

impl Pad {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Pad>> {
        if name != "pad" {
            return Ok(None);
        }
        Ok(Some(Pad {
            low: a.ints("low")?.into(),
            high: a.ints("high")?.into(),
            interior: a.indices("interior")?,
        }))
    }

    /// Size of the pieces that dimension `d` of sizes `from` and `to` consists of, if it is more than one element: what is
    /// added or removed on each side is some of them.
    fn piece(&self, d: usize, from: usize, to: usize) -> Option<usize> {
        let (low, high) = (self.low[d], self.high[d]);
        let sides = [low, high].map(|n| usize::try_from(n.unsigned_abs()).unwrap_or(1));
        let piece = common_divisor(sides.into_iter().chain([from, to]));
        (self.interior[d] == 0 && low.checked_add(high)? != 0 && piece > 1).then_some(piece)
    }

    fn is_identity(&self, d: usize) -> bool {
        self.low[d] == 0 && self.high[d] == 0 && self.interior[d] == 0
    }
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("low", AttrValue::Ints(self.low.to_vec())),
            ("high", AttrValue::Ints(self.high.to_vec())),
            ("interior", ints(&self.interior)),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 2)?;
        let (t, v) = (operands[0], operands[1]);
        if v.rank() != 0 || v.dtype != t.dtype {
            return Err(IrError::ty(self.name(), format!("padding value {v} should be a scalar like {t}")));
        }
        if [self.low.len(), self.high.len(), self.interior.len()] != [t.rank(); 3] {
            return Err(IrError::attr(self.name(), "low", format!("does not have the rank of {t}")));
        }
        expect_padding(self.name(), &self.low, &self.high, &self.interior)?;
        let mut shape = Shape::new();
        for d in 0..t.rank() {
            let n = t.shape[d] as i128;
            let inner = n + (n - 1).max(0) * self.interior[d] as i128;
            let size = inner + i128::from(self.low[d]) + i128::from(self.high[d]);
            let size = usize::try_from(size).map_err(|_| {
                IrError::attr(self.name(), "low", format!("dimension {d} of {t} would have size {size}"))
            })?;
            shape.push(size);
        }
        let out = t.with_shape(shape);
        if out.checked_bytes().is_none() {
            return Err(IrError::attr(self.name(), "high", format!("result {out} does not fit in memory")));
        }
        Ok(vec![out])
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (x, v) = (inputs[0], inputs[1]);
        let shape = &results[0].shape;
        let st = strides(&x.shape);
        // The padding value stands behind the operand's last element.
        let fill = x.len();
        let mut source = x.data.clone();
        macro_rules! push {
            ($($k:ident),*) => {
                match (&mut source, &v.data) {
                    $((Storage::$k(s), Storage::$k(e)) => s.push(e[0]),)*
                    _ => return Err(IrError::ty(self.name(), "operands of different element types")),
                }
            };
        }
        push!(I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64);
        let index = IndexSpace::new(shape).map(|ix| {
            let mut at = 0;
            for d in 0..shape.len() {
                let p = ix[d] as i64 - self.low[d];
                let step = self.interior[d] as i64 + 1;
                if p < 0 || p % step != 0 || p / step >= x.shape[d] as i64 {
                    return fill;
                }
                at += (p / step) as usize * st[d];
            }
            at
        });
        Ok(vec![Tensor::new(shape.iter().copied(), source.pick(index))])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for d in 0..operands[0].rank() {
            if self.is_identity(d) {
                let f = r.factor(results[0].shape[d], FactorKind::Pass);
                r.on_operand(0, d, f);
                r.on_result(0, d, f);
            } else if let Some(piece) = self.piece(d, operands[0].shape[d], results[0].shape[d]) {
                let f = r.factor(piece, FactorKind::Pass);
                r.operands[0][d] = r.pieces(operands[0].shape[d], f);
                r.results[0][d] = r.pieces(results[0].shape[d], f);
            } else {
                let f = r.factor(operands[0].shape[d], FactorKind::Whole);
                r.on_operand(0, d, f);
                let g = r.factor(results[0].shape[d], FactorKind::Whole);
                r.on_result(0, d, g);
            }
        }
        r
    }

    fn resized(&self, operands: &[&TensorType], results: &[TensorType]) -> Result<Op> {
        let mut out = self.clone();
        for d in 0..self.low.len() {
            // In wide numbers: a huge padding may be taken back on the other side.
            let (low, high) = (i128::from(self.low[d]), i128::from(self.high[d]));
            let (total, added) = (low + high, results[0].shape[d] as i128 - operands[0].shape[d] as i128);
            // What is added keeps its proportions where pieces change size.
            if self.interior[d] == 0 && total != 0 && added != total && added * low % total == 0 {
                let sides = [added * low / total, added - added * low / total].map(i64::try_from);
                if let [Ok(low), Ok(high)] = sides {
                    (out.low[d], out.high[d]) = (low, high);
                }
            }
        }
        Ok(out.into())
    }
}
