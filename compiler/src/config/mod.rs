//! `--config`: a YAML file that says what options say (`docs/config.md`).
//!
//! What the command line gives wins. Every key is known or refused with its line and the key that is spelled most like
//! it.

mod read;

use crate::error::{Error, Result};
use crate::options::is_axis_name;
use msc_passes::cost::topology::Topology;
use msc_passes::partition::SequenceParallel;
use read::{File, line};
use saphyr::{LoadableYamlNode, MarkedYaml};
use std::path::{Path, PathBuf};

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Of the model.
    pub model: Model,
    /// Of the layout.
    pub parallel: Parallel,
    /// Of the run.
    pub training: Training,
}

/// Section `model`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// The step.
    pub file: Option<PathBuf>,
    /// Whether ops are recognised as named operations.
    pub recognise: Option<bool>,
    /// Whether kernels are generated.
    pub fuse: Option<bool>,
}

/// Section `parallel`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parallel {
    /// Ranks that split model state.
    pub tp: Option<usize>,
    /// Ranks that split the batch.
    pub dp: Option<usize>,
    /// Ranks that split the batch and store state in shards.
    pub fsdp: Option<usize>,
    /// Ranks that split the sequence.
    pub cp: Option<usize>,
    /// Ranks that split the experts.
    pub ep: Option<usize>,
    /// Axes of any name.
    pub mesh: Option<Vec<(String, usize)>>,
    /// `REGEX=SPEC`, in the file's order.
    pub shard: Vec<String>,
    /// A topology's name or file.
    pub topology: Option<String>,
    /// Whether `tp` splits the sequence between products.
    pub sequence_parallel: Option<SequenceParallel>,
    /// Whether the model's annotations are followed.
    pub annotations: Option<bool>,
}

/// Section `training`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Training {
    /// Steps to run.
    pub steps: Option<usize>,
    /// Seed of what is not given otherwise.
    pub init: Option<u64>,
    /// Tokens.
    pub data: Option<PathBuf>,
    /// Parameters and state.
    pub params: Vec<PathBuf>,
    /// Where the state goes.
    pub save: Option<PathBuf>,
    /// Steps after which it is saved again.
    pub save_every: Option<usize>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Config`].
    pub fn open(path: &Path) -> Result<Config> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Error::Io { path: path.to_path_buf(), error })?;
        Config::parse(path, &text)
    }

    /// Reads a file's text. Paths in it are relative to the file's folder.
    ///
    /// # Errors
    /// [`Error::Config`] with the line.
    pub fn parse(path: &Path, text: &str) -> Result<Config> {
        let file = File { path };
        file.plain(text)?;
        let documents = MarkedYaml::load_from_str(text)
            .map_err(|e| file.refuse(e.marker().line(), format!("it is no YAML: {}", e.info()), HELP))?;
        let mut out = Config::default();
        let root = match &documents[..] {
            [] => return Ok(out),
            [one] => one,
            [_, second, ..] => return Err(file.refuse(line(second), "a second document begins here", HELP)),
        };
        file.section(root, &["model", "parallel", "training"], |key, v| match key {
            "model" => file.section(v, &["file", "recognise", "fuse"], |key, v| {
                let m = &mut out.model;
                match key {
                    "file" => m.file = Some(file.path(key, v)?),
                    "recognise" => m.recognise = Some(file.switch(key, v)?),
                    _ => m.fuse = Some(file.switch(key, v)?),
                }
                Ok(())
            }),
            "parallel" => file.parallel(v, &mut out.parallel),
            _ => file.section(v, &["steps", "init", "data", "params", "save", "save_every"], |key, v| {
                let t = &mut out.training;
                match key {
                    "steps" => t.steps = Some(file.count(key, v)?),
                    "init" => t.init = Some(file.number(key, v)?),
                    "data" => t.data = Some(file.path(key, v)?),
                    "params" => t.params = file.list(v).map(|v| file.path(key, v)).collect::<Result<_>>()?,
                    "save" => t.save = Some(file.path(key, v)?),
                    _ => t.save_every = Some(file.count(key, v)?),
                }
                Ok(())
            }),
        })?;
        Ok(out)
    }
}

const HELP: &str = "docs/config.md describes the file";

impl File<'_> {
    /// Section `parallel`.
    fn parallel(&self, v: &MarkedYaml<'_>, p: &mut Parallel) -> Result<()> {
        let known =
            ["tp", "dp", "fsdp", "cp", "ep", "mesh", "shard", "topology", "sequence-parallel", "annotations"];
        let mut axis = None;
        let mut mesh = None;
        self.section(v, &known, |key, v| {
            match key {
                "mesh" => {
                    mesh = Some(line(v));
                    p.mesh = Some(self.mesh(v)?);
                }
                "shard" => {
                    for (names, (_, spec)) in self.keys(v)? {
                        p.shard.push(format!("{names}={}", self.text("shard", spec)?));
                    }
                }
                "topology" => {
                    let name = self.text(key, v)?;
                    let shipped = Topology::shipped_names().contains(&name);
                    p.topology = Some(match shipped {
                        true => name.to_string(),
                        false => self.path(key, v)?.display().to_string(),
                    });
                }
                "sequence-parallel" => {
                    let word = self.text(key, v)?;
                    let known = word.parse().map_err(|_| self.expected(key, "auto, on or off", v))?;
                    p.sequence_parallel = Some(known);
                }
                "annotations" => p.annotations = Some(self.switch(key, v)?),
                _ => {
                    let n = Some(self.count(key, v)?);
                    axis = Some(key.to_string());
                    match key {
                        "tp" => p.tp = n,
                        "dp" => p.dp = n,
                        "fsdp" => p.fsdp = n,
                        "cp" => p.cp = n,
                        _ => p.ep = n,
                    }
                }
            }
            Ok(())
        })?;
        match (axis, mesh) {
            (Some(axis), Some(at)) => {
                let message = format!("`mesh` names all axes, and `{axis}` is given beside it");
                Err(self.refuse(at, message, "give one of the two"))
            }
            _ => Ok(()),
        }
    }

    fn mesh(&self, v: &MarkedYaml<'_>) -> Result<Vec<(String, usize)>> {
        let mut out = Vec::new();
        for (name, (key, size)) in self.keys(v)? {
            if !is_axis_name(name) {
                return Err(self.refuse(line(key), format!("`{name}` is no name of an axis"), HELP));
            }
            out.push((name.to_string(), self.count(name, size)?));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(Path::new("runs/a.yaml"), text)
    }

    #[test]
    fn every_key() {
        let c = parse(
            "# comment
model:
  file: step.mlirbc
  recognise: false
  fuse: true
parallel:
  tp: 4
  dp: 2
  fsdp: 1
  cp: 1
  ep: 1
  shard:
    'mlp.*': tp,-
    \"a=b\": '-'
  topology: 910b-8
  sequence-parallel: on
  annotations: false
training:
  steps: 10
  init: 0
  data: /abs/tokens.npy
  params: [a.npz, b.npz]
  save: out/
  save_every: 5
",
        )
        .expect("is right");
        assert_eq!(c.model.file, Some("runs/step.mlirbc".into()));
        assert_eq!((c.model.recognise, c.model.fuse), (Some(false), Some(true)));
        let p = &c.parallel;
        assert_eq!([p.tp, p.dp, p.fsdp, p.cp, p.ep], [Some(4), Some(2), Some(1), Some(1), Some(1)]);
        assert_eq!(p.shard, ["mlp.*=tp,-", "a=b=-"]);
        assert_eq!((p.topology.as_deref(), p.annotations), (Some("910b-8"), Some(false)));
        assert_eq!(p.sequence_parallel, Some(SequenceParallel::On));
        let t = &c.training;
        assert_eq!((t.steps, t.init, t.save_every), (Some(10), Some(0), Some(5)));
        assert_eq!(t.data, Some("/abs/tokens.npy".into()));
        assert_eq!((t.params.len(), t.save.clone()), (2, Some("runs/out/".into())));

        let c =
            parse("parallel: {mesh: {replica: 2, tp: 4}, topology: my.json}\nmodel:\n").expect("is right");
        assert_eq!(c.parallel.mesh, Some(vec![("replica".into(), 2), ("tp".into(), 4)]));
        assert_eq!(c.parallel.topology.as_deref(), Some("runs/my.json"));
        assert_eq!(parse("").expect("says nothing"), Config::default());
    }

    #[test]
    fn faults_are_told_with_their_line() {
        for (text, at, part) in [
            ("parallel:\n  tp: 2\n  dpp: 3\n", 3, "no key `dpp`, do you mean `dp`"),
            ("paralel:\n  tp: 2\n", 1, "do you mean `parallel`"),
            ("parallel:\n  tp: 2\n  tp: 4\n", 3, "duplicated"),
            ("parallel:\n  tp: two\n", 2, "`tp` should be a whole number, this is `two`"),
            ("parallel:\n  tp: 0\n", 2, "at least 1"),
            ("parallel:\n  tp: -1\n", 2, "whole number, this is -1"),
            ("parallel: 3\n", 1, "keys with values"),
            ("- a\n", 1, "keys with values"),
            ("parallel:\n  mesh:\n    a b: 2\n", 3, "no name of an axis"),
            ("parallel:\n  tp: 2\n  mesh:\n    a: 2\n", 4, "`tp` is given beside it"),
            ("parallel:\n  shard:\n    w: 3\n", 3, "`shard` should be a text, this is 3"),
            ("model:\n  fuse: yes please\n", 2, "true or false"),
            ("training:\n  steps: 1.5\n", 2, "this is 1.5"),
            ("training:\n  {1: 2}\n", 2, "1 is no key"),
            ("a: [\n", 2, "no YAML"),
            ("model: &m {}\nparallel: *m\n", 2, "aliases"),
            ("model:\n  file: [[[[[[[[[x]]]]]]]]]\n", 2, "nested deeper than 8"),
            ("model: {}\n---\nmodel: {}\n", 3, "second document"),
        ] {
            let e = parse(text).expect_err(text);
            let Error::Config { line, message, .. } = &e else { panic!("{e}") };
            assert!(*line == at && message.contains(part), "{text}: {e}");
            assert!(e.to_string().starts_with("MSC-X0006: runs/a.yaml:"), "{e}");
        }
    }

    /// Whatever stands in a file, it is read or refused.
    #[test]
    fn no_file_makes_it_panic() {
        let good = "# c\nmodel:\n  file: &a 'x.mlir'\n  fuse: !!bool true\nparallel:\n  mesh: {a: 2, b: 3}\n  shard:\n    \"w\": '-'\n  topology: !!str host\ntraining:\n  params: [a, b]\n  data: |\n    text\n";
        assert!(parse(good).is_ok(), "{:?}", parse(good));
        let signs = b":-[]{}\"'&*!|>%@`#,?\n \t~<.0a\xc3";
        let mut x = 1u64;
        let mut next = |n: usize| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as usize % n
        };
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut text = good.as_bytes().to_vec();
            for _ in 0..1 + next(4) {
                let at = next(text.len());
                match next(3) {
                    0 => text[at] = signs[next(signs.len())],
                    1 => text.insert(at, signs[next(signs.len())]),
                    _ => drop(text.remove(at)),
                }
            }
            refused += usize::from(parse(&String::from_utf8_lossy(&text)).is_err());
        }
        assert!(refused > 1000, "{refused}");
        for deep in ["[", "{a: ", "- ", "? "] {
            assert!(parse(&deep.repeat(100_000)).is_err(), "{deep}");
        }
        let bomb = format!(
            "a0: &a0 x\n{}",
            (1..40).map(|i| format!("a{i}: &a{i} [*a{}, *a{}]\n", i - 1, i - 1)).collect::<String>()
        );
        assert!(parse(&bomb).is_err());
    }
}
