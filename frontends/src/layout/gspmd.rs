//! GSPMD's strings: `{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}` (the text form of OpenXLA's
//! `HloSharding`).

use super::tiling::{Digit, Tiling, deal, of_list, row_major};

/// What a string says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Spec {
    /// Every device holds the whole tensor.
    Replicated,
    /// Tiles.
    Tiled {
        /// Where each tile lies.
        tiling: Tiling,
        /// The number of devices.
        devices: usize,
    },
    /// The partitioner is free.
    Unknown,
}

/// Why a string is not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It means something that a layout cannot hold, as this says.
    Form(&'static str),
    /// It fits no mesh, as this says.
    Unfit(&'static str),
    /// It is not of the text form.
    Syntax(String),
}

/// Most devices that a string may name.
const MAX_DEVICES: usize = super::MAX_RANKS;

/// Reads a string for a tensor of this rank.
pub(super) fn read(text: &str, rank: usize) -> Result<Spec, Refused> {
    if text.trim().is_empty() {
        return Ok(Spec::Unknown);
    }
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}'));
    let Some(inner) = inner else { return Err(syntax("it should stand in braces")) };
    let mut r = Reader { rest: inner };
    if r.peek('{') {
        return Err(Refused::Form("a tuple of shardings belongs to several tensors"));
    }
    let spec = if r.word("replicated") {
        Spec::Replicated
    } else if r.word("maximal") {
        return Err(Refused::Form("the whole tensor lies on one device and nowhere else"));
    } else if r.word("manual") {
        return Err(Refused::Form("the tensor is already cut by hand"));
    } else if r.word("unreduced") {
        return Err(Refused::Form("the tensor is a partial sum on each device"));
    } else if r.word("unknown") {
        Spec::Unknown
    } else if r.word("devices=") {
        return tiles(&mut r, rank);
    } else {
        return Err(syntax(format!("`{}` is not known", r.rest)));
    };
    r.tail()?;
    Ok(spec)
}

fn syntax(message: impl Into<String>) -> Refused {
    Refused::Syntax(message.into())
}

/// What follows `devices=`.
fn tiles(r: &mut Reader<'_>, rank: usize) -> Result<Spec, Refused> {
    let tiles = r.list('[', ']')?;
    let product = |v: &[usize]| v.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).filter(|&n| n > 0);
    let Some(devices) = product(&tiles).filter(|&n| n <= MAX_DEVICES) else {
        return Err(syntax(format!("between 1 and {MAX_DEVICES} devices can be named")));
    };
    let digits: Vec<Digit> = if r.word("<=") {
        let sizes = r.list('[', ']')?;
        if product(&sizes) != Some(devices) {
            return Err(syntax(format!("{tiles:?} tiles do not take the devices {sizes:?}")));
        }
        let digits = row_major(&sizes);
        if r.word("T") {
            let order = r.list('(', ')')?;
            let mut seen = order.clone();
            seen.sort_unstable();
            if seen != (0..sizes.len()).collect::<Vec<_>>() {
                return Err(syntax(format!("T{order:?} is no order of the dimensions of {sizes:?}")));
            }
            order.iter().map(|&i| digits[i]).collect()
        } else {
            digits
        }
    } else {
        let list = r.numbers()?;
        if list.len() != devices {
            return Err(syntax(format!("{tiles:?} tiles do not take {} devices", list.len())));
        }
        of_list(&list).ok_or(Refused::Unfit("its devices stand in an order that no mesh has"))?
    };
    let kinds = r.tail()?;
    if tiles.len() != rank + kinds {
        return Err(syntax(format!(
            "{} dimensions are tiled, the tensor has {rank}",
            tiles.len() - kinds.min(tiles.len())
        )));
    }
    let mut dims = deal(&digits, &tiles)
        .ok_or(Refused::Unfit("its tiles cut the devices where no axis of a mesh ends"))?;
    dims.truncate(rank);
    Ok(Spec::Tiled { tiling: Tiling { open: vec![false; rank], dims }, devices })
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn peek(&self, c: char) -> bool {
        self.rest.trim_start().starts_with(c)
    }

    fn word(&mut self, word: &str) -> bool {
        match self.rest.trim_start().strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Numbers with commas between them.
    fn numbers(&mut self) -> Result<Vec<usize>, Refused> {
        let mut out = Vec::new();
        loop {
            let text = self.rest.trim_start();
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = text[..digits]
                .parse()
                .map_err(|_| syntax(format!("a number should stand before `{text}`")))?;
            out.push(number);
            self.rest = &text[digits..];
            if out.len() > MAX_DEVICES {
                return Err(syntax("too many numbers"));
            }
            if !self.word(",") {
                return Ok(out);
            }
        }
    }

    fn list(&mut self, open: char, close: char) -> Result<Vec<usize>, Refused> {
        if !self.word(&open.to_string()) {
            return Err(syntax(format!("`{open}` should stand before `{}`", self.rest)));
        }
        let out = self.numbers()?;
        match self.word(&close.to_string()) {
            true => Ok(out),
            false => Err(syntax(format!("`{close}` should stand before `{}`", self.rest))),
        }
    }

    /// What may follow: how many of the last tiles are copies; metadata and groups of like tensors, which say
    /// nothing of the layout itself.
    fn tail(&mut self) -> Result<usize, Refused> {
        let mut copies = 0;
        while !self.rest.trim().is_empty() {
            if self.word("last_tile_dim_replicate") {
                copies = 1;
            } else if self.word("last_tile_dims={") {
                let (kinds, rest) = self
                    .rest
                    .split_once('}')
                    .ok_or_else(|| syntax("`}` is missing behind last_tile_dims"))?;
                self.rest = rest;
                for kind in kinds.split(',').map(str::trim) {
                    match kind {
                        "replicated" => copies += 1,
                        "manual" => return Err(Refused::Form("the tensor is already cut by hand")),
                        "unreduced" => {
                            return Err(Refused::Form("the tensor is a partial sum on each device"));
                        }
                        _ => return Err(syntax(format!("last_tile_dims of kind `{kind}`"))),
                    }
                }
            } else if self.word("metadata=") {
                // The last thing in the string.
                self.rest = "";
            } else if self.word("shard_as") || self.word("shard_like") {
                self.numbers()?;
            } else {
                return Err(syntax(format!("`{}` is not known", self.rest.trim())));
            }
        }
        Ok(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiled(text: &str, rank: usize) -> Vec<Vec<(usize, usize)>> {
        match read(text, rank) {
            Ok(Spec::Tiled { tiling, .. }) => {
                tiling.dims.iter().map(|d| d.iter().map(|x| (x.stride, x.size)).collect()).collect()
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn tiles_of_both_versions() {
        assert_eq!(tiled("{devices=[2,4]<=[8]}", 2), [vec![(4, 2)], vec![(1, 4)]]);
        assert_eq!(tiled("{devices=[2,4]0,1,2,3,4,5,6,7}", 2), [vec![(4, 2)], vec![(1, 4)]]);
        let transposed = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}";
        assert_eq!(tiled(transposed, 2), [vec![(1, 4)], vec![]]);
        assert_eq!(
            tiled("{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dims={replicated}}", 2),
            [vec![(1, 4)], vec![]]
        );
        assert_eq!(tiled("{devices=[2]<=[2] metadata={op_name=\"a{b\"}}", 1), [vec![(1, 2)]]);
        assert_eq!(tiled("{devices=[2]<=[2] shard_as 1}", 1), [vec![(1, 2)]]);
    }

    #[test]
    fn words() {
        assert_eq!(read("{replicated}", 3), Ok(Spec::Replicated));
        assert_eq!(read(" {unknown} ", 0), Ok(Spec::Unknown));
        assert_eq!(read("", 2), Ok(Spec::Unknown));
        for form in ["{maximal device=0}", "{manual}", "{{replicated}, {manual}}"] {
            assert!(matches!(read(form, 1), Err(Refused::Form(_))), "{form}");
        }
        for odd in ["{devices=[2]1,0}", "{devices=[4,3]<=[6,2]}"] {
            assert!(matches!(read(odd, odd.matches(',').count()), Err(Refused::Unfit(_))), "{odd}");
        }
        let manual = "{devices=[2,2]<=[4] last_tile_dims={manual}}";
        assert!(matches!(read(manual, 1), Err(Refused::Form(_))));
    }

    #[test]
    fn what_is_no_string_of_this_form() {
        for bad in [
            "replicated",
            "{tiled}",
            "{devices=}",
            "{devices=[2,2]<=[8]}",
            "{devices=[2]<=[2]T(1)}",
            "{devices=[2]<=[2]T(0,0)}",
            "{devices=[2,2]0,1}",
            "{devices=[0]<=[0]}",
            "{devices=[99999999999999999999]<=[2]}",
            "{devices=[4294967296,4294967296]<=[2]}",
            "{devices=[2,2]<=[4]}",
            "{devices=[2]<=[2] more}",
            "{devices=[2]<=[2] last_tile_dims={what}}",
            "{devices=[2]<=[2] last_tile_dims={replicated",
        ] {
            assert!(matches!(read(bad, 1), Err(Refused::Syntax(_))), "{bad}: {:?}", read(bad, 1));
        }
    }
}
