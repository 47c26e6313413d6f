//! Canonical form: flat, folded, without dead code.
