//! What a user asks of `msc compile`.

use crate::error::{Error, Result};
use msc_ir::module::{Mesh, MeshAxis};
use msc_passes::partition::SequenceParallel;

/// The options that shape a plan. Together with the source and the msc version they determine it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ranks that split model state.
    pub tp: usize,
    /// Ranks that split the batch.
    pub dp: usize,
    /// Ranks that split the batch, and on which state is stored in shards and gathered where it is used.
    pub fsdp: usize,
    /// Ranks that split the sequence.
    pub cp: usize,
    /// Ranks that split the experts, and the batch elsewhere.
    pub ep: usize,
    /// Axes by name, outermost first, in the place of the five above.
    pub mesh: Vec<(String, usize)>,
    /// `REGEX=SPEC`: layouts of parameters.
    pub shard: Vec<String>,
    /// Devices and links: the name of a topology that comes with msc, or a file. Without one, the devices of a
    /// server, however many.
    pub topology: Option<String>,
    /// Whether `tp` splits the sequence between the products that it splits.
    pub sequence_parallel: SequenceParallel,
    /// Whether the file's sharding annotations are followed.
    pub annotations: bool,
    /// Whether ops are recognised as named operations.
    pub recognise: bool,
    /// Whether named operations are fused with their neighbours and executed by generated kernels.
    pub fuse: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tp: 1,
            dp: 1,
            fsdp: 1,
            cp: 1,
            ep: 1,
            mesh: Vec::new(),
            shard: Vec::new(),
            topology: None,
            sequence_parallel: SequenceParallel::Auto,
            annotations: true,
            recognise: true,
            fuse: true,
        }
    }
}

/// Ranks a plan may have: far above any cluster, and small enough that a mistyped number is refused.
pub const MAX_RANKS: usize = 1 << 16;

impl Options {
    /// The axes, slow ones first: `dp` outside, `tp` inside (neighbouring ranks have the fastest links).
    fn axes(&self) -> Vec<(&str, usize)> {
        if self.mesh.is_empty() {
            vec![("dp", self.dp), ("fsdp", self.fsdp), ("ep", self.ep), ("cp", self.cp), ("tp", self.tp)]
        } else {
            self.mesh.iter().map(|(name, n)| (name.as_str(), *n)).collect()
        }
    }

    /// Whether the options say over which axes the step is spread. If not, the file may say so.
    pub fn names_axes(&self) -> bool {
        self.axes().iter().any(|(_, n)| *n != 1)
    }

    /// The mesh that the options name: one rank where they name none.
    ///
    /// # Errors
    /// [`Error::Usage`] for a size of zero, absurd sizes, and names that are no names or are there twice.
    pub fn mesh(&self) -> Result<Mesh> {
        let axes = self.axes();
        let given = || match self.mesh.is_empty() {
            true => axes.iter().map(|(name, n)| format!("--{name} {n}")).collect::<Vec<_>>().join(" "),
            false => format!("--mesh '{}'", mesh_text(&axes)),
        };
        let ranks = axes.iter().try_fold(1usize, |a, (_, n)| a.checked_mul(*n)).filter(|&n| n <= MAX_RANKS);
        if axes.iter().any(|(_, n)| *n == 0) || ranks.is_none() {
            return Err(Error::Usage(format!("{}: ranks must be between 1 and {MAX_RANKS}", given())));
        }
        for (i, (name, _)) in axes.iter().enumerate() {
            if !is_axis_name(name) {
                let message = "an axis is named by a letter, then letters, digits, `_` and `.`";
                return Err(Error::Usage(format!("{}: `{name}` is no name: {message}", given())));
            }
            if axes[..i].iter().any(|(n, _)| n == name) {
                return Err(Error::Usage(format!("{}: there are two axes `{name}`", given())));
            }
        }
        Ok(Mesh {
            axes: axes
                .iter()
                .filter(|(_, n)| *n > 1)
                .map(|&(n, size)| MeshAxis { name: n.into(), size })
                .collect(),
        })
    }

    /// Names and values for the plan's header.
    pub fn describe(&self) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> = Vec::new();
        if self.mesh.is_empty() {
            out.extend(self.axes().into_iter().rev().map(|(name, n)| (name.to_string(), n.to_string())));
        } else {
            out.push(("mesh".to_string(), mesh_text(&self.mesh)));
        }
        out.extend(self.shard.iter().map(|s| ("shard".to_string(), s.clone())));
        out.extend(self.topology.iter().map(|t| ("topology".to_string(), t.clone())));
        out.push(("sequence-parallel".to_string(), self.sequence_parallel.name().to_string()));
        let switches =
            [("annotations", self.annotations), ("recognise", self.recognise), ("fuse", self.fuse)];
        out.extend(switches.map(|(name, on)| (name.to_string(), on.to_string())));
        out
    }
}

/// Axes as `--mesh` takes them.
pub fn mesh_text<S: AsRef<str>>(axes: &[(S, usize)]) -> String {
    axes.iter().map(|(name, n)| format!("{}={n}", name.as_ref())).collect::<Vec<_>>().join(",")
}

/// A mesh in words.
pub fn in_words(axes: &[(String, usize)]) -> String {
    if axes.is_empty() { "one rank".into() } else { mesh_text(axes) }
}

/// Whether a word can name an axis: it is one word wherever a program is shown.
pub fn is_axis_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
}

/// Axes from `dp=2,tp=4`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_mesh(text: &str) -> std::result::Result<Vec<(String, usize)>, String> {
    let axis = |part: &str| {
        let (name, size) = part.split_once('=').ok_or(format!("`{part}` should be NAME=RANKS"))?;
        let size = size.trim().parse().map_err(|_| format!("`{}` is no number of ranks", size.trim()))?;
        Ok((name.trim().to_string(), size))
    };
    text.split(',').map(axis).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_of_ones_own_axes() {
        let mesh = |text: &str| {
            let mesh = parse_mesh(text).map_err(Error::Usage)?;
            Options { mesh, ..Options::default() }.mesh()
        };
        let m = mesh("replica=2, tp=4,one=1").expect("a mesh");
        let axes: Vec<(&str, usize)> = m.axes.iter().map(|a| (a.name.as_str(), a.size)).collect();
        assert_eq!(axes, [("replica", 2), ("tp", 4)]);
        for (bad, part) in [
            ("tp", "NAME=RANKS"),
            ("tp=x", "`x` is no number"),
            ("tp=0", "between 1"),
            ("a=65536,b=2", "between 1"),
            ("a b=2", "`a b` is no name"),
            ("=2", "`` is no name"),
            ("a=2,a=2", "two axes `a`"),
        ] {
            let e = mesh(bad).expect_err(bad).to_string();
            assert!(e.contains(part), "{bad}: {e}");
        }
    }
}
