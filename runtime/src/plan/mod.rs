//! Plans: what a compilation leaves behind, and all that a run needs.
//!
//! A [`Plan`] holds one [`Program`] for each rank class, the graphs and constants that their instructions refer
//! to, kernels in their serialised form, and the description of inputs and outputs. [`write()`] gives the same
//! bytes for the same plan. [`Plan::open`] maps the file into memory and uses constants in place; it checks
//! hashes, indices, types, and the programs themselves ([`msc_ir::program`]), so that whatever it returns can be
//! run: a damaged file is refused with a code, never met later.

mod container;
mod fuzz;
mod print;
mod read;
mod step;
mod tables;
mod wire;
mod write;

pub use container::FORMAT_VERSION;
pub use fuzz::{frames, fuzz_frames, fuzz_plan, fuzz_sections};
pub use print::print;
pub use step::{InputRole, Role, StepInfo};
pub use write::{encode, write};

use crate::check::Compute;
use crate::layout::Laid;
use container::Backing;
use msc_ir::module::{Entry, GraphId, Mesh};
use msc_ir::outside::{Held, Outside};
use msc_ir::program::check::ProgramError;
use msc_ir::program::{BufferId, Placement, Program};
use msc_ir::{ConstId, Module, TensorType};
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The graph of a loaded plan's entries: the plan holds instructions in its place.
pub const NO_GRAPH: GraphId = GraphId(u32::MAX);

/// Why a plan could not be written or read.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The file system refused.
    #[error("MSC-P0001: {path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is something else.
    #[error("MSC-P0002: this is not a plan (plans are written by `msc compile`)")]
    NotAPlan,
    /// The plan's format is not this msc's.
    #[error(
        "MSC-P0003: the plan has format {found}, this msc reads format {supported}: {}",
        if found > supported { "use a newer msc" } else { "compile the model again" }
    )]
    Version {
        /// The plan's.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// The file ends too early.
    #[error("MSC-P0004: the plan is cut off: copy it again or compile the model again")]
    Truncated,
    /// A hash does not match.
    #[error("MSC-P0005: the plan is damaged in its {section}: copy it again or compile the model again")]
    Damaged {
        /// The damaged part.
        section: String,
    },
    /// The content contradicts itself although its hash is right: a bug in the msc that wrote it.
    #[error("MSC-P0006: internal: the plan's {section} section: {message}")]
    Malformed {
        /// The section.
        section: &'static str,
        /// What does not fit.
        message: String,
    },
    /// A program, or all of them together, break a rule: a bug in msc.
    #[error("{error}{}", class.map(|c| format!(" (rank class {c})")).unwrap_or_default())]
    Program {
        /// Index of the rank class, if it is one's alone.
        class: Option<usize>,
        /// The rule.
        error: ProgramError,
    },
}

/// A kernel: its name and its serialised form, which the kernel compiler understands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// Name, for traces and messages.
    pub name: String,
    /// Serialised kernel.
    pub payload: Vec<u8>,
}

/// Where a plan comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Version of the msc that wrote the plan.
    pub msc_version: String,
    /// BLAKE3 of the source's bytes.
    pub source_hash: [u8; 32],
    /// Names and values of the options that shaped the plan, in the order given.
    pub options: Vec<(String, String)>,
    /// The type the step computes in, which says how exact its outputs can be.
    pub compute: Compute,
    /// What the step's inputs are for, and how much it computes.
    pub step: StepInfo,
}

/// What goes into a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanSource<'a> {
    /// Where it comes from.
    pub meta: &'a Meta,
    /// The module that ops of the instructions refer to. Only what they reach is written.
    pub module: &'a Module,
    /// One program for each rank class.
    pub programs: &'a [Program],
    /// The kernels.
    pub kernels: &'a [Kernel],
}

/// A constant of a loaded plan.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PlanConstant {
    ty: TensorType,
    data: PlanData,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PlanData {
    Splat(Vec<u8>),
    /// In the plan's bytes.
    Dense(Range<usize>),
}

/// One of the outside's inputs or outputs, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// An input.
    Input(usize),
    /// An output.
    Output(usize),
}

/// A loaded plan. It holds what [`PlanSource`] says, and has passed every check.
pub struct Plan {
    /// Where it comes from.
    pub meta: Meta,
    /// Graphs, constants and locations that instructions refer to, and the mesh. It has no entries: see
    /// [`Program::entry`], whose graph is [`NO_GRAPH`].
    pub module: Module,
    /// One program for each rank class.
    pub programs: Vec<Program>,
    /// The kernels.
    pub kernels: Vec<Kernel>,
    outside: Outside,
    constants: Vec<PlanConstant>,
    backing: Backing,
}

impl Plan {
    /// Opens a plan file. Constants stay in the file, which must not be changed while the plan is in use.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn open(path: &Path) -> Result<Plan, PlanError> {
        let io = |error| PlanError::Io { path: path.to_path_buf(), error };
        let file = std::fs::File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(PlanError::NotAPlan);
        }
        // SAFETY: the mapping is read only and private to this process. That no one truncates or rewrites the
        // file meanwhile is asked of the caller above; plans are replaced by renaming, which is harmless.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        let length = map.len();
        read::read(Backing::Mapped(map), length)
    }

    /// A plan from a copy of `bytes`.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Plan, PlanError> {
        read::read(Backing::copy(bytes), bytes.len())
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.module.mesh
    }

    /// Inputs and outputs as the outside knows them; the same for all rank classes. Where they lie says
    /// [`Plan::laid`].
    pub fn entry(&self) -> &Entry {
        &self.outside.entry
    }

    /// How an input or output lies over the ranks, seen from the programs of `rank`'s class.
    pub fn laid(&self, which: Which, rank: usize) -> Laid<'_> {
        let (p, held) = (self.program_of(rank), self.held(which));
        let sharding = match which {
            Which::Input(_) => &p.entry.params[held.slot].sharding,
            Which::Output(_) => &p.entry.results[held.slot].sharding,
        };
        let local = &p.buffer(self.buffer(which, p)).ty;
        Laid { local, sharding, mesh: self.mesh(), member: held.member }
    }

    /// The buffer of a program that holds an input or output.
    pub fn buffer(&self, which: Which, p: &Program) -> BufferId {
        let slot = self.held(which).slot;
        match which {
            Which::Input(_) => p.inputs[slot],
            Which::Output(_) => p.outputs[slot],
        }
    }

    /// Where an input or output lies in the programs' entry.
    pub fn held(&self, which: Which) -> Held {
        match which {
            Which::Input(n) => self.outside.params[n],
            Which::Output(n) => self.outside.results[n],
        }
    }

    /// The program that a rank runs.
    pub fn program_of(&self, rank: usize) -> &Program {
        let own = self.programs.iter().find(|p| p.class.contains(&self.module.mesh, rank));
        // The classes cover the mesh; a number beyond it gets some program.
        own.unwrap_or(&self.programs[0])
    }

    /// The bytes of a constant, if there is one: those of the plan for a dense one, filled for a splat.
    pub fn constant(&self, id: ConstId) -> Option<Cow<'_, [u8]>> {
        let c = self.constants.get(id.0 as usize)?;
        Some(match &c.data {
            PlanData::Dense(r) => Cow::Borrowed(&self.backing.bytes()[r.clone()]),
            PlanData::Splat(e) => Cow::Owned(e.repeat(c.ty.elements())),
        })
    }

    /// Type of a constant.
    pub fn constant_type(&self, id: ConstId) -> Option<&TensorType> {
        self.constants.get(id.0 as usize).map(|c| &c.ty)
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print(self))
    }
}

/// Checks programs one by one and together.
fn check_programs(
    module: &Module,
    programs: &[Program],
    kernels: usize,
    constant: impl Fn(ConstId) -> Option<TensorType>,
) -> Result<(), PlanError> {
    for (n, p) in programs.iter().enumerate() {
        let class = |error| PlanError::Program { class: Some(n), error };
        if p.mesh != module.mesh {
            let message = "the program's mesh is not the module's".to_string();
            return Err(class(ProgramError::Entry { message }));
        }
        msc_ir::program::check::check(p).map_err(class)?;
        for b in &p.buffers {
            let Placement::Constant(id) = b.placement else { continue };
            if constant(id).as_ref() != Some(&b.ty) {
                let message = format!("buffer {} of type {} is not constant {}", b.name, b.ty, id.0);
                return Err(class(ProgramError::Entry { message }));
            }
        }
        for (at, i) in p.instructions.iter().enumerate() {
            if let msc_ir::program::Action::Kernel(k) = i.action
                && k.0 as usize >= kernels
            {
                let message = format!("kernel {} does not exist", k.0);
                return Err(class(ProgramError::Dangling { at, message }));
            }
        }
        msc_ir::program::types::check_ops(p, module).map_err(class)?;
    }
    msc_ir::program::agree::agree(programs).map_err(|error| PlanError::Program { class: None, error })
}
