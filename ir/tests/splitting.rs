//! The factor rules, by splitting: every factor that a rule does not call whole is cut into shards, uneven ones
//! included, and the shards must come together to the unsplit result.

use msc_ir::factor::{FactorKind, FactorRule};
use msc_ir::testing::split::{Cut, check, pieces, rule_of};
use msc_ir::testing::{Case, Rng, families};
use std::collections::BTreeMap;

/// Cases per family: enough that every combination of attributes the generators draw comes up many times.
const CASES: u64 = 250;

/// A factor may be cut where its start, if its kind needs one, is a single number: outermost in its dimension.
fn splittable(rule: &FactorRule, f: usize) -> bool {
    let outermost =
        rule.operands.iter().chain(&rule.results).flatten().all(|list| !list.contains(&f) || list[0] == f);
    match rule.factors[f].kind {
        FactorKind::Whole | FactorKind::Halo { .. } => false,
        FactorKind::Offset | FactorKind::Range => outermost,
        FactorKind::Pass | FactorKind::Reduce(_) => true,
    }
}

fn name(kind: FactorKind) -> &'static str {
    match kind {
        FactorKind::Pass => "pass",
        FactorKind::Reduce(_) => "reduce",
        FactorKind::Offset => "offset",
        FactorKind::Range => "range",
        FactorKind::Halo { .. } => "halo",
        FactorKind::Whole => "whole",
    }
}

/// Splits every factor of a case alone, by 2 and by 3, and every pair by 2; counts what was split by kind.
fn split_all(
    case: &Case,
    rule: &FactorRule,
    r: &mut Rng,
    count: &mut BTreeMap<&'static str, usize>,
) -> Result<(), String> {
    let factors: Vec<usize> = (0..rule.factors.len()).filter(|&f| splittable(rule, f)).collect();
    let cut = |r: &mut Rng, f: usize, parts: usize| -> Option<Cut> {
        let n = rule.factors[f].size;
        let first = r.below(1, n);
        Some((f, pieces(n, parts, first)?))
    };
    let run = |cuts: &[Cut]| {
        check(&case.module, &case.op, &case.inputs, rule, cuts)
            .map_err(|e| format!("{:?}\ncut {cuts:?}\nrule {rule:?}\n{e}", case.op))
    };
    run(&[])?;
    for &f in &factors {
        for parts in [2, 3] {
            if let Some(c) = cut(r, f, parts) {
                run(&[c])?;
                *count.entry(name(rule.factors[f].kind)).or_default() += 1;
            }
        }
    }
    for (i, &f) in factors.iter().enumerate() {
        for &g in &factors[i + 1..] {
            // Partial results of two monoids do not combine; no rule has such a pair in one result.
            if let (Some(a), Some(b)) = (cut(r, f, 2), cut(r, g, 2)) {
                run(&[a, b])?;
            }
        }
    }
    Ok(())
}

#[test]
fn every_family_splits_as_its_rule_says() {
    let mut table: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (family, generate) in families() {
        let count = table.entry(family).or_default();
        for seed in 0..CASES {
            let mut r = Rng::new(seed);
            let case = generate(&mut r);
            let rule = rule_of(&case.module, &case.op, &case.inputs)
                .unwrap_or_else(|e| panic!("{family}, seed {seed}: {e}\n{:?}", case.op));
            split_all(&case, &rule, &mut r, count).unwrap_or_else(|e| panic!("{family}, seed {seed}: {e}"));
        }
    }
    // A rule that calls everything whole would pass the above: what must have been split is said here.
    for (family, kinds) in [
        ("unary", &["pass"][..]),
        ("binary", &["pass"]),
        ("compare", &["pass"]),
        ("select", &["pass"]),
        ("convert", &["pass"]),
        ("constant", &["pass", "offset"]),
        ("iota", &["pass", "offset"]),
        ("broadcast", &["pass"]),
        ("reshape", &["pass"]),
        ("permute", &["pass"]),
        ("slice", &["pass"]),
        ("pad", &["pass"]),
        ("concatenate", &["pass"]),
        ("gather", &["pass", "range"]),
        ("scatter", &["pass", "range", "reduce"]),
        ("dot_general", &["pass", "reduce"]),
        ("reduce", &["pass", "reduce"]),
        ("barrier", &["pass"]),
        ("reduce_by", &["pass"]),
        ("reduce_window", &["pass"]),
        ("select_and_scatter", &["pass"]),
        ("sort", &["pass"]),
        ("map", &["pass"]),
        ("reduce_precision", &["pass"]),
        ("scatter_by", &["pass"]),
        ("batch_norm", &["pass"]),
        ("convolution", &["pass", "reduce"]),
        ("rng_bit_generator", &["offset"]),
        ("triangular", &["pass"]),
    ] {
        for kind in kinds {
            let n = table[family].get(kind).copied().unwrap_or(0);
            assert!(n >= 50, "{family}: only {n} splits of kind {kind}");
        }
    }
    for (family, _) in families() {
        assert!(table.contains_key(family), "{family} says nothing about what must split");
    }
}

/// Wrong rules that the test must reject: each takes a right rule and spoils it.
#[test]
fn wrong_rules_are_rejected() {
    type Spoil = fn(&FactorRule) -> Option<FactorRule>;
    let spoils: &[(&str, &str, Spoil)] = &[
        ("reduce", "a reduction that passes", |r| rekind(r, "reduce", FactorKind::Pass)),
        ("dot_general", "a contraction that passes", |r| rekind(r, "reduce", FactorKind::Pass)),
        ("reduce", "a sum taken for a maximum", |r| {
            rekind(r, "reduce", FactorKind::Reduce(msc_ir::Monoid::Max))
        }),
        ("gather", "a table that passes", |r| rekind(r, "range", FactorKind::Pass)),
        ("slice", "a cut dimension that passes", |r| rekind(r, "whole", FactorKind::Pass)),
        ("pad", "a padded dimension that passes", |r| rekind(r, "whole", FactorKind::Pass)),
        ("permute", "a reversed or swapped dimension", swap_results),
        ("reshape", "factors in the wrong order", reverse_composite),
        ("broadcast", "an operand that lacks its factor", drop_operand_factor),
    ];
    for (family, what, spoil) in spoils {
        let generate = families().into_iter().find(|(n, _)| n == family).expect("a family").1;
        let mut rejected = 0;
        for seed in 0..CASES {
            let mut r = Rng::new(seed);
            let case = generate(&mut r);
            let rule = rule_of(&case.module, &case.op, &case.inputs).expect("infers");
            let Some(wrong) = spoil(&rule) else { continue };
            if split_all(&case, &wrong, &mut r, &mut BTreeMap::new()).is_err() {
                rejected += 1;
            }
        }
        assert!(rejected >= 10, "{family}: {what} was rejected {rejected} times only");
    }
}

fn rekind(rule: &FactorRule, from: &str, to: FactorKind) -> Option<FactorRule> {
    let f = rule.factors.iter().position(|f| name(f.kind) == from && f.kind != to && f.size > 1)?;
    let mut out = rule.clone();
    out.factors[f].kind = to;
    Some(out)
}

fn swap_results(rule: &FactorRule) -> Option<FactorRule> {
    let dims = &rule.results[0];
    let size = |d: usize| dims[d].iter().map(|&f| rule.factors[f].size).product::<usize>();
    let (a, b) = (0..dims.len())
        .flat_map(|a| (0..a).map(move |b| (a, b)))
        .find(|&(a, b)| size(a) == size(b) && size(a) > 1 && dims[a] != dims[b])?;
    let mut out = rule.clone();
    out.results[0].swap(a, b);
    Some(out)
}

fn reverse_composite(rule: &FactorRule) -> Option<FactorRule> {
    let d = rule.operands[0]
        .iter()
        .position(|l| l.len() > 1 && rule.factors[l[0]].size != rule.factors[l[l.len() - 1]].size)?;
    let mut out = rule.clone();
    out.operands[0][d].reverse();
    Some(out)
}

fn drop_operand_factor(rule: &FactorRule) -> Option<FactorRule> {
    let mut out = rule.clone();
    out.operands.first_mut()?.iter_mut().find(|l| l.iter().any(|&f| rule.factors[f].size > 1))?.clear();
    Some(out)
}
