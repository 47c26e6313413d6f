//! Reasons of exchanged operations: the operation as it stands, between the values that it was found between.

use super::super::engine::region::Region;
use super::super::engine::run::{CutValue, Run};
use super::super::extract::Extracted;
use super::build::defined;
use super::chain::shorter;
use super::islands::Islands;
use super::laws::{Exchanged, Law, exchange, exchanged};
use crate::error::Result;
use egg::Id;
use msc_ir::ops::reshape::Reshape;
use msc_ir::{Module, Op, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// Lets the reasons of the ops of `which` islands tell of them as they are now.
///
/// # Errors
/// If a definition cannot be built.
pub(super) fn follow(
    module: &mut Module,
    (region, run): (&Region, &mut Run),
    parts: &[Extracted],
    islands: &Islands,
    which: &BTreeSet<usize>,
) -> Result<()> {
    let places = which.iter().flat_map(|&i| &islands.all[i]);
    let laws: BTreeMap<Id, &Law> =
        places.filter_map(|p| Some((*parts[p.0].named.get(&p.1)?, islands.laws.get(p)?))).collect();
    for r in &mut run.reasons {
        for input in &mut r.inputs {
            let by = input.given_by.and_then(|(op, result)| laws.get(&op)?.results.get(result as usize));
            if by == Some(&true) && input.values.is_empty() {
                input.layout.insert(0, exchange().into());
            }
        }
        let Some(law) = laws.get(&r.op) else { continue };
        for (input, _) in r.inputs.iter_mut().zip(&law.operands).filter(|(_, e)| **e != Exchanged::No) {
            taken(module, region, input);
        }
        let given = module.graph(r.fused.definition).result_types();
        for o in &mut r.outputs {
            let i = o.result as usize;
            if let (Some(true), Some(ty)) = (law.results.get(i), given.get(i)) {
                o.layout.insert(0, exchange().into());
                o.layout = short(module, &exchanged(ty), &o.layout);
            }
        }
        let types: Vec<TensorType> = r.inputs.iter().map(|i| i.ty.clone()).collect();
        r.fused = defined(module, &law.kind, &types)?;
    }
    Ok(())
}

/// An input that the op takes exchanged.
fn taken(module: &Module, region: &Region, input: &mut CutValue) {
    let value = input.values.first().map(|at| region.parts[at.part].graph.ty(at.value).clone());
    let given = input.given_by.is_some() && input.values.is_empty();
    if input.layout.is_empty() && !given && value.as_ref().is_none_or(|t| t.shape != input.ty.shape) {
        // Without layout ops a difference in shape is a reshape.
        input.layout.push(Reshape { shape: input.ty.shape.clone() }.into());
    }
    input.layout.push(exchange().into());
    input.ty = exchanged(&input.ty);
    // What is given exchanged and taken so is the same.
    let of = value.or_else(|| given.then(|| input.ty.clone()));
    if let Some(ty) = of {
        input.layout = short(module, &ty, &input.layout);
    }
}

fn short(module: &Module, ty: &TensorType, ops: &[Op]) -> Vec<Op> {
    shorter(module, ty, ops).unwrap_or_else(|| ops.to_vec())
}
