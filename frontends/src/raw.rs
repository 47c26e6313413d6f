//! The raw form: a parsed MLIR module, before it means anything.
//!
//! Both readers (text, bytecode) produce a [`RawModule`] and the importer ([`crate::import`]) reads it. It borrows
//! from the source bytes (a memory map): names are slices, and dense constants stay where they are until the
//! importer decodes them straight into the constant store.
//!
//! **Canonical form.** Whatever the source looked like, ops and attributes carry the names and forms of MLIR's
//! generic form in the current StableHLO: `stablehlo.dot_general` with `dot_dimension_numbers` as an
//! [`Attr::Struct`], `func.func` with `sym_name`, `function_type`, `arg_attrs`, `res_attrs` and one region,
//! `func.call` with `callee`, enums as [`Attr::Word`]. The text reader expands the pretty form to this, the
//! bytecode reader upgrades VHLO to this. Inherent and discardable attributes are in one list.
//! Attributes with their default value may be left out.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the source bytes are; says how an op's place is written in messages and locations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// MLIR text: places are lines and columns.
    Text,
    /// MLIR bytecode: places are byte offsets, lines are the ops' ordinals.
    Bytecode,
}

/// A parsed module.
#[derive(Debug)]
pub struct RawModule<'a> {
    /// The file as the user named it.
    pub file: Arc<str>,
    /// The whole source.
    pub source: &'a [u8],
    /// What the source is.
    pub form: Form,
    /// The module's symbol name, empty if it has none.
    pub name: Cow<'a, str>,
    /// The module's attributes.
    pub attrs: Attrs<'a>,
    /// The module's body: `func.func`, `sdy.mesh`.
    pub body: Vec<RawOp<'a>>,
    /// All types.
    pub types: TypeTable,
    /// Type of each value, indexed by [`Value`].
    pub values: Vec<TypeId>,
    /// All locations; [`LocRef`] 0 is the unknown location.
    pub locs: Vec<RawLoc<'a>>,
    /// Resource blobs by key: elements after the alignment prefix is taken off.
    pub resources: BTreeMap<Cow<'a, str>, DenseData<'a>>,
}

impl<'a> RawModule<'a> {
    /// An empty module over a source.
    pub fn new(file: &str, source: &'a [u8], form: Form) -> RawModule<'a> {
        RawModule {
            file: file.into(),
            source,
            form,
            name: Cow::Borrowed(""),
            attrs: Attrs::new(),
            body: Vec::new(),
            types: TypeTable::default(),
            values: Vec::new(),
            locs: vec![RawLoc::Unknown],
            resources: BTreeMap::new(),
        }
    }

    /// Adds consecutive values of these types.
    pub fn new_values(&mut self, types: &[TypeId]) -> Values {
        let first = self.values.len() as u32;
        self.values.extend_from_slice(types);
        Values { first, count: types.len() as u32 }
    }

    /// The type of a value.
    pub fn value_type(&self, v: Value) -> &Type {
        self.types.get(self.values[v.0 as usize])
    }

    /// Adds a location.
    pub fn new_loc(&mut self, loc: RawLoc<'a>) -> LocRef {
        self.locs.push(loc);
        LocRef(self.locs.len() as u32 - 1)
    }
}

/// A value: index into [`RawModule::values`], unique in the module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Value(pub u32);

/// Consecutive values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Values {
    /// The first one.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Values {
    /// The values.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Value> + Clone {
        (self.first..self.first + self.count).map(Value)
    }

    /// How many.
    pub fn len(self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// The value at `i`.
    pub fn get(self, i: usize) -> Option<Value> {
        (i < self.len()).then(|| Value(self.first + i as u32))
    }
}

/// Named attributes, in the source's order.
pub type Attrs<'a> = Vec<(Cow<'a, str>, Attr<'a>)>;

/// The attribute with this name.
pub fn attr<'m, 'a>(attrs: &'m [(Cow<'a, str>, Attr<'a>)], name: &str) -> Option<&'m Attr<'a>> {
    attrs.iter().find(|(k, _)| k == name).map(|(_, v)| v)
}

/// An operation.
#[derive(Debug)]
pub struct RawOp<'a> {
    /// Full name with dialect, `stablehlo.add`.
    pub name: Cow<'a, str>,
    /// Operands. Every operand is defined before the op, in the same or an enclosing region.
    pub operands: SmallVec<[Value; 3]>,
    /// Results.
    pub results: Values,
    /// Attributes.
    pub attrs: Attrs<'a>,
    /// Regions.
    pub regions: Vec<Region<'a>>,
    /// Debug location, [`LocRef::UNKNOWN`] if the source has none.
    pub loc: LocRef,
    /// Byte offset of the op in the source (text: of its name).
    pub at: usize,
}

impl<'a> RawOp<'a> {
    /// The attribute with this name.
    pub fn attr(&self, name: &str) -> Option<&Attr<'a>> {
        attr(&self.attrs, name)
    }
}

/// A region.
#[derive(Debug, Default)]
pub struct Region<'a> {
    /// Blocks; StableHLO has one.
    pub blocks: Vec<Block<'a>>,
}

/// A block.
#[derive(Debug, Default)]
pub struct Block<'a> {
    /// Arguments.
    pub args: Values,
    /// One per argument, or empty where the source has none.
    pub arg_info: Vec<ArgInfo<'a>>,
    /// Ops; the last one is the terminator.
    pub ops: Vec<RawOp<'a>>,
}

/// What the source says of a block argument beside its type.
#[derive(Clone, Debug, Default)]
pub struct ArgInfo<'a> {
    /// The SSA name without `%`, empty if unknown.
    pub name: &'a str,
    /// Debug location.
    pub loc: LocRef,
}

/// Index into [`RawModule::locs`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct LocRef(pub u32);

impl LocRef {
    /// The unknown location.
    pub const UNKNOWN: LocRef = LocRef(0);
}

/// A debug location. References may form cycles in hostile input; who follows them bounds the depth.
#[derive(Clone, Debug)]
pub enum RawLoc<'a> {
    /// Nothing is known.
    Unknown,
    /// A place in a file (the start of a range).
    File {
        /// File.
        file: Cow<'a, str>,
        /// 1-based line.
        line: u32,
        /// 1-based column.
        column: u32,
    },
    /// A name, and where it stands.
    Name {
        /// The name: a scope like `jit(step)/dot_general`, or an argument's path.
        name: Cow<'a, str>,
        /// Where.
        child: LocRef,
    },
    /// A call.
    CallSite {
        /// Where the callee is.
        callee: LocRef,
        /// Where it is called.
        caller: LocRef,
    },
    /// Several locations.
    Fused(Vec<LocRef>),
    /// Another location (an alias that was defined after its use).
    Alias(LocRef),
}

/// Index into a [`TypeTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TypeId(pub u32);

/// Interned types: equal types have equal ids.
#[derive(Clone, Debug, Default)]
pub struct TypeTable {
    types: Vec<Type>,
    index: FxHashMap<Type, TypeId>,
}

impl TypeTable {
    /// The id of a type, added if new.
    pub fn intern(&mut self, ty: Type) -> TypeId {
        if let Some(&id) = self.index.get(&ty) {
            return id;
        }
        let id = TypeId(self.types.len() as u32);
        self.types.push(ty.clone());
        self.index.insert(ty, id);
        id
    }

    /// The type behind an id.
    ///
    /// # Panics
    /// If the id is of another table: a bug in a reader.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Number of types.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is no type.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// All types.
    pub fn iter(&self) -> impl Iterator<Item = &Type> {
        self.types.iter()
    }
}

/// A type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// A ranked tensor; a dimension of unknown size is `None`.
    Tensor {
        /// Dimension sizes.
        dims: SmallVec<[Option<u64>; 4]>,
        /// Element type.
        elem: Elem,
    },
    /// A scalar type outside a tensor (as of an integer attribute).
    Scalar(Elem),
    /// A function type.
    Function {
        /// Inputs.
        inputs: Vec<TypeId>,
        /// Results.
        results: Vec<TypeId>,
    },
    /// A tuple.
    Tuple(Vec<TypeId>),
    /// `!stablehlo.token`.
    Token,
    /// `none`.
    None,
    /// Any other type, as MLIR writes it.
    Other(String),
}

/// An element type.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Elem {
    /// Signless integer `iN`; `i1` is the boolean.
    Int(u32),
    /// Unsigned integer `uiN`.
    Uint(u32),
    /// Half precision.
    F16,
    /// bfloat16.
    BF16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// `index`.
    Index,
    /// Complex.
    Complex(Box<Elem>),
    /// Any other element type, as MLIR writes it (`f8E4M3FN`, `!quant.uniform<…>`, `si8`).
    Other(String),
}

/// A dense constant's elements, row-major, not yet decoded.
#[derive(Clone, PartialEq, Debug)]
pub enum DenseData<'a> {
    /// Little-endian elements: all of them, or one for a splat. `i1` one byte each, or eight to a byte
    /// (lowest bit first), told apart by the length; the single byte `FF` is splat true.
    Bytes(Cow<'a, [u8]>),
    /// The same as [`DenseData::Bytes`], as pairs of hexadecimal digits (without quotes and `0x`).
    Hex(&'a [u8]),
    /// The text between `dense<` and `>`: one literal (a splat) or nested lists.
    Literal(&'a [u8]),
    /// A blob of [`RawModule::resources`].
    Resource(Cow<'a, str>),
}

/// An attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Attr<'a> {
    /// Present without a value.
    Unit,
    /// `true`, `false`.
    Bool(bool),
    /// An integer; unsigned ones above 2⁶³ by their bits.
    Int(i64, TypeId),
    /// A float.
    Float(f64, TypeId),
    /// A string.
    Str(Cow<'a, str>),
    /// An enum's keyword: `#stablehlo<comparison_direction EQ>` is `EQ`.
    Word(Cow<'a, str>),
    /// A symbol reference without `@`; nested ones joined by `::`.
    Symbol(Cow<'a, str>),
    /// A list.
    Array(Vec<Attr<'a>>),
    /// `array<i64: …>`, `array<i1: …>`.
    Ints(Vec<i64>),
    /// `array<f32: …>`.
    Floats(Vec<f64>),
    /// `dense<…> : type`, `dense_resource<…> : type`.
    Dense(TypeId, DenseData<'a>),
    /// A dictionary.
    Dict(Attrs<'a>),
    /// A type.
    Type(TypeId),
    /// A dialect's attribute with named fields: `#stablehlo.gather<offset_dims = [2], …>` is `gather` with its
    /// fields (lists of integers as [`Attr::Ints`]). Used for `stablehlo.dot`, `.gather`, `.scatter`,
    /// `.channel_handle` (`handle`, `type`), `.dot_algorithm`, `.output_operand_alias`, `chlo.ragged_dot`.
    /// Convolution's dimension numbers are the struct `conv` with `input_batch_dimension`, …,
    /// `output_spatial_dimensions`.
    Struct(&'a str, Attrs<'a>),
    /// `#sdy.sharding<…>`.
    Sharding(Box<Sharding>),
    /// `#sdy.sharding_per_value<…>`.
    Shardings(Vec<Sharding>),
    /// `#sdy.mesh<…>`.
    Mesh(Box<Mesh>),
    /// Any other attribute, as MLIR writes it.
    Other(Cow<'a, str>),
}

/// A Shardy sharding of one tensor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sharding {
    /// The mesh's symbol; empty where the mesh stands in the sharding itself (`inline_mesh`).
    pub mesh: String,
    /// A mesh written in place.
    pub inline_mesh: Option<Mesh>,
    /// One per dimension.
    pub dims: Vec<DimSharding>,
    /// Axes over which the tensor must be whole.
    pub replicated: Vec<AxisRef>,
    /// Axes over which the tensor is a partial sum.
    pub unreduced: Vec<AxisRef>,
}

/// How one dimension is split.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DimSharding {
    /// The axes that split it, outermost first.
    pub axes: Vec<AxisRef>,
    /// Whether propagation may add axes (`?`).
    pub open: bool,
    /// Priority `pN`, 0 if none is written.
    pub priority: u32,
}

/// A mesh axis or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisRef {
    /// The axis.
    pub name: String,
    /// `(pre-size, size)` of a sub-axis.
    pub sub: Option<(i64, i64)>,
}

/// A Shardy mesh.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mesh {
    /// Axes, outermost first.
    pub axes: Vec<(String, i64)>,
    /// Device numbers in mesh order; empty for 0, 1, 2, …
    pub device_ids: Vec<i64>,
}
