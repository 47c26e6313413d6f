//! What `msc explain` says of real steps, and of one in which a norm is nearly one.

use msc::explain::{ExplainOptions, explain};
use msc_tests::fixture;
use std::path::PathBuf;

fn told(o: ExplainOptions) -> String {
    let mut out = Vec::new();
    explain(&o, &mut out).expect("explains");
    String::from_utf8(out).expect("text")
}

fn model(name: &str) -> PathBuf {
    fixture(name).join("model.mlir")
}

/// A fixture with one edit of its text.
fn edited(name: &str, from: &str, to: &str) -> PathBuf {
    let text = std::fs::read_to_string(model(name)).expect("a fixture");
    assert!(text.contains(from), "{name} has no {from}");
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("explain-{name}-{}", to.len()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let path = dir.join("edited.mlir");
    std::fs::write(&path, text.replacen(from, to, 1)).expect("written");
    path
}

#[test]
fn norms_of_layers_have_the_users_names() {
    let pattern = Some("rms_norm".to_string());
    let o = ExplainOptions { model: model("llama_torchax_tiny"), pattern, ..ExplainOptions::default() };
    insta::assert_snapshot!("explain_rms_norm", told(o));
}

#[test]
fn the_missing_part_of_a_norm_is_named() {
    let model = edited(
        "llama_torchax_tiny",
        "%332 = stablehlo.power %330, %331 : tensor<2x16x64xf32>",
        "%332 = stablehlo.abs %330 : tensor<2x16x64xf32>",
    );
    let o = ExplainOptions { model, why_not: Some("rms_norm".into()), ..ExplainOptions::default() };
    insta::assert_snapshot!("why_not_rms_norm", told(o));
}

#[test]
fn a_probe_says_what_it_refused() {
    let model = edited(
        "llama_torchax_tiny",
        "%138 = stablehlo.divide %134, %137",
        "%138 = stablehlo.multiply %134, %137",
    );
    let o = ExplainOptions { model, why_not: Some("attention".into()), ..ExplainOptions::default() };
    insta::assert_snapshot!("why_not_attention", told(o));
}

#[test]
fn a_loop_over_microbatches_is_told_by_its_carries() {
    let model = model("llama_flax_scan_gradaccum_tiny");
    let pattern = Some("gradient_accumulation".to_string());
    let text = told(ExplainOptions { model: model.clone(), pattern, ..ExplainOptions::default() });
    let facts = "2 microbatches, 12 gradients summed and divided by 2 after the loop";
    assert!(text.contains(facts) && text.contains("1 site, executed 1 times a step"), "{text}");
    assert_eq!(text.matches("a slice each trip").count(), 2, "{text}");
    let why_not = Some("gradient_accumulation".to_string());
    let near = told(ExplainOptions { model, why_not, ..ExplainOptions::default() });
    assert!(!near.contains("does not start"), "{near}");
}

/// The page of a model, without anything from outside, and with every tag closed.
fn page(name: &str) -> String {
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html"));
    let html = Some(page.clone());
    told(ExplainOptions { model: model(name), html, ..ExplainOptions::default() });
    let text = std::fs::read_to_string(&page).expect("a page");
    for outside in ["http", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!text.contains(outside), "{outside}");
    }
    let mut open: Vec<&str> = Vec::new();
    for tag in text.split('<').skip(1).map(|t| t.split_once('>').expect("a tag ends").0) {
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') || ["!DOCTYPE", "meta", "br"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    text
}

#[test]
fn the_page_stands_alone_and_its_tags_close() {
    let text = page("llama_torchax_tiny");
    for said in ["<td>rms_norm</td><td>3</td><td>5</td>", "@layer_backward", "What came near"] {
        assert!(text.contains(said), "{said}");
    }
    // What was done to decide: a pattern, numbers, or reading.
    for said in
        ["<p>rule rms-norm", "tried on numbers: probe attention", "read off op by op: probe embedding"]
    {
        assert!(text.contains(said), "{said}");
    }
    assert!(!text.contains("microbatches"));
}

#[test]
fn the_page_tells_loops_over_microbatches() {
    let text = page("llama_flax_scan_gradaccum_tiny");
    let facts = "2 microbatches, 12 gradients summed and divided by 2 after the loop";
    for said in ["<h2>Loops over microbatches</h2>", facts, "a slice each trip"] {
        assert!(text.contains(said), "{said}");
    }
}
