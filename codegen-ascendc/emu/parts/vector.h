// Element-wise vector instructions, Duplicate and Brcb. All run on pipe V.
//
// Precision: Add, Sub, Mul, Div, Sqrt, Exp and Ln are computed to f32's last place. Rsqrt and Reciprocal keep 13 bits after
// the leading one, as the device's are approximate and of no documented exact value.
#pragma once
#include "op.h"

namespace ascendc_emu {

/// Lanes of a 256-byte repeat.
template <typename T> constexpr uint32_t per_repeat = 256 / sizeof(T);

template <typename T, typename F>
void binary(const char *name, Site site, const AscendC::LocalTensor<T> &d, const AscendC::LocalTensor<T> &a, const AscendC::LocalTensor<T> &b, Lanes dl, Lanes al,
            Lanes bl, bool accumulates, F f) {
    Op op(name, PIPE_V, site);
    op.align(d, "destination");
    op.align(a, "first source");
    op.align(b, "second source");
    op.read(a, al, "first source");
    op.read(b, bl, "second source");
    op.overlap(d, dl, a, al);
    op.overlap(d, dl, b, bl);
    // Later repeats must not read what earlier ones wrote, but for the documented accumulation: destination and second source
    // the same, with repeat stride 0.
    if (dl.repeats > 1 && dl.repeat == 0 && (a.begin == d.begin || !accumulates || b.begin != d.begin || bl.repeat != 0))
        reject(Code::Overlap, name, site, "repeats write the same lanes; only an accumulation onto the second source may");
    op.write(d, dl, "destination");
    for (uint32_t r = 0; r < dl.repeats; r++)
        for (uint32_t i = 0; i < dl.mask; i++) op.put<T>(d, Op::offset<T>(dl, r, i), f(op.get(a, Op::offset<T>(al, r, i)), op.get(b, Op::offset<T>(bl, r, i))));
}

template <typename T, typename F>
void unary(const char *name, Site site, const AscendC::LocalTensor<T> &d, const AscendC::LocalTensor<T> &s, Lanes dl, Lanes sl, F f) {
    Op op(name, PIPE_V, site);
    op.align(d, "destination");
    op.align(s, "source");
    op.read(s, sl, "source");
    op.overlap(d, dl, s, sl);
    op.write(d, dl, "destination");
    for (uint32_t r = 0; r < dl.repeats; r++)
        for (uint32_t i = 0; i < dl.mask; i++) op.put<T>(d, Op::offset<T>(dl, r, i), f(op.get(s, Op::offset<T>(sl, r, i))));
}

/// Keeps 13 bits of the mantissa: a stand-in for an approximate instruction.
inline float approximate(float v) { return std::isfinite(v) ? from_bits(bits(v) & ~0x3ffu) : v; }

/// Maximum and minimum pass NaN on.
inline float max_nan(float a, float b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b); }
inline float min_nan(float a, float b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b); }

} // namespace ascendc_emu

namespace AscendC {

// Two operands: (d, a, b, count) and (d, a, b, mask, repeat, strides).
#define ASCENDC_EMU_BINARY(NAME, ACC, OK, EXPR)                                                                                                                   \
    template <typename T>                                                                                                                                      \
    void NAME(const LocalTensor<T> &d, const LocalTensor<T> &a, const LocalTensor<T> &b, int32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) {  \
        ASCENDC_EMU_NO_BF16(T);                                                                                                                                \
        ASCENDC_EMU_TYPES(T, OK);                                                                                                                              \
        ascendc_emu::Lanes l = ascendc_emu::consecutive(#NAME, site, count);                                                                                   \
        ascendc_emu::binary(#NAME, site, d, a, b, l, l, l, ACC, [](T x, T y) { return T(EXPR); });                                                                  \
    }                                                                                                                                                          \
    template <typename T>                                                                                                                                      \
    void NAME(const LocalTensor<T> &d, const LocalTensor<T> &a, const LocalTensor<T> &b, uint64_t mask, int64_t repeat, const BinaryRepeatParams &p,           \
              ascendc_emu::Site site = ascendc_emu::Site::here()) {                                                                                            \
        ASCENDC_EMU_NO_BF16(T);                                                                                                                                \
        ASCENDC_EMU_TYPES(T, OK);                                                                                                                              \
        constexpr uint32_t n = ascendc_emu::per_repeat<T>;                                                                                                     \
        ascendc_emu::binary(#NAME, site, d, a, b, ascendc_emu::repeated(#NAME, site, n, int64_t(mask), repeat, p.dstBlkStride, p.dstRepStride),                \
                            ascendc_emu::repeated(#NAME, site, n, int64_t(mask), repeat, p.src0BlkStride, p.src0RepStride),                                    \
                            ascendc_emu::repeated(#NAME, site, n, int64_t(mask), repeat, p.src1BlkStride, p.src1RepStride), ACC, [](T x, T y) { return T(EXPR); }); \
    }

ASCENDC_EMU_BINARY(Add, true, ascendc_emu::is_float<T> || ascendc_emu::is_int<T>, x + y)
ASCENDC_EMU_BINARY(Sub, true, ascendc_emu::is_float<T> || ascendc_emu::is_int<T>, x - y)
ASCENDC_EMU_BINARY(Mul, true, ascendc_emu::is_float<T> || ascendc_emu::is_int<T>, x * y)
ASCENDC_EMU_BINARY(Div, false, ascendc_emu::is_float<T>, x / y)
ASCENDC_EMU_BINARY(Max, true, ascendc_emu::is_float<T>, ascendc_emu::max_nan(x, y))
ASCENDC_EMU_BINARY(Min, true, ascendc_emu::is_float<T>, ascendc_emu::min_nan(x, y))

// One operand, with or without a scalar.
#define ASCENDC_EMU_UNARY(NAME, OK, PARAM, ARG, CAPTURE, EXPR)                                                                                             \
    template <typename T> void NAME(const LocalTensor<T> &d, const LocalTensor<T> &s PARAM, int32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) { \
        ASCENDC_EMU_NO_BF16(T);                                                                                                                            \
        ASCENDC_EMU_TYPES(T, OK);                                                                                                                          \
        ascendc_emu::Lanes l = ascendc_emu::consecutive(#NAME, site, count);                                                                               \
        ascendc_emu::unary(#NAME, site, d, s, l, l, [CAPTURE](T x) { return T(EXPR); });                                                                   \
    }                                                                                                                                                      \
    template <typename T>                                                                                                                                  \
    void NAME(const LocalTensor<T> &d, const LocalTensor<T> &s PARAM, uint64_t mask, int64_t repeat, const UnaryRepeatParams &p,                           \
              ascendc_emu::Site site = ascendc_emu::Site::here()) {                                                                                        \
        ASCENDC_EMU_NO_BF16(T);                                                                                                                            \
        ASCENDC_EMU_TYPES(T, OK);                                                                                                                          \
        constexpr uint32_t n = ascendc_emu::per_repeat<T>;                                                                                                 \
        ascendc_emu::unary(#NAME, site, d, s, ascendc_emu::repeated(#NAME, site, n, int64_t(mask), repeat, p.dstBlkStride, p.dstRepStride),                \
                           ascendc_emu::repeated(#NAME, site, n, int64_t(mask), repeat, p.srcBlkStride, p.srcRepStride), [CAPTURE](T x) { return T(EXPR); }); \
    }
#define ASCENDC_EMU_COMMA_SCALAR , const typename std::common_type<T>::type &v

ASCENDC_EMU_UNARY(Adds, ascendc_emu::is_float<T> || ascendc_emu::is_int<T>, ASCENDC_EMU_COMMA_SCALAR, v, &v, x + v)
ASCENDC_EMU_UNARY(Muls, ascendc_emu::is_float<T> || ascendc_emu::is_int<T>, ASCENDC_EMU_COMMA_SCALAR, v, &v, x *v)
ASCENDC_EMU_UNARY(Maxs, ascendc_emu::is_float<T>, ASCENDC_EMU_COMMA_SCALAR, v, &v, ascendc_emu::max_nan(x, v))
ASCENDC_EMU_UNARY(Mins, ascendc_emu::is_float<T>, ASCENDC_EMU_COMMA_SCALAR, v, &v, ascendc_emu::min_nan(x, v))
ASCENDC_EMU_UNARY(Exp, ascendc_emu::is_float<T>, , , , std::exp(float(x)))
ASCENDC_EMU_UNARY(Ln, ascendc_emu::is_float<T>, , , , std::log(float(x)))
ASCENDC_EMU_UNARY(Sqrt, ascendc_emu::is_float<T>, , , , std::sqrt(float(x)))
ASCENDC_EMU_UNARY(Rsqrt, ascendc_emu::is_float<T>, , , , ascendc_emu::approximate(float(1.0 / std::sqrt(double(x)))))
ASCENDC_EMU_UNARY(Reciprocal, ascendc_emu::is_float<T>, , , , ascendc_emu::approximate(float(1.0 / double(x))))
ASCENDC_EMU_UNARY(Abs, ascendc_emu::is_float<T>, , , , std::fabs(float(x)))
ASCENDC_EMU_UNARY(Relu, ascendc_emu::is_float<T>, , , , std::max(float(x), 0.0f))

/// Sets `count` elements. Takes bf16 too: it moves bits only.
template <typename T> void Duplicate(const LocalTensor<T> &d, const typename std::common_type<T>::type &value, int32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "EMU16: Duplicate takes 16- and 32-bit types");
    Lanes l = consecutive("Duplicate", site, count);
    Op op("Duplicate", PIPE_V, site);
    op.align(d, "destination");
    op.write(d, l, "destination");
    for (uint32_t i = 0; i < l.mask; i++) op.put<T>(d, Op::offset<T>(l, 0, i), value);
}

/// Each repeat takes 8 elements and fills 8 blocks of 32 bytes, one with each. A block stride of 0 counts as 1 (documented).
template <typename T>
void Brcb(const LocalTensor<T> &d, const LocalTensor<T> &s, int64_t repeat, const BrcbRepeatParams &p, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "EMU16: Brcb takes 16- and 32-bit types");
    uint32_t block_stride = p.dstBlkStride ? p.dstBlkStride : 1;
    constexpr uint32_t per = BLOCK / sizeof(T);
    Op op("Brcb", PIPE_V, site);
    op.align(d, "destination");
    op.align(s, "source");
    Lanes dl = repeated("Brcb", site, 8 * per, 8 * per, repeat, block_stride, p.dstRepStride);
    Lanes sl = consecutive("Brcb", site, 8 * repeat);
    op.read(s, sl, "source");
    op.overlap(d, dl, s, sl, false);
    op.write(d, dl, "destination");
    for (uint32_t r = 0; r < dl.repeats; r++)
        for (uint32_t i = 0; i < dl.mask; i++) op.put<T>(d, Op::offset<T>(dl, r, i), op.get(s, (r * 8 + i / per) * uint32_t(sizeof(T))));
}

} // namespace AscendC
