//! Options that say where a step's inputs come from.

use clap::Args;
use msc::run::RunOptions;
use std::path::PathBuf;

/// Where inputs come from.
#[derive(Args)]
pub struct Given {
    /// Any inputs: npz or safetensors, by name or in order. May be given several times.
    #[arg(long, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// Parameters and state: npz or safetensors, by name. May be given several times.
    #[arg(long, value_name = "FILE")]
    params: Vec<PathBuf>,
    /// Maps the names in --params files to the plan's: JSON, or lines `from: to`; `*` stands for the same text.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Rounds floats in files to the types of the step.
    #[arg(long)]
    convert: bool,
    /// Tokens: npy, npz, Megatron's bin with idx, or a flat bin.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Type of the tokens in a flat bin: u16, u32, i32, i64.
    #[arg(long, value_name = "TYPE", value_parser = msc::run::inputs::token_dtype)]
    data_dtype: Option<msc_ir::DType>,
    /// The input that takes token ids, if the compiler did not find it.
    #[arg(long, value_name = "INPUT")]
    ids: Option<String>,
    /// The input that takes labels, if the compiler did not find it.
    #[arg(long, value_name = "INPUT")]
    labels: Option<String>,
    /// Sets a run-time scalar: NAME=VALUE, or NAME=@FILE with lines `step,value`.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

impl Given {
    /// Run options with these inputs.
    pub fn options(self) -> RunOptions {
        RunOptions {
            inputs: self.inputs,
            params: self.params,
            names: self.names,
            convert: self.convert,
            data: self.data,
            data_dtype: self.data_dtype,
            ids: self.ids,
            labels: self.labels,
            set: self.set,
            ..RunOptions::default()
        }
    }
}
