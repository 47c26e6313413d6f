#!/bin/bash
# Compiles the row family's kernels with the AscendNPU IR compiler and checks how far each one gets.
#
# usage: codegen-ascendc/npuir/check.sh [DIR of further .mlir files]
#
# Accepted means: the compiler writes its optimised module (on-chip addresses planned, synchronisation
# inserted) and every function that the module calls is defined in the device library of the package. The
# step after that, from the module to an object file, belongs to a tool of the device's toolkit (hivmc);
# without it the compiler ends with an error although the module was written.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=1.2.0
work=${CARGO_TARGET_DIR:-target}/npuir
venv=$work/venv
mkdir -p "$work"
if ! "$venv/bin/python" -c "import importlib.metadata as m; assert m.version('ascendnpu-ir') == '$version'" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "ascendnpu-ir==$version"
fi
package=$("$venv/bin/python" -c "import ascendnpuir, os; print(os.path.dirname(ascendnpuir.__file__))")
nm=$(command -v llvm-nm-22 || echo /usr/lib/llvm-22/bin/llvm-nm)

# Functions of the device library for the 910B (architecture c220), without their C interface prefix.
"$nm" --defined-only --format=just-symbols "$package"/lib/meta_op.*c220.bc \
  | sed -n 's/^_mlir_ciface_//p' | sort -u > "$work/library"

rm -rf "$work/kernels" "$work/out"
cargo run --quiet --package msc-codegen --example emit_npuir -- "$work/kernels"
if [ $# -gt 0 ]; then cp "$1"/*.mlir "$work/kernels/"; fi

failed=0
count=0
for file in "$work"/kernels/*.mlir; do
  name=$(basename "$file" .mlir)
  out=$work/out/$name
  mkdir -p "$out"
  count=$((count + 1))
  "$package/bin/bishengir-compile" -enable-hfusion-compile=true -enable-hivm-compile=true \
    -enable-triton-kernel-compile=true -target=Ascend910B3 --save-temps="$out" "$file" -o "$out/kernel.o" \
    > "$out/log" 2>&1 || true
  module=$out/module.hivm.opt.mlir
  if [ ! -s "$module" ]; then
    echo "rejected  $name: $(grep -m1 -E 'error|overflow' "$out/log" | cut -c1-200)"
    failed=$((failed + 1))
    continue
  fi
  grep -oE 'func\.func private @[A-Za-z0-9_]+' "$module" | sed 's/.*@//' | sort -u > "$out/called" || true
  missing=$(comm -23 "$out/called" "$work/library" | tr '\n' ' ')
  if [ -n "$missing" ]; then
    echo "unresolved $name: $missing"
    failed=$((failed + 1))
    continue
  fi
  echo "accepted  $name ($(wc -l < "$out/called") library functions)"
done
echo "$((count - failed)) of $count kernels accepted"
[ "$failed" -eq 0 ]
