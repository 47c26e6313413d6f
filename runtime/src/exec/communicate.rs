//! Collectives and messages on buffers.
//!
//! A communicator concatenates and cuts flat memory. A gather or scatter along another dimension than the first
//! is one on flat memory before or after a transposition of blocks, which goes through scratch memory.

use super::rank::Rank;
use crate::comm::CommError;
use msc_ir::program::{Action, Instruction, Program, agree};
use msc_ir::{Op, Operation, TensorType, ops::collective::Collective};

/// Memory of a communication thread, as large as its program's largest need.
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    /// Scratch for the instructions of a stream.
    pub fn for_stream(p: &Program, stream: usize) -> Scratch {
        let mine = p.instructions.iter().filter(|i| i.stream.0 as usize == stream);
        Scratch(vec![0; mine.map(|i| need(p, i)).max().unwrap_or(0)])
    }
}

/// Bytes of scratch memory that an instruction needs.
fn need(p: &Program, i: &Instruction) -> usize {
    let Action::Collective { op: Op::Collective(c), .. } = &i.action else { return 0 };
    let (from, to) = (&p.buffer(i.reads[0]).ty, &p.buffer(i.writes[0]).ty);
    match c {
        Collective::AllGather { dim, .. } if outer(from, *dim) > 1 => to.bytes(),
        Collective::ReduceScatter { dim, .. } if outer(from, *dim) > 1 => from.bytes(),
        // What is sent, and what is received.
        Collective::AllToAll { .. } => 2 * from.bytes(),
        // Peers read while this rank writes: in place, they read a copy.
        Collective::Permute { .. } if i.reads[0] == i.writes[0] => from.bytes(),
        _ => 0,
    }
}

pub(super) enum Failure {
    Comm(CommError),
    Internal(String),
}

impl From<CommError> for Failure {
    fn from(e: CommError) -> Failure {
        Failure::Comm(e)
    }
}

/// Blocks before a dimension.
fn outer(ty: &TensorType, dim: usize) -> usize {
    ty.shape[..dim].iter().product()
}

/// Executes a collective, send or receive.
///
/// # Safety
/// The program was checked, and every instruction that happens before this one is complete.
pub(super) unsafe fn execute(rank: &Rank, i: &Instruction, scratch: &mut Scratch) -> Result<(), Failure> {
    match &i.action {
        Action::Send { communicator, offset } => {
            let c = rank.communicator(*communicator);
            // SAFETY: no one writes what an instruction reads.
            c.send(agree::peer(c.rank(), *offset, c.size()), unsafe { rank.read(i.reads[0]) })?;
        }
        Action::Receive { communicator, offset } => {
            let c = rank.communicator(*communicator);
            // SAFETY: no one else touches what an instruction writes.
            c.receive(agree::peer(c.rank(), *offset, c.size()), unsafe { rank.write(i.writes[0]) })?;
        }
        Action::Collective { communicator, op: Op::Collective(op) } => {
            let c = rank.communicator(*communicator);
            let (from, to) = (i.reads[0], i.writes[0]);
            let ty = &rank.program().buffer(from).ty;
            let copy = || {
                let ((source, bytes), (target, _)) = (rank.memory(from), rank.memory(to));
                // SAFETY: as long as each other, perhaps the same; no one else touches them.
                unsafe { std::ptr::copy(source, target, bytes) };
            };
            if c.size() == 1 && !matches!(op, Collective::Permute { .. }) {
                copy();
                return Ok(());
            }
            // SAFETY: no one writes what an instruction reads, nor touches what it writes. Where both are the same
            // buffer, the arms below are done with the one before they take the other.
            let (read, write) = unsafe { (|| rank.read(from), || rank.write(to)) };
            match op {
                Collective::AllReduce { monoid, .. } => {
                    copy();
                    c.all_reduce(write(), ty.dtype, *monoid)?;
                }
                Collective::AllGather { dim, .. } => {
                    let (input, outer) = (read(), outer(ty, *dim));
                    if outer <= 1 {
                        c.all_gather(input, write())?;
                    } else {
                        let flat = &mut scratch.0[..input.len() * c.size()];
                        c.all_gather(input, flat)?;
                        swap_blocks(flat, write(), c.size(), outer);
                    }
                }
                Collective::ReduceScatter { monoid, dim, .. } => {
                    let (input, outer) = (read(), outer(ty, *dim));
                    if outer <= 1 {
                        c.reduce_scatter(input, write(), ty.dtype, *monoid)?;
                    } else {
                        let flat = &mut scratch.0[..input.len()];
                        swap_blocks(input, flat, outer, c.size());
                        c.reduce_scatter(flat, write(), ty.dtype, *monoid)?;
                    }
                }
                Collective::AllToAll { split_dim, concat_dim, .. } => {
                    let (input, n) = (read(), c.size());
                    let (sent, received) = scratch.0[..2 * input.len()].split_at_mut(input.len());
                    swap_blocks(input, sent, outer(ty, *split_dim), n);
                    c.all_to_all(sent, received)?;
                    let block = ty.with_shape(
                        ty.shape.iter().enumerate().map(|(d, s)| if d == *split_dim { s / n } else { *s }),
                    );
                    swap_blocks(received, write(), n, outer(&block, *concat_dim));
                }
                Collective::Permute { pairs, .. } => {
                    let me = c.rank() as u32;
                    let input: &[u8] = match from == to {
                        true => {
                            let copied = &mut scratch.0[..ty.bytes()];
                            copied.copy_from_slice(read());
                            copied
                        }
                        false => read(),
                    };
                    let output = write();
                    let mut counts = [vec![0; c.size()], vec![0; c.size()]];
                    let target = pairs.iter().find(|p| p.0 == me).map(|p| p.1);
                    let source = pairs.iter().find(|p| p.1 == me).map(|p| p.0);
                    for (count, peer) in counts.iter_mut().zip([target, source]) {
                        peer.into_iter().for_each(|r| count[r as usize] = input.len());
                    }
                    let sent = if target.is_some() { input } else { &[] };
                    match source {
                        Some(_) => c.all_to_all_v(sent, &counts[0], output, &counts[1])?,
                        None => {
                            c.all_to_all_v(sent, &counts[0], &mut [], &counts[1])?;
                            output.fill(0);
                        }
                    }
                }
                Collective::Broadcast { .. } => {
                    copy();
                    c.broadcast(0, write())?;
                }
                Collective::AxisIndex { .. } | Collective::PartitionId => {
                    return Err(Failure::Internal(format!("{} does not communicate", op.name())));
                }
            }
        }
        _ => return Err(Failure::Internal(format!("{} does not communicate", i.action.name()))),
    }
    Ok(())
}

/// Writes the blocks of `from[a][b]` as `to[b][a]`.
fn swap_blocks(from: &[u8], to: &mut [u8], a: usize, b: usize) {
    let block = from.len() / (a * b).max(1);
    if block == 0 {
        return;
    }
    for (n, piece) in from.chunks_exact(block).enumerate() {
        let at = (n % b * a + n / b) * block;
        to[at..at + block].copy_from_slice(piece);
    }
}
