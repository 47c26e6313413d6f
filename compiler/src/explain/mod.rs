//! `msc explain`: what was recognised in a step and why ([`sites`], [`chain`]), also as a page ([`html`]), or why something was not ([`why`]); and why a
//! layout communicates ([`comm`]). In the words of the person who wrote the step: parameters by their names, values by
//! file and line ([`names`]).

mod chain;
pub mod comm;
mod html;
mod names;
pub mod sites;
pub mod why;

use crate::error::{Error, Result};
use crate::examine::examine;
use crate::options::Options;
use msc_passes::recognise::why::{Near, OPERATIONS, near};
use serde::Serialize;
use sites::Site;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What to explain.
#[derive(Clone, Debug, Default)]
pub struct ExplainOptions {
    /// The model.
    pub model: PathBuf,
    /// Only operations of this kind.
    pub pattern: Option<String>,
    /// Only operations that mention this.
    pub op: Option<String>,
    /// The kind of operation of which to say why it was not found.
    pub why_not: Option<String>,
    /// The layout whose communication is asked for.
    pub comm: Option<CommOptions>,
    /// Where the same goes as JSON.
    pub json: Option<PathBuf>,
    /// Where a page about all of it goes.
    pub html: Option<PathBuf>,
}

/// Of which communication to tell.
#[derive(Clone, Debug)]
pub struct CommOptions {
    /// The layout.
    pub layout: Options,
    /// Bytes from which on a gathered tensor is reported.
    pub gathered_above: u64,
}

/// The operation of a name, which may be spelled with `-`.
fn operation(name: &str) -> Result<&'static str> {
    let plain = name.replace('-', "_");
    let known = OPERATIONS.iter().find(|o| **o == plain).copied();
    known.ok_or_else(|| {
        Error::Usage(format!("there is no operation `{name}`: known are {}", OPERATIONS.join(", ")))
    })
}

/// Explains; the text goes to `out`.
///
/// # Errors
/// Bad models, and names of operations that there are not.
pub fn explain(o: &ExplainOptions, out: &mut dyn Write) -> Result<()> {
    if let Some(c) = &o.comm {
        let answer = comm::answer(&o.model, &c.layout, c.gathered_above)?;
        json(o.json.as_deref(), &answer)?;
        return crate::show::print(out, &answer.text());
    }
    let pattern = o.pattern.as_deref().map(operation).transpose()?;
    if let Some(name) = &o.why_not {
        let asked = operation(name)?;
        let mut all: Vec<Near> = Vec::new();
        let e = examine(&o.model, &mut |graph, region, run| all.push(near(asked, graph, region, run)))?;
        let mut answer = why::answer(&e, asked, &all);
        if let Some(text) = &o.op {
            answer.near.retain(|n| n.location.contains(text.as_str()) || n.why.contains(text.as_str()));
        }
        json(o.json.as_deref(), &answer)?;
        return crate::show::print(out, &answer.text());
    }
    let e = examine(&o.model, &mut |_, _, _| {})?;
    if let Some(path) = &o.html {
        written(path, &html::page(&e))?;
    }
    let mut sites = sites::all(&e);
    sites.retain(|s| pattern.is_none_or(|p| s.operation == p));
    if let Some(text) = &o.op {
        sites.retain(|s| s.mentions(text));
    }
    json(o.json.as_deref(), &sites)?;
    // The whole way is told where somebody asks for it.
    let asked = pattern.is_some() || o.op.is_some();
    crate::show::print(out, &text(&sites, asked))
}

fn written(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Error::Io { path: path.to_path_buf(), error })
}

fn json(path: Option<&Path>, what: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(what).unwrap_or_default();
    written(path, &(text + "\n"))
}

fn text(sites: &[Site], chains: bool) -> String {
    let mut out = String::new();
    for s in sites {
        out.push_str(&s.text(chains));
        out.push('\n');
    }
    let executed: u64 = sites.iter().map(|s| s.executed).sum();
    let _ = match sites.len() {
        0 => writeln!(out, "no named operation; --why-not KIND says what comes near one"),
        1 => writeln!(out, "1 site, executed {executed} times a step"),
        n => writeln!(out, "{n} sites, executed {executed} times a step"),
    };
    out
}
