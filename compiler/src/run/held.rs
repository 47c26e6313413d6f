//! The inputs that a user gives, as tensors: for what runs without a plan.

use super::inputs::{Inputs, Target};
use super::{RunOptions, Signature};
use crate::error::Result;
use msc_ir::{Storage, Tensor, TensorType};
use msc_runtime::plan::StepInfo;

struct Held(Vec<Option<Tensor>>);

impl Target for Held {
    fn load(&mut self, n: usize, ty: &TensorType, elements: &[u8]) -> Result<()> {
        if let Some(slot) = self.0.get_mut(n) {
            let data = Storage::from_bytes(ty.dtype, elements);
            *slot = Some(Tensor::new(ty.shape.iter().copied(), data));
        }
        Ok(())
    }
}

/// For each input, by name and type, the tensor that the options give it, if they do: of them only those that say where
/// inputs come from are read.
///
/// # Errors
/// Bad files, names and values.
pub fn given(
    o: &RunOptions,
    step: &StepInfo,
    inputs: &[(String, TensorType)],
) -> Result<Vec<Option<Tensor>>> {
    let mut held = Held(vec![None; inputs.len()]);
    let signature = Signature { inputs: inputs.to_vec(), outputs: Vec::new() };
    let found = Inputs::of_user(o, &mut held, step, &signature)?;
    for (n, t) in found.first_batch()? {
        held.load(n, &t.ty(), t.data.bytes())?;
    }
    Ok(held.0)
}
