//! Writes large made-up programs for measurements: `cargo run --release -p msc-frontends --example synthetic -- DIR`.
//!
//! Texts that are nearly all constants, one for each form in which exporters write them (what Flax does to masks
//! and rotary tables), and an unrolled step of about 97,000 ops (what a 70B model is at 80 layers).

use std::fmt::Write;
use std::path::Path;

/// Elements of each constant, and constants of each file: tables of 4096 positions.
const ELEMENTS: usize = 4096 * 64;
const CONSTANTS: usize = 16;

fn main() {
    let dir = std::env::args().nth(1).expect("usage: synthetic DIR");
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir).expect("the folder is made");
    let angle = |i: usize| (i / 64) as f32 * 10000f32.powf(-((i % 64) as f32) / 64.0);
    let save = |name: &str, text: String| std::fs::write(dir.join(name), text).expect("it is written");
    save("constants_decimal.mlir", constants("f32", |i| scientific(angle(i).cos()), false));
    save("constants_integer.mlir", constants("i32", |i| (i % 4096).to_string(), false));
    save("constants_boolean.mlir", constants("i1", |i| (i / 512 % 512 >= i % 512).to_string(), false));
    let hex = |i: usize| angle(i).sin().to_le_bytes().iter().map(|b| format!("{b:02X}")).collect();
    save("constants_hex.mlir", constants("f32", hex, true));
    save("unrolled_97k_ops.mlir", unrolled(80));
}

/// As MLIR prints a float: `9.99950000E-01`.
fn scientific(x: f32) -> String {
    let text = format!("{x:.8E}");
    match text.split_once('E') {
        Some((m, e)) => match e.strip_prefix('-') {
            Some(e) => format!("{m}E-{e:0>2}"),
            None => format!("{m}E+{e:0>2}"),
        },
        None => text,
    }
}

/// A function that returns constants, whose elements differ from one to the next.
fn constants(elem: &str, element: impl Fn(usize) -> String, hex: bool) -> String {
    let ty = format!("tensor<4096x64x{elem}>");
    let mut out = String::new();
    let types = vec![ty.as_str(); CONSTANTS].join(", ");
    writeln!(out, "func.func @main() -> ({types}) {{").expect("a string grows");
    for c in 0..CONSTANTS {
        write!(out, "  %{c} = stablehlo.constant dense<{}", if hex { "\"0x" } else { "[" })
            .expect("a string grows");
        for i in 0..ELEMENTS {
            let e = element(i + c);
            match (hex, i % 64) {
                (true, _) => out.push_str(&e),
                (false, 0) => write!(out, "[{e}, ").expect("a string grows"),
                (false, 63) => {
                    write!(out, "{e}]{}", if i + 1 < ELEMENTS { ", " } else { "" }).expect("a string grows")
                }
                (false, _) => write!(out, "{e}, ").expect("a string grows"),
            }
        }
        writeln!(out, "{}> : {ty}", if hex { "\"" } else { "]" }).expect("a string grows");
    }
    let names: Vec<String> = (0..CONSTANTS).map(|c| format!("%{c}")).collect();
    writeln!(out, "  return {} : {types}\n}}", names.join(", ")).expect("a string grows");
    out
}

/// A residual block of twelve ops, and as many as make 97,000 of them in `layers` layers.
fn unrolled(layers: usize) -> String {
    let blocks = 97_000 / 12 / layers;
    let (x, w, row) = ("tensor<4x512x1024xbf16>", "tensor<1024x1024xbf16>", "tensor<4x512xf32>");
    let wide = "tensor<4x512x1024xf32>";
    let mut out = format!(
        "func.func @main(%x: {x}, %w: {w}) -> {x} {{\n  %zero = stablehlo.constant dense<0.0> : tensor<f32>\n  %eps = stablehlo.constant dense<1.0e-05> : {row}\n"
    );
    let mut last = "%x".to_string();
    let mut n = 0;
    for layer in 0..layers {
        for _ in 0..blocks {
            let v = |i: usize| format!("%{}", n + i);
            let loc = format!("loc(\"jit(train_step)/layers_{layer}/mlp/dot_general\")");
            let lines = [
                format!("{} = stablehlo.convert {last} : ({x}) -> {wide}", v(0)),
                format!("{} = stablehlo.multiply {}, {} : {wide}", v(1), v(0), v(0)),
                format!(
                    "{} = stablehlo.reduce({} init: %zero) applies stablehlo.add across dimensions = [2] : ({wide}, tensor<f32>) -> {row}",
                    v(2),
                    v(1)
                ),
                format!("{} = stablehlo.add {}, %eps : {row}", v(3), v(2)),
                format!("{} = stablehlo.rsqrt {} : {row}", v(4), v(3)),
                format!("{} = stablehlo.broadcast_in_dim {}, dims = [0, 1] : ({row}) -> {wide}", v(5), v(4)),
                format!("{} = stablehlo.multiply {}, {} : {wide}", v(6), v(0), v(5)),
                format!("{} = stablehlo.convert {} : ({wide}) -> {x}", v(7), v(6)),
                format!(
                    "{} = stablehlo.dot_general {}, %w, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : ({x}, {w}) -> {x}",
                    v(8),
                    v(7)
                ),
                format!("{} = stablehlo.logistic {} : {x}", v(9), v(8)),
                format!("{} = stablehlo.multiply {}, {} : {x}", v(10), v(8), v(9)),
                format!("{} = stablehlo.add {last}, {} : {x}", v(11), v(10)),
            ];
            for l in lines {
                writeln!(out, "  {l} {loc}").expect("a string grows");
            }
            last = v(11);
            n += 12;
        }
    }
    writeln!(out, "  return {last} : {x}\n}}").expect("a string grows");
    out
}
