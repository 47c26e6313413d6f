//! The entry: names of parameters and results, donated state, shardings.

use super::{Importer, MeshDecl, ShardingHint, Site};
use crate::error::{Code, FrontendError, Result};
use crate::raw::{Attr, Attrs, Form, RawModule, RawOp, attr};
use crate::stablehlo_text::parse_attr;
use msc_ir::{Entry, ParamInfo, ResultInfo, TensorType};
use std::collections::BTreeSet;

impl<'r, 'a> Importer<'r, 'a> {
    /// Describes the entry.
    ///
    /// A donated parameter is named like the result that replaces it (`jax.result_info`); others by the name in
    /// their location, by their SSA name if the exporter chose one, else `argN`. Results without a name are
    /// `resultN`.
    pub(super) fn entry(&mut self, name: &str, op: &'r RawOp<'a>) -> Result<()> {
        let graph = self.graphs[name];
        let (params, results) = {
            let g = self.module.graph(graph);
            (g.param_types(), g.result_types())
        };
        let no_attrs = Attrs::new();
        let of = |key: &str, i: usize| match op.attr(key) {
            Some(Attr::Array(v)) => match v.get(i) {
                Some(Attr::Dict(d)) => d,
                _ => &no_attrs,
            },
            _ => &no_attrs,
        };
        let mut result_names = Vec::new();
        for i in 0..results.len() {
            let attrs = of("res_attrs", i);
            let info = match attr(attrs, "jax.result_info") {
                Some(Attr::Str(s)) if !s.is_empty() => s.to_string(),
                _ => String::new(),
            };
            result_names.push(info);
            self.sharding(op, Site::Result(i as u32), attrs)?;
        }
        let mut alias: Vec<Option<u32>> = vec![None; params.len()];
        let mut taken = BTreeSet::new();
        for (i, slot) in alias.iter_mut().enumerate() {
            match attr(of("arg_attrs", i), "tf.aliasing_output") {
                None => {}
                Some(Attr::Int(n, _)) => {
                    let r = usize::try_from(*n).ok().filter(|r| results.get(*r) == Some(&params[i]));
                    let Some(r) = r else {
                        let message =
                            format!("argument {i} is donated to result {n}, which has another type");
                        return Err(self.error(op, Code::Program, message));
                    };
                    if !taken.insert(r) {
                        let message = format!("two arguments are donated to result {r}");
                        return Err(self.error(op, Code::Program, message));
                    }
                    *slot = Some(r as u32);
                }
                Some(_) => return Err(self.bad_attr(op, "tf.aliasing_output", "should be an integer")),
            }
        }
        self.module_aliases(&params, &results, &mut alias, &mut taken);
        // A donor without a given result takes the first free result of its type, as JAX pairs them.
        for (i, slot) in alias.iter_mut().enumerate() {
            let donor = matches!(attr(of("arg_attrs", i), "jax.buffer_donor"), Some(Attr::Bool(true)));
            if donor && slot.is_none() {
                let free = (0..results.len()).find(|r| results[*r] == params[i] && !taken.contains(r));
                if let Some(r) = free {
                    taken.insert(r);
                    *slot = Some(r as u32);
                }
            }
        }
        let block = op.regions.first().and_then(|r| r.blocks.first());
        let mut used = BTreeSet::new();
        let mut infos = Vec::new();
        for (i, alias) in alias.into_iter().enumerate() {
            let state = alias.map(|r| result_names[r as usize].clone()).filter(|n| !n.is_empty());
            let arg = block.and_then(|b| b.arg_info.get(i)).cloned().unwrap_or_default();
            let name = match state {
                Some(n) => n,
                None => match self.debug(arg.loc).name {
                    n if !n.is_empty() => n.to_string(),
                    _ if is_chosen(arg.name) => arg.name.to_string(),
                    _ => format!("arg{i}"),
                },
            };
            infos.push(ParamInfo { name: unique(name, &mut used), alias, ..ParamInfo::default() });
            self.sharding(op, Site::Param(i as u32), of("arg_attrs", i))?;
        }
        let mut used = BTreeSet::new();
        let results = result_names
            .into_iter()
            .enumerate()
            .map(|(i, n)| if n.is_empty() { format!("result{i}") } else { n })
            .map(|n| ResultInfo { name: unique(n, &mut used), ..ResultInfo::default() })
            .collect();
        self.module.entries.push(Entry { name: name.to_string(), graph, params: infos, results });
        self.annotations.shardings.sort_by_key(|(site, _)| *site);
        Ok(())
    }

    /// Donations that the module itself lists (XLA's form, `mhlo.input_output_alias`), where the types fit.
    fn module_aliases(
        &mut self,
        params: &[TensorType],
        results: &[TensorType],
        alias: &mut [Option<u32>],
        taken: &mut BTreeSet<usize>,
    ) {
        let Some(Attr::Array(entries)) = attr(&self.raw.attrs, "mhlo.input_output_alias") else { return };
        for entry in entries {
            let Attr::Dict(entry) = entry else { continue };
            let Some(Attr::Dict(of)) = attr(entry, "alias") else { continue };
            let Some(Attr::Int(p, _)) = attr(of, "parameter_number") else { continue };
            let output = attr(entry, "output_index").and_then(|a| self.int_values(a));
            // A result that is no tuple has the empty index.
            let r = output.map(|v| v.first().copied().unwrap_or(0));
            let (Ok(p), Some(Ok(r))) = (usize::try_from(*p), r.map(usize::try_from)) else { continue };
            if alias.get(p) == Some(&None) && params.get(p) == results.get(r) && taken.insert(r) {
                alias[p] = Some(r as u32);
            }
        }
    }

    /// Keeps what attributes say about a sharding: Shardy's word, if there are both.
    fn sharding(&mut self, op: &RawOp<'a>, site: Site, attrs: &Attrs<'a>) -> Result<()> {
        if let Some(Attr::Sharding(s)) = attr(attrs, "sdy.sharding") {
            self.annotations.shardings.push((site, ShardingHint::Sdy((**s).clone())));
        } else if let Some(text) = frontend_attr(attrs, "xla.sdy.sharding") {
            let s = shipped_sharding(text).map_err(|e| self.place(op, e))?;
            self.annotations.shardings.push((site, ShardingHint::Sdy(s)));
        } else if let Some(Attr::Str(s)) = attr(attrs, "mhlo.sharding") {
            self.annotations.shardings.push((site, ShardingHint::Gspmd(s.to_string())));
        }
        Ok(())
    }

    /// Reads the module's attributes.
    pub(super) fn module_annotations(&mut self) -> Result<()> {
        let count = |name: &str| match attr(&self.raw.attrs, name) {
            Some(Attr::Int(n, _)) => u32::try_from(*n).unwrap_or(1).max(1),
            _ => 1,
        };
        self.annotations.partitions = count("mhlo.num_partitions");
        self.annotations.replicas = count("mhlo.num_replicas");
        if let Some(text) = frontend_attr(&self.raw.attrs, "xla.sdy.meshes") {
            self.annotations.meshes.extend(shipped_meshes(text)?);
        }
        Ok(())
    }

    /// A mesh declaration.
    pub(super) fn mesh(&mut self, op: &RawOp<'a>) -> Result<()> {
        let (Some(Attr::Str(name)), Some(Attr::Mesh(mesh))) = (op.attr("sym_name"), op.attr("mesh")) else {
            return Err(self.bad_attr(op, "mesh", "is missing or not a mesh"));
        };
        self.annotations.meshes.push(MeshDecl { name: name.to_string(), mesh: (**mesh).clone() });
        Ok(())
    }
}

/// A text among the attributes in which XLA's clients ship what its own dialects do not hold.
pub(super) fn frontend_attr<'m>(attrs: &'m Attrs<'_>, name: &str) -> Option<&'m str> {
    match attr(attrs, "mhlo.frontend_attributes") {
        Some(Attr::Dict(d)) => match attr(d, name) {
            Some(Attr::Str(s)) => Some(s),
            _ => None,
        },
        _ => None,
    }
}

/// An attribute in a text of [`frontend_attr`], without what it borrows.
fn shipped<T>(text: &str, what: &str, take: impl FnOnce(Attr<'_>) -> Option<T>) -> Result<T> {
    let mut module = RawModule::new("", text.as_bytes(), Form::Text);
    let read = parse_attr(&mut module, text)
        .map_err(|e| FrontendError::new(Code::Attribute, format!("{what}: {}", e.diagnostic().message)))?;
    take(read).ok_or_else(|| FrontendError::new(Code::Attribute, format!("`{text}` is no value of {what}")))
}

/// The sharding in `xla.sdy.sharding`; of a list of shardings the only one.
pub(super) fn shipped_sharding(text: &str) -> Result<crate::raw::Sharding> {
    shipped(text, "xla.sdy.sharding", |a| match a {
        Attr::Sharding(s) => Some(*s),
        Attr::Shardings(mut list) if list.len() == 1 => list.pop(),
        _ => None,
    })
}

/// The meshes in `xla.sdy.meshes`.
fn shipped_meshes(text: &str) -> Result<Vec<MeshDecl>> {
    shipped(text, "xla.sdy.meshes", |a| {
        let Attr::Dict(meshes) = a else { return None };
        let mesh = |(name, a): (std::borrow::Cow<'_, str>, Attr<'_>)| match a {
            Attr::Mesh(mesh) => Some(MeshDecl { name: name.into_owned(), mesh: *mesh }),
            _ => None,
        };
        meshes.into_iter().map(mesh).collect()
    })
}

/// Whether an SSA name was chosen by someone (`%weights`) rather than counted (`%arg3`, `%12`).
fn is_chosen(name: &str) -> bool {
    let counted = name.strip_prefix("arg").unwrap_or(name);
    !counted.bytes().all(|b| b.is_ascii_digit())
}

/// The name, with a number behind it if it was used before.
fn unique(name: String, used: &mut BTreeSet<String>) -> String {
    let mut out = name.clone();
    let mut n = 2;
    while !used.insert(out.clone()) {
        out = format!("{name}#{n}");
        n += 1;
    }
    out
}
