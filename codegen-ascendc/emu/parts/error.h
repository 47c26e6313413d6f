// Error codes, the exception that carries them, and source positions.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ascendc_emu {

/// What was rejected. The number is the code `EMUnn` of messages and the return value of the launch entry.
enum class Code : int {
    UbOverflow = 1,      ///< Buffers together exceed the unified buffer.
    CopyNotBlocks = 2,   ///< DataCopy of a byte count that is not a multiple of 32: the device drops the tail silently.
    Misaligned = 3,      ///< A UB operand does not start at the alignment its instruction needs (32 B unless said otherwise).
    LocalRange = 4,      ///< An operand reaches past the end of its local tensor or buffer.
    GlobalRange = 5,     ///< An access reaches past the end of a global tensor or of the memory behind it.
    EventIds = 6,        ///< Event id out of 0..7, not allocated, or more than 8 in use for one pipe pair.
    QueueBuffers = 7,    ///< More than 8 queue buffers at a position, or more than 64 buffers in a TPipe.
    Hazard = 8,          ///< Two conflicting accesses of one core that no flag or barrier orders.
    Uninitialised = 9,   ///< Read of UB bytes that nothing wrote.
    FlagPairing = 10,    ///< WaitFlag without SetFlag (the device hangs), SetFlag of a flag still set, or a flag left set at the end.
    BlockRace = 11,      ///< Two blocks access the same global bytes, at least one writing, without atomics.
    Repeat = 12,         ///< Repeat count, mask, count or stride outside what the instruction encodes.
    Overlap = 13,        ///< Source and destination overlap in a way the instruction does not support.
    QueueUse = 14,       ///< Queue used against its protocol (DeQue of an empty queue, no buffer free, foreign tensor).
    PipeObject = 15,     ///< Two TPipe objects alive, or a TPipe needed and none there.
    Unsupported = 16,    ///< The device does not offer this form (types, rounding mode), or the emulator does not yet.
    CopyPadding = 17,    ///< DataCopyPad padding of more than 32 bytes, or block count / length beyond its fields.
    Arguments = 18,      ///< The host called the launch entry with unusable arguments.
};

/// Where in the kernel source an instruction stands.
struct Site {
    const char *file;
    int line;
    static constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return Site{file, line}; }
};

/// A rejection. `what` is the whole message without the kernel's name, which the launch entry adds.
struct Rejected {
    Code code;
    std::string what;
};

inline std::string format(const char *fmt, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, fmt, args);
    return text;
}

__attribute__((format(printf, 1, 2))) inline std::string text(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    std::string out = format(fmt, args);
    va_end(args);
    return out;
}

/// `file:line`, without the directories.
inline std::string where(Site site) {
    std::string file = site.file ? site.file : "?";
    size_t slash = file.find_last_of('/');
    return text("%s:%d", slash == std::string::npos ? file.c_str() : file.c_str() + slash + 1, site.line);
}

/// Rejects the running kernel: `op` is the instruction's name.
[[noreturn]] __attribute__((format(printf, 4, 5))) inline void reject(Code code, const char *op, Site site, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    std::string message = format(fmt, args);
    va_end(args);
    throw Rejected{code, text("%s at %s: %s", op, where(site).c_str(), message.c_str())};
}

} // namespace ascendc_emu
