//! Where a step's inputs come from.

use super::lines::Lines;
use super::{RunOptions, Signature};
use crate::error::{Error, Result};
use msc_ir::{DType, Entry, Tensor, TensorType};
use msc_runtime::data::feed::{Feed, FeedSpec};
use msc_runtime::data::file::TensorFile;
use msc_runtime::data::names::NameMap;
use msc_runtime::data::schedule::Schedule;
use msc_runtime::data::{DataError, Places, fit_as, init, tokens};
use msc_runtime::exec::Session;
use msc_runtime::plan::{Plan, Role, StepInfo};
use std::path::{Path, PathBuf};

/// Where one input came from.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    File(PathBuf),
    Data,
    Set,
    /// Positions, masks, and what `--init` made: how, in words.
    Made(String),
}

/// What takes inputs.
pub(super) trait Target {
    /// Takes the elements of an input, which are of its type.
    fn load(&mut self, n: usize, ty: &TensorType, elements: &[u8]) -> Result<()>;
}

impl Target for Session {
    fn load(&mut self, n: usize, ty: &TensorType, elements: &[u8]) -> Result<()> {
        Ok(self.load_input(n, ty, elements)?)
    }
}

/// The inputs of a run.
pub(super) struct Inputs {
    origins: Vec<Option<Origin>>,
    feed: Option<Feed>,
    schedules: Vec<(usize, Schedule)>,
    /// The input that takes token ids.
    pub ids: Option<usize>,
    /// Steps that led to the state given.
    pub start: u64,
    /// What the user should know.
    pub notes: Vec<String>,
    kept: Vec<usize>,
    /// Whether it was said that the data began again.
    wrapped: bool,
}

impl Inputs {
    /// Gives every input its value, or says which have none.
    pub fn gather(o: &RunOptions, session: &mut Session, s: &Signature) -> Result<Inputs> {
        let step = session.plan().meta.step.clone();
        let n = s.inputs.len();
        let mut inputs = Inputs::of_user(o, session, &step, s)?;
        inputs.tokens(&step, session, s)?;
        if let Some(seed) = o.init {
            inputs.init(seed, &step, session, s)?;
        }
        inputs.complete(o, &step, s)?;
        let carried: Vec<usize> = session.carried().iter().map(|&(_, p)| p).collect();
        let lasting = |i: &usize| {
            let role = step.role(*i);
            let token = matches!(role, Role::Ids | Role::Labels | Role::Positions | Role::Mask);
            let own = !matches!(inputs.origins[*i], Some(Origin::Data | Origin::Set));
            carried.contains(i) || (own && !token && Some(*i) != inputs.ids)
        };
        inputs.kept = (0..n).filter(lasting).collect();
        if inputs.start > 0 {
            inputs.notes.insert(0, format!("state after step {}: going on from there", inputs.start));
        }
        Ok(inputs)
    }

    /// The inputs that the user gives: in files, as data, by `--set`.
    pub(super) fn of_user(
        o: &RunOptions,
        target: &mut impl Target,
        step: &StepInfo,
        s: &Signature,
    ) -> Result<Inputs> {
        let mut inputs = Inputs {
            origins: vec![None; s.inputs.len()],
            feed: None,
            schedules: Vec::new(),
            ids: None,
            start: 0,
            notes: Vec::new(),
            kept: Vec::new(),
            wrapped: false,
        };
        let names = o.names.as_deref().map(NameMap::read).transpose()?;
        for path in &o.inputs {
            inputs.file(path, None, o.convert, target, s)?;
        }
        for path in &o.params {
            inputs.file(path, names.as_ref(), o.convert, target, s)?;
        }
        for text in &o.set {
            inputs.set(text, target, s)?;
        }
        inputs.data(o, step, s)?;
        Ok(inputs)
    }

    /// The data of the first step.
    pub(super) fn first_batch(&self) -> Result<Vec<(usize, Tensor)>> {
        Ok(self.feed.as_ref().map_or(Ok(Vec::new()), |f| f.batch(self.start))?)
    }

    /// The inputs that a saved state holds: all but data and what was set.
    pub fn kept(&self) -> impl Iterator<Item = usize> {
        self.kept.iter().copied()
    }

    fn claim(&mut self, n: usize, origin: Origin, s: &Signature) -> Result<()> {
        match self.origins[n].replace(origin) {
            None => Ok(()),
            Some(_) => Err(DataError::Twice { name: s.inputs[n].0.clone() }.into()),
        }
    }

    /// Takes a file's tensors, one after the other.
    fn file(
        &mut self,
        path: &Path,
        names: Option<&NameMap>,
        convert: bool,
        target: &mut impl Target,
        s: &Signature,
    ) -> Result<()> {
        let file = TensorFile::open(path)?;
        self.start = self.start.max(file.steps().unwrap_or(0));
        let wanted = Signature::wanted(&s.inputs);
        let keys = file.names();
        let places = Places::new("input", &wanted, names).of(&keys)?;
        for (key, place) in keys.iter().zip(places) {
            let Some(n) = place else { continue };
            self.claim(n, Origin::File(path.to_path_buf()), s)?;
            let (name, want) = &wanted[n];
            match file.view(key)? {
                Some((ty, bytes)) if ty == *want => target.load(n, &ty, bytes)?,
                _ => {
                    let t = fit_as(name, file.tensor(key)?, want, convert)?;
                    target.load(n, want, t.data.bytes())?;
                }
            }
        }
        Ok(())
    }

    /// A run-time scalar: `name=value` or `name=@file`.
    fn set(&mut self, text: &str, target: &mut impl Target, s: &Signature) -> Result<()> {
        let known = |name: &str| s.inputs.iter().position(|(n, _)| n == name);
        let split = splits(text).find_map(|(a, b)| Some((known(a)?, b)));
        let Some((n, value)) = split else {
            let name = text.split_once('=').map_or(text, |(a, _)| a);
            return Err(match text.contains('=') {
                true => {
                    let scalars = s.inputs.iter().filter(|(_, t)| t.elements() == 1).map(|(n, _)| n.as_str());
                    let scalars: Vec<&str> = scalars.take(8).collect();
                    let hint = match scalars.is_empty() {
                        true => ": it has no scalar inputs".to_string(),
                        false => format!(" (scalar inputs: {})", scalars.join(", ")),
                    };
                    DataError::Unknown { what: "input", name: name.to_string(), hint }.into()
                }
                false => Error::Usage(format!("--set {text}: should be name=value or name=@file.csv")),
            });
        };
        let (name, ty) = &s.inputs[n];
        if ty.elements() != 1 {
            return Err(Error::Usage(format!("--set {text}: `{name}` is {ty}, not a scalar")));
        }
        let schedule = match value.strip_prefix('@') {
            Some(path) => Schedule::read(Path::new(path))?,
            None => {
                let number = value.parse::<f64>().ok().filter(|v| v.is_finite());
                let wrong = || Error::Usage(format!("--set {text}: `{value}` is no number"));
                Schedule::constant(number.ok_or_else(wrong)?)
            }
        };
        // Floats round; they do not become infinite. Integers beyond 2⁵³ are not what the user wrote.
        let holds = |v: f64| {
            let held = Tensor::scalar(ty.dtype, v).data.get_f64(0);
            if ty.dtype.is_float() { held.is_finite() } else { held == v && v.abs() <= (1u64 << 53) as f64 }
        };
        if !schedule.values().all(holds) {
            return Err(Error::Usage(format!("--set {text}: `{name}` is {ty}, the value does not fit")));
        }
        self.claim(n, Origin::Set, s)?;
        target.load(n, ty, Tensor::splat(ty, schedule.at(self.start + 1)).data.bytes())?;
        self.schedules.push((n, schedule));
        Ok(())
    }

    /// The data, if there are any.
    fn data(&mut self, o: &RunOptions, step: &StepInfo, s: &Signature) -> Result<()> {
        let named = |flag: &str, name: &Option<String>| -> Result<Option<usize>> {
            let Some(name) = name else { return Ok(None) };
            let found = s.inputs.iter().position(|(n, _)| n == name);
            let hint = format!(", given with {flag}");
            let unknown = || DataError::Unknown { what: "input", name: name.clone(), hint };
            Ok(Some(found.ok_or_else(unknown)?))
        };
        self.ids = named("--ids", &o.ids)?.or(step.first(Role::Ids));
        let labels = named("--labels", &o.labels)?.or(step.first(Role::Labels));
        let Some(path) = &o.data else { return Ok(()) };
        let Some(ids) = self.ids else {
            return Err(DataError::Tokens {
                message: "no input of this step is known to take token ids".into(),
                help: "name it with --ids, and the labels with --labels".into(),
            }
            .into());
        };
        let given = |n: &usize| self.origins[*n].is_some();
        let spec = FeedSpec {
            inputs: &Signature::wanted(&s.inputs),
            ids,
            labels: labels.filter(|n| !given(n)),
            shifts_labels: step.shifts_labels,
            // Of the table that the input found by the compiler indexes.
            vocabulary: if Some(ids) == step.first(Role::Ids) { step.vocabulary } else { 0 },
        };
        let feed = Feed::new(tokens::open(path, o.data_dtype)?, &spec)?;
        // What is wrong with the first batch is said before anything else.
        feed.batch(self.start)?;
        let fed: Vec<usize> = feed.inputs().collect();
        for n in fed {
            self.claim(n, Origin::Data, s)?;
        }
        self.feed = Some(feed);
        Ok(())
    }

    /// Positions and masks that no one gives.
    fn tokens(&mut self, step: &StepInfo, session: &mut Session, s: &Signature) -> Result<()> {
        for (n, (name, ty)) in s.inputs.iter().enumerate() {
            if self.origins[n].is_some() {
                continue;
            }
            let (value, how) = match step.role(n) {
                Role::Positions => {
                    let last = ty.shape.last().copied().unwrap_or(1).max(1);
                    let ramp: Vec<f64> = (0..ty.elements()).map(|i| (i % last) as f64).collect();
                    (Tensor::from_f64s(ty, &ramp), format!("0 to {} in every row", last - 1))
                }
                Role::Mask => (Tensor::splat(ty, 1.0), "1 everywhere".to_string()),
                _ => continue,
            };
            session.load_input(n, ty, value.data.bytes())?;
            self.notes.push(format!("{name}: {}, not given, is {how}", step.role(n).name()));
            self.origins[n] = Some(Origin::Made(how));
        }
        Ok(())
    }

    /// Initial values for what is not given.
    fn init(&mut self, seed: u64, step: &StepInfo, session: &mut Session, s: &Signature) -> Result<()> {
        let mut copies = Vec::new();
        for (n, (name, ty)) in s.inputs.iter().enumerate() {
            if self.origins[n].is_some() {
                continue;
            }
            let source = init::Source::new(seed, name);
            let (value, how) = match step.role(n) {
                Role::Weight => {
                    let value = init::normal(ty, source, init::DEVIATION);
                    (value, format!("normal(0, {})", init::DEVIATION))
                }
                Role::Filled(x) => (Tensor::splat(ty, x.get()), x.get().to_string()),
                Role::Frequencies => {
                    let base = init::ROTARY_BASE;
                    self.notes.push(format!(
                        "{name}: rotary frequencies, not given, are those of base {base}; give them with --params \
                         if the model has others"
                    ));
                    (init::frequencies(ty, base), format!("{base}^(-i/{})", ty.elements()))
                }
                Role::Key => (init::key(ty, source), "random bits".to_string()),
                Role::Copy(of) => {
                    copies.push((n, of as usize));
                    continue;
                }
                _ => continue,
            };
            session.load_input(n, ty, value.data.bytes())?;
            self.origins[n] = Some(Origin::Made(how));
        }
        // Copies of copies come after what they copy.
        while !copies.is_empty() {
            let (ready, rest): (Vec<_>, Vec<_>) =
                copies.into_iter().partition(|&(_, of)| self.origins[of].is_some());
            if ready.is_empty() {
                break;
            }
            for (n, of) in ready {
                let ty = &s.inputs[n].1;
                let value = session.input(of)?.converted(ty.dtype);
                let name = &s.inputs[of].0;
                session.load_input(n, ty, value.data.bytes())?;
                self.origins[n] = Some(Origin::Made(format!("{} of {name}", ty.dtype.name())));
            }
            copies = rest;
        }
        Ok(())
    }

    /// Refuses to begin while something is missing.
    fn complete(&self, o: &RunOptions, step: &StepInfo, s: &Signature) -> Result<()> {
        let missing: Vec<usize> = (0..s.inputs.len()).filter(|&n| self.origins[n].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let is = |n: &usize, roles: &[Role]| roles.contains(&step.role(*n)) || Some(*n) == self.ids;
        let tokens = missing.iter().any(|n| is(n, &[Role::Ids, Role::Labels]));
        let scalars = missing.iter().any(|&n| s.inputs[n].1.rank() == 0 && step.role(n) == Role::Given);
        let others = missing.iter().any(|n| !is(n, &[Role::Ids, Role::Labels, Role::Given]));
        let tables = missing.iter().any(|&n| s.inputs[n].1.rank() > 0 && step.role(n) == Role::Given);
        let mut help = Vec::new();
        if others && o.init.is_none() {
            help.push("parameters and state from --params FILE, or initial ones with --init SEED");
        }
        if tokens {
            help.push("tokens from --data FILE");
        }
        if scalars {
            help.push("run-time scalars with --set NAME=VALUE");
        }
        if tables || help.is_empty() {
            help.push("any input by its name from --inputs FILE");
        }
        let name = |&n: &usize| format!("{} ({})", s.inputs[n].0, s.inputs[n].1);
        let names = missing.iter().map(name).collect();
        let total = s.inputs.len();
        Err(DataError::Missing { what: "input", total, names, help: help.join("; ") }.into())
    }

    /// Sets what changes before a step; gives the step's number, from 1.
    pub fn before(&mut self, session: &mut Session, lines: &mut Lines<'_>) -> Result<u64> {
        let step = self.start + session.steps() as u64 + 1;
        for (n, schedule) in &self.schedules {
            if session.steps() == 0 || schedule.changes_at(step) {
                let Some(ty) = session.input_type(*n) else { continue };
                session.set_input(*n, Tensor::splat(&ty, schedule.at(step)))?;
            }
        }
        if let Some(feed) = &self.feed {
            if feed.wraps(step - 1) && !std::mem::replace(&mut self.wrapped, true) {
                let samples = feed.samples();
                lines.note(&format!(
                    "step {step} comes back to the beginning of the data, {samples} samples; later steps go on so"
                ));
            }
            for (n, t) in feed.batch(step - 1)? {
                session.set_input(n, t)?;
            }
        }
        Ok(step)
    }

    /// For each input its name, its value and why it has it.
    pub fn report(&self, plan: &Plan) -> Vec<[String; 3]> {
        let why = |n: usize| plan.meta.step.inputs.get(n).map_or(String::new(), |i| i.why.clone());
        let row = |(n, p): (usize, &msc_ir::ParamInfo)| {
            let value = match &self.origins[n] {
                Some(Origin::File(path)) => path.display().to_string(),
                Some(Origin::Data) => "data".to_string(),
                Some(Origin::Set) => "set".to_string(),
                Some(Origin::Made(how)) => how.clone(),
                None => String::new(),
            };
            [p.name.clone(), value, why(n)]
        };
        plan.entry().params.iter().enumerate().map(row).collect()
    }
}

/// Every way to cut a text at a `=`: names may have one in them.
fn splits(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]))
}

/// The pairs of `--carry`: `result=input`, or a JSON file with a list of `[result, input]`, by name or by number.
pub(super) fn carry_pairs(entry: &Entry, options: &[String]) -> Result<Vec<(usize, usize)>> {
    let result = |name: &str| entry.results.iter().position(|r| r.name == name);
    let param = |name: &str| entry.params.iter().position(|p| p.name == name);
    let mut pairs = Vec::new();
    for text in options {
        if let Some(pair) = splits(text).find_map(|(a, b)| Some((result(a)?, param(b)?))) {
            pairs.push(pair);
            continue;
        }
        let path = Path::new(text);
        if text.contains('=') && !path.exists() {
            return Err(Error::Usage(format!(
                "--carry {text}: should be RESULT=INPUT by their names, or a file of such pairs"
            )));
        }
        let json =
            std::fs::read_to_string(path).map_err(|error| Error::Io { path: path.to_path_buf(), error })?;
        let malformed = |e: String| Error::Usage(format!("--carry {text}: {e}"));
        let list: Vec<[serde_json::Value; 2]> =
            serde_json::from_str(&json).map_err(|e| malformed(e.to_string()))?;
        for [from, to] in list {
            let find = |v: &serde_json::Value, named: &dyn Fn(&str) -> Option<usize>| match v.as_str() {
                Some(name) => named(name),
                None => v.as_u64().and_then(|n| usize::try_from(n).ok()),
            };
            match (find(&from, &result), find(&to, &param)) {
                (Some(r), Some(p)) => pairs.push((r, p)),
                (None, _) => return Err(malformed(format!("there is no result {from}"))),
                (_, None) => return Err(malformed(format!("there is no input {to}"))),
            }
        }
    }
    Ok(pairs)
}

/// The element type of a flat file of tokens, by its name.
///
/// # Errors
/// The names there are.
pub fn token_dtype(name: &str) -> std::result::Result<DType, String> {
    let name = name.strip_prefix("uint").map_or(name.to_string(), |w| format!("u{w}"));
    let name = name.strip_prefix("int").map_or(name.clone(), |w| format!("i{w}"));
    let known = [DType::U8, DType::U16, DType::U32, DType::I16, DType::I32, DType::I64];
    let found = known.into_iter().find(|d| d.name() == name);
    found.ok_or_else(|| format!("types are: {}", known.map(|d| d.name()).join(", ")))
}
