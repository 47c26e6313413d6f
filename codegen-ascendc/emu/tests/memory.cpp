// Faults in what memory an instruction touches and how it is shaped.
#include "cases.h"
using namespace AscendC;

struct Set {
    TPipe pipe;
    TBuf<TPosition::VECCALC> a, b;
    GlobalTensor<float> x, y;
    int32_t in, out;
    Set(GM_ADDR gx, GM_ADDR gy, uint32_t elements = 256) {
        pipe.InitBuffer(a, elements * 4);
        pipe.InitBuffer(b, elements * 4);
        x.SetGlobalBuffer((float *)gx, N);
        y.SetGlobalBuffer((float *)gy, N);
        in = pipe.AllocEventID<HardEvent::MTE2_V>();
        out = pipe.AllocEventID<HardEvent::V_MTE3>();
    }
    void loaded() { SetFlag<HardEvent::MTE2_V>(in), WaitFlag<HardEvent::MTE2_V>(in); }
    void computed() { SetFlag<HardEvent::V_MTE3>(out), WaitFlag<HardEvent::V_MTE3>(out); }
};

template <bool FAULT> void ub_over_the_limit(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> a, b;
    pipe.InitBuffer(a, 96 * 1024);
    pipe.InitBuffer(b, FAULT ? 96 * 1024 : 80 * 1024); // the reserved 8 KiB + 256 B count
}

template <bool FAULT> void copy_in_not_in_blocks(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    DataCopy(s.a.Get<float>(), s.x, FAULT ? 250 : 248);
}

template <bool FAULT> void copy_out_not_in_blocks(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>();
    Duplicate(a, 1.0f, 256);
    s.computed();
    if (FAULT) DataCopy(s.y, a, 250);
    else DataCopyPad(s.y, a, DataCopyExtParams{1, 250 * 4, 0, 0, 0});
}

template <bool FAULT> void misaligned_vector_operand(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    Duplicate(a, 1.0f, 256);
    PipeBarrier<PIPE_V>();
    Add(b, a[FAULT ? 3 : 8], a[16], 64);
}

template <bool FAULT> void misaligned_copy_destination(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>();
    DataCopyPad(a[FAULT ? 4 : 8], s.x, DataCopyExtParams{1, 20, 0, 0, 0}, DataCopyPadExtParams<float>{true, 0, 3, 0.0f});
}

template <bool FAULT> void operand_past_its_tensor(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    Duplicate(a, 1.0f, 256);
    PipeBarrier<PIPE_V>();
    Muls(b[64], a, 2.0f, FAULT ? 200 : 192);
}

template <bool FAULT> void repeats_past_the_tensor(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    Duplicate(a, 1.0f, 256);
    PipeBarrier<PIPE_V>();
    Add(b, a, a, 64, FAULT ? 5 : 4, BinaryRepeatParams{1, 1, 1, 8, 8, 8});
}

template <bool FAULT> void global_past_its_tensor(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    DataCopy(s.a.Get<float>(), s.x[FAULT ? N - 64 : N - 128], 128);
}

template <bool FAULT> void global_past_the_memory(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    GlobalTensor<float> g;
    g.SetGlobalBuffer((float *)gy); // no size: bounded by the memory itself
    LocalTensor<float> a = s.a.Get<float>();
    Duplicate(a, 1.0f, 256);
    s.computed();
    DataCopy(g[FAULT ? N - 8 : N - 64], a, 64);
}

template <bool FAULT> void read_of_unwritten_ub(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    Duplicate(a, 1.0f, FAULT ? 128 : 256);
    PipeBarrier<PIPE_V>();
    Muls(b, a, 2.0f, 256);
}

template <bool FAULT> void read_of_unpadded_tail(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    DataCopyPad(a, s.x, DataCopyExtParams{1, 13 * 4, 0, 0, 0}, DataCopyPadExtParams<float>{true, 0, uint8_t(FAULT ? 0 : 3), 0.0f});
    s.loaded();
    Muls(b, a, 2.0f, 16);
}

template <bool FAULT> void padding_too_wide(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    DataCopyPad(s.a.Get<float>(), s.x, DataCopyExtParams{1, 28, 0, 0, 0}, DataCopyPadExtParams<float>{true, 0, uint8_t(FAULT ? 9 : 1), 0.0f});
}

template <bool FAULT> void too_many_repeats(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy, 256 * 64);
    LocalTensor<float> a = s.a.Get<float>();
    Duplicate(a, 1.0f, 256 * 64);
    PipeBarrier<PIPE_V>();
    Add(a, a, a, 64, FAULT ? 256 : 255, BinaryRepeatParams{1, 1, 1, 8, 8, 8});
}

template <bool FAULT> void mask_too_wide(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    Duplicate(a, 1.0f, 256);
    PipeBarrier<PIPE_V>();
    WholeReduceSum(b, a, FAULT ? 128 : 64, 2, 1, 1, 8); // 128 lanes is the f16 width
}

template <bool FAULT> void partial_overlap(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>();
    Duplicate(a, 1.0f, 256);
    PipeBarrier<PIPE_V>();
    Muls(a[FAULT ? 8 : 0], a, 2.0f, 64);
}

/// Summing rows onto one works with the sum as destination and second source, not as the first.
template <bool FAULT> void accumulation_onto_first_source(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    Duplicate(a, 1.0f, 256);
    Duplicate(b, 0.0f, 64);
    PipeBarrier<PIPE_V>();
    if (FAULT) Add(b, b, a, 64, 4, BinaryRepeatParams{1, 1, 1, 0, 0, 8});
    else Add(b, a, b, 64, 4, BinaryRepeatParams{1, 1, 1, 0, 8, 0});
}

template <bool FAULT> void cast_over_itself(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>();
    LocalTensor<bfloat16_t> h = FAULT ? a.ReinterpretCast<bfloat16_t>() : s.b.Get<bfloat16_t>();
    Duplicate(h, bfloat16_t(1.0f), 64);
    PipeBarrier<PIPE_V>();
    Cast(a, h, RoundMode::CAST_NONE, 64);
}

template <bool FAULT> void cast_without_rounding(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>();
    Duplicate(a, 1.0f, 64);
    PipeBarrier<PIPE_V>();
    Cast(s.b.Get<bfloat16_t>(), a, FAULT ? RoundMode::CAST_NONE : RoundMode::CAST_RINT, 64);
}

template <bool FAULT> void buffer_slice_too_long(GM_ADDR gx, GM_ADDR gy) {
    Set s(gx, gy);
    Duplicate(s.a.GetWithOffset<float>(FAULT ? 256 : 128, 512), 1.0f, 8);
}

template <bool FAULT> void two_pipes_alive(GM_ADDR, GM_ADDR) {
    TPipe one;
    if (!FAULT) one.Destroy();
    TPipe two;
}

static const Case CASES[] = {
    CASE(ub_over_the_limit, 1, "usable"),
    CASE(copy_in_not_in_blocks, 2, "DataCopyPad"),
    CASE(copy_out_not_in_blocks, 2, "DataCopyPad"),
    CASE(misaligned_vector_operand, 3, "first source"),
    CASE(misaligned_copy_destination, 3, "destination"),
    CASE(operand_past_its_tensor, 4, "destination"),
    CASE(repeats_past_the_tensor, 4, "TBuf 0"),
    CASE(global_past_its_tensor, 5, "global tensor"),
    CASE(global_past_the_memory, 5, "argument 1"),
    CASE(read_of_unwritten_ub, 9, "byte 512"),
    CASE(read_of_unpadded_tail, 9, "byte 52"),
    CASE(padding_too_wide, 17, "32 bytes"),
    CASE(too_many_repeats, 12, "255"),
    CASE(mask_too_wide, 12, "1..64"),
    CASE(partial_overlap, 13, "overlaps"),
    CASE(accumulation_onto_first_source, 13, "accumulation"),
    CASE(cast_over_itself, 13, "overlaps"),
    CASE(cast_without_rounding, 16, "rounding mode"),
    CASE(buffer_slice_too_long, 4, "TBuf.GetWithOffset"),
    CASE(two_pipes_alive, 15, "Destroy"),
};

int main() { return run_cases(CASES); }
