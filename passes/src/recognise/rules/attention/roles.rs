//! Which dimension is which: batch, heads, queries, keys, widths.

use crate::recognise::probe::found::Solved;
use crate::recognise::probe::program::Index;
use msc_ir::factor::solve::{AtomId, AtomList};
use std::collections::BTreeSet;

/// The atoms of an attention's dimensions.
#[derive(Clone, PartialEq, Debug)]
pub struct Roles {
    /// Batch.
    pub batch: AtomList,
    /// Heads of keys and values.
    pub heads: AtomList,
    /// Query heads of a group.
    pub group: AtomList,
    /// Queries.
    pub queries: AtomList,
    /// Keys.
    pub keys: AtomList,
    /// What a query and a key share.
    pub width: AtomList,
    /// Width of a value.
    pub value_width: AtomList,
}

/// Values by which roles are told.
#[derive(Clone, Copy, Debug)]
pub struct Marks<'m> {
    /// Where queries, keys and values are made.
    pub tops: [Index; 3],
    /// The product of queries and keys.
    pub product: Index,
    /// A value with summed dimensions, and those.
    pub summed: (Index, &'m [usize]),
    /// Masks and biases.
    pub masks: &'m [Index],
}

impl Roles {
    /// The roles in a slice.
    ///
    /// # Errors
    /// In words, if dimensions do not fit an attention.
    pub fn new(solved: &Solved, marks: Marks<'_>) -> Result<Roles, String> {
        let all = |i: Index| solved.all(i).ok_or("a value is not part of the computation");
        let [q, k, v] = marks.tops;
        let (q, k, v, s) = (all(q)?, all(k)?, all(v)?, all(marks.product)?);
        let dims = solved.dims(marks.summed.0).ok_or("the weights are not part of the computation")?;
        let keys: AtomList = marks.summed.1.iter().flat_map(|&d| dims[d].clone()).collect();
        let both = |a: &AtomList, b: &AtomList, c: &AtomList, in_c: bool| -> AtomList {
            a.iter().copied().filter(|x| b.contains(x) && c.contains(x) == in_c).collect()
        };
        let only = |a: &AtomList, b: &AtomList| -> AtomList {
            a.iter().copied().filter(|x| !b.contains(x)).collect()
        };
        let same = |a: &AtomList, b: &AtomList| a.len() == b.len() && a.iter().all(|x| b.contains(x));
        if keys.is_empty() || !same(&both(&k, &s, &q, false), &keys) {
            return Err("the softmax is not over the keys".into());
        }
        let width = both(&k, &q, &s, false);
        let shared: AtomList = s.iter().copied().filter(|a| q.contains(a) && k.contains(a)).collect();
        let mine: AtomList = s.iter().copied().filter(|a| q.contains(a) && !k.contains(a)).collect();
        let value_width = only(&v, &s);
        let in_scores: AtomList = v.iter().copied().filter(|a| s.contains(a)).collect();
        let expected: AtomList = shared.iter().chain(&keys).copied().collect();
        if !same(&in_scores, &expected) {
            return Err("values have other heads than keys".into());
        }
        if width.is_empty() || only(&q, &s).len() != width.len() || only(&k, &s).len() != width.len() {
            return Err("queries and keys have no width in common".into());
        }
        let queries = queries(solved, &mine, &keys, marks.masks)?;
        let group = only(&mine, &queries);
        let heads = heads(solved, marks.product, &shared);
        let batch = only(&shared, &heads);
        Ok(Roles { batch, heads, group, queries, keys, width, value_width })
    }

    /// Dimensions of query-like values `[B,H,S,n]`.
    pub fn of_queries(&self, last: &AtomList) -> Vec<AtomList> {
        vec![self.batch.clone(), self.query_heads(), self.queries.clone(), last.clone()]
    }

    /// Dimensions of key-like values `[B,K,T,n]`.
    pub fn of_keys(&self, last: &AtomList) -> Vec<AtomList> {
        vec![self.batch.clone(), self.heads.clone(), self.keys.clone(), last.clone()]
    }

    /// Dimensions `[B,H,S]`.
    pub fn query_heads(&self) -> AtomList {
        self.heads.iter().chain(&self.group).copied().collect()
    }

    /// Dimensions `[B|1,H|1,S|1,T|1]` of a mask or bias that has these atoms.
    ///
    /// # Errors
    /// If it has part of a dimension only.
    pub fn of_mask(&self, atoms: &AtomList) -> Result<Vec<AtomList>, String> {
        let scores = [self.batch.clone(), self.query_heads(), self.queries.clone(), self.keys.clone()];
        let known: BTreeSet<AtomId> = scores.iter().flatten().copied().collect();
        if atoms.iter().any(|a| !known.contains(a)) {
            return Err("a mask has a dimension that scores do not have".into());
        }
        scores
            .into_iter()
            .map(|list| match list.iter().filter(|a| atoms.contains(a)).count() {
                0 => Ok(AtomList::new()),
                n if n == list.len() => Ok(list),
                _ => Err("a mask has part of a dimension".into()),
            })
            .collect()
    }
}

/// Of the dimensions that all share, those of heads: the last dimension of the product that has such, or the last
/// of all where the product has them in one. A dimension that is alone is the batch.
fn heads(solved: &Solved, product: Index, shared: &AtomList) -> AtomList {
    if shared.len() < 2 {
        return AtomList::new();
    }
    let dims = solved.dims(product).unwrap_or_default();
    let of = |d: &AtomList| -> AtomList { d.iter().copied().filter(|a| shared.contains(a)).collect() };
    match dims.iter().map(of).rfind(|d| !d.is_empty()) {
        Some(last) if last.len() < shared.len() => last,
        _ => shared[shared.len() - 1..].into(),
    }
}

/// Of the dimensions that only queries have, the one that masks have too; without masks the one as long as the
/// keys, or the last: whichever it is, heads and queries play the same part then.
fn queries(solved: &Solved, mine: &AtomList, keys: &AtomList, masks: &[Index]) -> Result<AtomList, String> {
    if let [one] = mine.as_slice() {
        return Ok(AtomList::from_slice(&[*one]));
    }
    let mut masked: AtomList = AtomList::new();
    for &m in masks {
        let atoms = solved.all(m).unwrap_or_default();
        masked.extend(mine.iter().copied().filter(|a| atoms.contains(a)));
    }
    masked.sort_unstable();
    masked.dedup();
    let size = |l: &[AtomId]| l.iter().map(|&a| solved.atoms.size(a)).product::<usize>();
    let pick = match masked.as_slice() {
        [one] => Some(*one),
        _ => mine.iter().copied().find(|&a| size(&[a]) == size(keys)).or(mine.last().copied()),
    };
    pick.map(|a| AtomList::from_slice(&[a])).ok_or_else(|| "there is one query only".into())
}
