//! The forward side: products by keys, the slice from queries, keys and values to the output, the trial.

use super::FORWARD;
use super::find::{Chain, LAYOUT, Place, Step, Through, scaled};
use super::roles::{Marks, Roles};
use crate::recognise::probe::found::{
    Bound, Found, Output, Solved, add_fused, closed, operand, operands, results, solve,
};
use crate::recognise::probe::layout::fits;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use msc_ir::factor::solve::{AtomId, AtomList};
use msc_ir::ops::attention::{AttentionForm, ScoreStep};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::{FusedKind, Scalar};
use msc_ir::{DType, Graph, Module, Monoid, Op};
use std::collections::BTreeSet;

/// Ops after a product that may still be its result in another layout.
const MAX_AFTER: usize = 12;

/// A product that takes scores or what comes of them.
#[derive(Clone, Debug)]
pub struct Sink {
    /// The product.
    pub dot: Index,
    /// Its other operand, as it stands.
    pub other: Index,
    /// Whether it sums over keys; otherwise over queries.
    pub over_keys: bool,
    /// Whether the scores' side is made by the forward alone.
    pub clean: bool,
}

/// An attention that was found.
#[derive(Clone, Debug)]
pub struct Site {
    /// The op.
    pub found: Found,
    /// Its form.
    pub form: AttentionForm,
    /// Queries, keys, values, and operands of steps.
    pub tops: Vec<Chain>,
    /// The steps as they stand in the program.
    pub steps: Vec<Step>,
    /// Products of the neighbourhood.
    pub sinks: Vec<Sink>,
    /// The product that gives the output.
    pub output: Index,
}

/// Finds the products around a place and tries the forward op.
///
/// # Errors
/// Why it is none, in words.
pub fn forward(p: &Program<'_>, module: &Module, place: &Place) -> Result<Site, String> {
    let (sinks, sides) = sinks(p, module, place)?;
    let output = sinks.iter().find(|s| s.over_keys && s.clean);
    let output = output.ok_or("the weights are multiplied with no values")?;
    let mut last = String::new();
    // First with the scale taken from q and k into the form, masks as small as they are made, keys and values
    // before they are repeated.
    let [yes, no] = [true, false];
    // Where the division stands is not seen in wide types: there it may always be of the weights.
    let late = divides_late(p, place, output.dot) && is_narrow(p.values[output.dot].ty.dtype);
    for ways in [[yes, yes, yes], [no, yes, yes], [no, no, yes], [yes, yes, no], [no, no, no]] {
        match attempt(p, module, place, &sinks, output, sides, (ways, late)) {
            Ok(site) => return Ok(site),
            // The same as the attempt before.
            Err(why) if why.is_empty() => {}
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Which operand of the product holds the keys' dimensions, by solved atoms.
fn sides(p: &Program<'_>, place: &Place, solved: &Solved) -> Result<(Index, Index), String> {
    let v = &p.values[place.product];
    let dims = solved.dims(place.scored).ok_or("the weights are not part of the computation")?;
    let keys: Vec<AtomId> = place.keys.iter().flat_map(|&d| dims[d].clone()).collect();
    let has = |i: Index| solved.all(i).is_some_and(|a| keys.iter().all(|k| a.contains(k)));
    match (has(v.operands[0]), has(v.operands[1])) {
        (false, true) => Ok((v.operands[0], v.operands[1])),
        (true, false) => Ok((v.operands[1], v.operands[0])),
        _ => Err("the softmax is not over the dimension of one operand".into()),
    }
}

/// Whether the rows of a product, in some layout, are divided by numbers per row that come of the scores.
fn divides_late(p: &Program<'_>, place: &Place, dot: Index) -> bool {
    after(p, place, dot, false).into_iter().any(|i| {
        let (Some(Op::Binary(b)), [x, y]) = (p.op(i), p.values[i].operands.as_slice()) else { return false };
        b.kind == BinaryKind::Divide && p.splat(*y).is_none() && !place.clean.contains(x)
    })
}

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// The products that take what is computed from the scores.
fn sinks(p: &Program<'_>, module: &Module, place: &Place) -> Result<(Vec<Sink>, (Index, Index)), String> {
    let mut inside: BTreeSet<Index> = place.local.iter().copied().collect();
    let mut dots = BTreeSet::new();
    for &i in &place.local {
        for &u in &p.values[i].users {
            if matches!(p.op(u), Some(Op::DotGeneral(d)) if !d.lhs_contract.is_empty()) {
                dots.insert(u);
            }
        }
    }
    for &d in dots.iter().chain([&place.product]) {
        inside.insert(d);
        for &o in &p.values[d].operands {
            let mut chain = Chain::up(p, o, &LAYOUT).nodes;
            chain.pop();
            inside.extend(chain);
        }
    }
    let inside: Vec<Index> = inside.into_iter().collect();
    let mut scratch = Module::new("trial");
    let slice = p.neighbourhood(module, &mut scratch, &inside).ok_or("it runs other graphs")?;
    let solved = Solved::new(&scratch, slice);
    let (q, k) = sides(p, place, &solved)?;
    let all = |i: Index| solved.all(i).unwrap_or_default();
    let dims = solved.dims(place.scored).ok_or("the weights are not part of the computation")?;
    let keys: Vec<AtomId> = place.keys.iter().flat_map(|&d| dims[d].clone()).collect();
    let of_keys = all(Chain::up(p, k, &LAYOUT).top());
    let queries: Vec<AtomId> = all(place.scored).into_iter().filter(|a| !of_keys.contains(a)).collect();
    let local: BTreeSet<Index> = place.local.iter().copied().collect();
    let mut out = Vec::new();
    for dot in dots {
        let v = &p.values[dot];
        let score_like = |i: Index| {
            let a = all(i);
            local.contains(&i) && keys.iter().all(|k| a.contains(k)) && queries.iter().any(|q| a.contains(q))
        };
        let (x, y) = (v.operands[0], v.operands[1]);
        let (scores, other) = match (score_like(x), score_like(y)) {
            (true, false) => (x, y),
            (false, true) => (y, x),
            _ => continue,
        };
        let result = all(dot);
        let contracted: Vec<AtomId> = all(scores).into_iter().filter(|a| !result.contains(a)).collect();
        let over_keys = contracted.iter().all(|a| keys.contains(a)) && !contracted.is_empty();
        let over_queries = contracted.iter().all(|a| queries.contains(a)) && !contracted.is_empty();
        if over_keys || over_queries {
            out.push(Sink { dot, other, over_keys, clean: place.clean.contains(&scores) });
        }
    }
    Ok((out, (q, k)))
}

/// Values that may be a product's result: through layout, scales, numbers per row, and with `sums` through sums over head
/// groups and roundings.
pub fn after(p: &Program<'_>, place: &Place, dot: Index, sums: bool) -> Vec<Index> {
    let rounds = |u: Index| matches!(p.op(u), Some(Op::Convert(Convert::Value(d))) if is_narrow(*d));
    let mut out = vec![dot];
    let mut next = 0;
    while let Some(&i) = out.get(next) {
        next += 1;
        for &u in &p.values[i].users {
            let by_row = |x: Index| place.clean.contains(&x);
            let fits = p.values[u].is_layout() && p.values[u].ty.elements() == p.values[i].ty.elements()
                || scaled(p, u).is_some_and(|s| s.0 == i)
                || matches!(p.op(u), Some(Op::Reduce(r)) if r.monoid == Monoid::Sum && sums)
                || sums && rounds(u)
                || matches!(p.op(u), Some(Op::Binary(b)) if matches!(b.kind, BinaryKind::Multiply | BinaryKind::Divide)
                    && p.values[u].operands.iter().any(|&x| x != i && by_row(x)));
            if fits && out.len() < MAX_AFTER && !out.contains(&u) {
                out.push(u);
            }
        }
    }
    out
}

fn attempt(
    p: &Program<'_>,
    module: &Module,
    place: &Place,
    sinks: &[Sink],
    output: &Sink,
    (q, k): (Index, Index),
    ([scales, small_masks, repeats], late): ([bool; 3], bool),
) -> Result<Site, String> {
    let mut scratch = Module::new("trial");
    let through = Through { scales, repeats, ..LAYOUT };
    let mut tops = vec![Chain::up(p, q, &through), Chain::up(p, k, &through)];
    let has_scales =
        [q, k].iter().any(|&i| Chain::up(p, i, &Through { scales: true, ..LAYOUT }).factor != 1.0);
    let has_masks =
        place.weights.is_some() || place.sink.is_some() || place.steps.iter().any(|s| s.operand.is_some());
    let repeated =
        |i: &Index| Chain::up(p, *i, &LAYOUT).nodes.len() != Chain::up(p, *i, &through).nodes.len();
    if !scales && small_masks && !has_scales
        || !small_masks && repeats && !has_masks
        || !repeats && ![k, output.other].iter().any(repeated)
    {
        return Err(String::new());
    }
    tops.push(Chain::up(p, output.other, &Through { repeats, ..LAYOUT }));
    let mut steps = place.steps.clone();
    let extras =
        steps.iter().filter_map(|s| s.operand).chain(place.sink.map(|s| s.column)).chain(place.weights);
    tops.extend(extras.map(|o| match small_masks {
        true => Chain::up(p, o, &LAYOUT),
        false => Chain { nodes: vec![o], factor: 1.0 },
    }));
    let params: Vec<Index> = tops.iter().map(Chain::top).collect();
    if (1..params.len()).any(|i| params[i..].contains(&params[i - 1])) {
        return Err("one value is both queries and keys, or keys and values".into());
    }
    let candidates: Vec<Index> =
        after(p, place, output.dot, false).into_iter().filter(|&o| closed(p, &params, o)).collect();
    if candidates.is_empty() {
        return Err("the output is computed from more than queries, keys, values and masks".into());
    }
    let solved = solve(p, module, &mut scratch, &params, &candidates)?;
    let masks: Vec<Index> = steps.iter().filter_map(|s| s.operand.or(s.mask.map(|m| m.0))).collect();
    let marks = Marks {
        tops: [params[0], params[1], params[2]],
        product: place.product,
        summed: (place.scored, &place.keys),
        masks: &masks,
    };
    let roles = Roles::new(&solved, marks)?;
    let factor = tops[0].factor * tops[1].factor;
    orient(&mut steps, &solved, &roles)?;
    let mut form = form(p, &steps, factor, &tops, &roles, &params);
    form.sink = place.sink.is_some();
    form.weighted = place.weights.is_some();
    form.late = late;
    form.wide = is_narrow(p.values[params[0]].ty.dtype) && p.values[place.product].ty.dtype == DType::F32;
    let kind = FusedKind::Attention(form.clone());
    let wide = roles.of_queries(&roles.value_width);
    let fits = |i: Index| solved.dims(i).is_some_and(|d| fits(&wide, &d));
    let candidates: Vec<Index> = candidates.iter().copied().filter(|&i| fits(i)).collect();
    if candidates.is_empty() {
        return Err("the output has other dimensions than batch, heads, queries and width".into());
    }
    let solved = solve(p, module, &mut scratch, &params, &candidates)?;
    let roles = Roles::new(&solved, marks)?;
    let bounds = bounds(p, &solved, &roles, (&tops, &steps, form.sink))?;
    let wide = roles.of_queries(&roles.value_width);
    let edges = edges(&steps);
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &edges, seed: 0x6174_7465_6e74 };
    let holds = trial.run(&mut scratch, &mut |scratch, size, types| {
        let mut g = Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let made = add_fused(&mut g, scratch, kind.clone(), &args)?;
        let results = results(&mut g, scratch, &solved, size, &candidates, |_| (made[0], &wide))?;
        g.set_results(results);
        Ok(g)
    })?;
    let agreeing = candidates.iter().zip(&holds).filter(|h| *h.1);
    let outputs: Vec<Output> =
        agreeing.filter_map(|(&value, _)| solved.output("o", 0, value, &wide)).collect();
    if outputs.is_empty() {
        return Err("it computes something else than the program".into());
    }
    let args = bounds.iter().map(|b| operand(p, &solved, b)).collect::<Result<_, _>>()?;
    let found = Found { rule: FORWARD, kind, operands: args, given: Vec::new(), outputs };
    Ok(Site { found, form, tops, steps, sinks: sinks.to_vec(), output: output.dot })
}

/// Turns bands so that `i` counts queries and `j` keys.
fn orient(steps: &mut [Step], solved: &Solved, roles: &Roles) -> Result<(), String> {
    for s in steps {
        let (Some((mask, rows, cols)), ScoreStep::Band { lo, hi, fill, add }) = (s.mask, s.kind) else {
            continue;
        };
        let dims = solved.dims(mask).ok_or("a mask is not part of the computation")?;
        let (i, j) = (&dims[rows], &dims[cols]);
        s.kind = if (i, j) == (&roles.queries, &roles.keys) {
            s.kind
        } else if (j, i) == (&roles.queries, &roles.keys) {
            ScoreStep::Band { lo: hi.map(|h| -h), hi: lo.map(|l| -l), fill, add }
        } else {
            return Err("a mask compares something else than queries with keys".into());
        };
    }
    Ok(())
}

/// Where the masks of the steps change.
pub fn edges(steps: &[Step]) -> Vec<i64> {
    let of = |s: &Step| match s.kind {
        ScoreStep::Band { lo, hi, .. } => [lo, hi.map(|h| h + 1)],
        _ => [None, None],
    };
    steps.iter().flat_map(of).flatten().collect()
}

/// The form: the steps, the scale of q and k first; repeated heads where roundings show it.
fn form(
    p: &Program<'_>,
    steps: &[Step],
    factor: f64,
    tops: &[Chain],
    roles: &Roles,
    params: &[Index],
) -> AttentionForm {
    let mut kinds: Vec<ScoreStep> = steps.iter().map(|s| s.kind).collect();
    let mut factor = factor;
    // Neighbouring scales are one.
    if let (Some(ScoreStep::Scale(x)), true) = (kinds.first().copied(), factor != 1.0) {
        factor *= x.get();
        kinds.remove(0);
    }
    if factor != 1.0 {
        kinds.insert(0, ScoreStep::Scale(Scalar::new(factor)));
    }
    let narrow = is_narrow(p.values[params[0]].ty.dtype);
    let grows = tops[1].nodes.iter().any(|&n| p.values[n].ty.elements() > p.values[params[1]].ty.elements());
    AttentionForm {
        steps: kinds,
        repeated: narrow && grows && !roles.group.is_empty(),
        ..AttentionForm::default()
    }
}

/// The operands of the forward op, and of the gradient but for what it takes besides.
pub fn bounds(
    p: &Program<'_>,
    solved: &Solved,
    roles: &Roles,
    (tops, steps, sink): (&[Chain], &[Step], bool),
) -> Result<Vec<Bound>, String> {
    let mut out = Vec::new();
    let named = [
        ("q", roles.of_queries(&roles.width)),
        ("k", roles.of_keys(&roles.width)),
        ("v", roles.of_keys(&roles.value_width)),
    ];
    for ((name, dims), top) in named.into_iter().zip(tops) {
        out.push(bound(p, name, dims, top));
    }
    let extras = steps.iter().filter(|s| s.operand.is_some()).map(|s| match s.kind {
        ScoreStep::Bias => "bias",
        ScoreStep::Factor => "factor",
        _ => "mask",
    });
    for (name, top) in extras.chain(sink.then_some("sink")).chain(["weights"]).zip(&tops[3..]) {
        let atoms = solved.all(top.top()).ok_or("a mask is not part of the computation")?;
        out.push(bound(p, name, roles.of_mask(&atoms)?, top));
    }
    Ok(out)
}

/// An operand with its aliases.
pub fn bound(p: &Program<'_>, name: &'static str, dims: Vec<AtomList>, top: &Chain) -> Bound {
    Bound { name, param: top.top(), aliases: top.same(p), dims }
}
