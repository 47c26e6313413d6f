//! Elementwise ops against values worked out by hand from the StableHLO specification.

use msc_ir::interp::Mode;
use msc_ir::ops::binary::BinaryKind::{self, *};
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::convert::Convert;
use msc_ir::ops::precision::ReducePrecision;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::{self, *};
use msc_ir::testing::eval;
use msc_ir::{DType, Module, Op, Storage, Tensor};

fn one(op: impl Into<Op>, inputs: &[Storage]) -> Storage {
    let tensors: Vec<Tensor> = inputs.iter().map(|s| Tensor::new([s.len()], s.clone())).collect();
    eval(&Module::new("test"), op, &tensors, Mode::Spec).expect("evaluates")[0].data.clone()
}

fn binary32(op: BinaryKind, a: &[i32], b: &[i32]) -> Vec<i32> {
    let Storage::I32(v) = one(op, &[Storage::I32(a.to_vec()), Storage::I32(b.to_vec())]) else {
        panic!("i32")
    };
    v
}

fn float(op: BinaryKind, a: &[f32], b: &[f32]) -> Vec<f32> {
    let Storage::F32(v) = one(op, &[Storage::F32(a.to_vec()), Storage::F32(b.to_vec())]) else {
        panic!("f32")
    };
    v
}

fn unary32(op: UnaryKind, a: &[f32]) -> Vec<f32> {
    let Storage::F32(v) = one(op, &[Storage::F32(a.to_vec())]) else { panic!("f32") };
    v
}

#[test]
fn integer_arithmetic_wraps_and_divides_towards_zero() {
    let (min, max) = (i32::MIN, i32::MAX);
    assert_eq!(binary32(Add, &[max, 1], &[1, 2]), [min, 3]);
    assert_eq!(binary32(Subtract, &[min], &[1]), [max]);
    assert_eq!(binary32(Multiply, &[1 << 20], &[1 << 20]), [0]);
    assert_eq!(binary32(Divide, &[7, -7, 7, -7, 5, min], &[2, 2, -2, -2, 0, -1]), [3, -3, -3, 3, -1, min]);
    assert_eq!(binary32(Remainder, &[7, -7, 7, -7, 5, min], &[2, 2, -2, -2, 0, -1]), [1, -1, 1, -1, 5, 0]);
    let u = one(Divide, &[Storage::U8(vec![200, 9]), Storage::U8(vec![3, 0])]);
    assert_eq!(u, Storage::U8(vec![66, 255]));
}

#[test]
fn shifts_by_the_width_or_more_leave_zero_or_the_sign() {
    let x = [-8, -8, -8, 1, 1];
    let by = [1, 31, 32, 31, -1];
    assert_eq!(binary32(ShiftLeft, &x, &by), [-16, 0, 0, i32::MIN, 0]);
    assert_eq!(binary32(ShiftRightArithmetic, &x, &by), [-4, -1, -1, 0, 0]);
    assert_eq!(binary32(ShiftRightLogical, &x, &by), [0x7fff_fffc, 1, 0, 0, 0]);
    let u = one(ShiftRightLogical, &[Storage::U32(vec![0x8000_0000]), Storage::U32(vec![4])]);
    assert_eq!(u, Storage::U32(vec![0x0800_0000]));
}

#[test]
fn integer_power() {
    assert_eq!(
        binary32(Power, &[2, -3, 7, 2, 1, -1, -1, 5], &[10, 3, 0, 32, -5, -3, -4, -1]),
        [1024, -27, 1, 0, 1, -1, 1, 0]
    );
}

#[test]
fn float_power_and_remainder() {
    let p = float(Power, &[-2.0, 0.0, 2.0, -8.0, 4.0], &[3.0, 0.0, -1.0, 1.0 / 3.0, 0.5]);
    assert_eq!(p[..3], [-8.0, 1.0, 0.5]);
    assert!(p[3].is_nan());
    assert_eq!(p[4], 2.0);
    assert_eq!(float(Remainder, &[5.5, -5.5, 5.5], &[2.0, 2.0, -2.0]), [1.5, -1.5, 1.5]);
    assert!(float(Remainder, &[1.0], &[0.0])[0].is_nan());
}

#[test]
fn extrema_let_nan_win_and_order_zeros() {
    let nan = f32::NAN;
    for (op, z) in [(Maximum, 0.0f32), (Minimum, -0.0)] {
        let v = float(op, &[nan, 1.0, 0.0, -0.0], &[1.0, nan, -0.0, 0.0]);
        assert!(v[0].is_nan() && v[1].is_nan());
        assert_eq!((v[2].to_bits(), v[3].to_bits()), (z.to_bits(), z.to_bits()), "{op:?}");
    }
    let b = |v: &[u8]| Storage::I1(v.to_vec());
    assert_eq!(one(Maximum, &[b(&[0, 0, 1]), b(&[0, 1, 1])]), b(&[0, 1, 1]));
    assert_eq!(one(Add, &[b(&[0, 0, 1]), b(&[0, 1, 1])]), b(&[0, 1, 1]));
    assert_eq!(one(Multiply, &[b(&[0, 0, 1]), b(&[0, 1, 1])]), b(&[0, 0, 1]));
}

#[test]
fn rounding_functions() {
    let x = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5];
    assert_eq!(unary32(RoundNearestAfz, &x), [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]);
    assert_eq!(unary32(RoundNearestEven, &x), [-2.0, -2.0, -0.0, 0.0, 2.0, 2.0]);
    assert_eq!(unary32(Floor, &x), [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0]);
    assert_eq!(unary32(Ceil, &x), [-2.0, -1.0, -0.0, 1.0, 2.0, 3.0]);
    let s = unary32(Sign, &[-3.0, -0.0, 0.0, 9.0, f32::NAN]);
    assert_eq!(s[..4], [-1.0, -0.0, 0.0, 1.0]);
    assert!(s[1].is_sign_negative() && s[4].is_nan());
}

/// Values from Abramowitz & Stegun, table 7.1, and DLMF 7.
#[test]
fn transcendental_functions() {
    let eval64 = |k: UnaryKind, x: f64| one(k, &[Storage::F64(vec![x])]).get_f64(0);
    for (k, x, want) in [
        (Erf, 0.5, 0.520_499_877_813_046_5),
        (Erf, -2.0, -0.995_322_265_018_952_7),
        (Erf, 3.0, 0.999_977_909_503_001_4),
        (Erfc, 0.5, 0.479_500_122_186_953_5),
        (Erfc, 3.0, 2.209_049_699_858_544e-5),
        (Erfc, -1.0, 1.842_700_792_949_714_8),
        (Logistic, 0.0, 0.5),
        (Logistic, -745.0, (-745f64).exp()),
        (ExponentialMinusOne, 1e-10, 1.000_000_000_05e-10),
        (LogPlusOne, 1e-10, 9.999_999_999_5e-11),
        (Rsqrt, 16.0, 0.25),
        (Cbrt, -27.0, -3.0),
    ] {
        let got = eval64(k, x);
        assert!((got - want).abs() <= 4e-15 * want.abs(), "{k:?}({x}) = {got}, not {want}");
    }
}

#[test]
fn bit_counts() {
    let x = Storage::I32(vec![0, 1, -1, 0x00f0]);
    assert_eq!(one(Popcnt, std::slice::from_ref(&x)), Storage::I32(vec![0, 1, 32, 4]));
    assert_eq!(one(CountLeadingZeros, std::slice::from_ref(&x)), Storage::I32(vec![32, 31, 0, 24]));
    assert_eq!(one(Not, &[x]), Storage::I32(vec![-1, -2, 0, !0xf0]));
    assert_eq!(one(CountLeadingZeros, &[Storage::U8(vec![1])]), Storage::U8(vec![7]));
    assert_eq!(one(Abs, &[Storage::I8(vec![-128, -5])]), Storage::I8(vec![-128, 5]));
}

#[test]
fn comparisons() {
    let nan = f32::NAN;
    let cmp = |direction, total_order, a: f32, b: f32| {
        let op = Compare { direction, total_order };
        one(op, &[Storage::F32(vec![a]), Storage::F32(vec![b])]).get_i64(0) == 1
    };
    use Direction::*;
    for (d, want) in [(Eq, false), (Ne, true), (Ge, false), (Gt, false), (Le, false), (Lt, false)] {
        assert_eq!(cmp(d, false, nan, 1.0), want, "{d:?} with NaN");
    }
    assert!(cmp(Eq, false, -0.0, 0.0) && !cmp(Eq, true, -0.0, 0.0) && cmp(Lt, true, -0.0, 0.0));
    assert!(
        cmp(Gt, true, nan, f32::INFINITY)
            && cmp(Lt, true, -nan, f32::NEG_INFINITY)
            && cmp(Eq, true, nan, nan)
    );
    let op = Compare { direction: Lt, total_order: false };
    let (a, b) = (vec![255u8], vec![1u8]);
    assert_eq!(one(op, &[Storage::U8(a), Storage::U8(b)]), Storage::I1(vec![0]), "unsigned");
    assert_eq!(one(op, &[Storage::I8(vec![-1]), Storage::I8(vec![1])]), Storage::I1(vec![1]), "signed");
}

#[test]
fn clamp_is_maximum_then_minimum() {
    let f = |v: &[f32]| Storage::F32(v.to_vec());
    let c = one(Select::Clamp, &[f(&[0., 0., 5., 0.]), f(&[-1., 9., 3., f32::NAN]), f(&[4., 4., 1., 4.])]);
    assert_eq!(c.to_f64s()[..3], [0.0, 4.0, 1.0]);
    assert!(c.get_f64(3).is_nan());
}

#[test]
fn conversions_saturate_from_floats_and_wrap_between_integers() {
    let to = |d, s: Storage| one(Convert::Value(d), &[s]);
    let f = |v: &[f32]| Storage::F32(v.to_vec());
    let wild = [1.9, -1.9, 300.0, -300.0, f32::INFINITY, f32::NAN];
    assert_eq!(to(DType::I8, f(&wild)), Storage::I8(vec![1, -1, 127, -128, 127, 0]));
    assert_eq!(to(DType::U8, f(&wild)), Storage::U8(vec![1, 0, 255, 0, 255, 0]));
    assert_eq!(to(DType::I1, f(&[0.0, -0.0, 0.5, f32::NAN])), Storage::I1(vec![0, 0, 1, 1]));
    assert_eq!(to(DType::I8, Storage::I32(vec![300, -129, 5])), Storage::I8(vec![44, 127, 5]));
    assert_eq!(to(DType::U32, Storage::I32(vec![-1])), Storage::U32(vec![u32::MAX]));
    assert_eq!(to(DType::I1, Storage::I32(vec![0, -4])), Storage::I1(vec![0, 1]));
    assert_eq!(to(DType::I64, Storage::U64(vec![u64::MAX])), Storage::I64(vec![-1]));
    assert_eq!(to(DType::U64, Storage::I64(vec![i64::MIN])), Storage::U64(vec![1 << 63]));
    assert_eq!(to(DType::F32, Storage::U64(vec![u64::MAX])), f(&[1.844_674_4e19]));
    // 2⁵³ + 2²⁹ + 1 lies above the tie of two f32 neighbours, but f64 would round it onto the tie.
    let x = (1i64 << 53) + (1 << 29) + 1;
    assert_eq!(to(DType::F32, Storage::I64(vec![x])), f(&[9_007_200_328_482_816.0]));
    assert_eq!(to(DType::I64, Storage::I1(vec![1])), Storage::I64(vec![1]));
}

#[test]
fn narrow_floats_round_once_to_nearest_even() {
    let to = |d, x: f64| one(Convert::Value(d), &[Storage::F64(vec![x])]).get_f64(0);
    let step = 2f64.powi(-7);
    for (x, want) in [
        (1.0 + step / 2.0, 1.0),
        (1.0 + step * 1.5, 1.0 + 2.0 * step),
        // A hair above the tie, visible only in the low half of the f64.
        (1.0 + step / 2.0 + 2f64.powi(-50), 1.0 + step),
        (1.0 + step / 2.0 - 2f64.powi(-50), 1.0),
        (3.4e38, f64::INFINITY),
        (3.38e38, 254.0 * 2f64.powi(120)),
        (-1e-45, 0.0),
    ] {
        assert_eq!(to(DType::BF16, x), want, "bf16 of {x}");
    }
    let step = 2f64.powi(-10);
    for (x, want) in [
        (1.0 + step / 2.0, 1.0),
        (1.0 + step / 2.0 + 2f64.powi(-50), 1.0 + step),
        (65519.0, 65504.0),
        (65520.0, f64::INFINITY),
        (2f64.powi(-24), 2f64.powi(-24)),
        (2f64.powi(-25), 0.0),
        (2f64.powi(-25) * 1.000_001, 2f64.powi(-24)),
    ] {
        assert_eq!(to(DType::F16, x), want, "f16 of {x}");
    }
    assert!(to(DType::BF16, f64::NAN).is_nan());
}

#[test]
fn bitcasts_keep_bits() {
    let bits = one(Convert::Bits(DType::U32), &[Storage::F32(vec![1.0, -2.0])]);
    assert_eq!(bits, Storage::U32(vec![0x3f80_0000, 0xc000_0000]));
    assert_eq!(one(Convert::Bits(DType::F32), &[bits]), Storage::F32(vec![1.0, -2.0]));
}

#[test]
fn precision_is_reduced_to_the_format() {
    let bf16 = ReducePrecision { exponent_bits: 8, mantissa_bits: 7 };
    let x: Vec<f32> = vec![1.0, 1.003_906_2, 1.011_718_8, -1.005, f32::MAX, f32::INFINITY, 0.1, 1e-40, -0.0];
    let got = one(bf16, &[Storage::F32(x.clone())]);
    let want: Vec<f64> = x.iter().map(|&x| f64::from(half::bf16::from_f32(x).to_f32())).collect();
    // As bfloat16 itself, but for subnormals.
    assert_eq!(got.to_f64s()[..7], want[..7]);
    let f16 = ReducePrecision { exponent_bits: 5, mantissa_bits: 10 };
    let got = one(f16, &[Storage::F32(vec![65519.0, 65520.0, 1e-4, 5e-5, -1e9, f32::NAN])]).to_f64s();
    assert_eq!(got[..2], [65504.0, f64::INFINITY]);
    assert_eq!(got[2], f64::from(half::f16::from_f32(1e-4).to_f32()));
    // 5e-5 is below 2⁻¹⁴, the least normal half.
    assert_eq!((got[3], got[4]), (0.0, f64::NEG_INFINITY));
    assert!(got[5].is_nan());
    let wide = ReducePrecision { exponent_bits: 11, mantissa_bits: 52 };
    assert_eq!(one(wide, &[Storage::F32(x.clone())]), Storage::F32(x));
}
