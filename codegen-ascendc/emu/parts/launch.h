// The C entry through which a host runs a kernel.
#pragma once
#include "reduce.h"

/// Unpacks `tensors` and `scalars` into a call of the kernel function; the host's harness provides it.
typedef void (*ascendc_emu_call)(uint8_t *const *tensors, const float *scalars);

/// Runs a kernel on `blocks` blocks, one after the other. `tensors[i]` has `bytes[i]` bytes; the emulator keeps every access
/// inside them. `usable_ub` is the unified buffer's usable size in bytes, 0 for the default.
/// Returns 0, or the number of the code; `message` (of `capacity` bytes) then holds `EMUnn kernel, block b: …`.
extern "C" __attribute__((used, visibility("default"))) inline int ascendc_emu_run(const char *kernel, ascendc_emu_call call, uint32_t blocks, uint32_t tensor_count,
                                                                                   uint8_t *const *tensors, const uint64_t *bytes, const float *scalars,
                                                                                   uint32_t usable_ub, char *message, uint64_t capacity) {
    using namespace ascendc_emu;
    Launch launch;
    uint32_t block = 0;
    auto fail = [&](Code code, const std::string &what) {
        std::string full = text("EMU%02d %s, block %u: %s", int(code), kernel ? kernel : "?", block, what.c_str());
        if (message && capacity) {
            size_t n = std::min<size_t>(full.size(), capacity - 1);
            std::memcpy(message, full.data(), n);
            message[n] = 0;
        }
        current_core = nullptr;
        current_launch = nullptr;
        return int(code);
    };
    if (!call || (tensor_count && (!tensors || !bytes)) || blocks == 0 || usable_ub > UB_PHYSICAL) return fail(Code::Arguments, "unusable launch arguments");
    for (uint32_t i = 0; i < tensor_count; i++) launch.buffers.push_back(GlobalBuffer{tensors[i], bytes[i], i, {}});
    current_launch = &launch;
    try {
        for (block = 0; block < blocks; block++) {
            auto one = std::make_unique<Core>();
            one->block = block;
            one->blocks = blocks;
            if (usable_ub) one->usable = usable_ub;
            current_core = one.get();
            call(tensors, scalars);
            one->finish();
        }
    } catch (const Rejected &r) {
        return fail(r.code, r.what);
    } catch (const std::exception &e) {
        return fail(Code::Arguments, e.what());
    }
    current_core = nullptr;
    current_launch = nullptr;
    return 0;
}
