//! Names, sizes, ids, scopes and loops.

use std::collections::BTreeSet;

use super::{Fault, VerifyError, here, whole};
use crate::tile::{Affine, Bound, BufferId, Kernel, Loop, Operand, ParamId, ScalarId, Step, Var, View};

/// Elements of a tensor at most, so that no offset in bytes overflows.
const MAX_ELEMENTS: i64 = 1 << 48;
/// Extent of a tile at most.
const MAX_EXTENT: i64 = 1 << 31;

pub(super) fn check(k: &Kernel) -> Result<(), VerifyError> {
    names(k).map_err(|fault| whole(k, fault))?;
    sizes(k).map_err(|fault| whole(k, fault))?;
    let mut scope = Scope { k, loops: Vec::new(), seen: BTreeSet::new() };
    scope.steps(&k.body)
}

fn names(k: &Kernel) -> Result<(), Fault> {
    let identifier = |name: &str| {
        let mut chars = name.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !identifier(&k.name) {
        return Err(Fault::Name(k.name.clone()));
    }
    let outside = k.params.iter().map(|p| &p.name).chain(k.scalars.iter().map(|s| &s.name));
    let inside = k.buffers.iter().map(|b| &b.name);
    for names in [outside.collect::<Vec<_>>(), inside.collect()] {
        let mut seen = BTreeSet::new();
        for name in names {
            if !identifier(name) || !seen.insert(name) {
                return Err(Fault::Name(name.clone()));
            }
        }
    }
    Ok(())
}

fn sizes(k: &Kernel) -> Result<(), Fault> {
    let bad = |sizes: &[i64], limit: i64| {
        let product = sizes.iter().try_fold(1i64, |n, &s| if s < 1 { None } else { n.checked_mul(s) });
        product.is_none_or(|n| n > limit)
    };
    let grid: Vec<i64> = k.grid.iter().map(|dim| dim.size).collect();
    if bad(&grid, i64::from(i32::MAX)) {
        return Err(Fault::Size("the grid".to_owned()));
    }
    if let Some(p) = k.params.iter().find(|p| bad(&p.shape, MAX_ELEMENTS)) {
        return Err(Fault::Size(format!("tensor `{}`", p.name)));
    }
    match k.buffers.iter().find(|b| bad(&b.shape(), MAX_EXTENT)) {
        Some(b) => Err(Fault::Size(format!("buffer `{}`", b.name))),
        None => Ok(()),
    }
}

struct Scope<'k> {
    k: &'k Kernel,
    loops: Vec<u32>,
    seen: BTreeSet<u32>,
}

impl Scope<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<(), VerifyError> {
        for step in steps {
            self.step(step).map_err(|fault| here(self.k, step, fault))?;
            if let Step::For(l) = step {
                self.loops.push(l.id.0);
                self.steps(&l.body)?;
                self.loops.pop();
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Fault> {
        for id in step.writes().into_iter().chain(step.reads()) {
            self.buffer(id)?;
        }
        match step {
            Step::Load { from: view, .. } | Step::Store { to: view, .. } => self.view(view),
            Step::Index { start, .. } => self.affine(start),
            Step::Reduce { valid: Some(span), .. } => {
                self.affine(&span.start)?;
                self.bound(&span.end)
            }
            Step::Unary { src, .. } => self.operands(&[*src]),
            Step::Binary { a, b, .. } => self.operands(&[*a, *b]),
            Step::Select { a, b, on_true, on_false, .. } => self.operands(&[*a, *b, *on_true, *on_false]),
            Step::For(l) => self.enter(l),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, l: &Loop) -> Result<(), Fault> {
        if !self.seen.insert(l.id.0) || l.step < 1 || l.end.ends().is_empty() {
            return Err(Fault::Loop(l.id.0));
        }
        self.affine(&l.start)?;
        self.bound(&l.end)?;
        l.carries.iter().try_for_each(|id| self.buffer(*id))
    }

    fn view(&self, view: &View) -> Result<(), Fault> {
        let ParamId(n) = view.param;
        let Some(param) = self.k.params.get(n as usize) else {
            return Err(Fault::Unknown(format!("tensor number {n}")));
        };
        let rank = param.shape.len();
        let dims: Vec<usize> = view.rows.iter().chain(&view.cols).map(|(dim, _)| *dim).collect();
        let twice = dims.len() == 2 && dims[0] == dims[1];
        if view.origin.len() != rank || twice || dims.iter().any(|d| *d >= rank) {
            return Err(Fault::View { param: param.name.clone(), rank });
        }
        view.origin.iter().try_for_each(|o| self.affine(o))?;
        for (_, span) in view.rows.iter().chain(&view.cols) {
            self.affine(&span.start)?;
            self.bound(&span.end)?;
        }
        Ok(())
    }

    fn operands(&self, operands: &[Operand]) -> Result<(), Fault> {
        for operand in operands {
            if let Operand::Scalar(ScalarId(n)) = operand
                && *n as usize >= self.k.scalars.len()
            {
                return Err(Fault::Unknown(format!("scalar number {n}")));
            }
        }
        Ok(())
    }

    fn buffer(&self, BufferId(n): BufferId) -> Result<(), Fault> {
        if (n as usize) < self.k.buffers.len() {
            return Ok(());
        }
        Err(Fault::Unknown(format!("buffer number {n}")))
    }

    fn affine(&self, f: &Affine) -> Result<(), Fault> {
        let unknown = f.terms().iter().find(|(var, _)| match var {
            Var::Grid(g) => g.0 as usize >= self.k.grid.len(),
            Var::Loop(l) => !self.loops.contains(&l.0),
        });
        unknown.map_or(Ok(()), |(var, _)| Err(Fault::Scope(var.to_string())))
    }

    fn bound(&self, bound: &Bound) -> Result<(), Fault> {
        if bound.ends().is_empty() {
            return Err(Fault::Empty("without an end".to_owned()));
        }
        bound.ends().iter().try_for_each(|end| self.affine(end))
    }
}
