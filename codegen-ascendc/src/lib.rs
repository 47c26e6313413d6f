//! Kernel IR and its back ends: LLVM (CPU), AscendNPU IR and Ascend C.
