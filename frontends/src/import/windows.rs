//! Windows: `reduce_window`, `select_and_scatter`; and `map`.

use super::reducers::{Combine, recognise};
use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::map::Map;
use msc_ir::ops::reducer::Reducer;
use msc_ir::ops::window::{Window, Windowed};
use msc_ir::{LocId, Shape};
use smallvec::SmallVec;

impl<'r, 'a> Importer<'r, 'a> {
    /// The window that an op's attributes describe, on an operand of rank `rank`.
    fn window(&mut self, op: &RawOp<'a>, rank: usize) -> Result<Window> {
        let ones = |n: usize| -> Shape { SmallVec::from_elem(1, n) };
        let mut or_ones = |name: &str| match op.attr(name) {
            Some(_) => self.dims(op, name),
            None => Ok(ones(rank)),
        };
        let size = or_ones("window_dimensions")?;
        let stride = or_ones("window_strides")?;
        let base_dilation = or_ones("base_dilations")?;
        let dilation = or_ones("window_dilations")?;
        let (low, high) = self.padding(op, rank)?;
        Ok(Window { size, stride, base_dilation, dilation, low, high })
    }

    /// The attribute `padding`, pairs (low, high) per dimension; nothing where it is missing.
    #[allow(clippy::type_complexity)]
    pub(super) fn padding(
        &mut self,
        op: &RawOp<'a>,
        rank: usize,
    ) -> Result<(SmallVec<[i64; 4]>, SmallVec<[i64; 4]>)> {
        let flat = match op.attr("padding") {
            None => vec![0; 2 * rank],
            // The pretty form of convolution has rows.
            Some(crate::raw::Attr::Array(rows)) => {
                let rows: Option<Vec<Vec<i64>>> = rows.iter().map(|r| self.int_values(r)).collect();
                rows.map(|r| r.concat()).unwrap_or_default()
            }
            Some(_) => self.ints(op, "padding")?,
        };
        if flat.len() != 2 * rank {
            return Err(self.bad_attr(op, "padding", &format!("should have {rank} pairs")));
        }
        Ok((flat.iter().copied().step_by(2).collect(), flat.iter().copied().skip(1).step_by(2).collect()))
    }

    /// `reduce_window`; one of several operands that are combined independently becomes one per operand.
    pub(super) fn reduce_window(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let n = operands.len() / 2;
        if operands.len() != 2 * n || n == 0 {
            let message = "stablehlo.reduce_window takes operands and as many initial values";
            return Err(self.error(op, Code::Invalid, message));
        }
        let rank = self.graph.ty(operands[0]).rank();
        let window = self.window(op, rank)?;
        let region = self.single_region(op)?;
        // Padding counts as the initial value, so another one than the identity needs the general form.
        let monoids: Option<Vec<_>> = recognise(region, n).and_then(|v| {
            v.into_iter()
                .zip(&operands[n..])
                .map(|(c, &init)| match c {
                    Combine::Monoid(m) if self.is_identity(m, init) => Some(m),
                    _ => None,
                })
                .collect()
        });
        let Some(monoids) = monoids else {
            let reducer = Reducer::Graph(self.scalar_graph(op, region, "reducer")?);
            return self.emit(op, Windowed::Reduce { window, reducer }, &operands, loc);
        };
        let mut results = Results::new();
        for (i, m) in monoids.into_iter().enumerate() {
            let what = Windowed::Reduce { window: window.clone(), reducer: Reducer::Monoid(m) };
            results.push(self.emit1(op, what, &[operands[i]], loc)?);
        }
        Ok(results)
    }

    /// `select_and_scatter`.
    pub(super) fn select_and_scatter(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands_n::<3>(op)?;
        let [select, scatter] = &op.regions[..] else {
            return Err(self.error(op, Code::Invalid, "stablehlo.select_and_scatter has two regions"));
        };
        let rank = self.graph.ty(operands[0]).rank();
        let window = self.window(op, rank)?;
        let select = self.scalar_graph(op, select, "select")?;
        let scatter = self.scalar_graph(op, scatter, "scatter")?;
        self.emit(op, Windowed::SelectAndScatter { window, select, scatter }, &operands, loc)
    }

    /// `map`.
    pub(super) fn map(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let region = self.single_region(op)?;
        let body = self.scalar_graph(op, region, "map")?;
        self.emit(op, Map { body }, &operands, loc)
    }
}
