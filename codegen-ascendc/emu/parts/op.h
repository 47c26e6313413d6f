// One instruction's operands: ranges, alignment, initialisation, hazards and overlap are checked here for all instructions.
#pragma once
#include "tensor.h"

namespace ascendc_emu {

/// Bytes of UB that an operand touches, in order; lists of runs of bytes.
struct Run {
    uint32_t begin, end;
};

/// Strides of one operand in bytes. Lane `i` of repeat `r` is at `r·repeat + (i / per)·block + (i mod per)·size`,
/// with `per` = 32 / size: a block holds 32 / sizeof(T) lanes of *this* operand's type.
struct Lanes {
    uint32_t mask, repeats, block, repeat;
    bool contiguous; ///< counter mode: `mask` lanes in a row, `repeats` is 1
};

/// Counter mode: `count` consecutive elements.
inline Lanes consecutive(const char *op, Site site, int64_t count) {
    if (count <= 0 || count > INT32_MAX) reject(Code::Repeat, op, site, "count %lld", (long long)count);
    return Lanes{uint32_t(count), 1, BLOCK, 0, true};
}

/// Repeat mode: strides are given in 32 B blocks.
inline Lanes repeated(const char *op, Site site, uint32_t lanes_per_repeat, int64_t mask, int64_t repeats, int64_t block_stride, int64_t repeat_stride) {
    if (mask < 1 || mask > lanes_per_repeat) reject(Code::Repeat, op, site, "mask %lld is not in 1..%u", (long long)mask, lanes_per_repeat);
    if (repeats < 1 || repeats > 255) reject(Code::Repeat, op, site, "%lld repeats; the field takes 1..255", (long long)repeats);
    if (block_stride < 0 || block_stride > 65535 || repeat_stride < 0 || repeat_stride > 65535)
        reject(Code::Repeat, op, site, "block stride %lld, repeat stride %lld", (long long)block_stride, (long long)repeat_stride);
    return Lanes{uint32_t(mask), uint32_t(repeats), uint32_t(block_stride) * BLOCK, uint32_t(repeat_stride) * BLOCK, false};
}

/// An instruction being issued. Declare operands with `read`/`write`, then compute through `at`.
class Op {
  public:
    const char *name;
    Site site;
    int pipe;
    uint32_t number;
    Clock clock;

    Op(const char *name, int pipe, Site site) : name(name), site(site), pipe(pipe), clock(core().start(pipe)) { number = core().issue(pipe, name, site); }

    /// Offset in bytes of lane `i` of repeat `r`.
    template <typename T> static uint32_t offset(const Lanes &l, uint32_t r, uint32_t i) {
        if (l.contiguous) return i * uint32_t(sizeof(T));
        constexpr uint32_t per = BLOCK / sizeof(T);
        return r * l.repeat + (i / per) * l.block + (i % per) * uint32_t(sizeof(T));
    }

    template <typename T> void align(const AscendC::LocalTensor<T> &t, const char *what, uint32_t alignment = BLOCK) const {
        if (t.begin % alignment)
            reject(Code::Misaligned, name, site, "%s starts at byte %u of UB, which is not a multiple of %u", what, t.begin, alignment);
    }

    /// Runs of bytes that the lanes of an operand cover.
    template <typename T> std::vector<Run> runs(const AscendC::LocalTensor<T> &t, const Lanes &l, const char *what) const {
        std::vector<Run> out;
        auto add = [&](uint64_t from, uint64_t bytes) {
            if (from + bytes > t.bytes)
                reject(Code::LocalRange, name, site, "%s: bytes up to %llu of a tensor of %u (%s)", what, (unsigned long long)(from + bytes), t.bytes,
                       core().tensor_name(t.begin, t.begin + t.bytes).c_str());
            uint32_t begin = t.begin + uint32_t(from), end = begin + uint32_t(bytes);
            if (!out.empty() && out.back().end == begin) out.back().end = end;
            else out.push_back(Run{begin, end});
        };
        if (l.contiguous) {
            add(0, uint64_t(l.mask) * sizeof(T));
            return out;
        }
        constexpr uint32_t per = BLOCK / sizeof(T);
        for (uint32_t r = 0; r < l.repeats; r++)
            for (uint32_t i = 0; i < l.mask; i += per) add(uint64_t(r) * l.repeat + uint64_t(i / per) * l.block, uint64_t(std::min(per, l.mask - i)) * sizeof(T));
        return out;
    }

    template <typename T> void read(const AscendC::LocalTensor<T> &t, const Lanes &l, const char *what) { read(runs(t, l, what)); }
    template <typename T> void write(const AscendC::LocalTensor<T> &t, const Lanes &l, const char *what) { write(runs(t, l, what)); }

    void read(const std::vector<Run> &list) {
        for (const Run &r : list) {
            core().check_initialised(name, site, r.begin, r.end);
            core().touch(name, site, pipe, number, clock, r.begin, r.end, false);
        }
    }
    void write(const std::vector<Run> &list, bool initialises = true) {
        for (const Run &r : list) {
            core().touch(name, site, pipe, number, clock, r.begin, r.end, true);
            std::fill(core().written.begin() + r.begin, core().written.begin() + r.end, initialises ? 1 : 0);
        }
    }

    /// A destination may be the same lanes as a source, or apart from it; nothing between.
    template <typename D, typename S>
    void overlap(const AscendC::LocalTensor<D> &dst, const Lanes &dl, const AscendC::LocalTensor<S> &src, const Lanes &sl, bool same_allowed = true) const {
        bool same = dst.begin == src.begin && sizeof(D) == sizeof(S) && dl.mask == sl.mask && dl.repeats == sl.repeats && dl.block == sl.block &&
                    dl.repeat == sl.repeat && dl.contiguous == sl.contiguous;
        if (same && same_allowed) return;
        std::vector<Run> a = runs(dst, dl, "destination"), b = runs(src, sl, "source");
        auto order = [](const Run &x, const Run &y) { return x.begin < y.begin; };
        std::sort(a.begin(), a.end(), order);
        std::sort(b.begin(), b.end(), order);
        for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
            if (a[i].begin < b[j].end && b[j].begin < a[i].end)
                reject(Code::Overlap, name, site, "destination %s overlaps source %s", core().tensor_name(a[i].begin, a[i].end).c_str(),
                       core().tensor_name(b[j].begin, b[j].end).c_str());
            (a[i].end < b[j].end ? i : j)++;
        }
    }

    template <typename T> T get(const AscendC::LocalTensor<T> &t, uint32_t byte) const {
        T out;
        std::memcpy(static_cast<void *>(&out), core().ub.data() + t.begin + byte, sizeof(T));
        return out;
    }
    template <typename T> void put(const AscendC::LocalTensor<T> &t, uint32_t byte, T value) const { std::memcpy(core().ub.data() + t.begin + byte, &value, sizeof(T)); }
};

/// The vector unit computes on f16 and f32 (and integers for a few operations), never on bf16.
template <typename T> constexpr bool is_float = std::is_same_v<T, float> || std::is_same_v<T, half>;
template <typename T> constexpr bool is_int = std::is_same_v<T, int32_t> || std::is_same_v<T, int16_t>;
#define ASCENDC_EMU_NO_BF16(T) static_assert(!std::is_same_v<T, bfloat16_t>, "EMU16: the vector unit has no bf16 arithmetic: Cast to float, compute, Cast back")
#define ASCENDC_EMU_TYPES(T, ok) static_assert(ok, "EMU16: the instruction does not take this element type")

} // namespace ascendc_emu
