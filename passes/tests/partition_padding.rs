//! Sizes that do not divide are padded: state, the batch, and what is asked for. What is padded changes nothing.

mod common;

use common::{LOSS, axes, inputs, split, step};
use msc_ir::module::{AxisId, Sharding};
use msc_ir::testing::Rng;
use msc_ir::{Tensor, text};

/// A table, its lookup, a product over it, and a program that moves the table's rows elsewhere.
#[test]
fn a_vocabulary_that_does_not_divide_is_padded() {
    let source = LOSS.replace("[10,", "[61,").replace(",10]", ",61]").replace("[4, 10]", "[4, 61]");
    let m = text::parse(&source).expect("parses");
    let mut given = inputs(&m, 8);
    // Rows that are not there: an index is bounded by the table, whatever its padding.
    given[1] = Tensor::new([4], msc_ir::Storage::I32(vec![-3, 80, 60, 61]));
    given[2] = Tensor::new([4], msc_ir::Storage::I32(vec![61, 60, 0, 63]));
    for (ranks, padded) in [(2, 62), (4, 64), (8, 64)] {
        let (local, report) = split(&m, &given, &axes(&[("tp", ranks)])).expect("splits");
        let s = &local.entry().expect("entry").params[0].sharding;
        assert_eq!(report.padded, [("embed[0]".to_string(), 61, padded)]);
        assert_eq!((s.axes(0), s.size(0, 0)), (&[AxisId(0)][..], 61));
        assert_eq!(report.state_bytes, (padded / ranks * 5 * 4) as u64);
        let text = text::print(&local);
        assert_eq!(text::print(&text::parse(&text).expect("parses")), text);
    }
    // More than a sixteenth would be padding.
    let e = split(&m, &given, &axes(&[("tp", 6)])).expect_err("61 rows on 6 ranks");
    assert!(e.contains("no dimension of the model divides by 6"), "{e}");
}

#[test]
fn what_an_axis_has_split_is_not_padded_for_another() {
    // Two ranks along `x` have 31 rows each. Were these filled up to 32, the second rank's would not follow the first's.
    let source = LOSS.replace("[10,", "[62,").replace(",10]", ",62]").replace("[4, 10]", "[4, 62]");
    let m = text::parse(&source).expect("parses");
    let mut options = axes(&[("x", 2), ("tp", 2)]);
    let rows = Sharding { dims: vec![vec![AxisId(0)]], ..Sharding::default() };
    options.given.set_param(0, rows, []);
    let refused = split(&m, &inputs(&m, 8), &options).expect_err("no dimension is left for tp");
    assert!(refused.contains("--tp 2: no dimension of the model divides by 2"), "{refused}");
    // Asked for along both axes, it is padded for both at once.
    let both = Sharding { dims: vec![vec![AxisId(0), AxisId(1)]], ..Sharding::default() };
    let mut options = axes(&[("x", 2), ("y", 2)]);
    options.given.set_param(0, both.clone(), []);
    let (local, report) = split(&m, &inputs(&m, 8), &options).expect("splits");
    let s = &local.entry().expect("entry").params[0].sharding;
    assert_eq!((s.axes(0), s.size(0, 0)), (&[AxisId(0), AxisId(1)][..], 62));
    assert_eq!(report.padded, [("embed[0]".to_string(), 62, 64)]);
    assert!(report.not_as_asked.is_empty(), "{report:?}");
    // So much for both would be more than is padded: nine rows on sixteen ranks.
    let source = LOSS.replace("[10,", "[9,").replace(",10]", ",9]").replace("[4, 10]", "[4, 9]");
    let m = text::parse(&source).expect("parses");
    let mut options = axes(&[("x", 2), ("y", 8)]);
    options.given.set_param(0, both, []);
    let (_, report) = split(&m, &inputs(&m, 8), &options).expect("splits");
    assert_eq!(report.padded, [("embed[0]".to_string(), 9, 10)]);
    assert_eq!(report.not_as_asked, [("embed".to_string(), "[x, y]".to_string())]);
}

#[test]
fn padding_changes_nothing_in_random_programs() {
    const PROGRAMS: u64 = 400;
    let (mut padded, mut done) = (0, 0);
    for seed in 0..PROGRAMS {
        let mut r = Rng::new(seed);
        let (m, inputs) = step(&mut r);
        let g = m.graph(m.entry().expect("entry").graph);
        let dims: Vec<(usize, usize)> = (0..g.params().len())
            .flat_map(|n| (0..g.ty(g.params()[n]).rank()).map(move |d| (n, d)))
            .collect();
        let meshes: [&[(&str, usize)]; 4] = [&[("x", 2)], &[("x", 3)], &[("x", 4)], &[("x", 2), ("y", 2)]];
        for (param, dim) in dims {
            for mesh in meshes {
                let mut options = axes(mesh);
                let mut sharding = Sharding { dims: vec![vec![]; dim + 1], ..Sharding::default() };
                sharding.dims[dim].extend((0..mesh.len()).map(|a| AxisId(a as u8)));
                options.given.set_param(param, sharding, []);
                let (_, report) = split(&m, &inputs, &options).unwrap_or_else(|e| {
                    panic!("seed {seed}, {param}[{dim}] on {mesh:?}: {e}\n{}", text::print(&m))
                });
                padded += report.padded.len();
                done += usize::from(report.not_as_asked.is_empty());
            }
        }
    }
    println!("{done} as asked, {padded} paddings");
    assert!(padded >= 100, "{padded} paddings, {done} as asked");
}

/// The program with so many tokens.
fn with_tokens(n: usize) -> String {
    let mut source = LOSS.to_string();
    for (old, new) in [("[4]", format!("[{n}]")), ("[4,", format!("[{n},"))] {
        source = source.replace(old, &new);
    }
    source
}

#[test]
fn a_batch_that_does_not_divide_is_padded() {
    for (tokens, mesh, padded) in [
        (3, &[("dp", 2)][..], 4),
        (3, &[("dp", 4)], 4),
        (3, &[("dp", 2), ("tp", 5)], 4),
        // For both axes at once.
        (3, &[("dp", 2), ("fsdp", 2)], 4),
        (5, &[("fsdp", 3)], 6),
        // The first axis divides it, the second finds nothing.
        (6, &[("dp", 2), ("ep", 2)], 8),
        // Two of four ranks would compute the same.
        (6, &[("dp", 4)], 8),
    ] {
        let m = text::parse(&with_tokens(tokens)).expect("parses");
        let (local, report) =
            split(&m, &inputs(&m, 8), &axes(mesh)).unwrap_or_else(|e| panic!("{tokens}, {mesh:?}: {e}"));
        assert_eq!(report.padded, [("tokens[0]".to_string(), tokens, padded)], "{mesh:?}");
        assert!(report.idle.is_empty(), "{mesh:?}: {:?}", report.idle);
        let s = &local.entry().expect("entry").params[1].sharding;
        assert_eq!(s.size(0, 0), tokens);
    }
    // Five of eight would be padding.
    let m = text::parse(&with_tokens(3)).expect("parses");
    let e = split(&m, &inputs(&m, 8), &axes(&[("dp", 8)])).expect_err("three tokens on eight ranks");
    assert!(e.contains("--dp 8: no dimension of the model divides by 8"), "{e}");
    // An op that needs all of them is named.
    let reversed = with_tokens(3).replace("%19 = negate %18", "%19 = reverse %18 {dims = [0]}");
    let m = text::parse(&reversed).expect("parses");
    let e = split(&m, &inputs(&m, 8), &axes(&[("dp", 2)])).expect_err("a reverse");
    assert!(e.contains("the batch of 3 is not padded because of reverse"), "{e}");
    // What divides is not padded.
    let m = text::parse(&with_tokens(6)).expect("parses");
    let (_, report) = split(&m, &inputs(&m, 8), &axes(&[("dp", 2), ("fsdp", 3)])).expect("splits");
    assert!(report.padded.is_empty(), "{report:?}");
}

/// A table whose rows are counted through: rows of each half follow those of the half before.
const COUNTED: &str = "module @m
graph @main(%0: f32[2,7,3], %1: i32[4]) {
  %2 = iota {dim = 0, dtype = f32, shape = [14]} : f32[14]
  %3 = reshape %2 {shape = [2, 7]} : f32[2,7]
  %4 = broadcast_in_dim %3 {dims = [0, 1], shape = [2, 7, 3]} : f32[2,7,3]
  %5 = multiply %0, %4 : f32[2,7,3]
  %6 = reduce %5 {dims = [1], monoid = sum} : f32[2,3]
  %7 = negate %0 : f32[2,7,3]
  return %7, %6
}
entry \"train\" @main {
  param \"table\" alias 0
  param \"tokens\"
  result \"table\"
  result \"sums\"
}";

#[test]
fn what_is_counted_through_is_not_padded_inside() {
    let m = text::parse(COUNTED).expect("parses");
    let mut options = axes(&[("x", 2)]);
    let rows = Sharding { dims: vec![vec![], vec![AxisId(0)]], ..Sharding::default() };
    options.given.set_param(0, rows, []);
    let (_, report) = split(&m, &inputs(&m, 3), &options).expect("splits");
    assert!(report.padded.is_empty() && report.not_as_asked.len() == 1, "{report:?}");
}
