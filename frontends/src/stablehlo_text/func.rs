//! Modules and functions in pretty form.

use super::Parser;
use super::ops::Parsed;
use crate::error::Result;
use crate::raw::{Attr, Attrs, LocRef, Type, TypeId};

impl<'a> Parser<'a> {
    /// `module @name attributes {…} { … } loc(…)`; the cursor is behind `module`.
    pub(super) fn module(&mut self) -> Result<()> {
        if self.peek_token() == Some(b'@') {
            self.m.name = self.symbol()?;
        }
        if self.eat_word("attributes") {
            let mut attrs = Attrs::new();
            self.dict_into("{", "}", &mut attrs)?;
            self.m.attrs.extend(attrs);
        }
        self.expect("{")?;
        while !self.eat("}") {
            if self.peek_token().is_none() {
                return Err(self.expected("`}`"));
            }
            if let Some(op) = self.op()? {
                self.m.body.push(op);
            }
        }
        self.trailing_loc()?;
        Ok(())
    }

    /// Takes over the parts of a module in generic form.
    pub(super) fn module_parts(&mut self, op: Parsed<'a>) {
        for (name, value) in op.attrs {
            match (name.as_ref(), value) {
                ("sym_name", Attr::Str(s)) => self.m.name = s,
                (_, value) => self.m.attrs.push((name, value)),
            }
        }
        for block in op.regions.into_iter().flat_map(|r| r.blocks) {
            self.m.body.extend(block.ops);
        }
    }

    /// `func.func public @f(%a: T {…} loc(…), …) -> (T {…}, …) attributes {…} { … }`; the cursor is behind
    /// `func.func`.
    pub(super) fn func(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("func.func");
        for v in ["public", "private", "nested"] {
            if self.eat_word(v) {
                op.attrs.push(("sym_visibility".into(), Attr::Str(v.into())));
            }
        }
        let name = self.symbol()?;
        op.attrs.push(("sym_name".into(), Attr::Str(name)));
        let mut args: Vec<(&'a str, TypeId, LocRef)> = Vec::new();
        let mut arg_attrs = Vec::new();
        self.list("(", ")", |p| {
            let named = p.peek_token() == Some(b'%');
            let mut name = "";
            if named {
                p.pos += 1;
                name = p.suffix_name()?;
                p.expect(":")?;
            }
            let ty = p.ty()?;
            let mut attrs = Attrs::new();
            p.optional_dict(&mut attrs)?;
            let loc = p.trailing_loc()?;
            args.push((name, ty, loc));
            arg_attrs.push(Attr::Dict(attrs));
            Ok(())
        })?;
        let mut results = Vec::new();
        let mut res_attrs = Vec::new();
        if self.eat("->") {
            if self.peek_token() == Some(b'(') {
                self.list("(", ")", |p| {
                    results.push(p.ty()?);
                    let mut attrs = Attrs::new();
                    p.optional_dict(&mut attrs)?;
                    res_attrs.push(Attr::Dict(attrs));
                    Ok(())
                })?;
            } else {
                results.push(self.ty()?);
            }
        }
        let inputs = args.iter().map(|a| a.1).collect();
        let ty = self.m.types.intern(Type::Function { inputs, results });
        op.attrs.push(("function_type".into(), Attr::Type(ty)));
        op.attrs.push(("arg_attrs".into(), Attr::Array(arg_attrs)));
        op.attrs.push(("res_attrs".into(), Attr::Array(res_attrs)));
        if self.eat_word("attributes") {
            self.dict_into("{", "}", &mut op.attrs)?;
        }
        if self.peek_token() == Some(b'{') && !self.looking_at("{-#") {
            op.regions.push(self.isolated(|p| p.region(&args))?);
        }
        Ok(op)
    }
}
