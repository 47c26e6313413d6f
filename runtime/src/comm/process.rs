//! Processes, as the system's process table shows them.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process that cannot be taken for a later one with the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub pid: u64,
    /// When it began, in the system's clock ticks since boot; 0 if the system does not say.
    pub begun: u64,
    /// The system's name for the space in which this number counts: containers have spaces of their own.
    pub space: u64,
}

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Nothing is known of it: it has not come yet, or is on another machine.
    Unknown,
    /// It is there.
    Runs,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It is gone, and had not ended its work.
    Died,
    /// It has ended its work.
    Ended,
}

impl Process {
    /// This process.
    pub fn own() -> Process {
        let pid = u64::from(std::process::id());
        Process { pid, begun: stat(pid).map_or(0, |(_, begun)| begun), space: own_space() }
    }

    /// Writes it to three words of shared memory; its number last, because that says that it is there.
    pub fn write(self, words: &[AtomicU64]) {
        for (n, value) in [(2, self.space), (1, self.begun), (0, self.pid)] {
            words[n].store(value, Ordering::SeqCst);
        }
    }

    /// Reads what [`Process::write`] wrote, if it has.
    pub fn read(words: &[AtomicU64]) -> Option<Process> {
        let word = |n: usize| words.get(n).map(|w| w.load(Ordering::SeqCst));
        let process = Process { pid: word(0)?, begun: word(1)?, space: word(2)? };
        Some(process).filter(|p| p.pid != 0)
    }

    /// Whether it is there, stopped, or gone.
    pub fn life(self) -> Life {
        if self.space != own_space() {
            return Life::Unknown;
        }
        match stat(self.pid) {
            Some((_, begun)) if self.begun != 0 && begun != self.begun => Life::Died,
            Some(('Z' | 'X' | 'x', _)) => Life::Died,
            Some(('T' | 't', _)) => Life::Stopped,
            Some(_) => Life::Runs,
            None if std::path::Path::new("/proc/self/stat").exists() => Life::Died,
            None => Life::Unknown,
        }
    }
}

/// The space of this process's number.
fn own_space() -> u64 {
    static SPACE: OnceLock<u64> = OnceLock::new();
    *SPACE.get_or_init(|| std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()))
}

/// State and beginning of a process.
fn stat(pid: u64) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in parentheses, may hold anything; the state is the field after it, the 3rd, and the
    // beginning the 22nd.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn processes_are_seen_to_run_stop_and_die() {
        assert_eq!(Process::own().life(), Life::Runs);
        let mut child = Command::new("sleep").arg("60").spawn().expect("starts");
        let pid = u64::from(child.id());
        let process = Process { pid, begun: stat(pid).expect("is there").1, ..Process::own() };
        let becomes = |life| {
            let since = Instant::now();
            while process.life() != life {
                assert!(
                    since.elapsed() < Duration::from_secs(10),
                    "{:?} instead of {life:?}",
                    process.life()
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        becomes(Life::Runs);
        let kill = |signal: &str| {
            let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
            assert!(sent.expect("sends").success());
        };
        kill("STOP");
        becomes(Life::Stopped);
        kill("KILL");
        becomes(Life::Died);
        child.wait().expect("is waited for");
        becomes(Life::Died);
        assert_eq!(Process { begun: 1, ..Process::own() }.life(), Life::Died, "another of the same number");
        assert_eq!(Process { space: 1, ..Process::own() }.life(), Life::Unknown, "another container's");
    }
}
