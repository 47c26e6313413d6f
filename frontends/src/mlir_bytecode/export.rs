//! `jax.export`'s serialised form: a FlatBuffer whose root table `Exported` holds the artifact as a byte vector.

use super::container::MAGIC;
use std::ops::Range;

/// Field `mlir_module_serialized` of the root table.
const MODULE_FIELD: usize = 13;

/// Where the artifact is in a serialised `jax.export.Exported`, or `None` where the bytes are not one.
///
/// The format has no identifier of its own, so what is found must start as MLIR bytecode does.
pub fn locate(bytes: &[u8]) -> Option<Range<usize>> {
    let root = u32_at(bytes, 0)?;
    let vtable =
        usize::try_from(i64::try_from(root).ok()? - i64::from(u32_at(bytes, root)? as u32 as i32)).ok()?;
    let slot = 4 + 2 * MODULE_FIELD;
    if slot + 2 > usize::from(u16_at(bytes, vtable)?) {
        return None;
    }
    let field = match u16_at(bytes, vtable.checked_add(slot)?)? {
        0 => return None,
        offset => root.checked_add(usize::from(offset))?,
    };
    let vector = field.checked_add(u32_at(bytes, field)?)?;
    let start = vector.checked_add(4)?;
    let end = start.checked_add(u32_at(bytes, vector)?)?;
    bytes.get(start..end)?.starts_with(&MAGIC).then_some(start..end)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(b.try_into().ok()?) as usize)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let b = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(b.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root table with field 13 alone: vtable, table, vector.
    fn exported(artifact: &[u8]) -> Vec<u8> {
        let vtable_len = 4 + 2 * (MODULE_FIELD + 1);
        let mut b = Vec::new();
        let (vtable, table) = (4usize, 4 + vtable_len);
        b.extend((table as u32).to_le_bytes());
        b.extend((vtable_len as u16).to_le_bytes());
        b.extend(8u16.to_le_bytes());
        b.extend(vec![0; 2 * MODULE_FIELD]);
        b.extend(4u16.to_le_bytes());
        b.extend(((table - vtable) as i32).to_le_bytes());
        b.extend(4u32.to_le_bytes());
        b.extend((artifact.len() as u32).to_le_bytes());
        b.extend(artifact);
        b
    }

    #[test]
    fn finds_the_artifact() {
        let artifact = [&MAGIC[..], b"rest"].concat();
        let file = exported(&artifact);
        let range = locate(&file).unwrap();
        assert_eq!(&file[range], artifact);
    }

    /// A vector past the end, one that is no bytecode, and truncation at every byte.
    #[test]
    fn refuses_what_is_no_export() {
        let mut file = exported(&MAGIC);
        for n in 0..file.len() {
            assert_eq!(locate(&file[..n]), None);
        }
        let length = file.len() - 8;
        file[length] = 200;
        assert_eq!(locate(&file), None);
        assert_eq!(locate(&exported(b"text")), None);
        assert_eq!(locate(&[0xFF; 64]), None);
    }
}
