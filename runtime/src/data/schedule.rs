//! Values of run-time scalars: a number, or a table of numbers by step.

use super::DataError;
use std::path::Path;

/// The value of a scalar at each step.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Step from which on a value holds, ascending; the first is step 1.
    values: Vec<(u64, f64)>,
}

impl Schedule {
    /// The same value at every step.
    pub fn constant(value: f64) -> Schedule {
        Schedule { values: vec![(1, value)] }
    }

    /// Reads a table: lines `step,value`, steps from 1 on and ascending; a value holds until the next line's
    /// step. A first line without numbers is a heading; `#` begins a comment.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Schedule`].
    pub fn read(path: &Path) -> Result<Schedule, DataError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| DataError::Io { path: path.to_path_buf(), error })?;
        Schedule::parse(&text).map_err(|message| DataError::Schedule { path: path.to_path_buf(), message })
    }

    /// Reads a table.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let mut values: Vec<(u64, f64)> = Vec::new();
        let mut heading = true;
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let [step, value] = fields.as_slice() else {
                return Err(format!("line {}: `{line}` is not `step,value`", n + 1));
            };
            let parsed = (step.parse::<u64>(), value.parse::<f64>());
            let first = std::mem::replace(&mut heading, false);
            match parsed {
                (Ok(step), Ok(value)) if value.is_finite() => {
                    let least = values.last().map_or(1, |v| v.0.saturating_add(1));
                    if step < least {
                        return Err(format!("line {}: step {step} should be {least} or more", n + 1));
                    }
                    values.push((step, value));
                }
                (Err(_), Err(_)) if first => {}
                _ => return Err(format!("line {}: `{line}` is not `step,value`", n + 1)),
            }
        }
        match values.first() {
            Some((1, _)) => Ok(Schedule { values }),
            Some((n, _)) => Err(format!("the first value is for step {n}, not for step 1")),
            None => Err("there are no values".into()),
        }
    }

    /// The value at a step, from 1 on.
    pub fn at(&self, step: u64) -> f64 {
        let after = self.values.partition_point(|v| v.0 <= step);
        self.values[after.saturating_sub(1)].1
    }

    /// All its values.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        self.values.iter().map(|v| v.1)
    }

    /// Whether the value at a step differs from that of the step before.
    pub fn changes_at(&self, step: u64) -> bool {
        self.values.iter().any(|v| v.0 == step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next() {
        let s = Schedule::parse("step,lr\n1, 1e-4\n10,2e-4 # warm\n\n100,0\n").expect("a schedule");
        assert_eq!([1, 9, 10, 99, 100, 5000].map(|n| s.at(n)), [1e-4, 1e-4, 2e-4, 2e-4, 0.0, 0.0]);
        assert_eq!([1, 9, 10].map(|n| s.changes_at(n)), [true, false, true]);
        assert_eq!(Schedule::constant(3.0).at(7), 3.0);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("", "no values"),
            ("step,lr\n", "no values"),
            ("2,1", "not for step 1"),
            ("1,1\n1,2", "2 or more"),
            ("1,1\nx,y", "line 2"),
            ("1,inf", "line 1"),
            ("1;2", "line 1"),
        ] {
            let e = Schedule::parse(text).expect_err(text);
            assert!(e.contains(what), "{text}: {e}");
        }
    }
}
