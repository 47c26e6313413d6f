//! The emitted AscendNPU IR modules, executed: they consist of upstream MLIR operations, so stock MLIR can
//! lower them to this machine. This checks what is emitted, not what the vendor's compiler makes of it.

mod common;

use std::collections::BTreeMap;
use std::ffi::c_void;

use common::{Tensor, error, evaluate, inputs};
use melior::dialect::DialectRegistry;
use melior::ir::Module;
use melior::ir::operation::OperationLike;
use melior::pass::PassManager;
use melior::utility::{parse_pass_pipeline, register_all_dialects, register_all_llvm_translations};
use melior::{Context, ExecutionEngine};
use msc_codegen::npuir::{Spelling, emit};
use msc_codegen::tile::build::{RowGroup, build_rows, losses, norms};
use msc_codegen::tile::{DType, DeviceSpec, Kernel};

const PIPELINE: &str = "builtin.module(convert-elementwise-to-linalg,empty-tensor-to-alloc-tensor,\
    one-shot-bufferize{bufferize-function-boundaries allow-return-allocs-from-loops},\
    func.func(convert-linalg-to-loops),canonicalize,expand-strided-metadata,lower-affine,\
    convert-scf-to-cf,arith-expand{include-bf16=true},convert-math-to-llvm,convert-math-to-libm,\
    finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,convert-arith-to-llvm,\
    convert-index-to-llvm,reconcile-unrealized-casts)";

/// What a `memref<?xT>` argument points to.
#[repr(C)]
struct Descriptor {
    allocated: *mut c_void,
    aligned: *mut c_void,
    offset: i64,
    size: i64,
    stride: i64,
}

impl Descriptor {
    fn new(memory: &mut [u8], element: usize) -> Descriptor {
        let pointer = memory.as_mut_ptr().cast();
        let size = (memory.len() / element) as i64;
        Descriptor { allocated: pointer, aligned: pointer, offset: 0, size, stride: 1 }
    }
}

/// Runs all blocks of a kernel's module; `memory` are its tensors.
fn execute(kernel: &Kernel, memory: &mut [Tensor]) {
    let context = Context::new();
    let registry = DialectRegistry::new();
    register_all_dialects(&registry);
    context.append_dialect_registry(&registry);
    context.load_all_available_dialects();
    register_all_llvm_translations(&context);
    let text = emit(kernel, Spelling::Mlir22).expect("the kernel is emitted");
    let text = text.replace("attributes {", "attributes {llvm.emit_c_interface, ");
    let mut module = Module::parse(&context, &text).expect("the module parses");
    let passes = PassManager::new(&context);
    melior::utility::register_all_passes();
    parse_pass_pipeline(passes.as_operation_pass_manager(), PIPELINE).expect("a valid pipeline");
    passes.run(&mut module).expect("the module lowers");
    assert!(module.as_operation().verify());
    let library = concat!(env!("MLIR_SYS_220_PREFIX"), "/lib/libmlir_c_runner_utils.so\0");
    let engine = ExecutionEngine::new(&module, 2, &[library], false, false);

    let mut unused = [0u8; 64];
    let mut descriptors = vec![Descriptor::new(&mut unused, 1), Descriptor::new(&mut unused, 1)];
    for (tensor, p) in memory.iter_mut().zip(&kernel.params) {
        descriptors.push(Descriptor::new(&mut tensor.bytes, p.dtype.bytes() as usize));
    }
    let mut pointers: Vec<*mut Descriptor> = descriptors.iter_mut().map(|d| d as *mut _).collect();
    for block in 0..kernel.blocks() as i32 {
        let mut grid = [kernel.blocks() as i32, 1, 1, block, 0, 0];
        let mut args: Vec<*mut ()> =
            pointers.iter_mut().map(|p| (p as *mut *mut Descriptor).cast()).collect();
        args.extend(grid.iter_mut().map(|g| (g as *mut i32).cast::<()>()));
        // SAFETY: the arguments have the types of the function's C interface.
        unsafe { engine.invoke_packed(&kernel.name, &mut args).expect("the kernel runs") }
    }
}

fn check(group: &RowGroup, limit: f64) {
    let mut tensors: BTreeMap<String, Tensor> = inputs(group, 11);
    let built = build_rows(group, &DeviceSpec::ascend_910b3()).expect("the group builds");
    for kernel in &built.kernels {
        for p in &kernel.params {
            let bytes = vec![0xff; (p.elements() * p.dtype.bytes()) as usize];
            tensors.entry(p.name.clone()).or_insert(Tensor { dtype: p.dtype, bytes });
        }
        let mut memory: Vec<Tensor> = kernel.params.iter().map(|p| tensors[&p.name].clone()).collect();
        execute(kernel, &mut memory);
        for (tensor, p) in memory.into_iter().zip(&kernel.params) {
            tensors.insert(p.name.clone(), tensor);
        }
    }
    for (name, wanted) in evaluate(group, &tensors) {
        let e = error(&tensors[&name], &wanted);
        assert!(e <= limit, "{} {}x{}: {name} off by {e:e}", group.name, group.rows, group.cols);
    }
}

// Sums here are sequential: H roundings in a row, of which a random walk leaves about √H · 2^-24.

#[test]
fn rms_norm_forward_and_backward() {
    for (rows, cols) in [(32, 64), (7, 1003), (130, 48)] {
        for dtype in [DType::F32, DType::BF16] {
            check(&norms::rms_norm(rows, cols, dtype, 1e-5), 1e-5);
            check(&norms::add_rms_norm(rows, cols, dtype, 1e-5), 1e-5);
            check(&norms::rms_norm_grad(rows, cols, dtype, true), 1e-5);
        }
    }
}

#[test]
fn positions_and_selection() {
    check(&losses::cross_entropy(90, 100, DType::F32), 1e-5);
    check(&losses::cross_entropy(2, 50_257, DType::F32), 1e-4);
}

#[test]
fn rows_in_chunks() {
    check(&norms::rms_norm_grad(3, 65_536, DType::BF16, true), 1e-4);
}
