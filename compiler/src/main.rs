//! The `msc` command.
fn main() {}
