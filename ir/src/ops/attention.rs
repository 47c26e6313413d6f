//! What happens between `q·kᵀ` and the softmax of an attention: the parameters of the fused kinds
//! [`FusedKind::Attention`](super::fused::FusedKind::Attention) and its gradient.

use super::fused::Scalar;
use crate::dtype::DType;
use std::fmt;

/// A step from the products `q·kᵀ` to the scores, each `[B,H,S,T]`. `i` counts queries, `j` keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ScoreStep {
    /// Multiplies by a number.
    Scale(Scalar),
    /// Rounds to, or widens to, an element type.
    Convert(DType),
    /// The hyperbolic tangent: between two scales, a soft cap.
    Tanh,
    /// Where not `lo ≤ i − j ≤ hi` (a missing bound does not bind): the score becomes `fill`, or `fill` is added
    /// to it. A causal mask is `lo = 0`.
    Band {
        /// Least `i − j` that is kept.
        lo: Option<i64>,
        /// Greatest `i − j` that is kept.
        hi: Option<i64>,
        /// What the score becomes, or what is added to it.
        fill: Scalar,
        /// Whether `fill` is added.
        add: bool,
    },
    /// Takes an operand `i1[B|1,H|1,S|1,T|1]`: where it is false the score becomes `fill`.
    Mask {
        /// What the score becomes.
        fill: Scalar,
    },
    /// Takes an operand `[B|1,H|1,S|1,T|1]` that is added.
    Bias,
    /// Takes an operand `[B|1,H|1,S|1,T|1]` that is multiplied: a scale that is an input.
    Factor,
}

impl ScoreStep {
    /// Whether the step takes an operand.
    pub fn takes_operand(self) -> bool {
        matches!(self, ScoreStep::Mask { .. } | ScoreStep::Bias | ScoreStep::Factor)
    }
}

/// The order of dimensions of an attention's queries, keys and values, of its output, and of their gradients. Scores and
/// what is made of them (`m`, `l`, masks, biases) have one order: `[B,N,S,…]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum AttentionLayout {
    /// Heads before positions: `[B,N,S,h]`.
    #[default]
    Bnsd,
    /// Positions before heads: `[B,S,N,h]`, as the products that give them have it.
    Bsnd,
}

impl AttentionLayout {
    /// The other order.
    pub fn other(self) -> AttentionLayout {
        match self {
            AttentionLayout::Bnsd => AttentionLayout::Bsnd,
            AttentionLayout::Bsnd => AttentionLayout::Bnsd,
        }
    }

    /// The dimension of positions.
    pub fn positions(self) -> usize {
        match self {
            AttentionLayout::Bnsd => 2,
            AttentionLayout::Bsnd => 1,
        }
    }

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            AttentionLayout::Bnsd => "bnsd",
            AttentionLayout::Bsnd => "bsnd",
        }
    }

    /// The layout of a name.
    pub fn from_name(name: &str) -> Option<AttentionLayout> {
        [AttentionLayout::Bnsd, AttentionLayout::Bsnd].into_iter().find(|l| l.name() == name)
    }
}

/// An attention's form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct AttentionForm {
    /// Steps from products to scores, in order.
    pub steps: Vec<ScoreStep>,
    /// Keys and values are repeated for each query head of their group before the products, so that their
    /// gradients are rounded per query head and then summed. Says something about narrow floats only.
    pub repeated: bool,
    /// A further operand `[B|1,H|1,S|1,1]` stands beside the scores of each row: it takes its share of the softmax and meets
    /// no value (Xiao et al., "Efficient Streaming Language Models with Attention Sinks").
    pub sink: bool,
    /// The weights are multiplied by a further operand `[B|1,H|1,S|1,T|1]` before they meet the values: dropout.
    pub weighted: bool,
    /// Products of queries and keys are summed in f32 and kept so, and so are the products that give their gradients before
    /// these are rounded. Says something about narrow floats only.
    pub wide: bool,
    /// The weights meet the values as they are, and the rows of the product are divided by the sum of the weights, rounded
    /// to the type of the values: `o = (e·v)/l`. The gradient then divides `dy` first. Says something about narrow floats
    /// only.
    pub late: bool,
    /// The gradient goes through the maximum that is subtracted from the scores, too, split among equal scores. What that
    /// adds is zero but for rounding.
    pub ties: bool,
    /// The order of dimensions.
    pub layout: AttentionLayout,
}

impl AttentionForm {
    /// The flags, with their words.
    fn flags(&mut self) -> [(&mut bool, &'static str); 6] {
        [
            (&mut self.repeated, "repeated"),
            (&mut self.sink, "sink"),
            (&mut self.weighted, "weighted"),
            (&mut self.wide, "wide"),
            (&mut self.late, "late"),
            (&mut self.ties, "ties"),
        ]
    }

    /// Operands beside q, k and v.
    pub fn operands(&self) -> usize {
        let of_steps = self.steps.iter().filter(|s| s.takes_operand()).count();
        of_steps + usize::from(self.sink) + usize::from(self.weighted)
    }

    /// The form in words, for the text form: `scale 0.25; band 0 .. select -1e9; repeated`. The layout has an attribute of
    /// its own.
    pub fn parse(text: &str) -> Option<AttentionForm> {
        let mut form = AttentionForm::default();
        let number = |w: &str| w.parse::<f64>().ok().filter(|x| !x.is_nan()).map(Scalar::new);
        for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
            if let Some((flag, _)) = form.flags().into_iter().find(|f| !*f.0 && f.1 == part) {
                *flag = true;
                continue;
            }
            let words: Vec<&str> = part.split_whitespace().collect();
            form.steps.push(match words.as_slice() {
                ["scale", x] => ScoreStep::Scale(number(x)?),
                ["convert", t] => ScoreStep::Convert(DType::from_name(t)?),
                ["tanh"] => ScoreStep::Tanh,
                ["bias"] => ScoreStep::Bias,
                ["factor"] => ScoreStep::Factor,
                ["mask", x] => ScoreStep::Mask { fill: number(x)? },
                ["band", range, how, x] => {
                    let bound = |w: &str| match w {
                        "" => Some(None),
                        w => w.parse().ok().map(Some),
                    };
                    let (lo, hi) = range.split_once("..")?;
                    let add = match *how {
                        "add" => true,
                        "select" => false,
                        _ => return None,
                    };
                    ScoreStep::Band { lo: bound(lo)?, hi: bound(hi)?, fill: number(x)?, add }
                }
                _ => return None,
            });
        }
        Some(form)
    }
}

impl fmt::Display for AttentionForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |b: Option<i64>| b.map(|b| b.to_string()).unwrap_or_default();
        for (i, s) in self.steps.iter().enumerate() {
            f.write_str(if i > 0 { "; " } else { "" })?;
            match *s {
                ScoreStep::Scale(x) => write!(f, "scale {:?}", x.get())?,
                ScoreStep::Convert(t) => write!(f, "convert {}", t.name())?,
                ScoreStep::Tanh => f.write_str("tanh")?,
                ScoreStep::Bias => f.write_str("bias")?,
                ScoreStep::Factor => f.write_str("factor")?,
                ScoreStep::Mask { fill } => write!(f, "mask {:?}", fill.get())?,
                ScoreStep::Band { lo, hi, fill, add } => {
                    let how = if add { "add" } else { "select" };
                    write!(f, "band {}..{} {how} {:?}", bound(lo), bound(hi), fill.get())?;
                }
            }
        }
        let mut first = self.steps.is_empty();
        for (flag, word) in self.clone().flags() {
            if *flag {
                f.write_str(if first { "" } else { "; " })?;
                f.write_str(word)?;
                first = false;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_survive_their_text() {
        let steps = vec![
            ScoreStep::Scale(Scalar::new(0.088_388_346)),
            ScoreStep::Convert(DType::F32),
            ScoreStep::Tanh,
            ScoreStep::Band { lo: Some(0), hi: None, fill: Scalar::new(f64::NEG_INFINITY), add: false },
            ScoreStep::Band {
                lo: Some(-3),
                hi: Some(8),
                fill: Scalar::new(-3.4028234663852886e38),
                add: true,
            },
            ScoreStep::Mask { fill: Scalar::new(-1e9) },
            ScoreStep::Bias,
            ScoreStep::Factor,
        ];
        for form in [
            AttentionForm {
                steps,
                repeated: true,
                sink: true,
                weighted: true,
                wide: true,
                late: true,
                ties: true,
                ..AttentionForm::default()
            },
            AttentionForm::default(),
            AttentionForm { repeated: true, ..AttentionForm::default() },
            AttentionForm { weighted: true, ..AttentionForm::default() },
            AttentionForm { sink: true, ..AttentionForm::default() },
            AttentionForm { wide: true, ..AttentionForm::default() },
            AttentionForm { late: true, ties: true, ..AttentionForm::default() },
        ] {
            assert_eq!(AttentionForm::parse(&form.to_string()), Some(form));
        }
        for wrong in
            ["scale", "scale x", "band 0 select 1", "repeated; repeated", "mask nan", "band 1..2 3 4"]
        {
            assert_eq!(AttentionForm::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn layouts_have_names_and_another_each() {
        for layout in [AttentionLayout::Bnsd, AttentionLayout::Bsnd] {
            assert_eq!(AttentionLayout::from_name(layout.name()), Some(layout));
            assert_eq!(layout.other().other(), layout);
            // Batch first and the width of a head last in either, positions and heads between.
            assert_eq!(layout.positions() + layout.other().positions(), 3);
        }
        assert_eq!(AttentionLayout::from_name("sbnd"), None);
    }
}
