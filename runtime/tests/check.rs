//! The comparison with a reference sees wrong outputs and forgives rounding.

use msc_ir::module::{Entry, GraphId, ParamInfo, ResultInfo};
use msc_ir::{DType, Storage, Tensor, TensorType};
use msc_runtime::check::{Compute, Item, Judged, check, check_outputs};

/// A small random generator, so that tests are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }

    fn vector(&mut self, n: usize, scale: f64) -> Vec<f64> {
        (0..n).map(|_| scale * self.next()).collect()
    }
}

fn tensor(dtype: DType, v: &[f64]) -> Tensor {
    Tensor::from_f64s(&TensorType::new(dtype, [v.len()]), v)
}

/// A parameter of 4096 weights, its update by a step at learning rate 1e-3, and a moment.
struct State {
    before: Vec<f64>,
    update: Vec<f64>,
}

fn state(seed: u64, near: f64) -> State {
    let mut r = Random(seed);
    let before = r.vector(4096, 0.05).iter().map(|x| near + x).collect();
    State { before, update: r.vector(4096, 2e-3) }
}

impl State {
    /// The state after an update scaled by `1 + error`, stored in a type.
    fn after(&self, dtype: DType, factor: f64) -> Tensor {
        let v: Vec<f64> = self.before.iter().zip(&self.update).map(|(x, u)| x + u * factor).collect();
        tensor(dtype, &v)
    }

    fn passes(&self, compute: Compute, dtype: DType, actual: &Tensor) -> bool {
        let (reference, initial) = (self.after(dtype, 1.0), tensor(dtype, &self.before));
        let item = Item { name: "w", actual, reference: &reference, initial: Some(&initial) };
        let report = check([item], compute);
        assert_eq!(report.rows[0].judged, Judged::State);
        report.passed()
    }
}

const CASES: [(Compute, DType); 5] = [
    (Compute::F32, DType::F32),
    (Compute::Bf16, DType::F32),
    (Compute::Bf16, DType::BF16),
    (Compute::Fp16, DType::F32),
    (Compute::Fp16, DType::F16),
];

#[test]
fn the_update_itself_passes_and_a_missing_one_fails() {
    for near in [0.0, 1.0] {
        let s = state(3, near);
        for (compute, dtype) in CASES {
            // Near 1, a bfloat16 weight moves by nothing or by a whole unit in the last place.
            assert!(s.passes(compute, dtype, &s.after(dtype, 1.0)), "{compute:?} {dtype}");
            let unchanged = tensor(dtype, &s.before);
            assert!(!s.passes(compute, dtype, &unchanged), "{compute:?} {dtype} near {near}: unchanged");
            assert!(!s.passes(compute, dtype, &s.after(dtype, 2.0)), "{compute:?} {dtype}: twice");
            assert!(!s.passes(compute, dtype, &s.after(dtype, 0.75)), "{compute:?} {dtype}: three quarters");
            assert!(!s.passes(compute, dtype, &s.after(dtype, -1.0)), "{compute:?} {dtype}: backwards");
        }
    }
}

#[test]
fn differences_are_weighed_by_the_compute_type() {
    let s = state(5, 0.0);
    for (compute, good, bad) in
        [(Compute::F32, 5e-6, 1e-4), (Compute::Bf16, 2e-2, 4e-2), (Compute::Fp16, 7e-3, 2e-2)]
    {
        assert!(s.passes(compute, DType::F32, &s.after(DType::F32, 1.0 + good)), "{compute:?} {good}");
        assert!(!s.passes(compute, DType::F32, &s.after(DType::F32, 1.0 + bad)), "{compute:?} {bad}");
    }
}

#[test]
fn rounding_of_stored_values_is_allowed_for() {
    // Weights near 1 in f32: every one a unit in the last place off is 3e-4 of the update.
    let s = state(7, 1.0);
    let off = |t: &Tensor, by: usize| -> Tensor {
        let Storage::F32(v) = &t.data else { panic!("f32") };
        let each = |(i, x): (usize, &f32)| if i % by == 0 { f32::from_bits(x.to_bits() ^ 1) } else { *x };
        Tensor::new([v.len()], Storage::F32(v.iter().enumerate().map(each).collect()))
    };
    assert!(s.passes(Compute::F32, DType::F32, &off(&s.after(DType::F32, 1.0), 1)));
    // In bfloat16 one element may round the other way, half of them may not.
    let flipped = |by: usize| -> Tensor {
        let t = s.after(DType::BF16, 1.0);
        let Storage::BF16(v) = &t.data else { panic!("bf16") };
        let each = |(i, x): (usize, &half::bf16)| {
            if i % by == 0 { half::bf16::from_bits(x.to_bits() ^ 1) } else { *x }
        };
        Tensor::new([v.len()], Storage::BF16(v.iter().enumerate().map(each).collect()))
    };
    assert!(s.passes(Compute::Bf16, DType::BF16, &flipped(4096)));
    assert!(!s.passes(Compute::Bf16, DType::BF16, &flipped(2)));
}

fn plain(actual: &[f64], reference: &[f64], compute: Compute) -> bool {
    let (a, b) = (tensor(DType::F32, actual), tensor(DType::F32, reference));
    check([Item { name: "y", actual: &a, reference: &b, initial: None }], compute).passed()
}

#[test]
fn plain_outputs_are_judged_by_their_largest_element() {
    let nan = f64::NAN;
    assert!(plain(&[100.0, 1e-4], &[100.0, 0.0], Compute::F32));
    assert!(!plain(&[100.0, 1e-2], &[100.0, 0.0], Compute::F32));
    assert!(plain(&[100.0, 1.0], &[100.0, 0.0], Compute::Bf16));
    assert!(!plain(&[0.0], &[1e-30], Compute::Bf16));
    // A reference of zeros is met exactly or not at all.
    assert!(plain(&[0.0, -0.0], &[0.0, 0.0], Compute::F32));
    assert!(!plain(&[1e-20, 0.0], &[0.0, 0.0], Compute::Bf16));
    // What is not finite must be the same.
    assert!(plain(&[f64::INFINITY, nan, 1.0], &[f64::INFINITY, nan, 1.0], Compute::F32));
    for wrong in [[nan, 1.0], [f64::INFINITY, 1.0], [f64::NEG_INFINITY, 1.0]] {
        assert!(!plain(&wrong, &[1.0, 1.0], Compute::Bf16));
        assert!(!plain(&[1.0, 1.0], &wrong, Compute::Bf16));
    }
    assert!(plain(&[], &[], Compute::F32));
}

#[test]
fn state_that_is_not_finite_fails() {
    let (x, b) = (tensor(DType::F32, &[1.0, 2.0]), tensor(DType::F32, &[1.1, 2.1]));
    for wrong in [f64::NAN, f64::INFINITY] {
        let a = tensor(DType::F32, &[1.1, wrong]);
        let item = Item { name: "w", actual: &a, reference: &b, initial: Some(&x) };
        assert!(!check([item], Compute::Bf16).passed());
    }
}

#[test]
fn integers_and_types_are_exact() {
    let t = |v: &[i64]| Tensor::new([v.len()], Storage::I64(v.to_vec()));
    let (a, b) = (t(&[1, 2, i64::MAX]), t(&[1, 2, i64::MAX - 1]));
    let report = check([Item { name: "n", actual: &a, reference: &b, initial: None }], Compute::Bf16);
    assert!(!report.passed());
    assert_eq!((report.rows[0].measured, report.rows[0].judged), (1.0, Judged::Exact));
    let f = tensor(DType::F32, &[1.0, 2.0, 3.0]);
    assert!(!check([Item { name: "n", actual: &a, reference: &f, initial: None }], Compute::Bf16).passed());
}

fn entry() -> Entry {
    let param = |name: &str, alias| ParamInfo { name: name.into(), alias, ..ParamInfo::default() };
    let result = |name: &str| ResultInfo { name: name.into(), ..ResultInfo::default() };
    Entry {
        name: "train".into(),
        graph: GraphId(0),
        params: vec![param("layers.0.w", Some(1)), param("x", None), param("key", None)],
        results: vec![result("loss"), result("layers.0.w"), result("key")],
    }
}

#[test]
fn the_report_names_the_worst() {
    let s = state(9, 0.0);
    let key = |v: u32| Tensor::new([1], Storage::U32(vec![v]));
    let x = tensor(DType::F32, &[1.0]);
    let inputs = [tensor(DType::F32, &s.before), x, key(1)];
    let loss = |v: f64| tensor(DType::F32, &[v]);
    let reference = [loss(2.0), s.after(DType::F32, 1.0), key(2)];
    let good = check_outputs(&entry(), &[(2, 2)], &inputs, &reference, &reference, Compute::F32);
    assert!(good.passed());
    assert!(good.render(5).starts_with("check passed: 3 outputs, computed in f32\n"), "{}", good.render(5));
    let outputs = [loss(2.0001), tensor(DType::F32, &s.before), key(3)];
    let bad = check_outputs(&entry(), &[(2, 2)], &inputs, &outputs, &reference, Compute::F32);
    let names: Vec<&str> = bad.worst(9).iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["key", "layers.0.w", "loss"]);
    let text = bad.render(9);
    assert!(text.starts_with("MSC-R0101: check failed: 3 of 3 outputs, computed in f32\n"), "{text}");
    assert!(text.contains("is as it was before the step"), "{text}");
    assert!(text.contains("element 0 is 3, should be 2"), "{text}");
    assert_eq!(bad.render(1).lines().count(), 2);
}

#[test]
fn what_a_module_computes_in_is_found_in_its_arithmetic() {
    let of = |body: &str| {
        let text = format!("module @m\n\ngraph @main(%0: bf16[4], %1: f32[4]) {{\n{body}}}\n");
        Compute::of_module(&msc_ir::text::parse(&text).expect("the text is right"))
    };
    assert_eq!(of("  %2 = convert %0 {dtype = f32} : f32[4]\n  return %2\n"), Compute::F32);
    assert_eq!(of("  %2 = multiply %0, %0 : bf16[4]\n  return %2\n"), Compute::Bf16);
    assert_eq!(of("  %2 = multiply %1, %1 : f32[4]\n  return %2\n"), Compute::F32);
}

#[test]
fn distances_between_two_compilers_pass() {
    // The largest measured ones of each kind: random, not one element's.
    let mut r = Random(11);
    let s = state(13, 0.0);
    for (compute, dtype, distance) in [
        (Compute::F32, DType::F32, 1.5e-6),
        (Compute::Bf16, DType::F32, 1.8e-2),
        (Compute::Fp16, DType::F32, 5e-3),
        (Compute::Bf16, DType::BF16, 5.1e-2),
    ] {
        let off = r.vector(s.update.len(), 1.0);
        let (n, m) = (norm(&off), norm(&s.update));
        let v = s.before.iter().zip(&s.update).zip(&off).map(|((x, u), o)| x + u + o * distance * m / n);
        assert!(s.passes(compute, dtype, &tensor(dtype, &v.collect::<Vec<f64>>())), "{compute:?} {dtype}");
    }
    assert!(plain(&[1.0 + 9e-7], &[1.0], Compute::F32));
    assert!(plain(&[1.0 + 1.1e-2], &[1.0], Compute::Bf16));
    assert!(plain(&[1.0 + 3.4e-3], &[1.0], Compute::Fp16));
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn a_fault_in_a_few_elements_of_state_is_seen() {
    // One row of 64 that is not updated, updated with the wrong sign, or not a number.
    let s = state(17, 0.0);
    for (compute, dtype) in CASES {
        for wrong in [0.0, -1.0, f64::NAN] {
            let part = |(i, (x, u)): (usize, (&f64, &f64))| x + if i < 64 { u * wrong } else { *u };
            let v: Vec<f64> = s.before.iter().zip(&s.update).enumerate().map(part).collect();
            assert!(!s.passes(compute, dtype, &tensor(dtype, &v)), "{compute:?} {dtype}: row times {wrong}");
        }
    }
    // In f32, one element of 4096 is enough.
    let mut v: Vec<f64> = s.before.iter().zip(&s.update).map(|(x, u)| x + u).collect();
    v[77] = s.before[77] - s.update[77];
    assert!(!s.passes(Compute::F32, DType::F32, &tensor(DType::F32, &v)));
}

#[test]
fn state_that_should_not_change_may_round_but_not_move() {
    let x = tensor(DType::F32, &[1.0, -2.0, 0.0]);
    let same = |v: &[f64]| {
        let a = tensor(DType::F32, v);
        let item = Item { name: "frozen", actual: &a, reference: &x, initial: Some(&x) };
        check([item], Compute::F32).passed()
    };
    assert!(same(&[1.0, -2.0, 0.0]));
    assert!(same(&[1.0 + f64::from(f32::EPSILON), -2.0, 0.0]));
    assert!(!same(&[1.0 + 1e-6, -2.0, 0.0]));
    assert!(!same(&[-1.0, -2.0, 0.0]));
}

#[test]
fn shapes_are_exact() {
    let v = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let shaped = |shape: [usize; 2]| Tensor::from_f64s(&TensorType::new(DType::F32, shape), &v);
    let (a, b) = (shaped([2, 3]), shaped([3, 2]));
    for initial in [None, Some(&b)] {
        let item = Item { name: "y", actual: &a, reference: &b, initial };
        let report = check([item], Compute::Bf16);
        assert!(!report.passed());
        assert!(
            report.rows[0].note.contains("is f32[2,3], the reference is f32[3,2]"),
            "{}",
            report.rows[0].note
        );
    }
    // The reference fits, but what was there before the step did not.
    let item = Item { name: "y", actual: &b, reference: &b, initial: Some(&a) };
    assert!(!check([item], Compute::Bf16).passed());
}

#[test]
fn large_integers_are_exact() {
    let one = |v: u64| Tensor::new([1], Storage::U64(vec![v]));
    for (a, b) in [(u64::MAX, u64::MAX - 1), (1 << 63, (1 << 63) + 1), (5, 4)] {
        let (a, b) = (one(a), one(b));
        for initial in [None, Some(&b)] {
            let item = Item { name: "key", actual: &a, reference: &b, initial };
            assert!(!check([item], Compute::Bf16).passed());
        }
    }
}

#[test]
fn every_output_must_be_there() {
    let s = state(9, 0.0);
    let key = |v: u32| Tensor::new([1], Storage::U32(vec![v]));
    let inputs = [tensor(DType::F32, &s.before), tensor(DType::F32, &[1.0]), key(1)];
    let all = [tensor(DType::F32, &[2.0]), s.after(DType::F32, 1.0), key(2)];
    let verdict = |outputs: &[Tensor], reference: &[Tensor]| {
        check_outputs(&entry(), &[(2, 2)], &inputs, outputs, reference, Compute::F32)
    };
    assert!(verdict(&all, &all).passed());
    let short = verdict(&all[..2], &all);
    assert!(!short.passed() && short.rows.len() == 3);
    assert!(
        short.render(3).contains("key") && short.render(3).contains("was not computed"),
        "{}",
        short.render(3)
    );
    assert!(!verdict(&all, &all[..1]).passed());
    assert!(!verdict(&[], &[]).passed());
}
