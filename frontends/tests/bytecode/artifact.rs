//! A writer of small artifacts, part by part, so that tests can spoil any part.

/// A number in the format's variable-length form: the shortest.
pub fn vi(v: u64) -> Vec<u8> {
    for n in 0..8u32 {
        if v < 1 << (7 * (n + 1)) {
            let raw = ((v << 1 | 1) << n).to_le_bytes();
            return raw[..=n as usize].to_vec();
        }
    }
    [&[0][..], &v.to_le_bytes()].concat()
}

/// A signed number.
pub fn svi(v: i64) -> Vec<u8> {
    vi(((v << 1) ^ (v >> 63)) as u64)
}

/// A section: id, length, bytes.
pub fn section(id: u8, body: &[u8]) -> Vec<u8> {
    [&[id][..], &vi(body.len() as u64), body].concat()
}

/// A list of items preceded by its count.
pub fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [vi(items.len() as u64), items.concat()].concat()
}

/// An entry of the attribute or type table: dialect (0 builtin, 1 vhlo), own encoding, bytes.
pub type Entry = (u64, bool, Vec<u8>);

/// The parts of an artifact of bytecode version 6.
#[derive(Clone)]
pub struct Artifact {
    pub version: u64,
    pub producer: &'static str,
    pub dialects: Vec<&'static str>,
    /// Dialect and name.
    pub ops: Vec<(u64, &'static str)>,
    pub attrs: Vec<Entry>,
    pub types: Vec<Entry>,
    pub properties: Vec<Vec<u8>>,
    pub ir: Vec<u8>,
    /// More strings, from index 20 on.
    pub strings: Vec<Vec<u8>>,
    /// Sections as they are written, by id, in place of what the parts say.
    pub sections: Vec<(u8, Vec<u8>)>,
    /// Bytes behind the last section.
    pub tail: Vec<u8>,
}

/// Indices in [`Artifact::identity`].
pub mod at {
    pub const UNKNOWN_LOC: u64 = 0;
    pub const F32: u64 = 0;
    pub const TENSOR: u64 = 1;
    pub const MODULE: u64 = 0;
    pub const FUNC: u64 = 1;
    pub const ADD: u64 = 2;
    pub const RETURN: u64 = 3;
    pub const EXTRA: u64 = 4;
}

impl Artifact {
    /// `func @f(%x: tensor<2xf32>) { %y = add %x, %x; return %y }`, and one op name more (`constant_v1`).
    pub fn identity() -> Artifact {
        let body = Artifact::block(true, &[Artifact::add([0, 0]), Artifact::ret(1)]);
        Artifact {
            version: 6,
            producer: "StableHLO_v1.17.0",
            dialects: vec!["builtin", "vhlo"],
            ops: vec![(0, "module"), (1, "func_v1"), (1, "add_v1"), (1, "return_v1"), (1, "constant_v1")],
            attrs: vec![
                (0, true, vi(15)),
                (1, true, [vi(14), vi(20)].concat()),
                (1, true, [vi(17), vi(2)].concat()),
                (1, true, [vi(1), vi(0)].concat()),
            ],
            types: vec![
                (1, true, vi(4)),
                (1, true, [vi(20), vi(1), svi(2), vi(at::F32)].concat()),
                (1, true, [vi(8), list(&[vi(at::TENSOR)]), list(&[vi(at::TENSOR)])].concat()),
            ],
            properties: vec![[3, 2, 3, 1, 1].map(vi).concat()],
            ir: Artifact::module_of(&body, 2),
            strings: vec![b"f".to_vec()],
            sections: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// An op without attributes: name, results, operands.
    pub fn op(name: u64, results: &[u64], operands: &[u64]) -> Vec<u8> {
        let mask = u8::from(!results.is_empty()) << 1 | u8::from(!operands.is_empty()) << 2;
        let numbers = |v: &[u64]| match v {
            [] => Vec::new(),
            v => list(&v.iter().map(|&x| vi(x)).collect::<Vec<_>>()),
        };
        [vi(name), vec![mask], vi(at::UNKNOWN_LOC), numbers(results), numbers(operands)].concat()
    }

    /// `add` of two values.
    pub fn add(operands: [u64; 2]) -> Vec<u8> {
        Artifact::op(at::ADD, &[at::TENSOR], &operands)
    }

    /// `return` of a value.
    pub fn ret(value: u64) -> Vec<u8> {
        Artifact::op(at::RETURN, &[], &[value])
    }

    /// A block, with one tensor argument or none.
    pub fn block(arg: bool, ops: &[Vec<u8>]) -> Vec<u8> {
        let head = vi((ops.len() as u64) << 1 | u64::from(arg));
        let args = if arg { [vi(1), vi(at::TENSOR << 1), vec![0]].concat() } else { Vec::new() };
        [head, args, ops.concat()].concat()
    }

    /// The content of the IR section: a module of one function whose only block is `body` with `values` values.
    pub fn module_of(body: &[u8], values: u64) -> Vec<u8> {
        let region = [vi(1), vi(values), body.to_vec()].concat();
        let func =
            [vi(at::FUNC), vec![0x50], vi(at::UNKNOWN_LOC), vi(0), vi(1 << 1 | 1), section(4, &region)]
                .concat();
        let module = [vi(1), vi(0), Artifact::block(false, &[func])].concat();
        [vi(1 << 1), vi(at::MODULE), vec![0x10], vi(at::UNKNOWN_LOC), vi(1 << 1 | 1), section(4, &module)]
            .concat()
    }

    /// The identity with another function body.
    pub fn with_body(body: &[u8], values: u64) -> Artifact {
        Artifact { ir: Artifact::module_of(body, values), ..Artifact::identity() }
    }

    /// The identity with attribute `attr` on its `add`.
    pub fn with_attr(attr: Entry) -> Artifact {
        let mut a = Artifact::identity();
        a.attrs.push(attr);
        let dict = a.attrs.len() as u64;
        a.attrs.push((0, true, [vi(1), vi(1), vi(dict + 1), vi(dict - 1)].concat()));
        a.attrs.push((0, true, [vi(2), vi(20)].concat()));
        let two = list(&[vi(0), vi(0)]);
        let add =
            [vi(at::ADD), vec![0x07], vi(at::UNKNOWN_LOC), vi(dict), list(&[vi(at::TENSOR)]), two].concat();
        a.ir = Artifact::module_of(&Artifact::block(true, &[add, Artifact::ret(1)]), 2);
        a
    }

    fn part(&self, id: u8, default: Vec<u8>) -> Vec<u8> {
        let own = self.sections.iter().find(|s| s.0 == id).map(|s| s.1.clone());
        own.unwrap_or_else(|| section(id, &default))
    }

    /// The file.
    pub fn build(&self) -> Vec<u8> {
        let mut strings: Vec<Vec<u8>> = self.dialects.iter().map(|d| d.as_bytes().to_vec()).collect();
        strings.extend(self.ops.iter().map(|o| o.1.as_bytes().to_vec()));
        strings.resize(20, Vec::new());
        strings.extend(self.strings.clone());
        let lengths: Vec<u8> = strings.iter().rev().flat_map(|s| vi(s.len() as u64 + 1)).collect();
        let bytes: Vec<u8> = strings.iter().flat_map(|s| [&s[..], &[0]].concat()).collect();
        let string_section = [vi(strings.len() as u64), lengths, bytes].concat();

        let mut dialects = vi(self.dialects.len() as u64);
        dialects.extend((0..self.dialects.len() as u64).flat_map(|i| vi(i << 1)));
        dialects.extend(vi(self.ops.len() as u64));
        for (i, (dialect, _)) in self.ops.iter().enumerate() {
            let name = self.dialects.len() as u64 + i as u64;
            dialects.extend([vi(*dialect), vi(1), vi(name << 1 | 1)].concat());
        }

        let mut offsets = [vi(self.attrs.len() as u64), vi(self.types.len() as u64)].concat();
        let mut data = Vec::new();
        for (dialect, custom, body) in self.attrs.iter().chain(&self.types) {
            offsets.extend([vi(*dialect), vi(1), vi((body.len() as u64) << 1 | u64::from(*custom))].concat());
            data.extend(body);
        }
        let properties: Vec<Vec<u8>> =
            self.properties.iter().map(|p| [vi(p.len() as u64), p.clone()].concat()).collect();
        [
            b"ML\xEFR".to_vec(),
            vi(self.version),
            self.producer.as_bytes().to_vec(),
            vec![0],
            self.part(1, dialects),
            self.part(3, offsets),
            self.part(2, data),
            self.part(4, self.ir.clone()),
            self.part(0, string_section),
            self.part(8, list(&properties)),
            self.tail.clone(),
        ]
        .concat()
    }
}
