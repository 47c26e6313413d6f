//! `ep`: experts are dealt to ranks, whichever way the program numbers and sums them.

mod common;

use common::{axes, inputs, kinds, split};
use msc_ir::module::AxisId;
use msc_ir::{Module, Op, text};

/// How an expert's weight for each token is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// The token's choice is compared with the expert's number.
    Number,
    /// It is the expert's column of the router's output.
    Column,
}

/// Two layers of a dense loop over experts, backward and update.
#[derive(Clone, Debug)]
struct Loop {
    by: By,
    /// The order in which a layer sums its experts.
    order: Vec<usize>,
    batch: usize,
    sequence: usize,
    /// Whether the first expert's output is used by itself too.
    alone: bool,
    /// Whether the backward pass has the weights through a barrier, as rematerialised steps do.
    barrier: bool,
}

const WIDTH: usize = 6;
const INNER: usize = 4;

/// A graph being written.
#[derive(Default)]
struct Body {
    lines: Vec<String>,
    next: usize,
}

impl Body {
    fn param(&mut self, list: &mut Vec<String>, ty: &str) -> String {
        let v = format!("%{}", self.next);
        self.next += 1;
        list.push(format!("{v}: {ty}"));
        v
    }

    fn op(&mut self, what: &str, ty: &str) -> String {
        let v = format!("%{}", self.next);
        self.next += 1;
        self.lines.push(format!("  {v} = {what} : {ty}"));
        v
    }

    fn dot(&mut self, a: &str, b: &str, contract: (usize, usize), ty: &str) -> String {
        let (l, r) = contract;
        self.op(
            &format!("dot_general {a}, {b} {{dtype = f32, lhs_batch = [], lhs_contract = [{l}], rhs_batch = [], rhs_contract = [{r}]}}"),
            ty,
        )
    }

    fn call(&mut self, graph: &str, operands: &[String], types: &[String]) -> Vec<String> {
        let vs: Vec<String> = (0..types.len()).map(|i| format!("%{}", self.next + i)).collect();
        self.next += types.len();
        self.lines.push(format!(
            "  {} = call {} {{graph = @{graph}}} : {}",
            vs.join(", "),
            operands.join(", "),
            types.join(", ")
        ));
        vs
    }

    fn graph(&self, name: &str, params: &[String], results: &[String]) -> String {
        format!(
            "graph @{name}({}) {{\n{}\n  return {}\n}}\n",
            params.join(", "),
            self.lines.join("\n"),
            results.join(", ")
        )
    }
}

impl Loop {
    fn experts(&self) -> usize {
        self.order.len()
    }

    fn types(&self) -> [String; 6] {
        let n = self.batch * self.sequence;
        [
            format!("f32[{},{},{WIDTH}]", self.batch, self.sequence),
            format!("f32[{n},{WIDTH}]"),
            format!("f32[{n},{INNER}]"),
            format!("f32[{n}]"),
            format!("f32[{WIDTH},{INNER}]"),
            format!("f32[{INNER},{WIDTH}]"),
        ]
    }

    fn router(&self) -> String {
        format!("f32[{WIDTH},{}]", self.experts())
    }

    fn forward(&self) -> (String, Vec<String>) {
        let [x3, x, h, w, up, down] = self.types();
        let (n, e) = (self.batch * self.sequence, self.experts());
        let (mut b, mut params) = (Body::default(), Vec::new());
        let input = b.param(&mut params, &x3);
        let tokens = b.param(&mut params, &format!("i32[{},{}]", self.batch, self.sequence));
        let router = b.param(&mut params, &self.router());
        let weights: Vec<(String, String)> =
            (0..e).map(|_| (b.param(&mut params, &up), b.param(&mut params, &down))).collect();
        let flat = b.op(&format!("reshape {input} {{shape = [{n}, {WIDTH}]}}"), &x);
        let scores = b.dot(&flat, &router, (1, 0), &format!("f32[{n},{e}]"));
        let chosen = b.op(&format!("reshape {tokens} {{shape = [{n}]}}"), &format!("i32[{n}]"));
        let most = b.op(&format!("reduce {scores} {{dims = [1], monoid = max}}"), &w);
        let mut sum = b.op(&format!("constant {{value = splat {x} 0.0}}"), &x);
        let mut saved = vec![(String::new(), String::new()); e];
        let mut first = String::new();
        for &i in &self.order {
            let weight = match self.by {
                By::Number => {
                    let number =
                        b.op(&format!("constant {{value = splat i32[{n}] {i}}}"), &format!("i32[{n}]"));
                    let hit =
                        b.op(&format!("compare {chosen}, {number} {{direction = EQ}}"), &format!("i1[{n}]"));
                    let hit = b.op(&format!("convert {hit} {{dtype = f32}}"), &w);
                    b.op(&format!("multiply {most}, {hit}"), &w)
                }
                By::Column => {
                    let column = b.op(
                        &format!(
                            "slice {scores} {{limit = [{n}, {}], start = [0, {i}], stride = [1, 1]}}",
                            i + 1
                        ),
                        &format!("f32[{n},1]"),
                    );
                    b.op(&format!("reshape {column} {{shape = [{n}]}}"), &w)
                }
            };
            let a = b.dot(&flat, &weights[i].0, (1, 0), &h);
            let a = b.op(&format!("tanh {a}"), &h);
            let y = b.dot(&a, &weights[i].1, (1, 0), &x);
            let wide = b.op(&format!("broadcast_in_dim {weight} {{dims = [0], shape = [{n}, {WIDTH}]}}"), &x);
            let part = b.op(&format!("multiply {y}, {wide}"), &x);
            sum = b.op(&format!("add {sum}, {part}"), &x);
            saved[i] = (a, weight);
            if i == 0 {
                first = y;
            }
        }
        if self.alone {
            let turned = b.op(&format!("negate {first}"), &x);
            let most = b.op(&format!("reduce {turned} {{dims = [0, 1], monoid = max}}"), "f32[]");
            let most = b.op(&format!("broadcast_in_dim {most} {{dims = [], shape = [{n}, {WIDTH}]}}"), &x);
            sum = b.op(&format!("multiply {sum}, {most}"), &x);
        }
        let sum =
            b.op(&format!("reshape {sum} {{shape = [{}, {}, {WIDTH}]}}", self.batch, self.sequence), &x3);
        let out = b.op(&format!("add {input}, {sum}"), &x3);
        let mut results = vec![out, flat];
        let mut types = vec![x3, x];
        for (a, weight) in saved {
            results.extend([a, weight]);
            types.extend([h.clone(), w.clone()]);
        }
        (b.graph("layer", &params, &results), types)
    }

    fn backward(&self) -> (String, Vec<String>) {
        let [x3, x, h, w, up, down] = self.types();
        let (n, e) = (self.batch * self.sequence, self.experts());
        let (mut b, mut params) = (Body::default(), Vec::new());
        let dy = b.param(&mut params, &x3);
        let flat = b.param(&mut params, &x);
        let saved: Vec<(String, String)> =
            (0..e).map(|_| (b.param(&mut params, &h), b.param(&mut params, &w))).collect();
        let weights: Vec<(String, String)> =
            (0..e).map(|_| (b.param(&mut params, &up), b.param(&mut params, &down))).collect();
        let d = b.op(&format!("reshape {dy} {{shape = [{n}, {WIDTH}]}}"), &x);
        let mut dx: Option<String> = None;
        let mut grads = vec![(String::new(), String::new()); e];
        let mut norm: Option<String> = None;
        for &i in self.order.iter().rev() {
            let wide =
                b.op(&format!("broadcast_in_dim {} {{dims = [0], shape = [{n}, {WIDTH}]}}", saved[i].1), &x);
            let dv = b.op(&format!("multiply {d}, {wide}"), &x);
            let gdown = b.dot(&saved[i].0, &dv, (0, 0), &down);
            let dh = b.dot(&dv, &weights[i].1, (1, 1), &h);
            let gup = b.dot(&flat, &dh, (0, 0), &up);
            let part = b.dot(&dh, &weights[i].0, (1, 1), &x);
            dx = Some(match dx {
                Some(before) => b.op(&format!("add {before}, {part}"), &x),
                None => part,
            });
            for (g, ty) in [(&gdown, &down), (&gup, &up)] {
                let square = b.op(&format!("multiply {g}, {g}"), ty);
                let square = b.op(&format!("reduce {square} {{dims = [0, 1], monoid = sum}}"), "f32[]");
                norm = Some(match norm {
                    Some(before) => b.op(&format!("add {before}, {square}"), "f32[]"),
                    None => square,
                });
            }
            grads[i] = (gup, gdown);
        }
        let dx = b.op(
            &format!(
                "reshape {} {{shape = [{}, {}, {WIDTH}]}}",
                dx.expect("experts"),
                self.batch,
                self.sequence
            ),
            &x3,
        );
        let dx = b.op(&format!("add {dx}, {dy}"), &x3);
        let mut results = vec![dx, norm.expect("experts")];
        let mut types = vec![x3, "f32[]".to_string()];
        for (gup, gdown) in grads {
            results.extend([gup, gdown]);
            types.extend([up.clone(), down.clone()]);
        }
        (b.graph("back", &params, &results), types)
    }

    fn module(&self) -> Module {
        let [x3, _, _, _, up, down] = self.types();
        let e = self.experts();
        let (forward, forward_types) = self.forward();
        let (backward, backward_types) = self.backward();
        let (mut b, mut params) = (Body::default(), Vec::new());
        let mut names = vec!["table".to_string()];
        let table = b.param(&mut params, &format!("f32[7,{WIDTH}]"));
        let mut routers = Vec::new();
        let mut weights: Vec<Vec<(String, String)>> = Vec::new();
        for layer in 0..2 {
            routers.push(b.param(&mut params, &self.router()));
            names.push(format!("layer{layer}.router"));
            weights.push(Vec::new());
            for i in 0..e {
                let pair = (b.param(&mut params, &up), b.param(&mut params, &down));
                weights[layer].push(pair);
                names.extend([format!("layer{layer}.e{i}.up"), format!("layer{layer}.e{i}.down")]);
            }
        }
        let (rows, columns) = (self.batch, self.sequence);
        let tokens = b.param(&mut params, &format!("i32[{rows},{columns}]"));
        let mut y = b.op(
            &format!("gather {table}, {tokens} {{collapsed_slice_dims = [0], index_vector_dim = 2, offset_dims = [2], operand_batching_dims = [], slice_sizes = [1, {WIDTH}], start_index_map = [0], start_indices_batching_dims = []}}"),
            &x3,
        );
        let mut saved = Vec::new();
        for layer in 0..2 {
            let mut operands = vec![y, tokens.clone(), routers[layer].clone()];
            operands.extend(weights[layer].iter().flat_map(|(u, d)| [u.clone(), d.clone()]));
            let made = b.call("layer", &operands, &forward_types);
            y = made[0].clone();
            saved.push(made[1..].to_vec());
        }
        let mut d = b.op(&format!("tanh {y}"), &x3);
        let mut used = weights.clone();
        if self.barrier {
            let all: Vec<String> =
                weights.iter().flatten().flat_map(|(u, d)| [u.clone(), d.clone()]).collect();
            let vs: Vec<String> = (0..all.len()).map(|i| format!("%{}", b.next + i)).collect();
            b.next += all.len();
            let types = vec![format!("{up}, {down}"); all.len() / 2];
            b.lines.push(format!(
                "  {} = optimization_barrier {} : {}",
                vs.join(", "),
                all.join(", "),
                types.join(", ")
            ));
            for (w, v) in used.iter_mut().flatten().zip(vs.chunks(2)) {
                *w = (v[0].clone(), v[1].clone());
            }
        }
        let mut norms = Vec::new();
        let mut grads = vec![Vec::new(); 2];
        for layer in (0..2).rev() {
            let mut operands = vec![d, saved[layer][0].clone()];
            operands.extend(saved[layer][1..].iter().cloned());
            operands.extend(used[layer].iter().flat_map(|(u, d)| [u.clone(), d.clone()]));
            let made = b.call("back", &operands, &backward_types);
            d = made[0].clone();
            norms.push(made[1].clone());
            grads[layer] = made[2..].to_vec();
        }
        let norm = b.op(&format!("add {}, {}", norms[0], norms[1]), "f32[]");
        let one = b.op("constant {value = splat f32[] 1.0}", "f32[]");
        let norm = b.op(&format!("add {norm}, {one}"), "f32[]");
        let mut results = vec![table];
        for layer in 0..2 {
            results.push(routers[layer].clone());
            let list = weights[layer].iter().flat_map(|(u, d)| [(u.clone(), &up), (d.clone(), &down)]);
            for ((w, ty), g) in list.zip(&grads[layer]) {
                let shape = &ty[3..];
                let by = b.op(
                    &format!("broadcast_in_dim {norm} {{dims = [], shape = {}}}", shape.replace(',', ", ")),
                    ty,
                );
                let g = b.op(&format!("divide {g}, {by}"), ty);
                results.push(b.op(&format!("subtract {w}, {g}"), ty));
            }
        }
        let loss = b.op(&format!("reduce {y} {{dims = [0, 1, 2], monoid = sum}}"), "f32[]");
        results.push(loss);
        let mut source =
            format!("module @experts\n{forward}{backward}{}", b.graph("main", &params, &results));
        source.push_str("entry \"train\" @main {\n");
        for (i, n) in names.iter().enumerate() {
            source.push_str(&format!("  param \"{n}\" alias {i}\n"));
        }
        source.push_str("  param \"tokens\"\n");
        names.push("loss".into());
        for n in &names {
            source.push_str(&format!("  result \"{n}\"\n"));
        }
        source.push_str("}\n");
        text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"))
    }
}

fn dense(by: By, order: &[usize]) -> Loop {
    Loop { by, order: order.to_vec(), batch: 4, sequence: 2, alone: false, barrier: false }
}

/// Shape of a parameter on a rank, with the names of what it holds.
fn stacks(m: &Module) -> Vec<(Vec<usize>, Vec<String>)> {
    let e = m.entry().expect("entry");
    let g = m.graph(e.graph);
    let all = e.params.iter().zip(g.params()).filter(|(p, _)| !p.stack.is_empty());
    all.map(|(p, &v)| (g.ty(v).shape.to_vec(), p.stack.iter().map(|m| m.name.clone()).collect())).collect()
}

#[test]
fn experts_are_dealt_and_tokens_are_gathered_and_scattered() {
    let m = dense(By::Number, &[0, 1, 2, 3]).module();
    let (local, report) = split(&m, &inputs(&m, 1), &axes(&[("ep", 2)])).expect("splits");
    let found = stacks(&local);
    assert_eq!(found.len(), 4, "{found:?}");
    let names = |l: usize, w: &str| (0..4).map(|e| format!("layer{l}.e{e}.{w}")).collect::<Vec<_>>();
    assert_eq!(found[0], (vec![2, WIDTH, INNER], names(0, "up")));
    assert_eq!(found[3], (vec![2, INNER, WIDTH], names(1, "down")));
    // Two of four experts; all of the rest.
    let others = (7 * WIDTH + 2 * WIDTH * 4) as u64 * 4;
    assert_eq!(report.state_bytes - others, (report.state_bytes_unsplit - others) / 2);
    // Forward: tokens, which expert each has chosen, and by how much; and the sum back. Backward: what came in and what
    // comes from behind; and the sum back. One sum for all norms and the loss.
    let kinds = kinds(&report);
    let count = |kind: &str| kinds.iter().filter(|k| **k == kind).count();
    let found = (count("all_gather"), count("reduce_scatter"), count("all_reduce"));
    assert_eq!((found, kinds.len()), ((5, 2, 1), 8), "{report:#?}");
    let back = report.collectives.iter().find(|c| c.kind == "reduce_scatter").expect("a sum");
    assert!(back.partial_because.contains("layer0.e{0..3}.up[0]"), "{back:?}");
}

#[test]
fn experts_are_found_however_they_are_numbered_and_ordered() {
    for by in [By::Number, By::Column] {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            for layout in [
                &[("ep", 2)][..],
                &[("ep", 4)],
                &[("ep", 8)],
                &[("ep", 2), ("tp", 2)],
                &[("dp", 2), ("ep", 2)],
                &[("fsdp", 2), ("ep", 2)],
                &[("ep", 4), ("cp", 2)],
            ] {
                let m = dense(by, &order).module();
                let (local, _) = split(&m, &inputs(&m, 2), &axes(layout))
                    .unwrap_or_else(|e| panic!("{by:?} {order:?} {layout:?}: {e}"));
                let found = stacks(&local);
                assert_eq!(found.len(), 4, "{by:?} {order:?} {layout:?}");
                let ranks: usize = layout.iter().filter(|a| a.0 == "ep").map(|a| a.1.min(4)).sum();
                assert!(found.iter().all(|(shape, _)| shape[0] == 4 / ranks), "{layout:?}: {found:?}");
                let up: Vec<String> = (0..4).map(|e| format!("layer0.e{e}.up")).collect();
                assert!(found.iter().any(|(_, names)| *names == up), "{found:?}");
            }
        }
    }
}

#[test]
fn one_expert_by_itself_is_cut_out_of_the_stack() {
    let m = Loop { alone: true, ..dense(By::Number, &[0, 1, 2, 3]) }.module();
    let (local, _) = split(&m, &inputs(&m, 3), &axes(&[("ep", 2)])).expect("splits");
    assert_eq!(stacks(&local).len(), 4);
}

#[test]
fn experts_are_followed_through_barriers() {
    let m = Loop { barrier: true, ..dense(By::Number, &[3, 1, 2, 0]) }.module();
    let (local, report) = split(&m, &inputs(&m, 9), &axes(&[("ep", 2)])).expect("splits");
    assert_eq!(stacks(&local).len(), 4);
    // No weight is on every rank behind it.
    let g = local.graph(local.entry().expect("entry").graph);
    let barrier = g.ops().find(|(_, d)| matches!(d.op, Op::Barrier(_))).expect("a barrier").1;
    assert!(barrier.operands.len() == 4 && barrier.operands.iter().all(|&v| g.ty(v).shape[0] == 2));
    assert!(report.collectives.iter().all(|c| !c.partial_because.contains("slice")), "{report:#?}");
}

#[test]
fn tokens_that_do_not_divide_are_on_every_rank() {
    let m = Loop { batch: 1, sequence: 3, ..dense(By::Number, &[0, 1, 2, 3]) }.module();
    let (local, report) = split(&m, &inputs(&m, 4), &axes(&[("ep", 2)])).expect("splits");
    assert!(stacks(&local).iter().all(|(shape, _)| shape[0] == 2));
    assert!(kinds(&report).iter().all(|k| *k == "all_reduce"), "{report:?}");
}

#[test]
fn experts_that_do_not_divide_stay_parameters_of_their_own() {
    let m = dense(By::Number, &[0, 1, 2]).module();
    let (local, _) = split(&m, &inputs(&m, 5), &axes(&[("ep", 2)])).expect("splits");
    assert!(stacks(&local).is_empty());
    // Six ranks are three and two: experts along the first, tokens along both.
    let m = Loop { batch: 6, ..dense(By::Number, &[0, 1, 2]) }.module();
    let (local, _) = split(&m, &inputs(&m, 6), &axes(&[("ep", 6)])).expect("splits");
    assert!(stacks(&local).iter().all(|(shape, _)| shape[0] == 1));
    let tokens = &local.entry().expect("entry").params.last().expect("tokens").sharding;
    assert_eq!(tokens.axes(0), [AxisId(0), AxisId(1)]);
}

#[test]
fn what_is_isomorphic_but_not_numbered_is_no_expert() {
    // Terms that use weights of their own, and nothing that says which they are.
    let source = "module @m
graph @main(%0: f32[4,6], %1: f32[6,6], %2: f32[6,6], %3: i32[4]) {
  %4 = gather %0, %3 {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 6], start_index_map = [0], start_indices_batching_dims = []} : f32[4,6]
  %5 = dot_general %4, %1 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,6]
  %6 = dot_general %4, %2 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,6]
  %7 = add %5, %6 : f32[4,6]
  %8 = dot_general %4, %7 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[6,6]
  return %8, %8
}
entry \"train\" @main {
  param \"table\"
  param \"a\" alias 0
  param \"b\" alias 1
  param \"tokens\"
  result \"a\"
  result \"b\"
}";
    let m = text::parse(source).expect("parses");
    let (local, _) = split(&m, &inputs(&m, 7), &axes(&[("ep", 2)])).expect("splits");
    assert!(stacks(&local).is_empty());
}

#[test]
fn stacks_survive_printing() {
    let m = dense(By::Column, &[0, 1, 2, 3]).module();
    let (local, _) = split(&m, &inputs(&m, 8), &axes(&[("ep", 2)])).expect("splits");
    let printed = text::print(&local);
    let again = text::parse(&printed).expect("parses");
    assert_eq!(again.entry().expect("entry"), local.entry().expect("entry"));
    assert_eq!(text::print(&again), printed);
}
