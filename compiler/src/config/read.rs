//! Reading YAML with a line for every complaint.

use super::HELP;
use crate::error::{Error, Result};
use msc_passes::cost::did_you_mean;
use saphyr::{MarkedYaml, Scalar, YamlData};
use saphyr_parser::{Event, Parser, ScanError};
use std::path::{Path, PathBuf};

/// Deepest nesting that is read: twice what any key has.
const MAX_DEPTH: usize = 8;

/// The file, for messages.
pub(super) struct File<'a> {
    /// Its path.
    pub path: &'a Path,
}

/// The line a node begins in, from 1.
pub(super) fn line(v: &MarkedYaml<'_>) -> usize {
    v.span.start.line()
}

/// What a node is, for messages.
fn kind(v: &MarkedYaml<'_>) -> String {
    match &v.data {
        YamlData::Value(Scalar::Null) => "nothing".into(),
        YamlData::Value(Scalar::Boolean(b)) => b.to_string(),
        YamlData::Value(Scalar::Integer(n)) => n.to_string(),
        YamlData::Value(Scalar::FloatingPoint(n)) => n.to_string(),
        YamlData::Value(Scalar::String(s)) => format!("`{s}`"),
        YamlData::Sequence(_) => "a list".into(),
        YamlData::Mapping(_) => "a list of keys".into(),
        _ => "something else".into(),
    }
}

impl File<'_> {
    pub fn refuse(&self, line: usize, message: impl Into<String>, help: impl Into<String>) -> Error {
        Error::Config { path: self.path.to_path_buf(), line, message: message.into(), help: help.into() }
    }

    /// Refuses what would make a tree of any depth: nesting, and aliases, of which a file of this form needs none.
    pub fn plain(&self, text: &str) -> Result<()> {
        let mut depth = 0usize;
        for event in Parser::new_from_str(text) {
            let no_yaml =
                |e: ScanError| self.refuse(e.marker().line(), format!("it is no YAML: {}", e.info()), HELP);
            let (event, span) = event.map_err(no_yaml)?;
            let line = span.start.line();
            match event {
                Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
                Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
                Event::Alias(_) => return Err(self.refuse(line, "aliases (`*name`) are not read", HELP)),
                _ => {}
            }
            if depth > MAX_DEPTH {
                return Err(self.refuse(line, format!("it is nested deeper than {MAX_DEPTH}"), HELP));
            }
        }
        Ok(())
    }

    pub fn expected(&self, key: &str, what: &str, v: &MarkedYaml<'_>) -> Error {
        self.refuse(line(v), format!("`{key}` should be {what}, this is {}", kind(v)), HELP)
    }

    /// Visits the keys of a section, all of which must be known.
    pub fn section<'v>(
        &self,
        section: &'v MarkedYaml<'v>,
        known: &[&str],
        mut visit: impl FnMut(&str, &'v MarkedYaml<'v>) -> Result<()>,
    ) -> Result<()> {
        // A section that is written and left empty says nothing.
        if matches!(section.data, YamlData::Value(Scalar::Null)) {
            return Ok(());
        }
        for (key, value) in self.keys(section)? {
            if !known.contains(&key) {
                let near = did_you_mean(key, known);
                let help = format!("keys here are: {}", known.join(", "));
                return Err(self.refuse(line(value.0), format!("there is no key `{key}`{near}"), help));
            }
            visit(key, value.1)?;
        }
        Ok(())
    }

    /// A mapping's keys, each with its own node and its value, in the file's order.
    #[allow(clippy::type_complexity, reason = "a node and its value have no name of their own")]
    pub fn keys<'v>(
        &self,
        v: &'v MarkedYaml<'v>,
    ) -> Result<Vec<(&'v str, (&'v MarkedYaml<'v>, &'v MarkedYaml<'v>))>> {
        let YamlData::Mapping(map) = &v.data else {
            return Err(self.refuse(
                line(v),
                format!("keys with values are expected, this is {}", kind(v)),
                HELP,
            ));
        };
        let mut out = Vec::new();
        for (key, value) in map {
            let YamlData::Value(Scalar::String(name)) = &key.data else {
                return Err(self.refuse(line(key), format!("{} is no key", kind(key)), HELP));
            };
            out.push((name.as_ref(), (key, value)));
        }
        Ok(out)
    }

    pub fn text<'v>(&self, key: &str, v: &'v MarkedYaml<'v>) -> Result<&'v str> {
        match &v.data {
            YamlData::Value(Scalar::String(s)) if !s.is_empty() => Ok(s),
            _ => Err(self.expected(key, "a text", v)),
        }
    }

    pub fn path(&self, key: &str, v: &MarkedYaml<'_>) -> Result<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        Ok(folder.join(self.text(key, v)?))
    }

    pub fn switch(&self, key: &str, v: &MarkedYaml<'_>) -> Result<bool> {
        match v.data {
            YamlData::Value(Scalar::Boolean(b)) => Ok(b),
            _ => Err(self.expected(key, "true or false", v)),
        }
    }

    pub fn number(&self, key: &str, v: &MarkedYaml<'_>) -> Result<u64> {
        match v.data {
            YamlData::Value(Scalar::Integer(n)) if n >= 0 => Ok(n as u64),
            _ => Err(self.expected(key, "a whole number", v)),
        }
    }

    pub fn count(&self, key: &str, v: &MarkedYaml<'_>) -> Result<usize> {
        match self.number(key, v)? {
            0 => Err(self.expected(key, "at least 1", v)),
            n => Ok(n as usize),
        }
    }

    /// A list, or one value as a list of one.
    pub fn list<'v>(&self, v: &'v MarkedYaml<'v>) -> impl Iterator<Item = &'v MarkedYaml<'v>> {
        match &v.data {
            YamlData::Sequence(list) => list.iter(),
            _ => std::slice::from_ref(v).iter(),
        }
    }
}
