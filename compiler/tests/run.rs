//! `msc run` as a process, on a real step: where inputs come from, and what comes out.

mod support;

use msc_ir::{DType, Storage, Tensor};
use msc_runtime::data;
use msc_runtime::plan::Plan;
use std::path::{Path, PathBuf};
use support::{compile, fixture, flat, losses, run, stderr, stdout, tokens, write};
use tempfile::TempDir;

const STEP: &str = "llama_torchax_tiny";
const VOCABULARY: u64 = 96;
/// Rounding alone: two layouts sum in different orders.
const DRIFT: f64 = 2e-6;

struct Bench {
    dir: TempDir,
    plan: PathBuf,
}

impl Bench {
    fn new(model: &Path, options: &[&str]) -> Bench {
        let dir = tempfile::tempdir().expect("a folder");
        let plan = dir.path().join("plan.bin");
        compile(model, &plan, options);
        Bench { dir, plan }
    }

    fn of(name: &str, options: &[&str]) -> Bench {
        Bench::new(&fixture(name).join("model.mlir"), options)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        write(self.dir.path(), name, bytes)
    }

    fn losses(&self, options: &[&str]) -> Vec<f64> {
        losses(&stdout(&run(&self.plan, &[options, &["--json"]].concat())))
    }

    fn refused(&self, options: &[&str]) -> String {
        let o = run(&self.plan, options);
        assert!(!o.status.success() && o.stdout.is_empty(), "{options:?}");
        assert_eq!(o.status.code(), Some(2), "{options:?}: {}", stderr(&o));
        stderr(&o)
    }
}

/// Options of a run of three steps.
fn trained<'a>(data: &'a str, init: &'a str, save: &'a str) -> [&'a str; 10] {
    ["--init", init, "--data", data, "--data-dtype", "u16", "--steps", "3", "--save", save]
}

fn shapes(tensors: &data::Tensors) -> Vec<(String, String)> {
    tensors.iter().map(|(n, t)| (n.clone(), t.ty().to_string())).collect()
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= DRIFT * b.abs())
}

#[test]
fn initial_values_and_data_are_the_same_on_every_layout() {
    let one = Bench::of(STEP, &[]);
    let data = one.write("tokens.bin", flat(&tokens(200, VOCABULARY)));
    let saved = one.path("one.safetensors");
    let reference = one.losses(&trained(&data, "7", &saved));
    // Nothing is learned yet: the loss is that of guessing.
    assert!((reference[0] - (VOCABULARY as f64).ln()).abs() < 0.2, "{reference:?}");
    assert_eq!(reference.len(), 3);
    assert_eq!(one.losses(&trained(&data, "7", &saved)), reference);
    let other = one.path("other.safetensors");
    assert!(!close(&one.losses(&trained(&data, "8", &other)), &reference));
    let state = data::read(Path::new(&saved)).expect("reads");
    for layout in [["--tp", "2"], ["--dp", "2"]] {
        let split = Bench::of(STEP, &layout);
        let path = split.path("split.safetensors");
        let got = split.losses(&trained(&data, "7", &path));
        assert!(close(&got, &reference), "{layout:?}: {got:?}, one rank has {reference:?}");
        // Every layout saves the same tensors, whole.
        let other = data::read(Path::new(&path)).expect("reads");
        assert_eq!(shapes(&other), shapes(&state));
    }
}

#[test]
fn every_form_of_the_data_gives_the_same_batches() {
    let b = Bench::of(STEP, &[]);
    let stream = tokens(2 * 16 * 3 + 1, VOCABULARY);
    let with = |data: &str, more: &[&str]| {
        b.losses(&[&["--init", "1", "--data", data, "--steps", "3"], more].concat())
    };
    let bin = b.write("flat.bin", flat(&stream));
    let reference = with(&bin, &["--data-dtype", "u16"]);

    let wide: Vec<u8> = stream.iter().flat_map(|&t| u32::from(t).to_le_bytes()).collect();
    assert_eq!(with(&b.write("wide.bin", wide), &["--data-dtype", "u32"]), reference);

    // Megatron: three sequences in two documents; the index says where each is.
    let (a, rest) = stream.split_at(40);
    let (m, z) = rest.split_at(5);
    b.write("corpus.bin", flat(&[z, a, m].concat()));
    let mut idx = b"MMIDIDX\0\0".to_vec();
    idx.extend(1u64.to_le_bytes());
    idx.push(8);
    idx.extend(3u64.to_le_bytes());
    idx.extend(3u64.to_le_bytes());
    [a, m, z].iter().for_each(|s| idx.extend((s.len() as i32).to_le_bytes()));
    [z.len(), z.len() + a.len(), 0].iter().for_each(|&p| idx.extend((2 * p as i64).to_le_bytes()));
    [0i64, 2, 3].iter().for_each(|d| idx.extend(d.to_le_bytes()));
    b.write("corpus.idx", idx);
    for name in ["corpus.bin", "corpus.idx", "corpus"] {
        assert_eq!(with(&b.path(name), &[]), reference, "{name}");
    }

    let tensor = |values: &[u16], shape: &[usize]| {
        let data = Storage::I32(values.iter().map(|&t| t.into()).collect());
        Tensor::new(shape.iter().copied(), data)
    };
    let rows: Vec<u16> = (0..6).flat_map(|r| stream[r * 16..r * 16 + 17].to_vec()).collect();
    let npz = |name: &str, arrays: &[(&str, &Tensor)]| {
        let path = b.path(name);
        data::write(Path::new(&path), arrays, None).expect("writes");
        path
    };
    let n = stream.len() - 1;
    let (ids, labels) = (tensor(&stream[..n], &[6, 16]), tensor(&stream[1..], &[6, 16]));
    let forms = [
        npz("stream.npz", &[("x", &tensor(&stream, &[stream.len()]))]),
        npz("rows.npz", &[("tokens", &tensor(&rows, &[6, 17]))]),
        npz("both.npz", &[("tokens", &ids), ("labels", &labels)]),
    ];
    for form in forms {
        assert_eq!(with(&form, &[]), reference, "{form}");
    }
}

#[test]
fn data_come_back_to_their_beginning_and_say_so() {
    let b = Bench::of(STEP, &[]);
    // Three samples, two a step: the second step has the last and the first.
    let data = b.write("tokens.bin", flat(&tokens(3 * 16 + 1, VOCABULARY)));
    let options = ["--init", "0", "--data", &data, "--data-dtype", "u16", "--steps", "4"];
    let text = stdout(&run(&b.plan, &options));
    let wraps: Vec<&str> = text.lines().filter(|l| l.contains("beginning of the data")).collect();
    assert_eq!(wraps, ["step 2 comes back to the beginning of the data, 3 samples; later steps go on so"]);
    let first = text.lines().find(|l| l.starts_with("step   1")).expect("a line");
    assert!(first.contains("tokens/s") && first.ends_with("mfu n/a"), "{first}");
    let o = run(&b.plan, &[&options[..], &["--peak-tflops", "1", "--json"]].concat());
    let line = stdout(&o).lines().find(|l| l.contains("losses")).expect("a step").to_string();
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"));
    // Two rows of 16 tokens; MFU is the plan's FLOPs over time and peak.
    let seconds = number("ms") / 1e3;
    assert!((number("tokens_per_s") * seconds / 32.0 - 1.0).abs() < 1e-6);
    let flops = Plan::open(&b.plan).expect("a plan").meta.step.matmul_flops as f64;
    assert!((number("mfu") * seconds * 1e12 / flops - 1.0).abs() < 1e-6);
}

/// Inputs that are fed are among those that state is judged from.
#[test]
fn a_run_on_data_agrees_with_itself() {
    let b = Bench::of(STEP, &[]);
    let (data, out) = (b.write("tokens.bin", flat(&tokens(200, VOCABULARY))), b.path("out.npz"));
    let options = ["--init", "0", "--data", &data, "--data-dtype", "u16"];
    stdout(&run(&b.plan, &[&options[..], &["--out", &out]].concat()));
    let text = stdout(&run(&b.plan, &[&options[..], &["--check", &out]].concat()));
    assert!(text.contains("check passed"), "{text}");
}

/// The tenth sample has a token too large; nine samples are not trained on for nothing.
#[test]
fn what_was_trained_is_saved_before_damage_further_on() {
    let b = Bench::of(STEP, &[]);
    let mut stream = tokens(200, VOCABULARY);
    stream[9 * 16 + 3] = 96;
    let (data, state) = (b.write("tokens.bin", flat(&stream)), b.path("state.safetensors"));
    let options = ["--init", "0", "--data", &data, "--data-dtype", "u16", "--steps", "6", "--save", &state];
    let o = run(&b.plan, &options);
    assert_eq!(o.status.code(), Some(2));
    assert!(stderr(&o).contains("MSC-D0010"), "{}", stderr(&o));
    let file = data::file::TensorFile::open(Path::new(&state)).expect("a state");
    assert_eq!(file.steps(), Some(4));
}

/// A model of two layers, 64 wide, 128 in the MLP, 4 heads and 2 for keys and values, 96 tokens, 2 × 16 positions:
/// forward and twice that backward, less the gradient of the embeddings' input, which no one needs.
#[test]
fn the_plan_counts_the_matrix_products() {
    let b = Bench::of(STEP, &[]);
    let (tokens, d, f, kv, v, s) = (32u64, 64u64, 128u64, 32u64, 96u64, 16u64);
    let layer = tokens * (2 * d * d + 2 * d * kv + 3 * d * f) + 2 * tokens * s * d;
    let products = 2 * layer + tokens * d * v;
    let counted = Plan::open(&b.plan).expect("a plan").meta.step.matmul_flops;
    let least = 3 * 2 * products;
    // Rotary angles are matrix products too in this export: well below a hundredth.
    assert!(counted >= least && counted < least + least / 100, "{counted}, products alone {least}");
    for layout in [["--tp", "2"], ["--dp", "2"]] {
        let split = Bench::of(STEP, &layout);
        assert_eq!(Plan::open(&split.plan).expect("a plan").meta.step.matmul_flops, counted, "{layout:?}");
    }
}

/// The fixture's inputs under the names of a checkpoint.
fn checkpoint(b: &Bench) -> (String, String) {
    let plan = Plan::open(&b.plan).expect("a plan");
    let numbered = data::read(&fixture(STEP).join("inputs.npz")).expect("inputs");
    let mut named: Vec<(String, Tensor)> = Vec::new();
    for (p, t) in plan.entry().params.iter().zip(numbered.into_values()) {
        let weight = p.name.strip_prefix("result[0]['").and_then(|n| n.strip_suffix("']"));
        named.push((weight.map_or(p.name.clone(), str::to_string), t));
    }
    named.push(("buffer.unused".into(), Tensor::scalar(DType::F32, 1.0)));
    let refs: Vec<(&str, &Tensor)> = named.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let path = b.path("checkpoint.safetensors");
    data::write(Path::new(&path), &refs, None).expect("writes");
    let map = "# Hugging Face's names\n'model.*': result[0]['model.*']\nlm_head.weight: \"result[0]['lm_head.weight']\"\nbuffer.*: null\n";
    (path, b.write("names.yaml", map.replace("buffer.*", "buffer.unused")))
}

#[test]
fn parameters_are_matched_by_mapped_names() {
    for layout in [&[][..], &["--tp", "2"]] {
        let b = Bench::of(STEP, layout);
        let (params, names) = checkpoint(&b);
        let inputs = fixture(STEP).join("inputs.npz").display().to_string();
        let want = b.losses(&["--inputs", &inputs, "--steps", "2"]);
        assert_eq!(b.losses(&["--params", &params, "--names", &names, "--steps", "2"]), want);
        let check = fixture(STEP).join("outputs.npz").display().to_string();
        let o = run(&b.plan, &["--params", &params, "--names", &names, "--check", &check]);
        assert!(stdout(&o).contains("check passed"));
        let e = b.refused(&["--params", &params]);
        assert!(e.contains("MSC-D0003") && e.contains("buffer.unused"), "{e}");
    }
}

#[test]
fn types_that_do_not_fit_are_named() {
    let b = Bench::of(STEP, &[]);
    let name = "result[0]['model.layers.0.mlp.down_proj.weight']";
    let file = |shape: [usize; 2], dtype: DType| {
        let t = Tensor::from_f64s(&msc_ir::TensorType::new(dtype, shape), &vec![0.01; shape[0] * shape[1]]);
        let path = b.path("one.safetensors");
        data::write(Path::new(&path), &[(name, &t)], None).expect("writes");
        path
    };
    let with = |path: &str, more: &[&str]| b.refused(&[&["--params", path, "--init", "0"], more].concat());
    let e = with(&file([128, 64], DType::F32), &[]);
    assert!(e.contains("MSC-D0005") && e.contains(name) && e.contains("transposed"), "{e}");
    let e = with(&file([64, 128], DType::BF16), &[]);
    assert!(e.contains("f32[64,128], the file has bf16[64,128]") && e.contains("--convert"), "{e}");
    // Converted it fits, and only the tokens are missing.
    let e = with(&file([64, 128], DType::BF16), &["--convert"]);
    assert!(e.contains("MSC-D0004: 2 of 67 inputs") && e.contains("--data"), "{e}");
    let path = file([64, 128], DType::F32);
    let e = with(&path, &["--inputs", &path]);
    assert!(e.contains("MSC-D0006") && e.contains(name), "{e}");
}

/// The model as an exporter that drops donations writes it, and which result is which argument's next value.
fn without_donation(b: &Path) -> (PathBuf, String) {
    let text = std::fs::read_to_string(fixture(STEP).join("model.mlir")).expect("a fixture");
    let mut pairs = Vec::new();
    let mut plain = String::new();
    for (n, piece) in text.split("tf.aliasing_output = ").enumerate() {
        if n == 0 {
            plain += piece;
            continue;
        }
        let argument: usize =
            plain.rsplit("%arg").next().and_then(|a| a.split(':').next()?.parse().ok()).expect("an argument");
        let (result, rest) = piece.split_once(" : i32").expect("a number");
        pairs.push(format!("[{result}, {argument}]"));
        plain = format!("{}{}", plain.trim_end(), rest);
    }
    let plain = plain.replace(" {}", "");
    let model = b.join("plain.mlir");
    std::fs::write(&model, plain).expect("writes");
    (model, format!("[{}]", pairs.join(", ")))
}

#[test]
fn state_that_the_source_does_not_name_carries_over_by_pairs() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, pairs) = without_donation(dir.path());
    let inputs = fixture(STEP).join("inputs.npz").display().to_string();
    let reference = fixture(STEP).join("losses.json").display().to_string();
    for layout in [&[][..], &["--tp", "2"]] {
        let b = Bench::new(&model, layout);
        let file = b.write("pairs.json", &pairs);
        let options = ["--inputs", &inputs, "--steps", "5", "--losses", &reference];
        let text = stdout(&run(&b.plan, &[&options[..], &["--carry", &file]].concat()));
        let line = text.lines().find_map(|l| l.strip_prefix("largest deviation of a loss: "));
        let deviation: f64 = line.expect("a deviation").parse().expect("a number");
        assert!(deviation < DRIFT, "{text}");
        // Without them every step is the first.
        let still = b.losses(&options[..4]);
        assert!(still.windows(2).all(|w| w[0] == w[1]), "{still:?}");
        let e = b.refused(&["--inputs", &inputs, "--carry", &b.write("bad.json", "[[0, 1000]]")]);
        assert!(e.contains("MSC-R0007") && e.contains("1000"), "{e}");
    }
    let b = Bench::new(&model, &[]);
    let e = b.refused(&["--inputs", &inputs, "--carry", "result[0]['lm_head.weight']=arg2"]);
    assert!(e.contains("MSC-R0007"), "{e}");
}

/// A step whose constants are arguments, as torch_xla writes it: learning rate, betas, epsilons.
#[test]
fn run_time_scalars_follow_their_schedule() {
    let b = Bench::of("llama_torchxla_tiny", &[]);
    let data = b.write("tokens.bin", flat(&tokens(200, VOCABULARY)));
    let mut base: Vec<String> =
        ["--init", "0", "--data", &data, "--data-dtype", "u16"].map(String::from).into();
    let e = b.refused(&base.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(e.contains("MSC-D0004") && e.contains("--set NAME=VALUE"), "{e}");
    // No weight decay, so that next to no learning rate leaves parameters as they are. (PyTorch divides by the rate.)
    let constants =
        "0=1e-8 3=0.05 4=1e-6 17=-3e38 18=16 19=4 20=0.25 33=2 34=64 35=-0.5 36=96 37=0.95 39=0.1 41=1";
    base.extend(constants.split(' ').flat_map(|c| ["--set".to_string(), format!("arg{c}")]));
    // The embedding before and after.
    let embedding = |rate: &str, steps: &str| {
        let (out, state) = (b.path("out.safetensors"), b.path("state.safetensors"));
        let rate = format!("arg1={rate}");
        let mut options: Vec<&str> = base.iter().map(String::as_str).collect();
        options.extend(["--set", &rate, "--steps", steps, "--out", &out, "--save", &state]);
        stdout(&run(&b.plan, &options));
        let read = |path: &str, name: &str| data::read(Path::new(path)).expect("reads")[name].clone();
        (read(&state, "arg15"), read(&out, "result0"))
    };
    let (before, still) = embedding("1e-30", "1");
    assert!(before == still, "moved");
    let (_, moved) = embedding("0.001", "1");
    assert!(before != moved, "not moved");
    let schedule = format!("@{}", b.write("rate.csv", "step,rate\n1,1e-30\n2,0.001\n"));
    assert!(embedding(&schedule, "1").1 == still, "moved by the schedule");
    let (_, second) = embedding(&schedule, "2");
    assert!(second != still, "not moved by the schedule");
}

#[test]
fn wrong_uses_have_codes() {
    let b = Bench::of(STEP, &[]);
    let few = b.write("few.bin", flat(&tokens(20, VOCABULARY)));
    let mut beyond = tokens(200, VOCABULARY);
    beyond[20] = 96;
    let strange = b.write("strange.bin", flat(&beyond));
    let odd = b.write("odd.bin", [1, 2, 3]);
    let names = b.write("names.json", "{\"a\": 3}");
    let text = b.write("text.txt", "no tensors");
    let rows = b.path("rows.npz");
    let nine = Tensor::new([8, 9], Storage::I32(vec![1; 72]));
    data::write(Path::new(&rows), &[("tokens", &nine)], None).expect("writes");
    let array = |name: &str, arrays: &[(&str, [usize; 2])]| {
        let path = b.path(name);
        let ones = |[n, m]: [usize; 2]| Tensor::new([n, m], Storage::I32(vec![1; n * m]));
        let all: Vec<(&str, Tensor)> = arrays.iter().map(|&(n, s)| (n, ones(s))).collect();
        let refs: Vec<(&str, &Tensor)> = all.iter().map(|(n, t)| (*n, t)).collect();
        data::write(Path::new(&path), &refs, None).expect("writes");
        path
    };
    let wide = array("wide.npz", &[("tokens", [8, 16]), ("labels", [8, 17])]);
    let lone = array("lone.npz", &[("labels", [8, 17])]);
    let far = b.path("no/folder/state.safetensors");
    let index = b.write("alone.idx", b"MMIDIDX\0\0");
    let schedule = b.write("lr.csv", "5,1");
    for (options, code, says) in [
        (vec![], "MSC-D0004", "67 of 67 inputs"),
        (vec!["--init", "0"], "MSC-D0004", "--data"),
        (vec!["--init", "0", "--data", &few, "--data-dtype", "u16"], "MSC-D0009", "one step takes 33 tokens"),
        (
            vec!["--init", "0", "--data", &strange, "--data-dtype", "u16"],
            "MSC-D0010",
            "token 96 at position 20",
        ),
        (vec!["--init", "0", "--data", &few], "MSC-D0011", "--data-dtype"),
        (vec!["--init", "0", "--data", &odd, "--data-dtype", "u16"], "MSC-D0002", "3 bytes"),
        (vec!["--init", "0", "--data", &rows], "MSC-D0011", "rows of 9 tokens"),
        (vec!["--init", "0", "--data", &wide], "MSC-D0011", "rows of 17 elements in `labels`"),
        (vec!["--init", "0", "--data", &lone], "MSC-D0011", "known to hold the tokens"),
        (vec!["--init", "0", "--save", &far], "MSC-D0001", "folder"),
        (vec!["--init", "0", "--data", &index], "MSC-D0002", "Megatron"),
        (vec!["--init", "0", "--data", "none.npy"], "MSC-D0001", "none.npy"),
        (vec!["--params", &text], "MSC-D0002", "text.txt"),
        (vec!["--params", &rows], "MSC-D0003", "tokens"),
        (vec!["--params", &rows, "--names", &names], "MSC-D0007", "names.json"),
        (vec!["--names", &names], "MSC-X0002", "--params"),
        (vec!["--set", "lr=1"], "MSC-D0003", "lr"),
        (vec!["--set", "lr"], "MSC-X0002", "name=value"),
        (vec!["--set", "arg65=1"], "MSC-X0002", "not a scalar"),
        (vec!["--set", &format!("result[1][1][0].count=@{schedule}")], "MSC-D0008", "step 5"),
        (vec!["--set", "result[1][1][0].count=0.5"], "MSC-X0002", "does not fit"),
        (vec!["--carry", "a=b"], "MSC-X0002", "--carry"),
        (vec!["--init", "0", "--ids", "tokens", "--data", &few], "MSC-D0003", "--ids"),
        (vec!["--save", "state.bin"], "MSC-D0002", ".safetensors"),
        (vec!["--save-every", "2"], "MSC-X0002", "--save FILE"),
        (vec!["--steps", "0"], "MSC-X0002", "--steps 0"),
        (vec!["--init-report"], "MSC-X0002", "--init SEED"),
        (vec!["--peak-tflops", "0"], "MSC-X0002", "above zero"),
        (
            vec!["--losses", &names, "--init", "0", "--data", &strange, "--data-dtype", "u16"],
            "MSC-X0002",
            "values",
        ),
    ] {
        let e = b.refused(&options);
        assert!(e.starts_with(&format!("error: {code}: ")) && e.contains(says), "{options:?}: {e}");
    }
}

#[test]
fn each_code_has_a_page_and_each_page_a_code() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut codes = std::collections::BTreeSet::new();
    let crates = ["ir", "passes", "codegen-ascendc", "runtime", "compiler"];
    let mut folders: Vec<PathBuf> = crates.map(|c| root.join(c).join("src")).into();
    while let Some(path) = folders.pop() {
        if path.is_dir() {
            folders.extend(std::fs::read_dir(&path).expect("reads").map(|e| e.expect("an entry").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for piece in text.split("MSC-").skip(1) {
            // Codes of front ends are checked where they are listed.
            let code: String = piece.chars().take(5).collect();
            if code.len() == 5 && !code.starts_with('F') && code[1..].bytes().all(|b| b.is_ascii_digit()) {
                codes.insert(format!("MSC-{code}"));
            }
        }
    }
    assert!(codes.len() > 50, "{codes:?}");
    let pages: std::collections::BTreeSet<String> = std::fs::read_dir(root.join("docs/errors"))
        .expect("reads")
        .filter_map(|e| Some(e.expect("an entry").path().file_stem()?.to_str()?.to_string()))
        .filter(|n| n.starts_with("MSC-") && !n.starts_with("MSC-F"))
        .collect();
    assert_eq!(codes, pages);
    for page in &pages {
        let text = std::fs::read_to_string(root.join(format!("docs/errors/{page}.md"))).expect("reads");
        assert!(text.starts_with(&format!("# {page}: ")) && text.contains("## What to do"), "{page}");
    }
}
