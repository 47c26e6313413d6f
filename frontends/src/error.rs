//! Errors of the front ends, each with a code (`MSC-F…`), its place in the user's file and an excerpt.

use std::fmt;

/// Shorthand for a result with a [`FrontendError`].
pub type Result<T> = std::result::Result<T, FrontendError>;

/// What went wrong. Everything but [`Code::Internal`] is about the input.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Code {
    /// The file cannot be read.
    Io,
    /// The content is of no known format.
    Format,
    /// Malformed text or bytecode.
    Syntax,
    /// A value, symbol, alias or resource that is not defined, or is defined twice.
    Name,
    /// A type in the file is not the one the op has.
    Type,
    /// An attribute is missing or malformed.
    Attribute,
    /// A dense constant does not fit its type.
    Constant,
    /// An op that msc does not have.
    UnknownOp,
    /// A type that msc does not hold: dynamic dimensions, complex, quantised, tokens.
    UnsupportedType,
    /// A form of a known op that msc does not hold.
    UnsupportedForm,
    /// The op's operands or attributes break the op's rules.
    Invalid,
    /// A `custom_call` of an unknown target.
    CustomCall,
    /// Nesting, counts or sizes beyond what msc reads.
    Limit,
    /// No entry function, recursive functions, or a signature that does not fit.
    Program,
    /// A bug in msc.
    Internal,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 15] = [
        Code::Io,
        Code::Format,
        Code::Syntax,
        Code::Name,
        Code::Type,
        Code::Attribute,
        Code::Constant,
        Code::UnknownOp,
        Code::UnsupportedType,
        Code::UnsupportedForm,
        Code::Invalid,
        Code::CustomCall,
        Code::Limit,
        Code::Program,
        Code::Internal,
    ];

    /// The code as it is written.
    pub fn id(self) -> &'static str {
        match self {
            Code::Io => "MSC-F0001",
            Code::Format => "MSC-F0002",
            Code::Syntax => "MSC-F0003",
            Code::Name => "MSC-F0004",
            Code::Type => "MSC-F0005",
            Code::Attribute => "MSC-F0006",
            Code::Constant => "MSC-F0007",
            Code::UnknownOp => "MSC-F0008",
            Code::UnsupportedType => "MSC-F0009",
            Code::UnsupportedForm => "MSC-F0010",
            Code::Invalid => "MSC-F0011",
            Code::CustomCall => "MSC-F0012",
            Code::Limit => "MSC-F0013",
            Code::Program => "MSC-F0014",
            Code::Internal => "MSC-F0099",
        }
    }

    /// Whether the error is msc's own fault rather than the input's.
    pub fn is_internal(self) -> bool {
        self == Code::Internal
    }
}

/// A place in a text file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A place in text.
    Text {
        /// The file as the user named it.
        file: String,
        /// 1-based line.
        line: usize,
        /// 1-based column, in bytes.
        column: usize,
        /// The part of the line around the column.
        excerpt: String,
        /// Where in the excerpt the column is, in characters.
        caret: usize,
    },
    /// A place in a binary file.
    Bytes {
        /// The file as the user named it.
        file: String,
        /// Byte offset.
        offset: usize,
    },
}

/// An error of a front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontendError(Box<Diagnostic>);

/// What an error says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Which kind of error.
    pub code: Code,
    /// What is wrong, naming the thing as the user does.
    pub message: String,
    /// Where.
    pub place: Option<Place>,
    /// What to do.
    pub help: Option<String>,
}

impl FrontendError {
    /// An error without a place.
    pub fn new(code: Code, message: impl Into<String>) -> FrontendError {
        FrontendError(Box::new(Diagnostic { code, message: message.into(), place: None, help: None }))
    }

    /// Adds advice.
    pub fn help(mut self, help: impl Into<String>) -> FrontendError {
        self.0.help = Some(help.into());
        self
    }

    /// Adds the place at byte `offset` of a text, unless there is one.
    pub fn at_text(mut self, file: &str, source: &[u8], offset: usize) -> FrontendError {
        if self.0.place.is_none() {
            self.0.place = Some(text_place(file, source, offset));
        }
        self
    }

    /// Adds the place at byte `offset` of a binary file, unless there is one.
    pub fn at_bytes(mut self, file: &str, offset: usize) -> FrontendError {
        if self.0.place.is_none() {
            self.0.place = Some(Place::Bytes { file: file.to_string(), offset });
        }
        self
    }

    /// What the error says.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0
    }

    /// Which kind of error.
    pub fn code(&self) -> Code {
        self.0.code
    }
}

/// Most characters of a line that an excerpt shows.
const EXCERPT: usize = 120;

fn text_place(file: &str, source: &[u8], offset: usize) -> Place {
    let offset = offset.min(source.len());
    let before = &source[..offset];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
    let end = source[offset..].iter().position(|&b| b == b'\n').map_or(source.len(), |p| offset + p);
    // Long lines (whole signatures, constants) are cut around the caret.
    let from = if offset - start > EXCERPT * 2 / 3 { offset - EXCERPT / 2 } else { start };
    let to = end.min(from + EXCERPT);
    let clean = |b: &[u8]| String::from_utf8_lossy(b).replace(|c: char| c.is_control(), " ");
    let lead = if from > start { "… " } else { "" };
    let head = clean(&source[from..offset.min(to)]);
    let tail = clean(&source[offset.min(to)..to]);
    let more = if to < end { " …" } else { "" };
    Place::Text {
        file: file.to_string(),
        line,
        column: offset - start + 1,
        caret: lead.chars().count() + head.chars().count(),
        excerpt: format!("{lead}{head}{tail}{more}"),
    }
}

impl fmt::Display for FrontendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = &*self.0;
        write!(f, "{}: {}", d.code.id(), d.message)?;
        match &d.place {
            Some(Place::Text { file, line, column, excerpt, caret }) => {
                let number = line.to_string();
                let pad = " ".repeat(number.len());
                write!(f, "\n{pad}--> {file}:{line}:{column}\n{pad} |\n{number} | {excerpt}\n{pad} | ")?;
                write!(f, "{}^", " ".repeat(*caret))?;
            }
            Some(Place::Bytes { file, offset }) => write!(f, "\n --> {file}, byte {offset}")?,
            None => {}
        }
        if let Some(help) = &d.help {
            write!(f, "\nhelp: {help}")?;
        }
        if d.code.is_internal() {
            write!(f, "\nThis is a bug in msc: please report it, with the file if you can.")?;
        }
        Ok(())
    }
}

impl std::error::Error for FrontendError {}
