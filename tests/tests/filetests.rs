//! Filetests: `tests/filetests/**/*.msc`.
//!
//! A file is a module in the text form behind a header of comments:
//!
//! ```text
//! ; run: simplify, template, partition tp=2
//! ; What the file is about.
//! module @m
//! …
//! ```
//!
//! The passes run in the order given. After each, the module must pass the verifier; after all, the program must
//! give the numbers it gave before, on every rank, for two sets of random inputs (`; tolerance: 1e-12` changes
//! the bound, `; numbers: no` skips that). What the passes made is compared with a golden snapshot beside the
//! file: `INSTA_UPDATE=always` blesses it.

use msc_ir::interp::{Mode, run};
use msc_ir::module::{Mesh, MeshAxis};
use msc_ir::{Module, Tensor, text};
use msc_passes::cost::DeviceModel;
use msc_passes::template::Templates;
use msc_passes::{fuse, partition, recognise, simplify, template};
use msc_tests::{max_relative, run_split};
use std::path::{Path, PathBuf};

struct Header {
    passes: Vec<String>,
    tolerance: f64,
    numbers: bool,
}

fn header(source: &str, path: &Path) -> Header {
    let mut h = Header { passes: Vec::new(), tolerance: 1e-12, numbers: true };
    for line in source.lines().map_while(|l| l.strip_prefix(';')) {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "run" => h.passes = value.split(',').map(|p| p.trim().to_string()).collect(),
            "tolerance" => h.tolerance = value.trim().parse().expect("a number"),
            "numbers" => h.numbers = value.trim() != "no",
            _ => {}
        }
    }
    assert!(!h.passes.is_empty(), "{}: no `; run:` header", path.display());
    h
}

fn apply(pass: &str, m: &mut Module, templates: &mut Templates) {
    let mut words = pass.split_whitespace();
    match words.next().unwrap_or_default() {
        "simplify" => drop(simplify::simplify(m).expect("simplify")),
        "template" => *templates = template::template(m).expect("template"),
        "recognise" => drop(recognise::recognise(m, templates).expect("recognise")),
        "partition" => {
            let axes = words.map(|w| {
                let (name, size) = w.split_once('=').expect("axis=size");
                MeshAxis { name: name.into(), size: size.parse().expect("a size") }
            });
            let options = partition::Options { mesh: Mesh { axes: axes.collect() }, ..Default::default() };
            drop(partition::partition(m, &options).expect("partition"));
        }
        "fuse" => drop(fuse::fuse(m, &DeviceModel::default()).expect("fuse")),
        other => panic!("there is no pass `{other}`"),
    }
    msc_ir::verify::verify(m).unwrap_or_else(|e| panic!("after {pass}: {e}"));
}

fn random_inputs(m: &Module, mut seed: u64) -> Vec<Tensor> {
    let mut next = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 40) as f64 / (1u64 << 24) as f64
    };
    let g = m.graph(m.entry().expect("an entry").graph);
    g.param_types()
        .iter()
        .map(|t| {
            let v: Vec<f64> = (0..t.elements())
                .map(|_| if t.dtype.is_float() { next() * 2.0 - 1.0 } else { (next() * 8.0).floor() })
                .collect();
            Tensor::from_f64s(t, &v)
        })
        .collect()
}

fn filetest(path: &Path) {
    let source = std::fs::read_to_string(path).expect("readable");
    let h = header(&source, path);
    let mut m = text::parse(&source).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let before = m.clone();
    let mut templates = Templates::default();
    for pass in &h.passes {
        apply(pass, &mut m, &mut templates);
    }
    for seed in [1, 2].into_iter().filter(|_| h.numbers) {
        let inputs = random_inputs(&before, seed);
        let want = run(&before, before.entry().expect("an entry").graph, &inputs, Mode::Wide).expect("runs");
        for (rank, row) in run_split(&m, &inputs, &want, Mode::Wide).iter().enumerate() {
            for (name, got, want) in row {
                let d = max_relative(got, want);
                assert!(d <= h.tolerance, "{}: rank {rank}, {name}: {d:e}", path.display());
            }
        }
    }
    let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
    insta::with_settings!({
        snapshot_path => path.parent().expect("a folder").join("snapshots"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(stem, text::print(&m)) });
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    for e in entries {
        if e.is_dir() {
            files(&e, out);
        } else if e.extension().is_some_and(|x| x == "msc") {
            out.push(e);
        }
    }
}

#[test]
fn all_filetests() {
    let mut all = Vec::new();
    files(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("filetests"), &mut all);
    assert!(all.len() >= 5, "filetests are missing");
    let failed: Vec<String> = all
        .iter()
        .filter(|p| std::panic::catch_unwind(|| filetest(p)).is_err())
        .map(|p| p.display().to_string())
        .collect();
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn a_wrong_number_is_noticed() {
    let text = "module @m\n\ngraph @main(%0: f32[4]) {\n  %1 = negate %0 : f32[4]\n  return %1\n}\n\nentry \"train\" @main {\n  param \"x\"\n  result \"y\"\n}\n";
    let (a, b) =
        (text::parse(text).expect("parses"), text::parse(&text.replace("negate", "abs")).expect("parses"));
    let inputs = random_inputs(&a, 1);
    let want = run(&a, a.entry().expect("an entry").graph, &inputs, Mode::Wide).expect("runs");
    let rows = run_split(&b, &inputs, &want, Mode::Wide);
    assert!(max_relative(&rows[0][0].1, &rows[0][0].2) > 0.1);
}
