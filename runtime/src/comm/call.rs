//! What ranks call: compared between the ranks of a group, and named in messages.

use msc_ir::{DType, Monoid};

/// A call with everything that all ranks of a group must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    AllReduce { dtype: DType, monoid: Monoid, bytes: usize },
    AllGather { bytes: usize },
    ReduceScatter { dtype: DType, monoid: Monoid, bytes: usize },
    AllToAll { bytes: usize },
    AllToAllV,
    Broadcast { root: usize, bytes: usize },
    Barrier,
    Send { bytes: usize },
    Receive { bytes: usize },
}

impl Call {
    pub fn name(&self) -> &'static str {
        match self {
            Call::AllReduce { .. } => "all_reduce",
            Call::AllGather { .. } => "all_gather",
            Call::ReduceScatter { .. } => "reduce_scatter",
            Call::AllToAll { .. } => "all_to_all",
            Call::AllToAllV => "all_to_all_v",
            Call::Broadcast { .. } => "broadcast",
            Call::Barrier => "barrier",
            Call::Send { .. } => "send",
            Call::Receive { .. } => "receive",
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Call::AllReduce { dtype, monoid, bytes } | Call::ReduceScatter { dtype, monoid, bytes } => {
                format!("{} {monoid} of {bytes} bytes of {dtype}", self.name())
            }
            Call::AllGather { bytes }
            | Call::AllToAll { bytes }
            | Call::Send { bytes }
            | Call::Receive { bytes } => format!("{} of {bytes} bytes", self.name()),
            Call::Broadcast { root, bytes } => format!("broadcast of {bytes} bytes from position {root}"),
            Call::AllToAllV | Call::Barrier => self.name().to_string(),
        }
    }

    /// As two words, for ranks of other processes.
    pub fn encode(self) -> [u64; 2] {
        let typed = |kind: u64, dtype: DType, monoid: Monoid, bytes: usize| {
            let d = DType::ALL.iter().position(|&d| d == dtype).unwrap_or(0) as u64;
            let m = Monoid::ALL.iter().position(|&m| m == monoid).unwrap_or(0) as u64;
            [kind | d << 8 | m << 16, bytes as u64]
        };
        match self {
            Call::AllReduce { dtype, monoid, bytes } => typed(1, dtype, monoid, bytes),
            Call::AllGather { bytes } => [2, bytes as u64],
            Call::ReduceScatter { dtype, monoid, bytes } => typed(3, dtype, monoid, bytes),
            Call::AllToAll { bytes } => [4, bytes as u64],
            Call::AllToAllV => [5, 0],
            Call::Broadcast { root, bytes } => [6 | (root as u64) << 8, bytes as u64],
            Call::Barrier => [7, 0],
            Call::Send { bytes } => [8, bytes as u64],
            Call::Receive { bytes } => [9, bytes as u64],
        }
    }

    /// The inverse of [`Call::encode`].
    pub fn decode([word, bytes]: [u64; 2]) -> Option<Call> {
        let bytes = usize::try_from(bytes).ok()?;
        let dtype = || DType::ALL.get((word >> 8 & 0xff) as usize).copied();
        let monoid = || Monoid::ALL.get((word >> 16 & 0xff) as usize).copied();
        Some(match word & 0xff {
            1 => Call::AllReduce { dtype: dtype()?, monoid: monoid()?, bytes },
            2 => Call::AllGather { bytes },
            3 => Call::ReduceScatter { dtype: dtype()?, monoid: monoid()?, bytes },
            4 => Call::AllToAll { bytes },
            5 => Call::AllToAllV,
            6 => Call::Broadcast { root: usize::try_from(word >> 8).ok()?, bytes },
            7 => Call::Barrier,
            8 => Call::Send { bytes },
            9 => Call::Receive { bytes },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_survive_the_way_to_another_process() {
        let mut calls = vec![
            Call::AllGather { bytes: 7 },
            Call::AllToAll { bytes: 1 << 40 },
            Call::AllToAllV,
            Call::Broadcast { root: 70_000, bytes: 3 },
            Call::Barrier,
            Call::Send { bytes: 0 },
            Call::Receive { bytes: 9 },
        ];
        for dtype in DType::ALL {
            for monoid in Monoid::ALL {
                calls.push(Call::AllReduce { dtype, monoid, bytes: 12 });
                calls.push(Call::ReduceScatter { dtype, monoid, bytes: 13 });
            }
        }
        for (n, &a) in calls.iter().enumerate() {
            assert_eq!(Call::decode(a.encode()), Some(a));
            assert!(calls[..n].iter().all(|b| b.encode() != a.encode()), "{a:?}");
        }
        assert_eq!(Call::decode([0, 0]), None);
        assert_eq!(Call::decode([1 | 99 << 8, 0]), None);
    }
}
