//! Types.

use super::Parser;
use crate::error::{Code, Result};
use crate::raw::{Elem, Type, TypeId};
use smallvec::SmallVec;

impl<'a> Parser<'a> {
    /// A type.
    pub(super) fn ty(&mut self) -> Result<TypeId> {
        self.skip_space();
        let start = self.pos;
        // Nearly every type is a tensor, spelled as one that was read before.
        if self.looking_at("tensor<") {
            let Some(n) = memchr::memchr(b'>', &self.src[start..]) else {
                return Err(self.error(Code::Syntax, "the type that starts here does not end"));
            };
            let spelling = &self.text[start..=start + n];
            if let Some(&id) = self.spellings.get(spelling) {
                self.pos = start + spelling.len();
                return Ok(id);
            }
            let id = self.nested(Self::tensor)?;
            // An element type in brackets ends at a later `>`.
            self.spellings.insert(&self.text[start..self.pos], id);
            return Ok(id);
        }
        self.nested(Self::other_type)
    }

    fn other_type(&mut self) -> Result<TypeId> {
        match self.peek_token() {
            Some(b'(') => self.function_type(),
            Some(b'!') => {
                let start = self.pos;
                self.pos += 1;
                let name = self.suffix_name()?;
                if let Some(&id) = self.type_aliases.get(name) {
                    return Ok(id);
                }
                if !name.contains('.') && self.peek() != Some(b'<') {
                    return Err(self.error_at(
                        start,
                        Code::Name,
                        format!("the type alias !{name} is not defined"),
                    ));
                }
                if self.peek() == Some(b'<') {
                    self.balanced()?;
                }
                let ty = match &self.text[start..self.pos] {
                    "!stablehlo.token" | "!mhlo.token" => Type::Token,
                    other => Type::Other(other.to_string()),
                };
                Ok(self.m.types.intern(ty))
            }
            _ if self.looking_at("tuple<") => {
                self.pos += "tuple".len();
                let mut parts = Vec::new();
                self.list("<", ">", |p| {
                    parts.push(p.ty()?);
                    Ok(())
                })?;
                Ok(self.m.types.intern(Type::Tuple(parts)))
            }
            _ => {
                let start = self.pos;
                let ty = match self.word() {
                    "" => return Err(self.expected("a type")),
                    "none" => Type::None,
                    "vector" | "memref" | "tensor" => {
                        self.balanced()?;
                        Type::Other(self.text[start..self.pos].to_string())
                    }
                    _ => {
                        self.pos = start;
                        Type::Scalar(self.elem()?)
                    }
                };
                Ok(self.m.types.intern(ty))
            }
        }
    }

    /// `(T, …) -> T` or `(T, …) -> (T, …)`.
    fn function_type(&mut self) -> Result<TypeId> {
        let (inputs, results) = self.signature()?;
        Ok(self.m.types.intern(Type::Function { inputs, results }))
    }

    /// The inputs and results of a function type.
    pub(super) fn signature(&mut self) -> Result<(Vec<TypeId>, Vec<TypeId>)> {
        let mut inputs = Vec::new();
        self.list("(", ")", |p| {
            inputs.push(p.ty()?);
            Ok(())
        })?;
        self.expect("->")?;
        Ok((inputs, self.result_types()?))
    }

    /// One type, or several in parentheses.
    pub(super) fn result_types(&mut self) -> Result<Vec<TypeId>> {
        if self.peek_token() != Some(b'(') {
            return Ok(vec![self.ty()?]);
        }
        let mut results = Vec::new();
        self.list("(", ")", |p| {
            results.push(p.ty()?);
            Ok(())
        })?;
        Ok(results)
    }

    fn tensor(&mut self) -> Result<TypeId> {
        let start = self.pos;
        self.pos += "tensor<".len();
        let mut dims = SmallVec::new();
        if self.eat("*") {
            // An unranked tensor.
            self.pos = start + "tensor".len();
            self.balanced()?;
            return Ok(self.m.types.intern(Type::Other(self.text[start..self.pos].to_string())));
        }
        loop {
            self.skip_space();
            let at = self.pos;
            if self.peek() == Some(b'?') {
                self.pos += 1;
                dims.push(None);
            } else if self.peek().is_some_and(|b| b.is_ascii_digit()) {
                while self.peek().is_some_and(|b| b.is_ascii_digit()) {
                    self.pos += 1;
                }
                let n = self.text[at..self.pos]
                    .parse()
                    .map_err(|_| self.error_at(at, Code::Limit, "a dimension this large cannot be held"))?;
                dims.push(Some(n));
            } else {
                break;
            }
            if self.peek() != Some(b'x') {
                return Err(self.expected("`x` after a dimension size"));
            }
            self.pos += 1;
        }
        let elem = self.elem()?;
        if self.eat(",") {
            // An encoding (bounds of dynamic dimensions): static shapes have none that matters.
            let at = self.pos;
            self.nested(Self::attr)?;
            if dims.iter().all(Option::is_some) && self.text[at..self.pos].contains("sparse") {
                return Err(self.error_at(at, Code::UnsupportedType, "sparse tensors are not held"));
            }
        }
        self.expect(">")?;
        Ok(self.m.types.intern(Type::Tensor { dims, elem }))
    }

    /// An element type.
    fn elem(&mut self) -> Result<Elem> {
        let start = self.pos;
        if self.peek_token() == Some(b'!') {
            self.pos += 1;
            self.suffix_name()?;
            if self.peek() == Some(b'<') {
                self.balanced()?;
            }
            return Ok(Elem::Other(self.text[start..self.pos].to_string()));
        }
        let word = self.word();
        Ok(match word {
            "f32" => Elem::F32,
            "i1" => Elem::Int(1),
            "i32" => Elem::Int(32),
            "bf16" => Elem::BF16,
            "f16" => Elem::F16,
            "f64" => Elem::F64,
            "index" => Elem::Index,
            "complex" => {
                self.expect("<")?;
                let of = self.nested(Self::elem)?;
                self.expect(">")?;
                Elem::Complex(Box::new(of))
            }
            w => match (w.strip_prefix("ui"), w.strip_prefix('i')) {
                (Some(n), _) if n.parse::<u32>().is_ok() => Elem::Uint(n.parse().unwrap_or(0)),
                (_, Some(n)) if n.parse::<u32>().is_ok() => Elem::Int(n.parse().unwrap_or(0)),
                _ if w.starts_with('f') || w.starts_with("si") || w.starts_with("tf") => {
                    Elem::Other(w.to_string())
                }
                _ if w.is_empty() => return Err(self.expected("an element type")),
                _ => {
                    return Err(self.error_at(start, Code::Syntax, format!("`{w}` is not an element type")));
                }
            },
        })
    }

    /// `!name = type` at the start of a file.
    pub(super) fn type_alias_def(&mut self) -> Result<()> {
        self.expect("!")?;
        let name = self.suffix_name()?;
        self.expect("=")?;
        let ty = self.ty()?;
        self.type_aliases.insert(name, ty);
        Ok(())
    }
}
