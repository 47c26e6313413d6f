//! The verifier rejects seeded faults, each by its code, and takes the kernel without them.

use msc_codegen::tile::build::{build_rows, norms};
use msc_codegen::tile::{
    Affine, BinaryOp, Bound, BufferId, DType, DeviceSpec, GridDim, GridId, Kernel, Loop, LoopId, Num,
    Operand, Over, ParamId, ReduceOp, Role, Space, Span, Step, UnaryOp, Var, View, verify,
};

fn device() -> DeviceSpec {
    DeviceSpec::ascend_910b3()
}

/// `y[r, c] = x[r, c] · Σ_c x[r, c]` over [30, 20] in 4 blocks of 8 rows and tiles of 3 rows, and the sums
/// over each block's rows.
fn kernel() -> Kernel {
    let mut k = Kernel { name: "scale".to_owned(), ..Kernel::default() };
    let g = k.add_grid("rows", 4);
    let x = k.add_param("x", DType::F32, [30, 20], Role::In);
    let y = k.add_param("y", DType::F32, [30, 20], Role::Out);
    let s = k.add_param("s", DType::F32, [4, 20], Role::Out);
    k.add_scalar("rate");
    let tile = k.add_buffer("tile", DType::F32, [3, 20], Space::Vector);
    let sum = k.add_buffer("sum", DType::F32, [3, 1], Space::Vector);
    let over_rows = k.add_buffer("over_rows", DType::F32, [1, 20], Space::Vector);
    let start = Affine::grid(g).times(8);
    let end = Bound::at(start.plus_const(8)).or(30);
    let rows = Span::new(Affine::loop_var(LoopId(0)), end.clone());
    let view = |param| View::matrix(param, rows.clone(), Span::exact(0, 20));
    let (tile_op, sum_op) = (Operand::Tile(tile), Operand::Tile(sum));
    let body = vec![
        Step::Load { dst: tile, from: view(x), fill: Num::ZERO },
        Step::Reduce {
            op: ReduceOp::Sum,
            over: Over::Cols,
            dst: sum,
            src: tile,
            valid: None,
            accumulate: false,
        },
        Step::Binary { op: BinaryOp::Mul, dst: tile, a: tile_op, b: sum_op },
        Step::Store { src: tile, to: view(y) },
        Step::Reduce {
            op: ReduceOp::Sum,
            over: Over::Rows,
            dst: over_rows,
            src: tile,
            valid: Some(rows.clone()),
            accumulate: true,
        },
    ];
    let carries = vec![over_rows];
    k.body = vec![
        Step::Fill { dst: over_rows, value: Num::ZERO },
        Step::For(Loop { id: LoopId(0), name: "rows".to_owned(), start, end, step: 3, carries, body }),
        Step::Store {
            src: over_rows,
            to: View::matrix(s, Span::exact(Affine::grid(g), 1), Span::exact(0, 20)),
        },
    ];
    k
}

fn the_loop(k: &mut Kernel) -> &mut Loop {
    match &mut k.body[1] {
        Step::For(l) => l,
        other => panic!("{other:?} is no loop"),
    }
}

fn code(k: &Kernel) -> &'static str {
    verify(k, &device()).expect_err("the fault is found").fault.code()
}

/// The code of the fault that a change to the sound kernel makes.
fn after(change: impl FnOnce(&mut Kernel)) -> &'static str {
    let mut k = kernel();
    change(&mut k);
    code(&k)
}

fn set_rows(step: &mut Step, new: Span) {
    match step {
        Step::Load { from: view, .. } | Step::Store { to: view, .. } => {
            if let Some((_, rows)) = &mut view.rows {
                *rows = new;
            }
        }
        other => panic!("{other:?} has no view"),
    }
}

#[test]
fn the_kernel_itself_is_sound() {
    assert_eq!(verify(&kernel(), &device()), Ok(()));
}

#[test]
fn built_kernels_are_sound_at_many_shapes() {
    for rows in [1, 2, 39, 40, 41, 103, 4099] {
        for cols in [1, 7, 16, 64, 1003, 23_000, 65_537] {
            let built = build_rows(&norms::rms_norm_grad(rows, cols, DType::BF16, true), &device());
            assert!(built.is_ok(), "{rows}x{cols}: {built:?}");
        }
    }
}

#[test]
fn names() {
    assert_eq!(after(|k| k.name = "two words".to_owned()), "K001");
    assert_eq!(after(|k| k.params[1].name = "x".to_owned()), "K001");
    assert_eq!(after(|k| k.scalars[0].name = "x".to_owned()), "K001");
    assert_eq!(after(|k| k.buffers[1].name = "tile".to_owned()), "K001");
}

#[test]
fn sizes() {
    assert_eq!(after(|k| k.grid[0].size = 0), "K002");
    assert_eq!(after(|k| k.params[0].shape = vec![30, -20]), "K002");
    assert_eq!(after(|k| k.params[0].shape = vec![i64::MAX, i64::MAX]), "K002");
    assert_eq!(after(|k| k.buffers[0].rows = 0), "K002");
}

#[test]
fn ids_and_scopes() {
    assert_eq!(after(|k| k.body[0] = Step::Fill { dst: BufferId(9), value: Num::ZERO }), "K003");
    let scalar = Operand::Scalar(msc_codegen::tile::ScalarId(3));
    let step = Step::Unary { op: UnaryOp::Copy, dst: BufferId(2), src: scalar };
    assert_eq!(after(|k| k.body[0] = step), "K003");
    // The loop's variable is used behind the loop.
    let behind = Span::exact(Affine::loop_var(LoopId(0)), 1);
    assert_eq!(after(|k| set_rows(&mut k.body[2], behind)), "K004");
    let grid = Span::exact(Affine::grid(GridId(1)), 1);
    assert_eq!(after(|k| set_rows(&mut k.body[2], grid)), "K004");
}

#[test]
fn loops() {
    assert_eq!(after(|k| the_loop(k).step = 0), "K005");
    let nest = |k: &mut Kernel| {
        let inner = Step::For(the_loop(k).clone());
        the_loop(k).body.push(inner);
    };
    assert_eq!(after(nest), "K005");
    assert_eq!(after(|k| the_loop(k).carries.push(BufferId(2))), "K006");
    assert_eq!(after(|k| the_loop(k).carries.push(BufferId(0))), "K006");
}

#[test]
fn shapes_and_types() {
    assert_eq!(after(|k| k.buffers[1].cols = 2), "K007");
    assert_eq!(after(|k| k.buffers[2].cols = 19), "K007");
    assert_eq!(after(|k| k.buffers[0].dtype = DType::BF16), "K008");
    assert_eq!(after(|k| k.params[1].dtype = DType::F16), "K008");
    let own = Step::Reduce {
        op: ReduceOp::Sum,
        over: Over::Rows,
        dst: BufferId(2),
        src: BufferId(2),
        valid: None,
        accumulate: false,
    };
    assert_eq!(after(|k| k.body.push(own)), "K008");
    assert_eq!(after(|k| k.buffers[0].space = Space::Operand), "K009");
}

#[test]
fn views_and_roles() {
    let view = View::row(ParamId(0), Span::exact(0, 20));
    let load = Step::Load { dst: BufferId(2), from: view, fill: Num::ZERO };
    assert_eq!(after(|k| k.body[0] = load), "K010");
    assert_eq!(after(|k| k.params[1].role = Role::In), "K011");
    assert_eq!(after(|k| k.params[0].role = Role::Out), "K011");
}

#[test]
fn unassigned_tiles() {
    let drop_step = |n: usize| move |k: &mut Kernel| drop(the_loop(k).body.remove(n));
    assert_eq!(after(drop_step(0)), "K012");
    assert_eq!(after(drop_step(1)), "K012");
    // Written in the loop but not carried: no value behind it.
    assert_eq!(after(|k| the_loop(k).carries.clear()), "K012");
    let behind = Step::Unary { op: UnaryOp::Neg, dst: BufferId(1), src: Operand::Tile(BufferId(1)) };
    assert_eq!(after(|k| k.body.push(behind)), "K012");
}

#[test]
fn overruns() {
    // One row too many in the last block: the end is not clipped to the tensor.
    let unclipped = Span::exact(Affine::loop_var(LoopId(0)), 3);
    assert_eq!(after(|k| set_rows(&mut the_loop(k).body[0], unclipped)), "K013");
    let early = Span::new(Affine::loop_var(LoopId(0)).plus_const(-1), Bound::at(30));
    assert_eq!(after(|k| set_rows(&mut the_loop(k).body[0], early)), "K013");
    assert_eq!(after(|k| k.params[0].shape = vec![29, 20]), "K013");
    assert_eq!(after(|k| k.params[0].shape = vec![30, 19]), "K013");
}

#[test]
fn empty_spans() {
    let empty = Span::new(Affine::loop_var(LoopId(0)), Bound::at(24));
    assert_eq!(after(|k| set_rows(&mut the_loop(k).body[0], empty)), "K014");
    // A block too many would have no rows, but then its loop does not run: not a fault by itself; its
    // row of partial sums is.
    assert_eq!(after(|k| k.grid[0].size = 5), "K013");
}

#[test]
fn overlapping_blocks() {
    // Blocks start every 8 rows but run to the next but one.
    let wide = |k: &mut Kernel| {
        let end = Bound::at(Affine::grid(GridId(0)).times(8).plus_const(9)).or(30);
        let span = Span::new(Affine::loop_var(LoopId(0)), end.clone());
        let l = the_loop(k);
        l.end = end;
        set_rows(&mut l.body[3], span);
    };
    assert_eq!(after(wide), "K015");
    assert_eq!(after(|k| set_rows(&mut k.body[2], Span::exact(0, 1))), "K015");
    // Independence holds in every grid dimension, not only in one.
    assert_eq!(after(|k| k.grid.push(GridDim { name: "copies".to_owned(), size: 2 })), "K015");
}

#[test]
fn outputs_never_stored() {
    assert_eq!(after(|k| drop(k.body.pop())), "K016");
}

#[test]
fn too_much_memory() {
    let big = |k: &mut Kernel| {
        let id = k.add_buffer("big", DType::F32, [1, 46_990], Space::Vector);
        k.body.push(Step::Fill { dst: id, value: Num::ZERO });
    };
    assert_eq!(after(big), "K017");
    let accumulator = |k: &mut Kernel| {
        k.add_buffer("big", DType::F32, [256, 256], Space::Accumulator);
    };
    assert_eq!(after(accumulator), "K017");
}

#[test]
fn messages_name_the_step() {
    let mut k = kernel();
    the_loop(&mut k).body.remove(1);
    let message = verify(&k, &device()).expect_err("a fault").to_string();
    assert_eq!(
        message,
        "K012: kernel `scale`, step `tile = mul tile, sum`: `sum` may be read before it is written"
    );
}

/// The affine bounds against enumeration, on the sound kernel's own expressions.
#[test]
fn spans_are_what_enumeration_finds() {
    let mut k = kernel();
    let l = the_loop(&mut k).clone();
    let mut seen = Vec::new();
    for block in 0..4 {
        let at = |i: i64| move |var| if matches!(var, Var::Grid(_)) { block } else { i };
        let end = l.end.eval(at(0));
        let mut i = l.start.eval(at(0));
        while i < end {
            let span = Span::new(Affine::loop_var(l.id), l.end.clone());
            let valid = span.valid(3, at(i));
            seen.extend(i..i + valid);
            i += l.step;
        }
    }
    assert_eq!(seen, (0..30).collect::<Vec<_>>());
}
