//! How global tensors lie over the ranks.
//!
//! A dimension that a [`Sharding`] gives axes to is cut into equal contiguous blocks, one for each coordinate of
//! those axes, the first axis slowest. A dimension of several parts is cut part by part: a rank holds its block of each.
//! Where the blocks have room for more than the dimension, the last ones are filled up with zeros.
//! Ranks that differ along other axes only hold the same block.

use msc_ir::module::{Mesh, Sharding};
use msc_ir::tensor::IndexSpace;
use msc_ir::types::strides;
use msc_ir::{Shape, TensorType};
use std::ops::Range;

/// The global type of a tensor of which every rank holds a block of type `local`.
pub fn global_type(local: &TensorType, sharding: &Sharding, mesh: &Mesh) -> TensorType {
    let blocks = |d: usize| -> usize { sharding.axes(d).iter().map(|&a| mesh.size(a)).product() };
    local.with_shape(local.shape.iter().enumerate().map(|(d, n)| sharding.size(d, n * blocks(d))))
}

/// Where a rank's block starts in the global tensor, per dimension; of a dimension of several parts, in each of them. A
/// block of padding only starts behind it.
pub fn block_start(local: &TensorType, sharding: &Sharding, mesh: &Mesh, rank: usize) -> Shape {
    let index = |d: usize| -> usize {
        sharding.axes(d).iter().fold(0, |i, &a| i * mesh.size(a) + mesh.coordinate(rank, a))
    };
    local.shape.iter().enumerate().map(|(d, n)| n / sharding.parts(d) * index(d)).collect()
}

/// How a tensor of the outside lies over the ranks: in a tensor of the entry, or in one place of its first dimension.
#[derive(Clone, Copy, Debug)]
pub struct Laid<'a> {
    /// The type of the entry's tensor on a rank.
    pub local: &'a TensorType,
    /// Its layout.
    pub sharding: &'a Sharding,
    /// The mesh.
    pub mesh: &'a Mesh,
    /// Its place, if that holds several.
    pub member: Option<usize>,
}

/// What a rank holds of a tensor of the outside.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it starts, as [`block_start`] says.
    pub start: Shape,
    /// Its shape.
    pub size: Shape,
    /// Which block of the tensor it is.
    pub block: Block,
    /// The part's bytes of those of the entry's tensor on the rank.
    pub bytes: Range<usize>,
}

impl Laid<'_> {
    /// The tensor's layout, type and place on a rank; of a stack, that of each member.
    fn own(&self) -> (TensorType, Sharding) {
        match self.member {
            None => (self.local.clone(), self.sharding.clone()),
            Some(_) => {
                (self.local.with_shape(self.local.shape.iter().skip(1).copied()), self.sharding.inner())
            }
        }
    }

    /// The tensor's type.
    pub fn global_type(&self) -> TensorType {
        let (ty, sharding) = self.own();
        global_type(&ty, &sharding, self.mesh)
    }

    /// For each dimension the number of parts it consists of.
    pub fn parts(&self) -> Vec<usize> {
        let (ty, sharding) = self.own();
        (0..ty.rank()).map(|d| sharding.parts(d)).collect()
    }

    /// What a rank holds of it: nothing where its stack lies along an axis and this place is another's.
    pub fn part(&self, rank: usize) -> Option<Part> {
        let (ty, sharding) = self.own();
        let all = ty.bytes();
        let bytes = match self.member {
            None => 0..all,
            Some(m) => {
                let first = block_start(self.local, self.sharding, self.mesh, rank)[0];
                let at = m.checked_sub(first).filter(|&at| at < self.local.shape[0])?;
                at * all..(at + 1) * all
            }
        };
        Some(Part {
            start: block_start(&ty, &sharding, self.mesh, rank),
            size: ty.shape.clone(),
            block: Block::of_rank(&ty, &sharding, self.mesh, rank),
            bytes,
        })
    }
}

/// A block of a row-major tensor: what [`rows`](Block::rows) needs to find its bytes. A dimension of several parts is
/// two: the parts, and what each holds.
#[derive(Clone, Debug)]
pub struct Block {
    global: Shape,
    start: Shape,
    /// The shape of what is held.
    held: Shape,
    /// The shape of the block, padding included.
    size: Shape,
    width: usize,
}

impl Block {
    /// The block that `rank` holds.
    pub fn of_rank(local: &TensorType, sharding: &Sharding, mesh: &Mesh, rank: usize) -> Block {
        let whole = global_type(local, sharding, mesh).shape;
        let at = block_start(local, sharding, mesh, rank);
        let (mut global, mut start, mut size) = (Shape::new(), Shape::new(), Shape::new());
        let mut held = Shape::new();
        for (d, &n) in local.shape.iter().enumerate() {
            let parts = sharding.parts(d);
            if parts > 1 {
                global.push(parts);
                start.push(0);
                held.push(parts);
                size.push(parts);
            }
            let all = whole[d] / parts;
            global.push(all);
            start.push(at[d].min(all));
            held.push((n / parts).min(all.saturating_sub(at[d])));
            size.push(n / parts);
        }
        Block { global, start, held, size, width: local.dtype.size_bytes() }
    }

    /// The block of a tensor of type `global` that begins at `start` and has the shape `size`.
    pub fn new(global: &TensorType, start: &[usize], size: &[usize]) -> Block {
        Block {
            global: global.shape.clone(),
            start: start.iter().copied().collect(),
            held: size.iter().copied().collect(),
            size: size.iter().copied().collect(),
            width: global.dtype.size_bytes(),
        }
    }

    /// The block's contiguous pieces: byte in the global tensor, byte in the block, length.
    fn rows(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let inner = self.held.len().saturating_sub(1);
        let row = self.held.last().copied().unwrap_or(1) * self.width;
        let (st, own) = (strides(&self.global), strides(&self.size));
        let last = self.start.last().copied().unwrap_or(0);
        let outer: Vec<usize> = if self.held.contains(&0) { vec![0] } else { self.held[..inner].to_vec() };
        IndexSpace::new(&outer).map(move |ix| {
            let at: usize = ix.iter().zip(&self.start).zip(&st).map(|((i, s), t)| (i + s) * t).sum();
            let n: usize = ix.iter().zip(&own).map(|(i, t)| i * t).sum();
            ((at + last) * self.width, n * self.width, row)
        })
    }

    /// Copies the block out of the global tensor's bytes; padding is zero.
    pub fn cut(&self, global: &[u8], local: &mut [u8]) {
        if self.held != self.size {
            local.fill(0);
        }
        for (g, l, n) in self.rows() {
            local[l..l + n].copy_from_slice(&global[g..g + n]);
        }
    }

    /// Copies the block into the global tensor's bytes.
    pub fn paste(&self, local: &[u8], global: &mut [u8]) {
        for (g, l, n) in self.rows() {
            global[g..g + n].copy_from_slice(&local[l..l + n]);
        }
    }

    /// The first element of the block, row-major, that differs from the global tensor's.
    pub fn first_difference(&self, local: &[u8], global: &[u8]) -> Option<usize> {
        self.rows().find_map(|(g, l, n)| {
            let (a, b) = (&local[l..l + n], &global[g..g + n]);
            if a == b {
                return None;
            }
            let at = a.iter().zip(b).position(|(x, y)| x != y)?;
            Some((l + at) / self.width)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_ir::module::{AxisId, MeshAxis};
    use msc_ir::{DType, Storage, Tensor};

    #[test]
    fn blocks_cut_and_paste() {
        let axis = |name: &str, size| MeshAxis { name: name.into(), size };
        let mesh = Mesh { axes: vec![axis("dp", 2), axis("tp", 3)] };
        let local = TensorType::new(DType::F32, [2, 5, 2]);
        // The last dimension over both axes, tp slowest; the first over none.
        let sharding =
            Sharding { dims: vec![vec![], vec![], vec![AxisId(1), AxisId(0)]], ..Sharding::default() };
        let ty = global_type(&local, &sharding, &mesh);
        assert_eq!(ty.shape[..], [2, 5, 12]);
        let global = Tensor::new([2, 5, 12], Storage::F32((0..120).map(|i| i as f32).collect()));
        let mut back = vec![0u8; ty.bytes()];
        for rank in 0..6 {
            let start = block_start(&local, &sharding, &mesh, rank);
            assert_eq!(start[..], [0, 0, (rank % 3 * 2 + rank / 3) * 2]);
            let block = Block::of_rank(&local, &sharding, &mesh, rank);
            let mut bytes = vec![0u8; local.bytes()];
            block.cut(global.data.bytes(), &mut bytes);
            assert_eq!(bytes, global.block(&start, &local.shape).data.bytes());
            block.paste(&bytes, &mut back);
            assert_eq!(block.first_difference(&bytes, &back), None);
            bytes[13 * 4] ^= 1;
            assert_eq!(block.first_difference(&bytes, &back), Some(13));
        }
        assert_eq!(back, global.data.bytes());
    }

    #[test]
    fn every_part_of_a_dimension_is_cut() {
        let mesh = Mesh { axes: vec![MeshAxis { name: "tp".into(), size: 2 }] };
        // Queries, keys and values of four columns each, of which a rank has two.
        let local = TensorType::new(DType::I32, [1, 6]);
        let sharding = Sharding { dims: vec![vec![], vec![AxisId(0)]], parts: vec![1, 3], sizes: vec![] };
        let global = Tensor::new([1, 12], Storage::I32((0..12).collect()));
        let mut back = vec![0u8; 48];
        for (rank, want) in [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]].into_iter().enumerate() {
            let block = Block::of_rank(&local, &sharding, &mesh, rank);
            let mut bytes = vec![0u8; 24];
            block.cut(global.data.bytes(), &mut bytes);
            assert_eq!(bytes, Storage::I32(want.to_vec()).bytes());
            block.paste(&bytes, &mut back);
        }
        assert_eq!(back, global.data.bytes());
    }

    #[test]
    fn blocks_are_filled_up() {
        let mesh = Mesh { axes: vec![MeshAxis { name: "tp".into(), size: 4 }] };
        // Two parts of five elements each on four ranks: two, two, one, none.
        let local = TensorType::new(DType::I32, [4, 2]);
        let sharding = Sharding { dims: vec![vec![AxisId(0)]], parts: vec![2], sizes: vec![10] };
        assert_eq!(global_type(&local, &sharding, &mesh).shape[..], [10, 2]);
        let global = Tensor::new([10, 2], Storage::I32((1..21).collect()));
        let mut back = vec![0u8; 80];
        for (rank, want) in
            [[1, 2, 3, 4, 11, 12, 13, 14], [5, 6, 7, 8, 15, 16, 17, 18], [9, 10, 0, 0, 19, 20, 0, 0], [0; 8]]
                .into_iter()
                .enumerate()
        {
            let block = Block::of_rank(&local, &sharding, &mesh, rank);
            let mut bytes = vec![7u8; 32];
            block.cut(global.data.bytes(), &mut bytes);
            assert_eq!(bytes, Storage::I32(want.to_vec()).bytes());
            // What is behind the true size is nobody's.
            bytes.chunks_exact_mut(4).filter(|c| **c == [0; 4]).for_each(|c| c.fill(9));
            block.paste(&bytes, &mut back);
            assert_eq!(block.first_difference(&bytes, &back), None);
        }
        assert_eq!(back, global.data.bytes());
    }

    #[test]
    fn members_lie_whole_on_the_ranks_of_their_place() {
        let axis = |name: &str, size| MeshAxis { name: name.into(), size };
        let mesh = Mesh { axes: vec![axis("ep", 2), axis("tp", 2)] };
        // Four tensors of two rows and four columns; a rank has two of them, and half of their columns.
        let local = TensorType::new(DType::I32, [2, 2, 2]);
        let sharding =
            Sharding { dims: vec![vec![AxisId(0)], vec![], vec![AxisId(1)]], ..Sharding::default() };
        let laid = |m| Laid { local: &local, sharding: &sharding, mesh: &mesh, member: Some(m) };
        assert_eq!(laid(3).global_type(), TensorType::new(DType::I32, [2, 4]));
        for m in 0..4 {
            for rank in 0..4 {
                let part = laid(m).part(rank);
                assert_eq!(part.is_some(), m / 2 == rank / 2, "member {m}, rank {rank}");
                let Some(part) = part else { continue };
                assert_eq!(part.start[..], [0, rank % 2 * 2]);
                assert_eq!(part.bytes, m % 2 * 16..m % 2 * 16 + 16);
                let (global, mut own) = (Storage::I32((0..8).collect()), [0; 16]);
                part.block.cut(global.bytes(), &mut own);
                let at = rank as i32 % 2 * 2;
                assert_eq!(own, Storage::I32(vec![at, at + 1, at + 4, at + 5]).bytes());
            }
        }
    }

    #[test]
    fn scalars_and_empty_tensors_have_blocks() {
        let mesh = Mesh::default();
        for shape in [vec![], vec![0], vec![0, 3], vec![3, 0]] {
            let ty = TensorType::new(DType::I32, shape);
            let block = Block::of_rank(&ty, &Sharding::default(), &mesh, 0);
            let mut bytes = vec![0u8; ty.bytes()];
            block.cut(&vec![7; ty.bytes()], &mut bytes);
            assert_eq!(bytes, vec![7; ty.bytes()]);
        }
    }
}
