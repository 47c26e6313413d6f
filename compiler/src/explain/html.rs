//! `msc explain --html`: one page without anything from outside. For each e-graph a picture of its graphs as recognition
//! left them (named operations, products, what is left over), the borders of the named operations, and what came near.

use super::sites::{self, Cut, Site};
use super::why::{self, NearSite};
use crate::examine::Examined;
use msc_ir::{Graph, GraphId, Op, OpId, Operation, ValueId};
use msc_passes::recognise::RegionReport;
use msc_passes::recognise::why::OPERATIONS;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Pixels of a box, and from one box to the next.
const BOX: (usize, usize) = (250, 24);
const STEP: usize = 32;
/// Room beside the boxes for the edges.
const SIDE: usize = 150;
/// Boxes of one graph that are drawn; an entry with hundreds of weights goes on in words.
const MOST_BOXES: usize = 160;

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:2em;max-width:110em;color:#222}\
h2{border-top:1px solid #ccc;padding-top:1em}code,td{font-family:ui-monospace,monospace;font-size:12px}\
.graphs{display:flex;flex-wrap:wrap;gap:1em}figure{margin:0}figcaption{font-weight:600}\
table{border-collapse:collapse;margin:.5em 0}td,th{text-align:left;padding:.1em .8em .1em 0;vertical-align:top}\
svg text{font:12px system-ui,sans-serif}.named{fill:#cfe3ff;stroke:#3672b9}.dot{fill:#e6f4d7;stroke:#6a9a35}\
.left{fill:#f3f3f3;stroke:#bbb}.edge{fill:none;stroke:#999;stroke-width:1}summary{cursor:pointer}";

/// The page.
pub fn page(e: &Examined) -> String {
    let mut out = String::new();
    let name = e.source.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style>\
         </head><body>\n<h1>{0}: what was recognised</h1>\n",
        escaped(&name)
    );
    out.push_str("<table><tr><th>operation</th><th>sites</th><th>executed a step</th></tr>\n");
    for (kind, f) in &e.report.fusions {
        row(&[kind, &f.sites.to_string(), &f.executed.to_string()], &mut out);
    }
    out.push_str("</table>\n");
    let by_region = sites::by_region(e);
    for (region, sites) in e.report.regions.iter().zip(&by_region) {
        of_region(e, region, sites, &mut out);
    }
    let loops = sites::loops(e);
    if !loops.is_empty() {
        out.push_str("<h2>Loops over microbatches</h2>\n");
        loops.iter().for_each(|s| of_site(s, &mut out));
    }
    out.push_str("<h2>What came near</h2>\n");
    near(e, &mut out);
    out.push_str("</body></html>\n");
    out
}

fn of_region(e: &Examined, region: &RegionReport, sites: &[Site], out: &mut String) {
    let _ = writeln!(
        out,
        "<h2>@{}</h2>\n<p>executed {} times a step; {} e-nodes in {} classes after {} rounds, {}</p>",
        escaped(&region.graphs.join(", @")),
        region.executed,
        region.nodes,
        region.classes,
        region.iterations,
        region.stop.name()
    );
    out.push_str("<div class=\"graphs\">\n");
    for spec in &region.specs {
        picture(e, spec.graph, out);
    }
    out.push_str("</div>\n");
    sites.iter().for_each(|s| of_site(s, out));
}

fn of_site(s: &Site, out: &mut String) {
    let _ = write!(
        out,
        "<details><summary><b>{}</b> at {} in @{}</summary>",
        s.operation,
        escaped(&s.location),
        escaped(&s.graph)
    );
    if !s.attributes.is_empty() {
        let _ = write!(out, "<p>with {}</p>", escaped(&s.attributes));
    }
    let _ = write!(out, "<p>{} {}", s.decided, escaped(&s.rule));
    for f in &s.formulas {
        let _ = write!(out, "<br><code>{}</code>", escaped(f));
    }
    out.push_str("</p><table>");
    s.inputs.iter().for_each(|c| border("takes", c, out));
    s.outputs.iter().for_each(|c| border("gives", c, out));
    out.push_str("</table>");
    if !s.links.is_empty() {
        out.push_str("<p>spelled otherwise on the way:</p><table>");
        for l in &s.links {
            row(&[&l.rule, &l.formula, &l.location], out);
        }
        out.push_str("</table>");
    }
    out.push_str("</details>\n");
}

fn border(what: &str, c: &Cut, out: &mut String) {
    row(&[what, &c.name, &c.ty, &c.value], out);
}

fn row(cells: &[&str], out: &mut String) {
    let cells: String = cells.iter().map(|c| format!("<td>{}</td>", escaped(c))).collect();
    let _ = writeln!(out, "<tr>{cells}</tr>");
}

/// A box of a picture.
struct Drawn {
    class: &'static str,
    text: String,
    title: String,
    ops: Vec<OpId>,
}

/// The ops of a graph as boxes, those that are neither named nor products together where they follow each other.
fn boxes(e: &Examined, g: &Graph) -> Vec<Drawn> {
    let mut out: Vec<Drawn> = Vec::new();
    for (id, d) in g.ops().filter(|(_, d)| !matches!(d.op, Op::Constant(_))) {
        let place = format!("{} at {}", d.op.name(), e.describe(d.loc));
        let class = match &d.op {
            Op::Fused(_) => "named",
            Op::DotGeneral(_) | Op::Call(_) | Op::While(_) => "dot",
            _ => "left",
        };
        match out.last_mut() {
            Some(last) if class == "left" && last.class == "left" => {
                last.ops.push(id);
                let _ = write!(last.title, "\n{place}");
            }
            _ => out.push(Drawn { class, text: d.op.name().to_string(), title: place, ops: vec![id] }),
        }
    }
    for b in out.iter_mut().filter(|b| b.class == "left") {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        b.ops.iter().for_each(|&op| *names.entry(g.op(op).op.name()).or_default() += 1);
        let text: Vec<String> = names
            .into_iter()
            .map(|(name, n)| if n == 1 { name.to_string() } else { format!("{n} {name}") })
            .collect();
        b.text = text.join(", ");
    }
    out
}

fn picture(e: &Examined, id: GraphId, out: &mut String) {
    let g = e.recognised.graph(id);
    let mut all = boxes(e, g);
    let left: usize = all.iter().filter(|b| b.class == "left").map(|b| b.ops.len()).sum();
    let named = all.iter().filter(|b| b.class == "named").count();
    let _ = write!(
        out,
        "<figure><figcaption>@{}: {named} named, {left} left over</figcaption>",
        escaped(&g.name)
    );
    let more = all.len().saturating_sub(MOST_BOXES);
    all.truncate(MOST_BOXES);
    let (width, height) = (BOX.0 + SIDE, all.len() * STEP + 4);
    let _ = write!(out, "<svg width=\"{width}\" height=\"{height}\">");
    let mut made_by: BTreeMap<ValueId, usize> = BTreeMap::new();
    let middle = |i: usize| 2 + i * STEP + BOX.1 / 2;
    for (i, b) in all.iter().enumerate() {
        let reads = b.ops.iter().flat_map(|&op| &g.op(op).operands);
        let from: BTreeSet<usize> = reads.filter_map(|v| made_by.get(v).copied()).collect();
        for j in from {
            let bend = (14 + 5 * (i - j)).min(SIDE - 8) + BOX.0;
            let (x, a, b) = (BOX.0, middle(j), middle(i));
            let _ = write!(out, "<path class=\"edge\" d=\"M{x} {a}C{bend} {a} {bend} {b} {x} {b}\"/>");
        }
        made_by.extend(b.ops.iter().flat_map(|&op| &g.op(op).results).map(|&v| (v, i)));
    }
    for (i, b) in all.iter().enumerate() {
        let text: String = b.text.chars().take(38).collect();
        let _ = write!(
            out,
            "<g><title>{}</title><rect class=\"{}\" x=\"1\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\
             <text x=\"8\" y=\"{}\">{}</text></g>",
            escaped(&b.title),
            b.class,
            2 + i * STEP,
            BOX.0 - 2,
            BOX.1,
            middle(i) + 4,
            escaped(&text)
        );
    }
    out.push_str("</svg>");
    if more > 0 {
        let _ = write!(out, "<p>and {more} more</p>");
    }
    out.push_str("</figure>\n");
}

/// Places that recognition looked at and refused, by operation.
fn near(e: &Examined, out: &mut String) {
    for operation in OPERATIONS {
        let answer = why::answer(e, operation, &[]);
        let places: Vec<&NearSite> = answer.near.iter().filter(|n| n.part_of.is_none()).collect();
        if places.is_empty() {
            continue;
        }
        let _ = write!(out, "<h3>{operation}</h3><table>");
        for n in places {
            let help = if n.help.is_empty() { String::new() } else { format!("; {}", n.help) };
            row(&[&n.location, &n.rule, &format!("{}{help}", n.why)], out);
        }
        out.push_str("</table>\n");
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
