//! Tokens that go to the slots of experts by masks, and back, as a probe: a number of a slot that is compared with all
//! slots of an expert, and products with what is made of that.
//!
//! Which slot a token has, by a running count of those before it, stays what it is in the program; the masks of tokens
//! by experts by slots do not.

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{Bound, Found, Solved, add_fused, operand, operands, results, solve};
use crate::recognise::probe::indexed::Indexed;
use crate::recognise::probe::one_hot::{behind_layout, one_hot};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::trial::Trial;
use crate::recognise::probe::unite::unite;
use msc_ir::factor::solve::AtomList;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::{FusedKind, Slots};
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::slice::Slice;
use msc_ir::{Module, Monoid, Op};

/// Masks that are made of one comparison; exporters have up to ten.
const MAX_MASKS: usize = 40;

/// Looks for masks of slots in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let program = Program::new(graph, region);
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for is in 0..program.values.len() {
        for site in sites(&program, is) {
            match decide(&program, &graph.analysis.module, &site) {
                Ok(f) => found.push(f),
                Err(why) => refused.push((site.role.rule(), site.outputs[0], why)),
            }
        }
    }
    for f in found {
        if let Err(why) = unite(graph, region, &program, &f, None, run) {
            refused.push((f.rule, f.outputs[0].value, why.to_string()));
        }
    }
    for (rule, at, why) in refused {
        run.refuse(rule, why, Some(program.values[at].at));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Dispatch,
    DispatchGrad,
    Combine,
    CombineGrad,
}

impl Role {
    fn rule(self) -> &'static str {
        match self {
            Role::Dispatch => "moe-dispatch",
            Role::DispatchGrad => "moe-dispatch-grad",
            Role::Combine => "moe-combine",
            Role::CombineGrad => "moe-combine-grad",
        }
    }

    fn kind(self, slots: Slots) -> FusedKind {
        match self {
            Role::Dispatch => FusedKind::MoeDispatch(slots),
            Role::DispatchGrad => FusedKind::MoeDispatchGrad(slots),
            Role::Combine => FusedKind::MoeCombine(slots),
            Role::CombineGrad => FusedKind::MoeCombineGrad(slots),
        }
    }
}

/// What is made of the comparison.
#[derive(Clone, Copy, Debug)]
struct Mask {
    value: Index,
    /// By which shares it is multiplied.
    share: Option<Index>,
    /// Whether only their not being zero is left of them.
    bits: bool,
}

/// A product with a mask.
struct Site {
    role: Role,
    /// The comparison, and its dimension of slots.
    is: Index,
    along: usize,
    slot: Index,
    share: Option<Index>,
    /// The mask that is multiplied, and its dimensions that the product goes over, and those that it keeps apart.
    mask: Index,
    contract: Vec<usize>,
    batch: Vec<usize>,
    /// What it is multiplied with, and for the gradient of shares the slots' results.
    other: Index,
    inside: Option<Index>,
    /// Results, in the op's order.
    outputs: Vec<Index>,
}

fn masks(p: &Program<'_>, is: Index) -> Vec<Mask> {
    let mut out = vec![Mask { value: is, share: None, bits: false }];
    let mut at = 0;
    while let Some(&m) = out.get(at) {
        at += 1;
        for &u in &p.values[m.value].users {
            let &[a, ref rest @ ..] = p.values[u].operands.as_slice() else { continue };
            let b = rest.first().copied();
            let next = match p.op(u) {
                Some(Op::Convert(Convert::Value(_)) | Op::Slice(Slice::Static { .. })) => Some(m),
                Some(Op::Compare(c)) if c.direction == Direction::Ne => {
                    let zero = a == m.value && b.is_some_and(|b| p.splat(b) == Some(0.0));
                    zero.then_some(Mask { bits: m.share.is_some(), ..m })
                }
                Some(Op::Binary(x)) if x.kind == BinaryKind::Multiply && m.share.is_none() => {
                    let other = if a == m.value { b } else { Some(a) };
                    let share = other.map(|o| behind_layout(p, o));
                    let small = |s: &Index| {
                        p.values[*s].ty.elements() < p.values[u].ty.elements() && p.splat(*s).is_none()
                    };
                    share.filter(small).map(|s| Mask { share: Some(s), ..m })
                }
                _ if p.values[u].is_layout() => Some(m),
                _ => None,
            };
            if let Some(next) = next
                && out.len() < MAX_MASKS
                && !out.iter().any(|o| o.value == u)
            {
                out.push(Mask { value: u, ..next });
            }
        }
    }
    out
}

/// The products with masks that are made of a comparison of slots.
fn sites(p: &Program<'_>, is: Index) -> Vec<Site> {
    let Some((along, slot)) = one_hot(p, is) else { return Vec::new() };
    let masks = masks(p, is);
    let mut out: Vec<Site> = Vec::new();
    for m in &masks {
        for &u in &p.values[m.value].users {
            let Some(Op::DotGeneral(d)) = p.op(u) else { continue };
            let (l, r) = (p.values[u].operands[0], p.values[u].operands[1]);
            let (other, contract, batch) = match l == m.value {
                true => (r, &d.lhs_contract, &d.lhs_batch),
                false => (l, &d.rhs_contract, &d.rhs_batch),
            };
            // Experts and slots, or tokens.
            let shared = m.share.is_some() && !m.bits;
            let role = match (contract.len() > 1, shared) {
                (false, false) => Role::Dispatch,
                (true, false) => Role::DispatchGrad,
                (true, true) => Role::Combine,
                (false, true) => Role::CombineGrad,
            };
            let mut site = Site {
                role,
                is,
                along,
                slot,
                share: m.share,
                mask: m.value,
                contract: contract.to_vec(),
                batch: batch.to_vec(),
                other,
                inside: None,
                outputs: vec![u],
            };
            if role == Role::CombineGrad {
                let Some((inside, d_share)) = shares_gradient(p, &masks, other) else { continue };
                site.inside = Some(inside);
                site.outputs.push(d_share);
            }
            out.push(site);
        }
    }
    out
}

/// What a value is padded with.
fn padding(p: &Program<'_>, i: Index) -> Option<f64> {
    p.splat(*p.values[i].operands.get(1)?)
}

/// The gradient of the shares: what slots hold times the tokens' gradient `dy`, summed where a token has the slot.
fn shares_gradient(p: &Program<'_>, masks: &[Mask], dy: Index) -> Option<(Index, Index)> {
    for m in masks.iter().filter(|m| m.share.is_none()) {
        for &u in &p.values[m.value].users {
            let &[a, b] = p.values[u].operands.as_slice() else { continue };
            let mut worth = behind_layout(p, if a == m.value { b } else { a });
            // Zeros where the number of no slot was cut off.
            if let (Some(Op::Pad(_)), Some(0.0)) = (p.op(worth), padding(p, worth)) {
                worth = behind_layout(p, p.values[worth].operands[0]);
            }
            let product = matches!(p.op(u), Some(Op::Binary(x)) if x.kind == BinaryKind::Multiply);
            let (true, Some(Op::DotGeneral(_))) = (product, p.op(worth)) else { continue };
            let &[l, r] = p.values[worth].operands.as_slice() else { continue };
            let (l, r) = (behind_layout(p, l), behind_layout(p, r));
            let wanted = behind_layout(p, dy);
            let inside = match (l == wanted, r == wanted) {
                (true, false) => r,
                (false, true) => l,
                _ => continue,
            };
            let sum = p.values[u].users.iter().copied().find(
                |&s| matches!(p.op(s), Some(Op::Reduce(Reduce { monoid: Monoid::Sum, dims })) if dims.len() == 1),
            );
            if let Some(sum) = sum {
                return Some((inside, sum));
            }
        }
    }
    None
}

/// The atoms of tokens and slots.
struct Dims {
    groups: AtomList,
    tokens: AtomList,
    experts: AtomList,
    slots: AtomList,
    width: AtomList,
}

fn dims(solved: &Solved, site: &Site, other: Index) -> Option<Dims> {
    let slot = solved.all(site.slot)?;
    let mask = solved.dims(site.mask)?;
    let of = |dims: &[usize]| -> AtomList { dims.iter().flat_map(|&d| mask[d].iter().copied()).collect() };
    let (contract, groups) = (of(&site.contract), of(&site.batch));
    let both =
        |a: &AtomList, b: &AtomList| -> AtomList { a.iter().copied().filter(|x| b.contains(x)).collect() };
    let without =
        |a: &AtomList, b: &AtomList| -> AtomList { a.iter().copied().filter(|x| !b.contains(x)).collect() };
    let slots = without(&mask.iter().flatten().copied().collect(), &slot);
    let own = without(&slot, &groups);
    let (tokens, experts) = match site.role {
        Role::Dispatch | Role::CombineGrad => (both(&own, &contract), without(&own, &contract)),
        Role::DispatchGrad | Role::Combine => (without(&own, &contract), both(&own, &contract)),
    };
    let width = without(&without(&solved.all(other)?, &slot), &slots);
    Some(Dims { groups, tokens, experts, slots, width })
}

fn decide(p: &Program<'_>, module: &Module, site: &Site) -> Result<Found, String> {
    let mut why = String::new();
    for first in [1, 0] {
        match tried(p, module, site, first) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => why = "it computes something else than the program".into(),
            Err(e) => return Err(e),
        }
    }
    Err(why)
}

fn tried(p: &Program<'_>, module: &Module, site: &Site, first: usize) -> Result<Option<Found>, String> {
    let mut scratch = Module::new("trial");
    let mut params: Vec<Index> = vec![behind_layout(p, site.other)];
    params.extend(site.inside);
    let slot_at = params.len();
    params.push(site.slot);
    params.extend(site.share);
    let mut all = site.outputs.clone();
    all.extend([site.is, site.mask]);
    let mut solved = solve(p, module, &mut scratch, &params, &all)?;
    let made: Vec<_> = site.outputs.iter().map(|o| solved.slice.made[o]).collect();
    solved.slice.graph.set_results(made);
    let d = dims(&solved, site, params[0]).ok_or("a value without dimensions")?;
    let numbers = solved.dims(site.is).ok_or("no comparison")?[site.along].clone();
    let &[along] = numbers.as_slice() else { return Err("slots are several dimensions".into()) };
    solved.slice.kept.extend(d.slots.iter().copied().chain([along]));
    for all in [&d.groups, &d.tokens, &d.experts, &d.width] {
        solved.slice.few.extend(all);
    }
    // Behind a padding, the slots that hold something are no longer tied to those of the masks.
    let held = match site.inside {
        Some(i) => {
            let known = [&d.groups, &d.tokens, &d.experts, &d.width];
            let all = solved.all(i).ok_or("a value without dimensions")?;
            all.into_iter().filter(|a| !known.iter().any(|list| list.contains(a))).collect()
        }
        None => d.slots.clone(),
    };
    solved.slice.kept.extend(held.iter().copied());
    let slots = d.slots.iter().map(|&a| solved.atoms.size(a)).product();
    let list = |all: &[&AtomList]| -> Vec<AtomList> { all.iter().map(|&a| a.clone()).collect() };
    let tokens = list(&[&d.groups, &d.tokens, &d.width]);
    let inside = list(&[&d.groups, &d.experts, &d.slots, &d.width]);
    let chosen = list(&[&d.groups, &d.tokens, &d.experts]);
    let (other, outputs): (_, Vec<(&'static str, &Vec<AtomList>)>) = match site.role {
        Role::Dispatch => (("x", &tokens), vec![("inside", &inside)]),
        Role::DispatchGrad => (("d_inside", &inside), vec![("dx", &tokens)]),
        Role::Combine => (("inside", &inside), vec![("y", &tokens)]),
        Role::CombineGrad => (("dy", &tokens), vec![("d_inside", &inside), ("d_share", &chosen)]),
    };
    let bound = |name, param: Index, dims: &Vec<AtomList>| Bound {
        name,
        param,
        aliases: vec![param],
        dims: dims.clone(),
    };
    let mut bounds = vec![bound(other.0, params[0], other.1)];
    let given = list(&[&d.groups, &d.experts, &held, &d.width]);
    bounds.extend(site.inside.map(|i| bound("inside", i, &given)));
    bounds.push(bound("slot", site.slot, &chosen));
    bounds.extend(site.share.map(|s| bound("share", s, &chosen)));
    let weighted = matches!(site.role, Role::Dispatch | Role::DispatchGrad) && site.share.is_some();
    let kind = site.role.kind(Slots { slots, first, weighted });
    let indices = [Indexed { param: slot_at, along }];
    let trial = Trial { slice: &solved.slice, atoms: &solved.atoms, edges: &[], seed: 0x736c_6f74 };
    let holds = trial.run_indexed(&mut scratch, &indices, &mut |scratch, size, types| {
        let mut g = msc_ir::Graph::new("named");
        let args = operands(&mut g, scratch, &solved, &bounds, size, types)?;
        let made = add_fused(&mut g, scratch, kind.clone(), &args)?;
        let of = |n: usize| (made[n], outputs[n].1);
        let results = results(&mut g, scratch, &solved, size, &site.outputs, of)?;
        g.set_results(results);
        Ok(g)
    })?;
    if holds.contains(&false) {
        return Ok(None);
    }
    let args = bounds.iter().map(|b| operand(p, &solved, b)).collect::<Result<Vec<_>, _>>()?;
    let mut found =
        Found { rule: site.role.rule(), kind, operands: args, given: Vec::new(), outputs: Vec::new() };
    for (n, (&value, (name, from))) in site.outputs.iter().zip(&outputs).enumerate() {
        let out = solved.output(name, n as u32, value, from);
        found.outputs.push(out.ok_or("a result has other dimensions")?);
    }
    Ok(Some(found))
}
