//! Value numbers: which value an operand's number stands for.

use super::cursor::Cursor;
use super::fault::{Fault, Result};
use crate::error::Code;
use crate::raw::Value;

/// The values that the ops inside one isolated op can use.
///
/// On entering a region the table grows by the number of values defined directly in it; they take the new
/// numbers in order. A region inside numbers its own values above all of its parent's.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// Value by number; `None` is announced but not defined yet.
    values: Vec<Option<Value>>,
    /// Per open region: the next number to define, and one past its last.
    open: Vec<(usize, usize)>,
}

impl Scope {
    /// Opens a region of `n` values. The caller has held `n` against the bytes left.
    pub(super) fn enter(&mut self, n: usize) {
        let base = self.values.len();
        self.open.push((base, base + n));
        self.values.resize(base + n, None);
    }

    /// Closes the innermost region.
    pub(super) fn leave(&mut self, c: &Cursor<'_>) -> Result<()> {
        match self.open.pop() {
            Some((next, end)) if next == end => {
                self.values.truncate(self.open.last().map_or(0, |o| o.1));
                Ok(())
            }
            _ => c.bad("a region that defines fewer values than it announces"),
        }
    }

    /// Gives the next number of the innermost region to `v`.
    pub(super) fn define(&mut self, v: Value, c: &Cursor<'_>) -> Result<()> {
        match self.open.last_mut() {
            Some(region) if region.0 < region.1 => {
                self.values[region.0] = Some(v);
                region.0 += 1;
                Ok(())
            }
            _ => c.bad("a region that defines more values than it announces"),
        }
    }

    /// The value whose number comes next.
    pub(super) fn value(&self, c: &mut Cursor<'_>) -> Result<Value> {
        let at = c.at();
        let number = c.varint()?;
        match usize::try_from(number).ok().and_then(|n| self.values.get(n)) {
            Some(Some(v)) => Ok(*v),
            Some(None) => {
                Err(Fault::new(Code::Name, at, format!("operand {number} is used before it is defined")))
            }
            None => Err(Fault::malformed(
                at,
                format!("operand {number} where {} values are visible", self.values.len()),
            )),
        }
    }
}

/// Steps over the use-list orders of `n` values, which say how MLIR should permute lists in memory and nothing of
/// the program.
pub(super) fn skip_use_lists(c: &mut Cursor<'_>, n: usize) -> Result<()> {
    let lists = if n > 1 { c.count("use lists")? } else { 1 };
    for _ in 0..lists {
        if n > 1 {
            c.index(n, "value with a use list")?;
        }
        let (count, _) = c.flagged()?;
        for _ in 0..c.check_count(count, 1, "uses")? {
            c.varint()?;
        }
    }
    Ok(())
}
