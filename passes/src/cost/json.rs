//! Reading JSON with a path for every complaint: `$.links[1].gb_per_s`.

use crate::error::{PassError, Result};
use serde_json::{Map, Value};

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    file: &'a str,
    value: &'a Value,
    path: &'a str,
}

/// An object of which every field must be asked for.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    file: &'a str,
    fields: &'a Map<String, Value>,
    path: String,
}

/// A refusal at a path.
pub(super) fn refuse(
    file: &str,
    path: &str,
    message: impl Into<String>,
    help: impl Into<String>,
) -> PassError {
    PassError::Topology { file: file.into(), path: path.into(), message: message.into(), help: help.into() }
}

/// What a value is, for messages.
fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The name among `known` that is spelled most like `name`, if any is near.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let ranked = known.iter().map(|k| (strsim::damerau_levenshtein(name, k), *k));
    ranked.min().filter(|(d, k)| *d <= k.len().max(name.len()) / 2).map(|(_, k)| k)
}

/// [`nearest`] as the end of a message, or nothing.
pub fn did_you_mean(name: &str, known: &[&str]) -> String {
    nearest(name, known).map(|k| format!(", do you mean `{k}`?")).unwrap_or_default()
}

const SCHEMA: &str = "docs/topologies.md describes the file";

impl<'a> At<'a> {
    pub fn new(file: &'a str, value: &'a Value, path: &'a str) -> At<'a> {
        At { file, value, path }
    }

    fn expected(&self, what: &str) -> PassError {
        let message = format!("{what} is expected, this is {}", kind(self.value));
        refuse(self.file, self.path, message, SCHEMA)
    }

    /// As an object with these fields and no others.
    pub fn object(&self, known: &[&str]) -> Result<Fields<'a>> {
        let Value::Object(fields) = self.value else { return Err(self.expected("an object")) };
        for name in fields.keys() {
            if !known.contains(&name.as_str()) {
                let near = did_you_mean(name, known);
                let help = format!("fields here are: {}", known.join(", "));
                let path = format!("{}.{name}", self.path);
                return Err(refuse(self.file, &path, format!("there is no such field{near}"), help));
            }
        }
        Ok(Fields { file: self.file, fields, path: self.path.to_string() })
    }
}

impl<'a> Fields<'a> {
    /// The path of a field.
    pub fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// A refusal at a field.
    pub fn refuse(&self, name: &str, message: impl Into<String>) -> PassError {
        refuse(self.file, &self.path(name), message, SCHEMA)
    }

    /// A field that may be missing.
    pub fn maybe(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name)
    }

    /// A field.
    pub fn need(&self, name: &str) -> Result<&'a Value> {
        self.maybe(name).ok_or_else(|| refuse(self.file, &self.path, format!("`{name}` is missing"), SCHEMA))
    }

    fn wrong(&self, name: &str, what: &str, v: &Value) -> PassError {
        self.refuse(name, format!("{what} is expected, this is {}", kind(v)))
    }

    /// A text that is not empty.
    pub fn text(&self, name: &str) -> Result<&'a str> {
        match self.need(name)? {
            Value::String(s) if !s.is_empty() => Ok(s),
            v => Err(self.wrong(name, "a name", v)),
        }
    }

    /// A count of at least one and at most `most`.
    pub fn count(&self, name: &str, most: usize) -> Result<usize> {
        let v = self.need(name)?;
        let n = v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=most).contains(n));
        n.ok_or_else(|| match v {
            Value::Number(n) => {
                self.refuse(name, format!("{n} should be a whole number between 1 and {most}"))
            }
            _ => self.wrong(name, "a number", v),
        })
    }

    /// A rate or a time: a number within these borders, both possible.
    pub fn number(&self, name: &str, least: f64, most: f64) -> Result<f64> {
        let v = self.need(name)?;
        match v.as_f64() {
            Some(n) if (least..=most).contains(&n) => Ok(n),
            Some(n) => Err(self.refuse(name, format!("{n} should be between {least} and {most}"))),
            None => Err(self.wrong(name, "a number", v)),
        }
    }

    /// A list.
    pub fn list(&self, name: &str) -> Result<&'a [Value]> {
        match self.need(name)? {
            Value::Array(v) => Ok(v),
            v => Err(self.wrong(name, "a list", v)),
        }
    }
}
