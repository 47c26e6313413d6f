//! Mapping files: which input a file's tensor is.
//!
//! A mapping is a flat JSON object or a flat YAML mapping, from a file's names to the step's; `null` leaves a
//! tensor out. A `*` on both sides stands for the same text: `model.*: result[0]['model.*']`. The exact name comes
//! first, then the pattern with the most literal text.

use super::DataError;
use std::cmp::Reverse;
use std::path::Path;

/// A mapping of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameMap {
    rules: Vec<(String, Option<String>)>,
}

/// What a mapping says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// It is called so.
    To(String),
    /// It is left out.
    Omitted,
    /// Nothing.
    Unmapped,
}

impl NameMap {
    /// Reads a mapping file: JSON if it begins with `{`, else YAML's `from: to`, one a line.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Names`].
    pub fn read(path: &Path) -> Result<NameMap, DataError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| DataError::Io { path: path.to_path_buf(), error })?;
        NameMap::parse(&text).map_err(|message| DataError::Names { path: path.to_path_buf(), message })
    }

    /// Reads a mapping.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<NameMap, String> {
        let mut rules = if text.trim_start().starts_with('{') { json(text)? } else { lines(text)? };
        for (from, to) in &rules {
            let stars = |s: &str| s.matches('*').count();
            if stars(from) > 1 || to.as_ref().is_some_and(|t| stars(t) != stars(from)) {
                let to = to.as_deref().unwrap_or("null");
                return Err(format!("`{from}: {to}`: a pattern has one `*` on each side"));
            }
        }
        rules.sort_by_key(|(from, _)| (from.contains('*'), Reverse(from.len()), from.clone()));
        if let Some(w) = rules.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(format!("`{}` is mapped twice", w[0].0));
        }
        Ok(NameMap { rules })
    }

    /// What the mapping says of a file's name.
    pub fn map(&self, name: &str) -> Mapped {
        for (from, to) in &self.rules {
            let star = match from.split_once('*') {
                None if from == name => "",
                Some((a, b)) if name.len() >= a.len() + b.len() => {
                    match name.strip_prefix(a).and_then(|n| n.strip_suffix(b)) {
                        Some(star) => star,
                        None => continue,
                    }
                }
                _ => continue,
            };
            return match to {
                None => Mapped::Omitted,
                Some(to) => Mapped::To(to.replacen('*', star, 1)),
            };
        }
        Mapped::Unmapped
    }
}

fn json(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let value: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|e| e.to_string())?;
    let rule = |(from, to): (String, serde_json::Value)| match to {
        serde_json::Value::Null => Ok((from, None)),
        serde_json::Value::String(to) => Ok((from, Some(to))),
        other => Err(format!("`{from}` is mapped to {other}, which is no name")),
    };
    value.into_iter().map(rule).collect()
}

fn lines(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let mut rules = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line == "---" {
            continue;
        }
        let bad = |what: &str| format!("line {}: {what}: `{line}`", n + 1);
        let (from, rest) = name(line).ok_or_else(|| bad("no name"))?;
        let rest = rest.trim_start().strip_prefix(':').ok_or_else(|| bad("no `: ` behind the name"))?;
        let (to, rest) = name(rest.trim_start()).ok_or_else(|| bad("no name behind the colon"))?;
        let rest = rest.trim_start();
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(bad("text behind the names"));
        }
        let plain = matches!(to.as_str(), "null" | "~");
        rules.push((from, (!plain).then_some(to)));
    }
    Ok(rules)
}

/// A name at the beginning of a line, and what follows: quoted as JSON does, in single quotes (doubled inside), or
/// plain up to `: ` or ` #`.
fn name(line: &str) -> Option<(String, &str)> {
    if line.starts_with('"') {
        let mut stream = serde_json::Deserializer::from_str(line).into_iter::<String>();
        let text = stream.next()?.ok()?;
        return Some((text, &line[stream.byte_offset()..]));
    }
    if let Some(body) = line.strip_prefix('\'') {
        let mut out = String::new();
        let mut chars = body.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\'' if matches!(chars.peek(), Some((_, '\''))) => {
                    chars.next();
                    out.push('\'');
                }
                '\'' => return Some((out, &body[at + 1..])),
                c => out.push(c),
            }
        }
        return None;
    }
    let end = [line.find(": "), line.find(" #"), line.strip_suffix(':').map(str::len)];
    let end = end.into_iter().flatten().min().unwrap_or(line.len());
    let text = line[..end].trim_end();
    (!text.is_empty()).then(|| (text.to_string(), &line[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(m: &NameMap, name: &str) -> String {
        match m.map(name) {
            Mapped::To(t) => t,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn exact_names_come_before_patterns_and_long_patterns_before_short_ones() {
        let text =
            "# weights\n'*': result[0]['*']\nmodel.*: \"m/*\"  # the rest\nmodel.norm: n\nrope: null\n";
        let m = NameMap::parse(text).expect("a mapping");
        assert_eq!(to(&m, "lm_head"), "result[0]['lm_head']");
        assert_eq!(to(&m, "model.embed"), "m/embed");
        assert_eq!(to(&m, "model.norm"), "n");
        assert_eq!(m.map("rope"), Mapped::Omitted);
        let same = r#"{"*": "result[0]['*']", "model.*": "m/*", "model.norm": "n", "rope": null}"#;
        assert_eq!(NameMap::parse(same).expect("a mapping"), m);
        assert_eq!(NameMap::default().map("x"), Mapped::Unmapped);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("a b", "no `: `"),
            ("a: b\na: e", "twice"),
            ("a: b c: d", "text behind"),
            ("x.*.*: y", "one `*`"),
            ("x.*: y", "one `*`"),
            ("'a: b", "no name"),
            ("{\"a\": 3}", "no name"),
            ("{\"a\"", "EOF"),
            ("'a' b: c", "no `: `"),
        ] {
            let e = NameMap::parse(text).expect_err(text);
            assert!(e.contains(what), "{text}: {e}");
        }
    }
}
