//! What surrounds the ops: aliases, locations, resources, comments, several forms of modules and functions.

use msc_frontends::stablehlo_text::parse;
use msc_frontends::{Annotations, Imported, ShardingHint, Site, read_stablehlo_text};
use msc_ir::interp::{Mode, run};
use msc_ir::{Storage, Tensor};

fn import(text: &str) -> Imported {
    let i = read_stablehlo_text("model.mlir", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    msc_ir::verify::verify(&i.module).unwrap();
    i
}

/// The value of a program without parameters.
fn value(text: &str) -> Tensor {
    let i = import(text);
    run(&i.module, i.module.entry().unwrap().graph, &[], Mode::Spec).unwrap().remove(0)
}

/// The value of one constant.
fn constant(literal: &str, ty: &str) -> Tensor {
    value(&format!(
        "func.func @main() -> {ty} {{ %c = stablehlo.constant dense<{literal}> : {ty} \n return %c : {ty} }}"
    ))
}

#[test]
fn locations_of_every_form() {
    let i = import(
        r#"#loc = loc(unknown)
        module @m attributes {mhlo.num_partitions = 1 : i32} {
          func.func public @main(%arg0: tensor<f32> loc("params['w']"), %lr: tensor<f32>, %arg2: tensor<f32> loc(unknown)) -> (tensor<f32> {jax.result_info = ""}) {
            %0 = stablehlo.negate %arg0 : tensor<f32> loc(#loc3)
            %1 = stablehlo.negate %0 : tensor<f32> loc("train.py":7:9)
            %2 = stablehlo.negate %1 : tensor<f32> loc(callsite("inner"("a.py":1:2) at "b.py":3:4))
            %3 = stablehlo.negate %2 : tensor<f32> loc(fused<"meta">["x", "c.py":5:6 to :9])
            %4 = stablehlo.negate %3 : tensor<f32> loc(unknown)
            %5 = stablehlo.negate %4 : tensor<f32>
            return %5 : tensor<f32> loc(#loc)
          } loc(#loc)
        } loc(#loc)
        #loc1 = loc("layer.py":20:5 to 21:3)
        #loc2 = loc("jit(step)/mul"(#loc1))
        #loc3 = loc(callsite(#loc2 at #loc1))"#,
    );
    let entry = i.module.entry().unwrap();
    let names: Vec<&str> = entry.params.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["params['w']", "lr", "arg2"]);
    assert_eq!(entry.results[0].name, "result0");
    let at: Vec<String> =
        i.module.graph(entry.graph).ops().map(|(_, o)| i.module.locations.describe(o.loc)).collect();
    assert_eq!(
        at,
        [
            "layer.py:20:5 (jit(step)/mul)",
            "train.py:7:9",
            "a.py:1:2 (inner)",
            "c.py:5:6 (x)",
            "model.mlir:8:18",
            "model.mlir:9:18",
        ]
    );
}

#[test]
fn a_cycle_of_locations_ends() {
    import(
        "func.func @main(%a: tensor<f32> loc(#loc1)) -> tensor<f32> { return %a : tensor<f32> }
         #loc1 = loc(#loc2)
         #loc2 = loc(callsite(#loc1 at #loc2))",
    );
}

#[test]
fn constants_of_every_form() {
    let f32s = |v: &[f32]| Storage::F32(v.to_vec());
    let t = "tensor<2x2xf32>";
    assert_eq!(constant("1.5", t).data, f32s(&[1.5; 4]));
    assert_eq!(
        constant("[[1.0, 2.0], [3.0, 0xFF800000]]", t).data,
        f32s(&[1.0, 2.0, 3.0, f32::NEG_INFINITY])
    );
    assert_eq!(constant(r#""0x0000803F""#, t).data, f32s(&[1.0; 4]));
    assert_eq!(constant(r#""0x0000803F00000040000000000000803f""#, t).data, f32s(&[1.0, 2.0, 0.0, 1.0]));
    assert_eq!(constant("", "tensor<0xf32>").data, f32s(&[]));
    assert_eq!(constant("[]", "tensor<0xf32>").data, f32s(&[]));
    assert_eq!(constant("[-1, 255]", "tensor<2xi8>").data, Storage::I8(vec![-1, -1]));
    assert_eq!(constant("18446744073709551615", "tensor<ui64>").data, Storage::U64(vec![u64::MAX]));
    let bools = |v: &[u8]| Storage::I1(v.to_vec());
    assert_eq!(constant("[true, false, true]", "tensor<3xi1>").data, bools(&[1, 0, 1]));
    assert_eq!(constant("true", "tensor<9xi1>").data, bools(&[1; 9]));
    // One byte each, packed, and the splats.
    assert_eq!(constant(r#""0x010001""#, "tensor<3xi1>").data, bools(&[1, 0, 1]));
    assert_eq!(constant(r#""0x0501""#, "tensor<9xi1>").data, bools(&[1, 0, 1, 0, 0, 0, 0, 0, 1]));
    assert_eq!(constant(r#""0x05""#, "tensor<3xi1>").data, bools(&[1, 0, 1]));
    assert_eq!(constant(r#""0xFF""#, "tensor<3xi1>").data, bools(&[1; 3]));
    assert_eq!(constant(r#""0x00""#, "tensor<20xi1>").data, bools(&[0; 20]));
}

#[test]
fn equal_constants_are_held_once() {
    let i = import(
        r#"func.func @main() -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
            %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
            %b = stablehlo.constant dense<"0x0000803F00000040"> : tensor<2xf32>
            %c = stablehlo.constant dense_resource<blob> : tensor<2xf32>
            return %a, %b, %c : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
        }
        {-#
          dialect_resources: {
            builtin: {
              other: "0x08000000FFFF",
              blob: "0x040000000000803F00000040"
            }
          },
          external_resources: { mlir_reproducer: { pipeline: "x", disable_threading: true } }
        #-}"#,
    );
    assert_eq!(i.module.constants.len(), 1);
}

#[test]
fn aliases_comments_and_bare_functions() {
    let v = value(
        r#"// A comment with "quotes" and { brackets.
        !t = tensor<2xf32>
        #half = dense<0.5> : !t
        func.func private @helper(%x: !t) -> !t {
          %r = stablehlo.add %x, %x : !t // twice
          func.return %r : !t
        }
        func.func @main() -> !t {
          %c = stablehlo.constant #half
          %r = func.call @helper(%c) : (!t) -> !t
          func.return %r : !t
        }"#,
    );
    assert_eq!(v.data, Storage::F32(vec![1.0; 2]));
}

#[test]
fn the_only_public_function_is_the_entry() {
    let i = import(
        "func.func public @step(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }
         func.func private @unused(%a: tensor<f32>) -> tensor<?xf32>
         func.func private @fft(%a: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
           %0 = stablehlo.fft %a, type = FFT, length = [4] : (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
           return %0 : tensor<4xcomplex<f32>>
         }",
    );
    assert_eq!(i.module.entry().unwrap().name, "step");
    assert_eq!(i.module.graphs().count(), 1, "functions that nothing calls are left out");
}

/// Names of functions and of the module may be any text; the IR's text form holds them.
#[test]
fn names_of_any_text() {
    for name in ["m$ain", "\"a b\"", "\"x\\22y\""] {
        let i = import(&format!(
            "module @{name} {{ func.func @{name}(%a: tensor<f32>) -> tensor<f32> {{ return %a : tensor<f32> }} }}"
        ));
        let text = msc_ir::text::print(&i.module);
        let again = msc_ir::text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(msc_ir::text::print(&again), text);
    }
}

#[test]
fn donated_state_and_names() {
    let i = import(
        r#"func.func public @main(
            %arg0: tensor<2xf32> {tf.aliasing_output = 1 : i32},
            %arg1: tensor<2xf32> {jax.buffer_donor = true},
            %arg2: tensor<3xf32> {jax.buffer_donor = true},
            %arg3: tensor<2xf32>
          ) -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xf32> {jax.result_info = "b"}, tensor<2xf32> {jax.result_info = "b"}) {
            return %arg0, %arg1, %arg3 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
          }"#,
    );
    let e = i.module.entry().unwrap();
    let params: Vec<_> = e.params.iter().map(|p| (p.name.as_str(), p.alias)).collect();
    assert_eq!(params, [("b", Some(1)), ("a", Some(0)), ("arg2", None), ("arg3", None)]);
    let results: Vec<_> = e.results.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(results, ["a", "b", "b#2"]);
}

#[test]
fn aliases_that_the_module_lists() {
    let i = import(
        r#"module attributes {mhlo.input_output_alias = [{alias = {kind = "may_alias", parameter_index = array<i64>, parameter_number = 1 : i64}, output_index = array<i64: 0>}]} {
          func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
            return %arg0, %arg1 : tensor<2xf32>, tensor<2xf32>
          }
        }"#,
    );
    let aliases: Vec<_> = i.module.entry().unwrap().params.iter().map(|p| p.alias).collect();
    assert_eq!(aliases, [None, Some(0)]);
}

#[test]
fn known_custom_calls() {
    let i = import(
        r#"func.func public @main(%x: tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>) {
          %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<2x4xf32>) -> tensor<2x4xf32>
          %1 = stablehlo.custom_call @annotate_device_placement(%0) {has_side_effect = true} : (tensor<2x4xf32>) -> tensor<2x4xf32>
          %2 = stablehlo.custom_call @mhlo.erf(%1) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
          %3:2 = stablehlo.custom_call @mhlo.topk(%2) {mhlo.attributes = {k = 2 : i64, largest = true}} : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
          return %3#0, %3#1 : tensor<2x2xf32>, tensor<2x2xi32>
        }"#,
    );
    let g = i.module.graph(i.module.entry().unwrap().graph);
    let names: Vec<&str> = g.ops().map(|(_, o)| msc_ir::Operation::name(&o.op)).collect();
    assert_eq!(names, ["erf", "iota", "sort", "slice", "slice"]);
}

#[test]
fn shardings_are_kept() {
    let i = import(
        r#"module attributes {mhlo.num_partitions = 8 : i32} {
          sdy.mesh @mesh = <["dp"=2, "tp"=4]>
          func.func public @main(
            %arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {?}]>},
            %arg1: tensor<8x4xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}
          ) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tp"}]>}) {
            %0 = sdy.sharding_constraint %arg0 <@mesh, [{"dp", "tp"}, {}]> : tensor<8x4xf32>
            %1 = stablehlo.add %0, %arg1 : tensor<8x4xf32>
            return %1 : tensor<8x4xf32>
          }
        }"#,
    );
    let Annotations { meshes, shardings, partitions, replicas } = &i.annotations;
    assert_eq!((*partitions, *replicas), (8, 1));
    assert_eq!(meshes[0].mesh.axes, [("dp".to_string(), 2), ("tp".to_string(), 4)]);
    let sites: Vec<Site> = shardings.iter().map(|s| s.0).collect();
    assert!(matches!(sites[..], [Site::Param(0), Site::Param(1), Site::Result(0), Site::Value(..)]));
    let ShardingHint::Sdy(s) = &shardings[0].1 else { panic!("{:?}", shardings[0]) };
    assert_eq!((s.mesh.as_str(), s.dims[0].axes[0].name.as_str(), s.dims[1].open), ("mesh", "dp", true));
    assert_eq!(shardings[1].1, ShardingHint::Gspmd("{devices=[2,1]<=[2]}".to_string()));
}

#[test]
fn an_initial_value_that_is_not_the_identity_is_combined() {
    let v = value(
        "func.func @main() -> tensor<f32> {
          %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
          %c = stablehlo.constant dense<10.0> : tensor<f32>
          %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
          return %0 : tensor<f32>
        }",
    );
    assert_eq!(v.data, Storage::F32(vec![13.0]));
}

#[test]
fn regions_use_values_of_outside() {
    let text = |taken: &str| {
        format!(
            "func.func @main() -> tensor<f32> {{
              %zero = stablehlo.constant dense<0> : tensor<i32>
              %three = stablehlo.constant dense<3> : tensor<i32>
              %one = stablehlo.constant dense<1> : tensor<i32>
              %x = stablehlo.constant dense<2.0> : tensor<f32>
              %y = stablehlo.add %x, %x : tensor<f32>
              %w:2 = stablehlo.while(%i = %zero, %acc = %x) : tensor<i32>, tensor<f32>
              cond {{
                %c = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
                stablehlo.return %c : tensor<i1>
              }} do {{
                %n = stablehlo.add %i, %one : tensor<i32>
                %p = stablehlo.constant dense<{taken}> : tensor<i1>
                %r = \"stablehlo.if\"(%p) ({{
                  %s = stablehlo.add %acc, %y : tensor<f32>
                  stablehlo.return %s : tensor<f32>
                }}, {{
                  %s = stablehlo.multiply %acc, %acc : tensor<f32>
                  stablehlo.return %s : tensor<f32>
                }}) : (tensor<i1>) -> tensor<f32>
                stablehlo.return %n, %r : tensor<i32>, tensor<f32>
              }}
              return %w#1 : tensor<f32>
            }}"
        )
    };
    assert_eq!(value(&text("true")).data, Storage::F32(vec![14.0]));
    assert_eq!(value(&text("false")).data, Storage::F32(vec![256.0]));
}

#[test]
fn the_raw_form_keeps_what_the_importer_leaves_out() {
    let m = parse(
        "m.mlir",
        br#"module @m attributes {a.flag, a.map = affine_map<(d0) -> (d0)>, a.ty = tensor<?x4xf32, #stablehlo.bounds<8, ?>>} {
          func.func private @f(tensor<f32>, tensor<*xf32>) -> !quant.type attributes {x = loc("here"), y = [1 : i8, "s" : i32, unit, @a::@b]}
        }"#,
    )
    .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(m.attrs.len(), 3);
    assert!(m.body[0].attr("y").is_some());
}
