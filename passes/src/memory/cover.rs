//! Which bytes are taken, and how often.

use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Ranges of bytes with the number of buffers on them. Neighbours with the same number are one range.
#[derive(Default, Debug)]
pub struct Cover {
    /// By start: end and number, which is at least 1.
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl Cover {
    /// Takes a range once more.
    pub fn add(&mut self, (start, end): (u64, u64)) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let mut at = start;
        let mut gaps: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        for (&s, (e, n)) in self.ranges.range_mut(start..end) {
            if s > at {
                gaps.push((at, s));
            }
            *n += 1;
            at = *e;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (s, e) in gaps {
            self.ranges.insert(s, (e, 1));
        }
        self.join(start);
        self.join(end);
    }

    /// Gives back a range that was taken.
    pub fn remove(&mut self, (start, end): (u64, u64)) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let mut free: SmallVec<[u64; 8]> = SmallVec::new();
        for (&s, (_, n)) in self.ranges.range_mut(start..end) {
            *n -= 1;
            if *n == 0 {
                free.push(s);
            }
        }
        free.iter().for_each(|s| {
            self.ranges.remove(s);
        });
        self.join(start);
        self.join(end);
    }

    /// The lowest place for `size` bytes from `base` on that nobody has taken.
    pub fn lowest_gap(&self, base: u64, size: u64) -> u64 {
        let mut at = base;
        for (&start, &(end, _)) in &self.ranges {
            if start >= at + size {
                break;
            }
            at = at.max(end);
        }
        at
    }

    /// Makes `at` a border, if it is inside a range.
    fn split(&mut self, at: u64) {
        if let Some((_, range)) = self.ranges.range_mut(..at).next_back()
            && range.0 > at
        {
            let (end, n) = *range;
            range.0 = at;
            self.ranges.insert(at, (end, n));
        }
    }

    /// Joins the ranges on both sides of a border, if their numbers are the same. Elsewhere neighbours differ as before:
    /// what is added or taken away is the same for both, and where there was nothing there is less than beside it.
    fn join(&mut self, at: u64) {
        let Some(&(end, n)) = self.ranges.get(&at) else { return };
        if let Some((_, before)) = self.ranges.range_mut(..at).next_back()
            && *before == (at, n)
        {
            before.0 = end;
            self.ranges.remove(&at);
        }
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
                for (&s, &(e, n)) in &cover.ranges {
                    assert!((s..e).all(|i| bytes[i as usize] == n), "{cover:?}");
                    assert!(cover.ranges.get(&e).is_none_or(|next| next.1 != n), "{cover:?} is not joined");
                }
            }
        }
    }
}
