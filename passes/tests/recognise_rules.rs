//! Every rule is checked by numbers on random instances of its own patterns.

use msc_passes::recognise::check::{Verdict, check};
use msc_passes::recognise::rules;

const INSTANCES: usize = 64;

#[test]
fn every_rule_holds() {
    let mut failed = Vec::new();
    for rule in rules::normal_form().into_iter().chain(rules::named()) {
        match check(&rule, INSTANCES, 7) {
            Ok(Verdict::Holds { fired, tried, worst }) => {
                eprintln!("{:28} {:?}: {fired} of {tried} instances, worst {worst:.1e}", rule.name, rule.tag);
            }
            Ok(Verdict::Refuted(c)) => failed.push(format!("{}: {c}", rule.name)),
            Err(e) => failed.push(format!("{}: {e}", rule.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A rule that is wrong in one place is refuted, and the counterexample is small.
#[test]
fn wrong_rules_are_refuted() {
    use msc_passes::recognise::engine::rule::{Count, Frame, Rule, Tag, root};
    let named = rules::named();
    let norm = named.iter().find(|r| r.name == "rms-norm").expect("the rule");
    let gradient = named.iter().find(|r| r.name == "rms-norm-grad").expect("the rule");
    let normal = rules::normal_form();
    let with = |rule: &Rule, at: usize, pattern| {
        let mut rule = rule.clone();
        let old = &rule.roots[at];
        rule.roots[at] = root(old.name, old.frame, old.count, pattern);
        rule
    };
    let wrong = [
        // The scale left out of the gradient's sum.
        with(
            gradient,
            3,
            "(sum (product (cols ?gamma) ?dy (rows (pow ?v -1/2)))
                  (product -1/D ?x (rows (pow ?v -3/2)) (rows (reduce.sum.last (product ?dy ?x)))) ?r*)",
        ),
        // The second half added.
        with(
            gradient,
            3,
            "(sum (product (cols ?gamma) ?dy (rows (pow ?v -1/2)))
                  (product 1/D ?x (rows (pow ?v -3/2)) (rows (reduce.sum.last (product (cols ?gamma) ?dy ?x))))
                  ?r*)",
        ),
        // A sum for the mean.
        with(norm, 0, "(sum (product (rows (reduce.sum.last (multiply ?x ?x)))) ?eps:const)"),
        // x̂ by the variance, not its root.
        with(norm, 1, "(product (cols ?gamma) ?x (rows (pow ?v -1)))"),
        // eps outside the root.
        {
            let mut rule = norm.clone();
            rule.facts = &[];
            rule.roots[0] = root(
                "s",
                Frame::Rows,
                Count::One,
                "(sum (product (pow (rows ?v) -1/2)) ?eps:const)",
            );
            rule.roots.insert(
                0,
                root("v", Frame::Rows, Count::One, "(product 1/D (rows (reduce.sum.last (multiply ?x ?x))))"),
            );
            rule.roots[2] = root("y", Frame::Full, Count::One, "(product (cols ?gamma) ?x (rows ?s))");
            rule
        },
    ];
    let layer = |name: &str| named.iter().find(|r| r.name == name).expect("the rule");
    let wrong_layer = [
        // The variance about zero, which is that of an RMSNorm.
        with(
            layer("layer-norm"),
            1,
            "(sum (as ?m (polynomial (product 1/D (rows (reduce.sum.last (product (pow ?w 2))))))) ?eps:const)",
        ),
        // dx without the mean of g.
        with(
            layer("layer-norm-grad"),
            5,
            "(polynomial (product (cols ?gamma) ?dy (rows (pow ?v -1/2)))
                  (product -1/D (sum ?w (product -1/D (rows (reduce.sum.last ?w)))) (rows (pow ?v -3/2))
                      (rows (reduce.sum.last (product (cols ?gamma) ?dy
                          (sum ?w (product -1/D (rows (reduce.sum.last ?w)))))))) ?r*)",
        ),
        // The bias's gradient for the scale's.
        with(layer("layer-norm-grad"), 6, "(polynomial (product (cols (reduce.sum.leading ?dy))))"),
    ];
    let exact = |name: &str, tag| {
        let mut rule = normal.iter().find(|r| r.name == name).expect("the rule").clone();
        rule.tag = tag;
        rule
    };
    // −0 + 0 is +0, x³ by way of x² rounds twice.
    let not_exact = [exact("plus-zero", Tag::Exact), exact("power-three", Tag::Exact)];
    for rule in wrong.iter().chain(&wrong_layer).chain(&not_exact) {
        match check(rule, INSTANCES, 11) {
            Ok(Verdict::Refuted(c)) => {
                let elements: usize = c.inputs.iter().map(msc_ir::Tensor::len).sum();
                assert!(elements <= 24, "{c}");
                assert!(c.to_string().contains("before"), "{c}");
            }
            other => panic!("{}: {other:?}", rule.name),
        }
    }
}
