//! What a step's inputs are for, read off the program.
//!
//! Exporters name inputs as they like, or not at all; what an input is used for is in the graph. Token ids index a
//! table of weights, labels index or select among classes, weights meet activations in matrix products, and the
//! optimizer's state meets gradients element by element only. Names decide nothing that the graph shows; they are
//! asked last, for biases and for momenta that enter matrix products (see [`names`]).
//!
//! Before: a simplified module. The module is not changed.

mod flops;
pub mod flow;
mod index;
mod names;
mod values;

pub use flops::matmul_flops;

use flow::{Flow, Node};
use index::IndexUse;
use msc_ir::ops::fused::Scalar;
use msc_ir::{DType, Entry, Module, Result};
use msc_runtime::plan::{InputRole, Role, StepInfo};

/// What is known of the default entry of a module.
///
/// # Errors
/// If the module has no entry.
pub fn step_info(module: &Module) -> Result<StepInfo> {
    let entry = module.entry()?;
    let flow = Flow::new(module, entry.graph);
    let mut finder = Finder::new(&flow, entry);
    finder.tokens();
    finder.values();
    finder.copies();
    names::ask(&flow, entry, &mut finder.roles);
    let (vocabulary, shifts_labels) = (finder.vocabulary, finder.shifts_labels);
    let undecided = || InputRole { role: Role::Given, why: "use not recognised".into() };
    let inputs = finder.roles.into_iter().map(|r| r.unwrap_or_else(undecided)).collect();
    let matmul_flops = matmul_flops(module, entry.graph);
    Ok(StepInfo { matmul_flops, vocabulary, shifts_labels, inputs })
}

fn filled(value: f64) -> Role {
    Role::Filled(Scalar::new(value))
}

/// The roles found so far.
struct Finder<'a, 'm> {
    flow: &'a Flow<'m>,
    entry: &'a Entry,
    facts: values::Facts,
    roles: Vec<Option<InputRole>>,
    vocabulary: u64,
    shifts_labels: bool,
}

impl<'a, 'm> Finder<'a, 'm> {
    fn new(flow: &'a Flow<'m>, entry: &'a Entry) -> Finder<'a, 'm> {
        let roles = vec![None; flow.params.len()];
        let facts = values::Facts::new(flow);
        Finder { flow, entry, facts, roles, vocabulary: 0, shifts_labels: false }
    }

    fn set(&mut self, n: usize, role: Role, why: impl Into<String>) {
        if self.roles[n].is_none() {
            self.roles[n] = Some(InputRole { role, why: why.into() });
        }
    }

    /// The result that replaces a parameter.
    fn successor(&self, n: usize) -> Option<Node> {
        let alias = self.entry.params.get(n)?.alias?;
        self.flow.results.get(alias as usize).copied()
    }

    /// Ids, labels, positions, masks: integers that are not carried over.
    fn tokens(&mut self) {
        let integer = |n: &usize| {
            let ty = self.flow.types[self.flow.params[*n] as usize];
            !ty.dtype.is_float() && ty.rank() > 0 && self.successor(*n).is_none()
        };
        let inputs: Vec<usize> = (0..self.flow.params.len()).filter(integer).collect();
        let uses: Vec<(usize, IndexUse)> =
            inputs.iter().map(|&n| (n, index::follow(self.flow, &self.facts, self.flow.params[n]))).collect();
        let classes = uses.iter().filter(|(_, u)| u.table.is_none()).find_map(|(_, u)| u.classes);
        // Of several tables the one with as many rows as there are classes, else the largest.
        let rows = |u: &IndexUse| u.table.map(|(rows, _)| (Some(rows) == classes, rows));
        let ids = uses.iter().rev().max_by_key(|(_, u)| rows(u)).filter(|(_, u)| u.table.is_some());
        let Some((ids, found)) = ids else {
            self.leftover_integers(&uses, None);
            return;
        };
        if let Some((rows, param)) = found.table {
            self.vocabulary = rows as u64;
            let name = self.entry.params.get(param).map_or("", |p| &p.name);
            self.set(*ids, Role::Ids, format!("indexes the {rows} rows of {name}"));
        }
        if let Some((n, u)) = uses.iter().find(|(n, u)| n != ids && u.table.is_none() && u.classes.is_some())
        {
            let shifted = if u.shifted { ", shifted by the step itself" } else { "" };
            let classes = u.classes.unwrap_or(0);
            self.set(*n, Role::Labels, format!("selects among {classes} classes{shifted}"));
            self.shifts_labels = u.shifted;
        }
        let ids = *ids;
        self.leftover_integers(&uses, Some(ids));
        // Float inputs of the shape of the ids weigh tokens.
        let shape = self.flow.types[self.flow.params[ids] as usize].shape.clone();
        for n in 0..self.flow.params.len() {
            let ty = self.flow.types[self.flow.params[n] as usize];
            if ty.dtype.is_float() && ty.shape == shape && self.entry.params[n].alias.is_none() {
                self.set(n, Role::Mask, "a number for each token");
            }
        }
    }

    fn leftover_integers(&mut self, uses: &[(usize, IndexUse)], ids: Option<usize>) {
        let shape = ids.map(|n| self.flow.types[self.flow.params[n] as usize].shape.clone());
        for (n, u) in uses {
            let ty = self.flow.types[self.flow.params[*n] as usize];
            let alike = shape.as_ref() == Some(&ty.shape);
            let steps = ty.shape.last().copied().unwrap_or(0);
            if self.facts.unused(self.flow, self.flow.params[*n]) {
                self.set(*n, filled(0.0), "not used");
            } else if u.angles && shape.is_some() {
                self.set(*n, Role::Positions, "becomes an angle or indexes a table of numbers");
            } else if let Some((rows, _)) = u.table.filter(|_| shape.is_some()) {
                if alike && rows as u64 == self.vocabulary && u.table == uses_table(uses, ids) {
                    self.set(*n, Role::Given, "indexes the table of the token ids too");
                } else if rows >= steps {
                    self.set(*n, Role::Positions, format!("indexes a table of {rows} rows"));
                } else {
                    self.set(*n, filled(0.0), format!("indexes a table of {rows} rows"));
                }
            } else if u.compared && (alike || ty.dtype == DType::I1) {
                self.set(*n, Role::Mask, "is compared only");
            } else if u.as_number && alike {
                self.set(*n, Role::Mask, "weighs tokens");
            }
        }
    }

    /// Floats, keys, counters.
    fn values(&mut self) {
        for n in 0..self.flow.params.len() {
            if self.roles[n].is_some() {
                continue;
            }
            let (role, why) = self.value(n);
            self.set(n, role, why);
        }
    }

    fn value(&self, n: usize) -> (Role, String) {
        let (f, p) = (self.flow, self.flow.params[n]);
        let ty = f.types[p as usize];
        let next = self.successor(n);
        let say = |role: Role, why: &str| (role, why.to_string());
        if next.is_none() && self.facts.unused(f, p) {
            return say(filled(0.0), "not used");
        }
        if self.facts.counts(f, p) {
            return say(filled(0.0), "counter");
        }
        if !ty.dtype.is_float() {
            let pair = ty.dtype == DType::U32 && ty.shape.last() == Some(&2);
            let named = self.entry.params[n].name.to_lowercase().contains("count");
            return match next {
                _ if pair && !named => say(Role::Key, "key of random numbers"),
                Some(_) => say(filled(0.0), "integer state"),
                None => say(Role::Given, "integers that only you know"),
            };
        }
        if ty.rank() == 0 {
            return match next {
                Some(_) if self.facts.mixes(p) => say(filled(1.0), "scalar that enters the gradients"),
                Some(_) => say(filled(0.0), "scalar state of the optimizer"),
                None => say(Role::Given, "run-time scalar"),
            };
        }
        if ty.rank() == 1 && values::becomes_angle(f, p) {
            return say(Role::Frequencies, "becomes angles of positions");
        }
        if !self.facts.mixes(p) {
            return match next.is_some() || self.facts.reaches_alike(f, p) {
                true => say(filled(0.0), "state of the optimizer"),
                false => say(Role::Given, "numbers that only you know"),
            };
        }
        match values::vector_use(f, &self.facts, p) {
            Some(values::VectorUse::Scale { offset: 0.0 }) => say(filled(1.0), "scale of a norm"),
            Some(values::VectorUse::Scale { offset }) => {
                (filled(1.0 - offset), format!("scale of a norm, to which the step adds {offset}"))
            }
            Some(values::VectorUse::Bias) => say(filled(0.0), "bias"),
            None if next.is_some() || self.facts.is_operand(f, p) => say(Role::Weight, "weight"),
            None => say(Role::Given, "numbers that only you know"),
        }
    }

    /// Pairs of which one is carried over as a conversion of the other: copies in another type, and the masters
    /// that only the optimizer sees.
    fn copies(&mut self) {
        for copy in 0..self.flow.params.len() {
            let Some(result) = self.successor(copy) else { continue };
            let Some(whole) = self.facts.converted_from(self.flow, result) else { continue };
            let master = (0..self.flow.params.len()).find(|&m| m != copy && self.successor(m) == Some(whole));
            let Some(master) = master else { continue };
            let Some(own) = self.roles[copy].clone() else { continue };
            let name = &self.entry.params[master].name;
            self.roles[copy] =
                Some(InputRole { role: Role::Copy(master as u32), why: format!("copy of {name}") });
            if !self.facts.mixes(self.flow.params[master]) {
                self.roles[master] = Some(own);
            }
        }
    }
}

/// The table of the token ids.
fn uses_table(uses: &[(usize, IndexUse)], ids: Option<usize>) -> Option<(usize, usize)> {
    uses.iter().find(|(n, _)| Some(*n) == ids).and_then(|(_, u)| u.table)
}
