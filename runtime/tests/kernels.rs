//! Compiled kernels in plans: what they compute, how their arguments are bound, and the object cache.

mod support;

use msc_codegen::definition::row_group;
use msc_codegen::tile::build::build_rows;
use msc_codegen::tile::{
    Affine, BinaryOp, Bound, DType, DeviceSpec, Kernel as Tile, Loop, LoopId, Num, Operand, Role, Space,
    Span, Step, View,
};
use msc_ir::interp::{Mode, run as interpret};
use msc_ir::program::{Action, BufferId, KernelId};
use msc_ir::text::parse;
use msc_ir::{LocId, Module, Op, Tensor, TensorType};
use msc_runtime::cpu::{KernelError, TileKernels};
use msc_runtime::exec::{Options, Outcome, RunError, run};
use msc_runtime::plan::Kernel;
use std::ops::ControlFlow;
use std::sync::Arc;
use support::{Builder, COMPUTE, plan_of};

fn packed(tile: &Tile) -> Kernel {
    Kernel { name: tile.name.clone(), payload: serde_json::to_vec(tile).expect("plain data") }
}

fn steps(
    m: &Module,
    b: Builder,
    kernels: &[Kernel],
    inputs: Vec<Tensor>,
    n: usize,
) -> Result<Outcome, RunError> {
    let plan = plan_of(m, &[b.program], kernels);
    let compiled = TileKernels::compile(&plan.kernels, None).expect("the kernels are right");
    run(plan, Arc::new(compiled), inputs, n, &Options::default(), &mut |_, _| ControlFlow::Continue(()))
}

const NORM: &str = r#"module @norm

graph @rms_norm(%0: f32[6,200], %1: f32[200]) {
  %2 = multiply %0, %0 : f32[6,200]
  %3 = reduce %2 {dims = [1], monoid = sum} : f32[6]
  %4 = constant {value = splat f32[6] 200.0} : f32[6]
  %5 = divide %3, %4 : f32[6]
  %6 = constant {value = splat f32[6] 1e-6} : f32[6]
  %7 = add %5, %6 : f32[6]
  %8 = rsqrt %7 : f32[6]
  %9 = broadcast_in_dim %8 {dims = [0], shape = [6, 200]} : f32[6,200]
  %10 = multiply %0, %9 : f32[6,200]
  %11 = broadcast_in_dim %1 {dims = [1], shape = [6, 200]} : f32[6,200]
  %12 = multiply %11, %10 : f32[6,200]
  return %12, %8
}

graph @main(%0: f32[6,200], %1: f32[200]) {
  %2, %3 = rms_norm %0, %1 {definition = @rms_norm, eps = 1e-6} : f32[6,200], f32[6]
  return %2, %3
}

entry "norm" @main {
  param "x"
  param "weight"
  result "y"
  result "rstd"
}
"#;

fn wave(shape: &[usize], step: f64) -> Tensor {
    let ty = TensorType::new(msc_ir::DType::F32, shape.iter().copied());
    let v: Vec<f64> = (0..ty.elements()).map(|i| (i as f64 * step).sin() * 2.0).collect();
    Tensor::from_f64s(&ty, &v)
}

#[test]
fn a_fused_op_by_kernels_is_its_definition() {
    let m = parse(NORM).expect("the text is right");
    let definition = m.graph_by_name("rms_norm").expect("the definition");
    let group = row_group(&m, m.graph(definition), "norm").expect("rows");
    let rows = build_rows(&group, &DeviceSpec::ascend_910b3()).expect("it fits the device");
    assert!(rows.temps.is_empty());
    let mut b = Builder::new(&m);
    let main = m.graph(m.entries[0].graph);
    let of = |b: &mut Builder, values: &[msc_ir::ValueId]| -> Vec<BufferId> {
        values.iter().map(|&v| b.buffer(main.ty(v), "")).collect()
    };
    let (inputs, outputs) = (of(&mut b, main.params()), of(&mut b, main.results()));
    (b.program.inputs, b.program.outputs) = (inputs.clone(), outputs.clone());
    for (n, k) in rows.kernels.iter().enumerate() {
        let bind = |writes: bool| -> Vec<BufferId> {
            let mine = k.params.iter().filter(|p| p.role.writable() == writes);
            mine.map(|p| match p.name.split_at(p.name.len() - 1) {
                ("in", i) => inputs[i.parse::<usize>().expect("a number")],
                (_, i) => outputs[i.parse::<usize>().expect("a number")],
            })
            .collect()
        };
        let action = Action::Kernel(KernelId(n as u32));
        b.push(COMPUTE, action, &bind(false), &bind(true), LocId::UNKNOWN);
    }
    let kernels: Vec<Kernel> = rows.kernels.iter().map(packed).collect();
    let given = vec![wave(&[6, 200], 0.37), wave(&[200], 0.11)];
    let outcome = steps(&m, b, &kernels, given.clone(), 2).expect("it runs");
    let want = interpret(&m, m.entries[0].graph, &given, Mode::Wide).expect("it runs");
    for (got, want) in outcome.outputs.iter().zip(&want) {
        let largest = want.data.to_f64s().iter().fold(0f64, |a, x| a.max(x.abs()));
        for (g, w) in got.data.to_f64s().iter().zip(want.data.to_f64s()) {
            // Two hundred squares summed in f32: an error of a few units in the last place of the sum.
            assert!((g - w).abs() <= 1e-6 * largest, "{g} {w}");
        }
    }
}

const UPDATE: &str = r#"module @update

graph @main(%0: f32[1000], %1: f32[1000], %2: f32[]) {
  %3 = broadcast_in_dim %2 {dims = [], shape = [1000]} : f32[1000]
  %4 = multiply %1, %3 : f32[1000]
  %5 = subtract %0, %4 : f32[1000]
  return %5
}

entry "update" @main {
  param "w" alias 0
  param "g"
  param "rate"
  result "w"
}
"#;

/// `w = w − rate·g`, in place, in blocks of 300 elements.
fn update_kernel() -> Tile {
    let mut kernel = Tile { name: "update".to_owned(), ..Tile::default() };
    let grid = kernel.add_grid("elements", 4);
    let w = kernel.add_param("w", DType::F32, [1000], Role::InOut);
    let g = kernel.add_param("g", DType::F32, [1000], Role::In);
    let rate = kernel.add_scalar("rate");
    let [wt, gt] = ["w_tile", "g_tile"].map(|n| kernel.add_buffer(n, DType::F32, [1, 64], Space::Vector));
    let start = Affine::grid(grid).times(300);
    let end = Bound::at(start.plus_const(300)).or(1000);
    let view = |p| View::row(p, Span::new(Affine::loop_var(LoopId(0)), end.clone()));
    let load = |dst, from| Step::Load { dst, from, fill: Num::ZERO };
    let body = vec![
        load(wt, view(w)),
        load(gt, view(g)),
        Step::Binary { op: BinaryOp::Mul, dst: gt, a: gt.into(), b: Operand::Scalar(rate) },
        Step::Binary { op: BinaryOp::Sub, dst: wt, a: wt.into(), b: gt.into() },
        Step::Store { src: wt, to: view(w) },
    ];
    let (id, name) = (LoopId(0), "elements".to_owned());
    kernel.body = vec![Step::For(Loop { id, name, start, end, step: 64, carries: Vec::new(), body })];
    kernel
}

/// The update as one kernel with these arguments.
fn update_program(m: &Module, reads: &[u32], writes: &[u32]) -> Builder {
    let mut b = Builder::new(m);
    let main = m.graph(m.entries[0].graph);
    let inputs: Vec<BufferId> = main.params().iter().map(|&v| b.buffer(main.ty(v), "")).collect();
    let spare = b.buffer(main.ty(main.params()[0]), "spare");
    let ids = |list: &[u32]| list.iter().map(|&n| BufferId(n)).collect::<Vec<_>>();
    b.push(COMPUTE, Action::Interpret(copy_of(m).into()), &[inputs[0], inputs[1]], &[spare], LocId::UNKNOWN);
    b.push(COMPUTE, Action::Kernel(KernelId(0)), &ids(reads), &ids(writes), LocId::UNKNOWN);
    b.program.outputs = vec![inputs[0]];
    b.program.inputs = inputs;
    b
}

/// Some op of two operands that writes the spare buffer.
fn copy_of(m: &Module) -> Op {
    let main = m.graph(m.entries[0].graph);
    let subtract = main.ops().last().map(|(_, o)| o.op.clone());
    subtract.expect("the last op")
}

#[test]
fn an_update_in_place_takes_run_time_scalars() {
    let m = parse(UPDATE).expect("the text is right");
    let rate = Tensor::scalar(msc_ir::DType::F32, 0.125);
    let given = vec![wave(&[1000], 0.9), wave(&[1000], 0.4), rate];
    let kernel = packed(&update_kernel());
    let outcome =
        steps(&m, update_program(&m, &[0, 1, 2], &[0]), &[kernel], given.clone(), 3).expect("it runs");
    let mut want = given;
    for _ in 0..3 {
        want[0] = interpret(&m, m.entries[0].graph, &want, Mode::Spec).expect("it runs").remove(0);
    }
    assert_eq!(outcome.outputs[0], want[0]);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let m = parse(UPDATE).expect("the text is right");
    let given = || vec![wave(&[1000], 0.9), wave(&[1000], 0.4), Tensor::scalar(msc_ir::DType::F32, 0.125)];
    let kernel = packed(&update_kernel());
    for (reads, writes, why) in [
        (&[0, 1][..], &[0][..], "takes 2 + 1 + 1 arguments, 3 given"),
        (&[0, 2, 1], &[0], "tensor g has 4000 bytes, 4 given"),
        (&[0, 1, 1], &[0], "scalar 0 has 4 bytes, 4000 given"),
        (&[3, 1, 2], &[0], "tensor w is updated in place, but read elsewhere"),
        (&[0, 0, 2], &[0], "tensors w and g have one memory"),
    ] {
        let kernel = std::slice::from_ref(&kernel);
        let e = steps(&m, update_program(&m, reads, writes), kernel, given(), 1).expect_err(why);
        assert!(matches!(&e, RunError::Kernel { message, .. } if message == why), "{e}");
    }
}

#[test]
fn payloads_are_verified() {
    let refused = |payload: Vec<u8>| {
        let k = Kernel { name: "k".into(), payload };
        match TileKernels::compile(&[k], None) {
            Err(e @ KernelError::Payload { .. }) => e.to_string(),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("it is no right kernel"),
        }
    };
    assert!(refused(b"not json".to_vec()).starts_with("MSC-K0001: kernel k: "));
    let mut wrong = update_kernel();
    wrong.params[0].shape = vec![900];
    refused(packed(&wrong).payload);
    let good = packed(&update_kernel()).payload;
    for at in (0..good.len()).step_by(11) {
        let mut bad = good.clone();
        bad[at] = b'9';
        // Refused, or another right kernel (a name, a number within bounds).
        let _ = TileKernels::compile(&[Kernel { name: "k".into(), payload: bad }], None);
    }
}

#[test]
fn object_code_is_cached_and_damage_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("objects");
    let kernel = [packed(&update_kernel())];
    let files = || -> Vec<std::path::PathBuf> {
        std::fs::read_dir(&cache).expect("the cache").map(|e| e.expect("an entry").path()).collect()
    };
    let fresh = TileKernels::compile(&kernel, Some(&cache));
    assert!(fresh.is_ok());
    let [file] = &files()[..] else { panic!("one object") };
    let object = std::fs::read(file).expect("bytes");
    let mut bad = object.clone();
    bad[100] ^= 1;
    std::fs::write(file, &bad).expect("damage");
    assert!(TileKernels::compile(&kernel, Some(&cache)).is_ok());
    assert_eq!(std::fs::read(file).expect("bytes"), object, "the damaged file is replaced by the same code");
    assert!(TileKernels::compile(&kernel, Some(&cache)).is_ok());
    assert_eq!(files().len(), 1);
}
