//! `msc reshard`: maps saved state, of whatever layout, to that of a plan.
//!
//! Names and types must be the plan's, every input that the step carries over must be there, and the blocks on either
//! side must hold each element once. Bits are copied, nothing is computed.

use crate::error::{Error, Result};
use crate::options::in_words;
use crate::show;
use msc_ir::{Tensor, TensorType};
use msc_runtime::data::file::TensorFile;
use msc_runtime::data::shards::{Placed, cover::Place, is_folder, placed, write};
use msc_runtime::data::{self, DataError, Places, Tensors};
use msc_runtime::layout::Block;
use msc_runtime::plan::{Plan, Role};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What to map.
#[derive(Clone, Debug)]
pub struct ReshardOptions {
    /// The state: a file of whole tensors, or a folder of shards.
    pub state: PathBuf,
    /// The plan whose layout it gets.
    pub to: PathBuf,
    /// Where it goes: a file of whole tensors (`.npz`, `.safetensors`), or else a folder of shards.
    pub out: PathBuf,
}

/// The elements of parts of tensors, wherever they are.
enum Source {
    /// In a file, by name, one block for each rank of the layout that wrote it or one for all.
    File(TensorFile),
    /// In memory: files that are packed are read once.
    Memory(Tensors),
}

impl Source {
    fn open(path: &Path) -> Result<Source> {
        let file = TensorFile::open(path)?;
        Ok(match file {
            TensorFile::Npz(..) | TensorFile::Npy(_) => Source::Memory(data::read(path)?),
            mapped => Source::File(mapped),
        })
    }

    fn names(&self) -> Vec<String> {
        match self {
            Source::File(f) => f.names(),
            Source::Memory(t) => t.keys().cloned().collect(),
        }
    }

    fn ty(&self, name: &str) -> std::result::Result<TensorType, DataError> {
        Ok(match self {
            Source::File(TensorFile::Shards(s)) => match s.ty(name) {
                Some(ty) => ty.clone(),
                None => s.tensor(name)?.ty(),
            },
            Source::File(f) => match f.view(name)? {
                Some((ty, _)) => ty,
                None => f.tensor(name)?.ty(),
            },
            Source::Memory(t) => t[name].ty(),
        })
    }

    fn part(&self, name: &str, place: &Place) -> std::result::Result<Vec<u8>, DataError> {
        let cut = |ty: &TensorType, bytes: &[u8]| {
            let block = Block::new(ty, &place.start, &place.size);
            let mut out = vec![0u8; place.size.iter().product::<usize>() * ty.dtype.size_bytes()];
            block.cut(bytes, &mut out);
            out
        };
        Ok(match self {
            Source::File(TensorFile::Shards(s)) => s.part(name, place)?,
            Source::File(f) => match f.view(name)? {
                Some((ty, bytes)) => cut(&ty, bytes),
                None => {
                    let t = f.tensor(name)?;
                    cut(&t.ty(), t.data.bytes())
                }
            },
            Source::Memory(t) => cut(&t[name].ty(), t[name].data.bytes()),
        })
    }

    fn steps(&self) -> Option<u64> {
        match self {
            Source::File(f) => f.steps(),
            Source::Memory(_) => None,
        }
    }
}

/// Maps a state; what was done goes to `out`.
///
/// # Errors
/// Bad files and plans, tensors that the plan does not have or has with another type, inputs that are missing.
pub fn reshard(o: &ReshardOptions, out: &mut dyn Write) -> Result<()> {
    let folder = is_folder(&o.out) || o.out.extension().is_none_or(|e| e != "npz" && e != "safetensors");
    match folder {
        true => data::shards::check_folder(&o.out)?,
        false => data::check_writable(&o.out)?,
    }
    let plan = Plan::open(&o.to)?;
    let source = Source::open(&o.state)?;
    let tensors = matched(&source, &plan, &o.state, &o.to)?;
    let bytes: u64 = tensors.iter().map(|(_, p)| p.ty.bytes() as u64).sum();
    if folder {
        let list: Vec<Placed> = tensors.iter().map(|(_, p)| p.clone()).collect();
        // The names of the state may be numbers (`in0000`): what is written has the plan's.
        let keys: BTreeMap<&str, &str> = tensors.iter().map(|(k, p)| (p.name.as_str(), k.as_str())).collect();
        write(&o.out, &list, plan.mesh(), source.steps(), |name, place| source.part(keys[name], place))?;
    } else {
        let mut whole: Vec<(&str, Tensor)> = Vec::new();
        for (key, p) in &tensors {
            let bytes = source.part(key, &Place::whole(&p.ty.shape))?;
            let data = msc_ir::Storage::from_bytes(p.ty.dtype, &bytes);
            whole.push((&p.name, Tensor::new(p.ty.shape.iter().copied(), data)));
        }
        let refs: Vec<(&str, &Tensor)> = whole.iter().map(|(n, t)| (*n, t)).collect();
        data::write(&o.out, &refs, source.steps())?;
    }
    let to: Vec<(String, usize)> = plan.mesh().sizes();
    let from = match &source {
        Source::File(TensorFile::Shards(s)) => in_words(s.mesh()),
        _ => "whole tensors".into(),
    };
    let to = if folder { in_words(&to) } else { "whole tensors".into() };
    let text = format!("{} tensors, {bytes} bytes: {from} to {to}: {}\n", tensors.len(), o.out.display());
    show::print(out, &text)
}

/// The tensors of a state, by their name in it, with where the plan stores their blocks.
fn matched(source: &Source, plan: &Plan, state: &Path, to: &Path) -> Result<Vec<(String, Placed)>> {
    let params = &plan.entry().params;
    let mut all = Vec::new();
    for n in 0..params.len() {
        all.push(placed(plan, n, to)?);
    }
    let wanted: Vec<(&str, TensorType)> = all.iter().map(|p| (p.name.as_str(), p.ty.clone())).collect();
    let keys = source.names();
    let places = Places::new("input", &wanted, None).of(&keys)?;
    let mut given: Vec<Option<String>> = vec![None; params.len()];
    for (key, place) in keys.into_iter().zip(places) {
        let Some(n) = place else { continue };
        let (found, want) = (source.ty(&key)?, &wanted[n].1);
        if found != *want {
            let (name, want, found) = (wanted[n].0.to_string(), want.to_string(), found.to_string());
            return Err(DataError::Type { name, want, found, help: "" }.into());
        }
        if given[n].replace(key).is_some() {
            return Err(DataError::Twice { name: wanted[n].0.to_string() }.into());
        }
    }
    // What the step carries over; where the file donates nothing, the weights.
    let donates = params.iter().any(|p| p.alias.is_some());
    let needed = |n: usize| match donates {
        true => params[n].alias.is_some(),
        false => plan.meta.step.role(n) == Role::Weight,
    };
    let missing: Vec<String> = (0..params.len())
        .filter(|&n| given[n].is_none() && needed(n))
        .map(|n| params[n].name.clone())
        .collect();
    if !missing.is_empty() {
        let total = (0..params.len()).filter(|&n| needed(n)).count();
        let help = format!("{} should hold all parameters and state of the step", state.display());
        return Err(Error::Data(DataError::Missing { what: "input", total, names: missing, help }));
    }
    Ok(given.into_iter().zip(all).filter_map(|(key, p)| Some((key?, p))).collect())
}
