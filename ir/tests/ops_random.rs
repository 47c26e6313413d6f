//! `rng_bit_generator` against the bits that XLA's CPU back end gives (jaxlib 0.4.38), for state
//! `(key, counter)` with a counter that wraps.

use msc_ir::interp::Mode;
use msc_ir::ops::rng::{Algorithm, RngBitGenerator};
use msc_ir::testing::eval;
use msc_ir::{DType, Module, Storage, Tensor, TensorType};

const STATE: [u64; 3] = [0x1234_5678_9abc_def0, 0xffff_ffff_ffff_fffe, 7];

fn bits(algorithm: Algorithm, state: &[u64], dtype: DType, shape: &[usize]) -> (Vec<u64>, Vec<u64>) {
    let op = RngBitGenerator { algorithm, ty: TensorType::new(dtype, shape.iter().copied()) };
    let input = Tensor::new([state.len()], Storage::U64(state.to_vec()));
    let out = eval(&Module::new("test"), op, &[input], Mode::Spec).expect("evaluates");
    assert_eq!(out[1].ty(), TensorType::new(dtype, shape.iter().copied()));
    let u64s = |t: &Tensor| match t.converted(DType::U64).data {
        Storage::U64(v) => v,
        _ => unreachable!("converted"),
    };
    (u64s(&out[0]), u64s(&out[1]))
}

#[test]
fn threefry() {
    let run = |dtype, shape: &[usize]| {
        let (state, bits) = bits(Algorithm::ThreeFry, &STATE[..2], dtype, shape);
        assert_eq!(state[0], STATE[0]);
        (state[1], bits)
    };
    const A: u64 = 0x3c3b_507a;
    const B: u64 = 0x7093_e72c;
    assert_eq!(run(DType::U32, &[]), (u64::MAX, vec![A]));
    assert_eq!(run(DType::U32, &[5]), (1, vec![A, B, 0xa431_7ba7, 0x21f1_aaca, 0x5eff_803d]));
    // No even dimension: the largest, rounded up, pairs rows.
    assert_eq!(
        run(DType::U32, &[3, 3]),
        (
            4,
            vec![
                A,
                0xa431_7ba7,
                0x5eff_803d,
                B,
                0x21f1_aaca,
                0x4ce3_80f9,
                0x394b_defc,
                0x523f_5786,
                0x553d_0168
            ]
        )
    );
    assert_eq!(run(DType::U32, &[2, 3]), (1, vec![A, 0xa431_7ba7, 0x5eff_803d, B, 0x21f1_aaca, 0x4ce3_80f9]));
    let (state, row) = run(DType::U32, &[3, 4]);
    assert_eq!((state, row[4], row[11]), (4, 0x5eff_803d, 0xe364_850a));
    assert_eq!(
        run(DType::U64, &[3]),
        (1, vec![0x7093_e72c_3c3b_507a, 0x21f1_aaca_a431_7ba7, 0x4ce3_80f9_5eff_803d])
    );
    assert_eq!(run(DType::U8, &[6]), (1, vec![0x7a, 0x2c, 0xa7, 0xca, 0x3d, 0xf9]));
    assert_eq!(run(DType::U16, &[3]), (0, vec![0x507a, 0xe72c, 0x7ba7]));
}

#[test]
fn philox() {
    for algorithm in [Algorithm::Philox, Algorithm::Default] {
        let run = |n: usize, dtype, shape: &[usize]| bits(algorithm, &STATE[..n], dtype, shape);
        assert_eq!(
            run(3, DType::U32, &[5]),
            (vec![STATE[0], 0, 8], vec![0x25c9_b2d0, 0x0ca6_f05a, 0x644f_27d0, 0x1837_c7f2, 0x053e_97e3])
        );
        let (state, out) = run(3, DType::U32, &[3, 4]);
        assert_eq!((state, out[11]), (vec![STATE[0], 1, 8], 0x7038_23b6));
        assert_eq!(
            run(3, DType::U64, &[3]).1,
            [0x0ca6_f05a_25c9_b2d0, 0x1837_c7f2_644f_27d0, 0x703c_71ef_053e_97e3]
        );
        assert_eq!(run(3, DType::U16, &[3]), (vec![STATE[0], u64::MAX, 7], vec![0xb2d0, 0xf05a, 0x27d0]));
        assert_eq!(
            run(2, DType::U32, &[5]),
            (vec![STATE[0], 0], vec![0xbbd8_56ff, 0xb795_d4a1, 0x9db4_dbb7, 0xb129_d7a7, 0x583d_df1e])
        );
        let (state, out) = run(2, DType::U32, &[3, 4]);
        assert_eq!((state, out[11]), (vec![STATE[0], 1], 0xb33c_65fe));
        assert_eq!(run(2, DType::U8, &[6]).1, [0xff, 0xa1, 0xb7, 0xa7, 0x1e, 0x0c]);
    }
}
