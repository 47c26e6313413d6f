//! `docs/ops.md` says what the front ends do.

use msc_frontends::read_stablehlo_text;

/// Ops and their status, as the page says.
fn table() -> Vec<(String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ops.md");
    let text = std::fs::read_to_string(page).expect("the page");
    let row = |l: &str| {
        let mut cells = l.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.trim_end_matches('`').to_string(), cells.next()?.to_string()))
    };
    text.lines().filter_map(row).collect()
}

/// What the importer says of an op without operands, attributes and results.
fn said(op: &str) -> String {
    let text = format!("func.func @main() {{\n  \"stablehlo.{op}\"() : () -> ()\n  return\n}}");
    read_stablehlo_text("m.mlir", text.as_bytes()).err().map_or_else(String::new, |e| e.to_string())
}

#[test]
fn the_page_lists_what_is_taken_and_what_is_refused() {
    let table = table();
    assert!(table.len() >= 107, "the specification has more ops than {}", table.len());
    for (op, status) in &table {
        let said = said(op);
        let refused = ["MSC-F0008", "MSC-F0009", "MSC-F0010"].iter().any(|code| said.contains(code));
        assert_eq!(status == "refused", refused, "{op} is {status}, but: {said}");
        if refused {
            assert!(said.contains(op.as_str()) && said.contains("m.mlir:2"), "op and line: {said}");
        }
    }
    assert!(said("no_such_op").contains("MSC-F0008"));
}
