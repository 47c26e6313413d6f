//! Where counts of choices are multiplied by sums of probabilities, and what becomes of it.

use crate::recognise::engine::region::Region;
use crate::recognise::probe::one_hot::{behind_layout, one_hot};
use crate::recognise::probe::program::{Index, Program};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, Monoid, Op, TensorType};

/// Ops between a choice and the loss, or the gradient; exporters have up to twelve.
const MAX_CHAIN: usize = 40;

/// Where counts are multiplied by sums of probabilities.
pub(super) struct Place {
    /// Whether a token chose an expert.
    pub is: Index,
    /// The dimension of experts in it.
    pub experts: usize,
    /// What is compared with the experts.
    pub choice: Index,
    /// The probabilities, and their sum over tokens.
    pub p: Index,
    pub q: Index,
    /// The loss, with the product of the literals on the way to it.
    pub loss: Index,
    pub scale: f64,
    pub grad: Option<Gradient>,
}

/// What the counts are multiplied by to become the gradient of the sums.
pub(super) struct Gradient {
    pub dq: Index,
    pub scale: f64,
    /// The gradient of the loss, if it is no literal.
    pub seed: Option<Index>,
}

/// What one value becomes of another by layout, sums and a literal factor: the other, and the factor.
pub(in crate::recognise::rules) fn step(p: &Program<'_>, i: Index) -> Option<(Index, f64)> {
    let v = &p.values[i];
    let first = *v.operands.first()?;
    let second = || p.splat(*v.operands.get(1)?);
    match p.op(i)? {
        Op::Convert(Convert::Value(d)) if *d == DType::F32 || *d == DType::F64 || d.is_int() => {
            Some((first, 1.0))
        }
        Op::Reduce(Reduce { monoid: Monoid::Sum, .. }) => Some((first, 1.0)),
        Op::Unary(u) if u.kind == UnaryKind::Negate => Some((first, -1.0)),
        Op::Binary(b) => match b.kind {
            BinaryKind::Multiply => match (p.splat(first), second()) {
                (_, Some(s)) => Some((first, s)),
                (Some(s), _) => Some((v.operands[1], s)),
                _ => None,
            },
            BinaryKind::Divide => second().map(|s| (first, 1.0 / s)),
            _ => None,
        },
        _ if v.is_layout() => Some((first, 1.0)),
        _ => None,
    }
}

/// On from a value by [`step`]s to what is `done`, one number, and to its last multiple that nothing else sees, with the
/// factor times the literals on the way.
pub(in crate::recognise::rules) fn to_one_number(
    p: &Program<'_>,
    region: &Region,
    (mut at, mut scale): (Index, f64),
    done: impl Fn(&TensorType) -> bool,
) -> (Index, f64) {
    let given = |i: Index| {
        let at = p.values[i].at;
        region.parts[at.part].graph.results().contains(&at.value)
    };
    for _ in 0..MAX_CHAIN {
        let v = &p.values[at];
        if done(v.ty) && (given(at) || v.users.len() != 1) {
            break;
        }
        let next = v.users.iter().find_map(|&u| {
            let (_, s) = step(p, u).filter(|&(from, _)| from == at)?;
            (p.values[u].ty.elements() <= v.ty.elements()).then_some((u, s))
        });
        match next {
            Some((u, s)) => (at, scale) = (u, scale * s),
            None => break,
        }
    }
    (at, scale)
}

/// The value that another is made of by [`step`]s, the first that `stop` says, with the product of the factors.
fn behind(p: &Program<'_>, mut i: Index, stop: impl Fn(Index) -> bool) -> Option<(Index, f64)> {
    let mut scale = 1.0;
    for _ in 0..MAX_CHAIN {
        if stop(i) {
            return Some((i, scale));
        }
        let (next, s) = step(p, i)?;
        (i, scale) = (next, scale * s);
    }
    None
}

/// The sum over tokens that a value is made of, the first of several, with the product of the factors.
fn sum_behind(p: &Program<'_>, i: Index) -> Option<(Index, f64)> {
    let shrinks = |i: Index| {
        matches!(p.op(i), Some(Op::Reduce(Reduce { monoid: Monoid::Sum, .. })))
            && p.values[i].ty.elements() < p.values[p.values[i].operands[0]].ty.elements()
    };
    let (mut i, mut scale) = behind(p, i, shrinks)?;
    while let Some((next, s)) = behind(p, p.values[i].operands[0], shrinks) {
        (i, scale) = (next, scale * s);
    }
    Some((i, scale))
}

pub(super) fn places(p: &Program<'_>, region: &Region) -> Vec<Place> {
    let mut out: Vec<Place> = Vec::new();
    for is in 0..p.values.len() {
        let Some((experts, choice)) = one_hot(p, is) else { continue };
        // Counts: what steps make of the comparison.
        let mut counts = vec![is];
        let mut at = 0;
        while let Some(&i) = counts.get(at) {
            at += 1;
            for &u in &p.values[i].users {
                let next = step(p, u).is_some_and(|(from, _)| from == i);
                if next && counts.len() < MAX_CHAIN && !counts.contains(&u) {
                    counts.push(u);
                }
            }
        }
        for &f in &counts {
            for &m in &p.values[f].users {
                let place = product(p, region, (is, experts, choice), f, m);
                if let Some(mut place) = place
                    && !out.iter().any(|o| o.loss == place.loss)
                {
                    place.grad = gradient(p, &place, &counts);
                    out.push(place);
                }
            }
        }
    }
    out
}

/// The loss of which `m` is the product of counts `f` and something else.
fn product(
    p: &Program<'_>,
    region: &Region,
    (is, experts, choice): (Index, usize, Index),
    f: Index,
    m: Index,
) -> Option<Place> {
    let Some(Op::Binary(b)) = p.op(m) else { return None };
    let &[x, y] = p.values[m].operands.as_slice() else { return None };
    let other = if x == f { y } else { x };
    if b.kind != BinaryKind::Multiply || other == f || !p.values[m].ty.dtype.is_float() {
        return None;
    }
    let (_, factor) = behind(p, f, |i| i == is)?;
    let (q, s) = sum_behind(p, other)?;
    let probabilities = p.values[q].operands[0];
    // Sums of what was chosen are counts themselves.
    if behind(p, q, |i| i == is).is_some() {
        return None;
    }
    let (loss, scale) = to_one_number(p, region, (m, factor * s), |ty| ty.elements() == 1);
    (p.values[loss].ty.elements() == 1).then_some(Place {
        is,
        experts,
        choice,
        p: probabilities,
        q,
        loss,
        scale,
        grad: None,
    })
}

/// The gradient of the sums: a multiple of the counts by one number, that is not the loss.
fn gradient(p: &Program<'_>, place: &Place, counts: &[Index]) -> Option<Gradient> {
    let n = p.values[place.q].ty.elements();
    let one = |i: Index| p.values[i].ty.elements() == 1;
    // Multiples of the counts by a number that is computed, with that number.
    let mut starts: Vec<(Index, Option<Index>)> = counts.iter().map(|&f| (f, None)).collect();
    for &f in counts {
        for &u in &p.values[f].users {
            let (Some(Op::Binary(b)), &[x, y]) = (p.op(u), p.values[u].operands.as_slice()) else { continue };
            let other = if x == f { y } else { x };
            let seed =
                behind(p, other, one).map(|s| behind_layout(p, s.0)).filter(|&s| one(s) && s != place.loss);
            if b.kind == BinaryKind::Multiply
                && other != f
                && let Some(seed) = seed.filter(|&s| p.splat(s).is_none())
            {
                starts.push((u, Some(seed)));
            }
        }
    }
    let mut best: Option<(Index, Option<Index>)> = None;
    for (start, seed) in starts {
        let mut at = start;
        for _ in 0..MAX_CHAIN {
            let next = p.values[at].users.iter().copied().find(|&u| {
                step(p, u).is_some_and(|(from, _)| from == at)
                    && (n..=p.values[at].ty.elements()).contains(&p.values[u].ty.elements())
            });
            match next {
                Some(u) => at = u,
                None => break,
            }
        }
        // Counts that nothing but the loss is made of are no gradient.
        let spreads = p.values[at].users.iter().any(|&u| p.values[u].ty.elements() > n);
        if p.values[at].ty.elements() == n && spreads && best.is_none_or(|b| b.1.is_none()) {
            best = Some((at, seed));
        }
    }
    let (dq, seed) = best?;
    // Every factor on the way from the comparison, the seed's own among them.
    let (mut at, mut scale) = (dq, 1.0);
    for _ in 0..MAX_CHAIN {
        if at == place.is {
            return Some(Gradient { dq, scale, seed });
        }
        match step(p, at) {
            Some((next, s)) => (at, scale) = (next, scale * s),
            None => {
                let &[x, y] = p.values[at].operands.as_slice() else { return None };
                let (next, other) = if counts.contains(&x) { (x, y) } else { (y, x) };
                let (_, s) = behind(p, other, |i| seed == Some(behind_layout(p, i)) && one(i))?;
                (at, scale) = (next, scale * s);
            }
        }
    }
    None
}
