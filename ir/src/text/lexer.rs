//! Tokens of the text form.

use crate::error::{IrError, Result};
use std::borrow::Cow;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A word: letters, digits, `_` and `.`; or a number, sign and exponent included.
    Word(&'a str),
    /// `@name`, or `@"any text"`.
    At(Cow<'a, str>),
    /// `%number`.
    Value(u32),
    /// A quoted string, escapes resolved.
    Text(String),
    /// A punctuation character.
    Punct(char),
    /// The end.
    End,
}

/// A lexer with one token of look-ahead.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    token: Token<'a>,
    start: usize,
}

/// Whether words and bare names consist of such characters.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '+')
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Result<Lexer<'a>> {
        let mut l = Lexer { text, at: 0, token: Token::End, start: 0 };
        l.advance()?;
        Ok(l)
    }

    /// The current token.
    pub(super) fn peek(&self) -> &Token<'a> {
        &self.token
    }

    /// The current token; moves to the next.
    pub(super) fn next(&mut self) -> Result<Token<'a>> {
        let t = std::mem::replace(&mut self.token, Token::End);
        self.advance()?;
        Ok(t)
    }

    /// Consumes the punctuation if it is next.
    pub(super) fn eat(&mut self, c: char) -> Result<bool> {
        let hit = self.token == Token::Punct(c);
        if hit {
            self.advance()?;
        }
        Ok(hit)
    }

    /// Consumes the word if it is next.
    pub(super) fn eat_word(&mut self, w: &str) -> Result<bool> {
        let hit = self.token == Token::Word(w);
        if hit {
            self.advance()?;
        }
        Ok(hit)
    }

    /// Consumes the punctuation or fails.
    pub(super) fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c)? { Ok(()) } else { Err(self.error(format!("expected `{c}`"))) }
    }

    /// A word, or fails.
    pub(super) fn word(&mut self) -> Result<&'a str> {
        let Token::Word(w) = self.token else { return Err(self.error("expected a word")) };
        self.advance()?;
        Ok(w)
    }

    /// A quoted string, or fails.
    pub(super) fn text(&mut self) -> Result<String> {
        let Token::Text(t) = self.token.clone() else { return Err(self.error("expected a quoted string")) };
        self.advance()?;
        Ok(t)
    }

    /// An `@name`, or fails.
    pub(super) fn name(&mut self) -> Result<Cow<'a, str>> {
        let Token::At(n) = &self.token else { return Err(self.error("expected a name with `@`")) };
        let n = n.clone();
        self.advance()?;
        Ok(n)
    }

    /// A number of any integer type, or fails.
    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        let Token::Word(w) = self.token else { return Err(self.error("expected a number")) };
        let n = w.parse().map_err(|_| self.error(format!("`{w}` is not a number that fits here")))?;
        self.advance()?;
        Ok(n)
    }

    /// Where the current token starts.
    pub(super) fn place(&self) -> usize {
        self.start
    }

    /// An error at the current token.
    pub(super) fn error(&self, message: impl Into<String>) -> IrError {
        self.error_at(self.start, message)
    }

    /// An error at an earlier [`Lexer::place`].
    pub(super) fn error_at(&self, place: usize, message: impl Into<String>) -> IrError {
        let before = &self.text[..place.min(self.text.len())];
        let line = before.matches('\n').count() as u32 + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) as u32 + 1;
        IrError::Parse { line, column, message: message.into() }
    }

    fn advance(&mut self) -> Result<()> {
        let b = self.text.as_bytes();
        loop {
            match b.get(self.at) {
                Some(c) if c.is_ascii_whitespace() => self.at += 1,
                Some(b';') => {
                    while b.get(self.at).is_some_and(|&c| c != b'\n') {
                        self.at += 1;
                    }
                }
                _ => break,
            }
        }
        self.start = self.at;
        let rest = &self.text[self.at..];
        let Some(c) = rest.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        let word_len = |s: &str| s.find(|c| !is_word(c)).unwrap_or(s.len());
        self.token = match c {
            '@' if rest[1..].starts_with('"') => {
                self.at += 1;
                let Token::Text(name) = self.string(&rest[1..])? else {
                    return Err(self.error("expected a name with `@`"));
                };
                Token::At(name.into())
            }
            '@' => {
                let n = word_len(&rest[1..]);
                self.at += 1 + n;
                Token::At(Cow::Borrowed(&rest[1..1 + n]))
            }
            '%' => {
                let n = word_len(&rest[1..]);
                self.at += 1 + n;
                let id = rest[1..1 + n].parse().map_err(|_| self.error("expected a value number"))?;
                Token::Value(id)
            }
            '"' => self.string(rest)?,
            c if is_word(c) => {
                let n = word_len(rest);
                self.at += n;
                Token::Word(&rest[..n])
            }
            c => {
                self.at += c.len_utf8();
                Token::Punct(c)
            }
        };
        Ok(())
    }

    fn string(&mut self, rest: &str) -> Result<Token<'a>> {
        let mut out = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(Token::Text(out));
                }
                '\\' => match chars.next().map(|(_, e)| e) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('0') => out.push('\0'),
                    Some('u') => out.push(unicode(&mut chars).ok_or_else(|| self.error("malformed escape"))?),
                    Some(e @ ('"' | '\\' | '\'')) => out.push(e),
                    _ => return Err(self.error("malformed escape")),
                },
                c => out.push(c),
            }
        }
        Err(self.error("the string does not end"))
    }
}

/// The `{hex}` of a `\u{hex}` escape.
fn unicode(chars: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    let mut code = 0u32;
    if chars.next()?.1 != '{' {
        return None;
    }
    for (_, c) in chars {
        match c {
            '}' => return char::from_u32(code),
            c => code = code.checked_mul(16)?.checked_add(c.to_digit(16)?)?,
        }
    }
    None
}
