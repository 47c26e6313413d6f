//! Executing one instruction.

use super::communicate::{self, Scratch};
use super::error::RunError;
use super::kernel::{KernelArg, KernelLauncher, LaunchContext};
use super::rank::Rank;
use msc_ir::interp::{EvalCx, Mode};
use msc_ir::program::{Action, BufferId, Instruction};
use msc_ir::{Op, Storage, Tensor, TensorType};

/// What a thread has at hand.
pub(super) struct Cx<'a> {
    pub rank: &'a Rank,
    pub kernels: &'a dyn KernelLauncher,
    pub step: usize,
    pub scratch: &'a mut Scratch,
}

/// Executes an instruction that is not a wait.
///
/// # Safety
/// The program was checked, and every instruction that happens before this one is complete.
pub(super) unsafe fn execute(cx: &mut Cx<'_>, at: usize, i: &Instruction) -> Result<(), RunError> {
    let rank = cx.rank;
    let launch = LaunchContext { rank: rank.rank, step: cx.step };
    match &i.action {
        // SAFETY: passed on.
        Action::Interpret(op) => unsafe { interpret(cx, at, op, i) },
        Action::Kernel(k) => {
            let args = arguments(rank, i);
            // SAFETY: the check has shown that accesses of different instructions to the same bytes are ordered,
            // and that buffers of one instruction do not overlap.
            unsafe { cx.kernels.launch(*k, &args, launch) }
                .map_err(|message| RunError::Kernel { place: rank.place(cx.step, at), message })
        }
        Action::LibraryCall { library, op } => {
            let args = arguments(rank, i);
            // SAFETY: as above.
            match unsafe { cx.kernels.library(library, op, &args, launch) } {
                Some(done) => {
                    done.map_err(|message| RunError::Kernel { place: rank.place(cx.step, at), message })
                }
                // SAFETY: passed on.
                None => unsafe { interpret(cx, at, op, i) },
            }
        }
        Action::Copy => {
            let ((from, bytes), (to, _)) = (rank.memory(i.reads[0]), rank.memory(i.writes[0]));
            // SAFETY: both are of the same type, and no one else touches them.
            unsafe { std::ptr::copy(from, to, bytes) };
            Ok(())
        }
        Action::Collective { .. } | Action::Send { .. } | Action::Receive { .. } => {
            // SAFETY: passed on.
            unsafe { communicate::execute(rank, i, cx.scratch) }.map_err(|e| match e {
                communicate::Failure::Comm(error) => {
                    RunError::Communication { place: rank.place(cx.step, at), error, others: Vec::new() }
                }
                communicate::Failure::Internal(message) => {
                    RunError::Internal { place: rank.place(cx.step, at), message }
                }
            })
        }
        Action::Wait(_) => Ok(()),
    }
}

fn arguments(rank: &Rank, i: &Instruction) -> Vec<KernelArg> {
    let arg = |written: bool| {
        move |&b: &BufferId| {
            let (data, bytes) = rank.memory(b);
            KernelArg { data, bytes, written }
        }
    };
    i.reads.iter().map(arg(false)).chain(i.writes.iter().map(arg(true))).collect()
}

/// # Safety
/// As [`execute`].
unsafe fn interpret(cx: &Cx<'_>, at: usize, op: &Op, i: &Instruction) -> Result<(), RunError> {
    let (rank, p) = (cx.rank, cx.rank.program());
    let load = |&b: &BufferId| -> Tensor {
        let ty = &p.buffer(b).ty;
        // SAFETY: who writes these bytes is complete, or comes after this instruction.
        let bytes = unsafe { rank.read(b) };
        Tensor::new(ty.shape.iter().copied(), Storage::from_bytes(ty.dtype, bytes))
    };
    let inputs: Vec<Tensor> = i.reads.iter().map(load).collect();
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let types: Vec<TensorType> = i.writes.iter().map(|&b| p.buffer(b).ty.clone()).collect();
    let eval = EvalCx::new(&rank.plan().module, Mode::Spec, rank.rank);
    let results = eval
        .eval(op, &refs, &types)
        .map_err(|error| RunError::Op { place: rank.place(cx.step, at), error })?;
    let fits = results.len() == types.len() && results.iter().zip(&types).all(|(r, t)| r.ty() == *t);
    if !fits {
        let found: Vec<TensorType> = results.iter().map(Tensor::ty).collect();
        let message = format!("the op gave {found:?} instead of {types:?}");
        return Err(RunError::Internal { place: rank.place(cx.step, at), message });
    }
    for (r, &b) in results.iter().zip(&i.writes) {
        // SAFETY: no one else touches these bytes until this instruction is complete.
        unsafe { rank.write(b) }.copy_from_slice(r.data.bytes());
    }
    Ok(())
}
