//! The file's trailing `{-# … #-}`: blobs of `dense_resource` constants.

use super::Parser;
use crate::error::{Code, Result};
use crate::raw::DenseData;

/// Hexadecimal digits of a blob's leading alignment (a 32-bit number).
const ALIGNMENT_DIGITS: usize = 8;

impl<'a> Parser<'a> {
    /// `{-# dialect_resources: { dialect: { key: "0x…", … } }, external_resources: … #-}`
    pub(super) fn file_metadata(&mut self) -> Result<()> {
        self.expect("{-#")?;
        while !self.eat("#-}") {
            let section = self.key()?;
            self.expect(":")?;
            if section == "dialect_resources" {
                self.list("{", "}", |p| {
                    p.key()?;
                    p.expect(":")?;
                    p.list("{", "}", Self::resource)
                })?;
            } else {
                self.balanced()?;
            }
            if !self.eat(",") {
                self.expect("#-}")?;
                break;
            }
        }
        Ok(())
    }

    fn resource(&mut self) -> Result<()> {
        let key = self.key()?;
        self.expect(":")?;
        let at = self.pos;
        if self.peek_token() != Some(b'"') {
            // A resource that is not a blob.
            self.word();
            return Ok(());
        }
        self.pos += 1;
        let start = self.pos;
        let Some(n) = memchr::memchr(b'"', &self.src[start..]) else {
            return Err(self.error_at(at, Code::Syntax, "the blob that starts here does not end"));
        };
        self.pos = start + n + 1;
        if let Some(digits) = self.src[start..start + n].strip_prefix(b"0x") {
            if digits.len() < ALIGNMENT_DIGITS {
                return Err(self.error_at(at, Code::Constant, "the blob has no alignment prefix"));
            }
            self.m.resources.insert(key, DenseData::Hex(&digits[ALIGNMENT_DIGITS..]));
        }
        Ok(())
    }

    /// A key: bare or quoted.
    fn key(&mut self) -> Result<std::borrow::Cow<'a, str>> {
        if self.peek_token() == Some(b'"') { self.string() } else { self.suffix_name().map(Into::into) }
    }
}
