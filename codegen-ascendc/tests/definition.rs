//! A definition, lowered to the row family and run through LLVM, gives what the interpreter gives.

use msc_codegen::definition::row_group;
use msc_codegen::llvm::{Arg, CompiledKernel};
use msc_codegen::tile::DeviceSpec;
use msc_codegen::tile::build::build_rows;
use msc_ir::interp::{Mode, run};
use msc_ir::{Tensor, TensorType, text};
use std::collections::BTreeMap;

/// Residual addition and RMSNorm, with the column sums of the sum as a third kind of output.
fn definition(lead: &[usize], h: usize, wide: &str) -> String {
    let list = |v: &[usize]| v.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let full = lead.iter().chain([&h]).copied().collect::<Vec<_>>();
    let (f, l) = (list(&full).replace(' ', ""), list(lead).replace(' ', ""));
    let (last, dims) = (lead.len(), list(&(0..lead.len()).collect::<Vec<_>>()));
    let (fs, ls) = (list(&full), list(lead));
    format!(
        r#"module @d

graph @def(%0: {wide}[{f}], %1: {wide}[{f}], %2: {wide}[{h}]) {{
  %3 = add %0, %1 : {wide}[{f}]
  %4 = convert %3 {{dtype = f32}} : f32[{f}]
  %5 = multiply %4, %4 : f32[{f}]
  %6 = reduce %5 {{dims = [{last}], monoid = sum}} : f32[{l}]
  %7 = constant {{value = splat f32[{l}] {h}.0}} : f32[{l}]
  %8 = divide %6, %7 : f32[{l}]
  %9 = constant {{value = splat f32[] 1e-5}} : f32[]
  %10 = broadcast_in_dim %9 {{dims = [], shape = [{ls}]}} : f32[{l}]
  %11 = add %8, %10 : f32[{l}]
  %12 = rsqrt %11 : f32[{l}]
  %13 = reshape %12 {{shape = [{ls}, 1]}} : f32[{l},1]
  %14 = broadcast_in_dim %13 {{dims = [{dims}, {last}], shape = [{fs}]}} : f32[{f}]
  %15 = multiply %4, %14 : f32[{f}]
  %16 = convert %2 {{dtype = f32}} : f32[{h}]
  %17 = broadcast_in_dim %16 {{dims = [{last}], shape = [{fs}]}} : f32[{f}]
  %18 = multiply %17, %15 : f32[{f}]
  %19 = convert %18 {{dtype = {wide}}} : {wide}[{f}]
  %20 = reduce %15 {{dims = [{dims}], monoid = sum}} : f32[{h}]
  return %3, %19, %12, %20
}}
"#
    )
}

fn agree(lead: &[usize], h: usize, wide: &str, tolerance: f64) {
    let m = text::parse(&definition(lead, h, wide)).expect("parses");
    let id = m.graph_by_name("def").expect("def");
    let g = m.graph(id);
    let mut seed = 7u64;
    let inputs: Vec<Tensor> = g
        .param_types()
        .iter()
        .map(|t| {
            let v: Vec<f64> = (0..t.elements())
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (seed >> 40) as f64 / (1u64 << 23) as f64 - 1.0
                })
                .collect();
            Tensor::from_f64s(t, &v)
        })
        .collect();
    let want = run(&m, id, &inputs, Mode::Spec).expect("interprets");
    let group = row_group(&m, g, "k").expect("is a row group");
    let rows = build_rows(&group, &DeviceSpec::ascend_910b3()).expect("builds");
    let mut memory: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (i, t) in inputs.iter().enumerate() {
        memory.insert(format!("in{i}"), t.data.bytes().to_vec());
    }
    let outs: Vec<TensorType> = g.result_types();
    for (i, t) in outs.iter().enumerate() {
        memory.insert(format!("out{i}"), vec![0xa5; t.bytes()]);
    }
    for t in &rows.temps {
        let n = t.shape.iter().product::<i64>() * t.dtype.bytes();
        memory.insert(t.name.clone(), vec![0xa5; n as usize]);
    }
    for k in &rows.kernels {
        let compiled = CompiledKernel::compile(k).expect("compiles");
        let mut taken: Vec<(String, Vec<u8>)> =
            k.params.iter().map(|p| (p.name.clone(), memory.remove(&p.name).expect("bound"))).collect();
        let mut args: Vec<Arg> = taken
            .iter_mut()
            .zip(&k.params)
            .map(|((_, b), p)| if p.role.writable() { Arg::Out(b) } else { Arg::In(b) })
            .collect();
        compiled.run(&mut args, &[], 2).expect("runs");
        memory.extend(taken);
    }
    for (i, (w, t)) in want.iter().zip(&outs).enumerate() {
        let got = msc_ir::Storage::from_bytes(t.dtype, &memory[&format!("out{i}")]).to_f64s();
        let want = w.data.to_f64s();
        let scale = want.iter().fold(0f64, |a, x| a.max(x.abs()));
        for (a, b) in got.iter().zip(&want) {
            assert!((a - b).abs() <= tolerance * scale, "out{i} at {lead:?}x{h} {wide}: {a} for {b}");
        }
    }
}

/// f32: the interpreter rounds each sum once, the kernel adds up to 5120 f32 values in 16 lanes: below 1e-5 of
/// the largest value. bf16: one rounding more or less of a stored value, 2⁻⁸.
#[test]
fn lowered_definitions_agree_with_the_interpreter() {
    agree(&[2, 16], 64, "f32", 1e-5);
    agree(&[7], 1003, "f32", 1e-5);
    agree(&[5], 5120, "f32", 1e-5);
    agree(&[16], 16, "f32", 1e-5);
    agree(&[2, 3], 64, "bf16", 4e-3);
}

#[test]
fn what_is_not_row_wise_is_refused_by_name() {
    let text = definition(&[4], 8, "f32").replace("%15 = multiply %4, %14", "%15 = power %4, %14");
    let m = text::parse(&text).expect("parses");
    let e = row_group(&m, m.graph(m.graph_by_name("def").expect("def")), "k").expect_err("power has no step");
    assert!(e.to_string().contains("power"), "{e}");
}
