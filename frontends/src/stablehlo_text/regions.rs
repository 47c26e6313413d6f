//! Pretty forms of ops with regions, and of convolution.

use super::Parser;
use super::ops::Parsed;
use super::pretty::Signature;
use crate::error::{Code, Result};
use crate::raw::{ArgInfo, Attr, Block, LocRef, RawOp, Region, Type, TypeId};
use smallvec::SmallVec;

impl<'a> Parser<'a> {
    /// `stablehlo.reduce(%x init: %c), (%y init: %d) applies stablehlo.add across dimensions = [1] : …`, or with
    /// `reducer(%a: T, %b: T) (…) { … }` behind the types.
    pub(super) fn reduce_op(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("stablehlo.reduce");
        let mut inits = SmallVec::<[_; 2]>::new();
        loop {
            self.expect("(")?;
            op.operands.push(self.operand()?);
            if !self.eat_word("init") {
                return Err(self.expected("`init:`"));
            }
            self.expect(":")?;
            inits.push(self.operand()?);
            self.expect(")")?;
            if !self.eat(",") {
                break;
            }
        }
        op.operands.extend(inits);
        let mut inner = None;
        if self.eat_word("applies") {
            let at = self.pos;
            inner = Some((self.expect_word("an operation's name")?, at));
        }
        for word in ["across", "dimensions"] {
            if !self.eat_word(word) {
                return Err(self.expected("`across dimensions`"));
            }
        }
        self.expect("=")?;
        op.attrs.push(("dimensions".into(), Attr::Ints(self.int_list()?)));
        self.optional_dict(&mut op.attrs)?;
        self.finish_pretty(&mut op)?;
        match inner {
            Some((name, at)) => {
                let region = self.reducer_of(name, at, &op)?;
                op.regions.push(region);
            }
            None => {
                if !self.eat_word("reducer") {
                    return Err(self.expected("`reducer`"));
                }
                // Pairs (accumulator, element) per operand; the block has all accumulators first.
                let (mut accumulators, mut elements) = (Vec::new(), Vec::new());
                while self.eat("(") {
                    accumulators.push(self.argument()?);
                    self.expect(",")?;
                    elements.push(self.argument()?);
                    self.expect(")")?;
                }
                accumulators.extend(elements);
                op.regions.push(self.region(&accumulators)?);
            }
        }
        Ok(op)
    }

    /// The region `(a, b) { return name(a, b) }` at the reduced operand's element type.
    fn reducer_of(&mut self, name: &'a str, at: usize, op: &Parsed<'a>) -> Result<Region<'a>> {
        let elem = op.operands.first().and_then(|&v| match self.m.value_type(v) {
            Type::Tensor { elem, .. } => Some(elem.clone()),
            _ => None,
        });
        let Some(elem) = elem else {
            return Err(self.error_at(at, Code::Type, "the reduced operand is not a tensor"));
        };
        let ty = self.m.types.intern(Type::Tensor { dims: SmallVec::new(), elem });
        let args = self.m.new_values(&[ty, ty]);
        let results = self.m.new_values(&[ty]);
        let make = |name: &'a str, operands, results| RawOp {
            name: name.into(),
            operands,
            results,
            attrs: Vec::new(),
            regions: Vec::new(),
            loc: LocRef::UNKNOWN,
            at,
        };
        let ops = vec![
            make(name, args.iter().collect(), results),
            make("stablehlo.return", results.iter().collect(), Default::default()),
        ];
        Ok(Region { blocks: vec![Block { args, arg_info: vec![ArgInfo::default(); 2], ops }] })
    }

    /// `stablehlo.while(%a = %x, …) : T, … attributes {…} cond { … } do { … }`.
    pub(super) fn while_op(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("stablehlo.while");
        let mut names = Vec::new();
        self.list("(", ")", |p| {
            p.expect("%")?;
            names.push(p.suffix_name()?);
            p.expect("=")?;
            let v = p.operand()?;
            op.operands.push(v);
            Ok(())
        })?;
        if self.eat(":") {
            self.skip_space();
            let at = self.pos;
            let types = match self.op_types()? {
                Signature::List(types) => types,
                Signature::Arrow(_, results) => results,
            };
            self.check_operands(&op.operands, &types, at)?;
            op.results.extend(types);
        }
        if self.eat_word("attributes") {
            self.dict_into("{", "}", &mut op.attrs)?;
        }
        let args: Vec<(&'a str, TypeId, LocRef)> =
            names.iter().zip(&op.results).map(|(&n, &t)| (n, t, LocRef::UNKNOWN)).collect();
        for word in ["cond", "do"] {
            if !self.eat_word(word) {
                return Err(self.expected(&format!("`{word}`")));
            }
            op.regions.push(self.region(&args)?);
        }
        Ok(op)
    }

    /// `sdy.mesh @name = <["a"=2]>`.
    pub(super) fn mesh_op(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("sdy.mesh");
        let name = self.symbol()?;
        op.attrs.push(("sym_name".into(), Attr::Str(name)));
        self.expect("=")?;
        let mesh = self.mesh_body()?;
        op.attrs.push(("mesh".into(), Attr::Mesh(Box::new(mesh))));
        self.optional_dict(&mut op.attrs)?;
        Ok(op)
    }

    /// `sdy.manual_computation(%x, …) in_shardings=[…] out_shardings=[…] manual_axes={…} (%a: T, …) { … } : …`.
    pub(super) fn manual_computation_op(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("sdy.manual_computation");
        self.list("(", ")", |p| {
            let v = p.operand()?;
            op.operands.push(v);
            Ok(())
        })?;
        for key in ["in_shardings", "out_shardings"] {
            if !self.eat_word(key) {
                return Err(self.expected(&format!("`{key}`")));
            }
            self.expect("=")?;
            let v = self.sharding_list()?;
            op.attrs.push((key.into(), Attr::Shardings(v)));
        }
        if !self.eat_word("manual_axes") {
            return Err(self.expected("`manual_axes`"));
        }
        self.expect("=")?;
        let axes = self.axis_set()?.axes;
        let axes = axes.into_iter().map(|a| Attr::Str(a.name.into())).collect();
        op.attrs.push(("manual_axes".into(), Attr::Array(axes)));
        let mut args = Vec::new();
        if self.peek_token() == Some(b'(') {
            self.list("(", ")", |p| {
                args.push(p.argument()?);
                Ok(())
            })?;
        }
        op.regions.push(self.region(&args)?);
        self.optional_dict(&mut op.attrs)?;
        self.finish_pretty(&mut op)?;
        Ok(op)
    }

    /// `stablehlo.convolution(%x, %w) dim_numbers = […]x[…]->[…], window = {…} {…} : …`.
    pub(super) fn convolution_op(&mut self) -> Result<Parsed<'a>> {
        let mut op = Parsed::new("stablehlo.convolution");
        self.list("(", ")", |p| {
            let v = p.operand()?;
            op.operands.push(v);
            Ok(())
        })?;
        if !self.eat_word("dim_numbers") {
            return Err(self.expected("`dim_numbers`"));
        }
        self.expect("=")?;
        let dims = self.conv_dims()?;
        op.attrs.push(("dimension_numbers".into(), dims));
        self.expect(",")?;
        if !self.eat_word("window") {
            return Err(self.expected("`window`"));
        }
        self.expect("=")?;
        self.list("{", "}", |p| {
            let at = p.pos;
            let key = p.expect_word("a window attribute")?;
            p.expect("=")?;
            let (name, value) = match key {
                "stride" => ("window_strides", Attr::Ints(p.int_list()?)),
                "lhs_dilate" => ("lhs_dilation", Attr::Ints(p.int_list()?)),
                "rhs_dilate" => ("rhs_dilation", Attr::Ints(p.int_list()?)),
                "reverse" => ("window_reversal", Attr::Ints(p.bool_list()?)),
                "pad" => {
                    let mut rows = Vec::new();
                    p.list("[", "]", |p| {
                        rows.push(Attr::Ints(p.int_list()?));
                        Ok(())
                    })?;
                    ("padding", Attr::Array(rows))
                }
                _ => return Err(p.error_at(at, Code::Syntax, format!("unknown window attribute `{key}`"))),
            };
            op.attrs.push((name.into(), value));
            Ok(())
        })?;
        self.optional_dict(&mut op.attrs)?;
        self.finish_pretty(&mut op)?;
        Ok(op)
    }

    /// `[true, 0, …]`.
    fn bool_list(&mut self) -> Result<Vec<i64>> {
        let mut v = Vec::new();
        self.list("[", "]", |p| {
            v.push(if p.eat_word("true") {
                1
            } else if p.eat_word("false") {
                0
            } else {
                p.int()?
            });
            Ok(())
        })?;
        Ok(v)
    }
}
