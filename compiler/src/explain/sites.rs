//! The named operations that were found, one record a site.

use super::chain::{Chains, Link};
use super::names::{Named, Names};
use crate::examine::Examined;
use msc_ir::attr::AttrValue;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::{Op, Operation};
use msc_passes::recognise::RegionReport;
use msc_passes::recognise::accumulation::{Accumulation, NAME};
use msc_passes::recognise::engine::run::{CutValue, Made, Reason};
use msc_passes::recognise::engine::{At, Tag};
use msc_passes::recognise::why::{Decided, decided};
use serde::Serialize;
use std::fmt::Write;

/// An input or output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cut {
    /// Its name in the operation.
    pub name: String,
    /// Its type.
    pub ty: String,
    /// The user's value: a parameter's name, or file and line.
    pub value: String,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    /// The operation.
    pub operation: String,
    /// Its attributes.
    pub attributes: String,
    /// File and line of its main output.
    pub location: String,
    /// The graph that it is in.
    pub graph: String,
    /// Which layers it stands for.
    pub executions: String,
    /// How many times a step executes it.
    pub executed: u64,
    /// The rule or probe that found it.
    pub rule: String,
    /// How it was decided that it is there.
    pub decided: String,
    /// Whether it has the same bits, or is equal but for rounding.
    pub exact: bool,
    /// Inputs, in operand order.
    pub inputs: Vec<Cut>,
    /// Outputs that the program has.
    pub outputs: Vec<Cut>,
    /// What the rule looks for, root by root.
    pub formulas: Vec<String>,
    /// Rules that spelled parts of it otherwise, in the order in which they applied.
    pub links: Vec<Link>,
    #[serde(skip)]
    mentions: Vec<String>,
}

/// All sites, by operation and place.
pub fn all(e: &Examined) -> Vec<Site> {
    let mut out: Vec<Site> = by_region(e).into_iter().flatten().collect();
    out.extend(loops(e));
    out.sort_by(|a, b| a.operation.cmp(&b.operation));
    out
}

/// The sites of each region.
pub(super) fn by_region(e: &Examined) -> Vec<Vec<Site>> {
    let chains = Chains::new();
    let of_region = |region: &RegionReport| {
        let names = Names::new(e, region);
        region.reasons.iter().map(|r| site(e, region, &names, &chains, r)).collect()
    };
    e.report.regions.iter().map(of_region).collect()
}

fn site(e: &Examined, region: &RegionReport, names: &Names<'_>, chains: &Chains, r: &Reason) -> Site {
    let mut formulas = chains.formulas(r.rule);
    if !formulas.is_empty() && r.outputs.iter().any(|o| o.name == "h") {
        formulas.push("h = x + r, in the place of x".into());
    }
    let mut mentions = Vec::new();
    let mut cut = |v: &CutValue| {
        let name = |v: &msc_passes::recognise::engine::At| names.value((v.part, v.value));
        let value = match (v.values.first(), v.given_by) {
            (Some(at), _) => name(at),
            (None, Some(_)) => Named { text: "a result of the forward operation".into(), all: Vec::new() },
            (None, None) => v.made_of.as_ref().map_or_else(Named::default, |m| made(m, &name)),
        };
        mentions.extend(value.all);
        Cut { name: v.name.to_string(), ty: v.ty.to_string(), value: value.text }
    };
    let inputs = r.inputs.iter().map(&mut cut).collect();
    // A result that the program has in several layouts is told once.
    let mut outputs: Vec<Cut> = Vec::new();
    for o in &r.outputs {
        if !outputs.iter().any(|c| c.name == o.name) {
            outputs.push(cut(o));
        }
    }
    // Of what is there for a gradient alone the operands say where it is.
    let values = |all: &[CutValue]| all.iter().find_map(|o| o.values.first()).copied();
    let at = values(&r.outputs).or_else(|| values(&r.inputs));
    let part = at.map_or(0, |at| at.part);
    Site {
        operation: r.fused.name().to_string(),
        attributes: attributes(e, r),
        location: at.map_or_else(|| "unknown location".into(), |at| names.location(at)),
        graph: region.graphs.get(part).cloned().unwrap_or_default(),
        executions: names.executions(part),
        executed: region.executed,
        rule: r.rule.to_string(),
        decided: how(r.rule).to_string(),
        exact: r.tag == Tag::Exact,
        inputs,
        outputs,
        formulas,
        links: chains.links(region, names, r),
        mentions,
    }
}

/// What was done to decide that an operation is there, before the name of what did it.
fn how(rule: &str) -> &'static str {
    match decided(rule) {
        Decided::Pattern => "rule",
        Decided::Tried => "found by its shape and tried on numbers: probe",
        Decided::Read => "read off op by op: probe",
    }
}

/// All loops over microbatches.
pub(super) fn loops(e: &Examined) -> Vec<Site> {
    e.report.accumulations.iter().map(|a| loop_site(e, a)).collect()
}

/// A loop over microbatches: what it hands on, by carry.
fn loop_site(e: &Examined, a: &Accumulation) -> Site {
    let g = e.recognised.graph(a.graph);
    let data = g.op(a.op);
    let cut = |name: &str, carry: usize, value: String| Cut {
        name: name.to_string(),
        ty: g.ty(data.results[carry]).to_string(),
        value,
    };
    let batched = a.batched.iter().map(|&i| cut("batched", i, format!("carry {i}, a slice each trip")));
    let outputs = a.sums.iter().map(|s| {
        let divided = s.divided.map_or(String::new(), |d| format!(", then divided by {d}"));
        let name = if s.gradient { "gradient" } else { "sum" };
        cut(name, s.carry, format!("carry {}, summed{divided}", s.carry))
    });
    Site {
        operation: NAME.to_string(),
        attributes: a.describe(),
        location: e.describe(a.loc),
        graph: g.name.clone(),
        executions: format!("{} times a step, each of {} trips", a.executed, a.microbatches),
        executed: a.executed,
        rule: "gradient-accumulation".to_string(),
        decided: how("gradient-accumulation").to_string(),
        exact: true,
        inputs: batched.collect(),
        outputs: outputs.collect(),
        formulas: Vec::new(),
        links: Vec::new(),
        mentions: Vec::new(),
    }
}

/// What a rule built, as a formula of the program's values.
fn made(m: &Made, name: &dyn Fn(&At) -> Named) -> Named {
    let (op, args) = match m {
        Made::Value(_, values) => return values.first().map(name).unwrap_or_default(),
        Made::Op(op, args) => (op, args.iter().map(|a| made(a, name)).collect::<Vec<_>>()),
    };
    let part = |of: &Named| match of.text.contains(' ') {
        true => format!("({})", of.text),
        false => of.text.clone(),
    };
    let text = match (&**op, args.as_slice()) {
        (Op::Binary(b), [x, y]) if b.kind == BinaryKind::Add => format!("{} + {}", x.text, y.text),
        (Op::Binary(b), [x, y]) => {
            let sign = match b.kind {
                BinaryKind::Subtract => "-",
                BinaryKind::Multiply => "·",
                BinaryKind::Divide => "/",
                kind => kind.name(),
            };
            format!("{} {sign} {}", part(x), part(y))
        }
        (Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_), [x]) => x.text.clone(),
        (op, args) => {
            let args: Vec<String> = args.iter().map(part).collect();
            format!("{} {}", op.name(), args.join(", ")).trim_end().to_string()
        }
    };
    Named { text, all: args.into_iter().flat_map(|a| a.all).collect() }
}

fn attributes(e: &Examined, r: &Reason) -> String {
    let value = |v: &AttrValue| match v {
        AttrValue::Bool(b) => b.to_string(),
        AttrValue::Int(i) => i.to_string(),
        // Exporters round decimals to f32; the decimal is shown again.
        AttrValue::Float(b) => format!("{}", f64::from_bits(*b) as f32),
        AttrValue::Text(t) | AttrValue::Word(t) => t.clone(),
        other => format!("{other:?}"),
    };
    let all = r.fused.attrs(&e.recognised);
    let shown = all.iter().filter(|(name, _)| **name != "definition");
    shown.map(|(name, v)| format!("{name} = {}", value(v))).collect::<Vec<_>>().join(", ")
}

impl Site {
    /// Whether a text occurs in a name, a location or a value of the site.
    pub fn mentions(&self, text: &str) -> bool {
        let cuts = self.inputs.iter().chain(&self.outputs).map(|c| &c.value);
        cuts.chain(&self.mentions).chain([&self.location, &self.graph]).any(|s| s.contains(text))
    }

    /// A paragraph; with the rules on the way if `chain`.
    pub fn text(&self, chain: bool) -> String {
        let mut out = format!("{} at {}\n", self.operation, self.location);
        let _ = writeln!(out, "  @{}: {}", self.graph, self.executions);
        if !self.attributes.is_empty() {
            let _ = writeln!(out, "  with {}", self.attributes);
        }
        let tag = if self.exact { "the same bits" } else { "equal but for the rounding of sums" };
        let _ = writeln!(out, "  {} {}; {tag}", self.decided, self.rule);
        if chain {
            self.way(&mut out);
        }
        let cuts = || self.inputs.iter().map(|c| ("  ", c)).chain(self.outputs.iter().map(|c| ("->", c)));
        let width = |f: fn(&Cut) -> usize| cuts().map(|(_, c)| f(c)).max().unwrap_or(0);
        let (n, t) = (width(|c| c.name.chars().count()), width(|c| c.ty.len()));
        for (arrow, c) in cuts() {
            let _ = writeln!(out, "  {arrow} {:n$}  {:t$}  {}", c.name, c.ty, c.value);
        }
        out
    }

    /// What the rule looks for, and what was spelled otherwise before it was found.
    fn way(&self, out: &mut String) {
        for f in &self.formulas {
            let _ = writeln!(out, "       {f}");
        }
        let width = |f: fn(&Link) -> usize| self.links.iter().map(f).max().unwrap_or(0);
        let (n, t) = (width(|l| l.rule.len()), width(|l| l.formula.chars().count()));
        for l in &self.links {
            let tag = if l.exact { "" } else { ", but for rounding" };
            let _ = writeln!(out, "  by {:n$}  {:t$}  at {}{tag}", l.rule, l.formula, l.location);
        }
    }
}
