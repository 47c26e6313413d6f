//! Sharding annotations as a mesh and shardings of parameters and results.

use msc_frontends::layout::Layout;
use msc_frontends::{Code, FrontendError, read_file, read_stablehlo_text};
use std::path::PathBuf;

/// A layout in words: `dp=2 tp=4`, and for each parameter its dimensions, `-` for whole, `?` behind an open one.
fn words(l: &Layout) -> (String, Vec<String>, Vec<String>) {
    let axes: Vec<String> = l.mesh.axes.iter().map(|a| format!("{}={}", a.name, a.size)).collect();
    let tensors = |list: &[Option<msc_frontends::layout::TensorLayout>]| {
        let one = |t: &Option<msc_frontends::layout::TensorLayout>| {
            let Some(t) = t else { return "free".to_string() };
            let dim = |(d, axes): (usize, &Vec<msc_ir::module::AxisId>)| {
                let names: Vec<&str> = axes.iter().map(|a| l.mesh.axes[a.0 as usize].name.as_str()).collect();
                let open = if t.open.contains(&d) { "?" } else { "" };
                if names.is_empty() { format!("-{open}") } else { names.join("+") + open }
            };
            t.sharding.dims.iter().enumerate().map(dim).collect::<Vec<_>>().join(",")
        };
        list.iter().map(one).collect()
    };
    (axes.join(" "), tensors(&l.params), tensors(&l.results))
}

/// A program whose parameters have these attributes, in front of it these lines.
fn program(head: &str, devices: usize, params: &[&str]) -> Result<Layout, FrontendError> {
    let list: Vec<String> =
        params.iter().enumerate().map(|(i, a)| format!("%p{i}: tensor<8x8xf32> {{{a}}}")).collect();
    let text = format!(
        "module @m attributes {{mhlo.num_partitions = {devices} : i32}} {{
          {head}
          func.func @main({}) -> tensor<8x8xf32> {{
            return %p0 : tensor<8x8xf32>
          }}
        }}",
        list.join(", ")
    );
    Layout::of(&read_stablehlo_text("m.mlir", text.as_bytes()).expect("imports"))
}

fn gspmd(strings: &[&str], devices: usize) -> Result<Layout, FrontendError> {
    let attrs: Vec<String> = strings.iter().map(|s| format!("mhlo.sharding = \"{s}\"")).collect();
    program("", devices, &attrs.iter().map(String::as_str).collect::<Vec<_>>())
}

fn sdy(mesh: &str, shardings: &[&str]) -> Result<Layout, FrontendError> {
    let attrs: Vec<String> =
        shardings.iter().map(|s| format!("sdy.sharding = #sdy.sharding<@mesh, {s}>")).collect();
    let head = format!("sdy.mesh @mesh = <{mesh}>");
    program(&head, 1, &attrs.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn gspmd_strings_share_one_mesh() {
    let l = gspmd(
        &[
            "{devices=[2,4]<=[8]}",
            "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
            "{replicated}",
            "{devices=[1,8]0,1,2,3,4,5,6,7}",
            "{unknown}",
        ],
        8,
    )
    .expect("fits");
    let (mesh, params, results) = words(&l);
    assert_eq!(mesh, "x0=2 x1=4");
    assert_eq!(params, ["x0,x1", "x1,-", "-,-", "-,x0+x1", "free"]);
    assert_eq!(results, ["free"]);
    // Without a count of partitions the first string says how many devices there are.
    assert_eq!(words(&gspmd(&["{devices=[2,4]<=[8]}"], 1).expect("fits")).0, "x0=2 x1=4");
}

#[test]
fn what_fits_no_mesh_is_left_out_and_told() {
    let l = gspmd(
        &[
            "{devices=[3,4]<=[12]}",
            "{devices=[4,3]<=[12]}",
            "{devices=[1,4]<=[4]}",
            "{devices=[4,1]0,1,3,2}",
            "{devices=[1,3,4]<=[3,4] last_tile_dim_replicate}",
        ],
        12,
    )
    .expect("the rest fits");
    let (mesh, params, _) = words(&l);
    assert_eq!(
        (mesh.as_str(), params),
        ("x0=3 x1=4", ["x0,x1", "free", "free", "free", "-,x0"].map(String::from).to_vec())
    );
    assert_eq!(l.notes.len(), 3, "{:#?}", l.notes);
    for (note, what, why) in
        [(0, "`p3`", "order"), (1, "`p1`", "other annotations"), (2, "`p2`", "4 of the 12 devices")]
    {
        assert!(l.notes[note].contains(what) && l.notes[note].contains(why), "{}", l.notes[note]);
    }
}

#[test]
fn what_is_no_layout_is_refused() {
    for (text, part) in [
        ("{maximal device=3}", "one device"),
        ("{manual}", "by hand"),
        ("{{replicated}, {replicated}}", "several tensors"),
        ("{devices=[2,2,2]<=[8] last_tile_dims={manual}}", "by hand"),
    ] {
        let e = gspmd(&["{replicated}", text], 8).expect_err(text);
        assert_eq!(e.code(), Code::UnsupportedForm, "{e}");
        let message = e.to_string();
        assert!(
            ["`p1`", part, text, "--ignore-annotations"].iter().all(|p| message.contains(p)),
            "{message}"
        );
    }
    let e = gspmd(&["{devices=[8]<=[8]}"], 8).expect_err("rank");
    assert!(e.code() == Code::Attribute && e.to_string().contains("1 dimensions"), "{e}");
    let e = program("", 1, &["sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>"]).expect_err("no mesh");
    assert!(e.code() == Code::Name && e.to_string().contains("@mesh"), "{e}");
    let e = sdy("[\"a\"=2]", &["[{\"b\"}, {}]"]).expect_err("no axis");
    assert!(e.code() == Code::Attribute && e.to_string().contains("no axis \"b\", only: a"), "{e}");
    let e = sdy("[\"a\"=2]", &["[{}, {}], unreduced={\"a\"}"]).expect_err("partial");
    assert!(e.code() == Code::UnsupportedForm && e.to_string().contains("unreduced"), "{e}");
    let head = "sdy.mesh @mesh = <[], device_ids=[0]>";
    let e = program(head, 8, &["sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>"]).expect_err("maximal");
    assert!(e.code() == Code::UnsupportedForm, "{e}");
}

#[test]
fn shardy_axes_parts_of_axes_and_open_dimensions() {
    let l = sdy(
        "[\"x\"=8, \"one\"=1, \"y\"=2]",
        &[
            "[{\"x\":(1)2}, {\"y\", \"x\":(4)2}]",
            "[{\"one\"}, {?}p1], replicated={\"y\"}",
            "[{?}, {?}]",
            "[{\"x\", ?}p2, {}]",
        ],
    )
    .expect("fits");
    let (mesh, params, _) = words(&l);
    assert_eq!(mesh, "x.0=2 x.1=2 x.2=2 y=2");
    assert_eq!(params, ["x.0,y+x.2", "-,-?", "free", "x.0+x.1+x.2?,-"]);
}

#[test]
fn axes_side_by_side_stay_two_and_names_become_words() {
    let l = sdy("[\"my axis\"=2, \"my_axis\"=4]", &["[{\"my axis\", \"my_axis\"}, {}]"]).expect("fits");
    assert_eq!(
        (words(&l).0.as_str(), words(&l).1[0].as_str()),
        ("my_axis=2 my_axis_=4", "my_axis+my_axis_,-")
    );
}

#[test]
fn several_meshes_and_both_dialects() {
    let head = "sdy.mesh @a = <[\"dp\"=2, \"tp\"=4]>
        sdy.mesh @b = <[\"all\"=8]>
        sdy.mesh @none = <[]>
        sdy.mesh @odd = <[\"q\"=2, \"r\"=4], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
        sdy.mesh @unused = <[\"z\"=3]>";
    let l = program(
        head,
        8,
        &[
            "sdy.sharding = #sdy.sharding<@a, [{\"tp\"}, {}]>",
            "sdy.sharding = #sdy.sharding<@b, [{}, {\"all\"}]>",
            "mhlo.sharding = \"{devices=[4,2]<=[2,4]T(1,0)}\"",
            "sdy.sharding = #sdy.sharding<@none, [{}, {}]>",
            "sdy.sharding = #sdy.sharding<@odd, [{\"q\"}, {}]>",
            "sdy.sharding = #sdy.sharding<mesh<[\"dp\"=2, \"tp\"=4]>, [{\"dp\"}, {}]>",
        ],
    )
    .expect("fits");
    let (mesh, params, _) = words(&l);
    assert_eq!(mesh, "dp=2 tp=4");
    assert_eq!(params, ["tp,-", "-,dp+tp", "tp,dp", "free", "free", "dp,-"]);
    assert!(l.notes.len() == 1 && l.notes[0].contains("`p4`"), "{:?}", l.notes);
}

#[test]
fn a_file_that_asks_for_nothing() {
    for (strings, notes) in [(&["{replicated}", "{unknown}"][..], 1), (&["{unknown}"], 0)] {
        let l = gspmd(strings, 8).expect("fits");
        assert!(!l.is_some() && l.mesh.axes.is_empty() && l.params.iter().all(Option::is_none), "{l:?}");
        assert_eq!(l.notes.len(), notes);
    }
}

#[test]
fn constraints_on_parameters_and_results_are_theirs() {
    let text = r#"module @m attributes {mhlo.num_partitions = 4 : i32} {
      sdy.mesh @mesh = <["a"=2, "b"=2]>
      func.func @main(%p: tensor<8x8xf32>, %q: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
        %0 = sdy.sharding_constraint %p <@mesh, [{}, {"b"}]> : tensor<8x8xf32>
        %1 = sdy.sharding_constraint %q <@mesh, [{"b"}, {}]> : tensor<8x8xf32>
        %2 = stablehlo.add %0, %1 : tensor<8x8xf32>
        %3 = sdy.sharding_constraint %2 <@mesh, [{"a"}, {"b"}]> : tensor<8x8xf32>
        %4 = stablehlo.custom_call @Sharding(%3) {mhlo.sharding = "{devices=[4,1]<=[4]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
        %5 = stablehlo.add %4, %4 : tensor<8x8xf32>
        return %5, %3 : tensor<8x8xf32>, tensor<8x8xf32>
      }
    }"#;
    let l = Layout::of(&read_stablehlo_text("m.mlir", text.as_bytes()).expect("imports")).expect("fits");
    let (mesh, params, results) = words(&l);
    assert_eq!(mesh, "a=2 b=2");
    assert_eq!(
        (params, results),
        (vec!["-,b".to_string(), "a,-".into()], vec!["free".to_string(), "a,b".into()])
    );
    // The second words on the second parameter and the second result.
    assert_eq!(l.inner, 2);
}

/// Programs on their way to XLA hold Shardy's attributes as texts.
#[test]
fn shardings_shipped_as_texts() {
    let text = |sharding: &str| {
        format!(
            r##"module @m attributes {{mhlo.frontend_attributes = {{xla.sdy.meshes = "{{mesh = #sdy.mesh<[\22x\22=2, \"y\"=4]>}}"}}}} {{
      func.func @main(%p: tensor<8x8xf32> {{mhlo.frontend_attributes = {{xla.sdy.sharding = "{sharding}"}}, mhlo.sharding = "{{replicated}}"}}) -> tensor<8x8xf32> {{
        %0 = stablehlo.add %p, %p : tensor<8x8xf32>
        %1 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%0) {{mhlo.frontend_attributes = {{xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{{}}, {{\22y\22}}]>]>"}}}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
        return %1 : tensor<8x8xf32>
      }}
    }}"##
        )
    };
    let good = text(r#"#sdy.sharding<@mesh, [{\22x\22}, {?}]>"#);
    let l = Layout::of(&read_stablehlo_text("m.mlir", good.as_bytes()).expect("imports")).expect("fits");
    assert_eq!(words(&l), ("x=2 y=4".into(), vec!["x,-?".into()], vec!["-,y".into()]));
    for bad in ["#sdy.sharding<@mesh, [", "unit", ""] {
        let e = read_stablehlo_text("m.mlir", text(bad).as_bytes()).expect_err(bad);
        assert!(e.code() == Code::Attribute && e.to_string().contains("xla.sdy.sharding"), "{e}");
    }
}

fn fixture(path: &str) -> Layout {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo").join(path);
    Layout::of(&read_file(&file).expect("imports")).expect("a layout")
}

#[test]
fn real_steps() {
    let l = fixture("llama_flax_dp2_tp4_tiny/model.direct_mixed.mlirbc");
    let (mesh, params, results) = words(&l);
    assert_eq!((mesh.as_str(), l.inner, l.notes.len()), ("dp=2 tp=4", 0, 0));
    let count = |list: &[String], what: &str| list.iter().filter(|p| *p == what).count();
    // Two inputs of the batch; weights, and two moments of each; norms and the scalars of the optimizer whole.
    assert_eq!((count(&params, "dp,-"), count(&params, "-,tp"), count(&params, "tp,-")), (2, 33, 15));
    assert_eq!((count(&results, "-,tp"), count(&results, "tp,-"), count(&results, "free")), (33, 15, 0));

    let l = fixture("llama_maxtext_fsdp2_tp2_tiny/model.mlirbc");
    let (mesh, params, _) = words(&l);
    assert_eq!(mesh, "fsdp=2 tensor=2");
    assert_eq!(
        (count(&params, "fsdp,-"), count(&params, "fsdp,tensor"), count(&params, "tensor,-,-,fsdp")),
        (6, 3, 3)
    );
    assert_eq!(l.inner, 44);
    assert!(l.notes.is_empty(), "{:?}", l.notes);
}
