// Numbers: conversions, reduction order, broadcasts and padding against values worked out by hand.
#include "cases.h"
using namespace AscendC;

static int failed = 0;
static void expect(const char *what, double got, double want) {
    bool ok = got == want || (std::isnan(got) && std::isnan(want));
    failed += !ok;
    printf("%s %s: %.17g%s\n", ok ? "ok" : "FAILED", what, got, ok ? "" : ascendc_emu::text(" instead of %.17g", want).c_str());
}

static void conversions() {
    expect("bf16 tie to even, down", bfloat16_t(1.00390625f), 1.0);            // 1 + 2^-8
    expect("bf16 tie to even, up", bfloat16_t(1.01171875f), 1.015625);         // 1 + 3·2^-8
    expect("bf16 above the tie", bfloat16_t(1.004f), 1.0078125);
    expect("bf16 overflow", bfloat16_t(3.4e38f), INFINITY);
    expect("bf16 NaN", bfloat16_t(NAN), NAN);
    expect("f16 tie to even", half(1.00048828125f), 1.0);                      // 1 + 2^-11
    expect("f16 tie to even, up", half(1.00146484375f), 1.001953125);          // 1 + 3·2^-11
    expect("f16 largest", half(65519.0f), 65504.0);
    expect("f16 overflow", half(65520.0f), INFINITY);
    expect("f16 smallest subnormal", half(0x1p-24f), 0x1p-24);
    expect("f16 half of it", half(0x1p-25f), 0.0);
    expect("f16 carry into the exponent", half(1.99999f), 2.0);
    expect("f16 subnormal carry", half(0x1.ffffp-15f), 0x1p-14);
    expect("f16 negative zero", std::signbit(float(half(-0.0f))), 1);
    for (uint32_t raw = 0; raw < 0x7c00; raw++) {
        half h;
        h.raw = uint16_t(raw);
        if (half(float(h)).raw != raw) expect("f16 round trip", half(float(h)).raw, raw);
    }
}

struct Buffers {
    TPipe pipe;
    TBuf<TPosition::VECCALC> a, b;
    GlobalTensor<float> x, y;
    Buffers(GM_ADDR gx, GM_ADDR gy) {
        pipe.InitBuffer(a, 4096);
        pipe.InitBuffer(b, 4096);
        x.SetGlobalBuffer((float *)gx, N);
        y.SetGlobalBuffer((float *)gy, N);
    }
};

/// Loads with padding, sums rows of 13, spreads each sum over its row, subtracts and stores.
static void kernel(GM_ADDR gx, GM_ADDR gy) {
    Buffers s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    DataCopyPad(a, s.x, DataCopyExtParams{8, 13 * 4, 3 * 4, 1, 0}, DataCopyPadExtParams<float>{true, 0, 3, -1.0f});
    PipeBarrier<PIPE_ALL>();
    WholeReduceSum(b, a, 13, 8, 1, 1, 3);
    PipeBarrier<PIPE_V>();
    Brcb(b[64], b, 1, BrcbRepeatParams{1, 8});
    PipeBarrier<PIPE_V>();
    for (uint32_t r = 0; r < 8; r++) Sub(a[r * 24], a[r * 24], b[64 + r * 8], 16, 1, BinaryRepeatParams{1, 1, 0, 8, 8, 0});
    PipeBarrier<PIPE_ALL>();
    DataCopyPad(s.y, a, DataCopyExtParams{8, 14 * 4, 1, 2 * 4, 0}); // with one padded lane
}

static void rows() {
    std::vector<float> x(N), y(N, 99.0f);
    for (uint32_t i = 0; i < N; i++) x[i] = float(i);
    uint8_t *t[2] = {(uint8_t *)x.data(), (uint8_t *)y.data()};
    uint64_t bytes[2] = {N * 4, N * 4};
    char message[512] = "";
    int code = ascendc_emu_run("rows", [](uint8_t *const *p, const float *) { kernel(p[0], p[1]); }, 1, 2, t, bytes, nullptr, 0, message, sizeof message);
    expect(message[0] ? message : "rows kernel", code, 0);
    for (uint32_t r = 0; r < 8; r++) {
        float sum = 0;
        for (uint32_t c = 0; c < 13; c++) sum += x[r * 16 + c];
        expect("row element", y[r * 16 + 12], x[r * 16 + 12] - sum);
        expect("padded lane", y[r * 16 + 13], -1.0 - sum);
        expect("beyond the run", y[r * 16 + 14], 99.0);
    }
}

/// A sum whose value depends on the order: neighbours first. 2^24 absorbs a 1 added alone, but not a pair's 2.
static void order(GM_ADDR gx, GM_ADDR gy) {
    Buffers s(gx, gy);
    LocalTensor<float> a = s.a.Get<float>(), b = s.b.Get<float>();
    DataCopy(a, s.x, 64);
    PipeBarrier<PIPE_ALL>();
    WholeReduceSum(b, a, 64, 1, 1, 1, 8);
    BlockReduceSum(b[8], a, 1, 64, 1, 1, 8);
    ReduceSum(b[16], a, b[64], 64);
    WholeReduceMax(b[24], a, 64, 1, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE);
    Rsqrt(b[32], a, 8);
    Duplicate(b[40], 0.0f, 8);
    PipeBarrier<PIPE_V>();
    Add(b[40], a[8], b[40], 8, 7, BinaryRepeatParams{1, 1, 1, 0, 1, 0}); // seven blocks onto one
    PipeBarrier<PIPE_ALL>();
    DataCopyPad(s.y, b, DataCopyExtParams{1, 4, 0, 0, 0});
    DataCopyPad(s.y[8], b[8], DataCopyExtParams{1, 32, 0, 0, 0});
    DataCopyPad(s.y[16], b[16], DataCopyExtParams{1, 4, 0, 0, 0});
    DataCopyPad(s.y[24], b[24], DataCopyExtParams{1, 4, 0, 0, 0});
    DataCopyPad(s.y[32], b[32], DataCopyExtParams{1, 64, 0, 0, 0});
}

static void orders() {
    std::vector<float> x(N, 1.0f), y(N);
    x[0] = 16777216.0f; // 2^24: adding 1 is lost (tie to even), adding a pair's 2 is not
    uint8_t *t[2] = {(uint8_t *)x.data(), (uint8_t *)y.data()};
    uint64_t bytes[2] = {N * 4, N * 4};
    char message[512] = "";
    int code = ascendc_emu_run("order", [](uint8_t *const *p, const float *) { order(p[0], p[1]); }, 1, 2, t, bytes, nullptr, 0, message, sizeof message);
    expect(message[0] ? message : "order kernel", code, 0);
    // (2^24+1)=2^24, then +2, +4, +8, +16, +32: 62 more.
    expect("WholeReduceSum pairs neighbours", y[0], 16777216.0 + 62.0);
    expect("BlockReduceSum, first block", y[8], 16777216.0 + 6.0);
    expect("BlockReduceSum, last block", y[15], 8.0);
    expect("ReduceSum", y[16], 16777216.0 + 62.0);
    expect("WholeReduceMax", y[24], 16777216.0);
    expect("accumulation over repeats", y[43], 7.0);
    expect("Rsqrt is not exact", y[33] == 1.0f && y[32] == 0x1p-12f, 1.0);
}

int main() {
    conversions();
    rows();
    orders();
    return failed;
}
