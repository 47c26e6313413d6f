//! Loops that leave out an iteration: a layer, or a microbatch.

use super::Found;
use super::edit::{Change, make, splat};
use super::facts::Facts;
use msc_ir::op::Op;
use msc_ir::ops::while_loop::trip_count;

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    for (id, d) in f.ops() {
        let Op::While(w) = &d.op else { continue };
        let Some(n) = trip_count(&f.subject.module, f.graph, id).filter(|&n| n > 1) else { continue };
        // The counter is the carry that decides.
        let cond = Facts::new(f.subject, w.cond);
        let Some((_, compare)) = cond.root_def(cond.graph.results()[0]) else { continue };
        let counter =
            cond.graph.params().iter().position(|&p| compare.operands.iter().any(|&o| cond.root(o) == p));
        let Some(counter) = counter else { continue };
        let Some(first) = f.scalar(d.operands[counter]) else { continue };
        let skipped = Change::Operand(id, counter, splat(first + 1.0));
        out.add("first iteration lost", format!("of {n}"), vec![skipped]);
        for (i, &r) in d.results.iter().enumerate() {
            let ty = f.graph.ty(r);
            if i != counter && ty.dtype.is_float() && ty.rank() > 0 && !w.is_invariant(&f.subject.module, i) {
                let init = d.operands[i];
                out.add(
                    "a loop's result lost",
                    format!("%{}", r.0),
                    vec![Change::Value(r, make(move |e, _| e.get(init)))],
                );
            }
        }
    }
}
