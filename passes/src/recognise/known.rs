//! What a graph's parameters are known to be from the graphs that use it: constants, and masks made of indices
//! alone, handed to a layer or carried unchanged through a loop.

use super::engine::region::Source;
use super::probe::band::{Band, Bands, Source as Origin, Values};
use super::probe::known::Known;
use crate::template::Loop;
use msc_ir::{GraphId, Module, Op, TensorType, ValueDef, ValueId};

/// The values of all graphs; a carry that no trip of a loop changes is what the loop starts with.
pub struct Scopes<'m> {
    module: &'m Module,
    loops: &'m [Loop],
}

impl<'m> Scopes<'m> {
    /// The graphs of a module with its known loops.
    pub fn new(module: &'m Module, loops: &'m [Loop]) -> Scopes<'m> {
        Scopes { module, loops }
    }
}

impl Values for Scopes<'_> {
    type Id = (GraphId, ValueId);

    fn source(&self, (graph, v): Self::Id) -> Origin<'_, Self::Id> {
        let g = self.module.graph(graph);
        match g.value(v).def {
            ValueDef::Result(op, _) => {
                let data = g.op(op);
                if data.results.len() == 1 {
                    Origin::Op(&data.op, data.operands.iter().map(|&o| (graph, o)).collect())
                } else {
                    Origin::Opaque
                }
            }
            ValueDef::Param(i) => {
                let outer = self.loops.iter().find(|l| l.body == graph).and_then(|l| {
                    let data = self.module.graph(l.graph).op(l.op);
                    match &data.op {
                        Op::While(w) if w.is_invariant(self.module, i as usize) => {
                            data.operands.get(i as usize).map(|&o| (l.graph, o))
                        }
                        _ => None,
                    }
                });
                outer.map_or(Origin::Opaque, Origin::Same)
            }
        }
    }

    fn ty(&self, (graph, v): Self::Id) -> &TensorType {
        self.module.graph(graph).ty(v)
    }
}

/// What a value is known to be, as the source of a parameter.
pub fn source(bands: &mut Bands<'_, Scopes<'_>>, id: (GraphId, ValueId)) -> Source {
    if let Some(v) = bands.uniform(id) {
        return Source::Known(Known::Band(Band::uniform(v)));
    }
    let band = bands.steps(id).and_then(|s| s.band()).map(Known::Band);
    band.or_else(|| bands.index(id).map(Known::Index)).map_or(Source::Outside, Source::Known)
}

/// The sources of a loop body's parameters.
pub fn body(module: &Module, loops: &[Loop], body: GraphId) -> Vec<Source> {
    let scopes = Scopes::new(module, loops);
    let mut bands = Bands::new(&scopes, module);
    module.graph(body).params().iter().map(|&p| source(&mut bands, (body, p))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_ir::interp::{Mode, run};
    use msc_ir::{Graph, text};

    /// Masks as exporters spell them, then tensors that are none.
    const MASKS: &str = r#"module @masks

graph @main() {
  %0 = iota {dim = 0, dtype = i32, shape = [7]} : i32[7]
  %1 = broadcast_in_dim %0 {dims = [0], shape = [7, 7]} : i32[7,7]
  %2 = broadcast_in_dim %0 {dims = [1], shape = [7, 7]} : i32[7,7]
  %3 = compare %2, %1 {direction = LE} : i1[7,7]
  %4 = constant {value = splat f32[7,7] 0.0} : f32[7,7]
  %5 = constant {value = splat f32[7,7] -3.4028235e38} : f32[7,7]
  %6 = select %3, %4, %5 : f32[7,7]
  %7 = constant {value = splat i32[7,7] -3} : i32[7,7]
  %8 = add %1, %7 : i32[7,7]
  %9 = compare %8, %2 {direction = GE} : i1[7,7]
  %10 = constant {value = splat i1[7,7] 0} : i1[7,7]
  %11 = select %9, %10, %3 : i1[7,7]
  %12 = convert %11 {dtype = i32} : i32[7,7]
  %13 = constant {value = splat i32[7,7] 0} : i32[7,7]
  %14 = compare %12, %13 {direction = NE} : i1[7,7]
  %15 = slice %11 {limit = [6, 7], start = [2, 0], stride = [1, 1]} : i1[4,7]
  %16 = transpose %11 {permutation = [1, 0]} : i1[7,7]
  %17 = broadcast_in_dim %16 {dims = [1, 3], shape = [2, 7, 3, 7]} : i1[2,7,3,7]
  %18 = reshape %6 {shape = [1, 7, 1, 7]} : f32[1,7,1,7]
  %19 = constant {value = splat f32[7,7] -1e9} : f32[7,7]
  %20 = compare %6, %19 {direction = GE} : i1[7,7]
  %21 = not %20 : i1[7,7]
  %22 = compare %1, %2 {direction = EQ} : i1[7,7]
  %23 = constant {value = splat i32[7,7] 4} : i32[7,7]
  %24 = compare %1, %23 {direction = LT} : i1[7,7]
  %25 = add %1, %2 : i32[7,7]
  %26 = compare %25, %23 {direction = LT} : i1[7,7]
  %27 = multiply %1, %2 : i32[7,7]
  %28 = compare %27, %23 {direction = LT} : i1[7,7]
  %29 = and %3, %24 : i1[7,7]
  return %3, %6, %11, %14, %15, %16, %17, %18, %20, %21, %22, %24, %26, %28, %29
}
"#;

    #[test]
    fn masks_are_what_the_interpreter_says() {
        let mut module = text::parse(MASKS).expect("parses");
        let main = module.graph_by_name("main").expect("a graph");
        let values = run(&module, main, &[], Mode::Spec).expect("runs");
        let scopes = Scopes::new(&module, &[]);
        let mut bands = Bands::new(&scopes, &module);
        let results = module.graph(main).results().to_vec();
        let found: Vec<Source> = results.iter().map(|&r| source(&mut bands, (main, r))).collect();
        let types = module.graph(main).result_types();
        let mut masks = 0;
        for ((f, ty), value) in found.into_iter().zip(&types).zip(&values) {
            let Source::Known(band @ Known::Band(_)) = f else { continue };
            masks += 1;
            let mut g = Graph::new("band");
            let made = band.build(&mut module, &mut g, ty).expect("builds");
            g.set_results(vec![made]);
            let g = module.add_graph(g);
            assert_eq!(run(&module, g, &[], Mode::Spec).expect("runs")[0], *value, "{band:?}");
        }
        // The last four compare one index, a sum, a product, or are cut off.
        assert_eq!(masks, 11);
    }
}
