//! Builtin attributes.

use super::Parser;
use super::cursor::is_word;
use crate::error::{Code, Result};
use crate::raw::{Attr, Attrs, DenseData, Elem, Type, TypeId};
use std::borrow::Cow;

impl<'a> Parser<'a> {
    /// An attribute.
    pub(super) fn attr(&mut self) -> Result<Attr<'a>> {
        self.nested(Self::attr_inner)
    }

    fn attr_inner(&mut self) -> Result<Attr<'a>> {
        match self.peek_token() {
            Some(b'"') => {
                let s = self.string()?;
                if self.eat(":") {
                    self.ty()?;
                }
                Ok(Attr::Str(s))
            }
            Some(b'[') => {
                let mut v = Vec::new();
                self.list("[", "]", |p| {
                    v.push(p.attr()?);
                    Ok(())
                })?;
                Ok(Attr::Array(v))
            }
            Some(b'{') => Ok(Attr::Dict(self.dict()?)),
            Some(b'@') => Ok(Attr::Symbol(self.symbol()?)),
            Some(b'#') => self.hash_attr(),
            Some(b'-' | b'0'..=b'9') => self.number_attr(),
            Some(b'(' | b'!') => Ok(Attr::Type(self.ty()?)),
            _ => self.word_attr(),
        }
    }

    fn word_attr(&mut self) -> Result<Attr<'a>> {
        let start = self.pos;
        match self.word() {
            "true" => Ok(Attr::Bool(true)),
            "false" => Ok(Attr::Bool(false)),
            "unit" => Ok(Attr::Unit),
            "dense" => self.dense(),
            "dense_resource" => {
                self.expect("<")?;
                let key = if self.peek_token() == Some(b'"') {
                    self.string()?
                } else {
                    Cow::Borrowed(self.suffix_name()?)
                };
                self.expect(">")?;
                self.expect(":")?;
                Ok(Attr::Dense(self.ty()?, DenseData::Resource(key)))
            }
            "array" => self.dense_array(),
            "loc" => {
                self.pos = start;
                self.trailing_loc()?;
                Ok(Attr::Unit)
            }
            "affine_map" | "affine_set" | "opaque" | "sparse" | "strided" | "distinct" => {
                while matches!(self.peek_token(), Some(b'<' | b'[')) {
                    self.balanced()?;
                }
                let text = &self.text[start..self.pos];
                if self.eat(":") {
                    self.ty()?;
                }
                Ok(Attr::Other(Cow::Borrowed(text)))
            }
            "" => Err(self.expected("an attribute")),
            _ => {
                self.pos = start;
                Ok(Attr::Type(self.ty()?))
            }
        }
    }

    /// A number with or without its type.
    fn number_attr(&mut self) -> Result<Attr<'a>> {
        let start = self.pos;
        let text = self.number_text();
        let ty = if self.eat(":") { Some(self.ty()?) } else { None };
        let bad = |p: &Self| p.error_at(start, Code::Syntax, format!("`{text}` is not a number"));
        let float = match ty.map(|t| self.m.types.get(t)) {
            Some(Type::Scalar(e)) => {
                matches!(e, Elem::F16 | Elem::BF16 | Elem::F32 | Elem::F64 | Elem::Other(_))
            }
            _ => !text.contains("0x") && text.contains(['.', 'e', 'E']),
        };
        let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("-0x"));
        if !float {
            let wide: i128 = match hex {
                Some(h) => i128::from_str_radix(h, 16).map_err(|_| bad(self))?,
                None => text.parse().map_err(|_| bad(self))?,
            };
            let wide = if hex.is_some() && text.starts_with('-') { -wide } else { wide };
            let n = i64::try_from(wide)
                .or_else(|_| u64::try_from(wide).map(|u| u as i64))
                .map_err(|_| self.error_at(start, Code::Limit, format!("{text} does not fit 64 bits")))?;
            let ty = ty.unwrap_or_else(|| self.m.types.intern(Type::Scalar(Elem::Int(64))));
            return Ok(Attr::Int(n, ty));
        }
        let ty = ty.unwrap_or_else(|| self.m.types.intern(Type::Scalar(Elem::F64)));
        let value = match hex {
            Some(h) => {
                let bits = u64::from_str_radix(h, 16).map_err(|_| bad(self))?;
                match self.m.types.get(ty) {
                    Type::Scalar(Elem::F16) => half::f16::from_bits(bits as u16).to_f64(),
                    Type::Scalar(Elem::BF16) => half::bf16::from_bits(bits as u16).to_f64(),
                    Type::Scalar(Elem::F32) => f64::from(f32::from_bits(bits as u32)),
                    _ => f64::from_bits(bits),
                }
            }
            None => text.parse().map_err(|_| bad(self))?,
        };
        Ok(Attr::Float(value, ty))
    }

    /// The characters of a number: sign, digits, point, exponent, or `0x…`.
    pub(super) fn number_text(&mut self) -> &'a str {
        self.skip_space();
        let start = self.pos;
        if matches!(self.peek(), Some(b'-' | b'+')) {
            self.pos += 1;
        }
        while let Some(b) = self.peek() {
            let exponent_sign = matches!(b, b'+' | b'-')
                && matches!(self.src[self.pos - 1], b'e' | b'E')
                && !self.src[start..self.pos].starts_with(b"0x");
            if !b.is_ascii_alphanumeric() && b != b'.' && !exponent_sign {
                break;
            }
            self.pos += 1;
        }
        &self.text[start..self.pos]
    }

    /// `<…> : type` behind `dense`: the elements are skipped over, not read.
    fn dense(&mut self) -> Result<Attr<'a>> {
        let data = self.dense_data()?;
        self.expect(":")?;
        Ok(Attr::Dense(self.ty()?, data))
    }

    /// `<…>` behind `dense`.
    pub(super) fn dense_data(&mut self) -> Result<DenseData<'a>> {
        self.expect("<")?;
        self.skip_space();
        let start = self.pos;
        if self.looking_at("\"0x") {
            let digits = start + 3;
            let Some(n) = memchr::memchr(b'"', &self.src[digits..]) else {
                return Err(self
                    .error(Code::Syntax, "the constant that starts here does not end")
                    .help("the file may be truncated; export it again"));
            };
            self.pos = digits + n + 1;
            self.expect(">")?;
            return Ok(DenseData::Hex(&self.src[digits..digits + n]));
        }
        loop {
            match memchr::memchr2(b'>', b'"', &self.src[self.pos..]) {
                None => {
                    self.pos = start;
                    return Err(self
                        .error(Code::Syntax, "the constant that starts here does not end")
                        .help("the file may be truncated; export it again"));
                }
                Some(n) if self.src[self.pos + n] == b'>' => {
                    self.pos += n + 1;
                    return Ok(DenseData::Literal(&self.src[start..self.pos - 1]));
                }
                Some(n) => {
                    self.pos += n;
                    self.string()?;
                }
            }
        }
    }

    /// `<i64: 1, 2>` behind `array`.
    fn dense_array(&mut self) -> Result<Attr<'a>> {
        self.expect("<")?;
        let ty = self.ty()?;
        let float = matches!(
            self.m.types.get(ty),
            Type::Scalar(Elem::F16 | Elem::BF16 | Elem::F32 | Elem::F64 | Elem::Other(_))
        );
        let (mut ints, mut floats) = (Vec::new(), Vec::new());
        if self.eat(":") {
            loop {
                if float {
                    let at = self.pos;
                    let t = self.number_text();
                    let x = t.parse().map_err(|_| self.error_at(at, Code::Syntax, "expected a number"))?;
                    floats.push(x);
                } else if self.eat_word("true") {
                    ints.push(1);
                } else if self.eat_word("false") {
                    ints.push(0);
                } else {
                    ints.push(self.int()?);
                }
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.expect(">")?;
        Ok(if float { Attr::Floats(floats) } else { Attr::Ints(ints) })
    }

    /// `{name = value, flag, …}`.
    pub(super) fn dict(&mut self) -> Result<Attrs<'a>> {
        let mut out = Attrs::new();
        self.dict_into("{", "}", &mut out)?;
        Ok(out)
    }

    /// Entries of a dictionary between `open` and `close`, added to `out`.
    pub(super) fn dict_into(&mut self, open: &str, close: &str, out: &mut Attrs<'a>) -> Result<()> {
        self.list(open, close, |p| {
            let name = match p.peek_token() {
                Some(b'"') => p.string()?,
                Some(b) if is_word(b) => Cow::Borrowed(p.word()),
                _ => return Err(p.expected("an attribute's name")),
            };
            let value = if p.eat("=") { p.attr()? } else { Attr::Unit };
            out.push((name, value));
            Ok(())
        })
    }

    /// An optional `{…}` of attributes behind an op.
    pub(super) fn optional_dict(&mut self, out: &mut Attrs<'a>) -> Result<()> {
        if self.peek_token() == Some(b'{') && !self.looking_at("{-#") {
            self.dict_into("{", "}", out)?;
        }
        Ok(())
    }

    /// `#name = attribute` or `#loc1 = loc(…)` at the start or end of a file.
    pub(super) fn attr_alias_def(&mut self) -> Result<()> {
        self.expect("#")?;
        let name = self.suffix_name()?;
        self.expect("=")?;
        self.skip_space();
        if self.looking_at("loc(") {
            return self.loc_alias_def(name);
        }
        let value = self.attr()?;
        let size = super::dialect_attrs::size(&value);
        self.attr_aliases.insert(name, (value, size));
        Ok(())
    }

    /// An `i64` integer attribute.
    pub(super) fn int_attr(&mut self, n: i64, bits: u32) -> Attr<'a> {
        let ty: TypeId = self.m.types.intern(Type::Scalar(Elem::Int(bits)));
        Attr::Int(n, ty)
    }
}
