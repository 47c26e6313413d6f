//! msc: to be written.
