//! Which bytes are taken, and how often.

use smallvec::SmallVec;

/// Bytes with the number of buffers on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    start: u64,
    end: u64,
    /// At least 1.
    count: u32,
}

/// Ranges of bytes with the number of buffers on them. Neighbours with the same number are one range, so that there are
/// few: a sorted list is faster than a tree.
#[derive(Default, Debug)]
pub struct Cover {
    ranges: Vec<Range>,
}

/// What a stretch of ranges becomes.
type Pieces = SmallVec<[Range; 8]>;

/// Appends a piece, as part of the one before it if both are one range.
fn append(pieces: &mut Pieces, piece: Range) {
    if piece.start >= piece.end || piece.count == 0 {
        return;
    }
    match pieces.last_mut() {
        Some(last) if last.end == piece.start && last.count == piece.count => last.end = piece.end,
        _ => pieces.push(piece),
    }
}

impl Cover {
    /// Takes a range once more.
    pub fn add(&mut self, range: (u64, u64)) {
        self.change(range, |n| n + 1);
    }

    /// Gives back a range that was taken.
    pub fn remove(&mut self, range: (u64, u64)) {
        self.change(range, |n| n.saturating_sub(1));
    }

    /// Changes how often the bytes of a range are taken.
    fn change(&mut self, (start, end): (u64, u64), count: impl Fn(u32) -> u32) {
        if start >= end {
            return;
        }
        // Neighbours that only touch it may become one with it.
        let first = self.ranges.partition_point(|r| r.end < start);
        let mut next = first;
        let mut at = start;
        let mut pieces = Pieces::new();
        while let Some(&r) = self.ranges.get(next).filter(|r| r.start <= end) {
            next += 1;
            append(&mut pieces, Range { end: r.end.min(start), ..r });
            let (from, to) = (r.start.clamp(start, end), r.end.clamp(start, end));
            append(&mut pieces, Range { start: at, end: from, count: count(0) });
            append(&mut pieces, Range { start: from, end: to, count: count(r.count) });
            at = at.max(to);
            if r.end > end {
                append(&mut pieces, Range { start: at, end, count: count(0) });
                at = end;
                append(&mut pieces, Range { start: r.start.max(end), ..r });
            }
        }
        append(&mut pieces, Range { start: at, end, count: count(0) });
        // In place: mostly there are as many as before, and one more or less otherwise.
        let (old, new) = (next - first, pieces.len());
        if new < old {
            self.ranges.drain(first + new..next);
        } else {
            let len = self.ranges.len();
            self.ranges.resize(len + new - old, Range { start: 0, end: 0, count: 0 });
            self.ranges.copy_within(next..len, first + new);
        }
        self.ranges[first..first + new].copy_from_slice(&pieces);
    }

    /// The lowest place for `size` bytes from `base` on that nobody has taken.
    pub fn lowest_gap(&self, base: u64, size: u64) -> u64 {
        let mut at = base;
        for r in &self.ranges {
            if r.start >= at + size {
                break;
            }
            at = at.max(r.end);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::Cover;

    /// Taken and given back at random, against counting bytes.
    #[test]
    fn counts_like_bytes() {
        let mut rng = crate::recognise::check::random::Random::new(7);
        for _ in 0..50 {
            let (mut cover, mut bytes, mut taken) = (Cover::default(), [0u32; 64], Vec::new());
            for _ in 0..60 {
                if taken.len() > 8 || !taken.is_empty() && rng.below(3) == 0 {
                    let r: (u64, u64) = taken.swap_remove(rng.below(taken.len()));
                    cover.remove(r);
                    (r.0..r.1).for_each(|i| bytes[i as usize] -= 1);
                } else {
                    let start = rng.below(60) as u64;
                    let r = (start, (start + rng.below(12) as u64).min(64));
                    cover.add(r);
                    (r.0..r.1).for_each(|i| bytes[i as usize] += 1);
                    taken.push(r);
                }
                for size in 1..12u64 {
                    let free =
                        |at: u64| (at..at + size).all(|i| bytes.get(i as usize).is_none_or(|&n| n == 0));
                    assert_eq!(
                        cover.lowest_gap(3, size),
                        (3..).find(|&at| free(at)).expect("a place"),
                        "{cover:?}"
                    );
                }
                for r in &cover.ranges {
                    assert!(r.start < r.end && r.count > 0, "{cover:?}");
                    assert!((r.start..r.end).all(|i| bytes[i as usize] == r.count), "{cover:?}");
                }
                for pair in cover.ranges.windows(2) {
                    let joined = pair[0].end < pair[1].start
                        || pair[0].end == pair[1].start && pair[0].count != pair[1].count;
                    assert!(joined, "{cover:?}");
                }
            }
        }
    }
}
