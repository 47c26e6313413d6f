#!/usr/bin/env bash
# Fuzzes every reader for FUZZ_SECONDS each (default 300), or the targets given as arguments.
# Corpora grow in fuzz/corpus; a finding is left in fuzz/artifacts/TARGET and ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-300}
# The readers of tensors take paths: files in memory are faster.
[ -d /dev/shm ] && export TMPDIR=/dev/shm

cargo +nightly --version >/dev/null 2>&1 || {
  echo "a nightly toolchain is needed: rustup toolchain install nightly" >&2
  exit 1
}
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked

echo "== seeds"
cargo +nightly run -q --manifest-path fuzz/Cargo.toml --example seeds -- . fuzz/seeds

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(text bytecode msc plan data)
for target in "${targets[@]}"; do
  echo "== $target"
  mkdir -p "fuzz/corpus/$target"
  dictionary=()
  [ -f "fuzz/seeds/$target.dict" ] && dictionary=("-dict=fuzz/seeds/$target.dict")
  # Without a sanitizer: the readers are safe Rust, and panics, timeouts and memory are what is looked for.
  cargo +nightly fuzz run -s none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=1024 -malloc_limit_mb=512 -timeout=10 -max_len=8192 \
    -print_final_stats=1 "${dictionary[@]}"
done
