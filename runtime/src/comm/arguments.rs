//! What is wrong with a call's arguments, found before anyone waits.

use super::{CommError, Result};
use msc_ir::DType;

pub(super) fn argument<T>(call: &'static str, message: String) -> Result<T> {
    Err(CommError::Argument { call, message })
}

/// The position of `rank` in the group `members` of a world of `ranks` ranks.
pub(super) fn position(rank: usize, members: &[usize], ranks: usize) -> Result<usize> {
    let distinct = members.iter().enumerate().all(|(i, m)| !members[..i].contains(m));
    match members.iter().position(|&m| m == rank) {
        Some(position) if distinct && members.iter().all(|&m| m < ranks) => Ok(position),
        _ => argument("communicator", format!("{members:?} are not distinct ranks with {rank} among them")),
    }
}

/// The ranks at some positions of a group.
pub(super) fn subgroup(group: &[usize], members: &[usize]) -> Result<Vec<usize>> {
    let ranks: Option<Vec<usize>> = members.iter().map(|&m| group.get(m).copied()).collect();
    let n = group.len();
    ranks.map_or_else(|| argument("subgroup", format!("{members:?} are not positions of a group of {n}")), Ok)
}

/// The bytes of part `i` of `n` nearly equal parts of `bytes` bytes, cut between elements of `width` bytes.
pub(super) fn part(bytes: usize, width: usize, i: usize, n: usize) -> std::ops::Range<usize> {
    let at = |k: usize| (bytes / width) * k / n * width;
    at(i)..at(i + 1)
}

pub(super) fn whole_elements(call: &'static str, bytes: usize, dtype: DType) -> Result<()> {
    if bytes.is_multiple_of(dtype.size_bytes()) {
        return Ok(());
    }
    argument(call, format!("{bytes} bytes are not whole elements of {dtype}"))
}

pub(super) fn equal_parts(call: &'static str, whole: usize, part: Option<usize>) -> Result<()> {
    if part == Some(whole) {
        return Ok(());
    }
    argument(call, format!("{whole} bytes are not the parts of all ranks"))
}

/// Another position of a group of `size` ranks.
pub(super) fn peer(call: &'static str, me: usize, peer: usize, size: usize) -> Result<()> {
    if peer < size && peer != me {
        return Ok(());
    }
    argument(call, format!("{peer} is no other position of a group of {size}"))
}

pub(super) fn root(call: &'static str, root: usize, size: usize) -> Result<()> {
    if root < size {
        return Ok(());
    }
    argument(call, format!("{root} is no position of a group of {size}"))
}

/// The counts of an `all_to_all_v`.
pub(super) fn counts(
    call: &'static str,
    size: usize,
    (sent, send): (usize, &[usize]),
    (got, receive): (usize, &[usize]),
) -> Result<()> {
    if send.len() != size || receive.len() != size {
        return argument(call, format!("counts for {} and {} ranks", send.len(), receive.len()));
    }
    equal_parts(call, sent, total(send))?;
    equal_parts(call, got, total(receive))
}

fn total(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(0usize, |n, &c| n.checked_add(c))
}
