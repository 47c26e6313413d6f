//! Gradient accumulation: a loop over microbatches that carries sums of gradients, as a fact about the loop.
//!
//! Before: any verified module. The module stays as it is: a named operation would be a name for the loop. A loop is
//! reported if every float that it hands on is a plain sum from zero, which nothing in a microbatch sees: then
//! microbatches may run in any order, and apart from each other.

use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::call::{Wire, executions, reachable, wires};
use msc_ir::ops::slice::Slice;
use msc_ir::ops::while_loop::{While, trip_count};
use msc_ir::{Graph, GraphId, LocId, Module, Op, OpId, ValueId};
use std::collections::BTreeSet;

/// Its name where named operations are counted.
pub const NAME: &str = "gradient_accumulation";

/// Calls that a sum is followed through.
const MAX_DEPTH: usize = 16;

/// Values between a sum and the state that it updates.
const MAX_FLOW: usize = 400;

/// A loop over microbatches.
#[derive(Clone, PartialEq, Debug)]
pub struct Accumulation {
    /// The graph that the loop is in.
    pub graph: GraphId,
    /// The loop.
    pub op: OpId,
    /// How many microbatches: the loop's trips.
    pub microbatches: u64,
    /// Which carries are sums.
    pub sums: Vec<Sum>,
    /// Which carries hold all microbatches, of which each trip takes one.
    pub batched: Vec<usize>,
    /// How often a step runs the loop.
    pub executed: u64,
    /// Where the loop comes from.
    pub loc: LocId,
}

/// A carry that is a sum over microbatches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sum {
    /// Which carry.
    pub carry: usize,
    /// Whether state is updated by it, element by element; otherwise it is a loss or another measure.
    pub gradient: bool,
    /// What the sum is divided by after the loop.
    pub divided: Option<f64>,
}

/// A loop that carries a sum, and why it is none over microbatches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// In words.
    pub why: String,
    /// Where the loop comes from.
    pub loc: LocId,
}

/// The loops over microbatches that a module's entries run, and loops that look like one.
pub fn find(module: &Module) -> (Vec<Accumulation>, Vec<Refused>) {
    let graphs = reachable(module);
    let runs = module.entry().map(|e| executions(module, e.graph)).unwrap_or_default();
    let (mut out, mut refused) = (Vec::new(), Vec::new());
    for &graph in &graphs {
        for (op, data) in module.graph(graph).ops() {
            let Op::While(w) = data.op else { continue };
            let Some(trips) = trip_count(module, module.graph(graph), op).filter(|&n| n >= 2) else {
                continue;
            };
            match sums(module, module.graph(graph), op, &w) {
                None => {}
                Some(Err(why)) => refused.push(Refused { why, loc: data.loc }),
                Some(Ok(carries)) => {
                    let flow = Flow { module, graphs: &graphs };
                    let sums: Vec<Sum> = carries
                        .into_iter()
                        .map(|carry| {
                            let v = data.results[carry];
                            let divided = divisor(module, graph, v, 0);
                            Sum { carry, gradient: flow.updates_state(graph, v), divided }
                        })
                        .collect();
                    if sums.iter().any(|s| s.gradient) {
                        let batched = batched(module, &w);
                        let loc = data.loc;
                        let executed = runs.get(&graph).map_or(0, |&n| n as u64);
                        out.push(Accumulation {
                            graph,
                            op,
                            microbatches: trips,
                            sums,
                            batched,
                            executed,
                            loc,
                        });
                    }
                }
            }
        }
    }
    (out, refused)
}

/// The carries that are sums, if all floats that the loop hands on are; `None` if none is.
fn sums(module: &Module, graph: &Graph, op: OpId, w: &While) -> Option<Result<Vec<usize>, String>> {
    let (data, body) = (graph.op(op), module.graph(w.body));
    let handed: Vec<usize> = (0..data.operands.len())
        .filter(|&i| !w.is_invariant(module, i) && graph.ty(data.operands[i]).dtype.is_float())
        .collect();
    let plain = |&i: &usize| is_sum(module, body, body.results()[i], body.params()[i], 0);
    let (sums, others): (Vec<usize>, Vec<usize>) = handed.into_iter().partition(plain);
    if sums.is_empty() {
        return None;
    }
    if let Some(&i) = others.first() {
        let ty = graph.ty(data.operands[i]);
        let rest = others.len() - 1;
        return Some(Err(format!(
            "carry {i}, {ty}, and {rest} others are handed on otherwise than as sums that no trip reads"
        )));
    }
    if let Some(&i) = sums.iter().find(|&&i| splat(module, graph, data.operands[i]) != Some(0.0)) {
        return Some(Err(format!("the sum in carry {i} does not start from zero")));
    }
    // The condition sees the carries too.
    let cond = module.graph(w.cond);
    let seen = sums.iter().find(|&&i| !cond.value(cond.params()[i]).uses.is_empty());
    if let Some(&i) = seen {
        return Some(Err(format!("the loop ends by the sum in carry {i}")));
    }
    Some(Ok(sums))
}

/// Whether `v` is `param` plus something, and `param` and what leads to `v` are used for nothing else.
fn is_sum(module: &Module, g: &Graph, v: ValueId, param: ValueId, depth: usize) -> bool {
    let given = g.results().iter().filter(|&&r| r == v).count();
    let inner = v != param && g.value(param).uses.len() == 1 && !g.results().contains(&param);
    inner && given == 1 && g.value(v).uses.is_empty() && adds(module, g, v, param, depth)
}

fn adds(module: &Module, g: &Graph, v: ValueId, param: ValueId, depth: usize) -> bool {
    let Some((op, index)) = g.def(v).filter(|_| depth < MAX_DEPTH) else { return false };
    let data = g.op(op);
    match &data.op {
        Op::Binary(b) if b.kind == BinaryKind::Add => {
            let leads = |o: ValueId| {
                let alone = g.value(o).uses.len() == 1 && !g.results().contains(&o);
                o == param || alone && adds(module, g, o, param, depth + 1)
            };
            // Whichever of the two it is, `param` has one use: the other does not depend on it.
            data.operands.iter().any(|&o| leads(o))
        }
        Op::Call(c) => {
            let callee = module.graph(c.graph);
            let at = data.operands.iter().position(|&o| o == param);
            at.is_some_and(|at| {
                let (r, p) = (callee.results()[index as usize], callee.params()[at]);
                is_sum(module, callee, r, p, depth + 1)
            })
        }
        _ => false,
    }
}

/// The one value of all elements of a constant, through layout.
fn splat(module: &Module, g: &Graph, mut v: ValueId) -> Option<f64> {
    loop {
        let data = g.op(g.def(v)?.0);
        match &data.op {
            Op::Constant(c) => return module.constants.splat_value(c.id),
            Op::Broadcast(_) | Op::Reshape(_) => v = *data.operands.first()?,
            _ => return None,
        }
    }
}

/// What a value is divided by, if by one literal and nothing else is made of it.
fn divisor(module: &Module, graph: GraphId, v: ValueId, depth: usize) -> Option<f64> {
    let g = module.graph(graph);
    let [u] = g.value(v).uses.as_slice() else { return None };
    let data = g.op(u.op);
    let at = data.operands.iter().position(|&o| o == v)?;
    match &data.op {
        Op::Binary(b) => {
            let other = splat(module, g, *data.operands.get(1 - at.min(1))?)?;
            match b.kind {
                BinaryKind::Divide if at == 0 => Some(other),
                BinaryKind::Multiply if other != 0.0 => Some(1.0 / other),
                _ => None,
            }
        }
        Op::Call(c) if depth < MAX_DEPTH => {
            divisor(module, c.graph, module.graph(c.graph).params()[at], depth + 1)
        }
        _ => None,
    }
}

/// The carries of which a trip takes a slice by something that changes from trip to trip.
fn batched(module: &Module, w: &While) -> Vec<usize> {
    let body = module.graph(w.body);
    let takes_part = |i: &usize| {
        let p = body.params()[*i];
        w.is_invariant(module, *i) && !body.value(p).uses.is_empty() && is_sliced(module, body, p, 0)
    };
    (0..body.params().len()).filter(takes_part).collect()
}

/// Whether all that is made of a value are slices at places that are computed.
fn is_sliced(module: &Module, g: &Graph, v: ValueId, depth: usize) -> bool {
    g.value(v).uses.iter().all(|u| {
        let data = g.op(u.op);
        match &data.op {
            Op::Slice(Slice::Dynamic { .. }) => {
                data.operands.first() == Some(&v)
                    && data.operands[1..].iter().any(|&s| splat(module, g, s).is_none())
            }
            Op::Call(c) if depth < MAX_DEPTH => {
                let callee = module.graph(c.graph);
                let mut at = (0..data.operands.len()).filter(|&i| data.operands[i] == v);
                at.all(|i| is_sliced(module, callee, callee.params()[i], depth + 1))
            }
            _ => false,
        }
    })
}

/// Where values go.
struct Flow<'m> {
    module: &'m Module,
    graphs: &'m [GraphId],
}

impl Flow<'_> {
    /// Whether the entry's state, or where there is none a result of a parameter's type, is made of a value element by
    /// element.
    fn updates_state(&self, graph: GraphId, v: ValueId) -> bool {
        let n = self.module.graph(graph).ty(v).elements();
        let Ok(entry) = self.module.entry() else { return false };
        let is_state = |result: usize, v: ValueId| {
            let g = self.module.graph(entry.graph);
            let mut params = entry.params.iter().zip(g.params());
            match entry.params.iter().any(|p| p.alias.is_some()) {
                true => params.any(|(p, _)| p.alias == Some(result as u32)),
                false => params.any(|(_, &p)| g.ty(p) == g.ty(v) && g.ty(p).rank() > 0),
            }
        };
        let mut seen = BTreeSet::from([(graph, v)]);
        let mut todo = vec![(graph, v)];
        while let Some((id, v)) = todo.pop() {
            let g = self.module.graph(id);
            let given: Vec<usize> = (0..g.results().len()).filter(|&r| g.results()[r] == v).collect();
            if id == entry.graph && given.iter().any(|&r| is_state(r, v)) {
                return true;
            }
            let mut next: Vec<(GraphId, ValueId)> = Vec::new();
            for u in &g.value(v).uses {
                let data = g.op(u.op);
                let inner = wires(&data.op);
                if inner.is_empty() {
                    next.extend(data.results.iter().map(|&r| (id, r)));
                }
                for w in inner {
                    let at = data.operands.iter().enumerate().filter(|(_, o)| **o == v).map(|(i, _)| i);
                    let params = at.filter_map(|i| {
                        let i = i.checked_sub(w.first_operand)?;
                        self.module.graph(w.graph).params().get(i).copied()
                    });
                    next.extend(params.map(|p| (w.graph, p)));
                }
            }
            next.extend(given.iter().flat_map(|&r| self.outside(id, r)));
            for (g, v) in next {
                let same = self.module.graph(g).ty(v).elements() == n;
                if same && seen.len() < MAX_FLOW && seen.insert((g, v)) {
                    todo.push((g, v));
                }
            }
        }
        false
    }

    /// The values that a result of a graph is where the graph runs.
    fn outside(&self, graph: GraphId, result: usize) -> Vec<(GraphId, ValueId)> {
        let mut out = Vec::new();
        for &id in self.graphs {
            for (_, data) in self.module.graph(id).ops() {
                let runs = |w: &Wire| w.graph == graph && w.results;
                if wires(&data.op).iter().any(runs) {
                    out.extend(data.results.get(result).map(|&v| (id, v)));
                }
            }
        }
        out
    }
}

impl Accumulation {
    /// The number that all sums of gradients are divided by; `None` if they differ, or are not divided.
    pub fn divided(&self) -> Option<f64> {
        let mut all = self.sums.iter().filter(|s| s.gradient).map(|s| s.divided);
        let first = all.next()??;
        all.all(|d| d == Some(first)).then_some(first)
    }

    /// How many of the carries are gradients.
    pub fn gradients(&self) -> usize {
        self.sums.iter().filter(|s| s.gradient).count()
    }

    /// A sentence for people.
    pub fn describe(&self) -> String {
        let (n, all) = (self.gradients(), self.sums.len());
        let divided = match self.divided() {
            Some(d) => format!("divided by {d} after the loop"),
            None => "not divided by one number after the loop".into(),
        };
        let rest = match all - n {
            0 => String::new(),
            1 => ", beside 1 other sum".into(),
            more => format!(", beside {more} other sums"),
        };
        format!("{} microbatches, {n} gradients summed and {divided}{rest}", self.microbatches)
    }
}
