//! Random instances of a rule: graphs that its patterns describe, with random shapes and spelling.

mod framed;

use super::random::Random;
use crate::recognise::define::compute_type;
use crate::recognise::engine::facts::Fact;
use crate::recognise::engine::pattern::{Head, Number, Pattern, Place, Reduced};
use crate::recognise::engine::rule::{Count, Frame, Root, Rule};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Maximum, Minimum, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::{Abs, Exponential, Negate, Sine, Sqrt};
use msc_ir::{
    DType, Entry, Graph, GraphId, IrError, LocId, Module, Monoid, Op, ParamInfo, Result, ResultInfo, Shape,
    TensorType, ValueId,
};
use std::collections::BTreeMap;

/// An instance.
#[derive(Clone, Debug)]
pub struct Sample {
    /// A module with the one entry.
    pub module: Module,
    /// The graph: its results are the rule's roots, each root with [`Count::Each`] left out.
    pub graph: GraphId,
}

/// Generates one instance. `size` bounds dimensions, so that small instances can be tried first.
///
/// # Errors
/// If a pattern asks for what no op gives: a bug in the rule.
pub fn sample(rule: &Rule, dtype: DType, size: usize, rng: &mut Random) -> Result<Sample> {
    let rank = rng.below(3);
    let rows: Shape = (0..rank).map(|_| 1 + rng.below(size)).collect();
    let mut s = Sampler {
        module: Module::new("instance"),
        graph: Graph::new("main"),
        keep_unit: rng.chance(50),
        rows,
        row: 2 + rng.below(size),
        vars: BTreeMap::new(),
        last_broadcast: None,
        narrow: if dtype == compute_type(dtype) { DType::BF16 } else { dtype },
        facts: rule.facts,
        rng,
    };
    let mut results = Vec::new();
    // What several roots say of unframed classes, they say of classes of one type.
    let mut plain: Option<TensorType> = None;
    // What a variable of others is made of comes before them.
    let of_variable = |r: &&Root| matches!(r.pattern, Pattern::As(..));
    let (first, others): (Vec<&Root>, Vec<&Root>) = rule.roots.iter().partition(of_variable);
    for root in first.into_iter().chain(others) {
        // What the op gives beside its main results need not be in the program.
        if root.count == Count::Each || root.count == Count::Optional && s.rng.chance(25) {
            continue;
        }
        let in_frame = if root.wide { compute_type(dtype) } else { dtype };
        let v = match root.frame {
            Frame::Any => {
                let rng = &mut *s.rng;
                let ty = plain.get_or_insert_with(|| {
                    let rank = rng.below(4);
                    TensorType { dtype, shape: (0..rank).map(|_| 1 + rng.below(size)).collect() }
                });
                let ty = ty.clone();
                s.any(&root.pattern, &ty)?
            }
            Frame::Full => s.framed(&root.pattern, Place::Full, in_frame)?,
            Frame::Cols => s.framed(&root.pattern, Place::Cols, in_frame)?,
            Frame::Rows => s.framed(&root.pattern, Place::Rows, compute_type(dtype))?,
        };
        let place = match root.frame {
            Frame::Rows => Place::Rows,
            Frame::Cols => Place::Cols,
            _ => Place::Full,
        };
        s.vars.insert(root.name, (v, place));
        results.push(v);
    }
    s.graph.set_results(results);
    let Sampler { mut module, graph, .. } = s;
    let (params, results) = (graph.params().len(), graph.results().len());
    let graph = module.add_graph(graph);
    module.entries.push(Entry {
        name: "main".into(),
        graph,
        params: vec![ParamInfo::default(); params],
        results: vec![ResultInfo::default(); results],
    });
    Ok(Sample { module, graph })
}

struct Sampler<'r> {
    module: Module,
    graph: Graph,
    rng: &'r mut Random,
    rows: Shape,
    row: usize,
    /// Whether statistics keep a dimension of size 1 in place of the row.
    keep_unit: bool,
    vars: BTreeMap<&'static str, (ValueId, Place)>,
    last_broadcast: Option<(TensorType, BroadcastInDim)>,
    /// The type that conversions to f32 come from.
    narrow: DType,
    facts: &'static [(&'static str, Fact)],
}

impl Sampler<'_> {
    fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId> {
        self.graph.add1(&self.module, op, operands, LocId::UNKNOWN)
    }

    fn splat(&mut self, ty: TensorType, value: f64) -> Result<ValueId> {
        let id = self.module.constants.intern_splat(ty, value);
        self.op(ConstantOp { id }, &[])
    }

    fn ty(&self, place: Place, dtype: DType) -> TensorType {
        let mut shape = self.rows.clone();
        match place {
            Place::Full => shape.push(self.row),
            Place::Rows if self.keep_unit => shape.push(1),
            Place::Rows => {}
            Place::Cols => shape = [self.row].into_iter().collect(),
            Place::Scalars => shape = Shape::new(),
        }
        TensorType { dtype, shape }
    }

    /// A new parameter; made positive or not negative where the rule needs to know.
    fn fresh(&mut self, name: &'static str, ty: TensorType) -> Result<ValueId> {
        let p = self.graph.add_param(ty.clone());
        let fact = self.facts.iter().find(|f| f.0 == name);
        Ok(match fact.map(|f| f.1) {
            None => p,
            Some(Fact::NonNegative) => self.op(Abs, &[p])?,
            Some(Fact::Positive | Fact::PositiveBut(_)) => {
                let a = self.op(Abs, &[p])?;
                let c = self.splat(ty, 0.25)?;
                self.op(Add, &[a, c])?
            }
        })
    }

    fn refuse<T>(&self, what: &str) -> Result<T> {
        Err(IrError::unsupported("pattern", format!("instances have no form for {what}")))
    }

    /// An instance of a pattern without a frame, of a given type.
    fn any(&mut self, p: &Pattern, ty: &TensorType) -> Result<ValueId> {
        match p {
            Pattern::Var(name) => match self.vars.get(name) {
                Some(&(v, _)) => Ok(v),
                None => {
                    let v = self.fresh(name, ty.clone())?;
                    self.vars.insert(name, (v, Place::Full));
                    Ok(v)
                }
            },
            Pattern::Const(_) => {
                let c = self.rng.pick(&[2.0, 0.5, -3.25, 0.1, 7.0]);
                self.splat(ty.clone(), c)
            }
            Pattern::Scalar(_) if ty.rank() == 0 || self.rng.chance(50) => {
                let c = self.rng.pick(&[2.0, 0.5, -3.25, 0.1, 7.0]);
                self.splat(ty.clone(), c)
            }
            Pattern::Scalar(name) => {
                let s = self.fresh(name, ty.with_shape([]))?;
                self.op(BroadcastInDim { shape: ty.shape.clone(), dims: Shape::new() }, &[s])
            }
            Pattern::As(name, inner) => {
                let v = self.any(inner, ty)?;
                self.vars.insert(name, (v, Place::Full));
                Ok(v)
            }
            Pattern::Number(Number::Literal(x)) => self.splat(ty.clone(), *x),
            Pattern::Op(Head::Select, args) => {
                let predicate = TensorType::new(DType::I1, []);
                let p = self.any(&args[0], &predicate)?;
                let (a, b) = (self.any(&args[1], ty)?, self.any(&args[2], ty)?);
                self.op(Select::Select, &[p, a, b])
            }
            Pattern::Op(head, args) => {
                let (op, operand) = self.head(*head, ty)?;
                let mut values = Vec::new();
                for a in args {
                    values.push(self.any(a, &operand)?);
                }
                if head.is_commutative() && self.rng.chance(50) {
                    values.reverse();
                }
                self.op(op, &values)
            }
            _ => self.refuse("products, sums and 1/D without a frame"),
        }
    }

    /// An op that a head means and that gives type `ty`, with the type of its operands.
    fn head(&mut self, head: Head, ty: &TensorType) -> Result<(Op, TensorType)> {
        let rng = &mut *self.rng;
        Ok(match head {
            Head::Unary(k) => (k.into(), ty.clone()),
            Head::AnyUnary => (rng.pick(&[Abs, Negate, Exponential, Sine, Sqrt]).into(), ty.clone()),
            Head::Binary(k) => (k.into(), ty.clone()),
            Head::AnyBinary => {
                (rng.pick(&[Add, Subtract, Multiply, Divide, Maximum, Minimum]).into(), ty.clone())
            }
            Head::Broadcast => {
                if let Some((result, b)) = &self.last_broadcast
                    && result.shape == ty.shape
                    && rng.chance(75)
                {
                    let shape: Shape = b.dims.iter().map(|&d| ty.shape[d]).collect();
                    return Ok((b.clone().into(), ty.with_shape(shape)));
                }
                let style = rng.below(3);
                let (mut dims, mut shape) = (Shape::new(), Shape::new());
                for (d, &n) in ty.shape.iter().enumerate() {
                    // All of them; all but those of size 1; some, stretching others.
                    if style == 0 || style == 1 && n != 1 || style == 2 && rng.chance(60) {
                        dims.push(d);
                        shape.push(if style == 2 && rng.chance(20) { 1 } else { n });
                    }
                }
                let b = BroadcastInDim { shape: ty.shape.clone(), dims };
                if b.dims.iter().zip(&shape).all(|(&d, &n)| ty.shape[d] == n) {
                    self.last_broadcast = Some((ty.clone(), b.clone()));
                }
                (b.into(), ty.with_shape(shape))
            }
            Head::Reshape => {
                let mut shape: Vec<usize> = ty.shape.to_vec();
                match rng.below(4) {
                    0 => shape.retain(|&n| n != 1),
                    1 => shape.insert(rng.below(shape.len() + 1), 1),
                    2 => shape = vec![ty.elements()],
                    _ => {}
                }
                (Reshape { shape: ty.shape.clone() }.into(), ty.with_shape(shape))
            }
            Head::Transpose => {
                let mut p: Vec<usize> = (0..ty.rank()).collect();
                if p.len() > 1 && rng.chance(50) {
                    let (i, j) = (rng.below(p.len()), rng.below(p.len()));
                    p.swap(i, j);
                }
                let mut shape = vec![0; p.len()];
                p.iter().enumerate().for_each(|(i, &from)| shape[from] = ty.shape[i]);
                (Permute::Transpose(p.into_iter().collect()).into(), ty.with_shape(shape))
            }
            Head::Convert => {
                let from = rng.pick(&[ty.dtype, ty.dtype, DType::F32, DType::BF16]);
                (Convert::Value(ty.dtype).into(), ty.with_dtype(from))
            }
            Head::Reduce(monoid, Some(Reduced::Unit)) => {
                let mut shape: Vec<usize> = ty.shape.to_vec();
                let at = rng.below(shape.len() + 1);
                shape.insert(at, 1);
                let monoid = monoid.unwrap_or(Monoid::Sum);
                (Reduce { dims: [at].into_iter().collect(), monoid }.into(), ty.with_shape(shape))
            }
            Head::Reduce(..) => return self.refuse("reductions without a frame"),
            Head::Clamp => (Select::Clamp.into(), ty.clone()),
            Head::Select | Head::Compare(_) => return self.refuse("selections without a frame"),
        })
    }
}
