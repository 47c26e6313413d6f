//! `slice`, `dynamic_slice` and `dynamic_update_slice`.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, ints};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, common_divisor};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::{Shape, TensorType, strides};

/// Slices (StableHLO specification, "slice", "dynamic_slice", "dynamic_update_slice").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Slice {
    /// `T[…] → T[…]`: elements `start, start + stride, … < limit` of every dimension.
    Static {
        /// First index per dimension.
        start: Shape,
        /// Limit per dimension (exclusive).
        limit: Shape,
        /// Step per dimension, at least 1.
        stride: Shape,
    },
    /// `T[…], i[] × rank → T[sizes]`: the start indices are clamped so that the slice fits.
    Dynamic {
        /// Sizes of the slice.
        sizes: Shape,
    },
    /// `T[…], T[update], i[] × rank → T[…]`: the operand with the update written at the clamped start.
    Update,
}

impl Slice {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Slice>> {
        Ok(match name {
            "slice" => Some(Slice::Static {
                start: a.indices("start")?,
                limit: a.indices("limit")?,
                stride: a.indices("stride")?,
            }),
            "dynamic_slice" => Some(Slice::Dynamic { sizes: a.indices("sizes")? }),
            "dynamic_update_slice" => Some(Slice::Update),
            _ => None,
        })
    }

    fn expect_starts(&self, starts: &[&TensorType], rank: usize) -> Result<()> {
        if starts.len() != rank
            || starts.iter().any(|t| t.rank() != 0 || !t.dtype.is_int() || t.dtype != starts[0].dtype)
        {
            return Err(IrError::ty(
                self.name(),
                format!("takes {rank} scalar start indices of one integer type"),
            ));
        }
        Ok(())
    }
}

/// Start indices, clamped so that a block of `size` fits in `shape`.
fn clamped(starts: &[&Tensor], shape: &[usize], size: &[usize]) -> Shape {
    starts
        .iter()
        .zip(shape.iter().zip(size))
        .map(|(s, (&n, &k))| s.data.get_i64(0).clamp(0, (n - k) as i64) as usize)
        .collect()
}

impl Operation for Slice {
    fn name(&self) -> &'static str {
        match self {
            Slice::Static { .. } => "slice",
            Slice::Dynamic { .. } => "dynamic_slice",
            Slice::Update => "dynamic_update_slice",
        }
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        match self {
            Slice::Static { start, limit, stride } => {
                AttrMap::from([("start", ints(start)), ("limit", ints(limit)), ("stride", ints(stride))])
            }
            Slice::Dynamic { sizes } => AttrMap::from([("sizes", ints(sizes))]),
            Slice::Update => AttrMap::new(),
        }
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        match self {
            Slice::Static { start, limit, stride } => {
                expect_operands(self.name(), operands, 1)?;
                let t = operands[0];
                if [start.len(), limit.len(), stride.len()] != [t.rank(); 3] {
                    return Err(IrError::attr(
                        self.name(),
                        "limit",
                        format!("does not have the rank of {t}"),
                    ));
                }
                for d in 0..t.rank() {
                    if start[d] > limit[d] || limit[d] > t.shape[d] || stride[d] == 0 {
                        return Err(IrError::attr(
                            self.name(),
                            "limit",
                            format!("[{}:{}:{}] of dimension {d} of {t}", start[d], limit[d], stride[d]),
                        ));
                    }
                }
                Ok(vec![t.with_shape((0..t.rank()).map(|d| (limit[d] - start[d]).div_ceil(stride[d])))])
            }
            Slice::Dynamic { sizes } => {
                let Some((t, starts)) = operands.split_first() else {
                    return Err(IrError::ty(self.name(), "has no operand"));
                };
                self.expect_starts(starts, t.rank())?;
                if sizes.len() != t.rank() || sizes.iter().zip(&t.shape).any(|(s, n)| s > n) {
                    return Err(IrError::attr(
                        self.name(),
                        "sizes",
                        format!("{sizes:?} does not fit in {t}"),
                    ));
                }
                Ok(vec![t.with_shape(sizes.iter().copied())])
            }
            Slice::Update => {
                let [t, u, starts @ ..] = operands else {
                    return Err(IrError::ty(self.name(), "takes an operand, an update and start indices"));
                };
                self.expect_starts(starts, t.rank())?;
                if u.dtype != t.dtype
                    || u.rank() != t.rank()
                    || u.shape.iter().zip(&t.shape).any(|(s, n)| s > n)
                {
                    return Err(IrError::ty(self.name(), format!("update {u} does not fit in {t}")));
                }
                Ok(vec![(*t).clone()])
            }
        }
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let x = inputs[0];
        let st = strides(&x.shape);
        Ok(vec![match self {
            Slice::Static { start, stride, .. } => {
                let shape = &results[0].shape;
                // A stride beyond the tensor is of a dimension that gives one element: it is never taken.
                let step = stride.iter().zip(&st).map(|(k, &s)| k.wrapping_mul(s) as isize);
                let step: Vec<isize> = step.collect();
                let base = start.iter().zip(&st).map(|(k, s)| k * s).sum();
                Tensor::new(shape.iter().copied(), x.data.strided(base, shape, &step))
            }
            Slice::Dynamic { sizes } => x.block(&clamped(&inputs[1..], &x.shape, sizes), sizes),
            Slice::Update => {
                let u = inputs[1];
                let start = clamped(&inputs[2..], &x.shape, &u.shape);
                let at = IndexSpace::new(&u.shape)
                    .map(|ix| ix.iter().enumerate().map(|(d, i)| (start[d] + i) * st[d]).sum::<usize>());
                let mut out = x.clone();
                macro_rules! write {
                    ($($v:ident),*) => {
                        match (&mut out.data, &u.data) {
                            $((Storage::$v(o), Storage::$v(n)) => at.zip(n).for_each(|(i, &e)| o[i] = e),)*
                            _ => return Err(IrError::ty(self.name(), "operands of different element types")),
                        }
                    };
                }
                write!(I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64);
                out
            }
        }])
    }

    /// A dimension taken whole passes; one that is cut must be whole. Start indices are scalars.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let x = operands[0];
        for d in 0..x.rank() {
            let part = match self {
                Slice::Update => operands[1].shape[d],
                _ => results[0].shape[d],
            };
            let passes = part == x.shape[d]
                && match self {
                    Slice::Static { stride, .. } => stride[d] == 1 || part <= 1,
                    _ => true,
                };
            if let Slice::Static { start, limit, stride } = self
                && !passes
                && stride[d] == 1
            {
                let piece = common_divisor([start[d], limit[d], x.shape[d]]);
                if piece > 1 {
                    let f = r.factor(piece, FactorKind::Pass);
                    r.operands[0][d] = r.pieces(x.shape[d], f);
                    r.results[0][d] = r.pieces(part, f);
                    continue;
                }
            }
            let kind = if passes { FactorKind::Pass } else { FactorKind::Whole };
            let f = r.factor(x.shape[d], kind);
            r.on_operand(0, d, f);
            match self {
                Slice::Update => {
                    r.on_result(0, d, f);
                    let g = if passes { f } else { r.factor(part, FactorKind::Whole) };
                    r.on_operand(1, d, g);
                }
                _ => {
                    let g = if passes { f } else { r.factor(part, FactorKind::Whole) };
                    r.on_result(0, d, g);
                }
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], results: &[TensorType]) -> Result<Op> {
        Ok(match self {
            Slice::Static { start, limit, stride } => {
                // A dimension taken whole may change size, and so may the pieces of one that is taken in part.
                let mut sized = (start.clone(), limit.clone());
                for d in (0..limit.len()).filter(|&d| stride[d] == 1 && limit[d] > start[d]) {
                    let (old, new) = (limit[d] - start[d], results[0].shape[d]);
                    // In wide numbers: the product of two places of one dimension may be beyond a machine's.
                    sized.0[d] = (start[d] as u128 * new as u128 / old as u128) as usize;
                    sized.1[d] = sized.0[d] + new;
                }
                Slice::Static { start: sized.0, limit: sized.1, stride: stride.clone() }
            }
            Slice::Dynamic { .. } => Slice::Dynamic { sizes: results[0].shape.clone() },
            Slice::Update => Slice::Update,
        }
        .into())
    }
}

impl Slice {
    /// The scalar type of start indices that msc itself builds.
    pub const START: DType = DType::I32;
}
