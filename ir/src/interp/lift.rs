//! Graphs of scalars (reducers, comparators) on many elements at once.

use super::EvalCx;
use crate::error::{IrError, Result};
use crate::graph::{Graph, OpData};
use crate::module::GraphId;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;

/// Runs a graph whose parameters and results are scalars, element by element, on `n` elements: every input and
/// every output has shape `[n]`.
///
/// # Errors
/// Those of the graph's ops.
pub fn run_lifted(cx: &EvalCx<'_>, graph: GraphId, inputs: &[&Tensor], n: usize) -> Result<Vec<Tensor>> {
    let g = cx
        .module()
        .try_graph(graph)
        .ok_or_else(|| IrError::attr("call", "graph", "is not a graph of the module"))?;
    let mut env: Vec<Option<Tensor>> = vec![None; g.value_count()];
    for (&p, &t) in g.params().iter().zip(inputs) {
        env[p.0 as usize] = Some(t.clone());
    }
    let missing = || IrError::Structure {
        graph: g.name.clone(),
        message: "a value is used before it is defined".to_string(),
    };
    for (_, data) in g.ops() {
        let operands: Option<Vec<&Tensor>> =
            data.operands.iter().map(|v| env[v.0 as usize].as_ref()).collect();
        let out = lifted_op(cx, g, data, &operands.ok_or_else(missing)?, n)?;
        for (&r, t) in data.results.iter().zip(out) {
            env[r.0 as usize] = Some(t);
        }
    }
    g.results().iter().map(|r| env[r.0 as usize].clone().ok_or_else(missing)).collect()
}

fn lifted_op(
    cx: &EvalCx<'_>,
    g: &Graph,
    data: &OpData,
    operands: &[&Tensor],
    n: usize,
) -> Result<Vec<Tensor>> {
    let results: Vec<TensorType> = data.results.iter().map(|&r| g.ty(r).clone()).collect();
    let scalars = data.operands.iter().chain(&data.results).all(|&v| g.ty(v).rank() == 0);
    match &data.op {
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_) | Op::Barrier(_)
            if scalars =>
        {
            cx.eval(&data.op, operands, &results)
        }
        Op::Reshape(_) | Op::Broadcast(_) if scalars => Ok(vec![operands[0].clone()]),
        Op::Call(c) if scalars => run_lifted(cx, c.graph, operands, n),
        op if operands.is_empty() => {
            let one = cx.eval(op, &[], &results)?;
            if !scalars {
                return Err(not_scalar(op));
            }
            Ok(one.iter().map(|t| Tensor::new([n], t.data.pick(std::iter::repeat_n(0, n)))).collect())
        }
        op if scalars => {
            let mut columns: Vec<Vec<Tensor>> = vec![Vec::with_capacity(n); results.len()];
            for i in 0..n {
                let row: Vec<Tensor> =
                    operands.iter().map(|t| Tensor::new([], t.data.pick(std::iter::once(i)))).collect();
                let refs: Vec<&Tensor> = row.iter().collect();
                for (c, t) in columns.iter_mut().zip(cx.eval(op, &refs, &results)?) {
                    c.push(t);
                }
            }
            columns.iter().zip(&results).map(|(c, ty)| join(op, c, &cx.held(ty))).collect()
        }
        op => Err(not_scalar(op)),
    }
}

fn join(op: &Op, column: &[Tensor], ty: &TensorType) -> Result<Tensor> {
    let bytes: Vec<u8> = column.iter().flat_map(|t| t.data.bytes().to_vec()).collect();
    if bytes.len() != column.len() * ty.dtype.size_bytes() {
        return Err(not_scalar(op));
    }
    Ok(Tensor::new([column.len()], Storage::from_bytes(ty.dtype, &bytes)))
}

fn not_scalar(op: &Op) -> IrError {
    IrError::unsupported(op.name(), "a reducer or comparator works on scalars")
}
