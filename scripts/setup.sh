#!/usr/bin/env bash
# Installs what the build and the tests need (Open MPI: the tests alone) and does nothing where it is already there.
set -euo pipefail

packages=(llvm-22-dev libmlir-22-dev mlir-22-tools libpolly-22-dev clang-22 libclang-22-dev
  zlib1g-dev libzstd-dev g++ python3-venv openmpi-bin)

if ! command -v cargo >/dev/null; then
  echo "setup: no cargo found; install the Rust toolchain (1.95 or newer) with rustup first" >&2
  exit 1
fi

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ "${#missing[@]}" -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

if ! cargo nextest --version >/dev/null 2>&1; then
  echo "setup: installing cargo-nextest"
  cargo install -q --locked cargo-nextest
fi
