//! The layouts of `tests/layouts.toml`: all of them, and few that cover every pair of choices.

use msc::options::Options;
use msc::pipeline::{self, Outcome};
use msc::run::{RunOptions, run};
use msc_passes::partition::SequenceParallel;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Ranks along each axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layout {
    /// Ranks that split state; 0 stands for 1, here and below.
    pub tp: usize,
    /// Ranks that split the batch.
    pub dp: usize,
    /// Ranks that split the batch and store state in shards.
    pub fsdp: usize,
    /// Ranks that split the sequence.
    pub cp: usize,
    /// Ranks that split experts.
    pub ep: usize,
    /// Whether `tp` is to split the sequence between products.
    pub sp: bool,
}

impl Layout {
    fn sizes(&self) -> [(&'static str, usize); 5] {
        let axes = [("tp", self.tp), ("dp", self.dp), ("fsdp", self.fsdp), ("cp", self.cp), ("ep", self.ep)];
        axes.map(|(name, n)| (name, n.max(1)))
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.sizes().iter().map(|(_, n)| n).product()
    }

    /// Whether every axis that `part` names has the size it names.
    fn has(&self, part: &Layout) -> bool {
        self.sizes().iter().zip(part.sizes()).all(|(mine, theirs)| theirs.1 == 1 || mine.1 == theirs.1)
    }

    /// As options of a compilation.
    pub fn options(&self) -> Options {
        let [(_, tp), (_, dp), (_, fsdp), (_, cp), (_, ep)] = self.sizes();
        let sequence_parallel = if self.sp { SequenceParallel::On } else { SequenceParallel::Auto };
        Options { tp, dp, fsdp, cp, ep, sequence_parallel, ..Options::default() }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> =
            self.sizes().iter().filter(|(_, n)| *n > 1).map(|(a, n)| format!("{a}{n}")).collect();
        words.extend(self.sp.then(|| "sp".to_string()));
        f.write_str(if words.is_empty() { "one".into() } else { words.join("-") }.as_str())
    }
}

/// A layout that is refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The fixture.
    pub fixture: String,
    /// All layouts with at least these axes.
    pub layout: Layout,
    /// The code of the refusal.
    pub code: String,
}

/// What is known not to agree.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The fixture.
    pub fixture: String,
    /// At most so many outputs.
    pub outputs: usize,
    /// The reason.
    pub why: String,
}

/// Losses to be followed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The fixture.
    pub fixture: String,
    /// The layout.
    pub layout: Layout,
}

/// A layout beside those of all sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// The fixture.
    pub fixture: String,
    /// The layout.
    pub layout: Layout,
    /// Dimensions that are padded.
    #[serde(default)]
    pub padded: usize,
}

/// Names of fixtures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixtures {
    /// Folders.
    pub names: Vec<String>,
}

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layouts {
    /// Ranks that a layout has at most.
    pub max_ranks: usize,
    /// Sizes of each axis.
    pub axes: BTreeMap<String, Vec<usize>>,
    /// The fixtures.
    pub fixtures: Fixtures,
    /// Layouts that are refused.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// What is known not to agree.
    #[serde(default)]
    pub known: Vec<Known>,
    /// Layouts beside those of all sizes.
    #[serde(default)]
    pub also: Vec<Also>,
    /// Losses to be followed.
    #[serde(default)]
    pub curves: Vec<Curve>,
}

/// A fixture in a layout.
pub type Case = (String, Layout);

impl Layouts {
    /// The repository's file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load() -> Result<Layouts, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("layouts.toml");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Every layout.
    pub fn all(&self) -> Vec<Layout> {
        let one = vec![1];
        let of = |name: &str| self.axes.get(name).unwrap_or(&one);
        let mut out = Vec::new();
        for &tp in of("tp") {
            for &dp in of("dp") {
                for &fsdp in of("fsdp") {
                    for &cp in of("cp") {
                        out.extend(of("ep").iter().map(|&ep| Layout { tp, dp, fsdp, cp, ep, sp: false }));
                    }
                }
            }
        }
        out.retain(|l| l.ranks() <= self.max_ranks);
        out
    }

    /// A fixture's folder, if it is there with its outputs.
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        let other = std::env::var_os("MSC_FIXTURES").map(|o| PathBuf::from(o).join(name));
        let whole = |p: &PathBuf| ["model.mlir", "outputs.npz"].iter().all(|f| p.join(f).is_file());
        std::iter::once(crate::fixture(name)).chain(other).find(whole)
    }

    /// The fixtures that are there, with their folders.
    pub fn folders(&self) -> Vec<(String, PathBuf)> {
        let there = |name: &String| Some((name.clone(), self.folder(name)?));
        self.fixtures.names.iter().filter_map(there).collect()
    }

    /// Few cases in which every two choices that some case makes together are made together: of fixture and sizes.
    pub fn pairs(&self, fixtures: &[String]) -> Vec<Case> {
        type Choice = (usize, usize);
        let layouts = self.all();
        let choices = |f: usize, l: &Layout| -> Vec<Choice> {
            let sizes = l.sizes().into_iter().enumerate().map(|(i, (_, n))| (i + 1, n));
            std::iter::once((0, f)).chain(sizes).collect()
        };
        let pairs_of = |c: &[Choice]| -> Vec<(Choice, Choice)> {
            (0..c.len())
                .flat_map(|i| (i + 1..c.len()).map(move |j| (i, j)))
                .map(|(i, j)| (c[i], c[j]))
                .collect()
        };
        let cases: Vec<(usize, Layout)> =
            (0..fixtures.len()).flat_map(|f| layouts.iter().map(move |&l| (f, l))).collect();
        let mut open: BTreeSet<(Choice, Choice)> =
            cases.iter().flat_map(|(f, l)| pairs_of(&choices(*f, l))).collect();
        let mut out = Vec::new();
        while !open.is_empty() {
            let gain = |c: &&(usize, Layout)| {
                let new = pairs_of(&choices(c.0, &c.1)).iter().filter(|p| open.contains(p)).count();
                // Of equal gain the one with fewest ranks, and then the first.
                (new, std::cmp::Reverse(c.1.ranks()), std::cmp::Reverse((c.0, c.1)))
            };
            let Some(best) = cases.iter().max_by_key(gain).copied() else { break };
            pairs_of(&choices(best.0, &best.1)).iter().for_each(|p| {
                open.remove(p);
            });
            out.push((fixtures[best.0].clone(), best.1));
        }
        out
    }

    /// The refusal that is expected of a case.
    pub fn refusal(&self, name: &str, layout: &Layout) -> Option<&Refused> {
        self.refused.iter().find(|r| r.fixture == name && layout.has(&r.layout))
    }

    /// Compiles, runs and compares a case.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn judge(&self, name: &str, dir: &Path, layout: &Layout, scratch: &Path) -> Result<(), String> {
        let refused = self.refusal(name, layout);
        let plan = scratch.join(format!("{name}.{layout}.bin"));
        let compiled = pipeline::compile(&dir.join("model.mlir"), &layout.options(), None);
        let mut c = match (compiled, refused) {
            (Ok(Outcome::Compiled(_)), Some(r)) => return Err(format!("is not refused with {}", r.code)),
            (Ok(Outcome::Compiled(c)), None) => c,
            (Ok(Outcome::Emitted(_)), _) => return Err("nothing was compiled".into()),
            (Err(e), Some(r)) if e.to_string().contains(&r.code) => return Ok(()),
            (Err(e), _) => return Err(e.to_string()),
        };
        pipeline::write(&mut c, &plan).map_err(|e| e.to_string())?;
        let o = RunOptions {
            plan: plan.clone(),
            inputs: vec![dir.join("inputs.npz")],
            check: Some(dir.join("outputs.npz")),
            steps: 1,
            comm_timeout: 120,
            ..Default::default()
        };
        let mut said = Vec::new();
        let done = run(&o, &mut said).map_err(|e| e.to_string());
        let _ = std::fs::remove_file(&plan);
        if let Some(warning) = String::from_utf8_lossy(&said).lines().find(|l| l.contains("warning")) {
            return Err(warning.to_string());
        }
        match (done, self.known.iter().find(|k| k.fixture == name)) {
            (Err(e), Some(k)) if (1..=k.outputs).any(|n| e.contains(&format!("failed: {n} of"))) => Ok(()),
            (done, _) => done,
        }
    }
}
