//! Faults on purpose: a test makes a rank fail at a chosen instruction, to see that the others end with one message.
//!
//! `msc run` reads a fault from the environment variable [`VARIABLE`].

use std::str::FromStr;
use std::time::Duration;

/// The environment variable, for tests only: `kind:rank:step:instruction`.
pub const VARIABLE: &str = "MSC_TEST_FAULT";

/// What a rank does instead of going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Its process is killed.
    Kill,
    /// Its process is stopped by a signal.
    Stop,
    /// It panics.
    Panic,
    /// The thread does nothing any more.
    Stall,
}

/// A fault: what happens, where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// The rank.
    pub rank: usize,
    /// The step, from 0.
    pub step: usize,
    /// The instruction before which it happens.
    pub instruction: usize,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let wrong = || format!("`{text}` should be kill, stop, panic or stall:RANK:STEP:INSTRUCTION");
        let mut parts = text.split(':');
        let kind = match parts.next() {
            Some("kill") => Kind::Kill,
            Some("stop") => Kind::Stop,
            Some("panic") => Kind::Panic,
            Some("stall") => Kind::Stall,
            _ => return Err(wrong()),
        };
        let mut number = || parts.next().and_then(|p| p.parse().ok()).ok_or_else(wrong);
        let fault = Fault { kind, rank: number()?, step: number()?, instruction: number()? };
        if parts.next().is_some() { Err(wrong()) } else { Ok(fault) }
    }
}

impl Fault {
    /// Happens, if this is the place.
    ///
    /// # Panics
    /// If that is what shall happen.
    pub(super) fn strike(&self, rank: usize, step: usize, instruction: usize) {
        if (self.rank, self.step, self.instruction) != (rank, step, instruction) {
            return;
        }
        match self.kind {
            // SAFETY: signals to this process, which end or stop it.
            Kind::Kill => unsafe {
                libc::raise(libc::SIGKILL);
            },
            // SAFETY: as above.
            Kind::Stop => unsafe {
                libc::raise(libc::SIGSTOP);
            },
            Kind::Panic => panic!("a panic on purpose"),
            Kind::Stall => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault = Fault { kind: Kind::Stop, rank: 1, step: 20, instruction: 300 };
        assert_eq!("stop:1:20:300".parse(), Ok(fault));
        for wrong in ["", "stop", "stop:1:2", "stop:1:2:3:4", "halt:1:2:3", "kill:a:2:3", "kill:1:2:-3"] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }
}
