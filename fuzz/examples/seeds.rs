//! Writes the seed corpora, a folder for each target, and a dictionary: small whole programs, one for each form of
//! each op in the fixtures and in the random cases of the op families.
//!
//! Usage: `seeds REPOSITORY OUT`.

#[path = "../../frontends/tests/bytecode/artifact.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod artifact;
#[path = "../../runtime/tests/support/mod.rs"]
mod support;

use msc_frontends::raw::{RawOp, Type, TypeTable, Value};
use msc_frontends::{parse, read_stablehlo_text};
use msc_ir::module::{Entry, ParamInfo, ResultInfo};
use msc_ir::{Graph, LocId, Module, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Longest seed of text: longer ones slow the fuzzer down.
const LONGEST: usize = 2048;

fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(repository), Some(out)) = (args.next(), args.next()) else {
        panic!("usage: seeds REPOSITORY OUT");
    };
    let mut texts = text_seeds(&repository);
    texts.insert(read(&repository.join("frontends/tests/small.mlir")));
    let mut modules: BTreeSet<String> = texts
        .iter()
        .filter_map(|t| read_stablehlo_text("seed", t.as_bytes()).ok())
        .map(|i| msc_ir::text::print(&i.module))
        .collect();
    let cases = cases();
    modules.extend(cases.iter().map(msc_ir::text::print));
    modules.extend(files(&repository.join("tests/filetests"), "msc").iter().map(|p| read(p)));
    let step = msc_ir::text::parse(support::STEP).expect("the step is right");
    modules.insert(support::STEP.to_string());

    let mut plans = Vec::new();
    for m in cases.iter().chain([&step]) {
        let plan = support::bytes_of(m, &[support::lower(m)], &[]);
        plans.push(msc_runtime::plan::frames(&plan).expect("a plan"));
        if m.entries[0].params.len() > 3 {
            plans.push(plan);
        }
    }
    let mut bytecode: Vec<Vec<u8>> =
        files(&repository.join("fixtures/stablehlo/versions"), "mlirbc").iter().map(|p| bytes(p)).collect();
    bytecode.push(artifact::Artifact::identity().build());

    dictionary(&out.join("text.dict"), texts.iter());
    dictionary(&out.join("msc.dict"), modules.iter());
    save(&out.join("text"), texts.into_iter().map(String::into_bytes));
    save(&out.join("msc"), modules.into_iter().filter(|m| m.len() < 2 * LONGEST).map(String::into_bytes));
    save(&out.join("bytecode"), bytecode);
    save(&out.join("plan"), plans);
    save(&out.join("data"), data_seeds());
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn read(path: &Path) -> String {
    String::from_utf8(bytes(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Files below a folder with an extension, in name order.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for path in entries.map(|e| e.expect("an entry").path()) {
        if path.is_dir() {
            out.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            out.push(path);
        }
    }
    out.sort();
    out
}

fn save(dir: &Path, seeds: impl IntoIterator<Item = Vec<u8>>) {
    std::fs::create_dir_all(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut n = 0;
    for seed in seeds {
        std::fs::write(dir.join(format!("seed{n:04}")), seed).expect("a seed is written");
        n += 1;
    }
    println!("{}: {n} seeds", dir.display());
}

/// The words of the seeds, as libFuzzer wants them.
fn dictionary<'s>(path: &Path, texts: impl Iterator<Item = &'s String>) {
    let mut words = BTreeSet::new();
    for t in texts {
        let parts =
            t.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '@' | '#' | '!')));
        words.extend(
            parts.filter(|w| (3..28).contains(&w.len()) && !w.starts_with(|c: char| c.is_ascii_digit())),
        );
    }
    let lines: String = words.iter().map(|w| format!("\"{w}\"\n")).collect();
    std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder is made");
    std::fs::write(path, lines).expect("the dictionary is written");
}

/// Ops of the fixtures, each in a function of its own, and short functions.
fn text_seeds(repository: &Path) -> BTreeSet<String> {
    // The shortest texts of each op and set of attributes.
    let mut by_form: BTreeMap<String, BTreeSet<(usize, String)>> = BTreeMap::new();
    for path in files(&repository.join("fixtures/stablehlo"), "mlir") {
        let text = read(&path);
        let raw = parse("fixture", text.as_bytes()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for (i, f) in raw.body.iter().enumerate() {
            let end = raw.body.get(i + 1).map_or(text.len(), |next| next.at);
            let whole =
                format!("module {{ {} }}", text[f.at..end].trim_end().trim_end_matches('}').trim_end());
            for whole in [whole.clone(), format!("{whole} }}")] {
                let whole = whole.replacen(" private ", " ", 1);
                if whole.len() < LONGEST && read_stablehlo_text("seed", whole.as_bytes()).is_ok() {
                    by_form.entry(format!("function {whole}")).or_default().insert((whole.len(), whole));
                }
            }
            let mut ops = Vec::new();
            collect(f, &mut ops);
            for (op, end) in ops {
                let Some(seed) = single(&text[op.at..end], op, &raw.types, &raw.values) else { continue };
                let keys: Vec<&str> = op.attrs.iter().map(|a| a.0.as_ref()).collect();
                let generic = text.as_bytes()[op.at] == b'"';
                let form = format!("{} {keys:?} {generic} {}", op.name, op.operands.len());
                by_form.entry(form).or_default().insert((seed.len(), seed));
            }
        }
    }
    let shortest = by_form.into_values().flat_map(|s| s.into_iter().take(2)).map(|s| s.1);
    shortest.collect()
}

/// Every op below `op` that another one follows, with the place where that one starts.
fn collect<'r, 'a>(op: &'r RawOp<'a>, out: &mut Vec<(&'r RawOp<'a>, usize)>) {
    for block in op.regions.iter().flat_map(|r| &r.blocks) {
        for (i, inner) in block.ops.iter().enumerate() {
            if let Some(next) = block.ops.get(i + 1) {
                out.push((inner, next.at));
            }
            collect(inner, out);
        }
    }
}

/// A program with this op alone, its operands as arguments; `None` where it does not stand alone.
fn single(
    text: &str,
    op: &RawOp<'_>,
    types: &TypeTable,
    values: &[msc_frontends::raw::TypeId],
) -> Option<String> {
    // Behind the op comes the next one's `%name = `.
    let text = &text[..text.rfind('\n')?];
    if text.len() > LONGEST || op.results.is_empty() {
        return None;
    }
    let ty = |v: Value| shown(types.get(values[v.0 as usize]));
    let mut body = String::new();
    let mut rest = text;
    for n in 0..op.operands.len() {
        let (head, tail) = rest.split_at(rest.find('%')?);
        let end = tail[1..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '#'))? + 1;
        body.push_str(head);
        body.push_str(&format!("%p{n}"));
        rest = &tail[end..];
    }
    body.push_str(rest);
    let args: Option<Vec<String>> =
        op.operands.iter().enumerate().map(|(n, &v)| Some(format!("%p{n}: {}", ty(v)?))).collect();
    let results: Option<Vec<String>> = op.results.iter().map(ty).collect();
    let (args, results) = (args?.join(", "), results?.join(", "));
    let count = op.results.len();
    let returned: Vec<String> = match count {
        1 => vec!["%r".into()],
        _ => (0..count).map(|i| format!("%r#{i}")).collect(),
    };
    let name = if count == 1 { "%r".to_string() } else { format!("%r:{count}") };
    let program = format!(
        "func.func @main({args}) -> ({results}) {{\n  {name} = {body}\n  return {} : {results}\n}}\n",
        returned.join(", ")
    );
    read_stablehlo_text("seed", program.as_bytes()).ok().map(|_| program)
}

fn shown(ty: &Type) -> Option<String> {
    use msc_frontends::raw::Elem;
    let Type::Tensor { dims, elem } = ty else { return None };
    let elem = match elem {
        Elem::Int(n) => format!("i{n}"),
        Elem::Uint(n) => format!("ui{n}"),
        Elem::F16 => "f16".into(),
        Elem::BF16 => "bf16".into(),
        Elem::F32 => "f32".into(),
        Elem::F64 => "f64".into(),
        _ => return None,
    };
    let dims: Option<String> = dims.iter().map(|d| d.map(|n| format!("{n}x"))).collect();
    Some(format!("tensor<{}{elem}>", dims?))
}

/// Modules of one random op each, with an entry.
fn cases() -> Vec<Module> {
    let mut out = Vec::new();
    for (name, generate) in msc_ir::testing::families() {
        let mut random = msc_ir::testing::Rng::new(7);
        for _ in 0..4 {
            let case = generate(&mut random);
            let mut m = case.module;
            let mut g = Graph::new("main");
            let params: Vec<_> = case.inputs.iter().map(|t| g.add_param(t.ty())).collect();
            let Ok(results) = g.add(&m, case.op, &params, LocId::UNKNOWN) else { continue };
            let results = results.to_vec();
            g.set_results(results.clone());
            let id = m.add_graph(g);
            let named = |n: usize, what: &str| (0..n).map(|i| format!("{what}{i}")).collect::<Vec<_>>();
            m.entries.push(Entry {
                name: name.into(),
                graph: id,
                params: named(params.len(), "p")
                    .into_iter()
                    .map(|name| ParamInfo { name, ..ParamInfo::default() })
                    .collect(),
                results: named(results.len(), "r")
                    .into_iter()
                    .map(|name| ResultInfo { name, ..ResultInfo::default() })
                    .collect(),
            });
            if msc_ir::verify::verify(&m).is_ok() && msc_ir::text::print(&m).len() < LONGEST {
                out.push(m);
            }
        }
    }
    out
}

/// Small files of tensors of every element type.
fn data_seeds() -> Vec<Vec<u8>> {
    let tensors: Vec<(String, Tensor)> = msc_ir::DType::ALL
        .into_iter()
        .map(|d| (format!("{d}"), Tensor::from_f64s(&msc_ir::TensorType::new(d, [2, 1]), &[0.0, 1.0])))
        .collect();
    let list: Vec<(&str, &Tensor)> = tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let dir = tempfile::tempdir().expect("a folder");
    let mut out = Vec::new();
    for name in ["x.npz", "x.safetensors"] {
        let path = dir.path().join(name);
        for part in list.chunks(4) {
            msc_runtime::data::write(&path, part, None).expect("it is written");
            out.push(bytes(&path));
        }
    }
    for (order, shape) in [("True", "(2, 3)"), ("False", "(6,)"), ("False", "()")] {
        let header = format!("{{'descr': '<i4', 'fortran_order': {order}, 'shape': {shape}, }}");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        let padded = format!("{header:<117}\n");
        file.extend((padded.len() as u16).to_le_bytes());
        file.extend(padded.as_bytes());
        file.extend([0; 24]);
        out.push(file);
    }
    out
}
