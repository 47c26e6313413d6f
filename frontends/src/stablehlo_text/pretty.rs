//! Ops in pretty form (StableHLO's `assemblyFormat`s).
//!
//! Nearly every op is a list of operands, words and `key = value` pairs, then attributes, then types. One reader
//! takes that apart, and one table gives the keys their attribute names. Ops with regions, and the few with a
//! syntax of their own, are in [`super::regions`] and below.

use super::Parser;
use super::ops::Parsed;
use crate::error::{Code, Result};
use crate::raw::{Attr, Attrs, TypeId};
use std::borrow::Cow;

/// Types behind a pretty op's `:`.
pub(super) enum Signature {
    /// `(T, …) -> T`, or `T, … -> T`.
    Arrow(Vec<TypeId>, Vec<TypeId>),
    /// `T, …`.
    List(Vec<TypeId>),
}

impl<'a> Parser<'a> {
    /// An op in pretty form; the cursor is behind its name.
    pub(super) fn pretty_op(&mut self, word: &'a str, at: usize) -> Result<Parsed<'a>> {
        let name = match word {
            "call" => "func.call",
            "return" => "func.return",
            "func" => "func.func",
            w => w,
        };
        match name {
            "func.func" => return self.func(),
            "stablehlo.constant" | "chlo.constant" => return self.constant_op(),
            "stablehlo.reduce" => return self.reduce_op(),
            "stablehlo.while" => return self.while_op(),
            "stablehlo.convolution" => return self.convolution_op(),
            "sdy.mesh" => return self.mesh_op(),
            "sdy.manual_computation" => return self.manual_computation_op(),
            _ => {}
        }
        if !name.contains('.') {
            return Err(self.error_at(at, Code::Syntax, format!("`{word}` is not an operation")));
        }
        // The pretty forms of other dialects are their own: no use in reading on.
        if let Some(e) = crate::foreign::refuse(name) {
            return Err(e.at_text(&self.m.file, self.src, at));
        }
        let mut op = Parsed::new(name);
        self.items(&mut op)?;
        if self.eat_word("attributes") {
            self.dict_into("{", "}", &mut op.attrs)?;
        }
        self.optional_dict(&mut op.attrs)?;
        self.finish_pretty(&mut op)?;
        Ok(op)
    }

    /// The types behind the op, and what they say about operands and results.
    pub(super) fn finish_pretty(&mut self, op: &mut Parsed<'a>) -> Result<()> {
        if !self.eat(":") {
            return if op.operands.is_empty() { Ok(()) } else { Err(self.expected("`:` and types")) };
        }
        self.skip_space();
        let at = self.pos;
        match self.op_types()? {
            Signature::Arrow(inputs, results) => {
                self.check_operands(&op.operands, &inputs, at)?;
                op.results.extend(results);
            }
            Signature::List(types) => match op.name.as_ref() {
                "func.return" | "stablehlo.return" | "sdy.return" | "mhlo.return" => {
                    self.check_operands(&op.operands, &types, at)?;
                }
                "stablehlo.optimization_barrier" => {
                    self.check_operands(&op.operands, &types, at)?;
                    op.results.extend(types);
                }
                // One operand type stands for both branches.
                "stablehlo.select" => op.results.extend(types.last().copied()),
                _ => {
                    let [ty] = types[..] else {
                        return Err(self.error_at(at, Code::Syntax, "expected one type, or `(…) -> …`"));
                    };
                    op.results.push(ty);
                }
            },
        }
        Ok(())
    }

    /// A signature, or a list of types.
    pub(super) fn op_types(&mut self) -> Result<Signature> {
        if self.peek_token() == Some(b'(') {
            let (inputs, results) = self.signature()?;
            return Ok(Signature::Arrow(inputs, results));
        }
        let mut types = vec![self.ty()?];
        while self.eat(",") {
            types.push(self.ty()?);
        }
        if self.eat("->") {
            let results = self.result_types()?;
            return Ok(Signature::Arrow(types, results));
        }
        Ok(Signature::List(types))
    }

    /// Operands, words and pairs, separated by commas or parentheses.
    fn items(&mut self, op: &mut Parsed<'a>) -> Result<()> {
        let mut words = 0;
        loop {
            match self.peek_token() {
                Some(b'%') => {
                    let v = self.operand()?;
                    op.operands.push(v);
                    if self.peek_token() == Some(b'[') {
                        self.bracketed(op)?;
                    }
                }
                Some(b'@') => {
                    let s = self.symbol()?;
                    let (key, value) = match op.name.as_ref() {
                        "func.call" => ("callee", Attr::Symbol(s)),
                        "stablehlo.custom_call" => ("call_target_name", Attr::Str(s)),
                        _ => ("symbol", Attr::Symbol(s)),
                    };
                    op.attrs.push((key.into(), value));
                }
                Some(b'"') => {
                    let s = self.string()?;
                    op.attrs.push(("name".into(), Attr::Str(s)));
                }
                Some(b'<') if op.name.starts_with("sdy.") => {
                    let s = self.sharding_body()?;
                    op.attrs.push(("sharding".into(), Attr::Sharding(Box::new(s))));
                }
                Some(b'(' | b')' | b',') => self.pos += 1,
                Some(b) if b.is_ascii_alphabetic() => {
                    let at = self.pos;
                    let word = self.word();
                    // What follows the items: attributes, the op's location, or the next op where there are no types.
                    if matches!(word, "attributes" | "loc") {
                        self.pos = at;
                        return Ok(());
                    }
                    if self.eat("=") {
                        self.pair(op, word)?;
                    } else {
                        let key = match (op.name.as_ref(), words) {
                            ("stablehlo.compare", 0) => "comparison_direction",
                            ("stablehlo.compare", 1) => "compare_type",
                            _ => {
                                self.pos = at;
                                return Ok(());
                            }
                        };
                        op.attrs.push((key.into(), Attr::Word(Cow::Borrowed(word))));
                        words += 1;
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// The value of `key =` and what it means for the op.
    fn pair(&mut self, op: &mut Parsed<'a>, key: &'a str) -> Result<()> {
        let name = op.name.clone();
        let op_name = name.strip_prefix("stablehlo.").unwrap_or(&name);
        match (op_name, key) {
            ("dot_general", "batching_dims" | "contracting_dims") => {
                let left = self.int_list()?;
                self.expect("x")?;
                let right = self.int_list()?;
                let names = if key == "batching_dims" {
                    ["lhs_batching_dimensions", "rhs_batching_dimensions"]
                } else {
                    ["lhs_contracting_dimensions", "rhs_contracting_dimensions"]
                };
                let fields = [(names[0].into(), Attr::Ints(left)), (names[1].into(), Attr::Ints(right))];
                match op.attrs.iter_mut().find(|(k, _)| k == "dot_dimension_numbers") {
                    Some((_, Attr::Struct(_, f))) => f.extend(fields),
                    _ => {
                        let dot = Attr::Struct("dot", Attrs::from(fields));
                        op.attrs.push(("dot_dimension_numbers".into(), dot));
                    }
                }
                return Ok(());
            }
            ("reduce_precision", "format") => {
                let at = self.pos;
                let word = self.word();
                let bits = word.strip_prefix('e').and_then(|w| w.split_once('m'));
                let bits = bits.and_then(|(e, m)| Some((e.parse().ok()?, m.parse().ok()?)));
                let Some((e, m)) = bits else {
                    return Err(self.error_at(at, Code::Syntax, "expected a format like e8m23"));
                };
                let (e, m) = (self.int_attr(e, 32), self.int_attr(m, 32));
                op.attrs.push(("exponent_bits".into(), e));
                op.attrs.push(("mantissa_bits".into(), m));
                return Ok(());
            }
            _ => {}
        }
        let value = match self.peek_token() {
            Some(b'[') => self.bracket_value()?,
            Some(b'<') => Attr::Other(Cow::Borrowed(self.balanced()?)),
            Some(b) if b.is_ascii_alphabetic() => match self.word() {
                "true" => Attr::Bool(true),
                "false" => Attr::Bool(false),
                w => Attr::Word(Cow::Borrowed(w)),
            },
            Some(b'0'..=b'9' | b'-') => {
                // Without its type: what follows the number are the op's types.
                let n = self.int()?;
                self.int_attr(n, 64)
            }
            _ => self.attr()?,
        };
        op.attrs.push((canonical_key(op_name, key).into(), value));
        Ok(())
    }

    /// `[1, 2]` or `[DEFAULT, HIGH]`.
    fn bracket_value(&mut self) -> Result<Attr<'a>> {
        if self.at_int_list() {
            return Ok(Attr::Ints(self.int_list()?));
        }
        let mut words = Vec::new();
        self.list("[", "]", |p| {
            words.push(Attr::Word(Cow::Borrowed(p.expect_word("a word")?)));
            Ok(())
        })?;
        Ok(Attr::Array(words))
    }

    /// `%x [0:4:2, 1:3]` of a slice, `%t[0]` of a tuple's element.
    fn bracketed(&mut self, op: &mut Parsed<'a>) -> Result<()> {
        if op.name != "stablehlo.slice" {
            self.expect("[")?;
            let n = self.int()?;
            self.expect("]")?;
            let index = self.int_attr(n, 32);
            op.attrs.push(("index".into(), index));
            return Ok(());
        }
        let (mut start, mut limit, mut stride) = (Vec::new(), Vec::new(), Vec::new());
        self.list("[", "]", |p| {
            start.push(p.int()?);
            p.expect(":")?;
            limit.push(p.int()?);
            stride.push(if p.eat(":") { p.int()? } else { 1 });
            Ok(())
        })?;
        op.attrs.push(("start_indices".into(), Attr::Ints(start)));
        op.attrs.push(("limit_indices".into(), Attr::Ints(limit)));
        op.attrs.push(("strides".into(), Attr::Ints(stride)));
        Ok(())
    }

    /// `stablehlo.constant {attributes} dense<…> : T`.
    fn constant_op(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("stablehlo.constant");
        if self.eat("(") {
            // The generic tail after a pretty name: `() {value = …} : () -> T`.
            self.expect(")")?;
            if self.eat("<") {
                self.dict_into("{", "}", &mut op.attrs)?;
                self.expect(">")?;
            }
            self.optional_dict(&mut op.attrs)?;
            self.finish_pretty(&mut op)?;
            return Ok(op);
        }
        self.optional_dict(&mut op.attrs)?;
        let value = self.attr()?;
        let Attr::Dense(ty, _) = value else {
            return Err(self.error(Code::Constant, "a constant's value should be `dense<…> : type`"));
        };
        op.results.push(ty);
        op.attrs.push(("value".into(), value));
        Ok(op)
    }
}

/// The attribute's name in generic form.
fn canonical_key<'k>(op: &str, key: &'k str) -> &'k str {
    match (op, key) {
        ("iota" | "dynamic_iota", "dim") => "iota_dimension",
        ("broadcast_in_dim" | "dynamic_broadcast_in_dim", "dims") => "broadcast_dimensions",
        ("broadcast", "sizes") => "broadcast_sizes",
        ("transpose", "dims") => "permutation",
        ("reverse", "dims") => "dimensions",
        ("concatenate" | "get_dimension_size" | "set_dimension_size", "dim") => "dimension",
        ("dynamic_slice", "sizes") => "slice_sizes",
        ("pad", "low") => "edge_padding_low",
        ("pad", "high") => "edge_padding_high",
        ("pad", "interior") => "interior_padding",
        ("dot_general" | "dot", "precision") => "precision_config",
        ("rng_bit_generator", "algorithm") => "rng_algorithm",
        ("rng", "distribution") => "rng_distribution",
        ("fft", "type") => "fft_type",
        ("fft", "length") => "fft_length",
        _ => key,
    }
}
