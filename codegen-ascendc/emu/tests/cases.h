// A case is a kernel in two versions that differ in one seeded fault: the faulty one must be rejected with the stated code,
// its twin must run. `FAULT` is a compile-time boolean inside the kernel bodies.
#pragma once
#include "kernel_operator.h"
#include <cstdio>
#include <stdexcept>

struct Case {
    const char *name;
    int code;            ///< expected code of the faulty version
    const char *mention; ///< text that the message must contain
    ascendc_emu_call faulty, correct;
    uint32_t blocks;
};

/// Elements of each of the two tensors x and y.
constexpr uint32_t N = 1024;

#define CALL(KERNEL, F) [](uint8_t *const *t, const float *) { KERNEL<F>(t[0], t[1]); }
#define CASE(KERNEL, CODE, MENTION) {#KERNEL, CODE, MENTION, CALL(KERNEL, true), CALL(KERNEL, false), 1}
#define CASE_ON(KERNEL, CODE, MENTION, BLOCKS) {#KERNEL, CODE, MENTION, CALL(KERNEL, true), CALL(KERNEL, false), BLOCKS}

inline int launch(const Case &c, ascendc_emu_call call, std::string &message) {
    std::vector<float> x(N), y(N, 0.0f);
    for (uint32_t i = 0; i < N; i++) x[i] = 1.0f + float(i % 7);
    uint8_t *tensors[2] = {reinterpret_cast<uint8_t *>(x.data()), reinterpret_cast<uint8_t *>(y.data())};
    uint64_t bytes[2] = {N * 4, N * 4};
    char text[512] = "";
    int code = ascendc_emu_run(c.name, call, c.blocks, 2, tensors, bytes, nullptr, 0, text, sizeof text);
    message = text;
    return code;
}

/// Runs all cases; prints one line each and returns how many failed.
template <size_t COUNT> int run_cases(const Case (&cases)[COUNT]) {
    int failed = 0;
    for (const Case &c : cases) {
        std::string bad, good;
        int code = launch(c, c.faulty, bad), twin = launch(c, c.correct, good);
        bool named = bad.find(c.mention) != std::string::npos && bad.find(c.name) != std::string::npos;
        bool ok = code == c.code && twin == 0 && named;
        failed += !ok;
        printf("%s %s: %s", ok ? "ok" : "FAILED", c.name, bad.empty() ? "(not rejected)" : bad.c_str());
        if (twin) printf(" | correct twin rejected: %s", good.c_str());
        if (code != c.code) printf(" | expected code %d", c.code);
        printf("\n");
    }
    return failed;
}
