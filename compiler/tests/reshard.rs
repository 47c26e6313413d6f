//! State in shards: saved by a run, mapped from layout to layout, read by runs of other layouts; damaged state.

mod support;

use msc_runtime::data::{Tensors, read};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{compile, fixture, msc, run, stderr, stdout};

struct Scene {
    folder: tempfile::TempDir,
    model: &'static str,
}

impl Scene {
    fn new() -> Scene {
        Scene::of("llama_torchax_tiny")
    }

    fn of(model: &'static str) -> Scene {
        Scene { folder: tempfile::tempdir().expect("a folder"), model }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self, name: &str, options: &[&str]) -> PathBuf {
        let plan = self.at(&format!("{name}.bin"));
        compile(&fixture(self.model).join("model.mlir"), &plan, options);
        plan
    }

    /// A step from the fixture's inputs; gives where the state was saved.
    fn saved(&self, plan: &Path, name: &str, options: &[&str]) -> PathBuf {
        let inputs = fixture(self.model).join("inputs.npz");
        let to = self.at(name);
        let (inputs, to_text) = (inputs.display().to_string(), to.display().to_string());
        stdout(&run(plan, &[&["--inputs", &inputs, "--save", &to_text][..], options].concat()));
        to
    }

    fn reshard(&self, state: &Path, plan: &Path, out: &str) -> Output {
        let mut c = msc();
        c.arg("reshard")
            .arg(state)
            .arg("--to")
            .arg(plan)
            .arg("-o")
            .arg(self.at(out))
            .output()
            .expect("starts")
    }
}

/// Every tensor's name, type and bits.
fn bits(path: &Path) -> Vec<(String, String, Vec<u8>)> {
    let tensors: Tensors = read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    tensors.into_iter().map(|(n, t)| (n, t.ty().to_string(), t.data.bytes().to_vec())).collect()
}

fn index(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("index.json")).expect("an index");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn from_layout_to_layout_and_back_with_equal_bits() {
    let s = Scene::new();
    let tp2 = s.plan("tp2", &["--tp", "2"]);
    let dp2 = s.plan("dp2", &["--dp", "2"]);
    let tp4 = s.plan("tp4", &["--tp", "4"]);
    let one = s.plan("one", &[]);
    let whole = s.saved(&tp2, "whole.safetensors", &[]);
    let shards = s.saved(&tp2, "shards", &["--save-shards"]);
    let want = bits(&whole);
    assert!(want.len() > 50);
    assert_eq!(bits(&shards), want);

    // Each block is there once, and what is split is in two files.
    let i = index(&shards);
    assert_eq!((i["steps"].as_u64(), i["mesh"][0][0].as_str()), (Some(1), Some("tp")));
    let blocks: Vec<usize> =
        i["tensors"].as_object().unwrap().values().map(|t| t["blocks"].as_array().unwrap().len()).collect();
    assert!(blocks.contains(&2) && blocks.contains(&1) && blocks.iter().all(|n| *n <= 2), "{blocks:?}");
    let size = |name: &str| std::fs::metadata(shards.join(name)).expect("a file").len();
    assert!(size("rank-00001.safetensors") * 3 > size("rank-00000.safetensors"));

    // tp2 → dp2 → tp4 → tp2 → one → whole tensors.
    let text = stdout(&s.reshard(&shards, &dp2, "a"));
    assert!(text.contains("tp=2 to dp=2"), "{text}");
    stdout(&s.reshard(&s.at("a"), &tp4, "b"));
    stdout(&s.reshard(&s.at("b"), &tp2, "c"));
    stdout(&s.reshard(&s.at("c"), &one, "d"));
    let text = stdout(&s.reshard(&s.at("d"), &dp2, "e.safetensors"));
    assert!(text.contains("one rank to whole tensors"), "{text}");
    stdout(&s.reshard(&whole, &tp2, "f"));
    for state in ["a", "b", "c", "d", "e.safetensors", "f"] {
        assert_eq!(bits(&s.at(state)), want, "{state}");
    }
    // The same layout gives the same files, byte for byte.
    for file in ["rank-00000.safetensors", "rank-00001.safetensors", "index.json"] {
        let file_of = |folder: &Path| std::fs::read(folder.join(file)).expect("a file");
        assert_eq!(file_of(&s.at("c")), file_of(&shards), "{file}");
        assert_eq!(file_of(&s.at("f")), file_of(&shards), "{file}");
    }

    // A run that goes on from any of them is the same run.
    let go_on = |plan: &Path, state: &Path, to: &str| {
        let inputs = s.at("rest.npz");
        if !inputs.exists() {
            let all = read(&fixture("llama_torchax_tiny").join("inputs.npz")).expect("inputs");
            let names: Vec<String> = {
                let p = msc_runtime::plan::Plan::open(plan).expect("a plan");
                p.entry().params.iter().map(|p| p.name.clone()).collect()
            };
            let rest: Vec<(&str, &msc_ir::Tensor)> = all
                .values()
                .zip(&names)
                .filter(|(_, n)| !want.iter().any(|w| w.0 == **n))
                .map(|(t, n)| (n.as_str(), t))
                .collect();
            msc_runtime::data::write(&inputs, &rest, None).expect("writes");
        }
        let [state, inputs, to_text] = [state, &inputs, &s.at(to)].map(|p| p.display().to_string());
        let o = run(plan, &["--params", &state, "--inputs", &inputs, "--save", &to_text]);
        assert!(stdout(&o).contains("state after step 1"), "{to}");
        bits(&s.at(to))
    };
    let next = go_on(&dp2, &whole, "1.safetensors");
    assert_ne!(next, want);
    assert_eq!(go_on(&dp2, &shards, "2.safetensors"), next);
    assert_eq!(go_on(&dp2, &s.at("a"), "3/"), next);
    // A folder that a run wrote is replaced.
    assert_eq!(go_on(&dp2, &s.at("b"), "3/"), next);
    assert_eq!(index(&s.at("3"))["steps"].as_u64(), Some(2));
}

#[test]
fn a_weight_of_queries_keys_and_values_is_stored_part_by_part() {
    let s = Scene::of("gpt2_l4_b8_flax_tiny");
    let (tp2, one) = (s.plan("tp2", &["--tp", "2"]), s.plan("one", &[]));
    let whole = bits(&s.saved(&tp2, "whole.safetensors", &[]));
    let shards = s.saved(&tp2, "shards", &["--save-shards"]);
    let i = index(&shards);
    let weight =
        i["tensors"].as_object().unwrap().iter().find(|(n, _)| n.contains("c_attn']['kernel']")).unwrap();
    assert_eq!(weight.1["blocks"].as_array().unwrap().len(), 6, "{}", weight.0);
    assert_eq!(bits(&shards), whole);
    stdout(&s.reshard(&shards, &one, "a"));
    stdout(&s.reshard(&s.at("a"), &tp2, "b"));
    assert_eq!(bits(&s.at("a")), whole);
    for file in ["rank-00000.safetensors", "rank-00001.safetensors", "index.json"] {
        let file_of = |folder: &Path| std::fs::read(folder.join(file)).expect("a file");
        assert_eq!(file_of(&s.at("b")), file_of(&shards), "{file}");
    }
}

#[test]
#[cfg(unix)]
fn a_link_to_a_folder_is_written_through() {
    let s = Scene::new();
    let one = s.plan("one", &[]);
    std::fs::create_dir(s.at("real")).expect("a folder");
    std::os::unix::fs::symlink(s.at("real"), s.at("link")).expect("a link");
    let want = bits(&s.saved(&one, "whole.safetensors", &[]));
    for _ in 0..2 {
        let link = s.saved(&one, "link", &["--save-shards"]);
        assert_eq!(std::fs::read_link(&link).expect("still a link"), s.at("real"));
        assert_eq!(bits(&s.at("real")), want);
    }
}

#[test]
fn damaged_state_is_refused_by_name() {
    let s = Scene::new();
    let tp2 = s.plan("tp2", &["--tp", "2"]);
    let good = s.saved(&tp2, "good", &["--save-shards"]);
    let all = index(&good);
    let two = |t: &Value| t["blocks"].as_array().expect("blocks").len() == 2;
    let name =
        all["tensors"].as_object().expect("tensors").iter().find(|(_, t)| two(t)).expect("one is split").0;
    let refused = |what: &str, change: &dyn Fn(&Path, &mut Value), parts: &[&str]| {
        let bad = s.at("bad");
        let _ = std::fs::remove_dir_all(&bad);
        std::fs::create_dir(&bad).expect("a folder");
        for f in std::fs::read_dir(&good).expect("a folder") {
            let f = f.expect("a file");
            std::fs::copy(f.path(), bad.join(f.file_name())).expect("copies");
        }
        let mut i = all.clone();
        change(&bad, &mut i);
        if !i.is_null() {
            std::fs::write(bad.join("index.json"), i.to_string()).expect("writes");
        }
        // A run refuses it with the same words as a mapping.
        let run = run(&tp2, &["--params", &bad.display().to_string(), "--init", "0"]);
        for o in [s.reshard(&bad, &tp2, "out"), run] {
            let e = stderr(&o);
            assert_eq!(o.status.code(), Some(2), "{what}: {e}");
            assert!(parts.iter().all(|p| e.contains(p)), "{what}: {e}");
        }
        assert!(!s.at("out").exists(), "{what}");
    };
    refused(
        "missing",
        &|d, _| std::fs::remove_file(d.join("rank-00001.safetensors")).unwrap(),
        &["MSC-D0012", "rank-00001.safetensors is missing"],
    );
    refused(
        "gap",
        &|_, i| drop(i["tensors"][name]["blocks"].as_array_mut().unwrap().pop()),
        &["MSC-D0012", name, "no file holds ["],
    );
    refused(
        "overlap",
        &|_, i| {
            let first = i["tensors"][name]["blocks"][0]["start"].clone();
            i["tensors"][name]["blocks"][1]["start"] = first;
        },
        &["MSC-D0012", name, "both rank-00000.safetensors and rank-00001.safetensors hold ["],
    );
    refused(
        "outside",
        &|_, i| i["tensors"][name]["blocks"][1]["start"][0] = 1_000_000.into(),
        &["MSC-D0012", name, "is not in a tensor of shape"],
    );
    refused(
        "type",
        &|_, i| i["tensors"][name]["dtype"] = "f16".into(),
        &["MSC-D0012", name, "index.json says f16"],
    );
    refused("no type", &|_, i| i["tensors"][name]["dtype"] = "f33".into(), &["MSC-D0012", name, "`f33`"]);
    refused(
        "lost",
        &|_, i| drop(i["tensors"].as_object_mut().unwrap().remove(name)),
        &["MSC-D0012", name, "index.json says nothing"],
    );
    refused(
        "elsewhere",
        &|_, i| i["tensors"][name]["blocks"][0]["file"] = "../x.safetensors".into(),
        &["MSC-D0012", "none of this folder's"],
    );
    refused("newer", &|_, i| i["version"] = 2.into(), &["MSC-D0012", "version 2"]);
    refused("key", &|_, i| i["extra"] = 2.into(), &["MSC-D0012", "unknown field `extra`"]);
    refused(
        "no index",
        &|d, i| {
            *i = Value::Null;
            std::fs::remove_file(d.join("index.json")).unwrap();
        },
        &["MSC-D0012", "no index.json"],
    );
    refused(
        "cut",
        &|d, _| {
            let f = d.join("rank-00000.safetensors");
            let bytes = std::fs::read(&f).unwrap();
            std::fs::write(&f, &bytes[..bytes.len() - 4]).unwrap();
        },
        &["MSC-D0002", "rank-00000.safetensors"],
    );
}

#[test]
fn experts_that_are_dealt_to_ranks_are_stored_there_and_read_anywhere() {
    let s = Scene::of("mixtral_aux_b8");
    let ep2 = s.plan("ep2", &["--ep", "2"]);
    let other = s.plan("ep2tp2", &["--ep", "2", "--tp", "2"]);
    let one = s.plan("one", &[]);
    let shards = s.saved(&ep2, "shards", &["--save-shards"]);
    let want = bits(&shards);
    let i = index(&shards);
    let files = |name: &str| -> Vec<String> {
        let tensors = i["tensors"].as_object().expect("tensors");
        let t = tensors.iter().find(|(n, _)| n.contains(name) && !n.contains("mu[")).expect("is there").1;
        t["blocks"]
            .as_array()
            .expect("blocks")
            .iter()
            .map(|b| b["file"].as_str().unwrap().to_string())
            .collect()
    };
    // Two of four experts on each rank, each whole; what is no expert's is stored once.
    for (expert, file) in [(0, "rank-00000"), (1, "rank-00000"), (2, "rank-00001"), (3, "rank-00001")] {
        let found = files(&format!("layers.1.block_sparse_moe.experts.{expert}.w2"));
        assert_eq!(found, [format!("{file}.safetensors")], "expert {expert}");
    }
    assert_eq!(files("layers.0.self_attn.q_proj"), ["rank-00000.safetensors"]);
    // To other layouts and back, and whole.
    stdout(&s.reshard(&shards, &other, "a"));
    stdout(&s.reshard(&s.at("a"), &one, "b"));
    stdout(&s.reshard(&s.at("b"), &ep2, "c"));
    stdout(&s.reshard(&s.at("a"), &ep2, "d.safetensors"));
    for state in ["a", "b", "c", "d.safetensors"] {
        assert_eq!(bits(&s.at(state)), want, "{state}");
    }
    let file_of = |folder: &Path, n: usize| {
        std::fs::read(folder.join(format!("rank-0000{n}.safetensors"))).expect("a file")
    };
    for n in 0..2 {
        assert_eq!(file_of(&s.at("c"), n), file_of(&shards, n));
    }
}

#[test]
fn state_of_another_model_and_folders_of_others_are_refused() {
    let s = Scene::new();
    let tp2 = s.plan("tp2", &["--tp", "2"]);
    let good = s.saved(&tp2, "good.safetensors", &[]);
    let write = |name: &str, change: &dyn Fn(&mut Tensors)| {
        let mut t = read(&good).expect("state");
        change(&mut t);
        let list: Vec<(&str, &msc_ir::Tensor)> = t.iter().map(|(n, t)| (n.as_str(), t)).collect();
        msc_runtime::data::write(&s.at(name), &list, None).expect("writes");
        s.at(name)
    };
    let first = read(&good).expect("state").into_keys().find(|k| k.contains("weight")).expect("a weight");
    let take = |t: &mut Tensors| t.remove(&first).expect("is there");
    let less = write("less.safetensors", &|t| drop(take(t)));
    let other = write("other.safetensors", &|t| {
        let x = take(t);
        t.insert("strange".into(), x);
    });
    let half = write("half.npz", &|t| {
        let x = take(t);
        t.insert(first.clone(), x.converted(msc_ir::DType::F64));
    });
    let named = |e: &str, parts: &[&str]| assert!(parts.iter().all(|p| e.contains(p)), "{e}");
    named(&stderr(&s.reshard(&less, &tp2, "out")), &["MSC-D0004", &first]);
    named(&stderr(&s.reshard(&other, &tp2, "out")), &["MSC-D0003", "strange"]);
    named(&stderr(&s.reshard(&half, &tp2, "out")), &["MSC-D0005", &first, "f64"]);
    assert!(!s.at("out").exists());

    // What is not msc's is not replaced.
    let own = s.at("own");
    std::fs::create_dir(&own).expect("a folder");
    std::fs::write(own.join("thesis.tex"), "x").expect("writes");
    named(&stderr(&s.reshard(&good, &tp2, "own")), &["MSC-D0012", "not replaced"]);
    assert!(own.join("thesis.tex").exists());
    let o = run(&tp2, &["--init", "0", "--save", &own.display().to_string()]);
    named(&stderr(&o), &["MSC-D0012", "not replaced"]);
    let o = run(&tp2, &["--init", "0", "--save-shards", "--save", &s.at("no/where").display().to_string()]);
    named(&stderr(&o), &["MSC-D0001", "folder is not there"]);
}
