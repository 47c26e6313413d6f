//! Inputs of the whole step: what the user gives, and random values suited to the roles of the rest.
//!
//! `msc run --init` begins as training does: scales 1, biases and moments 0. That hides what multiplies by a scale or
//! adds a moment, so here they are a little off: scales 1 + δ, moments small and positive, counters at 3.

use crate::error::Result;
use crate::examine::Examined;
use crate::run::{RunOptions, held};
use msc_ir::{DType, Tensor, TensorType};
use msc_runtime::data::init::{self, Source};
use msc_runtime::plan::Role;

/// The inputs with where they come from.
#[derive(Clone, Debug)]
pub struct Made {
    /// In the model's order.
    pub tensors: Vec<Tensor>,
    /// How many the user gave.
    pub given: usize,
    /// Seed of the others.
    pub seed: u64,
}

impl Made {
    /// In words.
    pub fn describe(&self) -> String {
        let random = self.tensors.len() - self.given;
        match (self.given, random) {
            (given, 0) => format!("{given} given inputs"),
            (0, random) => format!("{random} random inputs (--seed {})", self.seed),
            (given, random) => {
                format!("{given} given inputs and {random} random ones (--seed {})", self.seed)
            }
        }
    }
}

/// A counter that has counted a little.
const COUNTED: f64 = 3.0;

/// How far scales, biases and moments are from where training begins.
const OFF: f64 = 0.02;

/// All inputs of a step.
///
/// # Errors
/// Bad files, names and values.
pub fn make(e: &Examined, o: &RunOptions, seed: u64) -> Result<Made> {
    let entry = e.before.entry()?;
    let types = e.before.graph(entry.graph).param_types();
    let signature: Vec<(String, TensorType)> =
        entry.params.iter().map(|p| p.name.clone()).zip(types).collect();
    let mut slots = held::given(o, &e.step, &signature)?;
    let given = slots.iter().flatten().count();
    let mut copies = Vec::new();
    for (n, (name, ty)) in signature.iter().enumerate() {
        if slots[n].is_none() {
            match e.step.role(n) {
                Role::Copy(of) => copies.push((n, of as usize)),
                role => slots[n] = Some(random(e, role, ty, Source::new(seed, name))),
            }
        }
    }
    // A copy of a copy is a copy of what that copies.
    for (n, mut of) in copies {
        for _ in 0..signature.len() {
            match e.step.role(of) {
                Role::Copy(next) if slots.get(of).is_some_and(Option::is_none) => of = next as usize,
                _ => break,
            }
        }
        let (name, ty) = &signature[n];
        let copy = slots.get(of).and_then(|s| s.as_ref()).filter(|t| t.shape == ty.shape);
        let own = || init::normal(ty, Source::new(seed, name), init::DEVIATION);
        slots[n] = Some(copy.map_or_else(own, |t| t.converted(ty.dtype)));
    }
    let tensors = slots.into_iter().flatten().collect();
    Ok(Made { tensors, given, seed })
}

fn random(e: &Examined, role: Role, ty: &TensorType, source: Source) -> Tensor {
    let n = ty.elements();
    let each = |f: &dyn Fn(u64) -> f64| -> Tensor {
        let values: Vec<f64> = (0..n as u64).map(f).collect();
        Tensor::from_f64s(ty, &values)
    };
    let below = |limit: u64| each(&|i| (source.bits(i) % limit.max(1)) as f64);
    let float = ty.dtype.is_float();
    match role {
        Role::Ids | Role::Labels => below(e.step.vocabulary.max(2)),
        Role::Positions => {
            let last = ty.shape.last().copied().unwrap_or(1).max(1) as u64;
            each(&|i| (i % last) as f64)
        }
        Role::Mask => Tensor::splat(ty, 1.0),
        Role::Weight | Role::Copy(_) => init::normal(ty, source, init::DEVIATION),
        Role::Frequencies => init::frequencies(ty, init::ROTARY_BASE),
        Role::Key => init::key(ty, source),
        Role::Filled(x) if !float => Tensor::splat(ty, if x.get() == 0.0 { COUNTED } else { x.get() }),
        Role::Filled(x) if ty.rank() == 0 => Tensor::splat(ty, x.get()),
        // Second moments are not negative.
        Role::Filled(x) => each(&|i| x.get() + OFF * source.normal(i).abs()),
        Role::Given if ty.dtype == DType::I1 => below(2),
        Role::Given if !float => below(if ty.rank() == 0 { 4 } else { e.step.vocabulary.max(2) }),
        // A rate or a threshold.
        Role::Given if ty.rank() == 0 => each(&|i| 1e-3 * (1.0 + source.normal(i).abs())),
        Role::Given => init::normal(ty, source, 1.0),
    }
}
