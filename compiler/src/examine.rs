//! A model up to recognition, with what it was before: for commands that look at what recognition did.

use crate::error::Result;
use crate::roles;
use msc_ir::{LocId, Module};
use msc_passes::recognise::{self, Observer};
use msc_passes::simplify;
use msc_passes::template::{self, Templates};
use msc_runtime::check::Compute;
use msc_runtime::plan::StepInfo;
use std::path::{Path, PathBuf};

/// A model before and after recognition.
#[derive(Debug)]
pub struct Examined {
    /// The file.
    pub source: PathBuf,
    /// As it was imported.
    pub imported: Module,
    /// As recognition got it: simplified, layers as templates.
    pub before: Module,
    /// The templates then.
    pub templates: Templates,
    /// What recognition made of it.
    pub recognised: Module,
    /// The reasons.
    pub report: recognise::Report,
    /// What the inputs are for.
    pub step: StepInfo,
    /// What the step computes in.
    pub compute: Compute,
}

impl Examined {
    /// A place in the user's file: its name without its folder, which the user just typed.
    pub fn describe(&self, loc: LocId) -> String {
        let text = self.before.locations.describe(loc);
        let folder = self.source.parent().map(|p| format!("{}/", p.display())).unwrap_or_default();
        text.strip_prefix(folder.as_str()).map_or(text.clone(), str::to_string)
    }
}

/// Reads a model and recognises its operations. `observer` sees the e-graph of each region of the report.
///
/// # Errors
/// Those of the stages.
pub fn examine(source: &Path, observer: Observer<'_>) -> Result<Examined> {
    let imported = msc_frontends::read_file(source)?.module;
    let compute = Compute::of_module(&imported);
    let mut module = imported.clone();
    simplify::simplify(&mut module)?;
    let step = roles::step_info(&module)?;
    let mut templates = template::template(&mut module)?;
    let (before, kept) = (module.clone(), templates.clone());
    let report = recognise::recognise_observed(&mut module, &mut templates, observer)?;
    msc_ir::verify::verify(&module)?;
    let source = source.to_path_buf();
    Ok(Examined { source, imported, before, templates: kept, recognised: module, report, step, compute })
}
