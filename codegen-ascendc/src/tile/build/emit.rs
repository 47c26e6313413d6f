//! Turns values of a row group into steps: loads, computation and conversions, each once per scope.

use std::collections::{BTreeMap, BTreeSet};

use super::{RowDef, RowGroup, RowOutput, RowShape, RowType, RowValueId};
use crate::tile::{
    Affine, Bound, BufferId, DType, Kernel, Loop, LoopId, Num, Operand, Over, ParamId, Role, ScalarId, Space,
    Span, Step, View,
};

/// Builds one kernel of a group. Every value gets a buffer of its own; reuse is a later step.
pub(super) struct Emitter<'g> {
    pub group: &'g RowGroup,
    pub types: &'g [RowType],
    pub kernel: Kernel,
    /// Extent of full tiles.
    pub tile: [i64; 2],
    /// Rows that tiles at the current place cover.
    pub rows: Span,
    /// Columns that tiles at the current place cover.
    pub cols: Span,
    /// Values available at the current place: in f32 or i32 (`true`), or in their own type (`false`).
    held: BTreeMap<(RowValueId, bool), BufferId>,
    /// Column reductions whose f32 result some earlier loop has left in a buffer.
    pub reduced: BTreeMap<RowValueId, BufferId>,
    params: BTreeMap<String, ParamId>,
    scalars: BTreeMap<String, ScalarId>,
    names: BTreeSet<String>,
    open: Vec<OpenLoop>,
    loops: u32,
}

struct OpenLoop {
    header: Loop,
    outer_steps: Vec<Step>,
    outer_held: BTreeMap<(RowValueId, bool), BufferId>,
}

impl<'g> Emitter<'g> {
    /// An emitter whose kernel has the group's needed inputs and scalars as parameters.
    pub fn new(
        group: &'g RowGroup,
        types: &'g [RowType],
        name: String,
        needed: &BTreeSet<RowValueId>,
        tile: [i64; 2],
    ) -> Emitter<'g> {
        let mut e = Emitter {
            group,
            types,
            kernel: Kernel { name, origin: group.origin.clone(), ..Kernel::default() },
            tile,
            rows: Span::exact(0, tile[0]),
            cols: Span::exact(0, tile[1]),
            held: BTreeMap::new(),
            reduced: BTreeMap::new(),
            params: BTreeMap::new(),
            scalars: BTreeMap::new(),
            names: BTreeSet::new(),
            open: Vec::new(),
            loops: 0,
        };
        for id in needed {
            match group.def(*id) {
                RowDef::Input { name, shape, dtype } => {
                    let shape = shape.global(group.rows, group.cols);
                    e.add_param(name, *dtype, shape, Role::In);
                }
                RowDef::Scalar { name } if !e.scalars.contains_key(name) => {
                    let scalar = e.kernel.add_scalar(name.clone());
                    e.scalars.insert(name.clone(), scalar);
                }
                _ => {}
            }
        }
        e
    }

    /// Adds a parameter, unless one of this name is there already.
    pub fn add_param(&mut self, name: &str, dtype: DType, shape: Vec<i64>, role: Role) -> ParamId {
        if let Some(id) = self.params.get(name) {
            return *id;
        }
        let id = self.kernel.add_param(name, dtype, shape, role);
        self.params.insert(name.to_owned(), id);
        id
    }

    /// Adds a vector buffer whose name starts with `base`.
    pub fn buffer(&mut self, base: &str, dtype: DType, shape: [i64; 2]) -> BufferId {
        let mut name = base.to_owned();
        let mut n = 1;
        while !self.names.insert(name.clone()) {
            n += 1;
            name = format!("{base}_{n}");
        }
        self.kernel.add_buffer(name, dtype, shape, Space::Vector)
    }

    /// Appends a step at the current place.
    pub fn emit(&mut self, step: Step) {
        self.kernel.body.push(step);
    }

    /// Opens a loop; steps go into its body until [`close`](Self::close).
    pub fn open(
        &mut self,
        name: &str,
        start: Affine,
        end: Bound,
        step: i64,
        carries: Vec<BufferId>,
    ) -> LoopId {
        let id = LoopId(self.loops);
        self.loops += 1;
        let header = Loop { id, name: name.to_owned(), start, end, step, carries, body: Vec::new() };
        let outer_steps = std::mem::take(&mut self.kernel.body);
        self.open.push(OpenLoop { header, outer_steps, outer_held: self.held.clone() });
        id
    }

    /// Closes the innermost loop. Values computed in it are gone.
    pub fn close(&mut self) {
        if let Some(OpenLoop { mut header, outer_steps, outer_held }) = self.open.pop() {
            header.body = std::mem::replace(&mut self.kernel.body, outer_steps);
            self.held = outer_held;
            self.emit(Step::For(header));
        }
    }

    /// The innermost open loop.
    pub fn innermost(&self) -> Option<&Loop> {
        self.open.last().map(|l| &l.header)
    }

    /// Extent of a tile of the given shape class.
    pub fn extent(&self, shape: RowShape) -> [i64; 2] {
        let [rows, cols] = self.tile;
        match shape {
            RowShape::Single => [1, 1],
            RowShape::Row => [1, cols],
            RowShape::Column => [rows, 1],
            RowShape::Full => [rows, cols],
        }
    }

    /// The region of a global tensor of the given shape class at the current place.
    pub fn view(&self, param: ParamId, shape: RowShape) -> View {
        match shape {
            RowShape::Full => View::matrix(param, self.rows.clone(), self.cols.clone()),
            RowShape::Column => View::column(param, self.rows.clone()),
            RowShape::Row | RowShape::Single => View::row(param, self.cols.clone()),
        }
    }

    /// Computes a value at the current place, in the form that a later use is likely to need.
    pub fn compute(&mut self, id: RowValueId) {
        match self.types[id.0 as usize].dtype {
            None => {}
            Some(dtype) if dtype.is_half() => {
                self.stored(id);
            }
            Some(_) => {
                self.wide(id);
            }
        }
    }

    /// Stores a value to the output's tensor.
    pub fn store(&mut self, output: &RowOutput) {
        let shape = self.types[output.value.0 as usize].shape;
        let global = shape.global(self.group.rows, self.group.cols);
        let param = self.add_param(&output.name, output.dtype, global, Role::Out);
        let src = self.stored(output.value);
        let to = self.view(param, shape);
        self.emit(Step::Store { src, to });
    }

    /// The value as an operand of an f32 step (or of an i32 comparison).
    fn operand(&mut self, id: RowValueId) -> Operand {
        match self.group.def(id) {
            RowDef::Num(v) => Operand::Num(*v),
            RowDef::Int(v) => Operand::Int(*v),
            RowDef::Scalar { name } => {
                Operand::Scalar(self.scalars.get(name).copied().unwrap_or(ScalarId(u32::MAX)))
            }
            _ => Operand::Tile(self.wide(id)),
        }
    }

    /// A tile of the value in f32, or i32 if that is its type.
    pub fn wide(&mut self, id: RowValueId) -> BufferId {
        if let Some(buffer) = self.held.get(&(id, true)) {
            return *buffer;
        }
        let half = self.types[id.0 as usize].dtype.is_some_and(DType::is_half);
        let buffer = if half {
            let src = self.stored(id);
            let dst = self.fresh(id, "_f32", DType::F32);
            self.emit(Step::Convert { dst, src });
            dst
        } else {
            self.exact(id)
        };
        self.held.insert((id, true), buffer);
        buffer
    }

    /// A tile of the value in its own type.
    fn stored(&mut self, id: RowValueId) -> BufferId {
        if let Some(buffer) = self.held.get(&(id, false)) {
            return *buffer;
        }
        let dtype = self.types[id.0 as usize].dtype.unwrap_or(DType::F32);
        let buffer = if !dtype.is_half() {
            self.wide(id)
        } else if let RowDef::Input { .. } = self.group.def(id) {
            self.load(id, dtype)
        } else {
            let src = match self.group.def(id) {
                RowDef::Convert(a, _) if self.types[a.0 as usize].dtype != Some(DType::I32) => self.wide(*a),
                _ => self.exact(id),
            };
            let dst = self.fresh(id, "", dtype);
            self.emit(Step::Convert { dst, src });
            dst
        };
        self.held.insert((id, false), buffer);
        buffer
    }

    /// A tile of the value before it is rounded to its own type: f32, or i32 for integers.
    fn exact(&mut self, id: RowValueId) -> BufferId {
        let ty = self.types[id.0 as usize];
        match self.group.def(id).clone() {
            RowDef::Input { dtype, .. } => self.load(id, dtype),
            RowDef::Position(along) => {
                let start = if along == Over::Rows { &self.rows.start } else { &self.cols.start };
                let start = start.clone();
                let dst = self.fresh(id, "", DType::I32);
                self.emit(Step::Index { dst, along, start });
                dst
            }
            RowDef::Num(_) | RowDef::Scalar { .. } | RowDef::Int(_) => {
                let src = self.operand(id);
                let dst = self.fresh(id, "", DType::F32);
                self.emit(Step::Unary { op: crate::tile::UnaryOp::Copy, dst, src });
                dst
            }
            RowDef::Unary(op, a) => {
                let src = self.operand(a);
                let dst = self.fresh(id, "", DType::F32);
                self.emit(Step::Unary { op, dst, src });
                dst
            }
            RowDef::Binary(op, a, b) => {
                let (a, b) = (self.operand(a), self.operand(b));
                let dst = self.fresh(id, "", DType::F32);
                self.emit(Step::Binary { op, dst, a, b });
                dst
            }
            RowDef::Select { op, a, b, on_true, on_false } => {
                let (a, b) = (self.operand(a), self.operand(b));
                let (on_true, on_false) = (self.operand(on_true), self.operand(on_false));
                let dst = self.fresh(id, "", DType::F32);
                self.emit(Step::Select { op, dst, a, b, on_true, on_false });
                dst
            }
            RowDef::Convert(a, to) => {
                let src = self.wide(a);
                let integer = self.types[a.0 as usize].dtype == Some(DType::I32);
                if (to == DType::I32) == integer {
                    return src; // f32 already: the source was a 16-bit type.
                }
                let dst = self.fresh(id, "", if integer { DType::F32 } else { DType::I32 });
                self.emit(Step::Convert { dst, src });
                dst
            }
            RowDef::Reduce(op, a) => {
                if let Some(buffer) = self.reduced.get(&id) {
                    return *buffer;
                }
                let src = self.wide(a);
                let dst = self.buffer(&self.base(id), DType::F32, self.extent(ty.shape));
                self.emit(Step::Reduce { op, over: Over::Cols, dst, src, valid: None, accumulate: false });
                dst
            }
        }
    }

    fn load(&mut self, id: RowValueId, dtype: DType) -> BufferId {
        let shape = self.types[id.0 as usize].shape;
        let param = self.params.get(&self.base(id)).copied().unwrap_or(ParamId(u32::MAX));
        let dst = self.fresh(id, "", dtype);
        let from = self.view(param, shape);
        self.emit(Step::Load { dst, from, fill: Num::ZERO });
        dst
    }

    fn fresh(&mut self, id: RowValueId, suffix: &str, dtype: DType) -> BufferId {
        let base = format!("{}{suffix}", self.base(id));
        let extent = self.extent(self.types[id.0 as usize].shape);
        self.buffer(&base, dtype, extent)
    }

    /// What a value's buffers are called: as its input or output, else by number.
    fn base(&self, id: RowValueId) -> String {
        if let RowDef::Input { name, .. } = self.group.def(id) {
            return name.clone();
        }
        let output = self.group.outputs.iter().find(|o| o.value == id);
        output.map_or_else(|| format!("v{}", id.0), |o| o.name.clone())
    }
}

/// The values that `goals` are computed from, themselves included; operands of values for which `stop`
/// holds are not followed.
pub(super) fn reachable(
    group: &RowGroup,
    goals: impl IntoIterator<Item = RowValueId>,
    stop: impl Fn(RowValueId) -> bool,
) -> BTreeSet<RowValueId> {
    let mut found = BTreeSet::new();
    let mut todo: Vec<RowValueId> = goals.into_iter().collect();
    while let Some(id) = todo.pop() {
        if found.insert(id) && !stop(id) {
            todo.extend(group.def(id).operands());
        }
    }
    found
}
