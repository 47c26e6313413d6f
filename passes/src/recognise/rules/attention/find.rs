//! Where an attention may be: an exponential whose argument comes from a product of two matrices by way of
//! elementwise ops, and which is summed over the dimension that the second matrix contributes.

use super::sink::Sink;
use crate::recognise::probe::band::Bands;
use crate::recognise::probe::program::{Index, Program};
use msc_ir::ops::attention::ScoreStep;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::fused::Scalar;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, Module, Monoid, Op};
use std::collections::BTreeSet;

/// Steps from the product to the exponential; exporters have up to ten, layout included.
const MAX_STEPS: usize = 40;

/// Layout ops between a matrix and the product; exporters have up to six.
const MAX_CHAIN: usize = 16;

/// Values of one attention, forward and backward, with aliases.
const MAX_LOCAL: usize = 600;

/// An operand of a product, seen through layout ops.
#[derive(Clone, Debug)]
pub struct Chain {
    /// From the operand up to where it is made.
    pub nodes: Vec<Index>,
    /// Product of the numbers it was multiplied by on the way.
    pub factor: f64,
}

/// What a chain is seen through beside layout.
#[derive(Clone, Copy, Debug)]
pub struct Through<'r> {
    /// Broadcasts: heads of keys that are repeated for each query head.
    pub repeats: bool,
    /// Multiplications by a number.
    pub scales: bool,
    /// Multiplications by, and divisions by, numbers per row that are among these.
    pub rows: Option<&'r BTreeSet<Index>>,
}

/// Through layout alone.
pub const LAYOUT: Through<'static> = Through { repeats: true, scales: false, rows: None };

impl Chain {
    /// Where it is made.
    pub fn top(&self) -> Index {
        self.nodes[self.nodes.len() - 1]
    }

    /// The values that are the same in another layout, from where it is made on.
    pub fn same(&self, p: &Program<'_>) -> Vec<Index> {
        let mut out = vec![self.top()];
        for &n in self.nodes.iter().rev().skip(1) {
            if !p.values[n].is_layout() && !drops_units(p, n) {
                break;
            }
            out.push(n);
        }
        out
    }

    /// Looks up from an operand through layout ops, and where `through` says so.
    pub fn up(p: &Program<'_>, from: Index, through: &Through<'_>) -> Chain {
        let mut chain = Chain { nodes: vec![from], factor: 1.0 };
        while chain.nodes.len() < MAX_CHAIN {
            let at = chain.top();
            let v = &p.values[at];
            let next = if v.is_layout() || drops_units(p, at) {
                let grows = v.ty.elements() > p.values[v.operands[0]].ty.elements();
                (through.repeats || !grows).then_some((v.operands[0], 1.0))
            } else if let Some(x) = through.rows.and_then(|rows| scaled_rows(p, at, rows)) {
                Some((x, 1.0))
            } else {
                let scale = scaled(p, at).filter(|s| through.scales && exact_scale(s.1, v.ty.dtype));
                scale.map(|s| (s.0, s.1))
            };
            // A constant that is spread is nobody's operand.
            let Some((next, factor)) = next.filter(|n| p.splat(n.0).is_none()) else { break };
            chain.nodes.push(next);
            chain.factor *= factor;
        }
        chain
    }
}

/// A sum over dimensions of size 1.
fn drops_units(p: &Program<'_>, i: Index) -> bool {
    match p.op(i) {
        Some(Op::Reduce(r)) => {
            let ty = p.values[p.values[i].operands[0]].ty;
            r.dims.iter().all(|&d| ty.shape[d] == 1)
        }
        _ => false,
    }
}

/// The operand that is multiplied or divided by a value of `rows`.
fn scaled_rows(p: &Program<'_>, i: Index, rows: &BTreeSet<Index>) -> Option<Index> {
    let Some(Op::Binary(b)) = p.op(i) else { return None };
    let (x, y) = (p.values[i].operands[0], p.values[i].operands[1]);
    match (b.kind, rows.contains(&x), rows.contains(&y)) {
        (BinaryKind::Multiply | BinaryKind::Divide, false, true) => Some(x),
        (BinaryKind::Multiply, true, false) => Some(y),
        _ => None,
    }
}

/// The operand and the number by which a value is multiplied, if it is such a product, and whether it is spelled
/// as a division.
pub fn scaled(p: &Program<'_>, i: Index) -> Option<(Index, f64, bool)> {
    let Some(Op::Binary(b)) = p.op(i) else { return None };
    let (x, y) = (p.values[i].operands[0], p.values[i].operands[1]);
    match (b.kind, p.splat(x), p.splat(y)) {
        (BinaryKind::Multiply, None, Some(c)) => Some((x, c, false)),
        (BinaryKind::Multiply, Some(c), None) => Some((y, c, false)),
        (BinaryKind::Divide, None, Some(c)) if c != 0.0 => Some((x, 1.0 / c, true)),
        _ => None,
    }
}

/// A step with where its data is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// What happens to the scores.
    pub kind: ScoreStep,
    /// Its operand, if it has one.
    pub operand: Option<Index>,
    /// For a band: the mask, and its dimensions of `i` and `j`.
    pub mask: Option<(Index, usize, usize)>,
}

impl Step {
    fn plain(kind: ScoreStep) -> Step {
        Step { kind, operand: None, mask: None }
    }
}

/// A place where an attention may be.
#[derive(Clone, Debug)]
pub struct Place {
    /// The product `q·kᵀ`.
    pub product: Index,
    /// The exponential.
    pub exp: Index,
    /// The exponential, or the scores beside which a sink stands: a value whose dimensions are those of scores.
    pub scored: Index,
    /// Its dimensions that are summed: the keys.
    pub keys: Vec<usize>,
    /// Steps from the product to the scores, with the operand of those that have one.
    pub steps: Vec<Step>,
    /// The column beside the scores, if there is one.
    pub sink: Option<Sink>,
    /// What the weights are multiplied by before they meet the values, if by anything.
    pub weights: Option<Index>,
    /// What is computed from the product, in program order.
    pub local: Vec<Index>,
    /// Those of `local` that need nothing but the product, constants and the steps' operands.
    pub clean: BTreeSet<Index>,
}

/// All places of a program, and why others that look alike, by their exponentials, are none.
pub fn places(p: &Program<'_>, module: &Module) -> (Vec<Place>, Vec<(Index, String)>) {
    let (mut out, mut refused) = (Vec::new(), Vec::new());
    for exp in 0..p.values.len() {
        if !p.is_unary(exp, UnaryKind::Exponential) || p.values[exp].ty.rank() < 2 {
            continue;
        }
        let Some(keys) = summed(p, exp) else { continue };
        let Some(found) = product(p, exp) else { continue };
        match place(p, module, exp, keys, found) {
            Ok(place) => out.push(place),
            Err(why) => refused.push((exp, why)),
        }
    }
    (out, refused)
}

/// Why an exponential is no place at all, if it is none.
pub fn unlike(p: &Program<'_>, exp: Index) -> Option<&'static str> {
    if p.values[exp].ty.rank() < 2 {
        Some("the exponential has less than two dimensions")
    } else if summed(p, exp).is_none() {
        Some("the exponential is not summed over a dimension")
    } else if product(p, exp).is_none() {
        Some("the exponential's argument does not come, element by element, from one product of two matrices")
    } else {
        None
    }
}

/// The dimensions over which an exponential is summed.
pub fn summed(p: &Program<'_>, exp: Index) -> Option<Vec<usize>> {
    let mut todo = vec![exp];
    // The sum may be taken of a widened copy.
    while let Some(i) = todo.pop() {
        for &u in &p.values[i].users {
            match p.op(u) {
                Some(Op::Reduce(r)) if r.monoid == Monoid::Sum && p.values[u].operands[0] == i => {
                    return Some(r.dims.to_vec());
                }
                Some(Op::Convert(Convert::Value(_))) => todo.push(u),
                _ => {}
            }
        }
    }
    None
}

/// The one product of two matrices that the scores come from, and what stands beside them.
fn product(p: &Program<'_>, exp: Index) -> Option<(Index, Option<Sink>)> {
    let mut seen = BTreeSet::from([exp]);
    let mut todo = vec![exp];
    let mut found = BTreeSet::new();
    let mut sinks = BTreeSet::new();
    while let Some(i) = todo.pop() {
        let n = p.values[i].ty.elements();
        if seen.len() > MAX_LOCAL {
            return None;
        }
        let v = &p.values[i];
        match p.op(i) {
            Some(Op::DotGeneral(d)) if is_matrix_product(p, i, d) => {
                found.insert(i);
            }
            Some(Op::Unary(_) | Op::Binary(_) | Op::Select(_) | Op::Convert(_)) => {
                todo.extend(v.operands.iter().copied().filter(|&o| {
                    p.values[o].ty.elements() == n && p.values[o].ty.dtype.is_float() && seen.insert(o)
                }));
            }
            Some(_) if v.is_layout() => {
                let o = v.operands[0];
                if p.values[o].ty.elements() == n && seen.insert(o) {
                    todo.push(o);
                }
            }
            Some(Op::Concatenate(_)) => {
                if let Some(sink) = Sink::of(p, i) {
                    sinks.insert(i);
                    todo.extend(seen.insert(sink.scores).then_some(sink.scores));
                }
            }
            _ => {}
        }
    }
    let one = found.len() == 1 && sinks.len() <= 1;
    let sink = sinks.pop_first().and_then(|i| Sink::of(p, i));
    one.then(|| found.pop_first()).flatten().map(|product| (product, sink))
}

/// Whether both operands have free dimensions and some are contracted.
fn is_matrix_product(p: &Program<'_>, i: Index, d: &DotGeneral) -> bool {
    let (l, r) = (p.values[p.values[i].operands[0]].ty, p.values[p.values[i].operands[1]].ty);
    !d.lhs_contract.is_empty()
        && !DotGeneral::free(l.rank(), &d.lhs_batch, &d.lhs_contract).is_empty()
        && !DotGeneral::free(r.rank(), &d.rhs_batch, &d.rhs_contract).is_empty()
}

fn place(
    p: &Program<'_>,
    module: &Module,
    exp: Index,
    keys: Vec<usize>,
    (product, sink): (Index, Option<Sink>),
) -> Result<Place, String> {
    let scores = p.values[product].ty.elements();
    let (scored, keys) = sink.map_or((exp, keys), |s| (s.scores, vec![s.dim]));
    let local = local(p, product, [scores, p.values[exp].ty.elements()])?;
    let on = |i: Index| local.binary_search(&i).is_ok();
    let steps = steps(p, module, (exp, product, sink), &on)?;
    let mut extras: BTreeSet<Index> = steps.operands;
    let mut weights = None;
    let mut clean = BTreeSet::from([product]);
    for &i in local.iter().filter(|&&i| i != product) {
        let fine = |&o: &Index| {
            clean.contains(&o) || extras.contains(&o) || p.splat(o).is_some() || p.values[o].is_closed()
        };
        if p.values[i].operands.iter().all(fine) {
            clean.insert(i);
            continue;
        }
        // Dropout: no matrix product, as the gradient of the weights is, and one of its kind.
        if let Some(w) =
            factor(p, i, &clean, scores).filter(|&w| i > exp && weights.is_none_or(|x| x == w) && !on(w))
        {
            weights = Some(w);
            extras.insert(w);
            clean.insert(i);
        }
    }
    let steps_list = steps.list;
    Ok(Place { product, exp, scored, keys, steps: steps_list, sink, weights, local, clean })
}

/// What a clean value is multiplied by, if it is not made by a matrix product.
fn factor(p: &Program<'_>, i: Index, clean: &BTreeSet<Index>, scores: usize) -> Option<Index> {
    let Some(Op::Binary(b)) = p.op(i) else { return None };
    let (x, y) = (p.values[i].operands[0], p.values[i].operands[1]);
    let other = match (clean.contains(&x), clean.contains(&y)) {
        (true, false) => y,
        (false, true) => x,
        _ => return None,
    };
    let mut top = other;
    while let (Some(Op::Convert(_)), _) | (_, true) = (p.op(top), p.values[top].is_layout()) {
        top = p.values[top].operands[0];
    }
    let made = matches!(p.op(top), Some(Op::DotGeneral(_)));
    (b.kind == BinaryKind::Multiply && !made && p.values[other].ty.elements() == scores).then_some(other)
}

/// What is computed from a product by ops on scores, alone and with a sink beside them (of so many elements), and on
/// their rows.
pub fn local(p: &Program<'_>, product: Index, [scores, wide]: [usize; 2]) -> Result<Vec<Index>, String> {
    let mut local = vec![product];
    let mut todo: BTreeSet<Index> = p.values[product].users.iter().copied().collect();
    let mut seen = BTreeSet::from([product]);
    while let Some(i) = todo.pop_first() {
        let v = &p.values[i];
        let n = v.ty.elements();
        let row = v.operands.iter().any(|o| seen.contains(o) && p.values[*o].ty.elements() < scores);
        let fits =
            n == scores || n == wide || n < scores && (row || matches!(v.op, Some((Op::Reduce(_), _))));
        let joins = wide != scores && n >= scores;
        let kind = v.is_layout()
            || joins && matches!(v.op, Some((Op::Concatenate(_) | Op::Slice(_) | Op::Pad(_), _)))
            || matches!(
                v.op,
                Some((
                    Op::Unary(_)
                        | Op::Binary(_)
                        | Op::Select(_)
                        | Op::Compare(_)
                        | Op::Convert(_)
                        | Op::Reduce(_),
                    _
                ))
            )
            || matches!(v.op, Some((Op::DotGeneral(d), _)) if d.lhs_contract.is_empty());
        if !fits || !kind {
            continue;
        }
        if local.len() >= MAX_LOCAL {
            return Err("too much is computed from one product".into());
        }
        seen.insert(i);
        local.push(i);
        todo.extend(v.users.iter().copied());
    }
    local.sort_unstable();
    Ok(local)
}

struct Steps {
    list: Vec<Step>,
    operands: BTreeSet<Index>,
}

/// The steps from a product to the argument of an exponential, but for what is subtracted from whole rows.
fn steps(
    p: &Program<'_>,
    module: &Module,
    (exp, product, sink): (Index, Index, Option<Sink>),
    on: &dyn Fn(Index) -> bool,
) -> Result<Steps, String> {
    let mut bands = p.bands(module);
    let mut out = Steps { list: Vec::new(), operands: BTreeSet::new() };
    let mut at = p.values[exp].operands[0];
    for _ in 0..MAX_STEPS {
        if at == product {
            out.list.reverse();
            merge_scales(&mut out.list);
            return Ok(out);
        }
        let v = &p.values[at];
        if v.is_layout() {
            at = v.operands[0];
            continue;
        }
        if let Some(s) = sink.filter(|s| s.joined == at) {
            // A sink is rounded as scores are, and nothing else.
            if out.list.iter().any(|s| !matches!(s.kind, ScoreStep::Convert(_))) {
                return Err("scores are changed together with what stands beside them".into());
            }
            out.operands.insert(s.column);
            at = s.scores;
            continue;
        }
        if let Some((next, factor, divided)) = scaled(p, at) {
            if divided && !exact_scale(factor, v.ty.dtype) {
                return Err(format!("a scale of {factor} is divided by in {}", v.ty.dtype.name()));
            }
            out.list.push(Step::plain(ScoreStep::Scale(Scalar::new(factor))));
            at = next;
            continue;
        }
        at = match p.op(at) {
            Some(Op::Convert(Convert::Value(d))) if d.is_float() => {
                out.list.push(Step::plain(ScoreStep::Convert(*d)));
                v.operands[0]
            }
            Some(Op::Unary(u)) if u.kind == UnaryKind::Tanh => {
                out.list.push(Step::plain(ScoreStep::Tanh));
                v.operands[0]
            }
            Some(Op::Unary(u)) if u.kind == UnaryKind::Negate => {
                out.list.push(Step::plain(ScoreStep::Scale(Scalar::new(-1.0))));
                v.operands[0]
            }
            Some(Op::Binary(b)) if matches!(b.kind, BinaryKind::Add | BinaryKind::Subtract) => {
                let (x, y) = (v.operands[0], v.operands[1]);
                match (on(x), on(y)) {
                    // A number per row, subtracted against overflow.
                    (true, true) if is_row(p, y) => x,
                    (true, true) if is_row(p, x) && b.kind == BinaryKind::Add => y,
                    (true, false) if b.kind == BinaryKind::Add => {
                        out.bias(p, &mut bands, y);
                        x
                    }
                    (false, true) if b.kind == BinaryKind::Add => {
                        out.bias(p, &mut bands, x);
                        y
                    }
                    _ => return Err("a sum of the scores with something else than a mask or bias".into()),
                }
            }
            // A scale that is an input.
            Some(Op::Binary(b)) if b.kind == BinaryKind::Multiply => {
                let (x, y) = (v.operands[0], v.operands[1]);
                let (next, factor) = match (on(x), on(y)) {
                    (true, false) => (x, y),
                    (false, true) => (y, x),
                    _ => return Err("a product of scores with scores".into()),
                };
                out.operands.insert(factor);
                out.list.push(Step { kind: ScoreStep::Factor, operand: Some(factor), mask: None });
                next
            }
            Some(Op::Select(Select::Select)) => {
                let (c, x, y) = (v.operands[0], v.operands[1], v.operands[2]);
                let (next, fill, kept) = match (on(x), on(y)) {
                    (true, false) => (x, y, true),
                    (false, true) => (y, x, false),
                    _ => return Err("a selection between scores".into()),
                };
                let fill = p.splat(fill).ok_or("masked scores become something else than one number")?;
                out.mask(&mut bands, c, fill, kept)?;
                next
            }
            other => {
                let name = other.map_or("a parameter", msc_ir::Operation::name);
                return Err(format!(
                    "{name} between the product and the exponential is no step of an attention"
                ));
            }
        };
        if !on(at) {
            return Err("the scores do not come from the product alone".into());
        }
    }
    Err("too many steps between the product and the exponential".into())
}

/// Whether multiplying by a reciprocal is the same as dividing, as far as the type shows.
fn exact_scale(factor: f64, dtype: DType) -> bool {
    let power_of_two = factor.abs().log2().fract() == 0.0;
    power_of_two || !matches!(dtype, DType::BF16 | DType::F16)
}

/// Whether a value is one number per row, spread.
pub fn is_row(p: &Program<'_>, i: Index) -> bool {
    let mut at = i;
    for _ in 0..MAX_CHAIN {
        let v = &p.values[at];
        match v.op {
            Some((Op::Broadcast(_), _)) if p.values[v.operands[0]].ty.elements() < v.ty.elements() => {
                return true;
            }
            Some((Op::Unary(_) | Op::Convert(_), _)) => at = v.operands[0],
            _ if v.is_layout() => at = v.operands[0],
            _ => return false,
        }
    }
    false
}

impl Steps {
    fn bias(&mut self, p: &Program<'_>, bands: &mut Bands<'_, Program<'_>>, bias: Index) {
        self.operands.insert(bias);
        if bands.uniform(bias) == Some(0.0) || p.splat(bias) == Some(0.0) {
            return;
        }
        let band = bands.steps(bias).and_then(|s| Some((s.interval(0.0)?, s.rows, s.cols)));
        self.list.push(match band {
            Some(((lo, hi, fill), rows, cols)) => Step {
                kind: ScoreStep::Band { lo, hi, fill: Scalar::new(fill), add: true },
                operand: None,
                mask: Some((bias, rows, cols)),
            },
            None => Step { kind: ScoreStep::Bias, operand: Some(bias), mask: None },
        });
    }

    fn mask(
        &mut self,
        bands: &mut Bands<'_, Program<'_>>,
        mask: Index,
        fill: f64,
        kept: bool,
    ) -> Result<(), String> {
        self.operands.insert(mask);
        let fill = Scalar::new(fill);
        let inside = f64::from(u8::from(kept));
        if bands.uniform(mask) == Some(inside) {
            return Ok(());
        }
        let band = bands.steps(mask).and_then(|s| Some((s.interval(inside)?, s.rows, s.cols)));
        self.list.push(match band {
            Some(((lo, hi, _), rows, cols)) => Step {
                kind: ScoreStep::Band { lo, hi, fill, add: false },
                operand: None,
                mask: Some((mask, rows, cols)),
            },
            None if kept => Step { kind: ScoreStep::Mask { fill }, operand: Some(mask), mask: None },
            None => return Err("a runtime mask that is true where scores are dropped".into()),
        });
        Ok(())
    }
}

/// Neighbouring scales as one, and none where it is 1.
fn merge_scales(list: &mut Vec<Step>) {
    list.dedup_by(|next, before| match (&next.kind, &mut before.kind) {
        (ScoreStep::Scale(x), ScoreStep::Scale(y)) => {
            *y = Scalar::new(y.get() * x.get());
            true
        }
        _ => false,
    });
    list.retain(|s| s.kind != ScoreStep::Scale(Scalar::new(1.0)));
}
