//! Attributes of dialects and aliases: everything behind `#`.

use super::Parser;
use crate::error::{Code, Result};
use crate::raw::{Attr, Attrs};
use std::borrow::Cow;

/// Most attributes that all uses of aliases together may stand for.
const MAX_EXPANDED: usize = 1 << 22;

impl<'a> Parser<'a> {
    /// `#alias`, `#dialect<kind WORD>`, `#dialect.name<…>`.
    pub(super) fn hash_attr(&mut self) -> Result<Attr<'a>> {
        let start = self.pos;
        self.pos += 1;
        let name = self.suffix_name()?;
        let body = self.peek() == Some(b'<');
        match name {
            "stablehlo" | "chlo" | "mhlo" | "sdy" if body => self.enum_attr(start),
            "stablehlo.conv" if body => self.conv_attr(),
            "sdy.sharding" if body => Ok(Attr::Sharding(Box::new(self.sharding_body()?))),
            "sdy.sharding_per_value" if body => {
                self.expect("<")?;
                let v = self.sharding_list()?;
                self.expect(">")?;
                Ok(Attr::Shardings(v))
            }
            "sdy.mesh" if body => Ok(Attr::Mesh(Box::new(self.mesh_body()?))),
            _ if body && is_struct(name) => {
                let mut fields = Attrs::new();
                self.struct_body(&mut fields)?;
                Ok(Attr::Struct(name.rsplit('.').next().unwrap_or(name), fields))
            }
            _ if name.contains('.') || body => {
                if body {
                    self.balanced()?;
                }
                Ok(Attr::Other(Cow::Borrowed(&self.text[start..self.pos])))
            }
            _ => match self.attr_aliases.get(name) {
                Some((a, size)) => {
                    // Aliases of aliases of lists can stand for exponentially many elements.
                    self.expanded += size;
                    if self.expanded > MAX_EXPANDED {
                        let at = self.error_at(start, Code::Limit, "the aliases stand for too many elements");
                        return Err(at);
                    }
                    Ok(a.clone())
                }
                // Locations may be attributes too, and are defined late.
                None if self.loc_aliases.contains_key(name) || name.starts_with("loc") => Ok(Attr::Unit),
                None => Err(self.error_at(
                    start,
                    Code::Name,
                    format!("the attribute alias #{name} is not defined"),
                )),
            },
        }
    }

    /// `<comparison_direction EQ>`; anything else is kept as text.
    fn enum_attr(&mut self, start: usize) -> Result<Attr<'a>> {
        let open = self.pos;
        self.expect("<")?;
        let kind = self.word();
        let word = self.word();
        if !kind.is_empty() && !word.is_empty() && self.eat(">") {
            return Ok(Attr::Word(Cow::Borrowed(word)));
        }
        self.pos = open;
        self.balanced()?;
        Ok(Attr::Other(Cow::Borrowed(&self.text[start..self.pos])))
    }

    /// `<name = value, …>` with lists of integers, integers, words, types.
    pub(super) fn struct_body(&mut self, fields: &mut Attrs<'a>) -> Result<()> {
        self.list("<", ">", |p| {
            let name = p.expect_word("a field's name")?;
            p.expect("=")?;
            let value = if p.at_int_list() { Attr::Ints(p.int_list()?) } else { p.attr()? };
            fields.push((Cow::Borrowed(name), value));
            Ok(())
        })
    }

    /// `<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>` as the struct `conv`.
    fn conv_attr(&mut self) -> Result<Attr<'a>> {
        self.expect("<")?;
        let a = self.conv_dims()?;
        self.expect(">")?;
        Ok(a)
    }

    /// `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`.
    pub(super) fn conv_dims(&mut self) -> Result<Attr<'a>> {
        let mut fields = Attrs::new();
        for (i, (names, letters)) in [
            (["input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"], ["b", "f"]),
            (
                [
                    "kernel_input_feature_dimension",
                    "kernel_output_feature_dimension",
                    "kernel_spatial_dimensions",
                ],
                ["i", "o"],
            ),
            (["output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"], ["b", "f"]),
        ]
        .into_iter()
        .enumerate()
        {
            match i {
                1 => self.expect("x")?,
                2 => self.expect("->")?,
                _ => {}
            }
            let at = self.pos;
            let mut labels: Vec<&'a str> = Vec::new();
            self.list("[", "]", |p| {
                if p.eat("?") {
                    labels.push("?");
                } else {
                    labels.push(p.expect_word("a dimension's label")?);
                }
                Ok(())
            })?;
            let place = |want: &str| labels.iter().position(|l| *l == want).map(|n| n as i64);
            let missing =
                |p: &Self| p.error_at(at, Code::Attribute, "dimension labels do not name every dimension");
            let (first, second) = (place(letters[0]), place(letters[1]));
            let spatial: Option<Vec<i64>> =
                (0..labels.len().saturating_sub(2)).map(|n| place(&n.to_string())).collect();
            let (Some(first), Some(second), Some(spatial)) = (first, second, spatial) else {
                return Err(missing(self));
            };
            fields.push((names[0].into(), self.int_attr(first, 64)));
            fields.push((names[1].into(), self.int_attr(second, 64)));
            fields.push((names[2].into(), Attr::Ints(spatial)));
        }
        Ok(Attr::Struct("conv", fields))
    }
}

/// Dialect attributes that are read field by field.
fn is_struct(name: &str) -> bool {
    matches!(
        name,
        "stablehlo.dot"
            | "stablehlo.gather"
            | "stablehlo.scatter"
            | "stablehlo.channel_handle"
            | "stablehlo.dot_algorithm"
            | "chlo.ragged_dot"
    )
}

/// Number of attributes in an attribute, itself included.
pub(super) fn size(a: &Attr<'_>) -> usize {
    let fields = |f: &Attrs<'_>| f.iter().map(|(_, v)| size(v)).sum::<usize>();
    1 + match a {
        Attr::Array(v) => v.iter().map(size).sum(),
        Attr::Dict(f) | Attr::Struct(_, f) => fields(f),
        Attr::Ints(v) => v.len(),
        Attr::Floats(v) => v.len(),
        Attr::Shardings(v) => v.len(),
        _ => 0,
    }
}
