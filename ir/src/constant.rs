//! Constants, interned by content.

use crate::dtype::DType;
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// Index of a constant in its module's [`ConstantStore`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConstId(pub u32);

/// A constant's elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConstData {
    /// Every element has these little-endian bytes.
    Splat(Arc<[u8]>),
    /// Row-major elements, little-endian. Never all equal (that is a [`ConstData::Splat`]), unless empty.
    Dense(Arc<[u8]>),
}

/// A constant: type and elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Constant {
    /// Type of the constant.
    pub ty: TensorType,
    /// Elements.
    pub data: ConstData,
}

impl Constant {
    /// The constant as a tensor.
    pub fn tensor(&self) -> Tensor {
        let data = match &self.data {
            ConstData::Splat(e) => {
                let one = Storage::from_bytes(self.ty.dtype, e);
                let n = self.ty.elements();
                one.pick(std::iter::repeat_n(0, n))
            }
            ConstData::Dense(b) => Storage::from_bytes(self.ty.dtype, b),
        };
        Tensor { shape: self.ty.shape.clone(), data }
    }

    /// The one value of a splat, as a double.
    pub fn splat_value(&self) -> Option<f64> {
        match &self.data {
            ConstData::Splat(e) => Some(Storage::from_bytes(self.ty.dtype, e).get_f64(0)),
            ConstData::Dense(_) => None,
        }
    }
}

/// The constants of a module. Equal constants have equal ids.
#[derive(Clone, Debug, Default)]
pub struct ConstantStore {
    constants: Vec<Constant>,
    /// Constants of one value, by type and element.
    splats: FxHashMap<(TensorType, SmallVec<[u8; 16]>), ConstId>,
    /// The others, by type and a hash of their bytes.
    dense: FxHashMap<(TensorType, [u8; 32]), ConstId>,
}

impl ConstantStore {
    /// Interns row-major little-endian bytes. `bytes` must be as long as the type says.
    pub fn intern_bytes(&mut self, ty: TensorType, bytes: &[u8]) -> ConstId {
        self.intern_shared(ty, bytes.into())
    }

    /// [`ConstantStore::intern_bytes`] that keeps the buffer given instead of a copy.
    pub fn intern_shared(&mut self, ty: TensorType, bytes: Arc<[u8]>) -> ConstId {
        debug_assert_eq!(bytes.len(), ty.bytes());
        let w = ty.dtype.size_bytes();
        let splat = bytes.len() >= w && bytes.chunks_exact(w).all(|e| e == &bytes[..w]);
        let data = if splat { ConstData::Splat(bytes[..w].into()) } else { ConstData::Dense(bytes) };
        self.intern(Constant { ty, data })
    }

    /// Interns a tensor.
    pub fn intern_tensor(&mut self, t: &Tensor) -> ConstId {
        self.intern_bytes(t.ty(), t.data.bytes())
    }

    /// Interns a tensor of one value.
    pub fn intern_splat(&mut self, ty: TensorType, value: f64) -> ConstId {
        let one = Storage::from_f64s(ty.dtype, &[value]);
        if ty.elements() == 0 {
            return self.intern_bytes(ty, &[]);
        }
        self.intern(Constant { ty, data: ConstData::Splat(one.bytes().into()) })
    }

    /// Interns a tensor of one value, given by its little-endian bytes.
    pub fn intern_splat_bytes(&mut self, ty: TensorType, element: &[u8]) -> ConstId {
        debug_assert_eq!(element.len(), ty.dtype.size_bytes());
        self.intern(Constant { ty, data: ConstData::Splat(element.into()) })
    }

    fn intern(&mut self, c: Constant) -> ConstId {
        let next = ConstId(self.constants.len() as u32);
        let ty = c.ty.clone();
        let id = match &c.data {
            ConstData::Splat(b) => *self.splats.entry((ty, SmallVec::from_slice(b))).or_insert(next),
            ConstData::Dense(b) => *self.dense.entry((ty, *blake3::hash(b).as_bytes())).or_insert(next),
        };
        if id == next {
            self.constants.push(c);
        }
        id
    }

    /// The constant behind an id.
    ///
    /// # Panics
    /// If the id is of another store.
    pub fn get(&self, id: ConstId) -> &Constant {
        &self.constants[id.0 as usize]
    }

    /// The constant behind an id, if there is one.
    pub fn try_get(&self, id: ConstId) -> Option<&Constant> {
        self.constants.get(id.0 as usize)
    }

    /// Number of distinct constants.
    pub fn len(&self) -> usize {
        self.constants.len()
    }

    /// Whether there is no constant.
    pub fn is_empty(&self) -> bool {
        self.constants.is_empty()
    }

    /// The value of a scalar or splat constant of a float or integer type.
    pub fn splat_value(&self, id: ConstId) -> Option<f64> {
        self.get(id).splat_value()
    }

    /// Bytes held, splats counted once.
    pub fn bytes(&self) -> usize {
        self.constants
            .iter()
            .map(|c| match &c.data {
                ConstData::Splat(b) | ConstData::Dense(b) => b.len(),
            })
            .sum()
    }

    /// Element type of a constant.
    pub fn dtype(&self, id: ConstId) -> DType {
        self.get(id).ty.dtype
    }
}
