//! Errors of the command, and its exit codes.

use std::path::PathBuf;
use thiserror::Error;

/// Shorthand for a result with an [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The user's file could not be read or imported.
    #[error(transparent)]
    Frontend(#[from] msc_frontends::FrontendError),
    /// A pass refused the model or the options.
    #[error(transparent)]
    Pass(#[from] msc_passes::PassError),
    /// The IR refused something: a bug in msc unless a front end or pass explains it.
    #[error(transparent)]
    Ir(#[from] msc_ir::IrError),
    /// The memory plan or schedule is not sound: a bug in msc, caught before the plan was written.
    #[error("{0}\n  This is a bug in msc; no plan was written.")]
    Program(#[from] msc_ir::program::check::ProgramError),
    /// A plan could not be written or read.
    #[error(transparent)]
    Plan(#[from] msc_runtime::plan::PlanError),
    /// Input or output data do not fit.
    #[error(transparent)]
    Data(#[from] msc_runtime::data::DataError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] msc_runtime::exec::RunError),
    /// The ranks of a run do not meet.
    #[error(transparent)]
    Join(#[from] msc_runtime::comm::shm::JoinError),
    /// The run failed; another process says why.
    #[error("")]
    Told {
        /// The exit status that fits.
        status: u8,
    },
    /// A kernel could not be compiled for this machine.
    #[error(transparent)]
    Kernel(#[from] msc_runtime::cpu::KernelError),
    /// A file could not be written.
    #[error("MSC-X0001: {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The command line asks for something that does not exist.
    #[error("MSC-X0002: {0}")]
    Usage(String),
    /// The outputs differ from the reference by more than is allowed.
    #[error("MSC-X0003: the outputs do not agree with the reference\n{0}")]
    Check(String),
    /// What recognition made of a model does not compute what the model does: a bug in msc.
    #[error(
        "MSC-X0005: recognition changed what the model computes\n{0}\n  This is a bug in msc. help: compile with --no-recognise until it is mended, and report the model"
    )]
    Verify(String),
    /// A configuration file is not one.
    #[error("MSC-X0006: {path}:{line}: {message}\n  help: {help}")]
    Config {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
        /// What to do.
        help: String,
    },
    /// A signal asked to stop. The state was saved.
    #[error(
        "MSC-X0004: stopped by a signal after step {step}; the state is in {path}\n  help: go on with --params {path}"
    )]
    Interrupted {
        /// The signal's number.
        signal: usize,
        /// Steps done.
        step: u64,
        /// Where the state is.
        path: PathBuf,
    },
}

impl Error {
    /// The process's exit status: 1 for a failed check or run, 2 for what the user gave, 70 for a bug in msc,
    /// 128 and the signal's number after a signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Run(e) => e.status(),
            Error::Told { status } => *status,
            Error::Check(_) | Error::Verify(_) | Error::Join(_) => 1,
            Error::Frontend(e) if e.code().is_internal() => 70,
            Error::Interrupted { signal, .. } => 128 + *signal as u8,
            Error::Program(_) | Error::Pass(msc_passes::PassError::Broken { .. }) => 70,
            Error::Ir(msc_ir::IrError::Structure { .. }) => 70,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_frontends::{Code, FrontendError};

    #[test]
    fn a_failed_verification_is_a_failed_check() {
        let e = Error::Verify("  rms_norm at model.mlir:3:1: y differs".into());
        assert_eq!(e.exit_code(), 1);
        assert!(e.to_string().starts_with("MSC-X0005: ") && e.to_string().contains("bug in msc"), "{e}");
    }

    #[test]
    fn a_bug_in_the_front_end_is_not_the_users() {
        for code in Code::ALL {
            let e = Error::from(FrontendError::new(code, "x"));
            assert_eq!(e.exit_code() == 70, code == Code::Internal, "{e}");
            assert_eq!(e.to_string().contains("bug in msc"), code == Code::Internal, "{e}");
        }
    }
}
