//! Windows sliding over a tensor: `reduce_window` and `select_and_scatter`.

use super::reducer::{Reducer, expect_reducer};
use super::{expect_operands, expect_padding};
use crate::attr::{AttrMap, AttrReader, AttrValue, ints};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::interp::lift::run_lifted;
use crate::module::{GraphId, Module};
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::{Shape, TensorType, strides};
use smallvec::{SmallVec, smallvec};

/// How a window slides, per dimension (StableHLO specification, "reduce_window").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Window {
    /// Size.
    pub size: Shape,
    /// Distance between neighbouring windows.
    pub stride: Shape,
    /// Distance between neighbouring elements of the operand: 1 + the gaps put between them.
    pub base_dilation: Shape,
    /// Distance between neighbouring elements of the window.
    pub dilation: Shape,
    /// Elements before the dilated operand; negative removes.
    pub low: SmallVec<[i64; 4]>,
    /// Elements after it; negative removes.
    pub high: SmallVec<[i64; 4]>,
}

impl Window {
    /// A window of one element, stride 1, without padding: the identity in every dimension.
    pub fn unit(rank: usize) -> Window {
        let one: Shape = SmallVec::from_elem(1, rank);
        let zero: SmallVec<[i64; 4]> = SmallVec::from_elem(0, rank);
        Window {
            size: one.clone(),
            stride: one.clone(),
            base_dilation: one.clone(),
            dilation: one,
            low: zero.clone(),
            high: zero,
        }
    }

    pub(crate) fn read(a: &mut AttrReader) -> Result<Window> {
        Ok(Window {
            size: a.indices("window")?,
            stride: a.indices("stride")?,
            base_dilation: a.indices("base_dilation")?,
            dilation: a.indices("dilation")?,
            low: a.ints("low")?.into(),
            high: a.ints("high")?.into(),
        })
    }

    pub(crate) fn write(&self, m: &mut AttrMap) {
        m.insert("window", ints(&self.size));
        m.insert("stride", ints(&self.stride));
        m.insert("base_dilation", ints(&self.base_dilation));
        m.insert("dilation", ints(&self.dilation));
        m.insert("low", AttrValue::Ints(self.low.to_vec()));
        m.insert("high", AttrValue::Ints(self.high.to_vec()));
    }

    /// The number of windows per dimension, for op `op` on an operand of shape `shape`.
    ///
    /// # Errors
    /// [`IrError::Attribute`] where the windows do not fit.
    pub fn count(&self, op: &str, shape: &[usize]) -> Result<Shape> {
        let rank = shape.len();
        let lengths = [&self.size, &self.stride, &self.base_dilation, &self.dilation].map(|s| s.len());
        if lengths != [rank; 4] || self.low.len() != rank || self.high.len() != rank {
            return Err(IrError::attr(op, "window", format!("does not have rank {rank}")));
        }
        let positive = [&self.size, &self.stride, &self.base_dilation, &self.dilation];
        if positive.iter().any(|s| s.contains(&0)) {
            return Err(IrError::attr(op, "window", "sizes, strides and dilations should be at least 1"));
        }
        expect_padding(op, &self.low, &self.high, &self.dilation)?;
        let spread = |n: usize, by: usize| if n == 0 { 0 } else { (n as i128 - 1) * by as i128 + 1 };
        (0..rank)
            .map(|d| {
                let base = spread(shape[d], self.base_dilation[d])
                    + i128::from(self.low[d])
                    + i128::from(self.high[d]);
                let window = spread(self.size[d], self.dilation[d]);
                let n = if window > base { 0 } else { (base - window) / self.stride[d] as i128 + 1 };
                usize::try_from(n).ok().filter(|&n| n <= isize::MAX as usize).ok_or_else(|| {
                    IrError::attr(op, "window", format!("dimension {d} would have {n} windows"))
                })
            })
            .collect()
    }

    /// The operand index of element `within` of window `at`, or `None` where there is padding.
    pub(crate) fn element(&self, shape: &[usize], at: &[usize], within: &[usize]) -> Option<Shape> {
        (0..shape.len())
            .map(|d| {
                let p = (at[d] * self.stride[d] + within[d] * self.dilation[d]) as i64 - self.low[d];
                let by = self.base_dilation[d] as i64;
                (p >= 0 && p % by == 0 && p / by < shape[d] as i64).then_some((p / by) as usize)
            })
            .collect()
    }

    fn is_identity(&self, d: usize) -> bool {
        [self.size[d], self.stride[d], self.base_dilation[d]] == [1; 3]
            && self.low[d] == 0
            && self.high[d] == 0
    }

    /// Flat operand index of every element of every window, window by window; `None` is padding.
    fn elements(&self, shape: &[usize], count: &[usize]) -> Vec<Vec<Option<usize>>> {
        let st = strides(shape);
        IndexSpace::new(&self.size)
            .map(|within| {
                IndexSpace::new(count)
                    .map(|at| {
                        let ix = self.element(shape, &at, &within)?;
                        Some(ix.iter().zip(&st).map(|(i, s)| i * s).sum())
                    })
                    .collect()
            })
            .collect()
    }
}

/// Ops over windows.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Windowed {
    /// `T₁[…], …(, T₁[], …) → T₁[windows], …`: the reduction of every window; padding counts as the initial value
    /// (StableHLO specification, "reduce_window").
    Reduce {
        /// The windows.
        window: Window,
        /// What combines.
        reducer: Reducer,
    },
    /// `T[…], T[windows], T[] → T[…]`: in every window one element is selected, and the source's element is scattered
    /// to it (StableHLO specification, "select_and_scatter"). Dilations are 1.
    SelectAndScatter {
        /// The windows.
        window: Window,
        /// `T[], T[] → i1[]`: whether the first stays selected against the second.
        select: GraphId,
        /// `T[], T[] → T[]`: combines what is scattered to one element, from the third operand on.
        scatter: GraphId,
    },
}

impl Windowed {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<Windowed>> {
        Ok(match name {
            "reduce_window" => {
                Some(Windowed::Reduce { window: Window::read(a)?, reducer: Reducer::read(a, module)? })
            }
            "select_and_scatter" => Some(Windowed::SelectAndScatter {
                window: Window::read(a)?,
                select: a.known_graph("select", module)?,
                scatter: a.known_graph("scatter", module)?,
            }),
            _ => None,
        })
    }

    /// The windows.
    pub fn window(&self) -> &Window {
        match self {
            Windowed::Reduce { window, .. } | Windowed::SelectAndScatter { window, .. } => window,
        }
    }

    fn eval_select(
        &self,
        inputs: &[&Tensor],
        cx: &EvalCx<'_>,
        select: GraphId,
        scatter: GraphId,
    ) -> Result<Vec<Tensor>> {
        let (x, source, init) = (inputs[0], inputs[1], inputs[2]);
        let n = source.len();
        let mut chosen: Vec<Option<usize>> = vec![None; n];
        for column in self.window().elements(&x.shape, &source.shape) {
            // Windows that meet their first element take it; the others ask.
            let ask: Vec<(usize, usize, usize)> =
                (0..n).filter_map(|w| Some((w, chosen[w]?, column[w]?))).collect();
            for (w, c) in column.iter().enumerate() {
                if chosen[w].is_none() {
                    chosen[w] = *c;
                }
            }
            let side = |k: fn(&(usize, usize, usize)) -> usize| {
                Tensor::new([ask.len()], x.data.pick(ask.iter().map(k)))
            };
            let (old, new) = (side(|a| a.1), side(|a| a.2));
            let keep = run_lifted(cx, select, &[&old, &new], ask.len())?;
            for (i, &(w, _, new)) in ask.iter().enumerate() {
                if keep[0].data.get_i64(i) == 0 {
                    chosen[w] = Some(new);
                }
            }
        }
        let mut out = init.data.pick(std::iter::repeat_n(0, x.len()));
        let pairs: Vec<(usize, usize)> =
            chosen.iter().enumerate().filter_map(|(w, c)| Some(((*c)?, w))).collect();
        for round in rounds(&pairs) {
            let acc = Tensor::new([round.len()], out.pick(round.iter().map(|p| p.0)));
            let new = Tensor::new([round.len()], source.data.pick(round.iter().map(|p| p.1)));
            let made = run_lifted(cx, scatter, &[&acc, &new], round.len())?;
            out.put(round.iter().map(|p| p.0), &made[0].data)?;
        }
        Ok(vec![Tensor { shape: x.shape.clone(), data: out }])
    }
}

/// Pairs (target, source) in order, grouped so that no group has a target twice and each target meets its sources
/// in order.
pub(crate) fn rounds(pairs: &[(usize, usize)]) -> Vec<Vec<(usize, usize)>> {
    let mut met: std::collections::BTreeMap<usize, usize> = std::collections::BTreeMap::new();
    let mut out: Vec<Vec<(usize, usize)>> = Vec::new();
    for &(to, from) in pairs {
        let n = met.entry(to).or_default();
        if out.len() == *n {
            out.push(Vec::new());
        }
        out[*n].push((to, from));
        *n += 1;
    }
    out
}

impl Operation for Windowed {
    fn name(&self) -> &'static str {
        match self {
            Windowed::Reduce { .. } => "reduce_window",
            Windowed::SelectAndScatter { .. } => "select_and_scatter",
        }
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        let mut m = AttrMap::new();
        self.window().write(&mut m);
        match self {
            Windowed::Reduce { reducer, .. } => reducer.write(module, &mut m),
            Windowed::SelectAndScatter { select, scatter, .. } => {
                m.insert("select", AttrValue::Graph(module.graph(*select).name.clone()));
                m.insert("scatter", AttrValue::Graph(module.graph(*scatter).name.clone()));
            }
        }
        m
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        match self {
            Windowed::Reduce { window, reducer } => {
                let (inputs, _) = reducer.operands(self.name(), operands, module)?;
                let count = window.count(self.name(), &inputs[0].shape)?;
                let out: Vec<TensorType> =
                    inputs.iter().map(|t| t.with_shape(count.iter().copied())).collect();
                match out.iter().find(|t| t.checked_bytes().is_none()) {
                    Some(t) => Err(IrError::ty(self.name(), format!("result {t} does not fit in memory"))),
                    None => Ok(out),
                }
            }
            Windowed::SelectAndScatter { window, select, scatter } => {
                expect_operands(self.name(), operands, 3)?;
                let (x, source, init) = (operands[0], operands[1], operands[2]);
                let count = window.count(self.name(), &x.shape)?;
                let one = TensorType::scalar(x.dtype);
                if *source != x.with_shape(count.iter().copied()) || *init != one {
                    return Err(IrError::ty(
                        self.name(),
                        format!(
                            "source {source} and initial value {init} do not fit {count:?} windows of {x}"
                        ),
                    ));
                }
                if window.base_dilation.iter().chain(&window.dilation).any(|&d| d != 1) {
                    return Err(IrError::attr(self.name(), "dilation", "should be 1"));
                }
                let decides = super::call::signature(self.name(), *select, &[&one, &one], module)?;
                if decides != [TensorType::scalar(DType::I1)] {
                    return Err(IrError::ty(self.name(), format!("select gives {decides:?}, not i1[]")));
                }
                expect_reducer(self.name(), *scatter, &[x.dtype], module)?;
                Ok(vec![x.clone()])
            }
        }
    }

    /// Float sums and products of a monoid are accumulated in f64 and rounded once.
    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (window, reducer) = match self {
            Windowed::Reduce { window, reducer } => (window, *reducer),
            Windowed::SelectAndScatter { select, scatter, .. } => {
                return self.eval_select(inputs, cx, *select, *scatter);
            }
        };
        let k = results.len();
        let (inputs, inits) = inputs.split_at(k);
        let count = &results[0].shape;
        let n = results[0].elements();
        let dtype = results[0].dtype;
        let widened = match reducer {
            Reducer::Monoid(Monoid::Sum | Monoid::Product) if dtype.is_float() => {
                Some(inputs[0].converted(DType::F64))
            }
            _ => None,
        };
        let sources: Vec<&Tensor> = widened.iter().chain(inputs.iter().copied()).take(k).collect();
        let held = widened.as_ref().map_or(dtype, |_| DType::F64);
        let mut acc = reducer.start(inits, held, n);
        // Padding counts as the initial value: it stands behind each operand's last element.
        let fills = reducer.start(inits, held, 1);
        let padded: Vec<Storage> =
            sources.iter().zip(&fills).map(|(t, fill)| t.data.followed_by(fill)).collect::<Result<_>>()?;
        let fill = sources[0].len();
        for column in window.elements(&sources[0].shape, count) {
            let new = padded.iter().map(|s| s.pick(column.iter().map(|e| e.unwrap_or(fill)))).collect();
            acc = reducer.fold(cx, acc, new)?;
        }
        Ok(acc
            .into_iter()
            .zip(results)
            .map(|(s, t)| Tensor::new(count.iter().copied(), s).converted(t.dtype))
            .collect())
    }

    /// Dimensions in which the window is the identity pass.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for d in 0..operands[0].rank() {
            let passes = self.window().is_identity(d);
            let mut by_size: Vec<(usize, usize)> = Vec::new();
            let mut on = |r: &mut FactorRule, n: usize| {
                if let Some(&(_, f)) = by_size.iter().find(|(m, _)| *m == n) {
                    return f;
                }
                let f = r.factor(n, if passes { FactorKind::Pass } else { FactorKind::Whole });
                by_size.push((n, f));
                f
            };
            for (o, t) in operands.iter().enumerate().filter(|(_, t)| t.rank() > 0) {
                let f = on(&mut r, t.shape[d]);
                r.on_operand(o, d, f);
            }
            for (o, t) in results.iter().enumerate() {
                let f = on(&mut r, t.shape[d]);
                r.on_result(o, d, f);
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        match self {
            Windowed::Reduce { reducer, .. } => reducer.graph().into_iter().collect(),
            Windowed::SelectAndScatter { select, scatter, .. } => smallvec![*select, *scatter],
        }
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        match self {
            Windowed::Reduce { reducer: Reducer::Graph(g), .. } => smallvec![g],
            Windowed::Reduce { .. } => SmallVec::new(),
            Windowed::SelectAndScatter { select, scatter, .. } => smallvec![select, scatter],
        }
    }
}
