//! `msc explain --comm`: every collective of a layout, with the two facts that made it necessary, what it moves, how
//! often, and how long that is predicted to take; and what is gathered whole.

mod direction;

use crate::error::Result;
use crate::options::{Options, mesh_text};
use crate::pipeline::{self, Outcome};
use crate::report::{CollectiveReport, Report};
use direction::Direction;
use msc_ir::module::{AxisId, Mesh};
use msc_ir::ops::collective::{Axes, Collective};
use msc_ir::{Module, Monoid};
use msc_passes::cost::topology::Topology;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Bytes from which on a tensor that is gathered whole is reported, if the user does not say: a weight of 4096 by
/// 8192 in bf16. Smaller ones are what gathering each layer's weights makes of most models.
pub const GATHERED: u64 = 64 << 20;

/// One collective.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comm {
    /// The graph it is in.
    pub graph: String,
    /// In which part of the step.
    pub direction: Direction,
    /// `all_reduce`, …
    pub kind: String,
    /// What combines, where something does.
    pub monoid: Option<String>,
    /// Mesh axes.
    pub axes: Vec<String>,
    /// Ranks of a group.
    pub ranks: usize,
    /// Bytes that each rank gives.
    pub bytes: u64,
    /// Times a step executes it.
    pub executed: usize,
    /// Predicted microseconds of one.
    pub predicted_us: f64,
    /// The algorithm and the links, where the topology describes them.
    pub route: Option<String>,
    /// Bytes of the tensor that it makes whole on every rank of a group, for gathers.
    pub gathered_bytes: Option<u64>,
    /// The first fact.
    pub because: String,
    /// The second.
    pub needed: String,
}

/// A sum over collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// Mesh axes, joined by `+`, or a direction.
    pub of: String,
    /// Collectives in a step.
    pub executed: usize,
    /// Bytes that each rank gives in a step.
    pub bytes: u64,
    /// Predicted microseconds of a step.
    pub predicted_us: f64,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answer {
    /// Axes and their ranks.
    pub mesh: Vec<(String, usize)>,
    /// Collectives in program order.
    pub collectives: Vec<Comm>,
    /// Sums by mesh axes.
    pub by_axis: Vec<Sum>,
    /// Sums by direction.
    pub by_direction: Vec<Sum>,
    /// All of them.
    pub total: Sum,
    /// Bytes from which on a gathered tensor is listed.
    pub gathered_above: u64,
    /// Indices of the collectives that gather that much.
    pub gathered: Vec<usize>,
    /// What the layout's sources had to say.
    pub notes: Vec<String>,
}

/// Compiles a model with a layout and tells its communication.
///
/// # Errors
/// Those of the compilation.
pub fn answer(model: &Path, options: &Options, gathered_above: u64) -> Result<Answer> {
    // Kernels change nothing that crosses between ranks.
    let options = Options { fuse: false, ..options.clone() };
    let Outcome::Compiled(c) = pipeline::compile(model, &options, None)? else {
        return Ok(Answer::default());
    };
    Ok(of(&c.module, &c.report, c.topology.as_ref(), gathered_above))
}

/// The communication of a partitioned module.
fn of(module: &Module, r: &Report, topology: Option<&Topology>, gathered_above: u64) -> Answer {
    let directions = direction::directions(module, r);
    let list: Vec<Comm> = r
        .collectives
        .iter()
        .zip(directions)
        .map(|(c, direction)| comm(c, direction, &module.mesh, topology))
        .collect();
    let gathers = |c: &Comm| c.gathered_bytes.is_some_and(|b| b >= gathered_above);
    let mut total = Sum { of: "all".into(), ..Sum::default() };
    list.iter().for_each(|c| add(&mut total, c));
    Answer {
        mesh: r.layout.mesh.clone(),
        by_axis: sums(&list, |c| c.axes.join("+")),
        by_direction: sums(&list, |c| c.direction.name().to_string()),
        total,
        gathered_above,
        gathered: (0..list.len()).filter(|&i| gathers(&list[i])).collect(),
        notes: r.layout.notes.clone(),
        collectives: list,
    }
}

fn comm(c: &CollectiveReport, direction: Direction, mesh: &Mesh, topology: Option<&Topology>) -> Comm {
    let axes: Vec<AxisId> = c.axes.iter().filter_map(|a| mesh.axis(a)).collect();
    let ranks: usize = axes.iter().map(|&a| mesh.size(a)).product();
    let op = op_of(&c.kind, &axes);
    let route = topology.zip(op).and_then(|(t, op)| {
        let route = t.device.route(&op, c.bytes, mesh, &axes)?;
        Some(t.describe(&route))
    });
    Comm {
        graph: c.graph.clone(),
        direction,
        kind: c.kind.clone(),
        monoid: c.monoid.clone(),
        axes: c.axes.clone(),
        ranks,
        bytes: c.bytes,
        executed: c.executed,
        predicted_us: c.predicted_us,
        route,
        gathered_bytes: (c.kind == "all_gather").then(|| c.bytes.saturating_mul(ranks as u64)),
        because: c.partial_because.clone(),
        needed: c.whole_because.clone(),
    }
}

/// A collective of a kind, for the cost model.
fn op_of(kind: &str, axes: &[AxisId]) -> Option<Collective> {
    let axes: Axes = axes.iter().copied().collect();
    Some(match kind {
        "all_reduce" => Collective::AllReduce { monoid: Monoid::Sum, axes },
        "all_gather" => Collective::AllGather { dim: 0, axes },
        "reduce_scatter" => Collective::ReduceScatter { monoid: Monoid::Sum, dim: 0, axes },
        "all_to_all" => Collective::AllToAll { split_dim: 0, concat_dim: 0, axes },
        "collective_permute" => Collective::Permute { pairs: Default::default(), axes },
        "collective_broadcast" => Collective::Broadcast { axes },
        _ => return None,
    })
}

fn add(s: &mut Sum, c: &Comm) {
    s.executed += c.executed;
    s.bytes = s.bytes.saturating_add(c.bytes.saturating_mul(c.executed as u64));
    s.predicted_us += c.predicted_us * c.executed as f64;
}

/// Sums by a key, in the keys' order of first appearance.
fn sums(list: &[Comm], key: impl Fn(&Comm) -> String) -> Vec<Sum> {
    let mut out: Vec<Sum> = Vec::new();
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    for c in list {
        let of = key(c);
        let i = *at.entry(of.clone()).or_insert(out.len());
        if i == out.len() {
            out.push(Sum { of, ..Sum::default() });
        }
        add(&mut out[i], c);
    }
    out
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| bytes >> bits > 0) {
        Some((unit, bits)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << bits) as f64),
        None => format!("{bytes} bytes"),
    }
}

impl Answer {
    /// For the terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = match &self.mesh[..] {
            [] => writeln!(out, "one rank: nothing is communicated"),
            axes => writeln!(out, "mesh {}", mesh_text(axes)),
        };
        for n in &self.notes {
            let _ = writeln!(out, "note: {n}");
        }
        for c in &self.collectives {
            let _ = writeln!(
                out,
                "\n{} over {} in @{} ({}): {} from each of {} ranks, {} a step, {:.1} us each",
                c.kind,
                c.axes.join("+"),
                c.graph,
                c.direction.name(),
                size(c.bytes),
                c.ranks,
                times(c.executed),
                c.predicted_us,
            );
            if let Some(route) = &c.route {
                let _ = writeln!(out, "  way: {route}");
            }
            let _ = writeln!(out, "  because {}\n  and {}", c.because, c.needed);
        }
        if self.collectives.is_empty() {
            return out;
        }
        out.push('\n');
        for (what, sums) in [("axes", &self.by_axis), ("direction", &self.by_direction)] {
            for s in sums {
                let _ = writeln!(out, "{what} {}: {}", s.of, told(s));
            }
        }
        let _ = writeln!(out, "all: {}", told(&self.total));
        for &i in &self.gathered {
            let c = &self.collectives[i];
            let _ = writeln!(
                out,
                "warning: {} are gathered whole over {} in @{}: {}",
                size(c.gathered_bytes.unwrap_or(0)),
                c.axes.join("+"),
                c.graph,
                c.needed
            );
        }
        out
    }
}

fn times(n: usize) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

fn told(s: &Sum) -> String {
    let plural = if s.executed == 1 { "" } else { "s" };
    let (n, bytes) = (s.executed, size(s.bytes));
    format!("{n} collective{plural} a step, {bytes} from each rank, {:.1} us", s.predicted_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_ir::text;

    /// A step on `dp=2, tp=4`: a forward gather and sum that the loss needs, a sum of gradients that only state needs.
    const STEP: &str = "module @m mesh [dp = 2, tp = 4]
graph @main(%0: f32[4,8], %1: f32[2,16]) {
  %2 = all_gather %0 {axes = [1], dim = 0} : f32[16,8]
  %3 = convert %2 {dtype = f32} : f32[16,8]
  %4 = reduce %3 {dims = [0, 1], monoid = sum} : f32[]
  %5 = all_reduce %4 {axes = [0], monoid = sum} : f32[]
  %6 = all_reduce %0 {axes = [0, 1], monoid = sum} : f32[4,8]
  return %5, %6
}
entry \"train\" @main {
  param \"w\" alias 1
  param \"x\"
  result \"loss\"
  result \"w\"
}";

    fn reported(kind: &str, axes: &[&str], bytes: u64) -> CollectiveReport {
        CollectiveReport {
            graph: "main".into(),
            kind: kind.into(),
            monoid: Some("sum".into()),
            axes: axes.iter().map(|a| a.to_string()).collect(),
            bytes,
            executed: 3,
            predicted_us: 2.0,
            partial_because: "dot reduces".into(),
            whole_because: "add needs it".into(),
        }
    }

    #[test]
    fn sums_directions_and_what_is_gathered() {
        let module = text::parse(STEP).expect("parses");
        let mut r = Report::default();
        r.layout.mesh = vec![("dp".into(), 2), ("tp".into(), 4)];
        r.collectives = vec![
            reported("all_gather", &["tp"], 128),
            reported("all_reduce", &["dp"], 4),
            reported("all_reduce", &["dp", "tp"], 128),
        ];
        let t = Topology::shipped("910b-64").expect("is shipped").expect("is right");
        let a = of(&module, &r, Some(&t), 512);
        let directions: Vec<&str> = a.collectives.iter().map(|c| c.direction.name()).collect();
        assert_eq!(directions, ["forward", "forward", "backward"]);
        let by = |sums: &[Sum]| sums.iter().map(|s| (s.of.clone(), s.executed, s.bytes)).collect::<Vec<_>>();
        let three = |of: &str, bytes| (of.to_string(), 3, bytes);
        assert_eq!(by(&a.by_axis), [three("tp", 384), three("dp", 12), three("dp+tp", 384)]);
        assert_eq!(by(&a.by_direction), [("forward".into(), 6, 396), three("backward", 384)]);
        assert_eq!((a.total.executed, a.total.bytes, a.total.predicted_us), (9, 780, 18.0));
        assert_eq!((a.gathered.clone(), a.collectives[0].gathered_bytes), (vec![0], Some(512)));
        assert!(of(&module, &r, None, 513).gathered.is_empty());
        let text = a.text();
        for part in [
            "mesh dp=2,tp=4",
            "all_gather over tp in @main (forward): 128 bytes from each of 4 ranks, 3 times a step, 2.0 us each",
            "way: full_mesh over HCCS within a server",
            "because dot reduces\n  and add needs it",
            "axes dp+tp: 3 collectives a step, 384 bytes from each rank, 6.0 us",
            "warning: 512 bytes are gathered whole over tp in @main: add needs it",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(
            [size(1023), size(1024), size(3 << 19), size(5 << 30)],
            ["1023 bytes", "1.0 KiB", "1.5 MiB", "5.0 GiB"]
        );
    }
}
