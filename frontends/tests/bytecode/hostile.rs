//! Files that break one rule of the format each: what is said of them, and that they cost nothing.

use crate::artifact::{Artifact, at, list, section, svi, vi};
use crate::memory::peak_bytes;
use crate::render::render;
use msc_frontends::Code::{self, *};
use msc_frontends::mlir_bytecode;

/// Checks the code of the error and a part of its text, that the place is a byte of the file, and that no more
/// memory was taken than a small file needs.
#[track_caller]
fn refused(bytes: &[u8], code: Code, text: &str) {
    let (result, peak) = peak_bytes(|| mlir_bytecode::read("m.mlirbc", bytes).map(|m| render(&m)));
    let error = match result {
        Ok(m) => panic!("was read as\n{m}"),
        Err(e) => e,
    };
    let shown = error.to_string();
    assert!(shown.contains(text), "`{text}` is not in: {shown}");
    assert_eq!(error.code(), code, "{shown}");
    assert!(shown.contains("m.mlirbc, byte "), "{shown}");
    assert!(peak < 1 << 20, "{peak} bytes for a file of {}", bytes.len());
}

#[test]
fn the_writer_writes_what_is_read() {
    let bytes = Artifact::identity().build();
    let raw = mlir_bytecode::read("m.mlirbc", &bytes).unwrap();
    let text = render(&raw);
    let t = "Tensor { dims: [Some(2)], elem: F32 }";
    assert!(text.contains(&format!("[1: {t}] = stablehlo.add [0, 0] {{}}")), "{text}");
    assert!(text.contains("[] = func.return [1] {}"), "{text}");
    assert!(text.contains(&format!("function_type = ({t}) -> ({t})")), "{text}");
}

#[test]
fn headers() {
    let good = Artifact::identity().build();
    refused(b"", Format, "does not start as MLIR bytecode");
    refused(b"ML\xEFS", Format, "does not start as MLIR bytecode");
    refused(&Artifact { version: 7, ..Artifact::identity() }.build(), Format, "version 7");
    refused(&good[..10], Syntax, "without its closing zero byte");
    let cut = good.iter().position(|&b| b == 0).unwrap() + 1;
    refused(&good[..cut], Syntax, "ends without its string section");
}

#[test]
fn sections() {
    let with = |tail: Vec<u8>| Artifact { tail, ..Artifact::identity() }.build();
    refused(&with(section(4, &[])), Syntax, "a second IR section");
    refused(&with(section(9, &[])), Syntax, "unknown id 9");
    refused(&with(section(5, &[])), Syntax, "only one of the two resource sections");
    refused(&with([&[6][..], &vi(1 << 63)].concat()), Syntax, "a length of 9223372036854775808 bytes");
    refused(&with([&[0x86][..], &vi(0), &vi(3)].concat()), Syntax, "an alignment of 3");
    refused(&with([&[0x86][..], &vi(0), &vi(0)].concat()), Syntax, "an alignment of 0");
    refused(&with([&[0x86][..], &vi(0), &vi(1 << 60)].concat()), Syntax, "an alignment of");
    refused(&with([&[0x86][..], &vi(0), &vi(4096), &[0; 5000]].concat()), Syntax, "padding");
}

#[test]
fn tables() {
    let with = |id: u8, body: Vec<u8>| {
        Artifact { sections: vec![(id, section(id, &body))], ..Artifact::identity() }.build()
    };
    refused(&with(0, vi(1 << 60)), Syntax, "strings where");
    refused(&with(0, [vi(1), vi(0)].concat()), Syntax, "does not end in a zero byte");
    refused(&with(0, [vi(1), vi(2), b"ab".to_vec()].concat()), Syntax, "does not end in a zero byte");
    refused(&with(0, [vi(1), vi(1), vec![0, 0]].concat()), Syntax, "1 bytes left over");
    refused(&with(1, [vi(1), vi(99 << 1)].concat()), Syntax, "string 99");
    refused(&with(1, [vi(1), vi(0), vi(0), vi(5)].concat()), Syntax, "dialect 5");
    refused(&with(1, [vi(1), vi(0), vi(3)].concat()), Syntax, "op names where");
    refused(&with(3, [vi(1), vi(0), vi(0), vi(1), vi(1 << 40)].concat()), Syntax, "a length of");
    refused(
        &with(3, [vi(2), vi(2), vi(0), vi(3), vi(0), vi(0), vi(0)].concat()),
        Syntax,
        "a group of 3 entries",
    );
    refused(&with(3, [vi(2), vi(0), vi(0), vi(0)].concat()), Syntax, "a group of 0 entries");
    refused(&with(3, vi(u64::MAX)), Syntax, "attributes where");
    refused(&with(8, [vi(1), vi(200)].concat()), Syntax, "a length of 200");
}

#[test]
fn attributes() {
    let with = |dialect, body: &[Vec<u8>]| Artifact::with_attr((dialect, true, body.concat())).build();
    assert!(mlir_bytecode::read("", &with(1, &[vi(2), vi(1)])).is_ok());
    refused(&with(1, &[vi(2), vi(2)]), Syntax, "a boolean of value 2");
    refused(&with(1, &[vi(13), vi(0)]), Syntax, "0 is no value of the enum");
    refused(&with(1, &[vi(3), vi(99)]), Syntax, "99 is no value of the enum EQ | NE");
    refused(&with(1, &[vi(0)]), UnsupportedForm, "VHLO attribute of unknown code 0");
    refused(&with(1, &[vi(26)]), UnsupportedForm, "VHLO attribute of unknown code 26");
    refused(&with(0, &[vi(26)]), UnsupportedForm, "builtin attribute of unknown code 26");
    refused(&with(1, &[vi(9), vi(at::F32), svi(1)]), Syntax, "whose type is not an integer");
    refused(&with(1, &[vi(2), vi(1), vi(1)]), Syntax, "1 bytes left over");
    refused(&with(1, &[vi(14), vi(77)]), Syntax, "string 77");
    refused(&with(1, &[vi(17), vi(77)]), Syntax, "type 77");
    refused(&with(1, &[vi(1), vi(1), vi(77)]), Syntax, "attribute 77");
    refused(&with(1, &[vi(1), vi(1 << 50)]), Syntax, "attributes where");
    refused(&with(0, &[vi(1), vi(1), vi(2), vi(2)]), Syntax, "key that is not a string");
    refused(&with(0, &[vi(16), vi(1), vi(0)]), Syntax, "resource 0 of a table of 0");
    refused(&with(0, &[vi(17), vi(0), vi(1 << 62), vi(0)]), Syntax, "a dense array of");
    let mut a = Artifact::identity();
    a.types[1].2 = vi(43);
    refused(&a.build(), UnsupportedType, "VHLO type of unknown code 43");
    a.types[1].2 = [vi(20), vi(1), svi(-2), vi(at::F32)].concat();
    refused(&a.build(), Syntax, "a dimension of size -2");
}

/// What refers to itself, and chains of what refers to the next.
#[test]
fn cycles_and_depth() {
    let own = 4;
    refused(
        &Artifact::with_attr((1, true, [vi(1), vi(1), vi(own)].concat())).build(),
        Syntax,
        "attribute 4 contains itself",
    );
    let mut a = Artifact::identity();
    a.types[1].2 = [vi(1), vi(1)].concat();
    refused(&a.build(), Syntax, "type 1 contains itself");
    let mut a = Artifact::with_attr((1, true, [vi(1), vi(1), vi(7)].concat()));
    for i in 0..300 {
        a.attrs.push((1, true, [vi(1), vi(1), vi(8 + i)].concat()));
    }
    a.attrs.push((1, true, [vi(2), vi(1)].concat()));
    refused(&a.build(), Limit, "nested deeper than 256");
}

/// 2^60 attributes out of 60 entries.
#[test]
fn shared_attributes_do_not_explode() {
    let mut a = Artifact::with_attr((1, true, [vi(1), vi(2), vi(7), vi(7)].concat()));
    for i in 0..60 {
        a.attrs.push((1, true, [vi(1), vi(2), vi(8 + i), vi(8 + i)].concat()));
    }
    a.attrs.push((1, true, [vi(2), vi(1)].concat()));
    let (result, peak) = peak_bytes(|| mlir_bytecode::read("", &a.build()).map(|_| ()));
    assert_eq!(result.unwrap_err().code(), Limit);
    // 65,536 attributes are allowed to any file.
    assert!(peak < 32 << 20, "{peak}");
}

/// Locations may form chains of any length, and cycles; neither costs a stack.
#[test]
fn long_chains_of_locations() {
    let mut a = Artifact::identity();
    a.attrs[0].2 = [vi(10), vi(4), vi(4)].concat();
    for i in 0..10_000 {
        a.attrs.push((0, true, [vi(10), vi(5 + i), vi(0)].concat()));
    }
    a.attrs.push((0, true, vi(15)));
    let raw = a.build();
    assert_eq!(mlir_bytecode::read("", &raw).unwrap().locs.len(), 10_003);
    a.attrs[0].2 = [vi(14), vi(1), vi(0)].concat();
    refused(&a.build(), Syntax, "a location's name or file that is not a string");
    a.attrs[0] = (1, true, [vi(2), vi(1)].concat());
    refused(&a.build(), Syntax, "a location that is not one");
}

#[test]
fn values() {
    let add = Artifact::add;
    let body = |ops: &[Vec<u8>]| Artifact::block(true, ops);
    let with = |ops: &[Vec<u8>], values| Artifact::with_body(&body(ops), values).build();
    refused(&with(&[add([0, 9]), Artifact::ret(1)], 2), Syntax, "vhlo.add_v1: operand 9 where 2 values");
    refused(&with(&[add([0, 1]), Artifact::ret(1)], 2), Name, "operand 1 is used before it is defined");
    refused(&with(&[add([0, 0]), Artifact::ret(1)], 3), Syntax, "fewer values than it announces");
    refused(&with(&[add([0, 0]), Artifact::ret(1)], 1), Syntax, "more values than it announces");
    refused(&with(&[add([0, 0]), Artifact::ret(1)], 1 << 40), Syntax, "values of a region");
    // An isolated region does not see the values outside; one that is not isolated does.
    let inner = |isolated: u64, operand: u64| {
        let region = [vi(1), vi(0), Artifact::block(false, &[Artifact::ret(operand)])].concat();
        let regions = if isolated == 1 { section(4, &region) } else { region };
        [vi(at::ADD), vec![0x10], vi(0), vi(1 << 1 | isolated), regions].concat()
    };
    refused(&with(&[inner(1, 0), Artifact::ret(0)], 1), Syntax, "vhlo.return_v1: operand 0 where 0 values");
    assert!(mlir_bytecode::read("", &with(&[inner(0, 0), Artifact::ret(0)], 1)).is_ok());
    let raw = with(&[inner(0, 0), Artifact::ret(0)], 1);
    let text = render(&mlir_bytecode::read("", &raw).unwrap());
    assert!(text.contains("stablehlo.return") && text.contains("func.return"), "{text}");
}

#[test]
fn ops() {
    let with = |op: Vec<u8>, values| {
        Artifact::with_body(&Artifact::block(true, &[op, Artifact::ret(0)]), values).build()
    };
    refused(&with([vi(99), vec![0], vi(0)].concat(), 1), Syntax, "op name 99 of a table of 5");
    refused(&with([vi(at::ADD), vec![0x80], vi(0)].concat(), 1), Syntax, "an op mask of 0x80");
    refused(&with([vi(at::ADD), vec![0x40], vi(0), vi(7)].concat(), 1), Syntax, "property entry 7");
    refused(
        &with([vi(at::EXTRA), vec![0], vi(0)].concat(), 1),
        Attribute,
        "constant_v1: attribute value is missing",
    );
    refused(&with([vi(at::ADD), vec![0x02], vi(0), vi(1 << 33)].concat(), 1), Syntax, "results where");
    refused(&with([vi(at::ADD), vec![0x08], vi(0), list(&[vi(0)])].concat(), 1), UnsupportedForm, "branches");
    refused(&with([vi(at::ADD), vec![0x20], vi(0), vi(1 << 40)].concat(), 1), Syntax, "uses where");
    refused(
        &with([vi(at::ADD), vec![0x10], vi(0), vi(1 << 1 | 1), section(5, &[])].concat(), 1),
        Syntax,
        "a section resource that should hold regions",
    );
    let long = [&[4][..], &vi(500)].concat();
    refused(
        &with([vi(at::ADD), vec![0x10], vi(0), vi(3), long].concat(), 1),
        Syntax,
        "a length of 500 bytes",
    );
    let mut a = Artifact::identity();
    a.ops[2].1 = "add_v99";
    let bytes = a.build();
    refused(&bytes, UnknownOp, "vhlo.add_v99: no StableHLO operation of this name");
    refused(&bytes, UnknownOp, "the artifact says VHLO 1.17, in which there is no such thing");
    a.producer = "StableHLO_v9.3.1";
    refused(&a.build(), UnknownOp, "the artifact is of VHLO 9.3; the newest known is 1.22");
    let mut a = Artifact::identity();
    a.properties[0].truncate(4);
    refused(&a.build(), Syntax, "vhlo.func_v1: the data ends in the middle");
    a.properties[0].extend([3, 3]);
    refused(&a.build(), Syntax, "vhlo.func_v1: 1 bytes left over at the end of an op's properties");
    let two = [vi(2 << 1), Artifact::op(at::MODULE, &[], &[]), Artifact::op(at::MODULE, &[], &[])].concat();
    refused(&Artifact { ir: two, ..Artifact::identity() }.build(), Syntax, "does not hold one module");
}

/// An artifact that is read but cannot be imported: the message has the op's name and where it is in the file.
#[test]
fn the_importer_names_op_and_byte() {
    let mut a = Artifact::identity();
    a.ops[2].1 = "cosine_v1";
    let bytes = a.build();
    let op = Artifact::add([0, 0]);
    let at = bytes.windows(op.len()).position(|w| w == op).expect("the op is in the file");
    let error = msc_frontends::read_bytes("step.mlirbc", &bytes).unwrap_err();
    assert_eq!(error.code(), Invalid, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("stablehlo.cosine") && text.ends_with(&format!("--> step.mlirbc, byte {at}")),
        "{text}"
    );
}

/// A constant of another version of bytecode has no properties section; a mask that says so is refused.
#[test]
fn properties_need_version_5() {
    let mut a = Artifact::identity();
    a.version = 4;
    // Version 4 has no flag on op names.
    let names: Vec<u8> = (0..5u64).flat_map(|i| [vi(u64::from(i > 0)), vi(1), vi(2 + i)].concat()).collect();
    a.sections = vec![(1, section(1, &[vi(2), vi(0), vi(2), vi(5), names].concat()))];
    refused(&a.build(), Syntax, "an op mask of 0x50 in bytecode version 4");
}

#[test]
fn nested_regions_are_limited() {
    let mut inner = Artifact::op(at::ADD, &[], &[]);
    for _ in 0..200 {
        let region = [vi(1), vi(0), Artifact::block(false, &[inner])].concat();
        inner = [vi(at::ADD), vec![0x10], vi(0), vi(1 << 1), region].concat();
    }
    let a = Artifact::with_body(&Artifact::block(true, &[inner, Artifact::ret(0)]), 1);
    refused(&a.build(), Limit, "regions nested deeper than 128");
}

/// Nested regions that each announce as many values as there are bytes behind them.
#[test]
fn announced_values_are_bounded_together() {
    let mut inner = vec![3; 100_000];
    for _ in 0..100 {
        let n = inner.len() as u64 - 10;
        inner = [vi(at::ADD), vec![0x10], vi(0), vi(1 << 1), vi(1), vi(n), vi(1 << 1), inner].concat();
    }
    let bytes = Artifact::with_body(&[vi(1 << 1 | 1), vi(1), vi(2), vec![0], inner].concat(), 1).build();
    refused(&bytes, Syntax, "more than the bytes left can define");
}

/// Lists of numbers made of splats are charged before they are made.
#[test]
fn splats_of_huge_types() {
    let mut a = Artifact::identity();
    a.ops[4].1 = "transpose_v1";
    a.types.push((1, true, vi(14)));
    a.types.push((1, true, [vi(20), vi(1), svi(1 << 40), vi(3)].concat()));
    a.attrs.push((1, true, [vi(15), vi(4), vi(8), vec![0; 8]].concat()));
    a.properties.push(vi(4));
    let op = [vi(at::EXTRA), vec![0x46], vi(0), vi(1), list(&[vi(at::TENSOR)]), list(&[vi(0)])].concat();
    a.ir = Artifact::module_of(&Artifact::block(true, &[op, Artifact::ret(1)]), 2);
    refused(&a.build(), Limit, "expand to more than eight times");
    // The same of two elements is a permutation.
    a.types[4].2 = [vi(20), vi(1), svi(2), vi(3)].concat();
    let bytes = a.build();
    let text = render(&mlir_bytecode::read("", &bytes).unwrap());
    assert!(text.contains("permutation = Ints([0, 0])"), "{text}");
    a.attrs[4].2 = [vi(15), vi(4), vi(7), vec![0; 7]].concat();
    refused(&a.build(), Constant, "permutation: 7 bytes for 2 elements");
}

/// A megabyte of constant that thousands of ops use is decoded and hashed once.
#[test]
fn shared_constants_are_decoded_once() {
    let mut a = Artifact::identity();
    let n = 1 << 18;
    a.types.push((1, true, [vi(20), vi(1), svi(n), vi(at::F32)].concat()));
    let bytes: Vec<u8> = (0..4 * n).map(|i| i as u8).collect();
    a.attrs.push((1, true, [vi(15), vi(3), vi(bytes.len() as u64), bytes].concat()));
    a.properties.push(vi(4));
    a.strings[0] = b"main".to_vec();
    let constant = [vi(at::EXTRA), vec![0x42], vi(0), vi(1), list(&[vi(3)])].concat();
    let mut ops = vec![constant; 20_000];
    ops.push(Artifact::ret(0));
    a.ir = Artifact::module_of(&Artifact::block(true, &ops), 20_001);
    let file = a.build();
    let raw = mlir_bytecode::read("", &file).unwrap();
    let start = std::time::Instant::now();
    let imported = msc_frontends::import::import(&raw).unwrap();
    assert_eq!(imported.module.constants.len(), 1);
    // Hashing 20 GB takes at least 5 s on any machine; this takes milliseconds.
    assert!(start.elapsed().as_secs() < 4, "{:?}", start.elapsed());
}
