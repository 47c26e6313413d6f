//! Layouts that are asked for, by annotations and by options, along one axis after the other.

use super::facts::Draft;
use super::given::Given;
use super::lower::Done;
use super::problem::{Problem, Split};
use crate::error::Result;
use msc_ir::Module;
use msc_ir::module::{AxisId, Mesh, Sharding};
use std::collections::BTreeSet;

/// What is asked of the entry's parameters, with the axes by name, because numbers change when an axis is split in two.
#[derive(Debug)]
pub(super) struct Wishes {
    params: Vec<(usize, Vec<Vec<String>>)>,
}

/// What is asked along one axis and not so yet: parameters and dimensions.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub data: Vec<(usize, usize)>,
    pub state: Vec<(usize, usize)>,
}

impl Wishes {
    pub fn of(given: &Given, module: &Module) -> Result<Wishes> {
        let mesh = &module.mesh;
        let name = |a: &AxisId| mesh.axes.get(a.0 as usize).map(|a| a.name.clone());
        let dims = |s: &Sharding| s.dims.iter().map(|axes| axes.iter().filter_map(name).collect()).collect();
        let mut params: Vec<(usize, Vec<Vec<String>>)> =
            given.params.iter().map(|(&p, s)| (p, dims(s))).collect();
        // A result that replaces a parameter lies where the parameter does.
        for (p, info) in module.entry()?.params.iter().enumerate() {
            let Some(s) = info.alias.and_then(|r| given.results.get(&(r as usize))) else { continue };
            if !given.params.contains_key(&p) {
                params.push((p, dims(s)));
            }
        }
        Ok(Wishes { params })
    }

    /// The parameters that something is asked for.
    pub fn params(&self) -> BTreeSet<usize> {
        self.params.iter().map(|(p, _)| *p).collect()
    }

    /// The same of parameters that have other numbers now; those without one are asked for nothing.
    pub fn moved(&mut self, to: &[Option<usize>]) {
        let number = |p: usize| to.get(p).copied().flatten();
        self.params = std::mem::take(&mut self.params)
            .into_iter()
            .filter_map(|(p, dims)| Some((number(p)?, dims)))
            .collect();
    }

    /// The axes of more than one rank that something is asked for, each after those outside of it in some dimension.
    pub fn axes(&self, mesh: &Mesh) -> Vec<String> {
        let lists: Vec<&Vec<String>> = self.params.iter().flat_map(|(_, dims)| dims).collect();
        let asked = |n: &String| lists.iter().any(|l| l.contains(n));
        let mut left: Vec<String> =
            mesh.axes.iter().filter(|a| a.size > 1).map(|a| a.name.clone()).filter(asked).collect();
        let mut out: Vec<String> = Vec::new();
        while !left.is_empty() {
            let inside = |n: &String| {
                lists
                    .iter()
                    .any(|l| l.iter().take_while(|m| *m != n).any(|m| left.contains(m)) && l.contains(n))
            };
            // Lists that contradict each other have no outermost axis: the mesh's order then decides.
            let next = left.iter().position(|n| !inside(n)).unwrap_or(0);
            out.push(left.remove(next));
        }
        out
    }

    /// What is asked along an axis and not so yet.
    pub fn along(&self, module: &Module, axis: AxisId) -> Result<Wish> {
        let name = &module.mesh.axes[axis.0 as usize].name;
        let problem = Problem::new(module)?;
        let g = module.graph(problem.entry);
        let state = problem.state(g);
        let mut out = Wish::default();
        for (p, dims) in &self.params {
            let (Some(info), Some(v)) = (problem.info.params.get(*p), g.params().get(*p)) else { continue };
            for (d, _) in dims.iter().enumerate().filter(|(_, l)| l.contains(name)) {
                if !info.sharding.axes(d).contains(&axis) && d < g.ty(*v).rank() {
                    if state.contains(v) { &mut out.state } else { &mut out.data }.push((*p, d));
                }
            }
        }
        Ok(out)
    }

    /// The dimensions of a wish, with the product of the axes that each is asked along and not split along yet.
    pub fn with_ranks(&self, module: &Module, wish: &Wish) -> Result<Vec<(usize, usize, usize)>> {
        let params = &module.entry()?.params;
        let ranks = |p: usize, d: usize| -> usize {
            let (Some((_, dims)), Some(info)) = (self.params.iter().find(|x| x.0 == p), params.get(p)) else {
                return 1;
            };
            let axes = dims.get(d).into_iter().flatten().filter_map(|name| module.mesh.axis(name));
            axes.filter(|a| !info.sharding.axes(d).contains(a)).map(|a| module.mesh.size(a)).product()
        };
        Ok(wish.data.iter().chain(&wish.state).map(|&(p, d)| (p, d, ranks(p, d))).collect())
    }

    /// Parameters that are not as asked, and what was asked.
    pub fn not_met(&self, module: &Module) -> Result<Vec<(String, String)>> {
        let entry = module.entry()?;
        let mut out = Vec::new();
        for (p, dims) in &self.params {
            let Some(info) = entry.params.get(*p) else { continue };
            let name = |a: &AxisId| module.mesh.axes[a.0 as usize].name.clone();
            let met = dims.iter().enumerate().all(|(d, asked)| {
                let have: Vec<String> = info.sharding.axes(d).iter().map(name).collect();
                have == *asked
            });
            if !met {
                let asked: Vec<String> = dims.iter().map(|l| format!("[{}]", l.join(", "))).collect();
                out.push((info.name.clone(), asked.join(" ")));
            }
        }
        Ok(out)
    }
}

/// Splits the state that is asked for, as far as it can be computed with in parts.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn split(draft: &Draft, axis: AxisId, wish: &Wish) -> Result<Option<Done>> {
    let module = &draft.module;
    let n = module.mesh.size(axis);
    let problem = Problem::new(module)?;
    let g = module.graph(problem.entry);
    let atoms = problem.candidates_at(g, &wish.state, axis, n);
    let chosen = problem.conflicts(module, &atoms).greedy(0..atoms.len());
    if chosen.is_empty() {
        return Ok(None);
    }
    let split = Split { axis, atoms: chosen.into_iter().map(|i| atoms[i]).collect() };
    Done::by(draft, &problem, &split).map(Some)
}
