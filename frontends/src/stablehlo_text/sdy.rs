//! Shardy's attributes (Shardy dialect reference: `MeshAttr`, `TensorShardingAttr`).

use super::Parser;
use crate::error::{Code, Result};
use crate::raw::{AxisRef, DimSharding, Mesh, Sharding};

impl<'a> Parser<'a> {
    /// `<["dp"=2, "tp"=4], device_ids=[…]>`; the axis list may be missing.
    pub(super) fn mesh_body(&mut self) -> Result<Mesh> {
        let mut mesh = Mesh::default();
        self.expect("<")?;
        if self.peek_token() == Some(b'[') {
            self.list("[", "]", |p| {
                let name = p.string()?.into_owned();
                p.expect("=")?;
                mesh.axes.push((name, p.int()?));
                Ok(())
            })?;
            self.eat(",");
        }
        if self.eat_word("device_ids") {
            self.expect("=")?;
            mesh.device_ids = self.int_list()?;
        }
        self.expect(">")?;
        Ok(mesh)
    }

    /// `<@mesh, [{"a", ?}p1, {}], replicated={"b"}, unreduced={"c"}>`.
    pub(super) fn sharding_body(&mut self) -> Result<Sharding> {
        let mut s = Sharding::default();
        self.expect("<")?;
        if self.peek_token() == Some(b'@') {
            s.mesh = self.symbol()?.into_owned();
        } else if self.eat_word("mesh") {
            s.inline_mesh = Some(self.mesh_body()?);
        } else {
            return Err(self.expected("a mesh"));
        }
        self.expect(",")?;
        self.list("[", "]", |p| {
            s.dims.push(p.dim_sharding()?);
            Ok(())
        })?;
        while self.eat(",") {
            let what = self.expect_word("`replicated` or `unreduced`")?;
            self.expect("=")?;
            let axes = self.axis_set()?.axes;
            match what {
                "replicated" => s.replicated = axes,
                "unreduced" => s.unreduced = axes,
                _ => {
                    return Err(self.error(Code::Syntax, format!("`{what}` is not known in a sharding")));
                }
            }
        }
        self.expect(">")?;
        Ok(s)
    }

    /// `[<@mesh, …>, <@mesh, …>]`.
    pub(super) fn sharding_list(&mut self) -> Result<Vec<Sharding>> {
        let mut v = Vec::new();
        self.list("[", "]", |p| {
            v.push(p.sharding_body()?);
            Ok(())
        })?;
        Ok(v)
    }

    fn dim_sharding(&mut self) -> Result<DimSharding> {
        let mut d = self.axis_set()?;
        if self.peek() == Some(b'p') {
            self.pos += 1;
            let n = self.int()?;
            d.priority = u32::try_from(n).map_err(|_| self.error(Code::Limit, "a priority this large"))?;
        }
        Ok(d)
    }

    /// `{"a", "b":(2)4, ?}`.
    pub(super) fn axis_set(&mut self) -> Result<DimSharding> {
        let mut d = DimSharding::default();
        self.list("{", "}", |p| {
            if p.eat("?") {
                d.open = true;
                return Ok(());
            }
            let name = p.string()?.into_owned();
            let mut sub = None;
            if p.eat(":") {
                p.expect("(")?;
                let pre = p.int()?;
                p.expect(")")?;
                sub = Some((pre, p.int()?));
            }
            d.axes.push(AxisRef { name, sub });
            Ok(())
        })?;
        Ok(d)
    }
}
