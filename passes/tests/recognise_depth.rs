//! The e-graphs do not grow with the depth: a layer is one template, and what calls hand on is no term.

mod graphs;

use msc_passes::recognise::recognise;
use msc_passes::simplify::simplify;
use msc_passes::template::template;

#[test]
fn as_many_nodes_at_any_depth() {
    let nodes = |layers: usize| {
        let mut m = graphs::layers::uniform(layers);
        simplify(&mut m).expect("simplifies");
        let mut templates = template(&mut m).expect("finds templates");
        let report = recognise(&mut m, &mut templates).expect("recognises");
        assert_eq!(templates.templates[0].instances, layers);
        report.regions.iter().map(|r| (r.nodes, r.classes)).collect::<Vec<_>>()
    };
    let few = nodes(3);
    assert_eq!(few.len(), 2, "the layer and the rest");
    assert_eq!(nodes(12), few);
}
