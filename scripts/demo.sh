#!/usr/bin/env bash
# Compiles a real training step for one and for two ranks, runs it, and compares.
set -euo pipefail
cd "$(dirname "$0")/.."
msc=target/debug/msc
fixture=fixtures/stablehlo/llama_torchax_tiny
out=target/demo
mkdir -p "$out"

for tp in 1 2; do
  echo "── msc compile model.mlir --tp $tp"
  "$msc" compile "$fixture/model.mlir" --tp "$tp" -o "$out/tp$tp.bin" --report "$out/tp$tp.json"
  echo
  echo "── msc run: one step, outputs against the reference"
  "$msc" run "$out/tp$tp.bin" --inputs "$fixture/inputs.npz" --check "$fixture/outputs.npz"
  echo
  echo "── msc run: 20 steps, losses beside the reference"
  "$msc" run "$out/tp$tp.bin" --inputs "$fixture/inputs.npz" --losses "$fixture/losses.json" --steps 20
  echo
done

echo "── msc kernels: interpreter, LLVM and emulated Ascend C on the same data"
"$msc" kernels "$fixture/model.mlir" --tp 2
