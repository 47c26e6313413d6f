// Global memory: the host's buffers, their bounds, and hazards within a core and between blocks.
#pragma once
#include "machine.h"

namespace ascendc_emu {

/// Last accesses to two bytes of global memory over a whole launch. Blocks count from 1; 0 means nobody.
struct GlobalCell {
    uint32_t write_block = 0, written = 0;
    uint32_t read_block = 0; ///< a block that read, `MANY` if several did
    uint32_t read_dma = 0, read_scalar = 0;
    uint8_t write_pipe = 0;
    bool atomic = false;
    static constexpr uint32_t MANY = 0xffffffff;
};

/// One argument of the kernel: memory of the host and its shadow.
struct GlobalBuffer {
    uint8_t *base;
    uint64_t bytes;
    uint32_t index;
    std::vector<GlobalCell> cells;
};

/// State of one launch, shared by its blocks.
struct Launch {
    std::vector<GlobalBuffer> buffers;

    GlobalBuffer &find(const char *op, Site site, const uint8_t *p, uint64_t bytes) {
        for (GlobalBuffer &b : buffers)
            if (p >= b.base && p < b.base + b.bytes) {
                uint64_t begin = uint64_t(p - b.base);
                if (begin + bytes > b.bytes)
                    reject(Code::GlobalRange, op, site, "bytes %llu..%llu of argument %u, which has %llu", (unsigned long long)begin,
                           (unsigned long long)(begin + bytes), b.index, (unsigned long long)b.bytes);
                return b;
            }
        reject(Code::GlobalRange, op, site, "the address belongs to no argument (%llu bytes)", (unsigned long long)bytes);
    }

    /// Checks and records an access by the current core.
    void touch(const char *op, Site site, int pipe, uint32_t number, const Clock &clock, const uint8_t *p, uint64_t bytes, bool write, bool atomic) {
        if (bytes == 0) return;
        Core &c = core();
        GlobalBuffer &b = find(op, site, p, bytes);
        if (b.cells.empty()) b.cells.resize((b.bytes + 1) / 2);
        uint32_t me = c.block + 1;
        uint64_t begin = uint64_t(p - b.base), end = begin + bytes;
        for (uint64_t i = begin / 2; i < (end + 1) / 2; i++) {
            GlobalCell &cell = b.cells[i];
            bool both_atomic = write && atomic && cell.atomic;
            if (cell.write_block && !both_atomic) {
                if (cell.write_block != me)
                    reject(Code::BlockRace, op, site, "%s bytes %llu..%llu of argument %u, which block %u wrote", write ? "writes" : "reads",
                           (unsigned long long)begin, (unsigned long long)end, b.index, cell.write_block - 1);
                if (!(cell.write_pipe == pipe && cell.written == number) && clock.done[cell.write_pipe] < cell.written)
                    hazard(op, site, pipe, cell.write_pipe, cell.written, b, begin, end, write ? "write after write" : "read after write");
            }
            if (write) {
                if (cell.read_block && cell.read_block != me)
                    reject(Code::BlockRace, op, site, "writes bytes %llu..%llu of argument %u, which another block read", (unsigned long long)begin,
                           (unsigned long long)end, b.index);
                if (cell.read_block == me && clock.done[PIPE_MTE2] < cell.read_dma)
                    hazard(op, site, pipe, PIPE_MTE2, cell.read_dma, b, begin, end, "write after read");
                if (cell.read_block == me && clock.done[PIPE_S] < cell.read_scalar)
                    hazard(op, site, pipe, PIPE_S, cell.read_scalar, b, begin, end, "write after read");
                cell.write_block = me;
                cell.written = number;
                cell.write_pipe = uint8_t(pipe);
                cell.atomic = atomic;
            } else {
                if (cell.read_block && cell.read_block != me) {
                    cell.read_block = GlobalCell::MANY;
                } else if (cell.read_block != GlobalCell::MANY) {
                    if (cell.read_block != me) cell.read_dma = cell.read_scalar = 0;
                    cell.read_block = me;
                    (pipe == PIPE_S ? cell.read_scalar : cell.read_dma) = number;
                }
            }
        }
    }

    [[noreturn]] void hazard(const char *op, Site site, int pipe, int other, uint32_t number, const GlobalBuffer &b, uint64_t begin, uint64_t end, const char *kind) const {
        reject(Code::Hazard, op, site, "%s of bytes %llu..%llu of argument %u on pipe %s is not ordered after %s", kind, (unsigned long long)begin,
               (unsigned long long)end, b.index, pipe_name(pipe), core().earlier(other, number).c_str());
    }
};

inline thread_local Launch *current_launch = nullptr;

} // namespace ascendc_emu
