//! MLIR text, pretty and generic, as users dump StableHLO programs.
//!
//! One recursive-descent pass over the bytes, without a token list: dense constants are skipped over and decoded
//! by the importer, types are parsed once per spelling. Nesting is bounded, so hostile input ends in a message.
//! Syntax: MLIR language reference ("Operations", "Attributes", "Types"), StableHLO and Shardy op definitions.

mod attrs;
mod cursor;
mod dialect_attrs;
mod func;
mod locs;
mod ops;
mod pretty;
mod regions;
mod resources;
mod sdy;
mod types;

use crate::error::{Code, FrontendError, Result};
use crate::raw::{Attr, Form, LocRef, RawModule, TypeId, Values};
use rustc_hash::FxHashMap;

/// Deepest nesting of regions, attributes, types or locations that is read.
const MAX_DEPTH: u32 = 64;

/// Parses MLIR text. `file` is the file as the user named it, for messages.
///
/// # Errors
/// An error with place and excerpt for malformed text.
pub fn parse<'a>(file: &str, source: &'a [u8]) -> Result<RawModule<'a>> {
    let text = std::str::from_utf8(source).map_err(|e| {
        FrontendError::new(Code::Syntax, "the file is not UTF-8 text here")
            .help("msc reads MLIR text, MLIR bytecode and ONNX; is the file damaged?")
            .at_text(file, source, e.valid_up_to())
    })?;
    let mut p = Parser::new(file, text);
    p.file_body()?;
    Ok(p.m)
}

/// Parses one attribute in MLIR text, as MLIR bytecode holds some; its types are added to `module`.
///
/// # Errors
/// An error without a place for malformed text.
pub fn parse_attr<'a>(module: &mut RawModule<'a>, text: &'a str) -> Result<Attr<'a>> {
    let mut p = Parser::new(&module.file, text);
    std::mem::swap(&mut p.m, module);
    let attr = p.attr();
    p.skip_space();
    let rest = p.pos < text.len();
    std::mem::swap(&mut p.m, module);
    match attr {
        Ok(a) if !rest => Ok(a),
        Ok(_) => {
            Err(FrontendError::new(Code::Syntax, format!("unexpected text after the attribute `{text}`")))
        }
        Err(e) => Err(FrontendError::new(e.code(), format!("{} in `{text}`", e.diagnostic().message))),
    }
}

/// The parser's state.
struct Parser<'a> {
    text: &'a str,
    src: &'a [u8],
    pos: usize,
    m: RawModule<'a>,
    /// Types by spelling.
    spellings: FxHashMap<&'a str, TypeId>,
    type_aliases: FxHashMap<&'a str, TypeId>,
    /// Attribute aliases with the number of attributes each stands for.
    attr_aliases: FxHashMap<&'a str, (Attr<'a>, usize)>,
    /// What uses of attribute aliases have stood for so far.
    expanded: usize,
    /// Location aliases, entered at their first use or definition.
    loc_aliases: FxHashMap<&'a str, LocRef>,
    /// SSA names in scope.
    names: FxHashMap<&'a str, Values>,
    /// Names to restore where the current regions end.
    undo: Vec<(&'a str, Option<Values>)>,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn new(file: &str, text: &'a str) -> Parser<'a> {
        Parser {
            text,
            src: text.as_bytes(),
            pos: 0,
            m: RawModule::new(file, text.as_bytes(), Form::Text),
            spellings: FxHashMap::default(),
            type_aliases: FxHashMap::default(),
            attr_aliases: FxHashMap::default(),
            expanded: 0,
            loc_aliases: FxHashMap::default(),
            names: FxHashMap::default(),
            undo: Vec::new(),
            depth: 0,
        }
    }

    /// Runs `f` one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(Code::Limit, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    /// The whole file: alias definitions, ops (a module, or its content), resources.
    fn file_body(&mut self) -> Result<()> {
        loop {
            self.skip_space();
            match self.peek() {
                None => return Ok(()),
                Some(b'#') => self.attr_alias_def()?,
                Some(b'!') => self.type_alias_def()?,
                Some(b'{') if self.looking_at("{-#") => self.file_metadata()?,
                Some(_) => {
                    if let Some(op) = self.op()? {
                        self.m.body.push(op);
                    }
                }
            }
        }
    }
}
