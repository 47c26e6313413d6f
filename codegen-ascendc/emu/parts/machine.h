// One vector core: its unified buffer, what each pipe knows to be complete, event flags, and the hazard shadow.
#pragma once
#include "error.h"
#include "types.h"
#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace AscendC {
class TPipe;
}

namespace ascendc_emu {

constexpr int PIPES = 7; ///< S, V, M, MTE1, MTE2, MTE3, FIX; PIPE_ALL stands for all of them.
constexpr uint32_t BLOCK = 32;
constexpr uint32_t UB_PHYSICAL = 192 * 1024;
/// What a kernel may use: the toolchain reserves 256 B, and 8 KiB more unless told otherwise.
constexpr uint32_t UB_USABLE = UB_PHYSICAL - 256 - 8 * 1024;
constexpr int EVENT_IDS = 8;

inline const char *pipe_name(int pipe) {
    static const char *names[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL"};
    return names[pipe];
}

/// For each pipe, how many of its instructions are known to be complete.
struct Clock {
    std::array<uint32_t, PIPES> done{};
    void join(const Clock &other) {
        for (int p = 0; p < PIPES; p++) done[p] = std::max(done[p], other.done[p]);
    }
};

/// One issued instruction.
struct Issued {
    const char *name;
    Site site;
};

/// Last accesses to two bytes of UB; numbers are instruction index + 1 within the pipe, 0 for none.
struct Cell {
    uint32_t written = 0;
    uint8_t write_pipe = 0;
    std::array<uint32_t, PIPES> read{};
};

/// A buffer handed out by TPipe, for messages and bounds.
struct Buffer {
    uint32_t begin, bytes;
    std::string name;
};

struct Core {
    uint32_t block = 0, blocks = 1, usable = UB_USABLE, ub_used = 0;
    std::vector<uint8_t> ub = std::vector<uint8_t>(UB_PHYSICAL, 0xcd);
    std::vector<uint8_t> written = std::vector<uint8_t>(UB_PHYSICAL, 0);
    std::vector<Cell> cells = std::vector<Cell>(UB_PHYSICAL / 2);
    std::vector<Buffer> buffers;
    std::array<std::vector<Issued>, PIPES> issued;
    std::array<Clock, PIPES> known; ///< per pipe: what is complete before its next instruction starts
    struct Flag {
        bool allocated = false; ///< taken by AllocEventID
        bool usable = false;    ///< given out by AllocEventID or FetchEventID
        bool set = false;
        bool freed = false; ///< set by FreeTensor: TPipe itself waits for it when it ends
        Clock at{};
        Site site{nullptr, 0};
    };
    Flag flags[PIPES][PIPES][EVENT_IDS];
    AscendC::TPipe *pipe = nullptr;
    bool atomic_add = false;

    /// Everything that is complete when the next instruction of `pipe` starts: what the pipe waited for, and what the scalar
    /// unit waited for before it issued the instruction. Scalar accesses themselves count only through an S_x flag.
    Clock start(int pipe) const {
        Clock clock = known[pipe];
        Clock scalar = known[PIPE_S];
        if (pipe != PIPE_S) scalar.done[PIPE_S] = 0;
        clock.join(scalar);
        return clock;
    }

    /// Issues an instruction and returns its number (index + 1).
    uint32_t issue(int pipe, const char *name, Site site) {
        issued[pipe].push_back(Issued{name, site});
        uint32_t number = uint32_t(issued[pipe].size());
        if (pipe == PIPE_S) known[PIPE_S].done[PIPE_S] = number; // scalar accesses are in order among themselves
        return number;
    }

    /// The clock at which everything issued to `pipe` so far is complete.
    Clock complete(int pipe) const {
        Clock clock = start(pipe);
        clock.done[pipe] = uint32_t(issued[pipe].size());
        return clock;
    }

    void barrier_all() {
        Clock all;
        for (int p = 0; p < PIPES; p++) all.done[p] = uint32_t(issued[p].size());
        for (int p = 0; p < PIPES; p++) known[p].join(all);
    }

    std::string tensor_name(uint32_t begin, uint32_t end) const {
        for (const Buffer &b : buffers)
            if (begin >= b.begin && begin < b.begin + b.bytes) return text("%s bytes %u..%u", b.name.c_str(), begin - b.begin, end - b.begin);
        return text("UB bytes %u..%u", begin, end);
    }

    /// Text of an earlier instruction for hazard messages.
    std::string earlier(int pipe, uint32_t number) const {
        const Issued &op = issued[pipe][number - 1];
        return text("%s at %s on pipe %s", op.name, where(op.site).c_str(), pipe_name(pipe));
    }

    /// Checks one access of the bytes `begin..end` by instruction `number` of `pipe`, started at `clock`, and records it.
    void touch(const char *op, Site site, int pipe, uint32_t number, const Clock &clock, uint32_t begin, uint32_t end, bool write) {
        for (uint32_t c = begin / 2; c < (end + 1) / 2; c++) {
            Cell &cell = cells[c];
            // Reads first: "write after read" names the reader, which is more telling than the write before it. Entries of
            // ordered accesses stay: whoever is ordered after the last of them is ordered after all.
            for (int p = 0; write && p < PIPES; p++)
                if (cell.read[p] && !(p == pipe && cell.read[p] == number) && clock.done[p] < cell.read[p])
                    hazard(op, site, pipe, p, cell.read[p], begin, end, "write after read");
            if (cell.written && !(cell.write_pipe == pipe && cell.written == number) && clock.done[cell.write_pipe] < cell.written)
                hazard(op, site, pipe, cell.write_pipe, cell.written, begin, end, write ? "write after write" : "read after write");
            if (write) {
                cell.written = number;
                cell.write_pipe = uint8_t(pipe);
            } else {
                cell.read[pipe] = number;
            }
        }
    }

    [[noreturn]] void hazard(const char *op, Site site, int pipe, int other, uint32_t number, uint32_t begin, uint32_t end, const char *kind) const {
        reject(Code::Hazard, op, site, "%s of %s on pipe %s is not ordered after %s", kind, tensor_name(begin, end).c_str(), pipe_name(pipe),
               earlier(other, number).c_str());
    }

    void check_initialised(const char *op, Site site, uint32_t begin, uint32_t end) const {
        for (uint32_t i = begin; i < end; i++)
            if (!written[i]) reject(Code::Uninitialised, op, site, "reads %s, of which byte %u was never written", tensor_name(begin, end).c_str(), i - begin);
    }

    /// At the end of a kernel no flag may be left set: the next kernel on the core would see it.
    void finish() const {
        for (int s = 0; s < PIPES; s++)
            for (int d = 0; d < PIPES; d++)
                for (int i = 0; i < EVENT_IDS; i++)
                    if (flags[s][d][i].set && !flags[s][d][i].freed)
                        reject(Code::FlagPairing, "SetFlag", flags[s][d][i].site, "flag %s_%s %d is still set when the kernel ends", pipe_name(s), pipe_name(d), i);
    }
};

inline thread_local Core *current_core = nullptr;
inline Core &core() { return *current_core; }

} // namespace ascendc_emu
