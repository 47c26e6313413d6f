//! Attributes that StableHLO groups and VHLO writes as fields of the op: dimension numbers, dot algorithms and
//! channel handles.

use super::canonical::{list, named, take, wrong};
use super::table::OpRow;
use crate::error::Code;
use crate::mlir_bytecode::decode::Decoder;
use crate::mlir_bytecode::fault::{Fault, Result};
use crate::raw::{Attr, Attrs, Type};

/// A field of a group, called the same in VHLO.
enum Field {
    /// A list of numbers.
    List(&'static str),
    /// One number.
    Number(&'static str),
}

use Field::{List, Number};

const DOT: &[Field] = &[
    List("lhs_batching_dimensions"),
    List("rhs_batching_dimensions"),
    List("lhs_contracting_dimensions"),
    List("rhs_contracting_dimensions"),
];

const GATHER: &[Field] = &[
    List("offset_dims"),
    List("collapsed_slice_dims"),
    List("operand_batching_dims"),
    List("start_indices_batching_dims"),
    List("start_index_map"),
    Number("index_vector_dim"),
];

const SCATTER: &[Field] = &[
    List("update_window_dims"),
    List("inserted_window_dims"),
    List("input_batching_dims"),
    List("scatter_indices_batching_dims"),
    List("scatter_dims_to_operand_dims"),
    Number("index_vector_dim"),
];

const CONV: &[Field] = &[
    Number("input_batch_dimension"),
    Number("input_feature_dimension"),
    List("input_spatial_dimensions"),
    Number("kernel_input_feature_dimension"),
    Number("kernel_output_feature_dimension"),
    List("kernel_spatial_dimensions"),
    Number("output_batch_dimension"),
    Number("output_feature_dimension"),
    List("output_spatial_dimensions"),
];

/// Fields of a dot algorithm.
const ALGORITHM: [&str; 7] = [
    "lhs_precision_type",
    "rhs_precision_type",
    "accumulation_type",
    "lhs_component_count",
    "rhs_component_count",
    "num_primitive_operations",
    "allow_imprecise_accumulation",
];

/// Takes the fields of the op's groups out of `fields` and returns the groups.
///
/// # Errors
/// Where a field of a group is of another form, or a dot algorithm is given in part.
pub(super) fn take_groups<'a>(
    d: &mut Decoder<'a, '_>,
    row: &OpRow,
    fields: &mut Attrs<'a>,
    at: usize,
) -> Result<Attrs<'a>> {
    let mut out = Attrs::new();
    match row.canonical {
        "stablehlo.dot_general" => {
            out.push(group(d, "dot_dimension_numbers", "dot", DOT, fields, at)?);
            out.extend(algorithm(d, fields, at)?);
        }
        "stablehlo.gather" | "stablehlo.dynamic_gather" => {
            out.push(group(d, "dimension_numbers", "gather", GATHER, fields, at)?);
        }
        "stablehlo.scatter" => {
            out.push(group(d, "scatter_dimension_numbers", "scatter", SCATTER, fields, at)?);
        }
        "stablehlo.convolution" => {
            out.push(group(d, "dimension_numbers", "conv", CONV, fields, at)?);
        }
        "stablehlo.dynamic_conv" => {
            out.push(group(d, "dimension_numbers", "conv", CONV, fields, at)?);
            // The first version wrote the padding as an attribute besides; the operand counts.
            take(fields, "padding");
        }
        _ => {}
    }
    if let Some(id) = take(fields, "channel_id") {
        let Attr::Int(number, _) = id else {
            return Err(wrong("channel_id", "an integer", &id, at));
        };
        let kind = take(fields, "channel_type");
        // 0 stands for no channel, except on ops that always have one.
        if number != 0 || kind.is_some() {
            let kind = kind.unwrap_or_else(|| d.int(0));
            let handle = Attr::Struct("channel_handle", vec![named("handle", id), named("type", kind)]);
            out.push(named("channel_handle", handle));
        }
    }
    Ok(out)
}

fn group<'a>(
    d: &mut Decoder<'a, '_>,
    attribute: &'static str,
    kind: &'static str,
    members: &[Field],
    fields: &mut Attrs<'a>,
    at: usize,
) -> Result<(std::borrow::Cow<'a, str>, Attr<'a>)> {
    let mut group = Attrs::with_capacity(members.len());
    for member in members {
        match *member {
            List(name) => {
                let Some(value) = take(fields, name) else { continue };
                let value = list(d, &value, name, at)?;
                // MLIR's text has no empty lists either.
                if !value.is_empty() {
                    group.push(named(name, Attr::Ints(value)));
                }
            }
            Number(name) => match take(fields, name) {
                Some(value @ Attr::Int(..)) => group.push(named(name, value)),
                Some(other) => return Err(wrong(name, "an integer", &other, at)),
                None => return Err(Fault::new(Code::Attribute, at, format!("attribute {name} is missing"))),
            },
        }
    }
    Ok(named(attribute, Attr::Struct(kind, group)))
}

/// The dot algorithm; VHLO writes the type `none` into all of its fields where there is no algorithm.
fn algorithm<'a>(
    d: &Decoder<'a, '_>,
    fields: &mut Attrs<'a>,
    at: usize,
) -> Result<Option<(std::borrow::Cow<'a, str>, Attr<'a>)>> {
    let mut group = Attrs::new();
    let mut absent = 0;
    for name in ALGORITHM {
        match take(fields, name) {
            None => absent += 1,
            Some(Attr::Type(t)) if *d.types.get(t) == Type::None => absent += 1,
            Some(value) => group.push(named(name, value)),
        }
    }
    match (group.is_empty(), absent) {
        (true, _) => Ok(None),
        (false, 0) => Ok(Some(named("algorithm", Attr::Struct("dot_algorithm", group)))),
        _ => Err(Fault::new(Code::Attribute, at, "a dot algorithm with some of its fields alone")),
    }
}
