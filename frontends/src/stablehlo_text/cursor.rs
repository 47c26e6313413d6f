//! The lowest level: bytes, spaces, names, numbers, strings.

use super::Parser;
use crate::error::{Code, FrontendError, Result};
use std::borrow::Cow;

/// Whether a byte may stand in a bare identifier, an SSA name or an alias.
pub(super) fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$')
}

impl<'a> Parser<'a> {
    /// An error at the current place.
    pub(super) fn error(&self, code: Code, message: impl Into<String>) -> FrontendError {
        self.error_at(self.pos, code, message)
    }

    /// An error at byte `at`.
    pub(super) fn error_at(&self, at: usize, code: Code, message: impl Into<String>) -> FrontendError {
        FrontendError::new(code, message).at_text(&self.m.file, self.src, at)
    }

    /// A syntax error that says what should stand here.
    pub(super) fn expected(&self, what: &str) -> FrontendError {
        let found = match self.text[self.pos..].chars().next() {
            None => "the end of the file".to_string(),
            Some(c) => format!("`{c}`"),
        };
        let e = self.error(Code::Syntax, format!("expected {what}, found {found}"));
        if self.pos >= self.src.len() { e.help("the file may be truncated; export it again") } else { e }
    }

    /// The byte here, spaces not skipped.
    pub(super) fn peek(&self) -> Option<u8> {
        self.src.get(self.pos).copied()
    }

    /// The byte here after spaces.
    pub(super) fn peek_token(&mut self) -> Option<u8> {
        self.skip_space();
        self.peek()
    }

    /// Skips white space and comments.
    pub(super) fn skip_space(&mut self) {
        while let Some(&b) = self.src.get(self.pos) {
            match b {
                b' ' | b'\n' | b'\t' | b'\r' => self.pos += 1,
                b'/' if self.src.get(self.pos + 1) == Some(&b'/') => {
                    self.pos =
                        memchr::memchr(b'\n', &self.src[self.pos..]).map_or(self.src.len(), |n| self.pos + n);
                }
                _ => return,
            }
        }
    }

    /// Whether the text here starts with `s`.
    pub(super) fn looking_at(&self, s: &str) -> bool {
        self.src[self.pos..].starts_with(s.as_bytes())
    }

    /// Takes punctuation `s` if it is next.
    pub(super) fn eat(&mut self, s: &str) -> bool {
        self.skip_space();
        let yes = self.looking_at(s);
        if yes {
            self.pos += s.len();
        }
        yes
    }

    /// Takes punctuation `s`.
    pub(super) fn expect(&mut self, s: &str) -> Result<()> {
        if self.eat(s) { Ok(()) } else { Err(self.expected(&format!("`{s}`"))) }
    }

    /// Takes the word `w` if it is next and ends there.
    pub(super) fn eat_word(&mut self, w: &str) -> bool {
        self.skip_space();
        let end = self.pos + w.len();
        let yes = self.looking_at(w) && !self.src.get(end).is_some_and(|&b| is_word(b));
        if yes {
            self.pos = end;
        }
        yes
    }

    /// The bare identifier here (`[a-zA-Z0-9_.$]*`), empty if there is none.
    pub(super) fn word(&mut self) -> &'a str {
        self.skip_space();
        let start = self.pos;
        while self.src.get(self.pos).is_some_and(|&b| is_word(b)) {
            self.pos += 1;
        }
        &self.text[start..self.pos]
    }

    /// A bare identifier that must be there.
    pub(super) fn expect_word(&mut self, what: &str) -> Result<&'a str> {
        let w = self.word();
        if w.is_empty() { Err(self.expected(what)) } else { Ok(w) }
    }

    /// The rest of a name after its sigil: `[a-zA-Z0-9_.$-]*`.
    pub(super) fn suffix_name(&mut self) -> Result<&'a str> {
        let start = self.pos;
        while self.src.get(self.pos).is_some_and(|&b| is_word(b) || b == b'-') {
            self.pos += 1;
        }
        if self.pos == start {
            return Err(self.expected("a name"));
        }
        Ok(&self.text[start..self.pos])
    }

    /// `@name` or `@"name"`, nested references joined by `::`.
    pub(super) fn symbol(&mut self) -> Result<Cow<'a, str>> {
        self.expect("@")?;
        let mut s = self.symbol_name()?;
        while self.looking_at("::@") {
            self.pos += 3;
            s = format!("{s}::{}", self.symbol_name()?).into();
        }
        Ok(s)
    }

    fn symbol_name(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() == Some(b'"') { self.string() } else { self.suffix_name().map(Cow::Borrowed) }
    }

    /// A quoted string without its escapes.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>> {
        self.expect("\"")?;
        let start = self.pos;
        let mut escaped = false;
        loop {
            match memchr::memchr2(b'"', b'\\', &self.src[self.pos..]) {
                None => {
                    self.pos = start - 1;
                    return Err(self
                        .error(Code::Syntax, "the string that starts here does not end")
                        .help("the file may be truncated; export it again"));
                }
                Some(n) if self.src[self.pos + n] == b'"' => {
                    self.pos += n;
                    break;
                }
                Some(n) => {
                    escaped = true;
                    self.pos = (self.pos + n + 2).min(self.src.len());
                }
            }
        }
        let body = &self.src[start..self.pos];
        self.pos += 1;
        if escaped {
            return Ok(Cow::Owned(String::from_utf8_lossy(&unescape(body)).into_owned()));
        }
        // A slice between two ASCII quotes of valid text is valid text.
        Ok(Cow::Borrowed(&self.text[start..self.pos - 1]))
    }

    /// A decimal integer with an optional sign.
    pub(super) fn int(&mut self) -> Result<i64> {
        self.skip_space();
        let start = self.pos;
        if self.peek() == Some(b'-') {
            self.pos += 1;
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.pos += 1;
        }
        self.text[start..self.pos].parse().map_err(|_| {
            self.pos = start;
            self.expected("an integer")
        })
    }

    /// A line or column number; one that does not fit is cut to the greatest.
    pub(super) fn line_number(&mut self) -> Result<u32> {
        let n = self.int()?;
        Ok(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
    }

    /// Items between `open` and `close`, separated by commas.
    pub(super) fn list(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.expect(open)?;
        if self.eat(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.eat(",") {
                return self.expect(close);
            }
        }
    }

    /// Whether an empty list or one that starts with an integer is next.
    pub(super) fn at_int_list(&mut self) -> bool {
        if self.peek_token() != Some(b'[') {
            return false;
        }
        let start = self.pos;
        self.pos += 1;
        let first = self.peek_token();
        self.pos = start;
        matches!(first, Some(b'0'..=b'9' | b'-' | b']'))
    }

    /// `[1, 2, 3]`.
    pub(super) fn int_list(&mut self) -> Result<Vec<i64>> {
        let mut v = Vec::new();
        self.list("[", "]", |p| {
            v.push(p.int()?);
            Ok(())
        })?;
        Ok(v)
    }

    /// The text from here through the bracket that closes the one here, strings and nested brackets included.
    pub(super) fn balanced(&mut self) -> Result<&'a str> {
        self.skip_space();
        let start = self.pos;
        let mut open: Vec<u8> = Vec::new();
        while let Some(b) = self.peek() {
            match b {
                b'<' | b'(' | b'[' | b'{' => open.push(b),
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'-' if self.looking_at("->") => self.pos += 1,
                b'>' | b')' | b']' | b'}' => {
                    let want = match b {
                        b'>' => b'<',
                        b')' => b'(',
                        b']' => b'[',
                        _ => b'{',
                    };
                    if open.pop() != Some(want) {
                        return Err(self.expected("a matching bracket"));
                    }
                    if open.is_empty() {
                        self.pos += 1;
                        return Ok(&self.text[start..self.pos]);
                    }
                }
                _ => {}
            }
            self.pos += 1;
        }
        self.pos = start;
        Err(self.error(Code::Syntax, "the bracket here is not closed"))
    }
}

/// MLIR's escapes: `\n`, `\t`, `\"`, `\\` and two hexadecimal digits.
fn unescape(s: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(s.len());
    let mut i = 0;
    let hex = |b: Option<&u8>| b.and_then(|b| (*b as char).to_digit(16));
    while let Some(&b) = s.get(i) {
        if b != b'\\' {
            out.push(b);
            i += 1;
            continue;
        }
        match (hex(s.get(i + 1)), hex(s.get(i + 2))) {
            (Some(a), Some(b)) => {
                out.push((a * 16 + b) as u8);
                i += 3;
            }
            _ => {
                match s.get(i + 1) {
                    Some(b'n') => out.push(b'\n'),
                    Some(b't') => out.push(b'\t'),
                    Some(&c) => out.push(c),
                    None => {}
                }
                i += 2;
            }
        }
    }
    out
}
