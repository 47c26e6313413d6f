//! Training steps of made-up residual models: forward, loss, backward, clip by global norm, momentum.
//!
//! The backward is written as an exporter would order it, but leaves out the derivative of the norm's root: these
//! are graphs to be found, not models to be trained.

use super::{Random, with_entry};
use msc_ir::ops::binary::BinaryKind::{self, *};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::{self, *};
use msc_ir::{DType, Graph, Loc, Module, Monoid, Op, TensorType, ValueId};

/// Rows, model width, inner width.
const N: [usize; 3] = [3, 4, 6];

/// What a layer is made of.
#[derive(Clone, Copy)]
pub struct Layer {
    /// The activation.
    pub activation: UnaryKind,
    /// Multiplies the layer's output.
    pub scale: f64,
    /// Masks the activation by `column % mask == 0`, if not 0.
    pub mask: usize,
    /// Also squares the activation.
    pub square: bool,
    /// Also adds a second norm of its input, whose weight is its last parameter. All layers have it or none.
    pub parallel: bool,
    /// Adds its first parameter to what it adds to the stream; what the others have is there, too.
    pub biased: bool,
}

impl Default for Layer {
    fn default() -> Layer {
        Layer { activation: Tanh, scale: 0.5, mask: 0, square: false, parallel: false, biased: false }
    }
}

/// A step of these layers. `order` names the layers in the order in which their parameters are listed and their
/// gradients are summed.
pub fn step(layers: &[Layer], order: &[usize]) -> Module {
    let mut b = Builder { m: Module::new("step"), g: Graph::new("main"), line: 0 };
    let weight = |rows: usize, columns: usize| TensorType::new(DType::F32, [rows, columns]);
    let row = TensorType::new(DType::F32, [N[1]]);
    let parallel = layers.iter().any(|l| l.parallel);
    let mut shapes = vec![row.clone(), weight(N[1], N[2]), weight(N[2], N[1])];
    shapes.extend(parallel.then(|| row.clone()));
    let x = b.g.add_param(weight(N[0], N[1]));
    let head = [b.g.add_param(row), b.g.add_param(weight(N[1], 2))];
    let mut weights: Vec<Vec<ValueId>> = vec![Vec::new(); layers.len()];
    let mut moments = weights.clone();
    for &i in order {
        weights[i] = shapes.iter().map(|t| b.g.add_param(t.clone())).collect();
    }
    for &i in order {
        moments[i] = shapes.iter().map(|t| b.g.add_param(t.clone())).collect();
    }

    let mut x = b.unary(Sine, x);
    let mut saved = Vec::new();
    for (layer, w) in layers.iter().zip(&weights) {
        let s = b.forward(layer, w, x);
        x = s.out;
        saved.push(s);
    }
    let (n, unit, root) = b.norm(x, head[0]);
    let logits = b.dot(n, head[1], [1, 0]);
    let square = b.binary(Multiply, logits, logits);
    let loss = b.sum(square, &[0, 1]);

    let gl = b.scaled(logits, 2.0);
    let ghead = b.dot(n, gl, [0, 0]);
    let gn = b.dot(gl, head[1], [1, 1]);
    let (mut g, gfinal) = b.norm_grad(gn, head[0], unit, root);
    let mut grads: Vec<Vec<ValueId>> = vec![Vec::new(); layers.len()];
    for i in (0..layers.len()).rev() {
        (g, grads[i]) = b.backward(&layers[i], &weights[i], &saved[i], g);
    }

    let mut total = b.constant(0.0, &TensorType::scalar(DType::F32));
    // The last norm's weight just before the first layer: there a layer would have its last one.
    let ends = if parallel { [ghead, gfinal] } else { [gfinal, ghead] };
    for &gw in ends.iter().chain(order.iter().flat_map(|&i| &grads[i])) {
        let square = b.binary(Multiply, gw, gw);
        let dims: Vec<usize> = (0..b.g.ty(gw).rank()).collect();
        let one = b.sum(square, &dims);
        total = b.binary(Add, total, one);
    }
    let norm = b.unary(Sqrt, total);
    let mut results = vec![loss, g];
    for &i in order {
        for k in 0..shapes.len() {
            let (w, m, gw) = (weights[i][k], moments[i][k], grads[i][k]);
            let t = b.g.ty(gw).clone();
            let spread = b.broadcast(norm, &t, &[]);
            let clipped = b.binary(Divide, gw, spread);
            let kept = b.scaled(m, 0.9);
            let m = b.binary(Add, kept, clipped);
            let change = b.scaled(m, 0.1);
            results.extend([m, b.binary(Subtract, w, change)]);
        }
    }
    b.g.set_results(results);
    with_entry(b.m, b.g)
}

/// A step of `n` equal layers.
pub fn uniform(n: usize) -> Module {
    step(&vec![Layer::default(); n], &(0..n).collect::<Vec<_>>())
}

/// The same program with the entry's ops in another order that definitions allow.
pub fn shuffled(module: &Module, seed: u64) -> Module {
    let mut random = Random::new(seed);
    let mut out = module.clone();
    let id = out.entry().expect("entry").graph;
    let old = out.take_graph(id);
    let mut new = Graph::new(old.name.clone());
    let mut map = vec![None; old.value_count()];
    for &p in old.params() {
        map[p.0 as usize] = Some(new.add_param(old.ty(p).clone()));
    }
    let mut left: Vec<_> = old.order().to_vec();
    while !left.is_empty() {
        let ready: Vec<usize> = (0..left.len())
            .filter(|&i| old.op(left[i]).operands.iter().all(|v| map[v.0 as usize].is_some()))
            .collect();
        let op = left.remove(*random.pick(&ready));
        new.copy_op(&old, op, &mut map).expect("copies");
    }
    new.set_results(old.results().iter().map(|r| map[r.0 as usize].expect("a result")).collect());
    out.set_graph(id, new);
    out
}

struct Saved {
    unit: ValueId,
    root: ValueId,
    normed: ValueId,
    activated: ValueId,
    masked: ValueId,
    out: ValueId,
    /// The second norm's rows and root.
    second: Option<(ValueId, ValueId)>,
}

struct Builder {
    m: Module,
    g: Graph,
    line: u32,
}

impl Builder {
    fn add(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> ValueId {
        self.line += 1;
        let loc = Loc { file: "model".into(), line: self.line, column: 1, name: "".into() };
        let loc = self.m.locations.intern(loc);
        self.g.add1(&self.m, op, operands, loc).expect("fits")
    }

    fn unary(&mut self, kind: UnaryKind, x: ValueId) -> ValueId {
        self.add(kind, &[x])
    }

    fn binary(&mut self, kind: BinaryKind, x: ValueId, y: ValueId) -> ValueId {
        self.add(kind, &[x, y])
    }

    fn constant(&mut self, x: f64, ty: &TensorType) -> ValueId {
        let id = self.m.constants.intern_splat(ty.clone(), x);
        self.add(ConstantOp { id }, &[])
    }

    fn broadcast(&mut self, x: ValueId, ty: &TensorType, dims: &[usize]) -> ValueId {
        self.add(BroadcastInDim { shape: ty.shape.clone(), dims: dims.into() }, &[x])
    }

    /// `x · c`, the constant written as an exporter does: a scalar, broadcast.
    fn scaled(&mut self, x: ValueId, c: f64) -> ValueId {
        let t = self.g.ty(x).clone();
        let c = self.constant(c, &TensorType::scalar(t.dtype));
        let c = self.broadcast(c, &t, &[]);
        self.binary(Multiply, x, c)
    }

    fn sum(&mut self, x: ValueId, dims: &[usize]) -> ValueId {
        self.add(Reduce { dims: dims.into(), monoid: Monoid::Sum }, &[x])
    }

    fn dot(&mut self, x: ValueId, y: ValueId, contract: [usize; 2]) -> ValueId {
        let op = DotGeneral {
            lhs_batch: Default::default(),
            rhs_batch: Default::default(),
            lhs_contract: [contract[0]].as_slice().into(),
            rhs_contract: [contract[1]].as_slice().into(),
            dtype: DType::F32,
        };
        self.add(op, &[x, y])
    }

    /// The normed and weighted rows, the normed rows, and the reciprocal root.
    fn norm(&mut self, x: ValueId, weight: ValueId) -> (ValueId, ValueId, ValueId) {
        let t = self.g.ty(x).clone();
        let square = self.binary(Multiply, x, x);
        let total = self.sum(square, &[1]);
        let mean = self.scaled(total, 1.0 / N[1] as f64);
        let eps = self.constant(1e-3, &TensorType::new(DType::F32, [N[0]]));
        let mean = self.binary(Add, mean, eps);
        let root = self.unary(Rsqrt, mean);
        let root = self.broadcast(root, &t, &[0]);
        let unit = self.binary(Multiply, x, root);
        let weight = self.broadcast(weight, &t, &[1]);
        (self.binary(Multiply, weight, unit), unit, root)
    }

    fn norm_grad(&mut self, g: ValueId, weight: ValueId, unit: ValueId, root: ValueId) -> (ValueId, ValueId) {
        let t = self.g.ty(g).clone();
        let part = self.binary(Multiply, g, unit);
        let gw = self.sum(part, &[0]);
        let weight = self.broadcast(weight, &t, &[1]);
        let gu = self.binary(Multiply, g, weight);
        (self.binary(Multiply, gu, root), gw)
    }

    fn mask(&mut self, every: usize, x: ValueId) -> ValueId {
        let t = self.g.ty(x).with_dtype(DType::I32);
        let column = self.add(Iota { ty: t.clone(), dim: 1 }, &[]);
        let every = self.constant(every as f64, &t);
        let rest = self.binary(Remainder, column, every);
        let zero = self.constant(0.0, &t);
        let keep = self.add(Compare { direction: Direction::Eq, total_order: false }, &[rest, zero]);
        let ty = self.g.ty(x).clone();
        let nothing = self.constant(0.0, &ty);
        self.add(Select::Select, &[keep, x, nothing])
    }

    fn forward(&mut self, layer: &Layer, w: &[ValueId], x: ValueId) -> Saved {
        let (normed, unit, root) = self.norm(x, w[0]);
        let h = self.dot(normed, w[1], [1, 0]);
        let activated = self.unary(layer.activation, h);
        let mut masked = activated;
        if layer.square {
            masked = self.binary(Multiply, masked, masked);
        }
        if layer.mask > 0 {
            masked = self.mask(layer.mask, masked);
        }
        let y = self.dot(masked, w[2], [1, 0]);
        let mut y = self.scaled(y, layer.scale);
        if layer.biased {
            let bias = self.broadcast(w[0], &self.g.ty(y).clone(), &[1]);
            y = self.binary(Add, y, bias);
        }
        let mut out = self.binary(Add, x, y);
        let second = layer.parallel.then(|| self.norm(x, w[3]));
        if let Some((normed, ..)) = second {
            out = self.binary(Add, out, normed);
        }
        let second = second.map(|(_, unit, root)| (unit, root));
        Saved { unit, root, normed, activated, masked, out, second }
    }

    fn backward(&mut self, layer: &Layer, w: &[ValueId], s: &Saved, g: ValueId) -> (ValueId, Vec<ValueId>) {
        let gy = self.scaled(g, layer.scale);
        let gw2 = self.dot(s.masked, gy, [0, 0]);
        let mut ga = self.dot(gy, w[2], [1, 1]);
        if layer.mask > 0 {
            ga = self.mask(layer.mask, ga);
        }
        let square = self.binary(Multiply, s.activated, s.activated);
        let t = self.g.ty(square).clone();
        let one = self.constant(1.0, &t);
        let slope = self.binary(Subtract, one, square);
        let gh = self.binary(Multiply, ga, slope);
        let gw1 = self.dot(s.normed, gh, [0, 0]);
        let gn = self.dot(gh, w[1], [1, 1]);
        let (gx, gw0) = self.norm_grad(gn, w[0], s.unit, s.root);
        let mut grads = vec![gw0, gw1, gw2];
        let mut out = self.binary(Add, g, gx);
        if let Some((unit, root)) = s.second {
            let (gx, gw3) = self.norm_grad(g, w[3], unit, root);
            grads.push(gw3);
            out = self.binary(Add, out, gx);
        }
        (out, grads)
    }
}
