// Reductions. Sums add neighbours pairwise within a repeat: ((x0+x1)+(x2+x3))+…, as the documentation of WholeReduceSum says.
#pragma once
#include "vector.h"

namespace ascendc_emu {

/// Combines values pairwise, neighbours first; an odd last one moves up a level (as adding 0 to it would).
template <typename T, typename F> T pairwise(std::vector<T> v, F f) {
    while (v.size() > 1) {
        size_t n = 0;
        for (size_t i = 0; i < v.size(); i += 2) v[n++] = i + 1 < v.size() ? f(v[i], v[i + 1]) : v[i];
        v.resize(n);
    }
    return v[0];
}

/// One result per repeat, at element `r·step` of the destination.
template <typename T, typename F>
void whole_reduce(const char *name, Site site, const AscendC::LocalTensor<T> &d, const AscendC::LocalTensor<T> &s, int64_t mask, int64_t repeat, int64_t step, int64_t blk,
                  int64_t rep, F f) {
    ASCENDC_EMU_NO_BF16(T);
    ASCENDC_EMU_TYPES(T, is_float<T>);
    Op op(name, PIPE_V, site);
    op.align(d, "destination", sizeof(T)); // documented: aligned to the element only
    op.align(s, "source");
    Lanes sl = repeated(name, site, per_repeat<T>, mask, repeat, blk, rep);
    if (step < 1 || step > 65535) reject(Code::Repeat, name, site, "destination stride %lld", (long long)step);
    op.read(s, sl, "source");
    std::vector<Run> out;
    for (uint32_t r = 0; r < sl.repeats; r++) {
        uint64_t at = uint64_t(r) * uint64_t(step) * sizeof(T);
        if (at + sizeof(T) > d.bytes) reject(Code::LocalRange, name, site, "result %u lies past the end of the destination (%u bytes)", r, d.bytes);
        out.push_back(Run{d.begin + uint32_t(at), d.begin + uint32_t(at + sizeof(T))});
    }
    for (const Run &r : out)
        for (const Run &q : op.runs(s, sl, "source"))
            if (r.begin < q.end && q.begin < r.end) reject(Code::Overlap, name, site, "destination overlaps source");
    op.write(out);
    for (uint32_t r = 0; r < sl.repeats; r++) {
        std::vector<T> v;
        for (uint32_t i = 0; i < sl.mask; i++) v.push_back(op.get(s, Op::offset<T>(sl, r, i)));
        op.put<T>(d, uint32_t(r * step * sizeof(T)), pairwise(v, f));
    }
}

/// One result per 32 B block: 8 results a repeat, `step` in units of 8 results.
template <typename T, typename F>
void block_reduce(const char *name, Site site, const AscendC::LocalTensor<T> &d, const AscendC::LocalTensor<T> &s, int64_t repeat, int64_t mask, int64_t step, int64_t blk,
                  int64_t rep, F f) {
    ASCENDC_EMU_NO_BF16(T);
    ASCENDC_EMU_TYPES(T, is_float<T>);
    constexpr uint32_t per = BLOCK / sizeof(T);
    Op op(name, PIPE_V, site);
    op.align(d, "destination", 8 * sizeof(T));
    op.align(s, "source");
    Lanes sl = repeated(name, site, per_repeat<T>, mask, repeat, blk, rep);
    if (step < 1 || step > 65535) reject(Code::Repeat, name, site, "destination stride %lld", (long long)step);
    op.read(s, sl, "source");
    op.overlap(d, consecutive(name, site, 8 * ((repeat - 1) * step + 1)), s, sl, false);
    for (uint32_t r = 0; r < sl.repeats; r++)
        for (uint32_t b = 0; b * per < sl.mask; b++) {
            std::vector<T> v;
            for (uint32_t i = b * per; i < std::min(sl.mask, (b + 1) * per); i++) v.push_back(op.get(s, Op::offset<T>(sl, r, i)));
            uint64_t at = (uint64_t(r) * uint64_t(step) * 8 + b) * sizeof(T);
            if (at + sizeof(T) > d.bytes) reject(Code::LocalRange, name, site, "result lies past the end of the destination (%u bytes)", d.bytes);
            op.write({Run{d.begin + uint32_t(at), d.begin + uint32_t(at + sizeof(T))}});
            op.put<T>(d, uint32_t(at), pairwise(v, f));
        }
}

/// `count` elements to one, through `tmp`: a value per repeat first, then those again.
template <typename T, typename F>
void full_reduce(const char *name, Site site, const AscendC::LocalTensor<T> &d, const AscendC::LocalTensor<T> &s, const AscendC::LocalTensor<T> &tmp, int32_t count, F f) {
    ASCENDC_EMU_NO_BF16(T);
    ASCENDC_EMU_TYPES(T, is_float<T>);
    Op op(name, PIPE_V, site);
    op.align(d, "destination", sizeof(T));
    op.align(s, "source");
    op.align(tmp, "temporary");
    Lanes sl = consecutive(name, site, count);
    uint32_t parts = (uint32_t(count) + per_repeat<T> - 1) / per_repeat<T>;
    op.read(s, sl, "source");
    op.overlap(tmp, consecutive(name, site, parts), s, sl, false);
    op.write(tmp, consecutive(name, site, parts), "temporary");
    op.write(d, consecutive(name, site, 1), "destination");
    std::vector<T> v;
    for (uint32_t i = 0; i < uint32_t(count); i++) v.push_back(op.get(s, i * uint32_t(sizeof(T))));
    while (v.size() > 1) {
        std::vector<T> next;
        for (size_t i = 0; i < v.size(); i += per_repeat<T>) next.push_back(pairwise(std::vector<T>(v.begin() + i, v.begin() + std::min(v.size(), i + per_repeat<T>)), f));
        v = next;
    }
    op.put<T>(d, 0, v[0]);
}

struct SumOf {
    template <typename T> T operator()(T a, T b) const { return T(float(a) + float(b)); }
};
struct MaxOf {
    template <typename T> T operator()(T a, T b) const { return T(max_nan(float(a), float(b))); }
};
struct MinOf {
    template <typename T> T operator()(T a, T b) const { return T(min_nan(float(a), float(b))); }
};

inline void only_value(const char *name, Site site, AscendC::ReduceOrder order) {
    if (order != AscendC::ReduceOrder::ORDER_ONLY_VALUE) reject(Code::Unsupported, name, site, "only ORDER_ONLY_VALUE is emulated");
}

} // namespace ascendc_emu

namespace AscendC {

template <typename T>
void WholeReduceSum(const LocalTensor<T> &d, const LocalTensor<T> &s, int32_t mask, int32_t repeat, int32_t dstRep, int32_t srcBlk, int32_t srcRep,
                    ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::whole_reduce("WholeReduceSum", site, d, s, mask, repeat, dstRep, srcBlk, srcRep, ascendc_emu::SumOf{});
}
template <typename T>
void WholeReduceMax(const LocalTensor<T> &d, const LocalTensor<T> &s, int32_t mask, int32_t repeat, int32_t dstRep, int32_t srcBlk, int32_t srcRep,
                    ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::only_value("WholeReduceMax", site, order);
    ascendc_emu::whole_reduce("WholeReduceMax", site, d, s, mask, repeat, dstRep, srcBlk, srcRep, ascendc_emu::MaxOf{});
}
template <typename T>
void WholeReduceMin(const LocalTensor<T> &d, const LocalTensor<T> &s, int32_t mask, int32_t repeat, int32_t dstRep, int32_t srcBlk, int32_t srcRep,
                    ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::only_value("WholeReduceMin", site, order);
    ascendc_emu::whole_reduce("WholeReduceMin", site, d, s, mask, repeat, dstRep, srcBlk, srcRep, ascendc_emu::MinOf{});
}
template <typename T>
void BlockReduceSum(const LocalTensor<T> &d, const LocalTensor<T> &s, int32_t repeat, int32_t mask, int32_t dstRep, int32_t srcBlk, int32_t srcRep,
                    ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::block_reduce("BlockReduceSum", site, d, s, repeat, mask, dstRep, srcBlk, srcRep, ascendc_emu::SumOf{});
}
template <typename T>
void BlockReduceMax(const LocalTensor<T> &d, const LocalTensor<T> &s, int32_t repeat, int32_t mask, int32_t dstRep, int32_t srcBlk, int32_t srcRep,
                    ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::block_reduce("BlockReduceMax", site, d, s, repeat, mask, dstRep, srcBlk, srcRep, ascendc_emu::MaxOf{});
}
template <typename T>
void ReduceSum(const LocalTensor<T> &d, const LocalTensor<T> &s, const LocalTensor<T> &tmp, int32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    ascendc_emu::full_reduce("ReduceSum", site, d, s, tmp, count, ascendc_emu::SumOf{});
}
template <typename T>
void ReduceMax(const LocalTensor<T> &d, const LocalTensor<T> &s, const LocalTensor<T> &tmp, int32_t count, bool calIndex = false,
               ascendc_emu::Site site = ascendc_emu::Site::here()) {
    if (calIndex) ascendc_emu::reject(ascendc_emu::Code::Unsupported, "ReduceMax", site, "the index is not emulated");
    ascendc_emu::full_reduce("ReduceMax", site, d, s, tmp, count, ascendc_emu::MaxOf{});
}

} // namespace AscendC
