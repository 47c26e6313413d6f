//! What a compilation knows of a step beside its instructions: what its inputs are for, and how much it computes.

use msc_ir::ops::fused::Scalar;

/// What an input is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Token ids.
    Ids,
    /// The tokens to be predicted.
    Labels,
    /// Positions of the tokens.
    Positions,
    /// Which tokens count.
    Mask,
    /// A parameter that training begins with at random values.
    Weight,
    /// Begins with the same value everywhere: scales of norms, biases, moments, counters.
    Filled(Scalar),
    /// A copy of another input (its index) in another float type.
    Copy(u32),
    /// Angular frequencies of rotary positions.
    Frequencies,
    /// The key of a counter-based random number generator.
    Key,
    /// Something that only the user knows: run-time scalars, tables.
    Given,
}

impl Role {
    /// Name in plans and reports.
    pub fn name(self) -> &'static str {
        match self {
            Role::Ids => "ids",
            Role::Labels => "labels",
            Role::Positions => "positions",
            Role::Mask => "mask",
            Role::Weight => "weight",
            Role::Filled(_) => "filled",
            Role::Copy(_) => "copy",
            Role::Frequencies => "frequencies",
            Role::Key => "key",
            Role::Given => "given",
        }
    }

    /// The number that goes with the name in a plan: the value's bits, or the copied input.
    pub(super) fn number(self) -> u64 {
        match self {
            Role::Filled(x) => x.get().to_bits(),
            Role::Copy(n) => n.into(),
            _ => 0,
        }
    }

    /// The inverse of [`Role::name`] and [`Role::number`].
    pub(super) fn from_parts(name: &str, number: u64) -> Option<Role> {
        Some(match name {
            "ids" => Role::Ids,
            "labels" => Role::Labels,
            "positions" => Role::Positions,
            "mask" => Role::Mask,
            "weight" => Role::Weight,
            "filled" => Role::Filled(Scalar::new(f64::from_bits(number))),
            "copy" => Role::Copy(u32::try_from(number).ok()?),
            "frequencies" => Role::Frequencies,
            "key" => Role::Key,
            "given" => Role::Given,
            _ => return None,
        })
    }
}

/// An input's role and why it has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputRole {
    /// What it is for.
    pub role: Role,
    /// What shows that, for reports.
    pub why: String,
}

/// What is known of a step. All counts are of the whole step, over all ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepInfo {
    /// Floating-point operations of matrix products and convolutions, two for each multiply-add.
    pub matmul_flops: u64,
    /// Rows of the table that the token ids index; 0 if the step has no ids.
    pub vocabulary: u64,
    /// Whether the step itself compares the prediction at a position with the label at the next one, so that
    /// labels are the ids themselves.
    pub shifts_labels: bool,
    /// One for each input; empty where a plan does not say it.
    pub inputs: Vec<InputRole>,
}

impl StepInfo {
    /// The role of an input.
    pub fn role(&self, n: usize) -> Role {
        self.inputs.get(n).map_or(Role::Given, |i| i.role)
    }

    /// The first input of a role.
    pub fn first(&self, role: Role) -> Option<usize> {
        self.inputs.iter().position(|i| i.role == role)
    }
}
