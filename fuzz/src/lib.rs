//! What the fuzz targets have in common: the promises they check, and a mutator for text.
//!
//! A reader of foreign bytes must return. What it returns is checked too: an imported module verifies and is told
//! by its own text, and an error never says that msc itself is at fault.

mod tokens;

pub use tokens::mutate;

use msc_frontends::layout::Layout;
use msc_frontends::{FrontendError, Imported};
use msc_ir::Module;
use msc_ir::text::{parse, print};

/// Checks what a front end made of an input.
///
/// # Panics
/// If a promise is broken: that is a finding.
pub fn imported(result: Result<Imported, FrontendError>) {
    match result {
        Ok(i) => {
            module(&i.module);
            if let Err(e) = Layout::of(&i) {
                refusal(&e);
            }
        }
        Err(e) => refusal(&e),
    }
}

fn refusal(e: &FrontendError) {
    assert!(!e.code().is_internal(), "an input made msc blame itself: {e}");
    // Excerpts are cut out of the input, and must not fail either.
    assert!(!e.to_string().is_empty());
}

/// Checks a module that a reader returned.
///
/// # Panics
/// If it does not verify, or if its text gives another module.
pub fn module(m: &Module) {
    if let Err(e) = msc_ir::verify::verify(m) {
        panic!("the module does not verify: {e}");
    }
    let text = print(m);
    match parse(&text) {
        Ok(again) => assert_eq!(text, print(&again), "the text of a module gives another module"),
        Err(e) => panic!("the module's own text is refused: {e}\n{text}"),
    }
}
