//! AdamW: the two spellings that are found, near misses that are not.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::{Module, text};
use recognised::{Bounds, numbered, sites};

/// optax: zero epsilon inside the root, decay, the learning rate a scalar of the program.
const PLAIN: &str = r#"module @update

graph @main(%0: f32[4,6], %1: f32[4,6], %2: f32[4,6], %3: f32[4,6], %4: f32[], %5: f32[], %6: f32[]) {
  %7 = constant {value = splat f32[4,6] 0.1} : f32[4,6]
  %8 = multiply %7, %1 : f32[4,6]
  %9 = constant {value = splat f32[4,6] 0.9} : f32[4,6]
  %10 = multiply %9, %2 : f32[4,6]
  %11 = add %8, %10 : f32[4,6]
  %12 = multiply %1, %1 : f32[4,6]
  %13 = constant {value = splat f32[4,6] 0.05} : f32[4,6]
  %14 = multiply %13, %12 : f32[4,6]
  %15 = constant {value = splat f32[4,6] 0.95} : f32[4,6]
  %16 = abs %3 : f32[4,6]
  %17 = multiply %15, %16 : f32[4,6]
  %18 = add %14, %17 : f32[4,6]
  %19 = abs %4 : f32[]
  %20 = abs %5 : f32[]
  %21 = broadcast_in_dim %19 {dims = [], shape = [4, 6]} : f32[4,6]
  %22 = divide %11, %21 : f32[4,6]
  %23 = broadcast_in_dim %20 {dims = [], shape = [4, 6]} : f32[4,6]
  %24 = divide %18, %23 : f32[4,6]
  %25 = constant {value = splat f32[4,6] 0.0} : f32[4,6]
  %26 = add %24, %25 : f32[4,6]
  %27 = sqrt %26 : f32[4,6]
  %28 = constant {value = splat f32[4,6] 0.01} : f32[4,6]
  %29 = add %27, %28 : f32[4,6]
  %30 = divide %22, %29 : f32[4,6]
  %31 = multiply %28, %0 : f32[4,6]
  %32 = add %30, %31 : f32[4,6]
  %33 = broadcast_in_dim %6 {dims = [], shape = [4, 6]} : f32[4,6]
  %34 = multiply %33, %32 : f32[4,6]
  %35 = add %0, %34 : f32[4,6]
  return %35, %11, %18
}
"#;

/// PyTorch, step counted on the device: corrections and learning rate in the denominator.
const FOLDED: &str = r#"module @update

graph @main(%0: f32[4,6], %1: f32[4,6], %2: f32[4,6], %3: f32[4,6], %4: f32[], %5: f32[]) {
  %6 = constant {value = splat f32[4,6] 0.99999} : f32[4,6]
  %7 = multiply %0, %6 : f32[4,6]
  %8 = subtract %1, %2 : f32[4,6]
  %9 = constant {value = splat f32[4,6] 0.1} : f32[4,6]
  %10 = multiply %9, %8 : f32[4,6]
  %11 = add %2, %10 : f32[4,6]
  %12 = constant {value = splat f32[4,6] 0.95} : f32[4,6]
  %13 = abs %3 : f32[4,6]
  %14 = multiply %13, %12 : f32[4,6]
  %15 = multiply %1, %1 : f32[4,6]
  %16 = constant {value = splat f32[4,6] 0.05} : f32[4,6]
  %17 = multiply %15, %16 : f32[4,6]
  %18 = add %14, %17 : f32[4,6]
  %19 = sqrt %18 : f32[4,6]
  %20 = broadcast_in_dim %4 {dims = [], shape = [4, 6]} : f32[4,6]
  %21 = divide %19, %20 : f32[4,6]
  %22 = broadcast_in_dim %5 {dims = [], shape = [4, 6]} : f32[4,6]
  %23 = add %21, %22 : f32[4,6]
  %24 = divide %11, %23 : f32[4,6]
  %25 = add %7, %24 : f32[4,6]
  return %25, %11, %18
}
"#;

/// The ops are the same, in the same order.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-12), (Mode::Wide, 1e-12)], replay: 1e-6 };

/// How many steps were found.
fn recognised(source: &str) -> (usize, Module) {
    let (after, report) = recognised::recognised(source, BOUNDS);
    (sites(&report, "adamw"), after)
}

#[test]
fn both_spellings() {
    use msc_ir::Operation;
    for source in [PLAIN, FOLDED] {
        let (found, after) = recognised(source);
        assert_eq!(found, 1, "{}", text::print(&after));
        let g = after.graph(after.graph_by_name("main").expect("main"));
        let named = g.ops().filter(|(_, o)| o.op.name() == "adamw").count();
        // Beside it only what the test adds to keep the roots real.
        assert!(named == 1 && g.ops().all(|(_, o)| ["adamw", "abs"].contains(&o.op.name())));
    }
    // Without decay, and with a constant learning rate.
    let adam = PLAIN.replace("%34 = multiply %33, %32", "%34 = multiply %33, %30");
    assert_eq!(recognised(&adam).0, 1);
    let fixed = PLAIN.replace("%34 = multiply %33, %32", "%34 = multiply %7, %32");
    assert_eq!(recognised(&fixed).0, 1);
}

/// As papers have it, or as it comes to one's mind: the step's size at the first moment or at the update, the decay in what
/// is kept of the parameter or apart.
#[test]
fn steps_written_by_hand() {
    let (common, _) = PLAIN.split_once("  %30 = ").expect("the update");
    let end = "  return %35, %11, %18\n}\n";
    let number =
        |name: &str, x: &str| format!("  %{name} = constant {{value = splat f32[4,6] {x}}} : f32[4,6]\n");
    let op = |name: &str, what: &str| format!("  %{name} = {what} : f32[4,6]\n");
    let lr = [number("50", "0.001"), op("51", "multiply %50, %22"), op("30", "divide %51, %29")].concat();
    let given = [
        "  %50 = broadcast_in_dim %6 {dims = [], shape = [4, 6]} : f32[4,6]\n".to_string(),
        op("51", "multiply %50, %22"),
        op("30", "divide %51, %29"),
    ]
    .concat();
    let update = [op("52", "divide %22, %29"), number("50", "0.001"), op("30", "multiply %50, %52")].concat();
    let kept = |of: &str| [number("53", "0.9999"), op("31", &format!("multiply %53, {of}"))].concat();
    let apart = |of: &str| {
        [
            op("31", "subtract %0, %30"),
            number("54", "0.0001"),
            op("32", &format!("multiply %54, {of}")),
            op("35", "subtract %31, %32"),
        ]
        .concat()
    };
    // What is rounded differs, so f32 agrees to its digits only; the decay, here a share of 1e-4, is a number of f32 too.
    let bounds = Bounds { modes: &[(Mode::Spec, 1e-6), (Mode::Wide, 1e-11)], replay: 1e-6 };
    let found = |rest: &[&str]| {
        let source = [&[common], rest, &[end]].concat().concat();
        sites(&recognised::recognised(&numbered(&source), bounds).1, "adamw")
    };
    let minus = |of: &str| op("35", &format!("subtract {of}, %30"));
    for sized in [&lr, &given, &update] {
        assert_eq!(found(&[sized, &minus("%0")]), 1, "{sized}");
    }
    for sized in [&lr, &update] {
        assert_eq!(found(&[sized, &kept("%0"), &minus("%31")]), 1, "{sized}");
    }
    assert_eq!(found(&[&lr, &apart("%0")]), 1);
    // The decay of another tensor is apart from a step without one, and numbers agree.
    assert_eq!(found(&[&lr, &apart("%2")]), 1);
    // A number times a gradient, times the gradient.
    let source = PLAIN
        .replace("  %13 = constant {value = splat f32[4,6] 0.05} : f32[4,6]\n", "")
        .replace(
            "  %12 = multiply %1, %1",
            "  %13 = constant {value = splat f32[4,6] 0.05} : f32[4,6]\n  %12 = multiply %13, %1",
        )
        .replace("%14 = multiply %13, %12", "%14 = multiply %12, %1");
    assert_eq!(sites(&recognised::recognised(&numbered(&source), bounds).1, "adamw"), 1);
}

/// Decay in the gradient, and a step that is skipped where a number is not finite.
#[test]
fn decayed_gradients_and_skipped_steps() {
    let decayed = PLAIN
        .replace(
            "  %7 = constant",
            "  %w = constant {value = splat f32[4,6] 0.01} : f32[4,6]\n  %x = multiply %w, %0 : f32[4,6]\n  \
             %y = add %1, %x : f32[4,6]\n  %7 = constant",
        )
        .replace("%8 = multiply %7, %1", "%8 = multiply %7, %y")
        .replace("%12 = multiply %1, %1", "%12 = multiply %y, %y");
    assert_eq!(recognised(&numbered(&decayed)).0, 1);
    let skipped = PLAIN.replace(
        "  return %35, %11, %18",
        "  %w = is_finite %6 : i1[]\n  %x = select %w, %35, %0 : f32[4,6]\n  %y = select %w, %11, %2 : f32[4,6]\n  \
         %z = select %w, %18, %3 : f32[4,6]\n  return %x, %y, %z",
    );
    assert_eq!(recognised(&numbered(&skipped)).0, 1);
}

/// Clipping belongs to the step where nothing else happens to the gradient: by a factor, or by a selection, with a
/// threshold or one of 1.
#[test]
fn a_clipped_gradient() {
    use msc_ir::{
        Op,
        ops::fused::{Clipping, FusedKind},
    };
    const FACTOR: &str = "  %x = broadcast_in_dim %5 {dims = [], shape = [4, 6]} : f32[4,6]\n  %y = multiply %1, %x : f32[4,6]\n";
    const WITHIN_ONE: &str = "  %w = is_finite %4 : i1[]\n  %x = broadcast_in_dim %5 {dims = [], shape = [4, 6]} : f32[4,6]\n  \
        %z = divide %1, %x : f32[4,6]\n  %y = select %w, %1, %z : f32[4,6]\n";
    const WITHIN: &str = "  %w = is_finite %4 : i1[]\n  %x = broadcast_in_dim %5 {dims = [], shape = [4, 6]} : f32[4,6]\n  \
        %z = divide %1, %x : f32[4,6]\n  %m = constant {value = splat f32[4,6] 2.5} : f32[4,6]\n  \
        %u = multiply %z, %m : f32[4,6]\n  %y = select %w, %1, %u : f32[4,6]\n";
    // What is clipped, which form is found, and how many values of the program are beside the step.
    let clip = |before: &str, source: &str| {
        let first = if source == PLAIN { "  %7 = constant" } else { "  %6 = constant" };
        let (square, moment) = match source == PLAIN {
            true => (
                ("%12 = multiply %1, %1", "%12 = multiply %y, %y"),
                ("%8 = multiply %7, %1", "%8 = multiply %7, %y"),
            ),
            false => (
                ("%15 = multiply %1, %1", "%15 = multiply %y, %y"),
                ("%8 = subtract %1, %2", "%8 = subtract %y, %2"),
            ),
        };
        let source = source
            .replacen(first, &format!("{before}{first}"), 1)
            .replace(square.0, square.1)
            .replace(moment.0, moment.1);
        let (found, after) = recognised(&numbered(&source));
        assert_eq!(found, 1, "{}", text::print(&after));
        let g = after.graph(after.graph_by_name("main").expect("main"));
        let clips = g.ops().filter_map(|(_, o)| match &o.op {
            Op::Fused(f) => match &f.kind {
                FusedKind::AdamW(a) => Some(a.clip),
                _ => None,
            },
            _ => None,
        });
        let clips: Vec<Clipping> = clips.collect();
        (clips[0], g.ops().filter(|(_, o)| matches!(o.op, Op::Binary(_) | Op::Select(_))).count())
    };
    for source in [PLAIN, FOLDED] {
        assert_eq!(clip(FACTOR, source), (Clipping::Factor, 0));
        assert!(matches!(clip(WITHIN_ONE, source), (Clipping::Within(n), 0) if n.value() == Some(1.0)));
        assert!(matches!(clip(WITHIN, source), (Clipping::Within(n), 0) if n.value() == Some(2.5)));
        // The other branch, a part of the gradient, a factor for each element: the step is found, the clipping is not.
        let swapped = WITHIN_ONE.replace("select %w, %1, %z", "select %w, %z, %1");
        assert_eq!(clip(&swapped, source), (Clipping::None, 2));
        let other = WITHIN_ONE.replace("divide %1, %x", "divide %2, %x");
        assert_eq!(clip(&other, source), (Clipping::None, 2));
        let each = FACTOR.replace("multiply %1, %x", "multiply %1, %2");
        assert_eq!(clip(&each, source), (Clipping::None, 1));
    }
}

#[test]
fn near_misses() {
    for (what, source, from, to) in [
        ("g·m for g²", PLAIN, "%12 = multiply %1, %1", "%12 = multiply %1, %2"),
        ("another eps", PLAIN, "%29 = add %27, %28", "%29 = add %27, %13"),
        ("no root", PLAIN, "%27 = sqrt %26", "%27 = abs %26"),
        ("the first moment of another gradient", PLAIN, "%8 = multiply %7, %1", "%8 = multiply %7, %0"),
        ("decay of the gradient", PLAIN, "%31 = multiply %28, %0", "%31 = multiply %28, %1"),
        ("added to another parameter", PLAIN, "%35 = add %0, %34", "%35 = add %3, %34"),
        ("what is left of the update", PLAIN, "%35 = add %0, %34", "%35 = subtract %34, %0"),
        ("the old second moment", PLAIN, "%24 = divide %18, %23", "%24 = divide %16, %23"),
        ("another moment", FOLDED, "%11 = add %2, %10", "%11 = add %1, %10"),
        ("the root of the root", FOLDED, "%21 = divide %19, %20", "%21 = multiply %19, %20"),
    ] {
        assert!(source.contains(from), "{what}");
        let found = recognised(&source.replace(from, to)).0;
        // eps is read from the program, wherever it comes from.
        assert_eq!(found, usize::from(what == "another eps"), "{what}");
    }
}
