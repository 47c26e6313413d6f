//! The messages in a plan's sections (protocol buffers, proto3).
//!
//! Strings, tensor types, locations and ops are in tables and referred to by index. Names of element types,
//! ops, attributes and stream kinds are written out, so that no enum's order is part of the format. Fields may
//! be added with new numbers; a number is never used again for another meaning.

use prost::{Message, Oneof};

/// Section `meta`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Meta {
    /// Version of the msc that wrote the plan.
    #[prost(string, tag = "1")]
    pub msc_version: String,
    /// BLAKE3 of the source.
    #[prost(bytes = "vec", tag = "2")]
    pub source_hash: Vec<u8>,
    /// Options of the compilation, in the order given.
    #[prost(message, repeated, tag = "3")]
    pub options: Vec<NamedOption>,
    /// The type the step computes in: `f32`, `bf16`, `fp16`.
    #[prost(string, tag = "4")]
    pub compute: String,
    #[prost(message, optional, tag = "5")]
    pub step: Option<StepInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StepInfo {
    #[prost(uint64, tag = "1")]
    pub matmul_flops: u64,
    #[prost(uint64, tag = "2")]
    pub vocabulary: u64,
    #[prost(bool, tag = "3")]
    pub shifts_labels: bool,
    /// One for each input, or none.
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<InputRole>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InputRole {
    #[prost(string, tag = "1")]
    pub role: String,
    /// Bits of the value that fills an input; index of the input that another copies.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(string, tag = "3")]
    pub why: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NamedOption {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Section `tables`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Tables {
    #[prost(string, repeated, tag = "1")]
    pub strings: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub types: Vec<Type>,
    /// Location 0 is the unknown one and not listed: the first is number 1.
    #[prost(message, repeated, tag = "3")]
    pub locations: Vec<Location>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Type {
    /// String: name of the element type.
    #[prost(uint32, tag = "1")]
    pub dtype: u32,
    #[prost(uint64, repeated, tag = "2")]
    pub shape: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    /// String.
    #[prost(uint32, tag = "1")]
    pub file: u32,
    #[prost(uint32, tag = "2")]
    pub line: u32,
    #[prost(uint32, tag = "3")]
    pub column: u32,
    /// String.
    #[prost(uint32, tag = "4")]
    pub name: u32,
}

/// Section `module`: what instructions refer to, and what all rank classes share.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Module {
    /// String.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    #[prost(message, repeated, tag = "2")]
    pub mesh: Vec<MeshAxis>,
    /// Distinct ops; an op's graphs precede it in `graphs`.
    #[prost(message, repeated, tag = "3")]
    pub ops: Vec<Op>,
    /// Callees before callers.
    #[prost(message, repeated, tag = "4")]
    pub graphs: Vec<Graph>,
    /// Those that ops refer to come first.
    #[prost(message, repeated, tag = "5")]
    pub constants: Vec<Constant>,
    /// How many of the constants ops refer to.
    #[prost(uint32, tag = "6")]
    pub op_constants: u32,
    #[prost(message, optional, tag = "7")]
    pub entry: Option<Entry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MeshAxis {
    /// String.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    #[prost(uint64, tag = "2")]
    pub size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Op {
    /// String.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    #[prost(message, repeated, tag = "2")]
    pub attrs: Vec<Attr>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attr {
    /// String.
    #[prost(uint32, tag = "1")]
    pub key: u32,
    #[prost(oneof = "AttrValue", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10")]
    pub value: Option<AttrValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum AttrValue {
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sint64, tag = "3")]
    Int(i64),
    #[prost(message, tag = "4")]
    Ints(Ints),
    /// The bits of an f64.
    #[prost(fixed64, tag = "5")]
    Float(u64),
    /// String.
    #[prost(uint32, tag = "6")]
    Word(u32),
    /// Graph.
    #[prost(uint32, tag = "7")]
    Graph(u32),
    /// Constant.
    #[prost(uint32, tag = "8")]
    Const(u32),
    /// String.
    #[prost(uint32, tag = "9")]
    Text(u32),
    #[prost(message, tag = "10")]
    Graphs(Graphs),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ints {
    #[prost(sint64, repeated, tag = "1")]
    pub values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Graphs {
    #[prost(uint32, repeated, tag = "1")]
    pub graphs: Vec<u32>,
}

/// Values are numbered in order of definition, parameters first.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Graph {
    /// String.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    /// Types.
    #[prost(uint32, repeated, tag = "2")]
    pub params: Vec<u32>,
    #[prost(message, repeated, tag = "3")]
    pub nodes: Vec<Node>,
    /// Values.
    #[prost(uint32, repeated, tag = "4")]
    pub results: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(uint32, tag = "1")]
    pub op: u32,
    /// Values.
    #[prost(uint32, repeated, tag = "2")]
    pub operands: Vec<u32>,
    /// Types.
    #[prost(uint32, repeated, tag = "3")]
    pub results: Vec<u32>,
    #[prost(uint32, tag = "4")]
    pub location: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Constant {
    /// Type.
    #[prost(uint32, tag = "1")]
    pub ty: u32,
    #[prost(oneof = "ConstantData", tags = "2, 3")]
    pub data: Option<ConstantData>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum ConstantData {
    /// Every element has these little-endian bytes.
    #[prost(bytes, tag = "2")]
    Splat(Vec<u8>),
    /// Row-major little-endian elements at this byte of the constants section.
    #[prost(uint64, tag = "3")]
    Dense(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    /// String.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    #[prost(message, repeated, tag = "2")]
    pub params: Vec<Param>,
    #[prost(message, repeated, tag = "3")]
    pub results: Vec<Param>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Param {
    /// String.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    /// The result that replaces a donated parameter.
    #[prost(uint32, optional, tag = "2")]
    pub alias: Option<u32>,
    /// For each dimension the axes that split it.
    #[prost(message, repeated, tag = "3")]
    pub sharding: Vec<Axes>,
    /// The tensors it holds along its first dimension; none if it is one itself.
    #[prost(message, repeated, tag = "4")]
    pub stack: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Member {
    /// String.
    #[prost(uint32, tag = "1")]
    pub name: u32,
    /// Which of the parameters, or results, it is.
    #[prost(uint32, tag = "2")]
    pub number: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Axes {
    #[prost(uint32, repeated, tag = "1")]
    pub axes: Vec<u32>,
    /// Of a dimension, the parts it consists of; 0 stands for 1.
    #[prost(uint64, tag = "2")]
    pub parts: u64,
    /// Of a dimension whose blocks are padded, the size of what is held; 0 where they are full.
    #[prost(uint64, tag = "3")]
    pub size: u64,
}

/// Section `program`, one for each rank class.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Program {
    #[prost(message, repeated, tag = "1")]
    pub fixed: Vec<Fixed>,
    /// Strings: kinds of the streams.
    #[prost(uint32, repeated, tag = "2")]
    pub streams: Vec<u32>,
    #[prost(message, repeated, tag = "3")]
    pub communicators: Vec<Axes>,
    #[prost(message, repeated, tag = "4")]
    pub buffers: Vec<Buffer>,
    #[prost(uint32, repeated, tag = "5")]
    pub inputs: Vec<u32>,
    #[prost(uint32, repeated, tag = "6")]
    pub outputs: Vec<u32>,
    #[prost(message, repeated, tag = "7")]
    pub instructions: Vec<Instruction>,
    #[prost(uint64, tag = "8")]
    pub arena_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Fixed {
    #[prost(uint32, tag = "1")]
    pub axis: u32,
    #[prost(uint64, tag = "2")]
    pub coordinate: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Buffer {
    /// Type.
    #[prost(uint32, tag = "1")]
    pub ty: u32,
    /// String.
    #[prost(uint32, tag = "2")]
    pub name: u32,
    #[prost(oneof = "Placement", tags = "3, 4")]
    pub placement: Option<Placement>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Placement {
    /// Byte of the arena.
    #[prost(uint64, tag = "3")]
    Arena(u64),
    #[prost(uint32, tag = "4")]
    Constant(u32),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Instruction {
    #[prost(uint32, tag = "1")]
    pub stream: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub reads: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub writes: Vec<u32>,
    #[prost(uint32, tag = "4")]
    pub location: u32,
    #[prost(oneof = "Action", tags = "5, 6, 7, 8, 9, 10, 11, 12")]
    pub action: Option<Action>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Action {
    /// Op.
    #[prost(uint32, tag = "5")]
    Interpret(u32),
    #[prost(uint32, tag = "6")]
    Kernel(u32),
    #[prost(message, tag = "7")]
    LibraryCall(LibraryCall),
    #[prost(message, tag = "8")]
    Collective(Collective),
    #[prost(message, tag = "9")]
    Send(Peer),
    #[prost(message, tag = "10")]
    Receive(Peer),
    #[prost(message, tag = "11")]
    Copy(()),
    /// Instruction.
    #[prost(uint32, tag = "12")]
    Wait(u32),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LibraryCall {
    /// String.
    #[prost(uint32, tag = "1")]
    pub library: u32,
    #[prost(uint32, tag = "2")]
    pub op: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Collective {
    #[prost(uint32, tag = "1")]
    pub communicator: u32,
    #[prost(uint32, tag = "2")]
    pub op: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Peer {
    #[prost(uint32, tag = "1")]
    pub communicator: u32,
    #[prost(sint32, tag = "2")]
    pub offset: i32,
}

/// Section `kernels`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Kernels {
    #[prost(message, repeated, tag = "1")]
    pub kernels: Vec<Kernel>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Kernel {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}
