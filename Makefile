# `make demo` and `make test` do everything on a fresh Debian 12 machine with a Rust toolchain.
.PHONY: help setup demo test test-all sweep oracle-mutants loss-curves near-misses lint doc bench fuzz npuir clean

help:
	@echo "make demo      compile and train a real step on one and on two ranks, beside the reference's losses"
	@echo "make test      build and run the tests"
	@echo "make test-all  the tests and the long sweeps"
	@echo "make sweep     every layout of every fixture in tests/layouts.toml"
	@echo "make oracle-mutants  is the check against a reference able to see a wrong step?"
	@echo "make loss-curves     fifty steps of every fixture beside the reference's losses"
	@echo "make near-misses     are operations found that are nearly, but not, there?"
	@echo "make lint      formatting, clippy, documentation, all without warnings"
	@echo "make bench     measurements"
	@echo "make fuzz      fuzz every reader of files for FUZZ_SECONDS (300) each; needs a nightly toolchain"
	@echo "make npuir     hand the generated AscendNPU IR to the vendor's compiler (a pip wheel)"
	@echo "make setup     install what the build needs (apt, cargo)"

setup:
	@scripts/setup.sh

demo: setup
	cargo build -q -p msc
	@scripts/demo.sh

test: setup
	cargo nextest run --workspace --no-fail-fast
	cargo test -q --workspace --doc

test-all: test
	cargo nextest run --workspace --run-ignored ignored-only --no-fail-fast
	cargo check -q --manifest-path fuzz/Cargo.toml --all-targets

# Fixtures that the repository does not hold are taken from the folder MSC_FIXTURES. All of them take ten minutes of
# two cores; MSC_SWEEP_FROM=500 leaves out the first 500.
sweep: setup
	cargo nextest run --workspace --run-ignored ignored-only --no-capture -E 'test(every_layout)'

# The repository's fixtures, or those of the folder MSC_FIXTURES instead, which alone are written to docs/oracle.md: the
# page is about more fixtures than the repository holds.
ORACLE = $(if $(MSC_FIXTURES),--markdown docs/oracle.md "$(MSC_FIXTURES)",fixtures/stablehlo)
oracle-mutants: setup
	cargo run -q -p msc-tests --bin oracle-mutants -- $(ORACLE)

loss-curves: setup
	cargo run -q -p msc-tests --bin loss-curves -- --tp2 llama_torchax_tiny $(ORACLE)

near-misses: setup
	cargo run -q -p msc-tests --bin near-misses -- --markdown docs/explain.md fixtures/stablehlo

lint: setup
	cargo fmt --all --check
	cargo clippy -q --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps

doc: setup
	cargo doc --workspace --no-deps --open

bench: setup
	cargo build --release -q -p msc-frontends --examples
	target/release/examples/measure fixtures/stablehlo/*/model.mlir fixtures/stablehlo/*/model.mlirbc
	target/release/examples/synthetic target/bench
	target/release/examples/measure target/bench/*.mlir $(wildcard $(if $(MSC_FIXTURES),$(MSC_FIXTURES)/../real/*/model.mlir*))
	cargo run --release -q -p msc-codegen --example bench_rows
	cargo build --release -q -p msc-runtime --no-default-features --example bandwidth
	for n in 2 4; do mpirun --allow-run-as-root --oversubscribe -n $$n target/release/examples/bandwidth; done
	cargo build --release -q -p msc-passes --example bench_recognise
	target/release/examples/bench_recognise fixtures/stablehlo/*/model.mlir $(wildcard $(if $(MSC_FIXTURES),$(MSC_FIXTURES)/../real/*/model.mlirbc)) --depth $(wildcard $(if $(MSC_FIXTURES),$(MSC_FIXTURES)/../depth/*.mlirbc))

fuzz: setup
	@scripts/fuzz.sh

npuir: setup
	codegen-ascendc/npuir/check.sh

clean:
	cargo clean
