//! What recognition made of a near miss.

use super::covers::Covers;
use super::{Must, NearMiss};
use crate::mutants::edit::apply;
use crate::mutants::judge::{SAME, distances};
use crate::mutants::subject::Subject;
use msc_ir::attr::AttrValue;
use msc_ir::interp::{Mode, run};
use msc_ir::{Module, Operation, Tensor};
use msc_passes::recognise::{Replayer, Report, recognise};
use msc_passes::simplify::simplify;
use msc_passes::template::template;
use msc_runtime::check::Tolerance;
use std::collections::BTreeMap;

/// What may be between the recognised step and the step itself in f64, relative to the update of state or the largest
/// element of other outputs: literals are taken from decimals to 1e-6, and each counts for a part of a value.
pub const WIDE: f64 = 1e-6;

/// How often the rounding of the step itself excuses a difference in its own types.
const OWN_ROUNDING: f64 = 2.0;

/// Named operations by name and attributes, with how often a step executes each.
pub type Found = BTreeMap<(String, String), u64>;

/// What became of a near miss.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The operation is found with other attributes.
    Attribute,
    /// Fewer operations of the kind are found.
    Fewer,
    /// As many as before, with the same attributes: on other operands, or the edit lies elsewhere.
    Operands,
    /// In f64 the edited step computes what the step does.
    Equivalent,
    /// A wrong meaning.
    Wrong(String),
    /// The edit does not fit there.
    Inapplicable(String),
}

/// A step after recognition.
pub struct Recognised {
    /// The step before recognition.
    pub before: Module,
    /// The step after it.
    pub after: Module,
    /// The reasons.
    pub report: Report,
}

/// Takes a step through recognition.
///
/// # Errors
/// What a pass or the verifier says.
pub fn recognised(before: Module) -> Result<Recognised, String> {
    let mut after = before.clone();
    simplify(&mut after).map_err(|e| e.to_string())?;
    let mut templates = template(&mut after).map_err(|e| e.to_string())?;
    let report = recognise(&mut after, &mut templates).map_err(|e| e.to_string())?;
    msc_ir::verify::verify(&after).map_err(|e| e.to_string())?;
    Ok(Recognised { before, after, report })
}

impl Recognised {
    /// The named operations that it has.
    pub fn found(&self) -> Found {
        let mut out = Found::new();
        for region in &self.report.regions {
            for r in &region.reasons {
                let attrs = r.fused.attrs(&self.after);
                let shown = attrs.iter().filter(|(name, _)| **name != "definition");
                let text = shown.map(|(name, v)| match v {
                    AttrValue::Text(t) => format!("{name}={t} "),
                    AttrValue::Float(b) => format!("{name}={} ", f64::from_bits(*b)),
                    v => format!("{name}={v:?} "),
                });
                *out.entry((r.fused.name().to_string(), text.collect())).or_insert(0) += region.executed;
            }
        }
        out
    }

    /// Replays every reason on fresh data.
    ///
    /// # Errors
    /// The first that differs, in words.
    pub fn replay(&self, seed: u64) -> Result<(), String> {
        for region in &self.report.regions {
            let mut replayer = Replayer::new(&self.after, region);
            for r in region.reasons.iter().chain(&region.unused) {
                let outputs = replayer.fresh(r, seed).map_err(|e| format!("{}: {e}", r.rule))?;
                if let Some(o) = outputs.iter().find(|o| !o.agrees()) {
                    return Err(format!("replay of {}: {o:?}", r.rule));
                }
            }
        }
        Ok(())
    }

    /// Compares the recognised step with the step on a subject's inputs: in f64 and, where `own`, in its own types.
    ///
    /// # Errors
    /// The output that differs most, in words.
    pub fn compare(&self, s: &Subject, own: bool) -> Result<Vec<Tensor>, String> {
        let go = |m: &Module, mode| run(m, s.entry.graph, &s.inputs, mode).map_err(|e| e.to_string());
        let (a, b) = (go(&self.before, Mode::Wide)?, go(&self.after, Mode::Wide)?);
        let name = |i: usize| s.entry.results[i].name.as_str();
        for (i, d) in distances(s, &b, &a).into_iter().enumerate() {
            if d > WIDE || d.is_nan() {
                return Err(format!("{} differs by {d:.1e} in f64", name(i)));
            }
        }
        if own {
            let (x, y) = (go(&self.before, Mode::Spec)?, go(&self.after, Mode::Spec)?);
            let noise = distances(s, &x, &a);
            let allowed = Tolerance::of(s.compute);
            let allowed = allowed.plain.max(allowed.update).max(allowed.update_16 * narrow(s));
            for (i, d) in distances(s, &y, &x).into_iter().enumerate() {
                let own = if noise[i].is_finite() { noise[i] } else { 0.0 };
                if d > allowed + OWN_ROUNDING * own || d.is_nan() {
                    return Err(format!(
                        "{} differs by {d:.1e} in its own types, {own:.1e} of rounding",
                        name(i)
                    ));
                }
            }
        }
        Ok(a)
    }
}

/// 1 where the step computes in narrow floats.
fn narrow(s: &Subject) -> f64 {
    f64::from(u8::from(s.compute != msc_runtime::check::Compute::F32))
}

/// The operations of a step as it is, and where they are.
pub struct Unchanged {
    /// How many there are.
    pub found: Found,
    /// What they cover.
    pub covers: Covers,
}

/// Makes a near miss, takes it through recognition and judges it.
pub fn judge(s: &Subject, n: &NearMiss, unchanged: &Unchanged, own: bool) -> Outcome {
    let mut module = s.module.clone();
    let edited = match apply(&mut module, n.mutant.graph, &n.mutant.changes) {
        Ok(e) => e,
        Err(e) => return Outcome::Inapplicable(e.to_string()),
    };
    module.set_graph(n.mutant.graph, edited.graph);
    if let Err(e) = msc_ir::verify::verify(&module) {
        return Outcome::Inapplicable(e.to_string());
    }
    let r = match recognised(module) {
        Ok(r) => r,
        Err(e) => return Outcome::Wrong(e),
    };
    let outputs = match r.replay(n.mutant.changes.len() as u64).and_then(|()| r.compare(s, own)) {
        Ok(o) => o,
        Err(e) => return Outcome::Wrong(e),
    };
    let exact: Vec<Tensor> = s.wide.outputs.iter().map(|t| (**t).clone()).collect();
    let moved = distances(s, &outputs, &exact).into_iter().fold(0.0, f64::max);
    let inside = match &n.must {
        Must::Change(kinds) => unchanged.covers.touches(s, &n.mutant, kinds),
        Must::Window(kind, _) => unchanged.covers.touches(s, &n.mutant, &[kind]),
        Must::Agree => false,
    };
    verdict(&n.must, inside, &unchanged.found, &r.found(), moved)
}

/// Whether what is found is what must be found. `inside`: whether the edit lies inside an operation that it must change.
fn verdict(must: &Must, inside: bool, before: &Found, after: &Found, moved: f64) -> Outcome {
    let of = |found: &Found, kinds: &[&str]| -> Found {
        let mine = |(name, _): &(String, String)| kinds.contains(&name.strip_suffix("_grad").unwrap_or(name));
        found.iter().filter(|(k, _)| mine(k)).map(|(k, n)| (k.clone(), *n)).collect()
    };
    let count = |f: &Found| f.values().sum::<u64>();
    let kinds: Vec<&str> = match must {
        Must::Change(kinds) if inside => kinds.to_vec(),
        Must::Window(kind, width) => {
            // `band lo..hi`: a window keeps as many keys as it is wide.
            let widths: Vec<i64> =
                after.keys().filter(|k| k.0 == *kind).filter_map(|k| window(&k.1)).collect();
            if let Some(w) = widths.iter().find(|w| **w != *width) {
                return Outcome::Wrong(format!("a window of {w}, not of {width}, is reported"));
            }
            vec![*kind]
        }
        Must::Change(_) | Must::Agree => before.keys().chain(after.keys()).map(|k| k.0.as_str()).collect(),
    };
    let kinds: Vec<&str> = kinds.iter().map(|k| k.strip_suffix("_grad").unwrap_or(k)).collect();
    let (before, after) = (of(before, &kinds), of(after, &kinds));
    if moved <= SAME {
        Outcome::Equivalent
    } else if count(&after) < count(&before) {
        Outcome::Fewer
    } else if after != before {
        Outcome::Attribute
    } else if inside {
        Outcome::Wrong("it is reported as if it were unchanged".into())
    } else {
        Outcome::Operands
    }
}

/// The width of the window that an attention's attributes tell of, if they do.
fn window(attributes: &str) -> Option<i64> {
    let (lo, hi) = attributes.split_once("band ")?.1.split_whitespace().next()?.split_once("..")?;
    Some(hi.parse::<i64>().ok()? - lo.parse::<i64>().ok()? + 1)
}

#[cfg(test)]
mod tests {
    use super::window;

    #[test]
    fn windows_are_read() {
        assert_eq!(window("scores=scale 0.25; band 0..2 add -3e38 "), Some(3));
        assert_eq!(window("scores=scale 0.25; band 0.. add -3e38 "), None);
        assert_eq!(window("scores=scale 0.25; bias "), None);
    }
}
