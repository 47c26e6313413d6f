//! What a file's sharding annotations ask for, as a mesh and shardings of the entry's parameters and results.
//!
//! Shardy names axes of meshes, GSPMD numbers devices. Both become *tilings* ([`tiling`]): which places of the device
//! number each dimension follows. The coarsest places that all tilings of a file have in common are the axes of one
//! mesh. An axis that the file names keeps its name, a part of one is numbered behind it (`x.0`, `x.1`), and axes that
//! no mesh of the file names are `x0`, `x1`, …. Axes of one device are left out.
//!
//! An annotation asks for where data lies and never changes what is computed. So one that fits nothing here is left
//! out and reported; one that means something else than a layout is refused.

mod gspmd;
mod sdy;
mod tiling;

use crate::error::{Code, FrontendError, Result};
use crate::import::{Annotations, Imported, ShardingHint, Site};
use crate::raw;
use msc_ir::ValueId;
use msc_ir::module::{Mesh, MeshAxis, Sharding};
use std::collections::BTreeSet;
use tiling::{Digit, Places, Tiling};

/// Most devices of a mesh that is read: far above any cluster.
const MAX_RANKS: usize = 1 << 16;

/// A layout for a tensor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TensorLayout {
    /// The axes that split each dimension.
    pub sharding: Sharding,
    /// Dimensions that may be split further.
    pub open: Vec<usize>,
}

/// What a file asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// The mesh, in the file's order; without axes where the file asks for nothing.
    pub mesh: Mesh,
    /// For each parameter of the entry what is asked for it. Every dimension that is neither split nor open is to
    /// stay whole.
    pub params: Vec<Option<TensorLayout>>,
    /// The same for each result.
    pub results: Vec<Option<TensorLayout>>,
    /// Annotations of values inside the program that are neither. They are not followed: the layout of inner values
    /// follows from that of parameters and results.
    pub inner: usize,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl Layout {
    /// Reads a program's annotations.
    ///
    /// # Errors
    /// [`Code::Name`] for meshes that are not declared, [`Code::Attribute`] for malformed shardings, and
    /// [`Code::UnsupportedForm`] for those that are no layout: a tensor on one device only, cut by hand, or partial.
    pub fn of(imported: &Imported) -> Result<Layout> {
        let Ok(entry) = imported.module.entry() else { return Ok(Layout::default()) };
        let graph = imported.module.graph(entry.graph);
        let mut r = Reading::new(&imported.annotations);
        let mut seen: BTreeSet<Site> = BTreeSet::new();
        for (site, hint) in &imported.annotations.shardings {
            // A constraint on a parameter or result of the entry is theirs, unless they have one of their own.
            let site = match *site {
                Site::Value(g, v) if g == entry.graph => {
                    let place = |list: &[ValueId]| list.iter().position(|x| *x == v).map(|i| i as u32);
                    let result = place(graph.results()).map(Site::Result);
                    place(graph.params())
                        .map(Site::Param)
                        .or(result)
                        .filter(|s| !seen.contains(s))
                        .unwrap_or(*site)
                }
                other => other,
            };
            let (what, value) = match site {
                Site::Param(i) => {
                    (format!("parameter `{}`", entry.params[i as usize].name), graph.params()[i as usize])
                }
                Site::Result(i) => {
                    (format!("result `{}`", entry.results[i as usize].name), graph.results()[i as usize])
                }
                Site::Value(..) => {
                    r.inner += 1;
                    continue;
                }
            };
            seen.insert(site);
            r.hint(site, &what, hint, graph.ty(value).rank())?;
        }
        Ok(r.finish(graph.params().len(), graph.results().len()))
    }

    /// Whether the file asks for more than one rank.
    pub fn is_some(&self) -> bool {
        !self.mesh.axes.is_empty()
    }
}

/// A tiling that was read, and whose it is.
struct Said {
    site: Site,
    what: String,
    tiling: Tiling,
    devices: usize,
}

struct Reading<'a> {
    from: &'a Annotations,
    said: Vec<Said>,
    /// Meshes that shardings are over, each once, in the order of their first use.
    used: Vec<raw::Mesh>,
    inner: usize,
    notes: Vec<String>,
}

impl<'a> Reading<'a> {
    fn new(from: &'a Annotations) -> Reading<'a> {
        Reading { from, said: Vec::new(), used: Vec::new(), inner: 0, notes: Vec::new() }
    }

    fn hint(&mut self, site: Site, what: &str, hint: &ShardingHint, rank: usize) -> Result<()> {
        match hint {
            ShardingHint::Sdy(s) => self.sdy(site, what, s, rank),
            ShardingHint::Gspmd(text) => self.gspmd(site, what, text, rank),
        }
    }

    fn sdy(&mut self, site: Site, what: &str, s: &raw::Sharding, rank: usize) -> Result<()> {
        let declared = self.from.meshes.iter().find(|m| m.name == s.mesh).map(|m| &m.mesh);
        let Some(mesh) = s.inline_mesh.as_ref().or(declared) else {
            let message = format!("the sharding of {what}: there is no mesh @{}", s.mesh);
            return Err(FrontendError::new(Code::Name, message));
        };
        let refuse = |r: sdy::Refused| match r {
            sdy::Refused::Form(m) => not_a_layout(what, &m),
            sdy::Refused::Wrong(m) => {
                FrontendError::new(Code::Attribute, format!("the sharding of {what}: {m}"))
            }
        };
        let tiling = sdy::tiling(s, mesh, rank).map_err(refuse)?;
        let (_, devices) = sdy::digits(mesh).map_err(refuse)?;
        if tiling.is_free() || (mesh.axes.is_empty() && tiling.is_whole()) {
            return Ok(());
        }
        if !self.used.contains(mesh) {
            if self.used.first().is_some_and(|m| m.device_ids != mesh.device_ids) {
                let message = "its mesh orders the devices differently from the file's first mesh";
                self.notes.push(left_out(what, message));
                return Ok(());
            }
            if !mesh.device_ids.is_empty() {
                let message = "the file's mesh lists its devices in an order of its own; ranks are numbered along the mesh";
                self.notes.push(message.to_string());
            }
            self.used.push(mesh.clone());
        }
        self.said.push(Said { site, what: what.to_string(), tiling, devices });
        Ok(())
    }

    fn gspmd(&mut self, site: Site, what: &str, text: &str, rank: usize) -> Result<()> {
        match gspmd::read(text, rank) {
            Ok(gspmd::Spec::Unknown) => {}
            Ok(gspmd::Spec::Replicated) => {
                let tiling = Tiling { dims: vec![Vec::new(); rank], open: vec![false; rank] };
                self.said.push(Said { site, what: what.to_string(), tiling, devices: 1 });
            }
            Ok(gspmd::Spec::Tiled { tiling, devices }) => {
                self.said.push(Said { site, what: what.to_string(), tiling, devices });
            }
            Err(gspmd::Refused::Form(m)) => return Err(not_a_layout(&format!("{what}, `{text}`"), m)),
            Err(gspmd::Refused::Unfit(m)) => self.notes.push(left_out(&format!("{what}, `{text}`"), m)),
            Err(gspmd::Refused::Syntax(m)) => {
                let message = format!("the sharding of {what}, `{text}`: {m}");
                return Err(FrontendError::new(Code::Attribute, message));
            }
        }
        Ok(())
    }

    fn finish(mut self, params: usize, results: usize) -> Layout {
        let mut out =
            Layout { inner: self.inner, notes: std::mem::take(&mut self.notes), ..Layout::default() };
        out.params.resize(params, None);
        out.results.resize(results, None);
        let split = |s: &&Said| !s.tiling.is_whole();
        let Some(first) = self.said.iter().find(split) else {
            if !self.said.is_empty() {
                out.notes.push("the file's annotations split no parameter and no result".to_string());
            }
            return out;
        };
        let devices = match self.from.partitions {
            0 | 1 => first.devices,
            n => n as usize,
        };
        let mut places = Places::new(devices);
        // A mesh that is used is cut at all of its axes, so that those that lie side by side stay two.
        let whole = |m: &raw::Mesh| sdy::digits(m).is_ok_and(|(_, n)| n == devices);
        let meshes: Vec<&raw::Mesh> =
            self.used.iter().filter(|m| whole(m) && places.cut(mesh_digits(m))).collect();
        self.said.retain(|s| {
            let fits = s.tiling.is_whole()
                || s.devices == devices && places.cut(s.tiling.dims.iter().flatten().copied());
            if !fits {
                let message = match s.devices == devices {
                    true => "it cuts the devices where other annotations do not".to_string(),
                    false => format!("it is over {} of the {devices} devices", s.devices),
                };
                out.notes.push(left_out(&s.what, &message));
            }
            fits
        });
        out.mesh = named(&places, &meshes);
        for s in &self.said {
            let dims =
                s.tiling.dims.iter().map(|d| d.iter().flat_map(|&x| places.axes(x)).collect()).collect();
            let open = (0..s.tiling.open.len()).filter(|&d| s.tiling.open[d]).collect();
            let layout = Some(TensorLayout { sharding: Sharding { dims, ..Sharding::default() }, open });
            match s.site {
                Site::Param(i) => out.params[i as usize] = layout,
                Site::Result(i) => out.results[i as usize] = layout,
                Site::Value(..) => {}
            }
        }
        out
    }
}

fn left_out(what: &str, why: &str) -> String {
    format!("the sharding of {what} is left out: {why}")
}

fn not_a_layout(what: &str, why: &str) -> FrontendError {
    FrontendError::new(
        Code::UnsupportedForm,
        format!("the sharding of {what} is no layout over ranks: {why}"),
    )
    .help("compile with --ignore-annotations, and say the layout with --tp, --dp, … or --shard")
}

/// The digits of a mesh's axes of more than one device; none for a mesh that is not one.
fn mesh_digits(mesh: &raw::Mesh) -> Vec<Digit> {
    let digits = sdy::digits(mesh).map(|(d, _)| d).unwrap_or_default();
    digits.into_iter().filter(|d| d.size > 1).collect()
}

/// The mesh of the common places.
fn named(places: &Places, meshes: &[&raw::Mesh]) -> Mesh {
    let axes = places.digits();
    let mut names: Vec<Option<String>> = vec![None; axes.len()];
    for mesh in meshes {
        let Ok((digits, _)) = sdy::digits(mesh) else { continue };
        for ((name, _), digit) in mesh.axes.iter().zip(digits).filter(|(_, d)| d.size > 1) {
            let parts = places.axes(digit);
            for (n, part) in parts.iter().enumerate() {
                let name = if parts.len() > 1 { format!("{name}.{n}") } else { name.clone() };
                names[part.0 as usize].get_or_insert(name);
            }
        }
    }
    let mut taken = BTreeSet::new();
    let axis = |(i, (digit, name)): (usize, (Digit, Option<String>))| {
        let mut name = plain(&name.unwrap_or_else(|| format!("x{i}")));
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        MeshAxis { name, size: digit.size }
    };
    Mesh { axes: axes.into_iter().zip(names).enumerate().map(axis).collect() }
}

/// A name that is one word of the text form.
fn plain(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') { c } else { '_' };
    let text: String = name.chars().map(keep).collect();
    if text.is_empty() { "x".to_string() } else { text }
}
