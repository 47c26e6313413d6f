//! The order of sorted choices, and what is computed from it element by element.

use crate::recognise::probe::found::{Found, Operand, Output, closed};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::rules::route::is_index;
use msc_ir::interp::{self, Mode};
use msc_ir::ops::compare::Direction;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::select::Select;
use msc_ir::{DType, GraphId, Module, Monoid, Op, Tensor, TensorType, ValueDef};
use std::collections::{BTreeMap, BTreeSet};

/// Values that are computed from one order element by element; exporters have up to thirty.
const MAX_DERIVED: usize = 120;

/// Choices whose order is computed for all places: beyond it that takes longer than all the rest.
const MAX_CHOICES: usize = 1 << 20;

/// Elements of the largest value on the way to the sizes of runs.
const MAX_COUNTED: usize = 1 << 22;

/// What a vector of indices is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vector {
    /// For each place of the order the choice that is there.
    Order,
    /// For each place of the order the token of the choice that is there.
    Token,
    /// For each choice its place.
    Place,
}

/// Choices in the order of their experts.
pub(super) struct Sorted {
    /// The choices, and how many experts there are.
    ids: Index,
    experts: usize,
    pub order: Index,
    /// All values that are the order, its inverse, or the numbers of choices.
    orders: Vec<Index>,
    places: Vec<Index>,
    sizes: Option<Index>,
    /// Choices of all tokens, and of one.
    pub all: usize,
    pub chosen: usize,
    /// Vectors of as many elements as there are choices.
    pub vectors: BTreeMap<Index, Vector>,
    /// Conditions on indices that hold for all of them.
    pub always: BTreeSet<Index>,
}

impl Sorted {
    pub fn tokens(&self) -> usize {
        self.all / self.chosen
    }

    /// The sort as a named operation.
    pub fn found(&self) -> Found {
        let output = |name, result, value| Output { name, result, value, ops: Vec::new() };
        let mut outputs: Vec<Output> = self.orders.iter().map(|&v| output("order", 0, v)).collect();
        outputs.extend(self.places.iter().map(|&v| output("place", 1, v)));
        outputs.extend(self.sizes.map(|v| output("sizes", 2, v)));
        Found {
            rule: "moe-sort",
            kind: FusedKind::MoeSort { experts: self.experts },
            operands: vec![Operand {
                name: "i",
                value: self.ids,
                ops: Vec::new(),
                cut: (self.ids, Vec::new()),
            }],
            given: Vec::new(),
            outputs,
        }
    }
}

/// Whether a comparator says that its first operand is the smaller.
fn is_ascending(module: &Module, comparator: GraphId) -> bool {
    let g = module.graph(comparator);
    let (&[r], &[a, b, ..]) = (g.results(), g.params()) else { return false };
    match g.value(r).def {
        ValueDef::Result(op, _) => {
            let data = g.op(op);
            let straight = data.operands.as_slice() == [a, b];
            let turned = data.operands.as_slice() == [b, a];
            matches!(&data.op, Op::Compare(c) if c.direction == Direction::Lt && straight
                || c.direction == Direction::Gt && turned)
        }
        ValueDef::Param(_) => false,
    }
}

/// The operand of which a value is where each element comes in ascending order, those that are equal as they were.
fn sorted_by(p: &Program<'_>, module: &Module, i: Index) -> Option<Index> {
    let Some((Op::Sort(sort), 1)) = p.values[i].op else { return None };
    let &[keys, places] = p.values[i].operands.as_slice() else { return None };
    let ty = p.values[keys].ty;
    let fits = ty.rank() == 1 && ty.dtype.is_int() && sort.stable && is_index(p, places, 0);
    (fits && is_ascending(module, sort.comparator)).then_some(keys)
}

/// Whether an op leaves the elements of its operand where they are, in row-major order.
fn keeps_order(p: &Program<'_>, i: Index) -> bool {
    let v = &p.values[i];
    let same = |d: &Index| p.values[*d].ty.elements() == v.ty.elements();
    match p.op(i) {
        Some(Op::Reshape(_)) => true,
        Some(Op::Broadcast(b)) => b.dims.is_sorted() && v.operands.first().is_some_and(same),
        _ => false,
    }
}

/// What a value is in another shape, or as other integers.
fn behind(p: &Program<'_>, mut i: Index) -> Index {
    let is_int = |i: Index| p.values[i].ty.dtype.is_int();
    while let Some(&from) = p.values[i].operands.first() {
        let converted = matches!(p.op(i), Some(Op::Convert(Convert::Value(_)))) && is_int(i) && is_int(from);
        if !keeps_order(p, i) && !converted {
            break;
        }
        i = from;
    }
    i
}

/// Everything that is computed from a vector element by element, and from nothing else, for the vector `0, 1, 2, …`.
fn derived(p: &Program<'_>, module: &Module, from: Index) -> Result<Vec<(Index, Vec<f64>)>, String> {
    let n = p.values[from].ty.elements();
    let mut all = BTreeSet::from([from]);
    let mut todo = vec![from];
    while let Some(i) = todo.pop() {
        for &u in &p.values[i].users {
            let v = &p.values[u];
            let each = match p.op(u) {
                Some(Op::Binary(_) | Op::Unary(_) | Op::Compare(_) | Op::Select(Select::Select)) => true,
                Some(Op::Convert(Convert::Value(d))) => !d.is_float(),
                _ => keeps_order(p, u),
            };
            let alone = |o: &Index| all.contains(o) || p.splat(*o).is_some();
            let fits = each && v.ty.elements() == n && !v.ty.dtype.is_float();
            if fits && v.operands.iter().all(alone) && all.len() < MAX_DERIVED && all.insert(u) {
                todo.push(u);
            }
        }
    }
    let all: Vec<Index> = all.into_iter().collect();
    let counted: Vec<f64> = (0..n).map(|j| j as f64).collect();
    let values = run(p, module, from, &all, &Tensor::from_f64s(p.values[from].ty, &counted))?;
    Ok(all.into_iter().zip(values).collect())
}

/// What `outputs` are where `param` is `value`.
fn run(
    p: &Program<'_>,
    module: &Module,
    param: Index,
    outputs: &[Index],
    value: &Tensor,
) -> Result<Vec<Vec<f64>>, String> {
    let mut scratch = Module::new("order");
    let slice = p.slice(module, &mut scratch, &[param], outputs);
    let slice = slice.map_err(|i| format!("{} is computed from more than the choices", p.values[i].ty))?;
    let graph = scratch.add_graph(slice.graph);
    let made = interp::run(&scratch, graph, std::slice::from_ref(value), Mode::Spec);
    Ok(made.map_err(|e| e.to_string())?.iter().map(|t| t.data.to_f64s()).collect())
}

/// The choices that `order` sorts, if it sorts choices of experts.
///
/// # Errors
/// In words, if it does and is none that can be told.
pub(super) fn sorted(
    p: &Program<'_>,
    module: &Module,
    choices: &BTreeMap<Index, usize>,
    order: Index,
) -> Option<Result<Sorted, String>> {
    let ids = behind(p, sorted_by(p, module, order)?);
    let &experts = choices.get(&ids)?;
    let (all, chosen) = (p.values[ids].ty.elements(), p.values[ids].ty.shape.last().copied()?);
    let ty = TensorType::new(DType::I32, [all]);
    if *p.values[order].ty != ty {
        return Some(Err("the order is no vector of i32".into()));
    }
    if all > MAX_CHOICES {
        return Some(Err(format!("{all} choices are too many to follow their order")));
    }
    let mut s = Sorted {
        ids,
        experts,
        order,
        orders: vec![order],
        places: Vec::new(),
        sizes: sizes(p, module, ids, experts),
        all,
        chosen,
        vectors: BTreeMap::new(),
        always: BTreeSet::new(),
    };
    Some(s.follow(p, module).map(|()| s))
}

impl Sorted {
    /// Finds all that is computed from the order, and from its inverse.
    fn follow(&mut self, p: &Program<'_>, module: &Module) -> Result<(), String> {
        self.take(derived(p, module, self.order)?, [Vector::Order, Vector::Token]);
        let ty = p.values[self.order].ty;
        // The inverse of the inverse is the order.
        for i in self.order + 1..p.values.len() {
            if p.values[i].ty != ty {
                continue;
            }
            let of = sorted_by(p, module, i).map(|keys| behind(p, keys)).or_else(|| scattered(p, i));
            match of.and_then(|v| self.vectors.get(&v)) {
                Some(Vector::Order) => {
                    self.places.push(i);
                    self.take(derived(p, module, i)?, [Vector::Place; 2]);
                }
                Some(Vector::Place) => {
                    self.orders.push(i);
                    self.take(derived(p, module, i)?, [Vector::Order, Vector::Token]);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, derived: Vec<(Index, Vec<f64>)>, [same, token]: [Vector; 2]) {
        for (i, values) in derived {
            let is = |f: &dyn Fn(usize) -> usize| values.iter().enumerate().all(|(j, &v)| v == f(j) as f64);
            if is(&|j| j) {
                self.vectors.insert(i, same);
            } else if token == Vector::Token && is(&|j| j / self.chosen) {
                self.vectors.insert(i, token);
            } else if is(&|_| 1) {
                self.always.insert(i);
            }
        }
    }
}

/// The indices at which a value has its places: it is the inverse of the order that they are.
fn scattered(p: &Program<'_>, i: Index) -> Option<Index> {
    let Some(Op::Scatter(s)) = p.op(i) else { return None };
    let &[base, at, places] = p.values[i].operands.as_slice() else { return None };
    let combines = s.combine.is_none() || s.combine == Some(Monoid::Sum) && p.splat(base) == Some(0.0);
    let plain = s.inserted_window_dims.as_slice() == [0]
        && s.scatter_dims_to_operand_dims.as_slice() == [0]
        && s.update_window_dims.is_empty()
        && s.index_vector_dim == 1;
    (combines && plain && is_index(p, places, 0)).then_some(at)
}

/// How many choices each expert has, where the program counts them.
fn sizes(p: &Program<'_>, module: &Module, ids: Index, experts: usize) -> Option<Index> {
    let ty = TensorType::new(DType::I32, [experts]);
    let mut seen = BTreeSet::from([ids]);
    let mut todo = vec![ids];
    let mut candidates = Vec::new();
    while let Some(i) = todo.pop() {
        for &u in &p.values[i].users {
            let v = &p.values[u];
            let small = !v.ty.dtype.is_float() && v.ty.elements() <= MAX_COUNTED;
            if small && seen.len() < MAX_DERIVED && seen.insert(u) {
                match *v.ty == ty {
                    true => candidates.push(u),
                    false => todo.push(u),
                }
            }
        }
    }
    let n = p.values[ids].ty.elements();
    // Uneven, with experts that nobody chose.
    let draws = [1, 3].map(|step| (0..n).map(|j| (j * j + step * j / 2) % experts).collect::<Vec<_>>());
    candidates.into_iter().filter(|&c| closed(p, &[ids], c)).find(|&c| {
        draws.iter().all(|draw| {
            let data: Vec<f64> = draw.iter().map(|&e| e as f64).collect();
            let made = run(p, module, ids, &[c], &Tensor::from_f64s(p.values[ids].ty, &data));
            let count = |e: usize| draw.iter().filter(|&&d| d == e).count() as f64;
            made.is_ok_and(|m| m[0].iter().enumerate().all(|(e, &v)| v == count(e)))
        })
    })
}
