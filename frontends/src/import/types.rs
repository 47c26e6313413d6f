//! Raw types → tensor types.

use super::Importer;
use crate::error::{Code, FrontendError, Result};
use crate::raw::{Elem, Type, TypeId, TypeTable};
use msc_ir::{DType, TensorType};

/// The element type, if msc holds it.
pub(crate) fn dtype(elem: &Elem) -> Option<DType> {
    Some(match elem {
        Elem::Int(1) => DType::I1,
        Elem::Int(8) => DType::I8,
        Elem::Int(16) => DType::I16,
        Elem::Int(32) => DType::I32,
        Elem::Int(64) => DType::I64,
        Elem::Uint(8) => DType::U8,
        Elem::Uint(16) => DType::U16,
        Elem::Uint(32) => DType::U32,
        Elem::Uint(64) => DType::U64,
        Elem::F16 => DType::F16,
        Elem::BF16 => DType::BF16,
        Elem::F32 => DType::F32,
        Elem::F64 => DType::F64,
        Elem::Int(_) | Elem::Uint(_) | Elem::Index | Elem::Complex(_) | Elem::Other(_) => return None,
    })
}

/// A type as MLIR writes it.
pub(crate) fn show(types: &TypeTable, id: TypeId) -> String {
    let list = |v: &[TypeId]| v.iter().map(|&t| show(types, t)).collect::<Vec<_>>().join(", ");
    match types.get(id) {
        Type::Tensor { dims, elem } => {
            let mut s = "tensor<".to_string();
            for d in dims {
                match d {
                    Some(n) => s.push_str(&format!("{n}x")),
                    None => s.push_str("?x"),
                }
            }
            s + &show_elem(elem) + ">"
        }
        Type::Scalar(e) => show_elem(e),
        Type::Function { inputs, results } => format!("({}) -> ({})", list(inputs), list(results)),
        Type::Tuple(parts) => format!("tuple<{}>", list(parts)),
        Type::Token => "!stablehlo.token".to_string(),
        Type::None => "none".to_string(),
        Type::Other(s) => s.clone(),
    }
}

fn show_elem(e: &Elem) -> String {
    match e {
        Elem::Int(n) => format!("i{n}"),
        Elem::Uint(n) => format!("ui{n}"),
        Elem::F16 => "f16".to_string(),
        Elem::BF16 => "bf16".to_string(),
        Elem::F32 => "f32".to_string(),
        Elem::F64 => "f64".to_string(),
        Elem::Index => "index".to_string(),
        Elem::Complex(e) => format!("complex<{}>", show_elem(e)),
        Elem::Other(s) => s.clone(),
    }
}

impl Importer<'_, '_> {
    /// The tensor type for a raw type. That of complex numbers has one more dimension, the last, for their two parts, except
    /// where parts are what is read.
    pub(super) fn tensor_type(&mut self, id: TypeId) -> Result<TensorType> {
        if let Some(t) = &self.types[id.0 as usize] {
            let mut t = t.clone();
            if self.part && matches!(self.raw.types.get(id), Type::Tensor { elem: Elem::Complex(_), .. }) {
                t.shape.pop();
            }
            return Ok(t);
        }
        let t = self.convert_type(id)?;
        self.types[id.0 as usize] = Some(t);
        self.tensor_type(id)
    }

    fn convert_type(&self, id: TypeId) -> Result<TensorType> {
        let unsupported = |why: &str| {
            let shown = show(&self.raw.types, id);
            FrontendError::new(Code::UnsupportedType, format!("values of type {shown} are not held: {why}"))
        };
        let Type::Tensor { dims, elem } = self.raw.types.get(id) else {
            let e = unsupported("it is not a tensor");
            let help = crate::foreign::type_help(&show(&self.raw.types, id));
            return Err(match help {
                Some(help) => e.help(help),
                None => e,
            });
        };
        let (elem, complex) = match elem {
            Elem::Complex(part) => (&**part, true),
            elem => (elem, false),
        };
        let Some(dtype) = dtype(elem) else {
            return Err(unsupported(
                "the element type is not one of i1, i8 … i64, ui8 … ui64, f16, bf16, f32, f64, complex",
            ));
        };
        let mut shape = msc_ir::Shape::new();
        for d in dims {
            let Some(n) = d else {
                return Err(unsupported("a dimension has no fixed size")
                    .help("export the step at fixed shapes (no shape polymorphism)"));
            };
            shape.push(usize::try_from(*n).map_err(|_| unsupported("it does not fit in memory"))?);
        }
        if complex {
            shape.push(2);
        }
        let t = TensorType { dtype, shape };
        if t.checked_bytes().is_none() {
            return Err(unsupported("it does not fit in memory"));
        }
        Ok(t)
    }
}
