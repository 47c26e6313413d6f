//! Tokens sorted by the experts that they choose, and back (Gale et al., "MegaBlocks").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Divide, Multiply};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::gather::Gather;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::sort::Sort;
use msc_ir::{DType, Graph, GraphId, IrError, LocId, Module, Monoid, Result, Shape, TensorType, ValueId};

fn misfit(name: &str, types: &[TensorType]) -> IrError {
    IrError::ty(name, format!("{types:?} are no tokens and choices of experts"))
}

/// The comparator of an ascending sort of `dtype` that carries `i32` along.
fn ascending(module: &mut Module, dtype: DType) -> Result<GraphId> {
    let mut g = Graph::new("ascending");
    let pair = [dtype, dtype, DType::I32, DType::I32].map(|d| g.add_param(TensorType::scalar(d)));
    let less = Compare { direction: Direction::Lt, total_order: false };
    let r = g.add1(module, less, &pair[..2], LocId::UNKNOWN)?;
    g.set_results(vec![r]);
    Ok(module.add_graph(g))
}

fn is_order(ty: &TensorType, of: usize) -> bool {
    ty.dtype == DType::I32 && ty.shape.as_slice() == [of]
}

/// How often `n` rows go into `m`, if they do.
fn times(m: usize, n: usize) -> Option<usize> {
    (n > 0 && m > 0 && m.is_multiple_of(n)).then(|| m / n)
}

impl Definition<'_> {
    /// Where in ascending order each element was.
    fn order(&mut self, v: ValueId, comparator: GraphId) -> Result<ValueId> {
        let places = self.op(Iota { ty: self.ty(v).with_dtype(DType::I32), dim: 0 }, &[])?;
        let sort = Sort { dim: 0, stable: true, comparator };
        Ok(self.graph.add(self.module, sort, &[v, places], LocId::UNKNOWN)?[1])
    }

    /// `x[N,D], i[M] → [M,D]`.
    fn rows(&mut self, x: ValueId, i: ValueId) -> Result<ValueId> {
        let width = self.ty(x).shape[1];
        let gather = Gather {
            offset_dims: Shape::from_slice(&[1]),
            collapsed_slice_dims: Shape::from_slice(&[0]),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            start_index_map: Shape::from_slice(&[0]),
            index_vector_dim: 1,
            slice_sizes: Shape::from_slice(&[1, width]),
        };
        self.op(gather, &[x, i])
    }

    /// `[M,D] → [N,k,D]`.
    fn by_token(&mut self, v: ValueId, chosen: usize) -> Result<ValueId> {
        let &[m, d] = self.ty(v).shape.as_slice() else { return Err(misfit("by_token", &[self.ty(v)])) };
        self.op(Reshape { shape: Shape::from_slice(&[m / chosen, chosen, d]) }, &[v])
    }
}

/// `i[…] → order[M], place[M], sizes[E]`.
///
/// # Errors
/// If the type is none of choices.
pub fn sort(module: &mut Module, types: &[TensorType], experts: usize) -> Result<Graph> {
    let [i] = types else { return Err(misfit("moe_sort", types)) };
    if !i.dtype.is_int() || i.rank() == 0 || experts == 0 || i.elements() == 0 {
        return Err(misfit("moe_sort", types));
    }
    let by_expert = ascending(module, i.dtype)?;
    let by_place = ascending(module, DType::I32)?;
    let m = i.elements();
    let mut d = Definition::new(module, "moe_sort");
    let mut ids = d.param(i);
    if i.rank() > 1 {
        ids = d.op(Reshape { shape: Shape::from_slice(&[m]) }, &[ids])?;
    }
    let order = d.order(ids, by_expert)?;
    let place = d.order(order, by_place)?;
    let wide = TensorType::new(i.dtype, [m, experts]);
    let here = d.op(BroadcastInDim { shape: wide.shape.clone(), dims: Shape::from_slice(&[0]) }, &[ids])?;
    let there = d.op(Iota { ty: wide, dim: 1 }, &[])?;
    let is = d.op(Compare { direction: Direction::Eq, total_order: false }, &[here, there])?;
    let is = d.convert(is, DType::I32)?;
    let sizes = d.op(Reduce { dims: Shape::from_slice(&[0]), monoid: Monoid::Sum }, &[is])?;
    Ok(d.finish(vec![order, place, sizes]))
}

/// `x[N,D], order[M] → rows[M,D]`.
///
/// # Errors
/// If the types do not fit.
pub fn forward(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let lacks = || misfit("moe_permute", types);
    let [x, order] = types else { return Err(lacks()) };
    let (&[n, _], &[m]) = (x.shape.as_slice(), order.shape.as_slice()) else { return Err(lacks()) };
    let chosen = times(m, n).filter(|_| is_order(order, m)).ok_or_else(lacks)?;
    let mut d = Definition::new(module, "moe_permute");
    let (x, mut order) = (d.param(x), d.param(order));
    if chosen > 1 {
        let k = d.splat(d.ty(order), chosen as f64)?;
        order = d.op(Divide, &[order, k])?;
    }
    let rows = d.rows(x, order)?;
    Ok(d.finish(vec![rows]))
}

/// `d_rows[M,D], place[M] → dx[N,D]`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], chosen: usize) -> Result<Graph> {
    let lacks = || misfit("moe_permute_grad", types);
    let [rows, place] = types else { return Err(lacks()) };
    let &[m, _] = rows.shape.as_slice() else { return Err(lacks()) };
    if times(m, chosen).is_none() || !is_order(place, m) || !rows.dtype.is_float() {
        return Err(lacks());
    }
    let mut d = Definition::new(module, "moe_permute_grad");
    let (rows, place) = (d.param(rows), d.param(place));
    let back = d.rows(rows, place)?;
    let back = d.by_token(back, chosen)?;
    let dx = d.op(Reduce { dims: Shape::from_slice(&[1]), monoid: Monoid::Sum }, &[back])?;
    Ok(d.finish(vec![dx]))
}

/// Whether sorted rows and weights `[N,k]` fit tokens `[N,D]`.
fn fits(tokens: [usize; 2], rows: &TensorType, w: &TensorType) -> bool {
    let &[n, k] = w.shape.as_slice() else { return false };
    let floats = rows.dtype.is_float() && w.dtype.is_float();
    floats && n == tokens[0] && rows.shape.as_slice() == [n * k, tokens[1]]
}

/// `rows[M,D], w[N,k], place[M] → y[N,D]`.
///
/// # Errors
/// If the types do not fit.
pub fn unpermute(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let lacks = || misfit("moe_unpermute", types);
    let [rows, w, place] = types else { return Err(lacks()) };
    let (&[m, width], &[n, k]) = (rows.shape.as_slice(), w.shape.as_slice()) else { return Err(lacks()) };
    if !fits([n, width], rows, w) || !is_order(place, m) {
        return Err(lacks());
    }
    let mut d = Definition::new(module, "moe_unpermute");
    let (dtype, rows, w, place) = (w.dtype, d.param(rows), d.param(w), d.param(place));
    let back = d.rows(rows, place)?;
    let back = d.by_token(back, k)?;
    let back = d.convert(back, dtype)?;
    let y = d.token_by_token(dtype, (back, w), (&[1], &[1]))?;
    Ok(d.finish(vec![y]))
}

impl Definition<'_> {
    /// A product for each token.
    fn token_by_token(
        &mut self,
        dtype: DType,
        (l, r): (ValueId, ValueId),
        contract: (&[usize], &[usize]),
    ) -> Result<ValueId> {
        let token = Shape::from_slice(&[0]);
        let op = DotGeneral {
            lhs_batch: token.clone(),
            rhs_batch: token,
            lhs_contract: Shape::from_slice(contract.0),
            rhs_contract: Shape::from_slice(contract.1),
            dtype,
        };
        self.op(op, &[l, r])
    }
}

/// `dy[N,D], rows[M,D], w[N,k], order[M], place[M] → d_rows[M,D], dw[N,k]`.
///
/// # Errors
/// If the types do not fit.
pub fn unpermute_grad(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let lacks = || misfit("moe_unpermute_grad", types);
    let [dy, rows, w, order, place] = types else { return Err(lacks()) };
    let (&[n, width], &[_, k]) = (dy.shape.as_slice(), w.shape.as_slice()) else { return Err(lacks()) };
    let m = n * k;
    if !fits([n, width], rows, w) || dy.dtype != w.dtype || !is_order(order, m) || !is_order(place, m) {
        return Err(lacks());
    }
    let (dtype, narrow) = (w.dtype, rows.dtype);
    let mut d = Definition::new(module, "moe_unpermute_grad");
    let (dy, rows, w) = (d.param(dy), d.param(rows), d.param(w));
    let (order, place) = (d.param(order), d.param(place));
    let back = d.rows(rows, place)?;
    let back = d.by_token(back, k)?;
    let back = d.convert(back, dtype)?;
    let dw = d.token_by_token(dtype, (dy, back), (&[1], &[2]))?;
    let wide = |dims: &[usize]| BroadcastInDim {
        shape: Shape::from_slice(&[n, k, width]),
        dims: Shape::from_slice(dims),
    };
    let (dy, w) = (d.op(wide(&[0, 2]), &[dy])?, d.op(wide(&[0, 1]), &[w])?);
    let each = d.op(Multiply, &[dy, w])?;
    let each = d.convert(each, narrow)?;
    let each = d.op(Reshape { shape: Shape::from_slice(&[m, width]) }, &[each])?;
    let d_rows = d.rows(each, order)?;
    Ok(d.finish(vec![d_rows, dw]))
}
