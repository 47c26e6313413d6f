//! The entry of stacks.

use super::Slot;
use super::found::Found;
use msc_ir::Module;
use msc_ir::module::{Member, ParamInfo, ResultInfo};
use std::collections::BTreeMap;

/// Rewrites what is known of the entry; for each parameter where it went.
pub(super) fn rewrite(module: &mut Module, found: &Found) -> Vec<Option<usize>> {
    let (params, results) = (found.params(found.entry), found.results(found.entry));
    let e = &mut module.entries[0];
    let mut moved = vec![None; e.params.len()];
    let to: BTreeMap<usize, u32> = results
        .iter()
        .zip(0..)
        .flat_map(|(slot, n)| match slot {
            Slot::One(r) => vec![(*r, n)],
            Slot::Many(rs) => rs.iter().map(|&r| (r, n)).collect(),
        })
        .collect();
    let replaced = |alias: Option<u32>| alias.and_then(|r| to.get(&(r as usize)).copied());
    let new_params = params.iter().enumerate().map(|(n, slot)| match slot {
        Slot::One(p) => {
            moved[*p] = Some(n);
            ParamInfo { alias: replaced(e.params[*p].alias), ..e.params[*p].clone() }
        }
        Slot::Many(ps) => {
            let member = |&p: &usize| Member { name: e.params[p].name.clone(), number: p as u32 };
            let stack: Vec<Member> = ps.iter().map(member).collect();
            let alias = replaced(e.params[ps[0]].alias);
            ParamInfo { name: together(&stack), alias, stack, ..ParamInfo::default() }
        }
    });
    let new_params = new_params.collect();
    let new_results = results.iter().map(|slot| match slot {
        Slot::One(r) => e.results[*r].clone(),
        Slot::Many(rs) => {
            let member = |&r: &usize| Member { name: e.results[r].name.clone(), number: r as u32 };
            let stack: Vec<Member> = rs.iter().map(member).collect();
            ResultInfo { name: together(&stack), stack, ..ResultInfo::default() }
        }
    });
    let new_results = new_results.collect();
    (e.params, e.results) = (new_params, new_results);
    moved
}

/// A name for several: what they have in common, and how the first and the last differ.
fn together(stack: &[Member]) -> String {
    let (Some(first), Some(last)) = (stack.first(), stack.last()) else { return String::new() };
    let (a, b): (Vec<char>, Vec<char>) = (first.name.chars().collect(), last.name.chars().collect());
    let least = a.len().min(b.len());
    let before = (0..least).take_while(|&i| a[i] == b[i]).count();
    let after = (0..least - before).take_while(|&i| a[a.len() - 1 - i] == b[b.len() - 1 - i]).count();
    let text = |c: &[char]| c.iter().collect::<String>();
    let (x, y) = (text(&a[before..a.len() - after]), text(&b[before..b.len() - after]));
    format!("{}{{{x}..{y}}}{}", text(&a[..before]), text(&a[a.len() - after..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_named_by_what_their_members_share() {
        let stack = |names: &[&str]| -> String {
            together(&names.iter().map(|n| Member { name: n.to_string(), number: 0 }).collect::<Vec<_>>())
        };
        assert_eq!(stack(&["e.0.w", "e.1.w", "e.7.w"]), "e.{0..7}.w");
        assert_eq!(stack(&["a1", "a11"]), "a1{..1}");
        assert_eq!(stack(&["", ""]), "{..}");
    }
}
