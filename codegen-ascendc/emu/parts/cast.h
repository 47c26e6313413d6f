// Conversions between element types.
#pragma once
#include "vector.h"

namespace ascendc_emu {

/// Converts one value; `nearest` is ties-to-even, otherwise towards zero.
template <typename D, typename S> D convert(S v, bool nearest) {
    float f = float(v);
    if constexpr (std::is_same_v<D, bfloat16_t>) {
        D d;
        d.raw = to_bf16(f, nearest);
        return d;
    } else if constexpr (std::is_same_v<D, half>) {
        D d;
        d.raw = to_f16(f, nearest);
        return d;
    } else if constexpr (std::is_same_v<D, int32_t>) {
        double whole = nearest ? std::nearbyint(double(f)) : std::trunc(double(f));
        return std::isnan(f) ? 0 : int32_t(std::clamp(whole, -2147483648.0, 2147483647.0)); // saturates
    } else {
        return D(f);
    }
}

/// Conversions that the vector unit has, and whether they can lose bits (and so need a rounding mode).
template <typename D, typename S> constexpr bool widens = std::is_same_v<D, float> && (std::is_same_v<S, half> || std::is_same_v<S, bfloat16_t>);
template <typename D, typename S>
constexpr bool narrows = (std::is_same_v<S, float> && (std::is_same_v<D, half> || std::is_same_v<D, bfloat16_t> || std::is_same_v<D, int32_t>)) ||
                         (std::is_same_v<S, bfloat16_t> && std::is_same_v<D, int32_t>) || (std::is_same_v<S, int32_t> && std::is_same_v<D, float>);

} // namespace ascendc_emu

namespace AscendC {

/// bf16/f16 to f32 take CAST_NONE; f32 to f16 and int32 to f32 take CAST_NONE (nearest) too; the others name their rounding.
template <typename D, typename S>
void Cast(const LocalTensor<D> &d, const LocalTensor<S> &s, RoundMode mode, uint32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    static_assert(widens<D, S> || narrows<D, S>, "EMU16: the vector unit has no conversion between these types");
    bool none = mode == RoundMode::CAST_NONE;
    bool none_allowed = widens<D, S> || std::is_same_v<D, half> || std::is_same_v<S, int32_t>;
    if (none ? !none_allowed : widens<D, S>) reject(Code::Unsupported, "Cast", site, "this conversion does not take rounding mode %d", int(mode));
    if (!none && mode != RoundMode::CAST_RINT && mode != RoundMode::CAST_TRUNC) reject(Code::Unsupported, "Cast", site, "rounding mode %d is not emulated", int(mode));
    Lanes l = consecutive("Cast", site, count);
    Op op("Cast", PIPE_V, site);
    op.align(d, "destination");
    op.align(s, "source");
    op.read(s, l, "source");
    op.overlap(d, l, s, l);
    op.write(d, l, "destination");
    for (uint32_t i = 0; i < count; i++) op.put<D>(d, i * uint32_t(sizeof(D)), convert<D, S>(op.get(s, i * uint32_t(sizeof(S))), mode != RoundMode::CAST_TRUNC));
}

} // namespace AscendC
