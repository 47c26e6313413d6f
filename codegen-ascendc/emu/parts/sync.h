// Flags, barriers and block numbers.
#pragma once
#include "machine.h"

namespace AscendC {

/// Source and destination pipe of an event.
constexpr std::pair<int, int> event_pipes(HardEvent e) {
    switch (e) {
    case HardEvent::MTE2_MTE1: return {PIPE_MTE2, PIPE_MTE1};
    case HardEvent::MTE1_MTE2: return {PIPE_MTE1, PIPE_MTE2};
    case HardEvent::MTE1_M: return {PIPE_MTE1, PIPE_M};
    case HardEvent::M_MTE1: return {PIPE_M, PIPE_MTE1};
    case HardEvent::MTE2_V: return {PIPE_MTE2, PIPE_V};
    case HardEvent::V_MTE2: return {PIPE_V, PIPE_MTE2};
    case HardEvent::MTE3_V: return {PIPE_MTE3, PIPE_V};
    case HardEvent::V_MTE3: return {PIPE_V, PIPE_MTE3};
    case HardEvent::M_V: return {PIPE_M, PIPE_V};
    case HardEvent::V_M: return {PIPE_V, PIPE_M};
    case HardEvent::V_V: return {PIPE_V, PIPE_V};
    case HardEvent::MTE3_MTE1: return {PIPE_MTE3, PIPE_MTE1};
    case HardEvent::MTE1_MTE3: return {PIPE_MTE1, PIPE_MTE3};
    case HardEvent::MTE1_V: return {PIPE_MTE1, PIPE_V};
    case HardEvent::MTE2_M: return {PIPE_MTE2, PIPE_M};
    case HardEvent::M_MTE2: return {PIPE_M, PIPE_MTE2};
    case HardEvent::V_MTE1: return {PIPE_V, PIPE_MTE1};
    case HardEvent::M_FIX: return {PIPE_M, PIPE_FIX};
    case HardEvent::FIX_M: return {PIPE_FIX, PIPE_M};
    case HardEvent::MTE3_MTE2: return {PIPE_MTE3, PIPE_MTE2};
    case HardEvent::MTE2_MTE3: return {PIPE_MTE2, PIPE_MTE3};
    case HardEvent::S_V: return {PIPE_S, PIPE_V};
    case HardEvent::V_S: return {PIPE_V, PIPE_S};
    case HardEvent::S_MTE2: return {PIPE_S, PIPE_MTE2};
    case HardEvent::MTE2_S: return {PIPE_MTE2, PIPE_S};
    case HardEvent::S_MTE3: return {PIPE_S, PIPE_MTE3};
    case HardEvent::MTE3_S: return {PIPE_MTE3, PIPE_S};
    case HardEvent::MTE2_FIX: return {PIPE_MTE2, PIPE_FIX};
    case HardEvent::FIX_MTE2: return {PIPE_FIX, PIPE_MTE2};
    case HardEvent::FIX_S: return {PIPE_FIX, PIPE_S};
    case HardEvent::M_S: return {PIPE_M, PIPE_S};
    case HardEvent::FIX_MTE3: return {PIPE_FIX, PIPE_MTE3};
    case HardEvent::COUNT: break;
    }
    return {PIPE_S, PIPE_S};
}

} // namespace AscendC

namespace ascendc_emu {

inline Core::Flag &flag(const char *op, Site site, AscendC::HardEvent event, int32_t id) {
    auto [src, dst] = AscendC::event_pipes(event);
    if (id < 0 || id >= EVENT_IDS) reject(Code::EventIds, op, site, "event id %d of %s_%s is not in 0..7", id, pipe_name(src), pipe_name(dst));
    Core::Flag &f = core().flags[src][dst][id];
    if (!f.usable)
        reject(Code::EventIds, op, site, "event id %d of %s_%s came from neither AllocEventID nor FetchEventID", id, pipe_name(src), pipe_name(dst));
    return f;
}

inline void set_flag(AscendC::HardEvent event, int32_t id, Site site) {
    auto [src, dst] = AscendC::event_pipes(event);
    Core::Flag &f = flag("SetFlag", site, event, id);
    if (f.set) reject(Code::FlagPairing, "SetFlag", site, "flag %s_%s %d is set already, at %s", pipe_name(src), pipe_name(dst), id, where(f.site).c_str());
    f.set = true;
    f.at = core().complete(src);
    f.site = site;
}

inline void wait_flag(AscendC::HardEvent event, int32_t id, Site site) {
    auto [src, dst] = AscendC::event_pipes(event);
    Core::Flag &f = flag("WaitFlag", site, event, id);
    if (!f.set) reject(Code::FlagPairing, "WaitFlag", site, "flag %s_%s %d is not set: the device would wait for ever", pipe_name(src), pipe_name(dst), id);
    f.set = f.freed = false;
    core().known[dst].join(f.at);
}

/// The first id of the pipe pair that is not in use; `take` marks it.
inline event_t free_id(const char *op, AscendC::HardEvent event, bool take, Site site) {
    auto [src, dst] = AscendC::event_pipes(event);
    for (int i = 0; i < EVENT_IDS; i++) {
        Core::Flag &f = core().flags[src][dst][i];
        if (f.allocated) continue;
        f.allocated = take;
        f.usable = true;
        return event_t(i);
    }
    reject(Code::EventIds, op, site, "all 8 event ids of %s_%s are in use", pipe_name(src), pipe_name(dst));
}

/// Gives an id back; a flag still set stays visible to the check at the end of the kernel.
inline void release_id(AscendC::HardEvent event, int32_t id) {
    auto [src, dst] = AscendC::event_pipes(event);
    if (id < 0 || id >= EVENT_IDS) return;
    core().flags[src][dst][id].allocated = core().flags[src][dst][id].usable = false;
}

} // namespace ascendc_emu

namespace AscendC {

template <HardEvent event> void SetFlag(int32_t id, ascendc_emu::Site site = ascendc_emu::Site::here()) { ascendc_emu::set_flag(event, id, site); }
template <HardEvent event> void WaitFlag(int32_t id, ascendc_emu::Site site = ascendc_emu::Site::here()) { ascendc_emu::wait_flag(event, id, site); }

/// All earlier instructions of the pipe complete before its next one starts; `PIPE_ALL`: all pipes, the scalar unit included.
template <pipe_t pipe> void PipeBarrier() {
    ascendc_emu::Core &c = ascendc_emu::core();
    if constexpr (pipe == PIPE_ALL) c.barrier_all();
    else c.known[pipe].done[pipe] = uint32_t(c.issued[pipe].size());
}

inline int64_t GetBlockIdx() { return ascendc_emu::core().block; }
inline int64_t GetBlockNum() { return ascendc_emu::core().blocks; }
inline int64_t GetSubBlockIdx() { return 0; }
inline int64_t GetTaskRatio() { return 1; }

} // namespace AscendC

#define KERNEL_TASK_TYPE_DEFAULT(kind) static_assert((kind) == KERNEL_TYPE_AIV_ONLY || (kind) == KERNEL_TYPE_MIX_AIV_1_0, "EMU16: the emulator runs vector kernels")
