//! Near misses: steps that are nearly what recognition looks for. Each goes through recognition, and what comes out
//! must compute what went in; where the edit changed an operation's meaning, it must not be reported as before.
//!
//! Families are the mutants' ([`crate::mutants`]) that touch a named operation, and some of their own: [`norm`],
//! [`scores`], [`activation`], [`optimizer`], [`experts`].

mod activation;
pub mod covers;
mod experts;
pub mod judge;
mod norm;
mod optimizer;
mod scores;
pub mod table;

use crate::mutants::facts::Facts;
use crate::mutants::subject::Subject;
use crate::mutants::{Mutant, Mutator, found, mutants, some};
use msc_passes::recognise::check::random::Random;

/// What an edit does to the operation that it touches.
#[derive(Clone, PartialEq, Debug)]
pub enum Must {
    /// It changes its meaning: where it lies inside one, fewer are found, or with other attributes.
    Change(&'static [&'static str]),
    /// If it is found with a window, the window is this wide.
    Window(&'static str, i64),
    /// It changes operands or what is around it: numbers alone tell.
    Agree,
}

/// A near miss.
#[derive(Clone)]
pub struct NearMiss {
    /// The step.
    pub mutant: Mutant,
    /// What must come of it.
    pub must: Must,
}

const MUTATORS: &[Mutator] = &[norm::near, scores::near, activation::near, optimizer::near, experts::near];

/// What edits of a family do.
fn must(m: &Mutant) -> Must {
    const NORMS: &[&str] = &["rms_norm", "layer_norm"];
    const ATTENTION: &[&str] = &["attention"];
    if let Some((_, width)) = scores::WINDOWS.iter().find(|w| w.0 == m.family) {
        return Must::Window("attention", *width);
    }
    match m.family {
        "eps times 100" | "eps missing" | "eps outside the root" | "mean over n - 1" | "sum for mean" => {
            Must::Change(NORMS)
        }
        norm::ABSOLUTE | norm::OTHER_AXIS | norm::NOT_CENTRED => Must::Change(NORMS),
        "mask off by one" | "mask the other way" | "no mask" | "scale missing" | "scale squared" => {
            Must::Change(ATTENTION)
        }
        "softmax not normalised" | "maximum added, not subtracted" | scores::SHIFTED => {
            Must::Change(ATTENTION)
        }
        activation::TANH | activation::ERF => Must::Change(&["gelu", "geglu"]),
        activation::FACTOR | activation::BOUND => Must::Change(&["swish", "swiglu"]),
        activation::THRESHOLD => Must::Change(&["relu", "reglu", "squared_relu"]),
        optimizer::INSIDE | optimizer::LARGER | "one moment's rate" | "moment without (1-beta)" => {
            Must::Change(&["adamw"])
        }
        "gain a tenth too large" => Must::Change(&["adamw"]),
        _ => Must::Agree,
    }
}

/// Families of the mutants that touch no named operation, or the same as another.
const ELSEWHERE: &[&str] = &[
    "microbatch lost",
    "no clip",
    "one gradient not clipped",
    "state unchanged",
    "moments unchanged",
    "step count unchanged",
    "two results swapped",
    "norm of one rank of four",
    "norm without its root",
    "norm without one tensor",
    "all products of TF32 operands",
    "all products of bf16 operands",
    "loss over N±1",
    "gradient over N±1",
];

/// The near misses of a subject: at most `per_family` of each family, and `generic` at any place.
pub fn near_misses(s: &Subject, per_family: usize, generic: usize, seed: u64) -> Vec<NearMiss> {
    let facts = Facts::all(s);
    let mut random = Random::new(seed);
    let mut all = some(found(&facts, MUTATORS), per_family, &mut random);
    all.extend(mutants(s, per_family, generic, seed));
    all.retain(|m| !ELSEWHERE.contains(&m.family));
    all.into_iter().map(|mutant| NearMiss { must: must(&mutant), mutant }).collect()
}
