//! Repeated layers: one graph per segment, called once per instance.
