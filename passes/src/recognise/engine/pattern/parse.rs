//! The text of patterns.

use super::{Head, Item, Number, Pattern, Place};

/// The tokens of a pattern that are left.
pub(super) struct Tokens {
    pub(super) rest: &'static str,
}

impl Tokens {
    pub(super) fn next(&mut self) -> Option<&'static str> {
        self.rest = self.rest.trim_start();
        let n = match self.rest.chars().next()? {
            '(' | ')' => 1,
            _ => {
                self.rest.find(|c: char| c.is_whitespace() || c == '(' || c == ')').unwrap_or(self.rest.len())
            }
        };
        let (token, rest) = self.rest.split_at(n);
        self.rest = rest;
        Some(token)
    }

    fn peek(&self) -> Option<&'static str> {
        Tokens { rest: self.rest }.next()
    }

    fn close(&mut self) -> Result<(), String> {
        match self.next() {
            Some(")") => Ok(()),
            t => Err(format!("expected `)`, found {t:?}")),
        }
    }

    fn until_close<T>(
        &mut self,
        mut f: impl FnMut(&mut Tokens) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut out = Vec::new();
        while self.peek() != Some(")") {
            out.push(f(self)?);
        }
        self.close()?;
        Ok(out)
    }

    pub(super) fn pattern(&mut self) -> Result<Pattern, String> {
        match self.next().ok_or("the pattern ends early")? {
            "(" => {
                let head = self.next().ok_or("the pattern ends early")?;
                match head {
                    "product" => Ok(Pattern::Product(self.until_close(Tokens::item)?)),
                    "sum" => {
                        let (terms, rest) = self.terms()?;
                        Ok(Pattern::Sum(terms, rest))
                    }
                    "polynomial" => {
                        let (terms, rest) = self.terms()?;
                        Ok(Pattern::Polynomial(terms, rest))
                    }
                    "multiplied" => {
                        let expression = self.pattern()?;
                        self.close()?;
                        Ok(Pattern::Multiplied(Box::new(expression)))
                    }
                    "or" => Ok(Pattern::Or(self.until_close(Tokens::pattern)?)),
                    "as" => {
                        let name = self.next().and_then(|t| t.strip_prefix('?'));
                        let name = name.ok_or("`as` takes a variable and a pattern")?;
                        let inner = Box::new(self.pattern()?);
                        self.close()?;
                        Ok(Pattern::As(name, inner))
                    }
                    word => {
                        let head = Head::parse(word)?;
                        Ok(Pattern::Op(head, self.until_close(Tokens::pattern)?))
                    }
                }
            }
            ")" => Err("a `)` where a pattern should stand".into()),
            word => match word.strip_prefix('?') {
                Some(v) => Ok(match v.split_once(':') {
                    Some((v, "const")) => Pattern::Const(v),
                    Some((v, "scalar")) => Pattern::Scalar(v),
                    Some(_) => return Err(format!("`{word}` is no kind of variable")),
                    None => Pattern::Var(v),
                }),
                None if word == "D" => Ok(Pattern::Number(Number::RowSize)),
                None => Ok(Pattern::Number(match word.strip_suffix("/D") {
                    Some(n) => Number::PerRow(n.parse().map_err(|_| format!("`{word}` is no number"))?),
                    None => Number::Literal(word.parse().map_err(|_| format!("`{word}` is no number"))?),
                })),
            },
        }
    }

    /// The terms of a sum and the variable for what is left, up to the closing parenthesis.
    fn terms(&mut self) -> Result<(Vec<Pattern>, Option<&'static str>), String> {
        let mut rest = None;
        let mut terms = Vec::new();
        while self.peek() != Some(")") {
            match self.peek().and_then(|t| t.strip_prefix('?')?.strip_suffix('*')) {
                Some(name) => {
                    self.next();
                    rest = Some(name);
                }
                None => terms.push(self.pattern()?),
            }
        }
        self.close()?;
        Ok((terms, rest))
    }

    fn item(&mut self) -> Result<Item, String> {
        let wrapped = |t: &mut Tokens, word: &str| {
            let mut ahead = Tokens { rest: t.rest };
            let hit = ahead.next() == Some("(") && ahead.next() == Some(word);
            if hit {
                t.rest = ahead.rest;
            }
            hit
        };
        for (word, place) in [("rows", Place::Rows), ("cols", Place::Cols), ("scalars", Place::Scalars)] {
            if wrapped(self, word) {
                let inner = self.item()?;
                self.close()?;
                return Ok(Item { place, ..inner });
            }
        }
        if wrapped(self, "maybe") {
            let inner = self.item()?;
            self.close()?;
            return Ok(Item { optional: true, ..inner });
        }
        if wrapped(self, "pow") {
            let inner = self.item()?;
            let e = self.next().ok_or("the pattern ends early")?;
            let halves = match e.strip_suffix("/2") {
                Some(n) => n.parse::<i16>().ok(),
                None => e.parse::<i16>().ok().map(|n| 2 * n),
            };
            self.close()?;
            let halves = halves.ok_or(format!("`{e}` is no exponent"))?;
            return Ok(Item { halves: inner.halves * halves / 2, ..inner });
        }
        Ok(Item { place: Place::Full, halves: 2, optional: false, pattern: self.pattern()? })
    }
}
