//! Trials: whether a named op computes what a part of the program computes, by numbers.
//!
//! Both are run in the interpreter on random inputs, at two sets of sizes (one where the other cannot be made) and with
//! two seeds each. In wide mode
//! they must agree as far as rounded literals let them; where narrow floats occur, they must also agree bit for
//! bit nearly everywhere in the working types, which they do only if every rounding is where the program has it.

use super::band::Band;
use super::indexed::{Indexed, Numbers, iotas_are_compared, recount, same_nans};
use super::program::Slice;
use crate::recognise::check::random::Random;
use crate::recognise::check::{SAME_ROUNDING, alike, difference, tolerance};
use msc_ir::factor::resize::resize_atoms;
use msc_ir::factor::solve::{AtomId, Atoms};
use msc_ir::interp::{self, Mode};
use msc_ir::{DType, Graph, Module, Tensor, TensorType};
use std::collections::BTreeMap;

/// Farthest edge of a mask that smaller sizes show.
const MAX_EDGE: i64 = 24;

/// Elements of the largest value beyond which sizes as they stand are not tried.
const LARGE: usize = 1 << 14;

/// Sizes that atoms are cut to, in turn, so that no two dimensions are mixed up unnoticed.
const SMALL: [[usize; 4]; 2] = [[8, 7, 6, 9], [3, 4, 5, 2]];

/// Draws per size where parameters are indices.
const INDEXED_SEEDS: u64 = 8;

/// Sizes of atoms.
pub type Sizes<'s> = &'s dyn Fn(AtomId) -> usize;

/// Builds a named op's side of a trial, for given sizes and parameter types.
pub type Build<'b> = &'b mut dyn FnMut(&mut Module, Sizes<'_>, &[TensorType]) -> Result<Graph, String>;

/// A trial of a slice against a named op.
pub struct Trial<'t> {
    /// The program's side. Its parameters are the cut.
    pub slice: &'t Slice,
    /// Its atoms.
    pub atoms: &'t Atoms,
    /// Where the named op's own masks change ([`Band::edges`]): they are the program's, wherever they lie.
    pub edges: &'t [i64],
    /// Seed of the inputs.
    pub seed: u64,
}

impl Trial<'_> {
    /// For each result of the slice whether the graph that `named` builds, for given sizes and parameter types,
    /// has the same result everywhere it was tried. `named` gives one result per result of the slice.
    ///
    /// # Errors
    /// In words, if nothing could be tried.
    pub fn run(&self, scratch: &mut Module, named: Build<'_>) -> Result<Vec<bool>, String> {
        self.run_indexed(scratch, &[], named)
    }

    /// The same where some parameters are indices: they are drawn inside and outside of what they count along, near
    /// every number that the slice compares them with.
    ///
    /// # Errors
    /// As [`Trial::run`].
    pub fn run_indexed(
        &self,
        scratch: &mut Module,
        indices: &[Indexed],
        named: Build<'_>,
    ) -> Result<Vec<bool>, String> {
        let graph = &self.slice.graph;
        let mut holds = vec![true; graph.results().len()];
        let mut tried = 0;
        let largest = graph.ops().flat_map(|(_, d)| &d.results).map(|&v| graph.ty(v).elements()).max();
        if largest.is_none_or(|n| n > LARGE) {
            self.expect_visible(indices)?;
        }
        let mut why = String::from("its sizes are too large");
        // The smallest first: what is wrong mostly shows there. The program's own sizes where they are small.
        for level in [2, 0, 1] {
            let sizes = match level {
                0 if largest.is_some_and(|n| n <= LARGE) => BTreeMap::new(),
                0 => continue,
                i => self.small(&SMALL[i - 1]),
            };
            let size = |a: AtomId| sizes.get(&a).copied().unwrap_or_else(|| self.atoms.size(a));
            let before = match resize_atoms(scratch, graph, self.atoms, &sizes) {
                Ok(g) => recount(scratch, g, indices, |a| (self.atoms.size(a), size(a))),
                Err(e) => {
                    why = e.to_string();
                    continue;
                }
            };
            let mut numbers = Numbers::of(scratch, &before, indices, &size);
            let types = before.param_types();
            let after = named(scratch, &size, &types)?;
            self.compare(scratch, [before, after], &mut numbers, level as u64, &mut holds)?;
            tried += 1;
            if tried == 2 || !holds.contains(&true) {
                break;
            }
        }
        if tried == 0 { Err(format!("it could not be tried: {why}")) } else { Ok(holds) }
    }

    /// Refuses slices in which something depends on indices beyond the sizes that are tried: it would not be seen.
    fn expect_visible(&self, indices: &[Indexed]) -> Result<(), String> {
        let cut =
            |&(v, d): &(msc_ir::ValueId, usize)| self.atoms.dim(v, d).iter().any(|a| !self.is_fixed(*a));
        if self.slice.indexed.iter().any(cut) && !iotas_are_compared(&self.slice.graph, indices) {
            return Err(
                "it depends on indices otherwise than by masks, which smaller sizes do not show".into()
            );
        }
        // The other way round, `i − j ≥ e` is `j − i < 1 − e`.
        let hidden = |e: &i64| {
            e.checked_abs().is_none_or(|e| e > MAX_EDGE)
                && ![Some(*e), 1i64.checked_sub(*e)].into_iter().flatten().any(|e| self.edges.contains(&e))
        };
        match self.slice.bands.iter().flat_map(Band::edges).find(hidden) {
            Some(e) => Err(format!("a mask changes at a distance of {e}, which smaller sizes do not show")),
            None => Ok(()),
        }
    }

    /// Whether an atom keeps its size in every trial.
    fn is_fixed(&self, a: AtomId) -> bool {
        self.atoms.is_whole(a) || self.atoms.is_piece(a) || self.slice.kept.contains(&a)
    }

    /// The least size of atoms that are cut: masks must show their edges.
    fn floor(&self) -> usize {
        let edges = self.slice.bands.iter().flat_map(Band::edges).chain(self.edges.iter().copied());
        let near = edges.filter_map(i64::checked_abs).filter(|&e| e <= MAX_EDGE).max();
        near.map_or(2, |e| e as usize + 2)
    }

    fn small(&self, sizes: &[usize; 4]) -> BTreeMap<AtomId, usize> {
        let floor = self.floor();
        let mut out = BTreeMap::new();
        for a in self.atoms.all() {
            let n = self.atoms.size(a);
            if !self.is_fixed(a) && n > 1 {
                let m = match self.slice.few.contains(&a) {
                    // Two and three in turn, the other way round at the other sizes.
                    true => 2 + (out.len() + sizes[0] % 2) % 2,
                    false => sizes[out.len() % sizes.len()],
                };
                let m = m.max(floor);
                out.insert(a, n.min(m));
            }
        }
        out
    }

    fn compare(
        &self,
        scratch: &mut Module,
        [before, after]: [Graph; 2],
        numbers: &mut Numbers,
        level: u64,
        holds: &mut [bool],
    ) -> Result<(), String> {
        let types = before.param_types();
        let narrow = |t: &TensorType| matches!(t.dtype, DType::BF16 | DType::F16);
        let rounds = types.iter().chain(&before.result_types()).any(narrow);
        let (before, after) = (scratch.add_graph(before), scratch.add_graph(after));
        // Few rows have few indices.
        let seeds = if numbers.is_empty() || level == 0 { 2 } else { INDEXED_SEEDS };
        for seed in 1..=seeds {
            let amplitude = if seed % 2 == 1 { 0.5 } else { 1.0 };
            let mut rng = Random::new(self.seed ^ (level << 8) ^ seed);
            let one = |(i, t): (usize, &TensorType)| {
                numbers.draw(i, t, &mut rng).unwrap_or_else(|| random(t, amplitude, &mut rng))
            };
            let inputs: Vec<Tensor> = types.iter().enumerate().map(one).collect();
            let both = |mode| -> Result<_, String> {
                let run = |g| interp::run(scratch, g, &inputs, mode).map_err(|e| e.to_string());
                Ok((run(before)?, run(after)?))
            };
            let (a, b) = both(Mode::Wide)?;
            for (i, (x, y)) in a.iter().zip(&b).enumerate() {
                // Literals are held in f32. Where nothing is a number, nothing was compared.
                let compared = x.data.to_f64s().iter().any(|v| v.is_finite());
                holds[i] &= compared && relative(x, y) <= tolerance(DType::F32, Mode::Wide);
                holds[i] &= numbers.is_empty() || same_nans(x, y);
            }
            if rounds {
                let (a, b) = both(Mode::Spec)?;
                for (i, (x, y)) in a.iter().zip(&b).enumerate() {
                    holds[i] &= alike(x, y) >= SAME_ROUNDING;
                }
            }
            if !holds.contains(&true) {
                break;
            }
        }
        Ok(())
    }
}

/// A random tensor: floats in `[−2a, 2a)`, booleans.
fn random(ty: &TensorType, amplitude: f64, rng: &mut Random) -> Tensor {
    let float = ty.dtype.is_float();
    let one = |rng: &mut Random| if float { rng.small() * amplitude } else { f64::from(rng.chance(70)) };
    let data: Vec<f64> = (0..ty.elements()).map(|_| one(rng)).collect();
    Tensor::from_f64s(ty, &data)
}

/// The largest difference, relative to the largest element: results that are small all over must agree as well.
fn relative(a: &Tensor, b: &Tensor) -> f64 {
    let scale = a.data.to_f64s().into_iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    difference(a, b) / scale.clamp(1e-6, 1.0)
}
