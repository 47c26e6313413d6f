//! Attributes that a file holds as MLIR text, because their dialect has no encoding of its own for them.

use super::decode::Decoder;
use crate::raw::{Attr, Attrs};
use std::borrow::Cow;

impl<'a> Decoder<'a, '_> {
    /// An attribute by its text: the keyword of an enum (`#chlo<precision DEFAULT>`), a dialect's attribute whose
    /// fields are integers and lists of them (`#chlo.ragged_dot<lhs_contracting_dimensions = [1], …>`), or anything
    /// else as it stands.
    pub(super) fn text_attr(&mut self, text: &'a [u8]) -> Attr<'a> {
        let Ok(text) = std::str::from_utf8(text) else {
            return Attr::Other(String::from_utf8_lossy(text));
        };
        let attr = keyword(text).or_else(|| self.fields(text));
        attr.unwrap_or(Attr::Other(Cow::Borrowed(text)))
    }

    fn fields(&mut self, text: &'a str) -> Option<Attr<'a>> {
        let (name, inside) = text.strip_prefix('#')?.strip_suffix('>')?.split_once('<')?;
        let (_, name) = name.split_once('.')?;
        let mut fields = Attrs::new();
        let mut rest = inside.trim();
        while !rest.is_empty() {
            let (field, behind) = rest.split_once('=')?;
            let behind = behind.trim_start();
            let value;
            (value, rest) = match behind.strip_prefix('[') {
                Some(list) => {
                    let (list, rest) = list.split_once(']')?;
                    let numbers = list.split(',').map(str::trim).filter(|n| !n.is_empty());
                    (Attr::Ints(numbers.map(|n| n.parse().ok()).collect::<Option<_>>()?), rest)
                }
                None => {
                    let end = behind.find(',').unwrap_or(behind.len());
                    (self.int(behind[..end].trim().parse().ok()?), &behind[end..])
                }
            };
            fields.push((Cow::Borrowed(field.trim()), value));
            rest = rest.trim_start();
            rest = match rest.strip_prefix(',') {
                Some(more) => more.trim_start(),
                None if rest.is_empty() => rest,
                None => return None,
            };
        }
        Some(Attr::Struct(name, fields))
    }
}

fn keyword(text: &str) -> Option<Attr<'_>> {
    let (_, inside) = text.strip_prefix('#')?.strip_suffix('>')?.split_once('<')?;
    let (_, word) = inside.split_once(' ')?;
    let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_word.then_some(Attr::Word(Cow::Borrowed(word)))
}

#[cfg(test)]
mod tests {
    use super::super::tables::Tables;
    use super::*;

    #[test]
    fn texts() {
        let tables = Tables {
            version: 6,
            strings: vec![],
            dialects: vec![],
            op_names: vec![],
            attrs: vec![],
            types: vec![],
            properties: vec![],
        };
        let mut d = Decoder::new(&tables, &[], 0);
        let mut read = |t: &'static str| d.text_attr(t.as_bytes());
        assert_eq!(read("#chlo<precision HIGHEST>"), Attr::Word("HIGHEST".into()));
        let ragged = read("#chlo.ragged_dot<lhs_ragged_dimensions = [0, -12], empty = [], n = 3>");
        let Attr::Struct("ragged_dot", f) = ragged else { panic!("{ragged:?}") };
        let names: Vec<_> = f.iter().map(|(k, _)| k.as_ref()).collect();
        assert_eq!(names, ["lhs_ragged_dimensions", "empty", "n"]);
        assert_eq!((&f[0].1, &f[1].1), (&Attr::Ints(vec![0, -12]), &Attr::Ints(vec![])));
        assert!(matches!(f[2].1, Attr::Int(3, _)));
        for other in
            ["affine_map<(d0) -> (d0)>", "#a.b<c = [1>", "#a.b<c = x>", "#a.b<c = 1 d = 2>", "#a<b >", "#"]
        {
            assert_eq!(read(other), Attr::Other(other.into()));
        }
    }
}
