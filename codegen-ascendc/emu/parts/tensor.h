// LocalTensor (a typed range of UB) and GlobalTensor (a typed range of global memory).
#pragma once
#include "global.h"

namespace AscendC {

template <typename T> class LocalTensor {
  public:
    uint32_t begin = 0; ///< byte address in UB
    uint32_t bytes = 0;
    TPosition position = TPosition::VECCALC;
    int queue_slot = -1; ///< slot of the queue this tensor came from, -1 for TBuf

    LocalTensor() = default;
    LocalTensor(uint32_t begin, uint32_t bytes, TPosition position, int slot = -1) : begin(begin), bytes(bytes), position(position), queue_slot(slot) {}

    /// The tensor from element `offset` on.
    LocalTensor operator[](uint32_t offset) const {
        uint64_t skip = uint64_t(offset) * sizeof(T);
        if (skip > bytes)
            ascendc_emu::reject(ascendc_emu::Code::LocalRange, "LocalTensor[]", ascendc_emu::Site{"?", 0}, "offset %u of a tensor of %u elements", offset,
                                GetSize());
        return LocalTensor(begin + uint32_t(skip), bytes - uint32_t(skip), position, queue_slot);
    }
    uint32_t GetSize() const { return bytes / uint32_t(sizeof(T)); }
    template <typename U> LocalTensor<U> ReinterpretCast() const { return LocalTensor<U>(begin, bytes, position, queue_slot); }

    T GetValue(uint32_t index, ascendc_emu::Site site = ascendc_emu::Site::here()) const {
        T out;
        std::memcpy(static_cast<void *>(&out), scalar("GetValue", index, false, site), sizeof(T));
        return out;
    }
    void SetValue(uint32_t index, T value, ascendc_emu::Site site = ascendc_emu::Site::here()) const {
        std::memcpy(scalar("SetValue", index, true, site), &value, sizeof(T));
    }

  private:
    uint8_t *scalar(const char *op, uint32_t index, bool write, ascendc_emu::Site site) const {
        using namespace ascendc_emu;
        Core &c = core();
        uint64_t at = uint64_t(index) * sizeof(T);
        if (at + sizeof(T) > bytes) reject(Code::LocalRange, op, site, "element %u of a tensor of %u", index, GetSize());
        uint32_t from = begin + uint32_t(at), to = from + uint32_t(sizeof(T));
        if (!write) c.check_initialised(op, site, from, to);
        Clock clock = c.start(PIPE_S);
        uint32_t number = c.issue(PIPE_S, op, site);
        clock.done[PIPE_S] = number;
        c.touch(op, site, PIPE_S, number, clock, from, to, write);
        if (write) std::fill(c.written.begin() + from, c.written.begin() + to, 1);
        return c.ub.data() + from;
    }
};

template <typename T> class GlobalTensor {
  public:
    T *address = nullptr;
    uint64_t elements = 0; ///< 0: bounded by the argument's memory alone
    bool sized = false;

    void SetGlobalBuffer(T *p, uint64_t count) { address = p, elements = count, sized = true; }
    void SetGlobalBuffer(T *p) { address = p, elements = 0, sized = false; }
    GlobalTensor operator[](uint64_t offset) const {
        GlobalTensor out = *this;
        if (sized && offset > elements)
            ascendc_emu::reject(ascendc_emu::Code::GlobalRange, "GlobalTensor[]", ascendc_emu::Site{"?", 0}, "offset %llu of a tensor of %llu elements",
                                (unsigned long long)offset, (unsigned long long)elements);
        out.address += offset;
        out.elements -= sized ? offset : 0;
        return out;
    }
    uint64_t GetSize() const { return elements; }
    T *GetPhyAddr() const { return address; }

    T GetValue(uint64_t index, ascendc_emu::Site site = ascendc_emu::Site::here()) const {
        using namespace ascendc_emu;
        if (sized && index >= elements) reject(Code::GlobalRange, "GlobalTensor.GetValue", site, "element %llu of %llu", (unsigned long long)index, (unsigned long long)elements);
        Core &c = core();
        Clock clock = c.start(PIPE_S);
        uint32_t number = c.issue(PIPE_S, "GlobalTensor.GetValue", site);
        const uint8_t *p = reinterpret_cast<const uint8_t *>(address + index);
        current_launch->touch("GlobalTensor.GetValue", site, PIPE_S, number, clock, p, sizeof(T), false, false);
        T out;
        std::memcpy(static_cast<void *>(&out), p, sizeof(T));
        return out;
    }
};

} // namespace AscendC
