// Copies between global memory and UB, and atomic accumulation into global memory.
#pragma once
#include "op.h"

namespace ascendc_emu {

/// Bytes `count·size` from element `from` of a global tensor must lie inside it.
template <typename T> void global_range(const char *op, Site site, const AscendC::GlobalTensor<T> &g, uint64_t end_byte) {
    if (g.sized && end_byte > g.elements * sizeof(T))
        reject(Code::GlobalRange, op, site, "bytes up to %llu of a global tensor of %llu", (unsigned long long)end_byte, (unsigned long long)(g.elements * sizeof(T)));
}

/// One rectangular copy. Byte strides are from run start to run start.
struct Copy {
    uint32_t runs, bytes;
    uint64_t global_step, local_step;
};

inline uint32_t blocks_of(uint64_t bytes) { return uint32_t((bytes + BLOCK - 1) / BLOCK); }

/// Global memory to UB. Each run is followed by `pad` elements of `value`, or by undefined bytes up to the block's end.
template <typename T>
void copy_in(const char *name, Site site, const AscendC::LocalTensor<T> &dst, const AscendC::GlobalTensor<T> &src, Copy c, uint32_t left, uint32_t right, bool fills,
             T value) {
    Op op(name, PIPE_MTE2, site);
    op.align(dst, "destination");
    uint32_t front = left * uint32_t(sizeof(T)), data_end = front + c.bytes;
    uint32_t whole = blocks_of(uint64_t(data_end) + right * sizeof(T)) * BLOCK;
    for (uint32_t r = 0; r < c.runs; r++) {
        uint64_t from = r * c.global_step, to = r * c.local_step;
        global_range(name, site, src, from + c.bytes);
        if (to + whole > dst.bytes) reject(Code::LocalRange, name, site, "bytes up to %llu of a tensor of %u", (unsigned long long)(to + whole), dst.bytes);
        const uint8_t *p = reinterpret_cast<const uint8_t *>(src.address) + from;
        current_launch->touch(name, site, PIPE_MTE2, op.number, op.clock, p, c.bytes, false, false);
        uint32_t at = dst.begin + uint32_t(to);
        op.write({Run{at, at + whole}}, false);
        std::fill_n(core().ub.begin() + at, whole, 0xcd);
        if (fills)
            for (uint32_t i = 0; i < whole; i += sizeof(T)) std::memcpy(core().ub.data() + at + i, &value, sizeof(T));
        std::memcpy(core().ub.data() + at + front, p, c.bytes);
        uint32_t valid_begin = fills ? 0 : front, valid_end = fills ? whole : data_end;
        std::fill(core().written.begin() + at + valid_begin, core().written.begin() + at + valid_end, 1);
    }
}

template <typename T> void add_into(uint8_t *p, const uint8_t *q, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += sizeof(T)) {
        T a, b;
        std::memcpy(static_cast<void *>(&a), p + i, sizeof(T));
        std::memcpy(static_cast<void *>(&b), q + i, sizeof(T));
        T sum = T(float(a) + float(b));
        std::memcpy(p + i, &sum, sizeof(T));
    }
}

/// UB to global memory.
template <typename T> void copy_out(const char *name, Site site, const AscendC::GlobalTensor<T> &dst, const AscendC::LocalTensor<T> &src, Copy c) {
    Op op(name, PIPE_MTE3, site);
    op.align(src, "source");
    bool atomic = core().atomic_add;
    for (uint32_t r = 0; r < c.runs; r++) {
        uint64_t to = r * c.global_step, from = r * c.local_step;
        global_range(name, site, dst, to + c.bytes);
        if (from + c.bytes > src.bytes) reject(Code::LocalRange, name, site, "bytes up to %llu of a tensor of %u", (unsigned long long)(from + c.bytes), src.bytes);
        uint32_t at = src.begin + uint32_t(from);
        op.read({Run{at, at + c.bytes}});
        uint8_t *p = reinterpret_cast<uint8_t *>(dst.address) + to;
        current_launch->touch(name, site, PIPE_MTE3, op.number, op.clock, p, c.bytes, true, atomic);
        if (atomic) add_into<T>(p, core().ub.data() + at, c.bytes);
        else std::memcpy(p, core().ub.data() + at, c.bytes);
    }
}

template <typename T> Copy whole_blocks(const char *op, Site site, uint32_t count) {
    uint64_t bytes = uint64_t(count) * sizeof(T);
    if (bytes == 0 || bytes % BLOCK)
        reject(Code::CopyNotBlocks, op, site, "%llu bytes is not a positive multiple of 32: the device would drop the tail; use DataCopyPad", (unsigned long long)bytes);
    return Copy{1, uint32_t(bytes), 0, 0};
}

inline void runs_fit(const char *op, Site site, uint32_t runs, uint32_t bytes, uint32_t limit) {
    if (runs < 1 || runs > 4095) reject(Code::CopyPadding, op, site, "block count %u is not in 1..4095", runs);
    if (bytes < 1 || bytes > limit) reject(Code::CopyPadding, op, site, "block length of %u bytes is not in 1..%u", bytes, limit);
}

} // namespace ascendc_emu

namespace AscendC {

template <typename T> void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, uint32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::copy_in<T>("DataCopy", site, dst, src, ascendc_emu::whole_blocks<T>("DataCopy", site, count), 0, 0, false, T{});
}
template <typename T> void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::copy_out<T>("DataCopy", site, dst, src, ascendc_emu::whole_blocks<T>("DataCopy", site, count));
}
template <typename T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyParams &p, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    runs_fit("DataCopy", site, p.blockCount, p.blockLen * BLOCK, 65535 * BLOCK);
    copy_in<T>("DataCopy", site, dst, src, Copy{p.blockCount, p.blockLen * BLOCK, (p.blockLen + uint64_t(p.srcStride)) * BLOCK, (p.blockLen + uint64_t(p.dstStride)) * BLOCK}, 0, 0, false, T{});
}
template <typename T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &p, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    runs_fit("DataCopy", site, p.blockCount, p.blockLen * BLOCK, 65535 * BLOCK);
    copy_out<T>("DataCopy", site, dst, src, Copy{p.blockCount, p.blockLen * BLOCK, (p.blockLen + uint64_t(p.dstStride)) * BLOCK, (p.blockLen + uint64_t(p.srcStride)) * BLOCK});
}

/// Runs of any byte length. Documented: with padding on either side and `isPad`, everything up to the block's end is the
/// padding value; without padding the rest repeats the run's first element, which the emulator treats as undefined.
template <typename T>
void DataCopyPad(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyExtParams &p, const DataCopyPadExtParams<T> &pad,
                 ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    runs_fit("DataCopyPad", site, p.blockCount, p.blockLen, 2097151);
    if (pad.leftPadding * sizeof(T) > BLOCK || pad.rightPadding * sizeof(T) > BLOCK)
        reject(Code::CopyPadding, "DataCopyPad", site, "padding of %u and %u elements; each side takes at most 32 bytes", pad.leftPadding, pad.rightPadding);
    if (p.blockLen % sizeof(T)) reject(Code::CopyPadding, "DataCopyPad", site, "block length of %u bytes is not a whole number of elements", p.blockLen);
    bool fills = pad.isPad && (pad.leftPadding || pad.rightPadding);
    uint64_t local = (blocks_of(p.blockLen + (pad.leftPadding + pad.rightPadding) * sizeof(T)) + uint64_t(p.dstStride)) * BLOCK;
    copy_in<T>("DataCopyPad", site, dst, src, Copy{p.blockCount, p.blockLen, p.blockLen + uint64_t(p.srcStride), local}, pad.leftPadding, pad.rightPadding, fills, pad.paddingValue);
}
template <typename T>
void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyExtParams &p, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    runs_fit("DataCopyPad", site, p.blockCount, p.blockLen, 2097151);
    copy_out<T>("DataCopyPad", site, dst, src, Copy{p.blockCount, p.blockLen, p.blockLen + uint64_t(p.dstStride), (blocks_of(p.blockLen) + uint64_t(p.srcStride)) * BLOCK});
}

/// Following copies from UB to global memory add. The order over blocks is the device's; here it is the blocks' order.
template <typename T> void SetAtomicAdd() {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t> || std::is_same_v<T, int32_t>, "EMU16: atomic add of this type");
    ascendc_emu::core().atomic_add = true;
}
inline void SetAtomicNone() { ascendc_emu::core().atomic_add = false; }

} // namespace AscendC
