//! Functions → graphs, callees before callers.

use super::Importer;
use crate::error::{Code, FrontendError, Result};
use crate::raw::{Attr, Block, RawOp, attr};
use msc_ir::{Graph, GraphId, ValueId};
use std::collections::BTreeMap;

/// Longest chain of calls that is read.
const MAX_CALL_DEPTH: usize = 256;

impl<'r, 'a> Importer<'r, 'a> {
    /// Imports the entry and every function that it reaches.
    pub(super) fn program(&mut self) -> Result<()> {
        self.module_annotations()?;
        let mut functions: BTreeMap<&'r str, &'r RawOp<'a>> = BTreeMap::new();
        let mut public = Vec::new();
        for op in &self.raw.body {
            match op.name.as_ref() {
                "func.func" => {
                    let name = self.function_name(op)?;
                    if functions.insert(name, op).is_some() {
                        return Err(self.error(op, Code::Name, format!("there are two functions @{name}")));
                    }
                    let visibility = self.word(op, "sym_visibility")?.unwrap_or("");
                    if !matches!(visibility, "private" | "nested") {
                        public.push(name);
                    }
                }
                "sdy.mesh" => self.mesh(op)?,
                other => {
                    if let Some(e) = crate::foreign::refuse(other) {
                        return Err(self.place(op, e));
                    }
                    let message = format!("{other} is not held outside a function");
                    return Err(self.error(op, Code::UnknownOp, message));
                }
            }
        }
        let entry = match (functions.get_key_value("main"), &public[..], functions.len()) {
            (Some((name, _)), _, _) => *name,
            (None, [one], _) => one,
            (None, [], 1) => functions.keys().next().copied().unwrap_or_default(),
            (None, _, 0) => {
                return Err(FrontendError::new(Code::Program, format!("{} has no function", self.raw.file)));
            }
            _ => {
                let names: Vec<String> = functions.keys().map(|n| format!("@{n}")).collect();
                return Err(FrontendError::new(
                    Code::Program,
                    format!(
                        "{} has no function @main, and several others: {}",
                        self.raw.file,
                        names.join(", ")
                    ),
                ));
            }
        };
        for name in self.callees_first(entry, &functions)? {
            self.function(name, functions[name])?;
        }
        self.entry(entry, functions[entry])
    }

    fn function_name(&self, op: &'r RawOp<'a>) -> Result<&'r str> {
        match self.need(op, "sym_name")? {
            Attr::Str(s) | Attr::Symbol(s) => Ok(s),
            _ => Err(self.bad_attr(op, "sym_name", "should be a string")),
        }
    }

    /// Functions that `entry` reaches, each behind those it calls.
    fn callees_first(
        &self,
        entry: &'r str,
        functions: &BTreeMap<&'r str, &'r RawOp<'a>>,
    ) -> Result<Vec<&'r str>> {
        let mut order = Vec::new();
        // 1: on the path, 2: done.
        let mut state: BTreeMap<&str, u8> = BTreeMap::from([(entry, 1)]);
        let mut path = vec![(entry, calls(functions[entry]))];
        while let Some((name, pending)) = path.last_mut() {
            let name = *name;
            let Some((callee, site)) = pending.pop() else {
                state.insert(name, 2);
                order.push(name);
                path.pop();
                continue;
            };
            match (functions.get_key_value(callee), state.get(callee)) {
                (None, _) => {
                    let message = format!("{} refers to @{callee}, which is not in the file", site.name);
                    return Err(self.error(site, Code::Name, message));
                }
                (_, Some(1)) => {
                    return Err(self.error(site, Code::Program, format!("@{callee} calls itself")));
                }
                (_, Some(_)) => {}
                (Some((&callee, function)), None) => {
                    if path.len() >= MAX_CALL_DEPTH {
                        let message = format!("calls are nested deeper than {MAX_CALL_DEPTH}");
                        return Err(self.error(site, Code::Limit, message));
                    }
                    state.insert(callee, 1);
                    path.push((callee, calls(function)));
                }
            }
        }
        Ok(order)
    }

    /// Imports one function.
    fn function(&mut self, name: &'r str, op: &'r RawOp<'a>) -> Result<()> {
        let [region] = &op.regions[..] else {
            return Err(self.error(op, Code::Program, format!("@{name} has no body")));
        };
        let body = self.single_block(op, region)?;
        self.graph = Graph::new(name);
        self.block_params(op, body)?;
        let results = self.block(op, &body.ops, &["func.return"])?;
        self.check_results(op, &results)?;
        self.graph.set_results(results);
        self.forget();
        let graph = std::mem::take(&mut self.graph);
        let graph = self.finish_graph(graph);
        self.graphs.insert(name, graph);
        Ok(())
    }

    /// Gives the current graph a parameter per argument of a block.
    pub(super) fn block_params(&mut self, op: &RawOp<'a>, block: &Block<'a>) -> Result<()> {
        for v in block.args.iter() {
            let ty = self.tensor_type(self.raw.values[v.0 as usize]).map_err(|e| self.place(op, e))?;
            let p = self.graph.add_param(ty);
            self.bind(v, p);
        }
        Ok(())
    }

    /// Adds a graph to the module, and its constraints to the annotations.
    pub(super) fn finish_graph(&mut self, graph: Graph) -> GraphId {
        let id = self.module.add_graph(graph);
        for (value, hint) in std::mem::take(&mut self.constraints) {
            self.annotations.shardings.push((super::Site::Value(id, value), hint));
        }
        id
    }

    /// Imports a block's ops into the current graph and returns what its terminator (one of `ends`) returns.
    pub(super) fn block(
        &mut self,
        parent: &RawOp<'a>,
        ops: &'r [RawOp<'a>],
        ends: &[&str],
    ) -> Result<Vec<ValueId>> {
        let Some((last, ops)) = ops.split_last() else {
            return Err(self.error(parent, Code::Invalid, format!("a block of {} is empty", parent.name)));
        };
        for op in ops {
            self.op(op)?;
        }
        if !ends.contains(&last.name.as_ref()) {
            let message = format!("a block ends with {} where {} was expected", last.name, ends[0]);
            return Err(self.error(last, Code::Invalid, message));
        }
        Ok(self.operands(last)?.into_vec())
    }

    /// Checks the returned values against the function's type.
    fn check_results(&mut self, op: &RawOp<'a>, results: &[ValueId]) -> Result<()> {
        let Some(Attr::Type(ty)) = op.attr("function_type") else {
            return Err(self.bad_attr(op, "function_type", "is missing"));
        };
        let crate::raw::Type::Function { results: want, .. } = self.raw.types.get(*ty) else {
            return Err(self.bad_attr(op, "function_type", "is not a function type"));
        };
        if want.len() != results.len() {
            let message =
                format!("the function returns {} values, its type says {}", results.len(), want.len());
            return Err(self.error(op, Code::Type, message));
        }
        for (i, (&v, &w)) in results.iter().zip(want).enumerate() {
            let w = self.tensor_type(w).map_err(|e| self.place(op, e))?;
            if *self.graph.ty(v) != w {
                let message = format!("result {i} is {}, the function's type says {w}", self.graph.ty(v));
                return Err(self.error(op, Code::Type, message));
            }
        }
        Ok(())
    }
}

/// Functions that an op's regions refer to, with the referring op.
fn calls<'r, 'a>(op: &'r RawOp<'a>) -> Vec<(&'r str, &'r RawOp<'a>)> {
    fn visit<'r, 'a>(op: &'r RawOp<'a>, out: &mut Vec<(&'r str, &'r RawOp<'a>)>) {
        let key = match op.name.as_ref() {
            "func.call" => "callee",
            "stablehlo.composite" => "decomposition",
            _ => "",
        };
        if let Some(Attr::Symbol(s) | Attr::Str(s)) = attr(&op.attrs, key) {
            out.push((s, op));
        }
        for inner in op.regions.iter().flat_map(|r| &r.blocks).flat_map(|b| &b.ops) {
            visit(inner, out);
        }
    }
    let mut out = Vec::new();
    visit(op, &mut out);
    out.reverse();
    out
}
