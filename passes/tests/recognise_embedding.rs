//! Embeddings: spellings that are found with their gradients, near misses that are not, and which dimensions split.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::ops::fused::{FusedKind, Outside};
use msc_ir::{FactorKind, Module, Monoid, Op};
use msc_passes::recognise::Report;
use recognised::{Bounds, recognised, sites};

const EXACT: Bounds = Bounds { modes: &[(Mode::Wide, 1e-12), (Mode::Spec, 1e-12)], replay: 1e-12 };

/// The parts of a program that differ between spellings: table `%0` f32[11,6], tokens `%1`, the rows' gradient `%2`,
/// another table `%3`.
struct Spelling {
    /// Element type of tokens.
    ids: &'static str,
    /// Ops that make the indices `%10` of shape `[2,5,1]` of `%1`.
    index: &'static str,
    /// Ops that make `%30`, the rows, of the gathered rows `%20`.
    rows: &'static str,
    /// Operands of the gather.
    gathered: &'static str,
    /// The rest of the gather.
    slices: &'static str,
    /// The scatter's operands.
    scattered: &'static str,
    /// How the scatter combines.
    combine: &'static str,
}

const WRAP: &str = "
  %4 = constant {value = splat i32[2,5] 0} : i32[2,5]
  %5 = compare %1, %4 {direction = LT} : i1[2,5]
  %6 = constant {value = splat i32[2,5] 11} : i32[2,5]
  %7 = add %1, %6 : i32[2,5]
  %8 = select %5, %7, %1 : i32[2,5]
  %10 = broadcast_in_dim %8 {dims = [0, 1], shape = [2, 5, 1]} : i32[2,5,1]";

const GUARD: &str = "
  %21 = constant {value = splat i32[2,5,1] 0} : i32[2,5,1]
  %22 = compare %10, %21 {direction = GE} : i1[2,5,1]
  %23 = constant {value = splat i32[2,5,1] 10} : i32[2,5,1]
  %24 = compare %23, %10 {direction = GE} : i1[2,5,1]
  %25 = and %22, %24 : i1[2,5,1]
  %26 = reshape %25 {shape = [2, 5]} : i1[2,5]
  %27 = broadcast_in_dim %26 {dims = [0, 1], shape = [2, 5, 6]} : i1[2,5,6]
  %28 = constant {value = splat f32[2,5,6] 0x0000c07f} : f32[2,5,6]
  %30 = select %27, %20, %28 : f32[2,5,6]";

const PLAIN: Spelling = Spelling {
    ids: "i32",
    index: WRAP,
    rows: GUARD,
    gathered: "%0, %10",
    slices: "collapsed_slice_dims = [0], index_vector_dim = 2, offset_dims = [2], operand_batching_dims = [], slice_sizes = [1, 6], start_index_map = [0], start_indices_batching_dims = []",
    scattered: "%40, %10, %2",
    combine: "sum",
};

impl Spelling {
    fn text(&self) -> String {
        let Spelling { ids, index, rows, gathered, slices, scattered, combine } = self;
        format!(
            "module @embed

graph @main(%0: f32[11,6], %1: {ids}[2,5], %2: f32[2,5,6], %3: f32[11,6]) {{{index}
  %20 = gather {gathered} {{{slices}}} : f32[2,5,6]{rows}
  %40 = constant {{value = splat f32[11,6] 0.0}} : f32[11,6]
  %41 = scatter {scattered} {{combine = {combine}, index_vector_dim = 2, input_batching_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = [2]}} : f32[11,6]
  %42 = add %41, %3 : f32[11,6]
  return %30, %42
}}

entry \"train\" @main {{
  param \"table\"
  param \"tokens\"
  param \"dy\"
  param \"other\"
  result \"rows\"
  result \"grad\"
}}
"
        )
    }

    fn counts(&self) -> (usize, usize, Module, Report) {
        let (module, report) = recognised(&renumbered(&self.text()), EXACT);
        let of = |name| sites(&report, name);
        (of("embedding"), of("embedding_grad"), module, report)
    }
}

/// Values numbered in the order in which they are defined, as the text form wants them.
fn renumbered(text: &str) -> String {
    let mut known: Vec<&str> = Vec::new();
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let at = known.iter().position(|k| *k == name).unwrap_or_else(|| {
            known.push(name);
            known.len() - 1
        });
        out.push_str(&format!("%{at}{rest}"));
    }
    out
}

fn outside(report: &Report) -> Option<Outside> {
    report.regions[0].reasons.iter().find_map(|r| match r.fused.kind {
        FusedKind::Embedding { outside } => Some(outside),
        _ => None,
    })
}

const COPY: &str = "
  %30 = negate %20 : f32[2,5,6]";

#[test]
fn every_spelling_with_its_gradient() {
    let zeros = GUARD.replace("0x0000c07f", "0.0");
    let late = GUARD.replace("%30 = select", "%31 = select")
        + "
  %30 = negate %31 : f32[2,5,6]";
    let flipped = GUARD
        .replace("compare %10, %21 {direction = GE}", "compare %21, %10 {direction = LE}")
        .replace("compare %23, %10 {direction = GE}", "compare %10, %29 {direction = LT}")
        .replace(
            "  %24",
            "  %29 = constant {value = splat i32[2,5,1] 11} : i32[2,5,1]
  %24",
        );
    let leak = |s: String| -> &'static str { s.leak() };
    for (rows, expected) in [
        (GUARD, Outside::Nan),
        (leak(zeros), Outside::Zero),
        (leak(late), Outside::Nan),
        (leak(flipped), Outside::Nan),
        (COPY, Outside::Nearest),
    ] {
        let (forward, backward, _, report) = Spelling { rows, ..PLAIN }.counts();
        assert_eq!((forward, backward), (1, 1), "{rows}: {:?}", report.regions[0].refused);
        assert_eq!(outside(&report), Some(expected), "{rows}");
    }
    // Positions count themselves.
    let index = "
  %4 = iota {dim = 0, dtype = i32, shape = [5]} : i32[5]
  %10 = broadcast_in_dim %4 {dims = [1], shape = [2, 5, 1]} : i32[2,5,1]";
    let (forward, backward, ..) = Spelling { index, ..PLAIN }.counts();
    assert_eq!((forward, backward), (1, 1));
    // Indices in another type for the lookup.
    let index = "
  %4 = reshape %1 {shape = [2, 5, 1]} : i64[2,5,1]
  %9 = convert %4 {dtype = u32} : u32[2,5,1]
  %10 = reshape %1 {shape = [2, 5, 1]} : i64[2,5,1]";
    let (forward, backward, _, report) =
        Spelling { ids: "i64", index, gathered: "%0, %9", rows: COPY, ..PLAIN }.counts();
    assert_eq!((forward, backward), (1, 1), "{:?}", report.regions[0].refused);
}

#[test]
fn near_misses_are_not_found() {
    // A guard that is not the table's: the rows are the nearest's, and the guard stays.
    for guard in [
        GUARD.replace("splat i32[2,5,1] 10", "splat i32[2,5,1] 9"),
        GUARD.replace("splat i32[2,5,1] 10", "splat i32[2,5,1] 11"),
        GUARD.replace("splat i32[2,5,1] 0}", "splat i32[2,5,1] 1}"),
        GUARD.replace("and %22", "or %22"),
        GUARD.replace("compare %10, %21", "compare %21, %10"),
        // The guard of the row before.
        GUARD
            .replace(
                "broadcast_in_dim %26 {dims = [0, 1], shape = [2, 5, 6]}",
                "broadcast_in_dim %33 {dims = [0, 1], shape = [2, 5, 6]}",
            )
            .replace(
                "  %27",
                "  %31 = slice %26 {limit = [2, 4], start = [0, 0], stride = [1, 1]} : i1[2,4]
  %32 = slice %26 {limit = [2, 5], start = [0, 4], stride = [1, 1]} : i1[2,1]
  %33 = concatenate %32, %31 {dim = 1} : i1[2,5]
  %27",
            ),
    ] {
        let (forward, _, module, report) = Spelling { rows: guard.clone().leak(), ..PLAIN }.counts();
        assert_eq!((forward, outside(&report)), (1, Some(Outside::Nearest)), "{guard}");
        let graph = module.graph(module.graph_by_name("main").expect("main"));
        assert!(
            graph.ops().any(|(_, d)| matches!(d.op, Op::Select(_)) && graph.ty(d.results[0]).rank() == 3)
        );
    }
    // A table that is no parameter, and indices that depend on floats: rows that are sent somewhere.
    let computed = "
  %9 = tanh %0 : f32[11,6]
  %11 = reshape %1 {shape = [2, 5, 1]} : i32[2,5,1]
  %10 = reshape %1 {shape = [2, 5, 1]} : i32[2,5,1]";
    let (forward, backward, ..) = Spelling { index: computed, gathered: "%9, %10", ..PLAIN }.counts();
    assert_eq!((forward, backward), (0, 0));
    let routed = "
  %9 = reduce %2 {dims = [2], monoid = sum} : f32[2,5]
  %11 = convert %9 {dtype = i32} : i32[2,5]
  %10 = reshape %11 {shape = [2, 5, 1]} : i32[2,5,1]";
    let (forward, backward, ..) = Spelling { index: routed, ..PLAIN }.counts();
    assert_eq!((forward, backward), (0, 0));
    // Rows that are written, multiplied or added to something else.
    for combine in ["replace", "product", "max"] {
        let (forward, backward, ..) = Spelling { combine, ..PLAIN }.counts();
        assert_eq!((forward, backward), (1, 0), "{combine}");
    }
    let (forward, backward, ..) = Spelling { scattered: "%3, %10, %2", ..PLAIN }.counts();
    assert_eq!((forward, backward), (1, 0));
}

/// Rows pass in the lookup and are summed in its gradient, the width passes, and the table's rows are needed whole.
#[test]
fn rows_and_width_split() {
    let (_, _, module, _) = PLAIN.counts();
    let graph = module.graph(module.graph_by_name("main").expect("main"));
    let mut seen = 0;
    for (f, rule) in recognised::fused_rules(&module, graph) {
        let kind = |o: usize, d: usize| rule.factors[rule.operands[o][d][0]].kind;
        match f.kind {
            FusedKind::Embedding { .. } => {
                assert_eq!([kind(0, 0), kind(0, 1)], [FactorKind::Whole, FactorKind::Pass]);
                assert_eq!([kind(1, 0), kind(1, 1)], [FactorKind::Pass; 2]);
            }
            _ => {
                assert_eq!([kind(0, 0), kind(0, 1)], [FactorKind::Reduce(Monoid::Sum); 2]);
                assert_eq!(kind(0, 2), FactorKind::Pass);
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 2);
}
