//! The same bits whatever the CPU can do.

use super::{Arg, CompiledKernel, Host, host, object_for};
use crate::tile::build::{RowGroup, build_rows, losses, norms};
use crate::tile::{DType, DeviceSpec};

/// Results of all kernels of a group, compiled for a CPU, on fixed pseudo-random inputs.
fn results(group: &RowGroup, cpu: &Host) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kernel in build_rows(group, &DeviceSpec::ascend_910b3()).expect("it builds").kernels {
        let object = object_for(&kernel, cpu).expect("it compiles");
        let compiled = CompiledKernel::from_object(&kernel, &object).expect("it loads");
        let mut state = 1u32;
        let mut value = |dtype: DType| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bits = 0x3e80_0000 | (state >> 8) & 0x81ff_ffff; // magnitudes 0.25 to 16
            if dtype.bytes() == 4 {
                bits.to_ne_bytes().to_vec()
            } else {
                ((bits >> 16) as u16).to_ne_bytes().to_vec()
            }
        };
        let mut memory: Vec<Vec<u8>> = Vec::new();
        for p in &kernel.params {
            memory.push((0..p.elements()).flat_map(|_| value(p.dtype)).collect());
        }
        let mut args: Vec<Arg> = memory
            .iter_mut()
            .zip(&kernel.params)
            .map(|(m, p)| if p.role.writable() { Arg::Out(m) } else { Arg::In(m) })
            .collect();
        compiled.run(&mut args, &[], 1).expect("the arguments fit");
        all.extend(memory);
    }
    all
}

#[test]
fn results_do_not_depend_on_the_cpu() {
    let this = host().expect("a supported machine");
    // A CPU without AVX, FMA and half-precision conversions.
    let (cpu, features, triple) = ("x86-64".to_owned(), String::new(), this.triple.clone());
    let plain = Host { cpu, features, triple };
    for group in [
        norms::rms_norm_grad(7, 1003, DType::BF16, true),
        norms::rms_norm(5, 70_000, DType::F16, 1e-5),
        losses::cross_entropy(45, 333, DType::F16),
    ] {
        assert!(results(&group, this) == results(&group, &plain), "{}", group.name);
    }
}
