//! `msc kernels`: the kernels of a step, shown or compared.
//!
//! The comparison runs every fused op of the step on random data three ways: its definition in the interpreter,
//! its kernels through LLVM, and the same kernels as Ascend C, compiled with g++ against the emulator.

use crate::error::{Error, Result};
use crate::kernels::Selection;
use msc_codegen::ascendc::{self, emulate::Emulated};
use msc_codegen::llvm::{Arg, CompiledKernel};
use msc_codegen::npuir::Spelling;
use msc_codegen::tile::{self, DeviceSpec};
use msc_ir::interp::{Mode, run};
use msc_ir::{DType, GraphId, Module, Storage, Tensor, TensorType};
use msc_passes::schedule::{Argument, KernelSpec};
use std::collections::BTreeMap;
use std::io::Write;

/// Largest difference that passes, relative to the largest value of a result. f32: sums of up to some thousand
/// terms in another order than the interpreter's single rounding. 16 bits: one rounding the other way.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 1e-5,
    }
}

/// The two ways besides the interpreter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Llvm,
    AscendC,
}

impl Path {
    fn name(self) -> &'static str {
        match self {
            Path::Llvm => "LLVM",
            Path::AscendC => "Ascend C",
        }
    }
}

/// Compares all kernels of a selection; prints a line each.
///
/// # Errors
/// [`Error::Check`] naming what differs; what a back end refuses.
pub fn compare(module: &Module, s: &Selection, out: &mut dyn Write) -> Result<()> {
    let device = DeviceSpec::ascend_910b3();
    let mut failures = Vec::new();
    let mut seen: Vec<&KernelSpec> = Vec::new();
    for (&definition, spec) in &s.specs {
        if seen.contains(&spec) {
            continue;
        }
        seen.push(spec);
        let inputs = random_inputs(module, definition);
        let want = run(module, definition, &inputs, Mode::Spec)?;
        let names: Vec<&str> =
            spec.calls.iter().map(|c| s.tiles[c.kernel.0 as usize].name.as_str()).collect();
        let mut line = names.join(" + ");
        for path in [Path::Llvm, Path::AscendC] {
            let got = launch(module, definition, spec, &s.tiles, &inputs, path, &device)?;
            let mut worst = 0f64;
            for (g, w) in got.iter().zip(&want) {
                let d = max_relative(g, w);
                worst = worst.max(d);
                if d > tolerance(w.dtype()) {
                    failures.push(format!("{} by {}: {d:.1e} of {}", names.join(" + "), path.name(), w.ty()));
                }
            }
            line += &format!("  {} {worst:.1e}", path.name());
        }
        let _ = writeln!(out, "{line}");
    }
    for why in &s.interpreted {
        let _ = writeln!(out, "interpreted: {why}");
    }
    if failures.is_empty() { Ok(()) } else { Err(Error::Check(failures.join("\n"))) }
}

/// The kernels in one of their forms.
///
/// # Errors
/// [`Error::Usage`] for an unknown form; [`Error::Check`] where a back end refuses a kernel.
pub fn emit(s: &Selection, form: &str) -> Result<String> {
    let device = DeviceSpec::ascend_910b3();
    let mut out = String::new();
    for k in &s.tiles {
        let refuse = |e: String| Error::Check(format!("{}: {e}", k.name));
        out += &match form {
            "tile" => k.to_string(),
            "ascendc" => ascendc::emit(k, &device).map_err(|e| refuse(e.to_string()))?,
            "npuir" => msc_codegen::npuir::emit(k, Spelling::Mlir19).map_err(|e| refuse(e.to_string()))?,
            _ => {
                return Err(Error::Usage(format!(
                    "kernels have no form `{form}`; there are tile, ascendc, npuir"
                )));
            }
        };
        out.push('\n');
    }
    Ok(out)
}

fn random_inputs(module: &Module, g: GraphId) -> Vec<Tensor> {
    // A fixed multiplicative generator: the same data every time.
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    let value = |t: &TensorType, next: &mut dyn FnMut() -> f64| -> Tensor {
        let v: Vec<f64> = (0..t.elements()).map(|_| next()).collect();
        Tensor::from_f64s(t, &v)
    };
    module.graph(g).param_types().iter().map(|t| value(t, &mut next)).collect()
}

fn max_relative(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (a.data.to_f64s(), b.data.to_f64s());
    let scale = b.iter().fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
    a.iter().zip(&b).fold(0f64, |m, (x, y)| if x.is_nan() { f64::INFINITY } else { m.max((x - y).abs()) })
        / scale
}

fn launch(
    module: &Module,
    definition: GraphId,
    spec: &KernelSpec,
    tiles: &[tile::Kernel],
    inputs: &[Tensor],
    path: Path,
    device: &DeviceSpec,
) -> Result<Vec<Tensor>> {
    let results = module.graph(definition).result_types();
    let mut memory: BTreeMap<Argument, Vec<u8>> = BTreeMap::new();
    for (i, t) in inputs.iter().enumerate() {
        memory.insert(Argument::Operand(i), t.data.bytes().to_vec());
    }
    // Results and temporaries start as a pattern that is no sensible number.
    let fresh = |t: &TensorType| vec![0xa5u8; t.bytes()];
    results.iter().enumerate().for_each(|(i, t)| drop(memory.insert(Argument::Result(i), fresh(t))));
    spec.temporaries
        .iter()
        .enumerate()
        .for_each(|(i, t)| drop(memory.insert(Argument::Temporary(i), fresh(t))));
    for call in &spec.calls {
        let kernel = &tiles[call.kernel.0 as usize];
        let refuse = |e: String| Error::Check(format!("{} by {}: {e}", kernel.name, path.name()));
        let (mut read, mut written) = (call.reads.iter(), call.writes.iter());
        let order: Vec<Argument> = kernel
            .params
            .iter()
            .filter_map(|p| if p.role.writable() { written.next() } else { read.next() })
            .copied()
            .collect();
        let mut taken: Vec<Vec<u8>> =
            order.iter().map(|a| memory.get(a).cloned().unwrap_or_default()).collect();
        match path {
            Path::Llvm => {
                let compiled = CompiledKernel::compile(kernel).map_err(|e| refuse(e.to_string()))?;
                let mut args: Vec<Arg> = taken
                    .iter_mut()
                    .zip(&kernel.params)
                    .map(|(b, p)| if p.role.writable() { Arg::Out(b) } else { Arg::In(b) })
                    .collect();
                compiled.run(&mut args, &[], 1).map_err(|e| refuse(e.to_string()))?;
            }
            Path::AscendC => {
                let source = ascendc::emit(kernel, device).map_err(|e| refuse(e.to_string()))?;
                let built = Emulated::new(kernel, &source, device).map_err(|e| refuse(e.to_string()))?;
                let mut args: Vec<&mut [u8]> = taken.iter_mut().map(Vec::as_mut_slice).collect();
                built.run(&mut args, &[]).map_err(|e| refuse(e.to_string()))?;
            }
        }
        memory.extend(order.into_iter().zip(taken));
    }
    Ok(results
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let bytes = memory.remove(&Argument::Result(i)).unwrap_or_default();
            Tensor::new(t.shape.iter().copied(), Storage::from_bytes(t.dtype, &bytes))
        })
        .collect())
}
