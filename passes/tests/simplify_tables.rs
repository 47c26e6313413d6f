//! Tables become expressions over their indices with the same bits, or stay.

mod graphs;

use graphs::{Random, assert_same, inputs, tensor, with_entry};
use msc_ir::constant::ConstData;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::tensor::Storage;
use msc_ir::verify::verify;
use msc_ir::{DType, Graph, LocId, Module, Op, TensorType};
use msc_passes::simplify::simplify;
use proptest::prelude::*;

/// A module whose one result is a table.
fn module(ty: &TensorType, bytes: &[u8]) -> Module {
    let mut m = Module::new("tables");
    let id = m.constants.intern_bytes(ty.clone(), bytes);
    let mut g = Graph::new("main");
    let v = g.add1(&m, ConstantOp { id }, &[], LocId::UNKNOWN).expect("a constant");
    g.set_results(vec![v]);
    with_entry(m, g)
}

/// Elements of the largest dense constant after simplification, which keeps every bit.
fn dense_after(ty: &TensorType, bytes: &[u8]) -> usize {
    let before = module(ty, bytes);
    let mut after = before.clone();
    simplify(&mut after).expect("simplifies");
    verify(&after).expect("verifies");
    assert_same(&before, &after, &inputs(&before, &mut Random::new(0), tensor));
    let g = after.graph(after.entry().expect("entry").graph);
    let constants = g.ops().filter_map(|(_, o)| match &o.op {
        Op::Constant(c) => Some(after.constants.get(c.id)),
        _ => None,
    });
    constants.filter(|c| matches!(c.data, ConstData::Dense(_))).map(|c| c.ty.elements()).max().unwrap_or(0)
}

/// A table of `f` over the indices.
fn table(dtype: DType, shape: &[usize], f: impl Fn(&[usize]) -> f64) -> (TensorType, Vec<u8>) {
    let values: Vec<f64> = msc_ir::tensor::IndexSpace::new(shape).map(|i| f(&i)).collect();
    let ty = TensorType::new(dtype, shape.iter().copied());
    (ty, Storage::from_f64s(dtype, &values).bytes().to_vec())
}

fn check(dtype: DType, shape: &[usize], f: impl Fn(&[usize]) -> f64) -> usize {
    let (ty, bytes) = table(dtype, shape, f);
    dense_after(&ty, &bytes)
}

#[test]
fn what_an_expression_says_is_no_data() {
    let yes = |b: bool| f64::from(u8::from(b));
    assert_eq!(check(DType::I64, &[16], |i| i[0] as f64), 0, "positions");
    assert_eq!(check(DType::F32, &[1, 1, 16], |i| i[2] as f64), 0, "positions as floats");
    assert_eq!(check(DType::U8, &[3, 12], |i| 200.0 - 7.0 * i[1] as f64), 0, "counting down");
    assert_eq!(check(DType::BF16, &[4, 8], |i| (8 * i[0] + i[1]) as f64), 0, "row-major numbers");
    assert_eq!(check(DType::I1, &[1, 1, 64, 64], |i| yes(i[3] <= i[2])), 0, "causal");
    assert_eq!(check(DType::I1, &[2, 64, 64], |i| yes(i[2] > i[1])), 0, "its complement");
    let window = |i: &[usize]| yes(i[1] <= i[0] && i[0] - i[1] < 5);
    assert_eq!(check(DType::I1, &[32, 32], window), 0, "sliding window");
    let bias = |i: &[usize]| if i[1] <= i[0] { -0.0 } else { f64::from(f32::MIN) };
    assert_eq!(check(DType::F32, &[24, 24], bias), 0, "additive mask");
    assert_eq!(check(DType::F32, &[9, 9], |i| yes(i[0] == i[1])), 0, "identity");
    assert_eq!(check(DType::F32, &[9, 9], |i| yes(i[0] + i[1] == 8)), 0, "exchange");
    assert_eq!(check(DType::I1, &[4, 16], |i| yes(i[1] % 2 == 1)), 0, "odd elements");
    assert_eq!(check(DType::I32, &[32], |i| (i[0] / 8) as f64), 0, "segments");
    assert_eq!(check(DType::I32, &[4, 24], |i| (i[1] / 2 % 3) as f64), 0, "runs that repeat");
}

#[test]
fn data_stays_data_without_its_copies() {
    let sine = |x: usize| (x as f64).sin();
    assert_eq!(check(DType::F32, &[64, 1, 32], |i| sine(i[0] * 32 + i[2])), 64 * 32, "a table of sines");
    assert_eq!(check(DType::F32, &[8, 64, 4], |i| sine(i[1])), 64, "one row, spread");
    assert_eq!(check(DType::U32, &[4], |i| [17.0, 29.0, 16.0, 24.0][i[0]]), 4, "rotation distances");
    // One element off the pattern.
    let ramp = |i: &[usize]| if i[0] == 9 { 10.0 } else { i[0] as f64 };
    assert_eq!(check(DType::I32, &[16], ramp), 16);
    let mask = |i: &[usize]| f64::from(u8::from(i[1] <= i[0] || (i[0], i[1]) == (3, 7)));
    assert_eq!(check(DType::I1, &[16, 16], mask), 256);
    // Whole numbers, but a zero's sign is not a number's.
    let zero = |i: &[usize]| if i[0] == 0 { -0.0 } else { i[0] as f64 };
    assert_eq!(check(DType::F32, &[16], zero), 16);
    // A step that the table's own type does not hold.
    let ends = |i: &[usize]| if i[0].is_multiple_of(2) { f64::from(i32::MIN) } else { f64::from(i32::MAX) };
    assert_eq!(check(DType::I32, &[8], ends), 0, "from one end to the other");
    // A step of 2⁵⁴ − 1, which is no f64.
    let ends =
        |i: &[usize]| if i[0].is_multiple_of(2) { 1.0 - (1i64 << 53) as f64 } else { (1i64 << 53) as f64 };
    check(DType::I64, &[8], ends);
    // 2⁵³ + 1 is no f64.
    let ty = TensorType::new(DType::I64, [4]);
    let bytes: Vec<u8> = (0..4).flat_map(|i| ((1i64 << 53) + i).to_le_bytes()).collect();
    dense_after(&ty, &bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Small alphabets make accidental patterns: whatever is found has the table's bits.
    #[test]
    fn any_table_keeps_its_bits(
        shape in prop::collection::vec(1usize..7, 1..4),
        dtype in prop::sample::select(vec![DType::I1, DType::U8, DType::I32, DType::I64, DType::BF16, DType::F32]),
        alphabet in 2u8..4,
        seed in any::<u64>(),
        repeat in 1usize..4,
    ) {
        let n: usize = shape.iter().product();
        let base = n.div_ceil(repeat);
        let mut random = Random::new(seed);
        let values: Vec<f64> = (0..base).map(|_| (random.next() % u64::from(alphabet)) as f64).collect();
        let values: Vec<f64> = (0..n).map(|i| values[i % base]).collect();
        let bytes = Storage::from_f64s(dtype, &values).bytes().to_vec();
        dense_after(&TensorType::new(dtype, shape), &bytes);
    }
}
