# `make demo` and `make test` do everything on a fresh Debian 12 machine with a Rust toolchain.
.PHONY: help setup demo test test-all lint doc bench npuir clean

help:
	@echo "make demo      compile and train a real step on one and on two ranks, beside the reference's losses"
	@echo "make test      build and run the tests"
	@echo "make test-all  the tests and the long sweeps"
	@echo "make lint      formatting, clippy, documentation, all without warnings"
	@echo "make bench     measurements"
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

lint: setup
	cargo fmt --all --check
	cargo clippy -q --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps

doc: setup
	cargo doc --workspace --no-deps --open

bench: setup
	cargo run --release -q -p msc-frontends --example import_time -- fixtures/stablehlo/*/model.mlir fixtures/stablehlo/*/model.mlirbc
	cargo run --release -q -p msc-codegen --example bench_rows

npuir: setup
	codegen-ascendc/npuir/check.sh

clean:
	cargo clean
