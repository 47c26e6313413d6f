// Scalar types, enumerations and parameter structs of the API, with the device's names.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ascendc_emu {

inline uint32_t bits(float v) {
    uint32_t b;
    std::memcpy(&b, &v, 4);
    return b;
}
inline float from_bits(uint32_t b) {
    float v;
    std::memcpy(&v, &b, 4);
    return v;
}

/// f32 to bf16; `nearest` rounds to nearest, ties to even, otherwise towards zero. NaN stays a (quiet) NaN.
inline uint16_t to_bf16(float v, bool nearest = true) {
    uint32_t b = bits(v);
    if (std::isnan(v)) return uint16_t((b >> 16) | 0x40);
    if (nearest) b += 0x7fff + ((b >> 16) & 1);
    return uint16_t(b >> 16);
}

/// f32 to binary16; `nearest` rounds to nearest, ties to even (overflow gives infinity), otherwise towards zero.
inline uint16_t to_f16(float v, bool nearest = true) {
    uint32_t b = bits(v);
    uint16_t sign = uint16_t((b >> 16) & 0x8000);
    if (std::isnan(v)) return sign | 0x7e00;
    double a = std::fabs(double(v));
    if (std::isinf(v)) return sign | 0x7c00;
    if (a >= 65536.0) return sign | (nearest ? 0x7c00 : 0x7bff);
    // One unit in the last place: 2^-24 below 2^-14 (subnormal), else 2^(e-10).
    int e = a < 0x1p-14 ? -14 : std::ilogb(a);
    double scaled = std::ldexp(a, 10 - e);
    double whole = nearest ? std::nearbyint(scaled) : std::floor(scaled);
    uint32_t mantissa = uint32_t(whole); // 0..2048; a carry moves into the exponent by the addition below
    if (a < 0x1p-14) return uint16_t(sign | mantissa);
    uint32_t code = (uint32_t(e + 15) << 10) + (mantissa - 1024);
    if (code >= 0x7c00) return sign | (nearest ? 0x7c00 : 0x7bff);
    return uint16_t(sign | code);
}

inline float f16_to_f32(uint16_t h) {
    int e = (h >> 10) & 31, m = h & 1023;
    double v = e == 0 ? std::ldexp(double(m), -24) : e < 31 ? std::ldexp(double(1024 + m), e - 25) : m ? NAN : INFINITY;
    return float(h & 0x8000 ? -v : v);
}

} // namespace ascendc_emu

/// IEEE binary16 as storage; arithmetic converts to float and rounds the result to nearest even.
struct half {
    uint16_t raw = 0;
    half() = default;
    half(float v) : raw(ascendc_emu::to_f16(v)) {}
    operator float() const { return ascendc_emu::f16_to_f32(raw); }
};
/// bfloat16 as storage. The vector unit has no arithmetic on it.
struct bfloat16_t {
    uint16_t raw = 0;
    bfloat16_t() = default;
    bfloat16_t(float v) : raw(ascendc_emu::to_bf16(v)) {}
    operator float() const { return ascendc_emu::from_bits(uint32_t(raw) << 16); }
};

#define __global__
#define __aicore__
#define __gm__
#define __ubuf__
#define __vector__
typedef uint8_t *GM_ADDR;

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };
enum event_t { EVENT_ID0 = 0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

enum KernelMetaType { KERNEL_TYPE_AIV_ONLY = 0, KERNEL_TYPE_AIC_ONLY = 1, KERNEL_TYPE_MIX_AIV_1_0 = 2, KERNEL_TYPE_MIX_AIC_1_0 = 3, KERNEL_TYPE_MIX_AIC_1_1 = 4, KERNEL_TYPE_MIX_AIC_1_2 = 5 };

namespace AscendC {

enum class TPosition : uint8_t { GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC };
using QuePosition = TPosition;

/// `SRC_DST`: DST waits for SRC.
enum class HardEvent : uint8_t {
    MTE2_MTE1, MTE1_MTE2, MTE1_M, M_MTE1, MTE2_V, V_MTE2, MTE3_V, V_MTE3, M_V, V_M, V_V, MTE3_MTE1, MTE1_MTE3, MTE1_V, MTE2_M, M_MTE2,
    V_MTE1, M_FIX, FIX_M, MTE3_MTE2, MTE2_MTE3, S_V, V_S, S_MTE2, MTE2_S, S_MTE3, MTE3_S, MTE2_FIX, FIX_MTE2, FIX_S, M_S, FIX_MTE3, COUNT
};

enum class RoundMode { CAST_NONE = 0, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };
enum class ReduceOrder { ORDER_VALUE_INDEX = 0, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };

/// Strides of a two-operand instruction, in 32 B blocks.
struct BinaryRepeatParams {
    uint8_t dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1, dstRepStride = 8, src0RepStride = 8, src1RepStride = 8;
};
/// Strides of a one-operand instruction, in 32 B blocks.
struct UnaryRepeatParams {
    uint16_t dstBlkStride = 1, srcBlkStride = 1;
    uint8_t dstRepStride = 8, srcRepStride = 8;
};
struct BrcbRepeatParams {
    uint16_t dstBlkStride = 1, dstRepStride = 8;
};
/// Copy of `blockCount` runs of `blockLen` blocks, with gaps; all in 32 B blocks.
struct DataCopyParams {
    uint16_t blockCount = 1, blockLen = 0, srcStride = 0, dstStride = 0;
};
/// Copy of `blockCount` runs of `blockLen` bytes; gaps are in bytes on the global side and in 32 B blocks on the UB side.
struct DataCopyExtParams {
    uint16_t blockCount = 1;
    uint32_t blockLen = 0, srcStride = 0, dstStride = 0, rsv = 0;
};
/// Padding of each run in elements; each side at most 32 bytes.
template <typename T> struct DataCopyPadExtParams {
    bool isPad = false;
    uint8_t leftPadding = 0, rightPadding = 0;
    T paddingValue{};
};

} // namespace AscendC
