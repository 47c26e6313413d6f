//! How exact a step's outputs can be.

use msc_ir::{DType, Graph, Module, Op};

/// The type a step computes in: the least exact float type that its arithmetic reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Compute {
    /// Single precision (or better).
    #[default]
    F32,
    /// Half precision.
    Fp16,
    /// bfloat16.
    Bf16,
}

impl Compute {
    /// Name in plans and reports.
    pub fn name(self) -> &'static str {
        match self {
            Compute::F32 => "f32",
            Compute::Fp16 => "fp16",
            Compute::Bf16 => "bf16",
        }
    }

    /// The inverse of [`Compute::name`].
    pub fn from_name(name: &str) -> Option<Compute> {
        [Compute::F32, Compute::Fp16, Compute::Bf16].into_iter().find(|c| c.name() == name)
    }

    /// What a module computes in. Conversions and moves do not count: a bfloat16 copy of a parameter does not
    /// make a step one of bfloat16.
    pub fn of_module(module: &Module) -> Compute {
        module.graphs().map(|(_, g)| Compute::of_graph(g)).max().unwrap_or_default()
    }

    fn of_graph(g: &Graph) -> Compute {
        let arithmetic = |op: &Op| {
            matches!(op, Op::Unary(_) | Op::Binary(_) | Op::DotGeneral(_) | Op::Reduce(_) | Op::Fused(_))
        };
        let of = |d: DType| match d {
            DType::BF16 => Compute::Bf16,
            DType::F16 => Compute::Fp16,
            _ => Compute::F32,
        };
        let ops = g.ops().filter(|(_, o)| arithmetic(&o.op));
        ops.flat_map(|(_, o)| &o.operands).map(|&v| of(g.ty(v).dtype)).max().unwrap_or_default()
    }
}

/// What may differ.
///
/// The numbers lie one and a half to ten times above the distances measured between two independent compilers (XLA and
/// IREE) on whole training steps, of which the table shows the largest:
///
/// | computed in | plain | update of moments | of f32 parameters | of 16-bit copies |
/// |---|---|---|---|---|
/// | f32 | 9e-7 | 1.5e-6 | 2e-5, which is the rounding of the stored values | – |
/// | bf16 | 1.1e-2 | 1.8e-2 | 7.3e-3 | 5.1e-2, one rounding the other way |
/// | fp16 | 3.4e-3 | 5e-3 | 5e-3 | – |
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerance {
    /// Bound on `max|a−b| / max|b|`.
    pub plain: f64,
    /// Bound on `‖a−b‖ / ‖b−x₀‖` for state in f32 or f64, whose rounding is allowed for beside it.
    pub update: f64,
    /// The same for state in 16 bits.
    pub update_16: f64,
}

impl Tolerance {
    /// The largest distances between two correct compilers: what is nearer cannot be told from a right step.
    pub fn measured(compute: Compute) -> Tolerance {
        match compute {
            Compute::F32 => Tolerance { plain: 9e-7, update: 1.5e-6, update_16: 5.1e-2 },
            Compute::Bf16 => Tolerance { plain: 1.1e-2, update: 1.8e-2, update_16: 5.1e-2 },
            Compute::Fp16 => Tolerance { plain: 3.4e-3, update: 5e-3, update_16: 5.1e-2 },
        }
    }

    /// The tolerance for a compute type.
    pub fn of(compute: Compute) -> Tolerance {
        match compute {
            Compute::F32 => Tolerance { plain: 5e-6, update: 1e-5, update_16: 1e-1 },
            Compute::Bf16 => Tolerance { plain: 2e-2, update: 3e-2, update_16: 1e-1 },
            Compute::Fp16 => Tolerance { plain: 1e-2, update: 7.5e-3, update_16: 1e-1 },
        }
    }
}
