//! The program of a region as its graphs have it: values and their operands, nothing else.

use crate::recognise::engine::region::{At, Source};
use crate::recognise::probe::known::Known;
use crate::recognise::report::RegionReport;
use msc_ir::{Graph, Op, ValueDef, ValueId};
use smallvec::SmallVec;

/// A value: the index of its graph in the region, and which.
pub(super) type Place = (usize, ValueId);

/// The place of a value of a cut.
pub(super) fn place(at: &At) -> Place {
    (at.part, at.value)
}

/// The graphs of a region as they were before recognition.
pub(super) struct Program<'r> {
    report: &'r RegionReport,
}

impl<'r> Program<'r> {
    /// The program that a report is about.
    pub fn new(report: &'r RegionReport) -> Program<'r> {
        Program { report }
    }

    /// A graph.
    pub fn graph(&self, part: usize) -> &'r Graph {
        &self.report.sources[part]
    }

    fn source(&self, (part, v): Place) -> Option<Source> {
        match self.graph(part).value(v).def {
            ValueDef::Param(i) => self.report.specs[part].params.get(i as usize).copied(),
            ValueDef::Result(..) => None,
        }
    }

    /// The mask or index that a parameter from outside was read as.
    pub fn known(&self, at: Place) -> Option<Known> {
        match self.source(at) {
            Some(Source::Known(known)) => Some(known),
            _ => None,
        }
    }

    /// The values that a value is computed from directly; for a parameter the value of another graph that it is.
    pub fn operands(&self, at: Place) -> SmallVec<[Place; 4]> {
        let graph = self.graph(at.0);
        if let Some((op, i)) = graph.def(at.1) {
            let data = graph.op(op);
            // A barrier hands each operand on by itself.
            if matches!(data.op, Op::Barrier(_)) {
                return data.operands.get(i as usize).map(|&v| (at.0, v)).into_iter().collect();
            }
            return data.operands.iter().map(|&v| (at.0, v)).collect();
        }
        let from = match self.source(at) {
            Some(Source::Result { part, index }) => (part, self.graph(part).results().get(index)),
            Some(Source::Param { part, index }) => (part, self.graph(part).params().get(index)),
            _ => return SmallVec::new(),
        };
        from.1.map(|&v| (from.0, v)).into_iter().collect()
    }
}
