//! Replaying reasons: the slice of the program between a named op's inputs and outputs, on random inputs, against the
//! op's definition.
//!
//! Nothing of the engine takes part: the slice is cut out of the original graphs by their own operand edges, and both
//! sides run in the interpreter. What is taken on trust is the cut itself, and the masks that a layer is handed from
//! outside as they were read ([`crate::recognise::probe::band`]); a run of the whole step shows the latter.

mod data;
mod program;
mod slice;
mod small;

use super::check::random::Random;
use super::check::{SAME_ROUNDING, alike, difference, tolerance};
use super::engine::run::Reason;
use super::report::RegionReport;
use crate::error::Result;
use msc_ir::interp::{self, Mode};
use msc_ir::{DType, GraphId, Module, Tensor, TensorType};
use program::Program;
use slice::Slice;

/// A `real` equality may round elsewhere, if that is no worse: how far from its value in f64 an output may be, in terms
/// of how far the program's is.
pub const WORSE_ROUNDING: f64 = 2.0;

/// The outcome for one output of a named op.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// The output's name in the rule.
    pub name: &'static str,
    /// The largest difference in wide mode over all draws, relative to the largest element; infinite if no draw gave
    /// a number.
    pub difference: f64,
    /// Where narrow floats occur.
    pub rounding: Option<Rounding>,
}

/// How an output rounds in the working types.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rounding {
    /// The share of elements that are the program's, bit for bit.
    pub same: f64,
    /// How far it is from its value in f64, in terms of how far the program's is.
    pub worse: f64,
}

impl Compared {
    /// Whether the op computes this output as the program does, but for literals that were rounded to f32, and rounds
    /// no worse.
    pub fn agrees(&self) -> bool {
        self.difference <= tolerance(DType::F32, Mode::Wide)
            && self.rounding.is_none_or(|r| r.same >= SAME_ROUNDING || r.worse <= WORSE_ROUNDING)
    }
}

/// Replays the reasons of one region.
pub struct Replayer<'r> {
    module: Module,
    report: &'r RegionReport,
    program: Program<'r>,
}

/// Both sides of a replay.
struct Sides {
    program: GraphId,
    named: GraphId,
    inputs: Vec<TensorType>,
    narrow: bool,
}

impl<'r> Replayer<'r> {
    /// A replayer of a region. `recognised` is what the module became, and holds the definitions of named ops.
    pub fn new(recognised: &Module, report: &'r RegionReport) -> Replayer<'r> {
        // Recognition only adds graphs and constants, so what the old graphs refer to is in the new module.
        Replayer { module: recognised.clone(), report, program: Program::new(report) }
    }

    fn sides(&mut self, reason: &Reason) -> Result<Sides> {
        let slice = Slice::new(&self.program, self.report, reason)?;
        let (program, named) = slice.graphs(&mut self.module)?;
        let graph = self.module.graph(program);
        let (inputs, results) = (graph.param_types(), graph.result_types());
        let narrow = inputs.iter().chain(&results).any(data::is_narrow);
        Ok(Sides { program, named, inputs, narrow })
    }

    fn run(&self, s: &Sides, inputs: &[Tensor], mode: Mode) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let run = |g| interp::run(&self.module, g, inputs, mode);
        Ok((run(s.program)?, run(s.named)?))
    }

    /// The largest difference of an output in wide mode on the inputs that the reason's own seeds give, relative to
    /// its largest element (at least 1). A `real` equality shows rounded literals only.
    ///
    /// # Errors
    /// If an input is no value of the program, and not made of such values.
    pub fn recorded(&mut self, reason: &Reason) -> Result<f64> {
        let sides = self.sides(reason)?;
        let mut worst = 0.0f64;
        for &seed in &reason.seeds {
            let inputs = data::inputs(&sides.inputs, 0, &mut Random::new(seed));
            let (before, after) = self.run(&sides, &inputs, Mode::Wide)?;
            worst = before.iter().zip(&after).map(|(a, b)| difference(a, b)).fold(worst, f64::max);
        }
        Ok(worst)
    }

    /// Compares each output on fresh inputs of several sizes, which depend on `seed` and the reason's own seeds.
    ///
    /// # Errors
    /// As [`Replayer::recorded`].
    pub fn fresh(&mut self, reason: &Reason, seed: u64) -> Result<Vec<Compared>> {
        let sides = self.sides(reason)?;
        let mut rng = Random::new(reason.seeds[0] ^ Random::new(seed).bits());
        let names: Vec<&'static str> =
            reason.outputs.iter().filter(|o| !o.values.is_empty()).map(|o| o.name).collect();
        let mut worst: Vec<Option<f64>> = vec![None; names.len()];
        // Where no draw gives a number, both sides have to agree in that.
        let mut same = vec![true; names.len()];
        let mut rounding: Vec<Option<Rounding>> = vec![None; names.len()];
        for draw in 0..data::DRAWS {
            let inputs = data::inputs(&sides.inputs, draw, &mut rng);
            let (before, after) = self.run(&sides, &inputs, Mode::Wide)?;
            for (i, (a, b)) in before.iter().zip(&after).enumerate() {
                match data::apart(a, b) {
                    Some(d) => worst[i] = Some(worst[i].map_or(d, |w| w.max(d))),
                    None => same[i] &= data::same_no_numbers(a, b),
                }
            }
            // Tiny numbers are no numbers in narrow types.
            if sides.narrow && draw == 0 {
                let (own, named) = self.run(&sides, &inputs, Mode::Spec)?;
                let all = own.iter().zip(&named).zip(&before);
                rounding = all
                    .map(|((a, b), exact)| {
                        Some(Rounding { same: alike(a, b), worse: data::worse(b, a, exact) })
                    })
                    .collect();
            }
        }
        let none = |same: bool| if same { 0.0 } else { f64::INFINITY };
        let worst = worst.into_iter().zip(same).map(|(w, same)| w.unwrap_or(none(same)));
        let all = names.into_iter().zip(worst).zip(rounding);
        Ok(all.map(|((name, difference), rounding)| Compared { name, difference, rounding }).collect())
    }
}

/// Replays one reason: see [`Replayer::recorded`].
///
/// # Errors
/// As [`Replayer::recorded`].
pub fn replay(recognised: &Module, report: &RegionReport, reason: &Reason) -> Result<f64> {
    Replayer::new(recognised, report).recorded(reason)
}
