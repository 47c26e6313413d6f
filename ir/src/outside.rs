//! What the outside knows of an entry.
//!
//! Outside, every parameter has a name of its own. A partitioned entry may hold several of one type in one tensor, a
//! *stack*: one behind the other along a leading dimension that is not the outside's, so that a mesh axis deals whole
//! parameters (experts) to ranks. An [`Outside`] takes stacks apart again.

use crate::module::{Entry, Member, ParamInfo, ResultInfo};
use std::collections::BTreeMap;

/// Where a tensor of the outside lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Which parameter or result of the entry's graph holds it.
    pub slot: usize,
    /// Its place in the leading dimension, if that is a stack.
    pub member: Option<usize>,
}

/// An entry as the outside knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outside {
    /// One parameter, and one result, for each of the outside's. Layouts are without the leading dimension of stacks.
    pub entry: Entry,
    /// Where each parameter is.
    pub params: Vec<Held>,
    /// Where each result is.
    pub results: Vec<Held>,
}

/// For each tensor of the outside where it is. Members say which it is; the others take the numbers left, in order.
fn held(stacks: &[&[Member]]) -> Result<Vec<Held>, String> {
    let all: usize = stacks.iter().map(|s| s.len().max(1)).sum();
    let mut out: Vec<Option<Held>> = vec![None; all];
    for (slot, stack) in stacks.iter().enumerate() {
        for (at, m) in stack.iter().enumerate() {
            let place = out.get_mut(m.number as usize);
            let place = place.filter(|p| p.is_none());
            let place =
                place.ok_or_else(|| format!("{} is no place, or one taken twice: {}", m.name, m.number))?;
            *place = Some(Held { slot, member: Some(at) });
        }
    }
    let mut alone = stacks.iter().enumerate().filter(|(_, s)| s.is_empty()).map(|(slot, _)| slot);
    for place in out.iter_mut().filter(|p| p.is_none()) {
        *place = alone.next().map(|slot| Held { slot, member: None });
    }
    out.into_iter().collect::<Option<Vec<Held>>>().ok_or_else(|| "a tensor lies nowhere".to_string())
}

impl Outside {
    /// Whether an entry has an outside: [`Outside::of`] without what it makes.
    ///
    /// # Errors
    /// As [`Outside::of`].
    pub fn check(e: &Entry) -> Result<(), String> {
        let stacked =
            e.params.iter().any(|p| !p.stack.is_empty()) || e.results.iter().any(|r| !r.stack.is_empty());
        if stacked {
            return Outside::of(e).map(|_| ());
        }
        let lost = e.params.iter().find(|p| p.alias.is_some_and(|r| r as usize >= e.results.len()));
        lost.map_or(Ok(()), |p| Err(format!("no result replaces {}", p.name)))
    }

    /// The outside of an entry.
    ///
    /// # Errors
    /// Where its stacks contradict each other, in words.
    pub fn of(e: &Entry) -> Result<Outside, String> {
        let stacks: Vec<&[Member]> = e.params.iter().map(|p| &p.stack[..]).collect();
        let params = held(&stacks)?;
        let stacks: Vec<&[Member]> = e.results.iter().map(|r| &r.stack[..]).collect();
        let results = held(&stacks)?;
        let mut entry =
            Entry { name: e.name.clone(), graph: e.graph, params: Vec::new(), results: Vec::new() };
        let numbers: BTreeMap<(usize, Option<usize>), u32> =
            results.iter().zip(0..).map(|(h, n)| ((h.slot, h.member), n)).collect();
        for h in &params {
            let p = &e.params[h.slot];
            let alias = match p.alias.map(|r| numbers.get(&(r as usize, h.member))) {
                Some(None) => return Err(format!("no result replaces {}", p.name)),
                Some(Some(&n)) => Some(n),
                None => None,
            };
            entry.params.push(match h.member {
                Some(m) => ParamInfo {
                    name: p.stack[m].name.clone(),
                    alias,
                    sharding: p.sharding.inner(),
                    stack: Vec::new(),
                },
                None => ParamInfo { alias, ..p.clone() },
            });
        }
        for h in &results {
            let r = &e.results[h.slot];
            entry.results.push(match h.member {
                Some(m) => ResultInfo {
                    name: r.stack[m].name.clone(),
                    sharding: r.sharding.inner(),
                    stack: Vec::new(),
                },
                None => r.clone(),
            });
        }
        Ok(Outside { entry, params, results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::{AxisId, GraphId, Sharding};

    fn entry() -> Entry {
        let member = |name: &str, number| Member { name: name.into(), number };
        let sharding =
            Sharding { dims: vec![vec![AxisId(0)], vec![AxisId(1)]], parts: vec![1, 2], sizes: vec![] };
        let stack = ParamInfo {
            name: "w".into(),
            alias: Some(0),
            sharding: sharding.clone(),
            stack: vec![member("w.0", 3), member("w.1", 1)],
        };
        let alone = |name: &str, alias| ParamInfo { name: name.into(), alias, ..ParamInfo::default() };
        let results = vec![
            ResultInfo { name: "w".into(), sharding, stack: vec![member("w.0", 2), member("w.1", 1)] },
            ResultInfo { name: "a".into(), ..ResultInfo::default() },
        ];
        Entry {
            name: "train".into(),
            graph: GraphId(0),
            params: vec![alone("a", Some(1)), stack, alone("x", None)],
            results,
        }
    }

    #[test]
    fn members_have_their_own_places() {
        let o = Outside::of(&entry()).expect("consistent");
        let names: Vec<(&str, Option<u32>)> =
            o.entry.params.iter().map(|p| (p.name.as_str(), p.alias)).collect();
        assert_eq!(names, [("a", Some(0)), ("w.1", Some(1)), ("x", None), ("w.0", Some(2))]);
        assert_eq!(o.params[3], Held { slot: 1, member: Some(0) });
        assert_eq!(o.results[0], Held { slot: 1, member: None });
        let inner = &o.entry.params[1].sharding;
        assert_eq!((inner.axes(0), inner.parts(0)), (&[AxisId(1)][..], 2));
    }

    #[test]
    fn places_taken_twice_or_missing_are_told() {
        let mut e = entry();
        e.params[1].stack[0].number = 1;
        assert!(Outside::of(&e).is_err());
        e.params[1].stack[0].number = 4;
        assert!(Outside::of(&e).is_err());
        let mut e = entry();
        e.results[0].stack.clear();
        assert!(Outside::of(&e).is_err(), "members that nothing replaces");
    }
}
