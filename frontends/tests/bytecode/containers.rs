//! Parts of the container that StableHLO's own artifacts do not use: resources, unregistered ops, dialect versions,
//! use lists.

use crate::artifact::{Artifact, at, list, section, svi, vi};
use crate::render::render;
use msc_frontends::mlir_bytecode;
use msc_frontends::raw::{Attr, DenseData};

/// A blob that starts on a multiple of 8 from the start of the file, and an attribute that refers to it.
#[test]
fn resources() {
    let mut a = Artifact::with_attr((0, true, [vi(16), vi(3), vi(0)].concat()));
    a.types.push((0, true, [vi(13), vi(1), svi(2), vi(4)].concat()));
    a.types.push((0, true, vi(5)));
    a.strings.push(b"key".to_vec());
    let start = a.build().len() + 2;
    let mut value = [vi(8), vi(8)].concat();
    while !(start + value.len()).is_multiple_of(8) {
        value.push(0xCB);
    }
    value.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    let names = [vi(0), vi(0), vi(1), vi(21), vi(value.len() as u64), vec![0]].concat();
    a.tail = [section(5, &value), section(6, &names)].concat();
    let file = a.build();
    let raw = mlir_bytecode::read("", &file).unwrap();
    assert_eq!(raw.resources["key"], DenseData::Bytes(vec![1, 2, 3, 4, 5, 6, 7, 8].into()));
    let add = &raw.body[0].regions[0].blocks[0].ops[0];
    assert!(matches!(&add.attrs[0].1, Attr::Dense(_, DenseData::Resource(key)) if key == "key"), "{add:?}");

    let broken = |value: &[u8], kind: u8| {
        let names = [vi(0), vi(0), vi(1), vi(21), vi(value.len() as u64), vec![kind]].concat();
        let tail = [section(5, value), section(6, &names)].concat();
        mlir_bytecode::read("", &Artifact { tail, ..a.clone() }.build()).unwrap_err().to_string()
    };
    assert!(broken(&[vi(3), vi(0)].concat(), 0).contains("an alignment of 3"));
    assert!(broken(&[vi(1), vi(9), vec![0]].concat(), 0).contains("a length of 9 bytes"));
    assert!(broken(&[1], 7).contains("of unknown kind 7"));
    assert!(broken(&[1, 1], 1).contains("1 bytes left over at the end of a resource"));
    // A boolean is no blob.
    assert!(broken(&[1], 1).contains("the resource `key` has no blob"));
}

/// The writer did not know the op: its properties are one dictionary.
#[test]
fn unregistered_ops() {
    let mut a = Artifact::identity();
    a.ops[4].1 = "iota_v1";
    let names = [0u64, 1, 2, 3, 4].map(|i| {
        let registered = u64::from(i != 4);
        [vi(u64::from(i > 0)), vi(1), vi((2 + i) << 1 | registered)].concat()
    });
    // A version of the builtin dialect besides, which says nothing to the reader.
    let dialects = [vi(2), vi(1), section(7, &[9, 9]), vi(1 << 1), vi(5), names.concat()].concat();
    a.sections = vec![(1, section(1, &dialects))];
    a.strings.push(b"iota_dimension".to_vec());
    a.types.push((1, true, vi(14)));
    a.attrs.push((1, true, [vi(9), vi(3), svi(0)].concat()));
    a.attrs.push((0, true, [vi(2), vi(21)].concat()));
    a.attrs.push((0, true, [vi(1), vi(1), vi(5), vi(4)].concat()));
    a.properties.push(vi(6));
    let iota = [vi(at::EXTRA), vec![0x42], vi(0), vi(1), list(&[vi(at::TENSOR)])].concat();
    a.ir = Artifact::module_of(&Artifact::block(true, &[iota, Artifact::ret(1)]), 2);
    let file = a.build();
    let text = render(&mlir_bytecode::read("", &file).unwrap());
    assert!(text.contains("stablehlo.iota [] {iota_dimension = 0 : Scalar(Int(64))}"), "{text}");
}

/// Use lists of one value, of several values, and as pairs: all are stepped over.
#[test]
fn use_lists() {
    let two = list(&[vi(0), vi(0)]);
    let add = [vi(at::ADD), vec![0x26], vi(0), list(&[vi(at::TENSOR)]), two.clone()].concat();
    let one_value = [vi(2 << 1), vi(1), vi(0)].concat();
    let file = Artifact::with_body(&Artifact::block(true, &[[add, one_value].concat(), Artifact::ret(1)]), 2);
    assert!(mlir_bytecode::read("", &file.build()).is_ok());
    let add = [vi(at::ADD), vec![0x26], vi(0), list(&[vi(at::TENSOR), vi(at::TENSOR)]), two].concat();
    let several = |value: u64| [vi(1), vi(value), vi(1 << 1 | 1), vi(5)].concat();
    let file = |value: u64| {
        let op = [add.clone(), several(value)].concat();
        Artifact::with_body(&Artifact::block(true, &[op, Artifact::ret(2)]), 3).build()
    };
    assert!(mlir_bytecode::read("", &file(1)).is_ok());
    let error = mlir_bytecode::read("", &file(2)).unwrap_err().to_string();
    assert!(error.contains("vhlo.add_v1: value with a use list 2 of a table of 2"), "{error}");
}
