//! Rules: what to look for, what must be known, what to build.

use super::build::Builder;
use super::facts::Fact;
use super::label::Indexed;
use super::pattern::Pattern;
use super::view::{Product, Term};
use egg::Id;
use msc_ir::{DType, Op};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What an equality says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tag {
    /// The same bits (any NaN equals any NaN).
    Exact,
    /// Equal over the reals; differs in rounding.
    Real,
}

/// What the dimensions of a root's class mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// Nothing: the pattern names layout ops itself.
    Any,
    /// Rows of the last dimension `D`: `[…, D]`.
    Full,
    /// A statistic per row: `[…]`, dimensions of size 1 aside.
    Rows,
    /// One row: `[D]`.
    Cols,
}

/// How often a root must be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Once; another class that fits is another match.
    One,
    /// At most once; the match holds without it, and the first class that fits is taken.
    Optional,
    /// Every class that fits belongs to the match.
    Each,
}

/// One place of the program that a rule is about.
#[derive(Clone, Debug)]
pub struct Root {
    /// The class found is bound to this variable.
    pub name: &'static str,
    /// What its dimensions mean.
    pub frame: Frame,
    /// How often it must be found.
    pub count: Count,
    /// Whether it has the type that narrow floats compute in; instances are made so.
    pub wide: bool,
    /// What it looks like. Variables are shared between the roots of a rule.
    pub pattern: Pattern,
}

/// What a variable stands for.
#[derive(Clone, PartialEq, Debug)]
pub enum Binding {
    /// A class.
    Class(Indexed),
    /// Several classes, of a root with [`Count::Each`].
    Classes(Vec<Indexed>),
    /// The factors that were left in a product, where they are not one class.
    Product(Product),
    /// The terms that were left in a sum.
    Terms(Vec<Term>),
}

/// An op that a pattern named, where it was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The op.
    pub op: Op,
    /// Its operands.
    pub args: SmallVec<[Id; 3]>,
}

/// A match: the variables, and the ops in the order in which the pattern names them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Match {
    /// Variables, roots included.
    pub vars: BTreeMap<&'static str, Binding>,
    /// Ops named by patterns.
    pub ops: Vec<Found>,
    /// Whether dimensions have labels.
    pub framed: bool,
    /// Why the rule must not be applied, where that shows in the match.
    pub unless: Option<&'static str>,
    /// Number of row dimensions, once a frame has said it.
    pub rows: Option<usize>,
    /// Size of a row, once a pattern has said it.
    pub row_size: Option<usize>,
}

impl Match {
    /// The class of a variable, if it stands for one.
    pub fn class(&self, name: &str) -> Option<&Indexed> {
        match self.vars.get(name)? {
            Binding::Class(i) => Some(i),
            _ => None,
        }
    }
}

/// Why a match did not become a union.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhyNot {
    /// A fact that the rule needs is not known of a variable.
    Fact {
        /// The variable.
        variable: &'static str,
        /// The fact.
        fact: Fact,
    },
    /// A precondition failed.
    Precondition(String),
    /// An output of the op reaches one of its inputs in the program.
    Cycle {
        /// The output.
        output: &'static str,
        /// The input.
        input: &'static str,
    },
}

impl std::fmt::Display for WhyNot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WhyNot::Fact { variable, fact } => {
                write!(f, "it is not known that {variable} {}", fact.describe())
            }
            WhyNot::Precondition(why) => f.write_str(why),
            WhyNot::Cycle { output, input } => write!(f, "{output} is needed to compute {input}"),
        }
    }
}

/// An op of several results that an applier built.
#[derive(Clone, PartialEq, Debug)]
pub struct MultiOutput {
    /// The op's own class.
    pub tuple: Id,
    /// Inputs with their names.
    pub inputs: Vec<(&'static str, Id)>,
    /// Classes of the program that results stand for, with their names and the index of the result.
    pub outputs: Vec<(&'static str, u32, Id)>,
}

/// What an applier built.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Applied {
    /// Classes to unite.
    pub unions: Vec<(Id, Id)>,
    /// The op of several results, if the rule introduces one. It is checked against the program before uniting.
    pub op: Option<MultiOutput>,
}

/// Builds the other side of a match.
pub type Applier = fn(&mut Builder<'_>, &Match) -> Result<Applied, WhyNot>;

/// A shape that a variable must not have.
#[derive(Clone, Debug)]
pub struct Unless {
    /// The variable.
    pub variable: &'static str,
    /// The shape, in the frame of the rule's roots.
    pub pattern: Pattern,
    /// What it is then.
    pub because: &'static str,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name, unique, in kebab case.
    pub name: &'static str,
    /// What the equality says.
    pub tag: Tag,
    /// Facts needed of variables.
    pub facts: &'static [(&'static str, Fact)],
    /// What to look for.
    pub roots: Vec<Root>,
    /// What must not be: a variable that looks like this belongs to another operation.
    pub unless: Vec<Unless>,
    /// Variables whose classes are factors as they stand, whatever they hold, once they are bound. Where this is
    /// empty: all that the first root binds.
    pub atoms: &'static [&'static str],
    /// Further variables that become atoms. None of them may be computed from the match's other atoms, but by way of a
    /// result of a named operation; a match in which one is, is dropped.
    pub independent: &'static [&'static str],
    /// What to build.
    pub apply: Applier,
    /// Element types the rule's instances are checked in.
    pub dtypes: &'static [DType],
}

impl Rule {
    /// A rule about one class, whatever its dimensions mean.
    ///
    /// # Panics
    /// If the pattern is malformed: patterns are part of the program text, and every rule is built in tests.
    pub fn simple(name: &'static str, tag: Tag, pattern: &'static str, apply: Applier) -> Rule {
        Rule {
            name,
            tag,
            facts: &[],
            roots: vec![root("root", Frame::Any, Count::One, pattern)],
            unless: Vec::new(),
            atoms: &[],
            independent: &[],
            apply,
            dtypes: &[DType::F32, DType::BF16, DType::F64],
        }
    }

    /// The same rule, needing facts.
    pub fn needs(self, facts: &'static [(&'static str, Fact)]) -> Rule {
        Rule { facts, ..self }
    }
}

impl Root {
    /// The same root, in the type that narrow floats compute in.
    pub fn wide(self) -> Root {
        Root { wide: true, ..self }
    }
}

/// A root from the text of its pattern.
///
/// # Panics
/// As [`Rule::simple`].
pub fn root(name: &'static str, frame: Frame, count: Count, pattern: &'static str) -> Root {
    let pattern = match Pattern::parse(pattern) {
        Ok(p) => p,
        Err(e) => panic!("pattern of {name}: {e}: {pattern}"),
    };
    assert!(frame != Frame::Any || !pattern.needs_frame(), "pattern of {name} needs a frame");
    Root { name, frame, count, wide: false, pattern }
}

/// An [`Unless`] from the text of its pattern.
///
/// # Panics
/// As [`Rule::simple`].
pub fn unless(variable: &'static str, pattern: &'static str, because: &'static str) -> Unless {
    match Pattern::parse(pattern) {
        Ok(pattern) => Unless { variable, pattern, because },
        Err(e) => panic!("pattern of {variable}: {e}: {pattern}"),
    }
}
