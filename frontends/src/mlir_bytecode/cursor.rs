//! A bounds-checked cursor with the format's primitives.

use super::fault::{Fault, Result};

/// A cursor over `file[at..end]`. Offsets are from the start of the file, so that messages and alignment
/// need no base. Invariant: `at <= end <= file.len()`.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    file: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor over the whole file.
    pub fn new(file: &'a [u8]) -> Self {
        Cursor { file, at: 0, end: file.len() }
    }

    /// Byte offset of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.end - self.at
    }

    /// A malformed-input fault at the cursor.
    pub fn bad<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Fault::malformed(self.at, message))
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8> {
        if self.at >= self.end {
            return self.bad("the data ends in the middle of an item");
        }
        let b = self.file[self.at];
        self.at += 1;
        Ok(b)
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        match usize::try_from(n) {
            Ok(n) if n <= self.left() => {
                let s = &self.file[self.at..self.at + n];
                self.at += n;
                Ok(s)
            }
            _ => self.bad(format!("a length of {n} bytes where {} are left", self.left())),
        }
    }

    /// A cursor over the next `n` bytes, which this one steps over.
    pub fn sub(&mut self, n: u64) -> Result<Cursor<'a>> {
        let at = self.at;
        let n = self.take(n)?.len();
        Ok(Cursor { file: self.file, at, end: at + n })
    }

    /// A variable-length unsigned number: the trailing zero bits of the first byte say how many bytes follow.
    pub fn varint(&mut self) -> Result<u64> {
        let head = self.byte()?;
        if head & 1 == 1 {
            return Ok(u64::from(head >> 1));
        }
        let mut raw = [0u8; 8];
        if head == 0 {
            raw.copy_from_slice(self.take(8)?);
            return Ok(u64::from_le_bytes(raw));
        }
        let more = head.trailing_zeros();
        raw[0] = head;
        raw[1..=more as usize].copy_from_slice(self.take(u64::from(more))?);
        Ok(u64::from_le_bytes(raw) >> (more + 1))
    }

    /// A zigzag-encoded signed number.
    pub fn svarint(&mut self) -> Result<i64> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// A number with a flag in its lowest bit.
    pub fn flagged(&mut self) -> Result<(u64, bool)> {
        let v = self.varint()?;
        Ok((v >> 1, v & 1 == 1))
    }

    /// A number that should be an index below `len` of a table of `what`.
    pub fn index(&mut self, len: usize, what: &str) -> Result<u32> {
        let at = self.at;
        let v = self.varint()?;
        checked_index(v, len, what, at)
    }

    /// Checks a count of items of at least `unit` bytes each against the bytes left, so that what is reserved for
    /// them is bounded by the size of the file.
    pub fn check_count(&self, n: u64, unit: u64, what: &str) -> Result<usize> {
        match n.checked_mul(unit) {
            Some(bytes) if bytes <= self.left() as u64 => Ok(n as usize),
            _ => self.bad(format!("a count of {n} {what} where {} bytes are left", self.left())),
        }
    }

    /// A count of items of at least one byte each.
    pub fn count(&mut self, what: &str) -> Result<usize> {
        let n = self.varint()?;
        self.check_count(n, 1, what)
    }

    /// Bytes up to a zero byte, which is stepped over.
    pub fn cstr(&mut self) -> Result<&'a [u8]> {
        let rest = &self.file[self.at..self.end];
        match rest.iter().position(|&b| b == 0) {
            Some(n) => {
                self.at += n + 1;
                Ok(&rest[..n])
            }
            None => self.bad("a string without its closing zero byte"),
        }
    }

    /// Bytes preceded by their length.
    pub fn blob(&mut self) -> Result<&'a [u8]> {
        let n = self.varint()?;
        self.take(n)
    }

    /// Steps over padding up to an alignment counted from the start of the file.
    pub fn align(&mut self, alignment: u64) -> Result<()> {
        if !alignment.is_power_of_two() || alignment > 1 << 16 {
            return self.bad(format!("an alignment of {alignment}"));
        }
        while !(self.at as u64).is_multiple_of(alignment) {
            if self.byte()? != 0xCB {
                return self.bad("a padding byte that is not CB");
            }
        }
        Ok(())
    }

    /// Refuses bytes left over.
    pub fn finish(&self, what: &str) -> Result<()> {
        if self.left() == 0 {
            return Ok(());
        }
        self.bad(format!("{} bytes left over at the end of {what}", self.left()))
    }
}

/// An index read at byte `at`, checked against the length of its table.
pub fn checked_index(v: u64, len: usize, what: &str, at: usize) -> Result<u32> {
    match u32::try_from(v) {
        Ok(i) if (i as usize) < len => Ok(i),
        _ => Err(Fault::malformed(at, format!("{what} {v} of a table of {len}"))),
    }
}

/// Bytes that should be UTF-8.
pub fn utf8(bytes: &[u8], at: usize) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Fault::malformed(at, "a name that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings of the format's description, one per length, and what must be refused.
    #[test]
    fn varints() {
        for (bytes, value) in [
            (&[0x01][..], 0),
            (&[0xFF], 127),
            (&[0x02, 0x00], 0),
            (&[0x02, 0x02], 128),
            (&[0xFE, 0xFF], 0x3FFF),
            (&[0x04, 0x00, 0x02], 0x4000),
            (&[0x80, 1, 2, 3, 4, 5, 6, 7], 0x0007_0605_0403_0201),
            (&[0x00, 1, 2, 3, 4, 5, 6, 7, 8], 0x0807_0605_0403_0201),
        ] {
            let mut c = Cursor::new(bytes);
            assert_eq!(c.varint().unwrap(), value, "{bytes:?}");
            c.finish("varint").unwrap();
            assert!(bytes.len() == 1 || Cursor::new(&bytes[..bytes.len() - 1]).varint().is_err());
        }
        assert!(Cursor::new(&[]).varint().is_err());
    }

    #[test]
    fn signed_varints_reach_both_ends() {
        let encode = |u: u64| [&[0u8][..], &u.to_le_bytes()].concat();
        for (u, v) in [(0, 0), (1, -1), (2, 1), (u64::MAX, i64::MIN), (u64::MAX - 1, i64::MAX)] {
            assert_eq!(Cursor::new(&encode(u)).svarint().unwrap(), v);
        }
    }

    #[test]
    fn counts_are_bounded_by_the_bytes_left() {
        assert!(Cursor::new(&[0x07, 0, 0]).count("items").is_err());
        assert_eq!(Cursor::new(&[0x05, 0, 0]).count("items").unwrap(), 2);
        assert!(Cursor::new(&[1; 8]).check_count(u64::MAX / 2, 3, "ops").is_err());
    }
}
