//! What a compilation is to do about ranks: the user's options and the file's annotations brought together.
//!
//! A user who gives no axes gets the mesh that the file's annotations speak of. One who gives axes gets these; the
//! annotations are followed where each of their axes is among them with the same size, and reported as left out where
//! not. `--shard` comes last and wins.

use crate::error::{Error, Result};
use crate::options::{Options, in_words};
use crate::report::LayoutReport;
use msc_frontends::Imported;
use msc_frontends::layout::{Layout, TensorLayout};
use msc_ir::module::{AxisId, Mesh, Sharding};
use msc_passes::cost::DeviceModel;
use msc_passes::cost::topology::Topology;
use msc_passes::partition::given::Given;

/// The mesh and what is asked of the layout.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// The mesh.
    pub mesh: Mesh,
    /// Layouts of parameters and results.
    pub given: Given,
    /// Devices and links, if they are described.
    pub topology: Option<Topology>,
    /// For the report.
    pub report: LayoutReport,
}

/// Names that exporters give to an axis that msc names otherwise.
const ALIASES: [(&str, &[&str]); 4] = [
    ("tp", &["tensor", "model", "mp", "tensor_parallel", "model_parallel"]),
    ("dp", &["data", "batch", "data_parallel", "replica"]),
    ("ep", &["expert", "expert_parallel"]),
    ("cp", &["context", "sequence", "context_parallel", "sp"]),
];

/// Brings options and annotations together.
///
/// # Errors
/// Bad sizes of axes, annotations that are no layouts, `--shard` options that fit nothing.
pub fn spread(options: &Options, imported: &Imported) -> Result<Spread> {
    let asked = options.mesh()?;
    let mut out = Spread { mesh: asked, ..Spread::default() };
    if options.annotations {
        annotated(&mut out, options, &Layout::of(imported)?);
    } else if !imported.annotations.shardings.is_empty() {
        out.report.notes.push("the file's sharding annotations are ignored, as the options say".into());
    }
    let ranks = out.mesh.ranks();
    if ranks > crate::options::MAX_RANKS {
        return Err(Error::Usage(format!(
            "the file's mesh has {ranks} ranks, more than {}",
            crate::options::MAX_RANKS
        )));
    }
    out.topology = options.topology.as_deref().map(topology).transpose()?;
    if let Some(t) = &out.topology {
        t.check(&out.mesh)?;
    }
    out.given.shard(&options.shard, &imported.module, &out.mesh)?;
    out.report.mesh = out.mesh.sizes();
    out.report.given_parameters = out.given.params.len();
    out.report.given_results = out.given.results.len();
    Ok(out)
}

impl Spread {
    /// Rates of the devices.
    pub fn device(&self) -> DeviceModel {
        self.topology.as_ref().map_or_else(DeviceModel::default, |t| t.device)
    }
}

/// A topology by name, or from a file.
///
/// # Errors
/// Names and files that there are not, and files that are no topologies.
pub fn topology(which: &str) -> Result<Topology> {
    if let Some(known) = Topology::shipped(which) {
        return Ok(known?);
    }
    let text = std::fs::read_to_string(which).map_err(|error| {
        let names = Topology::shipped_names().join(", ");
        Error::Usage(format!(
            "--topology {which}: {error}; give a file, or one of those that come with msc: {names}"
        ))
    })?;
    Ok(Topology::parse(which, &text)?)
}

/// Takes over what a file asks for.
fn annotated(out: &mut Spread, options: &Options, file: &Layout) {
    out.report.notes.extend(file.notes.iter().cloned());
    if !file.is_some() {
        return;
    }
    let axes = if options.names_axes() {
        match mapped(&file.mesh, &out.mesh) {
            Ok(axes) => axes,
            Err(why) => {
                out.report.notes.push(format!("the file's sharding annotations are left out: {why}"));
                return;
            }
        }
    } else {
        out.mesh = file.mesh.clone();
        (0..file.mesh.axes.len() as u8).map(AxisId).collect()
    };
    for (n, layout) in file.params.iter().enumerate() {
        if let Some(TensorLayout { sharding, open }) = layout {
            out.given.set_param(n, over(sharding, &axes), open.iter().copied());
        }
    }
    for (n, layout) in file.results.iter().enumerate() {
        if let Some(TensorLayout { sharding, open }) = layout {
            out.given.set_result(n, over(sharding, &axes), open.iter().copied());
        }
    }
    if file.inner > 0 {
        out.report.notes.push(format!(
            "{} annotations of values inside the program are not followed: the layout of inner values follows from that of parameters and results",
            file.inner
        ));
    }
}

/// A sharding with other axes in the place of its own.
fn over(s: &Sharding, axes: &[AxisId]) -> Sharding {
    Sharding {
        dims: s.dims.iter().map(|d| d.iter().map(|a| axes[a.0 as usize]).collect()).collect(),
        ..Sharding::default()
    }
}

/// For each axis of a file the user's axis of the same name, or of the same meaning, and size.
fn mapped(file: &Mesh, user: &Mesh) -> std::result::Result<Vec<AxisId>, String> {
    let find = |name: &str| {
        user.axis(name).or_else(|| {
            let (ours, _) = ALIASES.iter().find(|(_, theirs)| theirs.contains(&name))?;
            user.axis(ours)
        })
    };
    let mut out: Vec<AxisId> = Vec::new();
    for a in &file.axes {
        let found = find(&a.name).filter(|&u| user.size(u) == a.size && !out.contains(&u));
        let Some(found) = found else {
            return Err(format!(
                "they are over {}, the options give {}",
                in_words(&file.sizes()),
                in_words(&user.sizes())
            ));
        };
        out.push(found);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"module @m attributes {mhlo.num_partitions = 8 : i32} {
      sdy.mesh @mesh = <["data"=2, "unused"=1, "tensor"=4]>
      func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
                      %w: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tensor", ?}]>}) -> tensor<8x8xf32> {
        %0 = stablehlo.dot_general %arg0, %w, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
        return %0 : tensor<8x8xf32>
      }
    }"#;

    fn asked(options: &Options) -> Spread {
        let imported = msc_frontends::read_stablehlo_text("m.mlir", FILE.as_bytes()).expect("imports");
        spread(options, &imported).expect("fits")
    }

    fn dims(s: &Spread, n: usize) -> Vec<Vec<&str>> {
        let name = |a: &AxisId| s.mesh.axes[a.0 as usize].name.as_str();
        s.given.params[&n].dims.iter().map(|d| d.iter().map(name).collect()).collect()
    }

    #[test]
    fn a_file_brings_its_mesh() {
        let s = asked(&Options::default());
        assert_eq!(in_words(&s.mesh.sizes()), "data=2,tensor=4");
        assert_eq!(dims(&s, 0), [vec!["data"], vec![]]);
        assert_eq!(dims(&s, 1), [vec![], vec!["tensor"]]);
        assert!(s.given.open_params.contains(&(1, 1)) && s.report.notes.is_empty());
    }

    #[test]
    fn the_users_axes_take_the_annotations_that_fit() {
        let s = asked(&Options { tp: 4, dp: 2, cp: 3, ..Options::default() });
        assert_eq!(in_words(&s.mesh.sizes()), "dp=2,cp=3,tp=4");
        assert_eq!((dims(&s, 0)[0].clone(), dims(&s, 1)[1].clone()), (vec!["dp"], vec!["tp"]));
        let s = asked(&Options { tp: 2, dp: 2, ..Options::default() });
        assert!(s.given.is_empty() && s.report.notes[0].contains("data=2,tensor=4"), "{:?}", s.report);
        let s = asked(&Options { tp: 4, dp: 2, annotations: false, ..Options::default() });
        assert!(s.given.is_empty() && s.report.notes.len() == 1);
    }

    #[test]
    fn shard_wins_over_the_file() {
        let s = asked(&Options { shard: vec!["^w$=data,-".into()], ..Options::default() });
        assert_eq!(dims(&s, 1), [vec!["data"], vec![]]);
        assert!(s.given.open_params.is_empty());
    }
}
