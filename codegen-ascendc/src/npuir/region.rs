//! Loads and stores: regions of global tensors as strided memrefs, whole or in part.

use super::emit::Emit;
use super::text::{Spelling, dims, element, float, list, memref, strided, tensor};
use crate::tile::{Affine, Buffer, BufferId, DType, Num, Span, View};

/// A region of a tensor as a memref value, with its valid part.
struct Region {
    value: String,
    ty: String,
    strides: Vec<i64>,
    /// Size along each dimension, if the region may be smaller than the tile.
    valid: Option<Vec<String>>,
}

impl Emit<'_> {
    pub(super) fn load(&mut self, dst: BufferId, view: &View, fill: Num) -> String {
        let buffer = self.kernel.buffer(dst);
        let region = self.region(view, buffer);
        let (shape, dtype) = (dims(buffer), buffer.dtype);
        let local_ty = memref(&shape, dtype);
        let local = self.text.def(&format!("memref.alloc() : {local_ty}"));
        match &region.valid {
            None => {
                let copy = format!("memref.copy {}, {local} : {} to {local_ty}", region.value, region.ty);
                self.text.line(&copy);
            }
            Some(valid) => {
                let fill = self.fill_constant(fill, dtype);
                let ty = element(dtype);
                self.text.line(&format!("linalg.fill ins({fill} : {ty}) outs({local} : {local_ty})"));
                let dense = dense_strides(&shape);
                let (from, from_ty) =
                    self.part(&region.value, &region.ty, valid, &region.strides, true, dtype);
                let (to, to_ty) = self.part(&local, &local_ty, valid, &dense, false, dtype);
                self.text.line(&format!("memref.copy {from}, {to} : {from_ty} to {to_ty}"));
            }
        }
        let ty = match self.spelling {
            Spelling::Mlir19 => local_ty,
            Spelling::Mlir22 => format!("{local_ty} to {}", tensor(&shape, dtype)),
        };
        self.text.def(&format!("bufferization.to_tensor {local} restrict writable : {ty}"))
    }

    pub(super) fn fill_constant(&mut self, fill: Num, dtype: DType) -> String {
        let literal = match dtype {
            DType::I32 => format!("{}", fill.get() as i32),
            _ => float(fill, dtype),
        };
        self.text.constant(&format!("arith.constant {literal} : {}", element(dtype)))
    }

    pub(super) fn store(&mut self, src: BufferId, view: &View) {
        let (buffer, param) = (self.kernel.buffer(src), self.kernel.param(view.param));
        let region = self.region(view, buffer);
        let (mut value, mut ty) = (self.values.get(&src).cloned().unwrap_or_default(), self.ty(src));
        if buffer.dtype != param.dtype {
            let to = tensor(&dims(buffer), param.dtype);
            value = self.text.def(&format!("arith.truncf {value} : {ty} to {to}"));
            ty = to;
        }
        let (mut to, mut to_ty) = (region.value.clone(), region.ty.clone());
        if let Some(valid) = &region.valid {
            let n = valid.len();
            let part = tensor(&vec![-1; n], param.dtype);
            let (zeros, ones, sizes) = (list(&vec![0; n]), list(&vec![1; n]), valid.join(", "));
            value = self
                .text
                .def(&format!("tensor.extract_slice {value}{zeros} [{sizes}] {ones} : {ty} to {part}"));
            ty = part;
            (to, to_ty) = self.part(&region.value, &region.ty, valid, &region.strides, true, param.dtype);
        }
        self.text.line(&format!(
            "bufferization.materialize_in_destination {value} in writable {to} : ({ty}, {to_ty}) -> ()"
        ));
    }

    /// The first `valid` elements of a memref along each dimension.
    pub(super) fn part(
        &mut self,
        value: &str,
        ty: &str,
        valid: &[String],
        strides: &[i64],
        offset: bool,
        dtype: DType,
    ) -> (String, String) {
        let n = valid.len();
        let to = strided(&vec![-1; n], strides, offset, dtype);
        let (zeros, ones, sizes) = (list(&vec![0; n]), list(&vec![1; n]), valid.join(", "));
        let name = self.text.def(&format!("memref.subview {value}{zeros} [{sizes}] {ones} : {ty} to {to}"));
        (name, to)
    }

    /// The region as a memref of the tile's shape.
    fn region(&mut self, view: &View, tile: &Buffer) -> Region {
        let param = self.kernel.param(view.param);
        let tensor_strides = param.strides();
        let mut offset = Affine::zero();
        for (start, stride) in view.starts().iter().zip(&tensor_strides) {
            offset = offset.plus(&start.times(*stride));
        }
        let offset = self.text.affine(&offset, &self.vars);
        let shape = dims(tile);
        let dense = dense_strides(&shape);
        let parts = [(&view.rows, tile.rows), (&view.cols, tile.cols)];
        let mut strides = Vec::new();
        let mut partial = false;
        for (n, (part, extent)) in parts.into_iter().take(shape.len()).enumerate() {
            strides.push(part.as_ref().map_or(dense[n], |(dim, _)| tensor_strides[*dim]));
            partial |= part.as_ref().is_some_and(|(_, span)| !self.ranges.always_full(span, extent));
        }
        let valid = partial.then(|| {
            let count = |e: &mut Self, (part, extent): (&Option<(usize, Span)>, i64)| match part {
                Some((_, span)) => e.count(span, extent),
                None => e.text.index(extent),
            };
            parts.into_iter().take(shape.len()).map(|p| count(self, p)).collect()
        });
        let ty = strided(&shape, &strides, true, param.dtype);
        let value = self.text.def(&format!(
            "memref.reinterpret_cast %p{} to offset: [{offset}], sizes: {}, strides: {} : memref<?x{}> to {ty}",
            view.param.0,
            list(&shape),
            list(&strides),
            element(param.dtype)
        ));
        Region { value, ty, strides, valid }
    }

    /// Number of valid indices of a span.
    pub(super) fn count(&mut self, span: &Span, extent: i64) -> String {
        let start = self.text.affine(&span.start, &self.vars);
        let end = self.text.bound(&span.end, &self.vars);
        let length = self.text.def(&format!("arith.subi {end}, {start} : index"));
        let extent = self.text.index(extent);
        self.text.def(&format!("arith.minsi {length}, {extent} : index"))
    }
}

fn dense_strides(shape: &[i64]) -> Vec<i64> {
    if let [_, cols] = shape { vec![*cols, 1] } else { vec![1] }
}
