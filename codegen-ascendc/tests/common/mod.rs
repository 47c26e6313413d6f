//! Random tensors, and a plain evaluation of row groups in f64.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;

use half::{bf16, f16};
use msc_codegen::llvm::{Arg, CompiledKernel};
use msc_codegen::tile::build::{RowDef, RowGroup, RowKernels, RowShape, RowType, Sink};
use msc_codegen::tile::{BinaryOp, CompareOp, DType, Over, ReduceOp, UnaryOp};

/// A tensor: its bytes as a kernel sees them.
#[derive(Clone)]
pub struct Tensor {
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

impl Tensor {
    pub fn new(dtype: DType, values: &[f64]) -> Tensor {
        let mut bytes = Vec::new();
        for v in values {
            match dtype {
                DType::F32 => bytes.extend((*v as f32).to_ne_bytes()),
                DType::BF16 => bytes.extend(bf16::from_f64(*v).to_ne_bytes()),
                DType::F16 => bytes.extend(f16::from_f64(*v).to_ne_bytes()),
                DType::I32 => bytes.extend((*v as i32).to_ne_bytes()),
            }
        }
        Tensor { dtype, bytes }
    }

    pub fn values(&self) -> Vec<f64> {
        let four = |b: &[u8]| [b[0], b[1], b[2], b[3]];
        let two = |b: &[u8]| [b[0], b[1]];
        match self.dtype {
            DType::F32 => self.bytes.chunks(4).map(|b| f64::from(f32::from_ne_bytes(four(b)))).collect(),
            DType::I32 => self.bytes.chunks(4).map(|b| f64::from(i32::from_ne_bytes(four(b)))).collect(),
            DType::BF16 => self.bytes.chunks(2).map(|b| bf16::from_ne_bytes(two(b)).to_f64()).collect(),
            DType::F16 => self.bytes.chunks(2).map(|b| f16::from_ne_bytes(two(b)).to_f64()).collect(),
        }
    }
}

/// A small random generator (xorshift), so that tests are the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Roughly normal, mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
    }

    pub fn tensor(&mut self, dtype: DType, count: i64) -> Tensor {
        let values: Vec<f64> = (0..count).map(|_| self.normal()).collect();
        Tensor::new(dtype, &values)
    }
}

/// Random inputs for a group; inputs named `rstd` are positive, `labels` are column numbers.
pub fn inputs(group: &RowGroup, seed: u64) -> BTreeMap<String, Tensor> {
    let mut random = Random::new(seed);
    let mut tensors = BTreeMap::new();
    for value in &group.values {
        if let RowDef::Input { name, shape, dtype } = &value.def {
            let count = shape.global(group.rows, group.cols).iter().product();
            let mut tensor = random.tensor(*dtype, count);
            if name == "rstd" {
                let positive: Vec<f64> = tensor.values().iter().map(|v| 0.5 + v.abs()).collect();
                tensor = Tensor::new(*dtype, &positive);
            }
            if name == "labels" {
                let columns: Vec<f64> = (0..count).map(|r| (r * 7919 % group.cols) as f64).collect();
                tensor = Tensor::new(*dtype, &columns);
            }
            tensors.insert(name.clone(), tensor);
        }
    }
    tensors
}

/// Runs the kernels of a group on the CPU; gives all tensors afterwards.
pub fn run(
    built: &RowKernels,
    tensors: &BTreeMap<String, Tensor>,
    threads: usize,
) -> BTreeMap<String, Tensor> {
    let mut tensors = tensors.clone();
    for kernel in &built.kernels {
        for p in &kernel.params {
            // What a kernel does not write must show: unwritten memory is NaN.
            let bytes = (p.elements() * p.dtype.bytes()) as usize;
            tensors.entry(p.name.clone()).or_insert(Tensor { dtype: p.dtype, bytes: vec![0xff; bytes] });
        }
        let mut memory: Vec<Tensor> = kernel.params.iter().map(|p| tensors[&p.name].clone()).collect();
        let mut args: Vec<Arg> = memory
            .iter_mut()
            .zip(&kernel.params)
            .map(|(t, p)| if p.role.writable() { Arg::Out(&mut t.bytes) } else { Arg::In(&t.bytes) })
            .collect();
        let compiled = CompiledKernel::compile(kernel).expect("the kernel compiles");
        compiled.run(&mut args, &[], threads).expect("the arguments fit");
        for (tensor, p) in memory.into_iter().zip(&kernel.params) {
            tensors.insert(p.name.clone(), tensor);
        }
    }
    tensors
}

/// Evaluates a group in f64, rounding only where a step reads a value of a 16-bit type. Outputs by name,
/// before their own rounding.
pub fn evaluate(group: &RowGroup, tensors: &BTreeMap<String, Tensor>) -> BTreeMap<String, Vec<f64>> {
    let types = group.infer().expect("a valid group");
    let (rows, cols) = (group.rows as usize, group.cols as usize);
    let mut values: Vec<Vec<f64>> = Vec::new();
    let mut unrounded: Vec<Vec<f64>> = Vec::new();
    for (value, ty) in group.values.iter().zip(&types) {
        let at = |id: usize, r: usize, c: usize| pick(&values[id], &types[id], cols, r, c);
        let mut result = Vec::new();
        let (height, width) = match ty.shape {
            RowShape::Single => (1, 1),
            RowShape::Row => (1, cols),
            RowShape::Column => (rows, 1),
            RowShape::Full => (rows, cols),
        };
        for r in 0..height {
            for c in 0..width {
                let v = match &value.def {
                    RowDef::Input { name, .. } => {
                        result = tensors[name].values();
                        break;
                    }
                    RowDef::Scalar { .. } => unreachable!("tests use no scalars"),
                    RowDef::Num(v) => f64::from(v.get()),
                    RowDef::Int(v) => f64::from(*v),
                    RowDef::Position(Over::Rows) => r as f64,
                    RowDef::Position(Over::Cols) => c as f64,
                    RowDef::Unary(op, a) => unary(*op, at(a.0 as usize, r, c)),
                    RowDef::Binary(op, a, b) => binary(*op, at(a.0 as usize, r, c), at(b.0 as usize, r, c)),
                    RowDef::Select { op, a, b, on_true, on_false } => {
                        let holds = compare(*op, at(a.0 as usize, r, c), at(b.0 as usize, r, c));
                        at(if holds { on_true.0 } else { on_false.0 } as usize, r, c)
                    }
                    RowDef::Convert(a, DType::I32) => at(a.0 as usize, r, c).trunc(),
                    RowDef::Convert(a, _) => at(a.0 as usize, r, c),
                    RowDef::Reduce(op, a) => reduce(*op, (0..cols).map(|c| at(a.0 as usize, r, c))),
                };
                result.push(v);
            }
        }
        values.push(result.iter().map(|v| round(*v, ty.dtype)).collect());
        unrounded.push(result);
    }
    let mut outputs = BTreeMap::new();
    for output in &group.outputs {
        let id = output.value.0 as usize;
        let value = match output.sink {
            Sink::Store => unrounded[id].clone(),
            Sink::ReduceRows(op) => {
                (0..cols).map(|c| reduce(op, (0..rows).map(|r| values[id][r * cols + c]))).collect()
            }
        };
        outputs.insert(output.name.clone(), value);
    }
    outputs
}

fn pick(values: &[f64], ty: &RowType, cols: usize, r: usize, c: usize) -> f64 {
    match ty.shape {
        RowShape::Single => values[0],
        RowShape::Row => values[c],
        RowShape::Column => values[r],
        RowShape::Full => values[r * cols + c],
    }
}

fn round(v: f64, dtype: Option<DType>) -> f64 {
    match dtype {
        Some(DType::BF16) => bf16::from_f64(v).to_f64(),
        Some(DType::F16) => f16::from_f64(v).to_f64(),
        _ => v,
    }
}

fn unary(op: UnaryOp, a: f64) -> f64 {
    match op {
        UnaryOp::Copy => a,
        UnaryOp::Neg => -a,
        UnaryOp::Abs => a.abs(),
        UnaryOp::Exp => a.exp(),
        UnaryOp::Log => a.ln(),
        UnaryOp::Sqrt => a.sqrt(),
        UnaryOp::Rsqrt => 1.0 / a.sqrt(),
        UnaryOp::Recip => 1.0 / a,
        UnaryOp::Tanh => a.tanh(),
        UnaryOp::Logistic => 1.0 / (1.0 + (-a).exp()),
    }
}

fn binary(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
    }
}

fn compare(op: CompareOp, a: f64, b: f64) -> bool {
    match op {
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
        CompareOp::Gt => a > b,
        CompareOp::Ge => a >= b,
    }
}

fn reduce(op: ReduceOp, values: impl Iterator<Item = f64>) -> f64 {
    match op {
        ReduceOp::Sum => values.sum(),
        ReduceOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
    }
}

/// Greatest error of `found` against `wanted`, relative to the greatest magnitude of `wanted`, after
/// subtracting from each what the rounding to the output's type may add: half a unit in the last place,
/// which is at most 2^-8 of a bf16 value.
pub fn error(found: &Tensor, wanted: &[f64]) -> f64 {
    let half_unit = match found.dtype {
        DType::F32 => 2f64.powi(-24),
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        DType::I32 => 0.0,
    };
    let found = found.values();
    assert_eq!(found.len(), wanted.len());
    let scale = wanted.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    found.iter().zip(wanted).fold(0.0, |worst: f64, (f, w)| {
        let e = (f - w).abs() - half_unit * w.abs();
        if e.is_nan() { f64::INFINITY } else { worst.max(e.max(0.0) / scale) }
    })
}
