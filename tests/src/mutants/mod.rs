//! Mutants of real training steps: is the comparison with a reference able to see what goes wrong?
//!
//! A mutator finds its places in a graph by structure and makes of each a [`Mutant`], a step with one mistake. A
//! mutant runs in the interpreter on the fixture's own inputs, and its outputs are judged by what judges
//! `msc run --check`. What it does not notice must be nothing: equal to the program in f64, or less than rounding.

pub mod edit;
pub mod facts;
pub mod judge;
pub mod subject;
pub mod table;

mod attention;
mod clip;
mod generic;
mod gradient;
mod loops;
mod loss;
mod norm;
mod optimizer;
mod precision;
mod residual;
mod rope;
mod state;

use edit::Change;
use facts::Facts;
use msc_ir::module::GraphId;
use msc_passes::recognise::check::random::Random;
use subject::Subject;

/// A step with one mistake.
#[derive(Clone)]
pub struct Mutant {
    /// What kind of mistake.
    pub family: &'static str,
    /// Where, for a reader.
    pub site: String,
    /// The graph that changes.
    pub graph: GraphId,
    /// How.
    pub changes: Vec<Change>,
    /// Whether it changes roundings only, which a run in f64 does not show.
    pub rounds: bool,
}

impl Mutant {
    /// Whether the mistake may be small by nature: another rounding, an epsilon, one of many summands, or one that was
    /// made without knowing what it does, the mean of rows that have next to none. Any other must be seen in f32, however
    /// little it changes.
    pub fn is_small(&self) -> bool {
        let family = self.family;
        self.rounds
            || family.starts_with("any:")
            || family.split(' ').any(|word| word == "eps")
            || [clip::ONE_OF_MANY, norm::OTHER_COUNT].contains(&family)
    }
}

/// The mutants that one family of mutators has found.
pub struct Found<'a> {
    facts: &'a Facts<'a>,
    out: &'a mut Vec<Mutant>,
}

impl Found<'_> {
    /// Adds a mutant, unless it changes nothing.
    pub fn add(&mut self, family: &'static str, site: impl Into<String>, changes: Vec<Change>) {
        if !changes.is_empty() {
            let (site, graph) = (site.into(), self.facts.id);
            self.out.push(Mutant { family, site, graph, changes, rounds: false });
        }
    }

    /// Adds a mutant that rounds differently.
    pub fn rounding(&mut self, family: &'static str, site: impl Into<String>, changes: Vec<Change>) {
        let before = self.out.len();
        self.add(family, site, changes);
        self.out[before..].iter_mut().for_each(|m| m.rounds = true);
    }
}

/// A family: reads a graph's facts, adds what it finds.
pub type Mutator = fn(&Facts<'_>, &mut Found<'_>);

/// All families but the generic one.
const MUTATORS: &[Mutator] = &[
    optimizer::mutants,
    state::mutants,
    clip::mutants,
    gradient::mutants,
    loss::mutants,
    attention::mutants,
    rope::mutants,
    norm::mutants,
    residual::mutants,
    loops::mutants,
    precision::mutants,
];

/// Keeps `n` of `v`, in their order. The generator chooses the same ones everywhere.
pub(crate) fn choose<T>(random: &mut Random, v: &mut Vec<T>, n: usize) {
    while v.len() > n {
        let i = random.below(v.len());
        v.remove(i);
    }
}

/// The mutants of a subject: at most `per_family` of each family, and `generic` that know nothing of training.
pub fn mutants(s: &Subject, per_family: usize, generic: usize, seed: u64) -> Vec<Mutant> {
    let facts = Facts::all(s);
    let mut random = Random::new(seed);
    let all = found(&facts, MUTATORS);
    let mut out = some(all, per_family, &mut random);
    out.extend(generic::mutants(&facts, generic, &mut random));
    out
}

/// All mutants that mutators find.
pub(crate) fn found(facts: &[Facts<'_>], mutators: &[Mutator]) -> Vec<Mutant> {
    let mut all = Vec::new();
    for f in facts {
        for m in mutators {
            m(f, &mut Found { facts: f, out: &mut all });
        }
    }
    all
}

/// At most `per_family` of each family, families in the order in which they were found.
pub(crate) fn some(all: Vec<Mutant>, per_family: usize, random: &mut Random) -> Vec<Mutant> {
    let mut families: Vec<&'static str> = Vec::new();
    all.iter().for_each(|m| {
        if !families.contains(&m.family) {
            families.push(m.family);
        }
    });
    let mut out = Vec::new();
    for family in families {
        let mut of: Vec<Mutant> = all.iter().filter(|m| m.family == family).cloned().collect();
        choose(random, &mut of, per_family);
        out.append(&mut of);
    }
    out
}
