//! What is asked of the layout before anything is searched: by the file's annotations and by `--shard`.
//!
//! A `--shard` is `REGEX=SPEC`. The expression is looked for anywhere in the names of the entry's parameters; the
//! specification has one entry for each dimension, separated by commas: axes with `+` between them, outermost first;
//! `-` for a dimension that stays whole; `?` for one that the search may split.

use super::pad::is_little;
use crate::error::{PassError, Result};
use msc_ir::Module;
use msc_ir::module::{AxisId, Mesh, Sharding};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};

/// Layouts that are asked for. Every tensor that is listed gets exactly its layout, but for its open dimensions;
/// tensors that are not listed are free.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// By number of the entry's parameter, over the axes of [`super::Options::mesh`].
    pub params: BTreeMap<usize, Sharding>,
    /// By number of the entry's result.
    pub results: BTreeMap<usize, Sharding>,
    /// Dimensions of listed parameters that the search may split further.
    pub open_params: BTreeSet<(usize, usize)>,
    /// Dimensions of listed results that the search may split further.
    pub open_results: BTreeSet<(usize, usize)>,
}

/// Names shown in a message: enough to see how names are spelled, few enough to read.
const SHOWN: usize = 5;

impl Given {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.params.is_empty() && self.results.is_empty()
    }

    /// Asks for a layout of a parameter in place of what was asked for it before.
    pub fn set_param(&mut self, n: usize, sharding: Sharding, open: impl IntoIterator<Item = usize>) {
        self.params.insert(n, sharding);
        self.open_params.retain(|(p, _)| *p != n);
        self.open_params.extend(open.into_iter().map(|d| (n, d)));
    }

    /// Asks for a layout of a result.
    pub fn set_result(&mut self, n: usize, sharding: Sharding, open: impl IntoIterator<Item = usize>) {
        self.results.insert(n, sharding);
        self.open_results.extend(open.into_iter().map(|d| (n, d)));
    }

    /// Adds what the `--shard` options say of the default entry's parameters. A later option replaces an earlier
    /// one, and either replaces what the file's annotations say; the result that a donated parameter becomes
    /// follows it.
    ///
    /// # Errors
    /// [`PassError::Layout`] for an option that is malformed, names an axis that the mesh does not have, matches no
    /// parameter, or does not fit one that it matches.
    pub fn shard(&mut self, options: &[String], module: &Module, mesh: &Mesh) -> Result<()> {
        let entry = module.entry()?;
        let graph = module.graph(entry.graph);
        for text in options {
            let option = Shard::parse(text, mesh)?;
            let mut matched = false;
            for (n, (p, &v)) in entry.params.iter().zip(graph.params()).enumerate() {
                if !option.names.is_match(&p.name) {
                    continue;
                }
                matched = true;
                option.check(text, &p.name, &graph.ty(v).shape, mesh)?;
                self.set_param(n, option.sharding.clone(), option.open.iter().copied());
                if let Some(r) = p.alias {
                    self.results.remove(&(r as usize));
                    self.open_results.retain(|(x, _)| *x != r as usize);
                }
            }
            if !matched {
                let names: Vec<&str> = entry.params.iter().map(|p| p.name.as_str()).collect();
                return Err(refused(
                    text,
                    "no parameter's name matches",
                    near(option.names.as_str(), &names),
                ));
            }
        }
        Ok(())
    }
}

/// One `--shard`.
#[derive(Debug)]
struct Shard {
    names: Regex,
    sharding: Sharding,
    open: Vec<usize>,
}

fn refused(text: &str, message: impl AsRef<str>, help: impl Into<String>) -> PassError {
    PassError::Layout { message: format!("--shard '{text}': {}", message.as_ref()), help: help.into() }
}

/// The names that are spelled most alike, for a message.
fn near(pattern: &str, names: &[&str]) -> String {
    let mut ranked: Vec<(usize, &str)> = names
        .iter()
        .map(|n| (strsim::levenshtein(pattern, n).abs_diff(n.len().abs_diff(pattern.len())), *n))
        .collect();
    ranked.sort_unstable();
    let shown: Vec<String> = ranked.iter().take(SHOWN).map(|(_, n)| format!("`{n}`")).collect();
    let more = names.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "the parameters are {}{rest}; brackets and dots of a name are written \\[ and \\.",
        shown.join(", ")
    )
}

impl Shard {
    fn parse(text: &str, mesh: &Mesh) -> Result<Shard> {
        let form =
            "write REGEX=SPEC with an entry for each dimension, as 'mlp.*weight=tp,-' or 'embed=-,fsdp+tp'";
        // An expression may hold `=`, a specification cannot.
        let Some((names, spec)) = text.rsplit_once('=') else {
            return Err(refused(text, "there is no `=`", form));
        };
        if names.is_empty() {
            return Err(refused(text, "there is no expression before `=`", form));
        }
        let names = Regex::new(names).map_err(|e| {
            let why = e.to_string().lines().last().unwrap_or_default().trim().to_string();
            refused(text, format!("`{names}` is no regular expression: {why}"), form)
        })?;
        let mut out = Shard { names, sharding: Sharding::default(), open: Vec::new() };
        let mut taken: Vec<AxisId> = Vec::new();
        for (d, entry) in spec.split(',').map(str::trim).enumerate() {
            let mut axes = Vec::new();
            match entry {
                "-" => {}
                "?" => out.open.push(d),
                "" => return Err(refused(text, format!("the entry of dimension {d} is empty"), form)),
                _ => {
                    for name in entry.split('+').map(str::trim) {
                        let axis = mesh.axis(name).ok_or_else(|| {
                            let axes: Vec<String> =
                                mesh.axes.iter().map(|a| format!("{} ({} ranks)", a.name, a.size)).collect();
                            let have = if axes.is_empty() { "no axis".into() } else { axes.join(", ") };
                            let help = format!("the mesh has {have}; axes come from --tp, --dp, … or --mesh");
                            refused(text, format!("the mesh has no axis `{name}`"), help)
                        })?;
                        if taken.contains(&axis) {
                            return Err(refused(text, format!("axis `{name}` is used twice"), form));
                        }
                        taken.push(axis);
                        axes.push(axis);
                    }
                }
            }
            out.sharding.dims.push(axes);
        }
        Ok(out)
    }

    /// Whether a parameter can be laid out so.
    fn check(&self, text: &str, name: &str, shape: &[usize], mesh: &Mesh) -> Result<()> {
        let dims = &self.sharding.dims;
        if dims.len() != shape.len() {
            let message = format!("it has {} entries, `{name}` has the shape {shape:?}", dims.len());
            return Err(refused(
                text,
                message,
                "narrow the expression, or give one entry for each dimension",
            ));
        }
        for (d, axes) in dims.iter().enumerate() {
            let n: usize = axes.iter().map(|&a| mesh.size(a)).product();
            if !is_little(shape[d], n) {
                let fits = (1..=n).rev().find(|&k| is_little(shape[d], k)).unwrap_or(1);
                let message = format!(
                    "dimension {d} of `{name}` has the size {}, which {n} ranks do not divide, and would be padded to {}",
                    shape[d],
                    shape[d].next_multiple_of(n)
                );
                return Err(refused(
                    text,
                    message,
                    format!("the nearest smaller number of ranks that fits is {fits}"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_ir::module::MeshAxis;
    use msc_ir::text;

    const MODEL: &str = "module @m
graph @main(%0: f32[12,8], %1: f32[12,8], %2: f32[8]) {
  %3 = add %0, %1 : f32[12,8]
  return %3, %2
}
entry \"train\" @main {
  param \"p['a=b'].w\" alias 0
  param \"p['c'].w\"
  param \"p['c'].bias\"
  result \"w\"
  result \"bias\"
}";

    fn given(options: &[&str]) -> Result<Given> {
        let axis = |name: &str, size| MeshAxis { name: name.into(), size };
        let mesh = Mesh { axes: vec![axis("fsdp", 2), axis("tp", 4), axis("big", 13)] };
        let options: Vec<String> = options.iter().map(|o| o.to_string()).collect();
        let mut g = Given::default();
        g.set_result(0, Sharding { dims: vec![vec![AxisId(0)], vec![]], ..Sharding::default() }, [1]);
        g.shard(&options, &text::parse(MODEL).expect("parses"), &mesh)?;
        Ok(g)
    }

    #[test]
    fn later_options_replace_earlier_ones() {
        let g = given(&["w$=-,fsdp+tp", "a=b=tp,?"]).expect("fits");
        let dims = |n: usize| g.params[&n].dims.clone();
        assert_eq!(dims(0), [vec![AxisId(1)], vec![]]);
        assert_eq!(dims(1), [vec![], vec![AxisId(0), AxisId(1)]]);
        assert_eq!(g.params.len(), 2);
        assert_eq!(g.open_params, BTreeSet::from([(0, 1)]));
        // The result that parameter 0 becomes follows it.
        assert!(g.results.is_empty() && g.open_results.is_empty());
        assert_eq!(given(&["bias=tp"]).expect("fits").results.len(), 1);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let message = |o: &str| given(&[o]).expect_err(o).to_string();
        for (option, parts) in [
            ("w", &["no `=`"][..]),
            ("=tp,-", &["no expression"]),
            ("(=tp,-", &["no regular expression"]),
            ("nothing=tp", &["no parameter's name matches", "`p['c'].bias`", "\\["]),
            ("bias=pp", &["no axis `pp`", "tp (4 ranks)"]),
            ("w$=tp,tp", &["twice"]),
            ("w$=tp", &["1 entries", "`p['a=b'].w`", "[12, 8]"]),
            ("w$=,tp", &["dimension 0 is empty"]),
            ("w$=fsdp+big,-", &["dimension 0", "size 12", "26 ranks", "padded to 26", "fits is 18"]),
            ("bias=big", &["size 8", "13 ranks", "fits is 12"]),
        ] {
            let m = message(option);
            assert!(m.contains("MSC-C0001") && parts.iter().all(|p| m.contains(p)), "{option}: {m}");
        }
    }
}
