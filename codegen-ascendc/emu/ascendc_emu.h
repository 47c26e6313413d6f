// Emulator of the Ascend C vector subset for g++ (C++17), NPU arch 2201 (Atlas A2 and A3).
//
// A kernel source is compiled unchanged (`#include "kernel_operator.h"`) and executed block by block on the host.
// Beside computing, the emulator rejects what the device would reject or silently get wrong; parts/error.h lists the codes.
//
// Order of execution. On the device the scalar unit issues instructions to pipes (MTE2: global to UB, V: vector,
// MTE3: UB to global) that run on their own; only flags and barriers order them. The emulator computes in issue order and,
// beside that, keeps for every pipe what is known to be complete (vector clocks) and for every two bytes of memory who
// wrote and read it last. An access that is not ordered after a conflicting one is rejected, naming both instructions and
// the tensor. That covers every order the hardware may choose, the latest possible one included, in one run.
//
// Parts:
//   error.h   codes, the exception, source positions        types.h   half, bfloat16_t, enumerations, parameter structs
//   machine.h one core: UB, clocks, flags, hazard shadow     global.h  global memory: bounds, hazards within and across blocks
//   tensor.h  LocalTensor, GlobalTensor                      pipe.h    TPipe, TBuf, TQue
//   sync.h    flags, barriers, block index                   op.h      one instruction's operands and checks
//   move.h    DataCopy, DataCopyPad, atomics                 vector.h  element-wise arithmetic, Duplicate, Brcb
//   cast.h    Cast                                           reduce.h  reductions
//   launch.h  the C entry through which a host runs a kernel
#pragma once
#include "parts/error.h"
#include "parts/types.h"
#include "parts/machine.h"
#include "parts/global.h"
#include "parts/tensor.h"
#include "parts/sync.h"
#include "parts/pipe.h"
#include "parts/op.h"
#include "parts/move.h"
#include "parts/vector.h"
#include "parts/cast.h"
#include "parts/reduce.h"
#include "parts/launch.h"
