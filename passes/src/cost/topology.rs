//! Topology files: which devices there are, and how they are linked (schema: `docs/topologies.md`).
//!
//! Groups are nested blocks of devices: a server, the servers of a cluster. A link joins the parts of one group: the
//! devices of the innermost, the blocks of the next smaller group in the others. Ranks are dealt to devices so that
//! every group holds consecutive ranks, which is what rank tables of Ascend clusters demand as well.

use super::DeviceModel;
use super::json::{At, Fields, did_you_mean, refuse};
use super::links::{Level, LinkKind, Links, MAX_LEVELS, Route};
use crate::error::{PassError, Result};
use msc_ir::module::Mesh;
use serde_json::Value;
use std::collections::BTreeSet;

/// Most devices of a topology.
const MAX_DEVICES: usize = 1 << 20;

/// A group of devices and the link that joins its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its name: `server`.
    pub name: String,
    /// Devices in each.
    pub devices: usize,
    /// The link's name: `HCCS`.
    pub link: String,
}

/// Devices and links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// The device's name.
    pub model: String,
    /// Number of devices.
    pub devices: usize,
    /// Rates, with the levels of links.
    pub device: DeviceModel,
    /// Groups, innermost first: one for each level.
    pub groups: Vec<Group>,
    /// The device of each rank.
    pub order: Vec<u32>,
}

const SHIPPED: [(&str, &str); 4] = [
    ("910b-8", include_str!("../../../topologies/910b-8.json")),
    ("910b-64", include_str!("../../../topologies/910b-64.json")),
    ("910c-384", include_str!("../../../topologies/910c-384.json")),
    ("host", include_str!("../../../topologies/host.json")),
];

impl Topology {
    /// Names of the topologies that come with msc.
    pub fn shipped_names() -> [&'static str; SHIPPED.len()] {
        SHIPPED.map(|(name, _)| name)
    }

    /// A topology that comes with msc.
    pub fn shipped(name: &str) -> Option<Result<Topology>> {
        let (name, text) = SHIPPED.iter().find(|(n, _)| *n == name)?;
        Some(Topology::parse(name, text))
    }

    /// Reads a topology. `file` stands for it in messages.
    ///
    /// # Errors
    /// [`PassError::Topology`] with the JSON path of what is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Topology> {
        let value: Value = serde_json::from_str(text).map_err(|e| {
            refuse(file, "$", format!("it is no JSON: {e}"), "docs/topologies.md describes the file")
        })?;
        let known = ["version", "name", "notes", "devices", "groups", "links"];
        let top = At::new(file, &value, "$").object(&known)?;
        match top.count("version", usize::MAX)? {
            1 => {}
            n => return Err(top.refuse("version", format!("version {n} is not read by this msc, only 1"))),
        }
        let name = top.text("name")?.to_string();
        let at = top.path("devices");
        let known = [
            "count",
            "model",
            "matrix_tflops",
            "vector_gops",
            "memory_gb_per_s",
            "memory_gib",
            "launch_us",
            "collective_us",
        ];
        let d = At::new(file, top.need("devices")?, &at).object(&known)?;
        let devices = d.count("count", MAX_DEVICES)?;
        let mut device = DeviceModel {
            // Tera per second are thousands per nanosecond.
            cube_flops_per_ns: scaled(&d, "matrix_tflops", 1e-3, 1e6, 1e3)?,
            vector_ops_per_ns: scaled(&d, "vector_gops", 1.0, 1e9, 1.0)?,
            hbm_bytes_per_ns: scaled(&d, "memory_gb_per_s", 1.0, 1e6, 1.0)?,
            memory_bytes: scaled(&d, "memory_gib", 0.001, 1e6, (1u64 << 30) as f64)?,
            launch_ps: scaled(&d, "launch_us", 0.0, 1e6, 1e6)?,
            latency_ps: scaled(&d, "collective_us", 0.0, 1e6, 1e6)?,
            ..DeviceModel::default()
        };
        let model = d.text("model")?.to_string();
        let (named, order) = groups(file, &top, devices)?;
        let (groups, levels) = links(file, &top, named)?;
        device.links = Links::new(&levels);
        device.link_bytes_per_ns = (levels[0].bytes_per_us / 1000).max(1);
        Ok(Topology { name, model, devices, device, groups, order })
    }

    /// Refuses a mesh with more ranks than devices.
    ///
    /// # Errors
    /// [`PassError::Layout`] with the nearest mesh that fits.
    pub fn check(&self, mesh: &Mesh) -> Result<()> {
        let ranks = mesh.ranks();
        if ranks <= self.devices {
            return Ok(());
        }
        Err(PassError::Layout {
            message: format!(
                "the mesh has {ranks} ranks, the topology `{}` has {} devices",
                self.name, self.devices
            ),
            help: format!("the nearest mesh that fits is {}", nearest_mesh(mesh, self.devices)),
        })
    }

    /// A route in words: `full_mesh over HCCS within a server`.
    pub fn describe(&self, route: &Route) -> String {
        match self.groups.get(route.level) {
            Some(g) => format!("{} over {} within a {}", route.algorithm.name(), g.link, g.name),
            None => route.algorithm.name().to_string(),
        }
    }
}

/// A number of a file in units of ours, at least 1 where zero would be no rate.
fn scaled(f: &Fields<'_>, name: &str, least: f64, most: f64, unit: f64) -> Result<u64> {
    let n = (f.number(name, least, most)? * unit).round() as u64;
    Ok(if least > 0.0 { n.max(1) } else { n })
}

/// Names of groups and the devices in each, innermost first.
type Sizes = Vec<(String, usize)>;

/// Groups as the file names them, and the order of devices in which each is consecutive.
fn groups(file: &str, top: &Fields<'_>, devices: usize) -> Result<(Sizes, Vec<u32>)> {
    let list = top.list("groups")?;
    if list.is_empty() || list.len() > MAX_LEVELS {
        return Err(top.refuse("groups", format!("between 1 and {MAX_LEVELS} groups can be described")));
    }
    let mut out = Sizes::new();
    let mut order: Vec<u32> = (0..devices as u32).collect();
    for (i, value) in list.iter().enumerate() {
        let at = format!("{}[{i}]", top.path("groups"));
        let g = At::new(file, value, &at).object(&["name", "size", "members"])?;
        let name = g.text("name")?;
        if out.iter().any(|(n, _)| n == name) {
            return Err(g.refuse("name", format!("there are two groups `{name}`")));
        }
        let below = out.last().map_or(1, |(_, n)| *n);
        let size = match (g.maybe("size"), g.maybe("members")) {
            (Some(_), None) => g.count("size", devices)?,
            (None, Some(members)) => {
                let (size, sorted) = members_of(&g, members, devices)?;
                let block = blocks(&sorted, size);
                let whole = |c: &[u32]| c.iter().all(|d| block[*d as usize] == block[c[0] as usize]);
                if !order.chunks(below).all(whole) {
                    let message = "a group of the level below is not whole in one of these";
                    return Err(g.refuse("members", message));
                }
                // A stable order: what the levels below put together stays together.
                order.sort_by_key(|d| block[*d as usize]);
                size
            }
            _ => {
                return Err(refuse(
                    file,
                    &at,
                    "either `size` or `members` is expected",
                    "give one of the two",
                ));
            }
        };
        if size <= below && i > 0 || !size.is_multiple_of(below) {
            let message = format!("{size} devices are no multiple of the {below} of the group before");
            return Err(g.refuse(if g.maybe("size").is_some() { "size" } else { "members" }, message));
        }
        if !devices.is_multiple_of(size) {
            return Err(g.refuse("size", format!("{devices} devices are not made of groups of {size}")));
        }
        out.push((name.to_string(), size));
    }
    match out.last() {
        Some((name, n)) if *n < devices => {
            let message = format!("the last group, `{name}`, has {n} of the {devices} devices");
            Err(refuse(file, &top.path("groups"), message, "add a group that holds all devices"))
        }
        _ => Ok((out, order)),
    }
}

/// The device lists of a group, as one list with each group consecutive, and their common size.
fn members_of(g: &Fields<'_>, members: &Value, devices: usize) -> Result<(usize, Vec<usize>)> {
    let lists = members.as_array().filter(|l| !l.is_empty());
    let lists = lists.ok_or_else(|| g.refuse("members", "lists of device numbers are expected"))?;
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    let mut size = None;
    for (i, list) in lists.iter().enumerate() {
        let at = format!("members[{i}]");
        let list = list.as_array().ok_or_else(|| g.refuse(&at, "a list of device numbers is expected"))?;
        if *size.get_or_insert(list.len()) != list.len() {
            let message =
                format!("{} devices, the first has {}; all must be equal", list.len(), size.unwrap_or(0));
            return Err(g.refuse(&at, message));
        }
        for (j, v) in list.iter().enumerate() {
            let at = format!("{at}[{j}]");
            let n = v.as_u64().filter(|n| *n < devices as u64).ok_or_else(|| {
                g.refuse(&at, format!("{v} is no device: they are numbered from 0 to {}", devices - 1))
            })?;
            if !seen.insert(n) {
                return Err(g.refuse(&at, format!("device {n} is in two of these")));
            }
            all.push(n as usize);
        }
    }
    if all.len() != devices {
        let missing = (0..devices as u64).find(|n| !seen.contains(n)).unwrap_or(0);
        return Err(g.refuse("members", format!("device {missing} is in none of these")));
    }
    Ok((size.unwrap_or(0), all))
}

/// For each device its block of `size` in a list of all.
fn blocks(sorted: &[usize], size: usize) -> Vec<usize> {
    let mut block = vec![0; sorted.len()];
    for (i, &d) in sorted.iter().enumerate() {
        block[d] = i / size;
    }
    block
}

/// Links by level.
fn links(file: &str, top: &Fields<'_>, groups: Sizes) -> Result<(Vec<Group>, Vec<Level>)> {
    let mut found: Vec<Option<(String, Level)>> = vec![None; groups.len()];
    for (i, value) in top.list("links")?.iter().enumerate() {
        let at = format!("{}[{i}]", top.path("links"));
        let l = At::new(file, value, &at).object(&["name", "within", "kind", "gb_per_s", "latency_us"])?;
        let name = l.text("name")?.to_string();
        let within = l.text("within")?;
        let Some(n) = groups.iter().position(|(g, _)| g == within) else {
            let known: Vec<&str> = groups.iter().map(|(g, _)| g.as_str()).collect();
            let near = did_you_mean(within, &known);
            return Err(l.refuse("within", format!("there is no group `{within}`{near}")));
        };
        let word = l.text("kind")?;
        let Some(kind) = LinkKind::ALL.into_iter().find(|k| k.name() == word) else {
            let known = LinkKind::ALL.map(LinkKind::name);
            return Err(l.refuse("kind", format!("`{word}` is none of {}", known.join(", "))));
        };
        let level = Level {
            devices: groups[n].1,
            kind,
            bytes_per_us: scaled(&l, "gb_per_s", 1e-3, 1e6, 1e3)?,
            latency_ps: scaled(&l, "latency_us", 0.0, 1e6, 1e6)?,
        };
        if found[n].replace((name, level)).is_some() {
            return Err(l.refuse("within", format!("group `{within}` has two links")));
        }
    }
    let mut out = (Vec::new(), Vec::new());
    for ((name, devices), link) in groups.into_iter().zip(found) {
        let Some((link, level)) = link else {
            let message = format!("nothing links the parts of group `{name}`");
            return Err(refuse(file, &top.path("links"), message, format!("add a link within `{name}`")));
        };
        out.0.push(Group { name, devices, link });
        out.1.push(level);
    }
    Ok(out)
}

/// The mesh with the most ranks that has no more than `most`: the outermost axes give way first.
fn nearest_mesh(mesh: &Mesh, most: usize) -> String {
    let mut sizes: Vec<usize> = mesh.axes.iter().map(|a| a.size).collect();
    for i in 0..sizes.len() {
        let others: usize = sizes.iter().product::<usize>() / sizes[i].max(1);
        // A divisor of what was asked for: what it divided, the smaller one divides too.
        let fits = (1..=sizes[i]).rev().find(|n| sizes[i].is_multiple_of(*n) && n * others <= most);
        sizes[i] = fits.unwrap_or(1);
        if sizes.iter().product::<usize>() <= most {
            break;
        }
    }
    let axes = mesh.axes.iter().zip(sizes).map(|(a, n)| format!("{}={n}", a.name));
    axes.collect::<Vec<_>>().join(",")
}
