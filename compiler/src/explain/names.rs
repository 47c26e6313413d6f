//! Values of regions in the user's words: names of parameters in all layers, files and lines.

use crate::examine::Examined;
use msc_ir::{Graph, GraphId, Operation, ValueDef, ValueId};
use msc_passes::recognise::RegionReport;
use msc_passes::recognise::engine::{At, Source};
use msc_passes::template::{ParamSource, Template};

/// Layers that are listed one by one.
const FEW: usize = 6;

/// Names of values of one region.
pub(super) struct Names<'e> {
    e: &'e Examined,
    region: &'e RegionReport,
}

/// A value in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Named {
    /// For people: one text for all instances.
    pub text: String,
    /// Every name that it has in some instance.
    pub all: Vec<String>,
}

impl Named {
    fn one(text: String) -> Named {
        Named { all: vec![text.clone()], text }
    }
}

impl<'e> Names<'e> {
    /// Names of a region of the report.
    pub fn new(e: &'e Examined, region: &'e RegionReport) -> Names<'e> {
        Names { e, region }
    }

    fn graph(&self, part: usize) -> &'e Graph {
        &self.region.sources[part]
    }

    /// File and line of the op that makes a value.
    pub fn location(&self, at: At) -> String {
        self.place(self.graph(at.part), at.value).unwrap_or_else(|| self.value((at.part, at.value)).text)
    }

    fn place(&self, graph: &Graph, v: ValueId) -> Option<String> {
        let (op, _) = graph.def(v)?;
        Some(self.e.describe(graph.op(op).loc))
    }

    /// The op that makes a value, with file and line.
    pub fn op(&self, at: At) -> String {
        let graph = self.graph(at.part);
        match graph.def(at.value) {
            Some((op, _)) => format!("{} at {}", graph.op(op).op.name(), self.location(at)),
            None => self.value((at.part, at.value)).text,
        }
    }

    /// A value: a parameter by its name, anything else by file and line.
    pub fn value(&self, (part, v): (usize, ValueId)) -> Named {
        let graph = self.graph(part);
        let ValueDef::Param(i) = graph.value(v).def else {
            return Named::one(self.place(graph, v).unwrap_or_default());
        };
        let spec = &self.region.specs[part];
        let inner = match spec.params.get(i as usize) {
            Some(&Source::Result { part, index }) => Some((part, self.graph(part).results().get(index))),
            Some(&Source::Param { part, index }) => Some((part, self.graph(part).params().get(index))),
            _ => None,
        };
        match inner {
            Some((part, Some(&v))) => self.value((part, v)),
            _ => self.outer(spec.graph, i as usize),
        }
    }

    /// Parameter `i` of a graph, by what its callers hand it.
    fn outer(&self, graph: GraphId, i: usize) -> Named {
        let unknown = || Named::one(format!("parameter {i} of @{}", self.e.before.graph(graph).name));
        let Ok(entry) = self.e.before.entry() else { return unknown() };
        if graph == entry.graph {
            return entry.params.get(i).map_or_else(unknown, |p| Named::one(p.name.clone()));
        }
        if let Some((t, s)) = self.segment(graph) {
            let segment = &t.segments[s];
            if let Some(&ParamSource::Carry { segment: from, result, offset }) = segment.params.get(i) {
                let other = self.e.before.graph(t.segments[from].graph);
                let made = other.results().get(result).and_then(|&v| self.place(other, v));
                let which = if offset < 0 { "previous" } else { "next" };
                return Named::one(format!("{}, of the {which} instance", made.unwrap_or_default()));
            }
            let outside = self.e.before.graph(entry.graph);
            let operands = segment.calls.iter().filter_map(|&c| outside.op(c).operands.get(i));
            let all: Vec<String> = operands.map(|&v| self.entry_value(outside, v)).collect();
            return Named { text: together(&all), all };
        }
        let of_loop = self.e.templates.loops.iter().find(|l| l.body == graph).and_then(|l| {
            let outside = self.e.before.graph(l.graph);
            let &v = outside.op(l.op).operands.get(i)?;
            Some(match outside.def(v) {
                None if l.graph == entry.graph => format!("in the loop: {}", self.entry_value(outside, v)),
                _ => format!("in the loop, first {}", self.place(outside, v).unwrap_or_default()),
            })
        });
        of_loop.map_or_else(unknown, Named::one)
    }

    fn entry_value(&self, graph: &Graph, v: ValueId) -> String {
        let name = match graph.value(v).def {
            ValueDef::Param(i) => {
                self.e.before.entry().ok().and_then(|e| Some(e.params.get(i as usize)?.name.clone()))
            }
            ValueDef::Result(..) => self.place(graph, v),
        };
        name.unwrap_or_else(|| format!("%{}", v.0))
    }

    /// The template that a graph is a segment of, and which.
    pub fn segment(&self, graph: GraphId) -> Option<(&'e Template, usize)> {
        let all = self.e.templates.templates.iter();
        all.filter_map(|t| Some((t, t.segments.iter().position(|s| s.graph == graph)?))).next()
    }

    /// Where the ops of a part are executed, in words.
    pub fn executions(&self, part: usize) -> String {
        let graph = self.region.specs[part].graph;
        let n = self.region.executed;
        match self.segment(graph) {
            Some((t, s)) => {
                let role = t.segments[s].role.name();
                format!("{role} of {n} instances of {} (the line is the first one's)", t.name)
            }
            None if self.e.templates.loops.iter().any(|l| l.body == graph) => {
                format!("{n} times a step, in the loop @{}", self.e.before.graph(graph).name)
            }
            None if n == 1 => "once a step".to_string(),
            None => format!("{n} times a step"),
        }
    }
}

/// One text for names that differ in a number: `layers.{0,1}.weight`.
fn together(names: &[String]) -> String {
    let Some(first) = names.first() else { return String::new() };
    if names.iter().all(|n| n == first) {
        return first.clone();
    }
    let chars: Vec<Vec<char>> = names.iter().map(|n| n.chars().collect()).collect();
    let shortest = chars.iter().map(Vec::len).min().unwrap_or(0);
    let alike = |at: &dyn Fn(&Vec<char>) -> Option<char>| chars.iter().all(|c| at(c) == at(&chars[0]));
    let mut head = (0..shortest).take_while(|&i| alike(&|c| c.get(i).copied())).count();
    // A number is not cut in two.
    while head > 0 && chars[0][head - 1].is_ascii_digit() {
        head -= 1;
    }
    let from_end = |c: &Vec<char>, i: usize| c.len().checked_sub(i + 1).and_then(|i| c.get(i).copied());
    let mut tail = (0..shortest - head).take_while(|&i| alike(&|c| from_end(c, i))).count();
    while tail > 0 && from_end(&chars[0], tail - 1).is_some_and(|c| c.is_ascii_digit()) {
        tail -= 1;
    }
    let text = |c: &[char]| c.iter().collect::<String>();
    let middles: Vec<String> = chars.iter().map(|c| text(&c[head..c.len() - tail])).collect();
    let shown = match middles.len() {
        n if n > FEW => format!("{},{},…,{}", middles[0], middles[1], middles[n - 1]),
        _ => middles.join(","),
    };
    let end = &chars[0][chars[0].len() - tail..];
    format!("{}{{{shown}}}{}", text(&chars[0][..head]), text(end))
}

#[cfg(test)]
mod tests {
    use super::together;

    #[test]
    fn names_of_all_layers_are_one() {
        let of = |names: &[&str]| together(&names.iter().map(|n| (*n).to_string()).collect::<Vec<_>>());
        assert_eq!(of(&["h.0.w", "h.1.w"]), "h.{0,1}.w");
        assert_eq!(of(&["h.9.w", "h.10.w", "h.11.w"]), "h.{9,10,11}.w");
        assert_eq!(of(&["a", "a"]), "a");
        assert_eq!(of(&["layers[1][2]", "layers[2][2]"]), "layers[{1,2}][2]");
        assert_eq!(of(&[]), "");
        let many: Vec<String> = (0..80).map(|i| format!("h.{i}.w")).collect();
        assert_eq!(together(&many), "h.{0,1,…,79}.w");
    }
}
