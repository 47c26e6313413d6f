//! State that is returned wrongly: unchanged, partly, of another parameter, too narrow.

use super::Found;
use super::edit::{Change, make, other};
use super::facts::{Facts, Role, State};
use msc_ir::ops::binary::BinaryKind;

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    let states = f.states();
    let kept = |s: &State| Change::Result(s.result, other(f.graph.params()[s.param]));
    let name = |s: &State| f.subject.entry.results[s.result].name.clone();
    let every = |role: Option<Role>| -> Vec<Change> {
        states.iter().filter(|s| role.is_none_or(|r| s.role == r)).map(kept).collect()
    };
    out.add("state unchanged", "all", every(None));
    out.add("state unchanged", "all weights", every(Some(Role::Weight)));
    out.add("moments unchanged", "all first moments", every(Some(Role::First)));
    out.add("moments unchanged", "all second moments", every(Some(Role::Second)));
    out.add("step count unchanged", "all", every(Some(Role::Counter)));
    for s in &states {
        match s.role {
            Role::Weight => out.add("one weight unchanged", name(s), vec![kept(s)]),
            Role::First | Role::Second => out.add("one moment unchanged", name(s), vec![kept(s)]),
            Role::Counter => {}
            Role::Other => out.add("other state unchanged", name(s), vec![kept(s)]),
        }
        if !matches!(s.role, Role::Weight | Role::First | Role::Second) {
            continue;
        }
        let p = f.graph.params()[s.param];
        let half = make(move |e, v| {
            let old = e.get(p)?;
            let moved = e.op(BinaryKind::Subtract, &[v, old])?;
            let half = e.with(BinaryKind::Multiply, moved, 0.5)?;
            e.op(BinaryKind::Add, &[old, half])
        });
        out.add("half an update", name(s), vec![Change::Result(s.result, half)]);
        let back = make(move |e, v| {
            let old = e.get(p)?;
            let moved = e.op(BinaryKind::Subtract, &[v, old])?;
            e.op(BinaryKind::Subtract, &[old, moved])
        });
        if s.role == Role::Weight {
            out.add("update with the wrong sign", name(s), vec![Change::Result(s.result, back)]);
        }
    }
    for (i, a) in states.iter().enumerate() {
        let alike = |b: &&State| {
            let (pa, pb) = (f.graph.params()[a.param], f.graph.params()[b.param]);
            f.graph.ty(pa) == f.graph.ty(pb) && f.graph.ty(pa).rank() > 0 && f.graph.ty(pa).dtype.is_float()
        };
        if let Some(b) = states[i + 1..].iter().find(alike) {
            let from = |s: &State| other(f.graph.results()[s.result]);
            let swap = vec![Change::Result(a.result, from(b)), Change::Result(b.result, from(a))];
            out.add("two results swapped", format!("{} and {}", name(a), name(b)), swap);
        }
    }
}
