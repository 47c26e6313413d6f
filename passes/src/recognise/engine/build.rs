//! Building terms: what appliers work with.

use super::label::{COL, Indexed, Labels, relayout};
use super::rule::{Binding, Match, WhyNot};
use super::term::{Graph, Node, spread};
use super::view::Base;
use egg::Id;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::fused::{Fused, FusedKind, Number};
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, Module, Op, Operation, TensorType};
use std::collections::BTreeMap;

/// Adds terms to the e-graph, checked.
pub struct Builder<'g> {
    graph: &'g mut Graph,
}

fn refuse(why: impl Into<String>) -> WhyNot {
    WhyNot::Precondition(why.into())
}

impl<'g> Builder<'g> {
    /// A builder in an e-graph.
    pub fn new(graph: &'g mut Graph) -> Builder<'g> {
        Builder { graph }
    }

    /// The type of a class.
    ///
    /// # Errors
    /// If it is a tuple.
    pub fn ty(&self, class: Id) -> Result<TensorType, WhyNot> {
        match self.graph[class].data.types.as_slice() {
            [t] => Ok(t.clone()),
            _ => Err(refuse("a tuple stands where a value should")),
        }
    }

    /// The one value of a class's elements, if known.
    pub fn splat_value(&self, class: Id) -> Option<f64> {
        self.graph[class].data.splat.as_ref().map(|s| s.value())
    }

    /// Whether arithmetic on elements and layout ops lead to a class from a matrix product, from a result of an op of
    /// several, or from a tensor that comes in from outside: from anything but statistics, random bits and numbers.
    pub fn is_projected(&self, class: Id) -> bool {
        fn of(graph: &Graph, class: Id, seen: &mut BTreeMap<Id, bool>) -> bool {
            let class = graph.find(class);
            if let Some(&known) = seen.get(&class) {
                return known;
            }
            // What leads back to a class says nothing about it.
            seen.insert(class, false);
            let tensor = graph[class].data.types.first().is_some_and(|t| t.dtype.is_float() && t.rank() > 1);
            let is = tensor
                && graph[class].nodes.iter().any(|n| match n {
                    Node::Leaf(_) | Node::Project { .. } => true,
                    Node::Op { op, args } => match graph.analysis.op(*op) {
                        Op::DotGeneral(_) => true,
                        Op::Unary(_) | Op::Binary(_) | Op::Convert(_) => {
                            args.iter().any(|a| of(graph, *a, seen))
                        }
                        Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) => {
                            of(graph, args[0], seen)
                        }
                        _ => false,
                    },
                });
            seen.insert(class, is);
            is
        }
        of(self.graph, class, &mut BTreeMap::new())
    }

    /// The class of a variable.
    ///
    /// # Errors
    /// If the variable stands for factors that are nowhere a value of the program.
    pub fn var(&self, m: &Match, name: &'static str) -> Result<Id, WhyNot> {
        match m.vars.get(name) {
            Some(Binding::Class(i)) => Ok(self.graph.find(i.class)),
            Some(Binding::Product(_)) => Err(refuse(format!("{name} is nowhere a value of the program"))),
            _ => Err(refuse(format!("{name} is not one value"))),
        }
    }

    /// A number of an operation: what a `?x:scalar` is, with its class where it is an operand.
    ///
    /// # Errors
    /// If the variable is no number, or none that is finite.
    pub fn number(&self, m: &Match, name: &'static str) -> Result<(Number, Option<Id>), WhyNot> {
        let class = self.var(m, name)?;
        match (self.splat_value(class), spread(self.graph, class)) {
            (Some(v), _) if v.is_finite() => Ok((Number::known(v), None)),
            (None, Some(scalar)) => Ok((Number::Operand, Some(scalar))),
            _ => Err(refuse(format!("{name} is no number"))),
        }
    }

    /// The product that a variable for scalars stands for, as a scalar.
    ///
    /// # Errors
    /// If it holds roots, or values that are no scalars.
    pub fn scalars(&mut self, m: &Match, name: &'static str, dtype: DType) -> Result<Id, WhyNot> {
        let scalar = TensorType::scalar(dtype);
        let (coefficient, factors) = match m.vars.get(name) {
            Some(Binding::Class(i)) => return self.relayout(i, &scalar, &Labels::new()),
            Some(Binding::Product(p)) => (p.coefficient, p.factors.clone()),
            _ => return Err(refuse(format!("{name} is no product of scalars"))),
        };
        let mut made = None;
        let mut divisors = Vec::new();
        for (base, halves) in factors.iter() {
            let Base::Class(at) = base else { return Err(refuse(format!("{name} holds a sum"))) };
            if halves % 2 != 0 {
                return Err(refuse(format!("{name} holds a root")));
            }
            let v = self.relayout(at, &scalar, &Labels::new())?;
            for _ in 0..halves.abs() / 2 {
                match (halves > 0, made) {
                    (false, _) => divisors.push(v),
                    (true, None) => made = Some(v),
                    (true, Some(other)) => made = Some(self.add(BinaryKind::Multiply, &[other, v])?),
                }
            }
        }
        let mut made = match (made, coefficient) {
            (Some(v), 1.0) => v,
            (None, c) => self.splat(&scalar, c)?,
            (Some(v), c) => {
                let c = self.splat(&scalar, c)?;
                self.add(BinaryKind::Multiply, &[c, v])?
            }
        };
        for d in divisors {
            made = self.add(BinaryKind::Divide, &[made, d])?;
        }
        Ok(made)
    }

    /// The term `op(args)`.
    ///
    /// # Errors
    /// If the operands do not fit.
    pub fn add(&mut self, op: impl Into<Op>, args: &[Id]) -> Result<Id, WhyNot> {
        let op = op.into();
        let types: Vec<TensorType> = args.iter().map(|&a| self.ty(a)).collect::<Result<_, _>>()?;
        let refs: Vec<&TensorType> = types.iter().collect();
        op.infer(&refs, &self.graph.analysis.module).map_err(|e| refuse(e.to_string()))?;
        let op = self.graph.analysis.intern(op);
        Ok(self.graph.add(Node::Op { op, args: args.into() }))
    }

    /// The constant of a type with every element `value`.
    ///
    /// # Errors
    /// None in practice; as [`Builder::add`].
    pub fn splat(&mut self, ty: &TensorType, value: f64) -> Result<Id, WhyNot> {
        let id = self.graph.analysis.module.constants.intern_splat(ty.clone(), value);
        self.add(ConstantOp { id }, &[])
    }

    /// Result `index` of an op with several.
    pub fn project(&mut self, tuple: Id, index: u32) -> Id {
        self.graph.add(Node::Project { index, tuple: [tuple] })
    }

    /// A value brought to another layout: type `ty`, dimensions meaning `labels`.
    ///
    /// # Errors
    /// If the layouts have no common meaning.
    pub fn relayout(&mut self, at: &Indexed, ty: &TensorType, labels: &Labels) -> Result<Id, WhyNot> {
        let from = self.ty(at.class)?;
        let ops = relayout(&from, &at.labels, ty, labels)
            .ok_or_else(|| refuse(format!("{from} has no layout as {ty}")))?;
        ops.into_iter().try_fold(at.class, |v, op| self.add(op, &[v]))
    }

    /// The sum of the terms that a variable stands for, of type `ty` with labels `labels`; `None` without terms.
    ///
    /// # Errors
    /// As [`Builder::relayout`].
    pub fn terms(
        &mut self,
        m: &Match,
        name: &'static str,
        ty: &TensorType,
        labels: &Labels,
    ) -> Result<Option<Id>, WhyNot> {
        let Some(Binding::Terms(terms)) = m.vars.get(name) else {
            return Err(refuse(format!("{name} does not stand for terms")));
        };
        let mut sum = None;
        for t in terms {
            let v = self.relayout(&t.of, ty, labels)?;
            sum = Some(match (sum, t.negative) {
                (None, false) => v,
                (None, true) => self.add(UnaryKind::Negate, &[v])?,
                (Some(s), false) => self.add(BinaryKind::Add, &[s, v])?,
                (Some(s), true) => self.add(BinaryKind::Subtract, &[s, v])?,
            });
        }
        Ok(sum)
    }

    /// A fused op of `kind` on `args`, its definition made by `define` unless the module has it.
    ///
    /// # Errors
    /// What `define` says.
    pub fn fused(
        &mut self,
        kind: FusedKind,
        args: &[Id],
        define: impl FnOnce(&mut Module, &[TensorType]) -> msc_ir::Result<msc_ir::Graph>,
    ) -> Result<Id, WhyNot> {
        let types: Vec<TensorType> = args.iter().map(|&a| self.ty(a)).collect::<Result<_, _>>()?;
        let module = &mut self.graph.analysis.module;
        let definition = match module.definition(&kind, &types) {
            Some(d) => d,
            None => {
                let graph = define(module, &types).map_err(|e| refuse(e.to_string()))?;
                module.define(kind.clone(), graph)
            }
        };
        self.add(Fused { kind, definition }, args)
    }
}

/// Whether a class's dimensions are rows in order and the row last, as the operands of row operations are.
pub fn is_row_major(at: &Indexed) -> bool {
    let proper = at.proper();
    proper.is_sorted() && at.labels.last().is_some_and(|&l| l == COL)
}

/// The labels of the rows of a value with these labels: all but the last.
pub fn row_labels(at: &Indexed) -> Labels {
    let n = at.labels.len().saturating_sub(1);
    at.labels[..n].into()
}
