//! Folders of shards of any layout, even one that no plan has, and folders that were damaged anyhow.

use msc_ir::module::{Mesh, MeshAxis};
use msc_ir::{DType, Storage, Tensor, TensorType};
use msc_runtime::data::DataError;
use msc_runtime::data::file::TensorFile;
use msc_runtime::data::shards::cover::Place;
use msc_runtime::data::shards::{Placed, Shards, write};
use msc_runtime::layout::Block;
use std::collections::BTreeMap;
use std::path::Path;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn place(start: &[usize], size: &[usize]) -> Place {
    Place { start: start.iter().copied().collect(), size: size.iter().copied().collect() }
}

/// Cuts a tensor at random into boxes, dealt to ranks of which each gets one at most.
fn cut(shape: &[usize], ranks: usize, r: &mut Numbers) -> Vec<(usize, Place)> {
    let mut boxes = vec![Place::whole(shape)];
    while boxes.len() < ranks && !shape.is_empty() {
        let i = r.below(boxes.len());
        let d = r.below(shape.len());
        let n = boxes[i].size[d];
        if n < 2 {
            if r.below(8) == 0 {
                break;
            }
            continue;
        }
        let at = 1 + r.below(n - 1);
        let mut other = boxes[i].clone();
        boxes[i].size[d] = at;
        other.start[d] += at;
        other.size[d] = n - at;
        boxes.push(other);
    }
    let first = r.below(ranks - boxes.len() + 1);
    boxes.into_iter().enumerate().map(|(i, b)| (first + i, b)).collect()
}

fn tensors(r: &mut Numbers) -> BTreeMap<String, Tensor> {
    let shapes: [&[usize]; 6] = [&[], &[7], &[4, 6], &[3, 5, 2], &[0, 3], &[1]];
    let mut out = BTreeMap::new();
    for (i, dtype) in DType::ALL.into_iter().enumerate() {
        let shape = shapes[i % shapes.len()];
        let ty = TensorType::new(dtype, shape.iter().copied());
        let bytes: Vec<u8> = (0..ty.bytes()).map(|_| r.below(2) as u8).collect();
        out.insert(
            format!("{}.{i}", dtype.name()),
            Tensor::new(ty.shape, Storage::from_bytes(dtype, &bytes)),
        );
    }
    out
}

fn store(folder: &Path, of: &BTreeMap<String, Tensor>, ranks: usize, r: &mut Numbers) -> Vec<Placed> {
    let list: Vec<Placed> = of
        .iter()
        .map(|(n, t)| Placed { name: n.clone(), ty: t.ty(), blocks: cut(&t.shape, ranks, r) })
        .collect();
    let mesh = Mesh { axes: vec![MeshAxis { name: "x".into(), size: ranks }] };
    let part = |name: &str, p: &Place| {
        let t = &of[name];
        let mut out = vec![0u8; p.size.iter().product::<usize>() * t.dtype().size_bytes()];
        Block::new(&t.ty(), &p.start, &p.size).cut(t.data.bytes(), &mut out);
        Ok(out)
    };
    write(folder, &list, &mesh, Some(7), part).expect("writes");
    list
}

#[test]
fn any_blocks_give_the_tensors_and_any_part_of_them() {
    let d = tempfile::tempdir().expect("a folder");
    let folder = d.path().join("state");
    let mut r = Numbers(1);
    for round in 0..20 {
        let of = tensors(&mut r);
        // Each round replaces the folder of the one before.
        store(&folder, &of, 1 + round % 7, &mut r);
        let file = TensorFile::open(&folder).expect("opens");
        assert_eq!((file.steps(), file.names()), (Some(7), of.keys().cloned().collect::<Vec<_>>()));
        let shards = Shards::open(&folder).expect("opens");
        for (name, t) in &of {
            assert_eq!(file.tensor(name).expect("is there"), *t, "{name}");
            let start: Vec<usize> = t.shape.iter().map(|&n| r.below(n.max(1))).collect();
            let size: Vec<usize> =
                t.shape.iter().zip(&start).map(|(&n, &s)| r.below(n - s.min(n) + 1)).collect();
            let p = place(&start, &size);
            if p.fits(&t.shape) {
                let want = t.block(&start, &size);
                assert_eq!(shards.part(name, &p).expect("a part"), want.data.bytes(), "{name} {p}");
            }
        }
        assert!(
            shards.part("f32.11", &place(&[9], &[1])).is_err()
                && shards.part("none", &place(&[], &[])).is_err()
        );
    }
    assert_eq!(std::fs::read_dir(d.path()).expect("a folder").count(), 1, "nothing is left beside it");
}

/// A damaged index is refused or still says the truth: tensors that are read have their bits, or the file's other ones
/// of the same number, but are whole.
#[test]
fn damage_is_refused_and_never_panics() {
    let d = tempfile::tempdir().expect("a folder");
    let folder = d.path().join("state");
    let mut r = Numbers(5);
    let of = tensors(&mut r);
    store(&folder, &of, 4, &mut r);
    let path = folder.join("index.json");
    let good = std::fs::read(&path).expect("an index");
    let mut refused = 0;
    for _ in 0..1500 {
        let mut text = good.clone();
        for _ in 0..1 + r.below(3) {
            let at = r.below(text.len());
            match r.below(3) {
                0 => text[at] = b"0123456789[]{},:\"-e."[r.below(20)],
                1 => text.insert(at, b'0' + r.below(10) as u8),
                _ => drop(text.remove(at)),
            }
        }
        std::fs::write(&path, &text).expect("writes");
        match Shards::open(&folder) {
            Err(DataError::Shards { message, .. }) => {
                assert!(!message.is_empty());
                refused += 1;
            }
            Err(DataError::Format { .. }) => refused += 1,
            Err(e) => panic!("{e}"),
            Ok(s) => {
                for name in s.names() {
                    let t = s.tensor(&name).expect("was checked");
                    assert_eq!(Some(&t.ty()), s.ty(&name));
                }
            }
        }
    }
    assert!(refused > 700, "{refused}");
}
