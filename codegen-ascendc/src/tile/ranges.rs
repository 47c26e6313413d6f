//! Extreme values of affine functions over all blocks and loop iterations.
//!
//! Variables are eliminated one by one, innermost loop first: a loop variable is replaced by its first or
//! last value, which are functions of the variables further out, and grid variables by 0 or size - 1.
//! Because the ends of inner loops stay symbolic until then, `row - block_end` is found to be negative
//! without enumerating blocks.

use super::{Affine, Bound, GridDim, GridId, Loop, LoopId, Span, Var};

/// The grid and the loops around a step, outermost first. Every loop is taken to run at least once, which
/// is the case whenever a step of its body is executed.
#[derive(Debug, Clone, Default)]
pub struct Ranges {
    grid: Vec<i64>,
    loops: Vec<LoopRange>,
}

#[derive(Debug, Clone)]
struct LoopRange {
    id: LoopId,
    start: Affine,
    end: Bound,
    step: i64,
}

impl Ranges {
    /// The ranges at the top of a kernel with this grid.
    pub fn new(grid: &[GridDim]) -> Ranges {
        Ranges { grid: grid.iter().map(|dim| dim.size).collect(), loops: Vec::new() }
    }

    /// Enters a loop.
    pub fn push(&mut self, l: &Loop) {
        let (start, end) = (l.start.clone(), l.end.clone());
        self.loops.push(LoopRange { id: l.id, start, end, step: l.step.max(1) });
    }

    /// Leaves the innermost loop.
    pub fn pop(&mut self) {
        self.loops.pop();
    }

    /// Whether `var` is a grid dimension or an enclosing loop.
    pub fn knows(&self, var: Var) -> bool {
        match var {
            Var::Grid(g) => (g.0 as usize) < self.grid.len(),
            Var::Loop(id) => self.loops.iter().any(|l| l.id == id),
        }
    }

    /// An upper bound of `f`; the least that elimination finds, exact in all cases the kernel families
    /// produce.
    pub fn max(&self, f: &Affine) -> i64 {
        self.uppers(f).iter().map(|u| self.grid_max(u)).min().unwrap_or(i64::MAX)
    }

    /// A lower bound of `f`; see [`max`](Self::max).
    pub fn min(&self, f: &Affine) -> i64 {
        self.max(&f.times(-1)).saturating_neg()
    }

    /// Functions of grid variables alone, each an upper bound of `f` for every block.
    pub fn uppers(&self, f: &Affine) -> Vec<Affine> {
        let mut found = vec![f.clone()];
        for l in self.loops.iter().rev() {
            let var = Var::Loop(l.id);
            found = found.into_iter().flat_map(|g| l.eliminate(&g, var)).collect();
        }
        found
    }

    /// Functions of grid variables alone, each a lower bound of `f` for every block.
    pub fn lowers(&self, f: &Affine) -> Vec<Affine> {
        self.uppers(&f.times(-1)).into_iter().map(|u| u.times(-1)).collect()
    }

    /// Whether a tile of `extent` indices is covered by the span's valid indices everywhere.
    pub fn always_full(&self, span: &Span, extent: i64) -> bool {
        span.end.ends().iter().all(|end| self.min(&end.minus(&span.start)) >= extent)
    }

    /// The greatest value over the grid of a function of grid variables.
    fn grid_max(&self, f: &Affine) -> i64 {
        let mut sum = i128::from(f.offset());
        for &(var, c) in f.terms() {
            if c <= 0 {
                continue; // The least coordinate is 0.
            }
            match var {
                Var::Grid(GridId(g)) => {
                    let size = self.grid.get(g as usize).copied().unwrap_or(i64::MAX);
                    sum += i128::from(c) * i128::from(size.saturating_sub(1));
                }
                Var::Loop(_) => return i64::MAX,
            }
        }
        i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
    }
}

impl LoopRange {
    /// Upper bounds of `f` with `var`, this loop's variable, eliminated.
    fn eliminate(&self, f: &Affine, var: Var) -> Vec<Affine> {
        match f.coefficient(var) {
            0 => vec![f.clone()],
            c if c < 0 => vec![f.substitute(var, &self.start)],
            _ => self.end.ends().iter().map(|end| f.substitute(var, &self.last(end))).collect(),
        }
    }

    /// The last value of the variable if the loop ended at `end`, or a bound of it.
    fn last(&self, end: &Affine) -> Affine {
        let length = end.minus(&self.start);
        if let Some(n) = length.as_constant() {
            let whole = (n - 1).max(0) / self.step * self.step;
            return self.start.plus_const(whole);
        }
        let even = length.offset() % self.step == 0 && length.terms().iter().all(|(_, c)| c % self.step == 0);
        end.plus_const(if even { -self.step } else { -1 })
    }
}
