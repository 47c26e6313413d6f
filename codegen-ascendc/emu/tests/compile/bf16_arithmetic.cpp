// Without FAULT this compiles; with it, it must not, and the message must say why: the device's own headers accept it.
#include "kernel_operator.h"
using namespace AscendC;

void kernel(const LocalTensor<bfloat16_t> &h, const LocalTensor<float> &f) {
#ifdef FAULT
    Add(h, h, h, 64);
#else
    Cast(f, h, RoundMode::CAST_NONE, 64);
    Add(f, f, f, 64);
    Cast(h, f, RoundMode::CAST_RINT, 64);
#endif
}
