//! Why an operation was not found: what people ask after recognition. [`near`] is called by an observer of
//! [`super::recognise_observed`], when there is a question.

use super::engine::partial::{Partial, partial};
use super::engine::region::{At, Region};
use super::engine::rule::Rule;
use super::engine::run::Run;
use super::engine::term::Graph;
use super::probe::program::Program;
use super::rules;
use msc_ir::ops::unary::UnaryKind;
use std::collections::BTreeSet;

/// The named operations that recognition looks for.
pub const OPERATIONS: &[&str] = &[
    "adamw",
    "attention",
    "attention_grad",
    "clip",
    "cross_entropy",
    "cross_entropy_grad",
    "dropout",
    "embedding",
    "embedding_grad",
    "geglu",
    "geglu_grad",
    "gelu",
    "gelu_grad",
    super::accumulation::NAME,
    "grouped_matmul",
    "grouped_matmul_grad",
    "layer_norm",
    "layer_norm_grad",
    "lion",
    "moe_balance",
    "moe_balance_grad",
    "moe_combine",
    "moe_combine_grad",
    "moe_dispatch",
    "moe_dispatch_grad",
    "moe_load",
    "moe_permute",
    "moe_permute_grad",
    "moe_route",
    "moe_route_grad",
    "moe_sort",
    "moe_unpermute",
    "moe_unpermute_grad",
    "moe_z_loss",
    "moe_z_loss_grad",
    "reglu",
    "reglu_grad",
    "relu",
    "relu_grad",
    "rms_norm",
    "rms_norm_grad",
    "rope",
    "rope_grad",
    "sgd",
    "silu",
    "silu_grad",
    "softmax",
    "softmax_grad",
    "squared_reglu",
    "squared_reglu_grad",
    "squared_relu",
    "squared_relu_grad",
    "sum_of_squares",
    "swiglu",
    "swiglu_grad",
    "swish",
    "swish_grad",
];

/// The operation that a rule or probe introduces; `None` for rules of spelling. A rotation and its gradient are one
/// probe's.
pub fn operation_of(rule: &str) -> Option<&'static str> {
    let rule = if rule.starts_with("adam") { "adamw" } else { rule };
    let gradient = rule.contains("-grad");
    let fits = |op: &&&str| {
        let base = op.strip_suffix("_grad");
        let name = base.unwrap_or(op).replace('_', "-");
        let rest = rule.strip_prefix(name.as_str());
        base.is_some() == gradient && rest.is_some_and(|r| r.is_empty() || r.starts_with('-'))
    };
    OPERATIONS.iter().filter(fits).max_by_key(|op| op.len()).copied()
}

/// How it is decided that an operation is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// By a pattern.
    Pattern,
    /// By numbers: the part of the program and the operation were run on random inputs.
    Tried,
    /// By reading all of it exactly, op by op.
    Read,
}

/// How a rule or probe decides.
pub fn decided(rule: &str) -> Decided {
    const READ: &[&str] = &[
        "dropout",
        "embedding",
        "gradient-accumulation",
        "grouped-matmul",
        "lion",
        "moe-permute",
        "moe-route-apart",
        "moe-sort",
        "sgd",
        "sum-of-squares",
    ];
    const TRIED: &[&str] = &[
        "attention",
        "clip",
        "cross-entropy",
        "moe-balance",
        "moe-combine",
        "moe-dispatch",
        "moe-load",
        "moe-permute-grad",
        "moe-route",
        "moe-unpermute",
        "moe-z-loss",
        "rope",
        "softmax",
    ];
    let longest = |names: &[&'static str]| {
        let fits = |n: &&&str| rule.strip_prefix(**n).is_some_and(|r| r.is_empty() || r.starts_with('-'));
        names.iter().filter(fits).map(|n| n.len()).max()
    };
    match (longest(READ), longest(TRIED)) {
        (None, None) => Decided::Pattern,
        (read, tried) if read > tried => Decided::Read,
        _ => Decided::Tried,
    }
}

/// Whether refusals of a rule concern an operation.
pub fn concerns(rule: &str, operation: &str) -> bool {
    operation_of(rule) == Some(operation) || rule == "rope" && operation == "rope_grad"
}

/// What comes near an operation in one e-graph.
#[derive(Clone, Debug, Default)]
pub struct Near {
    /// Places where part of a rule matches.
    pub partial: Vec<Partial>,
    /// Places that a probe does not even try, with the reason.
    pub unlike: Vec<(At, &'static str)>,
}

/// What comes near an operation in an e-graph on which recognition has run.
pub fn near(operation: &str, graph: &Graph, region: &Region, run: &Run) -> Near {
    let rules: Vec<Rule> =
        rules::named().into_iter().filter(|r| operation_of(r.name) == Some(operation)).collect();
    let partial = if rules.is_empty() { Vec::new() } else { partial(graph, region, &rules) };
    let mut unlike = Vec::new();
    if operation == "attention" {
        let program = Program::new(graph, region);
        // Softmaxes that are something else's are no near misses.
        let taken: BTreeSet<At> = run.refusals.iter().filter_map(|r| r.at).collect();
        for exp in 0..program.values.len() {
            let at = program.values[exp].at;
            if program.is_unary(exp, UnaryKind::Exponential)
                && !taken.contains(&at)
                && let Some(why) = rules::attention::find::unlike(&program, exp)
            {
                unlike.push((at, why));
            }
        }
    }
    Near { partial, unlike }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rule that introduces an operation belongs to one that can be asked for.
    #[test]
    fn rules_have_operations() {
        // What is found on the way to one.
        const ON_THE_WAY: [&str; 1] = ["variance-is-not-negative"];
        for r in rules::named().into_iter().filter(|r| !ON_THE_WAY.contains(&r.name)) {
            assert!(operation_of(r.name).is_some(), "{}: add its operation to OPERATIONS", r.name);
        }
        for r in rules::normal_form() {
            assert_eq!(operation_of(r.name), None, "{}", r.name);
        }
        for (rule, operation) in [
            ("rms-norm-grad-narrow-split", "rms_norm_grad"),
            ("gelu-erf", "gelu"),
            ("geglu-tanh-grad", "geglu_grad"),
            ("adam-folded", "adamw"),
            ("attention-grad", "attention_grad"),
            ("rope", "rope"),
        ] {
            assert_eq!(operation_of(rule), Some(operation));
        }
    }

    /// Every pattern rule is told as one, and no other.
    #[test]
    fn rules_decide_by_patterns() {
        for r in rules::named() {
            assert_eq!(decided(r.name), Decided::Pattern, "{}", r.name);
        }
        for (rule, how) in [
            ("moe-permute", Decided::Read),
            ("moe-permute-grad", Decided::Tried),
            ("moe-route-grad", Decided::Tried),
            ("moe-route-apart-grad", Decided::Read),
            ("grouped-matmul-grad-ragged", Decided::Read),
            ("embedding-grad", Decided::Read),
            ("clip", Decided::Tried),
        ] {
            assert_eq!(decided(rule), how, "{rule}");
        }
    }
}
