//! The `.msc` text form: what golden snapshots, filetests and `--emit` show.
//!
//! ```text
//! module @step mesh [tp = 2]
//!
//! graph @main(%0: f32[4,8], %1: f32[8]) {
//!   %2 = broadcast_in_dim %1 {dims = [1], shape = [4, 8]} : f32[4,8]
//!   %3 = add %0, %2 : f32[4,8]
//!   return %3
//! }
//!
//! entry "train" @main {
//!   param "w" alias 0 sharding [[0], []]
//!   param "x"
//!   result "w"
//! }
//! ```
//!
//! Values are numbered in order of definition; attributes are in name order; constants are written where they
//! are used, splats as `splat`, others as hexadecimal little-endian bytes. A graph comes after the graphs it
//! calls. Names with other characters than letters, digits, `_`, `.`, `-` and `+` are quoted: `@"f$1"`. `parse(print(m))` prints the same text again. Source locations are printed on request, as
//! `loc("file":line:column, "name")` after the types.

mod lexer;
mod parse;
mod print;

pub use parse::parse;
pub use print::{PrintOptions, print, print_graph, print_with};
