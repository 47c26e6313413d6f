//! Global tensors out of the blocks of all ranks.
//!
//! Where ranks are in other processes, their blocks come to rank 0 by messages between steps. All processes ask for
//! the same tensors in the same order.

use super::Divergence;
use super::rank::Rank;
use crate::comm::{CommError, Communicator};
use crate::layout::Part;
use crate::plan::{Plan, Which};
use msc_ir::{Shape, Storage, Tensor, TensorType};

/// One tensor of a step.
pub(super) struct Wanted<'a> {
    pub plan: &'a Plan,
    /// The global type.
    pub ty: TensorType,
    pub name: &'a str,
    pub which: Which,
}

/// A tensor, and where ranks differ that should not.
pub(super) type Gathered = (Tensor, Option<Divergence>);

/// Puts blocks together, one rank after the other.
struct Pasted<'a> {
    wanted: &'a Wanted<'a>,
    global: Vec<u8>,
    owners: Vec<(Shape, usize)>,
    divergence: Option<Divergence>,
}

impl Wanted<'_> {
    /// What a rank of this process holds of it.
    ///
    /// # Safety
    /// No thread of the rank is in a step.
    unsafe fn own<'r>(&self, rank: &'r Rank) -> Option<&'r [u8]> {
        let part = self.plan.laid(self.which, rank.rank).part(rank.rank)?;
        // SAFETY: passed on.
        let all = unsafe { rank.read(self.plan.buffer(self.which, rank.program())) };
        Some(&all[part.bytes])
    }

    fn begin(&self) -> Pasted<'_> {
        Pasted { wanted: self, global: vec![0; self.ty.bytes()], owners: Vec::new(), divergence: None }
    }

    /// The blocks of ranks that are all in this process.
    ///
    /// # Safety
    /// No thread of the ranks is in a step.
    pub unsafe fn here(&self, ranks: &[Rank]) -> Gathered {
        let mut pasted = self.begin();
        for r in ranks {
            // SAFETY: passed on.
            if let Some(own) = unsafe { self.own(r) } {
                pasted.add(r.rank, own);
            }
        }
        pasted.end()
    }

    /// The blocks of ranks of as many processes; `rank` is this one's. The tensor comes to rank 0, and with
    /// `everyone` to all.
    ///
    /// # Safety
    /// No thread of the rank is in a step.
    pub unsafe fn together(
        &self,
        rank: &Rank,
        c: &dyn Communicator,
        everyone: bool,
    ) -> Result<Option<Gathered>, CommError> {
        // SAFETY: passed on.
        let own = unsafe { self.own(rank) };
        let gathered = if rank.rank == 0 {
            let mut pasted = self.begin();
            if let Some(own) = own {
                pasted.add(0, own);
            }
            for r in 1..c.size() {
                let Some(part) = self.plan.laid(self.which, r).part(r) else { continue };
                let mut block = vec![0; part.bytes.len()];
                c.receive(r, &mut block)?;
                pasted.add(r, &block);
            }
            Some(pasted.end())
        } else {
            if let Some(own) = own {
                c.send(0, own)?;
            }
            None
        };
        if !everyone {
            return Ok(gathered);
        }
        // Divergences are rank 0's to tell.
        let (mut bytes, divergence) = match gathered {
            Some((t, d)) => (t.data.bytes().to_vec(), d),
            None => (vec![0; self.ty.bytes()], None),
        };
        c.broadcast(0, &mut bytes)?;
        Ok(Some((self.tensor(&bytes), divergence)))
    }

    fn tensor(&self, bytes: &[u8]) -> Tensor {
        Tensor::new(self.ty.shape.iter().copied(), Storage::from_bytes(self.ty.dtype, bytes))
    }
}

impl Pasted<'_> {
    fn add(&mut self, rank: usize, bytes: &[u8]) {
        let Wanted { plan, which, name, .. } = *self.wanted;
        let Some(Part { start, block, .. }) = plan.laid(which, rank).part(rank) else { return };
        match self.owners.iter().find(|(s, _)| *s == start) {
            None => {
                block.paste(bytes, &mut self.global);
                self.owners.push((start, rank));
            }
            Some(&(_, owner)) if self.divergence.is_none() => {
                let element = block.first_difference(bytes, &self.global);
                let divergence =
                    |element| Divergence { name: name.to_string(), ranks: (owner, rank), element };
                self.divergence = element.map(divergence);
            }
            Some(_) => {}
        }
    }

    fn end(self) -> Gathered {
        (self.wanted.tensor(&self.global), self.divergence)
    }
}
