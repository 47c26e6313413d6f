//! Files of tensors: what is written is read, what others write is read, damage ends in an error.

use msc_ir::{DType, Storage, Tensor, TensorType};
use msc_runtime::data::{self, DataError, Tensors, assign, fit, npz, safetensors};
use std::io::Cursor;

fn every_type() -> Vec<(String, Tensor)> {
    let one = |d: DType| {
        let v: Vec<f64> = (0..6).map(|i| f64::from(i % 2)).collect();
        (d.name().to_string(), Tensor::from_f64s(&TensorType::new(d, [2, 3]), &v))
    };
    let mut all: Vec<(String, Tensor)> = DType::ALL.into_iter().map(one).collect();
    all.push(("scalar".into(), Tensor::scalar(DType::F32, 2.5)));
    all.push(("empty".into(), Tensor::new([0, 3], Storage::I32(vec![]))));
    all.push(("vector".into(), Tensor::new([3], Storage::F64(vec![1.0, f64::NAN, -0.0]))));
    all
}

fn list(all: &[(String, Tensor)]) -> Vec<(&str, &Tensor)> {
    all.iter().map(|(n, t)| (n.as_str(), t)).collect()
}

#[test]
fn files_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.npz", "a.safetensors"] {
        let path = folder.path().join(name);
        let all = every_type();
        data::write(&path, &list(&all), Some(12)).expect("it is written");
        let read = data::read(&path).expect("it is read");
        assert_eq!(read.len(), all.len());
        for (n, t) in &all {
            let got = fit(n, read[n].clone(), &t.ty()).expect("the same type");
            assert_eq!((got.ty(), got.data.bytes()), (t.ty(), t.data.bytes()), "{name} {n}");
        }
        let first = std::fs::read(&path).expect("bytes");
        data::write(&path, &list(&all), Some(12)).expect("it is written again");
        assert_eq!(std::fs::read(&path).expect("bytes"), first, "{name} has the same bytes every time");
    }
    assert!(matches!(data::write(&folder.path().join("a.txt"), &[], None), Err(DataError::Format { .. })));
    assert!(matches!(data::read(&folder.path().join("none.npz")), Err(DataError::Io { .. })));
}

/// An `.npy` file by hand, as NumPy writes it.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    let text = format!("{header:117}\n");
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.bytes());
    out.extend(data);
    out
}

#[test]
fn what_numpy_writes_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokens.npy");
    let read = |header: &str, data: &[u8]| {
        std::fs::write(&path, npy(header, data)).expect("it is written");
        data::read(&path).map(|mut t| t.remove("tokens").expect("the file's name"))
    };
    // Column-major: NumPy's order of [[1, 2, 3], [4, 5, 6]].T
    let t = read(
        "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }",
        &[1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0],
    );
    assert_eq!(t.expect("column-major"), Tensor::new([2, 3], Storage::I16(vec![1, 2, 3, 4, 5, 6])));
    // ml_dtypes' bfloat16 is a void of two bytes.
    let t = read("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", &[0x80, 0x3f, 0, 0x40]);
    let t = fit("w", t.expect("bits"), &TensorType::new(DType::BF16, [2])).expect("bfloat16");
    assert_eq!(t.data.to_f64s(), [1.0, 2.0]);
    for (header, data) in [
        ("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", &[0u8; 4][..]),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", &[0; 8]),
        ("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", &[0; 8]),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", &[0; 4]),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", &[0; 4]),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000,), }", &[0; 4]),
        ("{'descr': '<f4', 'shape': (1,), }", &[0; 4]),
        ("not a dictionary", &[]),
    ] {
        assert!(matches!(read(header, data), Err(DataError::Format { .. })), "{header}");
    }
}

#[test]
fn damaged_files_end_in_errors() {
    let all = every_type();
    let mut bytes = Cursor::new(Vec::new());
    npz::write_to(&mut bytes, &list(&all)).expect("it is written");
    let good = bytes.into_inner();
    for length in 0..good.len() {
        assert!(npz::read_from(Cursor::new(&good[..length])).is_err(), "{length}");
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        // Most flips are found by the checksum; a flip in a name or a date is not damage.
        let _ = npz::read_from(Cursor::new(bad));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.safetensors");
    safetensors::write(&path, &list(&all), None).expect("it is written");
    let good = std::fs::read(&path).expect("bytes");
    for length in (0..good.len()).step_by(7) {
        std::fs::write(&path, &good[..length]).expect("cut");
        assert!(matches!(data::read(&path), Err(DataError::Format { .. })), "{length}");
    }
    // A number of steps that is none.
    safetensors::write(&path, &list(&all), Some(12)).expect("it is written");
    let good = std::fs::read(&path).expect("bytes");
    let at = good.windows(4).position(|w| w == b"\"12\"").expect("the number");
    let mut bad = good.clone();
    bad[at + 1] = b'x';
    std::fs::write(&path, &bad).expect("written");
    assert!(matches!(data::read(&path), Err(DataError::Format { .. })));
}

/// Exporters call arguments `in1`, too: the name counts, not the number.
#[test]
fn names_come_before_numbers() {
    let scalar = |v: f32| Tensor::new([], Storage::F32(vec![v]));
    let wanted = [("in1", TensorType::scalar(DType::F32)), ("in0", TensorType::scalar(DType::F32))];
    let given: Tensors = [("in0".to_string(), scalar(0.0)), ("in1".to_string(), scalar(1.0))].into();
    let mut slots = vec![None, None];
    assign("input", &wanted, given, &mut slots).expect("they fit");
    assert_eq!(slots, [Some(scalar(1.0)), Some(scalar(0.0))]);
}

fn wanted() -> Vec<(&'static str, TensorType)> {
    vec![
        ("embed.weight", TensorType::new(DType::BF16, [2, 2])),
        ("tokens", TensorType::new(DType::I32, [3])),
        ("lr", TensorType::new(DType::F32, [])),
    ]
}

fn given(names: [&str; 3]) -> Tensors {
    let tensors = [
        Tensor::new([2, 2], Storage::U16(vec![0x3f80, 0x4000, 0, 0])),
        Tensor::new([3], Storage::I64(vec![1, -1, 50_000])),
        Tensor::new([1], Storage::F32(vec![0.1])),
    ];
    names.map(str::to_string).into_iter().zip(tensors).collect()
}

#[test]
fn tensors_find_their_inputs_by_name_or_number() {
    for names in
        [["embed.weight", "tokens", "lr"], ["in0000", "in0001", "in0002"], ["arr_0", "arr_1", "arr_2"]]
    {
        let mut slots = vec![None; 3];
        assign("input", &wanted(), given(names), &mut slots).expect("they fit");
        for (slot, (name, ty)) in slots.iter().zip(wanted()) {
            assert_eq!(slot.as_ref().map(Tensor::ty), Some(ty), "{name}");
        }
        assert_eq!(slots[0].as_ref().map(|t| t.data.to_f64s()), Some(vec![1.0, 2.0, 0.0, 0.0]));
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let mut slots = vec![None; 3];
    let e =
        assign("input", &wanted(), given(["embed", "tokens", "lr"]), &mut slots).expect_err("no such name");
    assert_eq!(e.to_string(), "MSC-D0003: the step has no input named `embed` (there is `embed.weight`)");
    let e = assign("input", &wanted(), given(["in0000", "in0001", "in0007"]), &mut vec![None; 3])
        .expect_err("no such number");
    assert!(matches!(e, DataError::Unknown { .. }), "{e}");
    let mut slots = vec![None; 3];
    slots[1] = Some(Tensor::scalar(DType::I32, 0.0));
    let e = assign("input", &wanted(), given(["embed.weight", "tokens", "lr"]), &mut slots);
    assert!(matches!(e, Err(DataError::Twice { .. })), "{e:?}");
}

#[test]
fn only_the_same_values_fit() {
    let ids = |v: &[i64]| Tensor::new([v.len()], Storage::I64(v.to_vec()));
    let want = |d: DType, n: usize| TensorType::new(d, [n]);
    assert!(fit("x", ids(&[1, i64::from(i32::MAX)]), &want(DType::I32, 2)).is_ok());
    assert!(fit("x", ids(&[1, 1 << 40]), &want(DType::I32, 2)).is_err());
    assert!(fit("x", ids(&[-1]), &want(DType::U64, 1)).is_err());
    assert!(fit("x", ids(&[-1]), &want(DType::U8, 1)).is_err());
    assert!(fit("x", ids(&[255]), &want(DType::U8, 1)).is_ok());
    let unsigned = Tensor::new([1], Storage::U64(vec![u64::MAX]));
    assert!(fit("x", unsigned, &want(DType::I64, 1)).is_err());
    assert!(fit("x", ids(&[1]), &want(DType::F32, 1)).is_err());
    assert!(fit("x", ids(&[1, 2]), &want(DType::I64, 3)).is_err());
    assert!(fit("x", Tensor::scalar(DType::F64, 0.1), &want(DType::F32, 1)).is_err());
}
