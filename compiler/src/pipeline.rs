//! The pipeline: from a user's file to a plan.

use crate::error::{Error, Result};
use crate::kernels::{self, Selection};
use crate::options::Options;
use crate::report::{self, Report};
use crate::roles;
use crate::show;
use crate::spread;
use crate::stages::{Stage, Timer};
use msc_codegen::tile::DeviceSpec;
use msc_ir::program::{Program, check};
use msc_ir::{Module, text};
use msc_passes::cost::topology::Topology;
use msc_passes::{fuse, memory, partition, recognise, schedule, simplify, template};
use msc_runtime::check::Compute;
use msc_runtime::plan::{Meta, PlanSource};
use std::path::Path;

/// What a compilation gives.
#[derive(Debug)]
pub struct Compiled {
    /// The program for one rank.
    pub module: Module,
    /// Its instructions.
    pub program: Program,
    /// Its kernels.
    pub kernels: Selection,
    /// Header of the plan.
    pub meta: Meta,
    /// What happened.
    pub report: Report,
    /// Devices and links, if they are described.
    pub topology: Option<Topology>,
}

/// What is left where `--emit` stops the pipeline, or the plan.
#[derive(Debug)]
pub enum Outcome {
    /// The text after the stage asked for.
    Emitted(String),
    /// Everything ran.
    Compiled(Box<Compiled>),
}

/// Runs the pipeline up to the stage `emit`, or to the end.
///
/// # Errors
/// Those of the stages; nothing is written before every check has passed.
pub fn compile(source: &Path, options: &Options, emit: Option<Stage>) -> Result<Outcome> {
    options.mesh()?;
    if emit == Some(Stage::Write) {
        return Err(Error::Usage(
            "--emit write: the plan is binary; leave the option out to write it".into(),
        ));
    }
    let mut timer = Timer::default();
    let mut r = Report::default();
    let stop = |stage: Stage, m: &Module| (emit == Some(stage)).then(|| Outcome::Emitted(text::print(m)));

    let file = msc_frontends::Source::open(source)?;
    let raw = timer.run(Stage::Read, || file.parse())?;
    let imported = timer.run(Stage::Import, || msc_frontends::import::import(&raw))?;
    let spread = spread::spread(options, &imported)?;
    let device = spread.device();
    r.layout = spread.report;
    let mut m = imported.module;
    let source_hash = *blake3::hash(file.bytes()).as_bytes();
    drop(raw);
    drop(file);
    verified(&m)?;
    let compute = Compute::of_module(&m);
    if let Some(out) = stop(Stage::Read, &m).or_else(|| stop(Stage::Import, &m)) {
        return Ok(out);
    }

    let simplified = timer.run(Stage::Simplify, || simplify::simplify(&mut m))?;
    r.ops = simplified.ops_after;
    r.tables = simplified.tables;
    verified(&m)?;
    if let Some(out) = stop(Stage::Simplify, &m) {
        return Ok(out);
    }

    let step = roles::step_info(&m)?;

    let mut templates = timer.run(Stage::Template, || template::template(&mut m))?;
    r.templates = report::templates(&m, &templates);
    verified(&m)?;
    if let Some(out) = stop(Stage::Template, &m) {
        return Ok(out);
    }

    if options.recognise {
        let found = timer.run(Stage::Recognise, || recognise::recognise(&mut m, &mut templates))?;
        report::recognised(&mut r, &m, &found);
        verified(&m)?;
    }
    if let Some(out) = stop(Stage::Recognise, &m) {
        return Ok(out);
    }

    let sequence = options.sequence_parallel;
    let asked = partition::Options { mesh: spread.mesh, device, given: spread.given, sequence };
    let split = timer.run(Stage::Partition, || partition::partition(&mut m, &asked))?;
    report::partitioned(&mut r, &split);
    verified(&m)?;
    if let Some(out) = stop(Stage::Partition, &m) {
        return Ok(out);
    }

    if options.fuse {
        let groups = timer.run(Stage::Fuse, || fuse::fuse(&mut m, &device))?;
        report::fused(&mut r, &groups);
        verified(&m)?;
    }
    if let Some(out) = stop(Stage::Fuse, &m) {
        return Ok(out);
    }

    let kernels = if options.fuse {
        timer.run(Stage::Codegen, || kernels::select(&m, &DeviceSpec::ascend_910b3()))?
    } else {
        Selection::default()
    };
    if emit == Some(Stage::Codegen) {
        let listing: Vec<String> = kernels.tiles.iter().map(|k| k.to_string()).collect();
        return Ok(Outcome::Emitted(listing.join("\n")));
    }
    let mut program = timer.run(Stage::Schedule, || schedule::schedule(&m, &kernels.specs))?;
    if emit == Some(Stage::Schedule) {
        return Ok(Outcome::Emitted(show::program(&program, &m)));
    }
    let planned = timer.run(Stage::Memory, || memory::plan(&mut program));
    if emit == Some(Stage::Memory) {
        // Of what becomes a plan the writer asks the same.
        check::check(&program)?;
        return Ok(Outcome::Emitted(show::program(&program, &m)));
    }
    report::planned(&mut r, &program, &planned, &kernels);
    let meta = Meta {
        msc_version: env!("CARGO_PKG_VERSION").to_string(),
        source_hash,
        options: options.describe(),
        compute,
        step,
    };
    r.stages = timer.stages;
    Ok(Outcome::Compiled(Box::new(Compiled {
        module: m,
        program,
        kernels,
        meta,
        report: r,
        topology: spread.topology,
    })))
}

/// Every pass must leave a module that passes the verifier.
fn verified(m: &Module) -> Result<()> {
    msc_ir::verify::verify(m).map_err(Error::Ir)
}

/// Writes the plan and completes the report.
///
/// # Errors
/// If the file cannot be written.
pub fn write(c: &mut Compiled, path: &Path) -> Result<()> {
    let mut timer = Timer::default();
    let programs = std::slice::from_ref(&c.program);
    let source = PlanSource { meta: &c.meta, module: &c.module, programs, kernels: &c.kernels.kernels };
    timer.run(Stage::Write, || msc_runtime::plan::write(&source, path))?;
    c.report.stages.append(&mut timer.stages);
    c.report.peak_rss_bytes = report::peak_rss_bytes();
    Ok(())
}
