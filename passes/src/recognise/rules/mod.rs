//! The rules of recognition, one family a file. `docs/add-a-rule.md` says how to add one.

pub mod activation;
pub mod attention;
pub mod balance;
pub mod capacity;
pub mod clip;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod experts;
pub mod layer_norm;
pub mod layout;
pub mod multiples;
mod norm;
pub mod normal_form;
pub mod optimizer;
pub mod ragged;
pub mod residual;
pub mod rms_norm;
pub mod rope;
pub mod route;
pub mod softmax;
pub mod sorted;
pub mod squares;
pub mod update;
pub mod z_loss;

use super::engine::region::Region;
use super::engine::run::Run;
use super::engine::term::Graph;
use super::engine::{Applied, Builder, Match, Rule, WhyNot};
use egg::Id;

/// Rules that bring spelling to a common form; each is about one op and its operands.
pub fn normal_form() -> Vec<Rule> {
    let mut all = normal_form::rules();
    all.extend(multiples::rules());
    all.extend(layout::rules());
    all
}

/// Rules that introduce named operations.
pub fn named() -> Vec<Rule> {
    let mut all = layer_norm::rules();
    all.extend(rms_norm::rules());
    all.extend(activation::rules());
    all.extend(optimizer::rules());
    all
}

/// Looks for the operations that are found by their shape and decided by numbers.
pub(crate) fn probes(graph: &mut Graph, region: &Region, run: &mut Run) {
    let mut taken = attention::probe(graph, region, run);
    cross_entropy::probe(graph, region, &mut taken, run);
    softmax::probe(graph, region, &taken, run);
    rope::probe(graph, region, run);
    embedding::probe(graph, region, run);
    route::probe(graph, region, run);
    balance::probe(graph, region, run);
    capacity::probe(graph, region, run);
    sorted::probe(graph, region, run);
    ragged::probe(graph, region, run);
    experts::probe(graph, region, run);
    z_loss::probe(graph, region, run);
    squares::probe(graph, region, run);
    clip::probe(graph, region, run);
    dropout::probe(graph, region, run);
    update::probe(graph, region, run);
    residual::probe(graph, region, run);
}

/// The root is `new`.
pub(crate) fn root_is(b: &Builder<'_>, m: &Match, new: Id) -> Result<Applied, WhyNot> {
    Ok(Applied { unions: vec![(b.var(m, "root")?, new)], op: None })
}

/// The root is the variable `?x`.
pub(crate) fn root_is_x(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    root_is(b, m, x)
}

/// A precondition that failed.
pub(crate) fn refuse(why: impl Into<String>) -> WhyNot {
    WhyNot::Precondition(why.into())
}
