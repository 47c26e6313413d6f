// TPipe (hands out UB and event ids), TBuf and TQue.
#pragma once
#include "sync.h"
#include "tensor.h"

namespace AscendC {

/// A plain buffer; the kernel synchronises its uses itself.
template <TPosition position> class TBuf {
  public:
    uint32_t begin = 0, bytes = 0;
    template <typename T> LocalTensor<T> Get() const { return LocalTensor<T>(begin, bytes, position); }
    /// The first `count` elements.
    template <typename T> LocalTensor<T> Get(uint32_t count, ascendc_emu::Site site = ascendc_emu::Site::here()) const { return GetWithOffset<T>(count, 0, site); }
    /// `count` elements from byte `offset` on.
    template <typename T> LocalTensor<T> GetWithOffset(uint32_t count, uint32_t offset, ascendc_emu::Site site = ascendc_emu::Site::here()) const {
        using namespace ascendc_emu;
        if (uint64_t(offset) + uint64_t(count) * sizeof(T) > bytes)
            reject(Code::LocalRange, "TBuf.GetWithOffset", site, "bytes %u..%llu of a buffer of %u", offset,
                   (unsigned long long)(uint64_t(offset) + uint64_t(count) * sizeof(T)), bytes);
        return LocalTensor<T>(begin + offset, uint32_t(count * sizeof(T)), position);
    }
};

/// A queue of `num` buffers. `EnQue`/`DeQue` carry data between pipes, `FreeTensor`/`AllocTensor` give buffers back; each
/// pair is a flag. VECIN: MTE2 to V and back; VECOUT: V to MTE3 and back; VECCALC: none.
template <TPosition position, int depth> class TQue {
  public:
    struct Slot {
        uint32_t begin = 0;
        enum { Free, Allocated, Queued, Taken } state = Free;
        int ready = -1, freed = -1; ///< event ids, -1 for none pending
    };
    std::vector<Slot> slots;
    std::deque<int> order;
    uint32_t bytes = 0;

    static constexpr bool IN = position == TPosition::VECIN, OUT = position == TPosition::VECOUT;
    static constexpr HardEvent READY = IN ? HardEvent::MTE2_V : HardEvent::V_MTE3;
    static constexpr HardEvent FREED = IN ? HardEvent::V_MTE2 : HardEvent::MTE3_V;

    template <typename T> LocalTensor<T> AllocTensor(ascendc_emu::Site site = ascendc_emu::Site::here()) {
        using namespace ascendc_emu;
        for (size_t i = 0; i < slots.size(); i++) {
            Slot &slot = slots[i];
            if (slot.state != Slot::Free) continue;
            consume(FREED, slot.freed, site);
            slot.state = Slot::Allocated;
            return LocalTensor<T>(slot.begin, bytes, position, int(i));
        }
        reject(Code::QueueUse, "AllocTensor", site, "all %zu buffers of the queue are in use", slots.size());
    }
    template <typename T> bool EnQue(const LocalTensor<T> &t, ascendc_emu::Site site = ascendc_emu::Site::here()) {
        Slot &slot = own("EnQue", t, Slot::Allocated, site);
        if (order.size() >= size_t(depth)) ascendc_emu::reject(ascendc_emu::Code::QueueUse, "EnQue", site, "the queue of depth %d is full", depth);
        produce(READY, slot.ready, site);
        slot.state = Slot::Queued;
        order.push_back(t.queue_slot);
        return true;
    }
    template <typename T> LocalTensor<T> DeQue(ascendc_emu::Site site = ascendc_emu::Site::here()) {
        using namespace ascendc_emu;
        if (order.empty()) reject(Code::QueueUse, "DeQue", site, "the queue is empty");
        int i = order.front();
        order.pop_front();
        consume(READY, slots[i].ready, site);
        slots[i].state = Slot::Taken;
        return LocalTensor<T>(slots[i].begin, bytes, position, i);
    }
    template <typename T> void FreeTensor(LocalTensor<T> &t, ascendc_emu::Site site = ascendc_emu::Site::here()) {
        using namespace ascendc_emu;
        if (t.queue_slot >= 0 && t.queue_slot < int(slots.size()) && slots[t.queue_slot].state == Slot::Allocated) slots[t.queue_slot].state = Slot::Taken;
        Slot &slot = own("FreeTensor", t, Slot::Taken, site);
        produce(FREED, slot.freed, site);
        if (slot.freed >= 0) {
            auto [src, dst] = event_pipes(FREED);
            core().flags[src][dst][slot.freed].freed = true;
        }
        slot.state = Slot::Free;
    }

  private:
    template <typename T> Slot &own(const char *op, const LocalTensor<T> &t, decltype(Slot::state) want, ascendc_emu::Site site) {
        using namespace ascendc_emu;
        int i = t.queue_slot;
        if (i < 0 || i >= int(slots.size()) || slots[i].begin != t.begin || slots[i].state != want)
            reject(Code::QueueUse, op, site, "the tensor is not one that this queue handed out, or not in that state");
        return slots[i];
    }
    void produce(HardEvent event, int &id, ascendc_emu::Site site) {
        if (!IN && !OUT) return;
        id = ascendc_emu::free_id("TQue", event, true, site);
        ascendc_emu::set_flag(event, id, site);
    }
    void consume(HardEvent event, int &id, ascendc_emu::Site site) {
        if (id < 0) return;
        ascendc_emu::wait_flag(event, id, site);
        ascendc_emu::release_id(event, id);
        id = -1;
    }
};

/// Owner of UB and of the event ids. One may be alive at a time.
class TPipe {
  public:
    TPipe(ascendc_emu::Site site = ascendc_emu::Site::here()) {
        using namespace ascendc_emu;
        if (core().pipe) reject(Code::PipeObject, "TPipe", site, "another TPipe is alive: call its Destroy() first");
        core().pipe = this;
        alive = true;
    }
    ~TPipe() {
        if (alive && ascendc_emu::current_core && ascendc_emu::core().pipe == this) ascendc_emu::core().pipe = nullptr;
    }
    TPipe(const TPipe &) = delete;

    /// Waits for everything and gives UB back.
    void Destroy() {
        ascendc_emu::Core &c = ascendc_emu::core();
        c.barrier_all();
        for (auto &source : c.flags)
            for (auto &pair : source)
                for (auto &flag : pair)
                    if (flag.freed || !flag.set) flag = ascendc_emu::Core::Flag{};
        c.ub_used = 0;
        c.pipe = nullptr;
        alive = false;
    }

    template <TPosition position> bool InitBuffer(TBuf<position> &buffer, uint32_t bytes, ascendc_emu::Site site = ascendc_emu::Site::here()) {
        buffer.bytes = bytes;
        buffer.begin = take(bytes, ascendc_emu::text("TBuf %u", unsigned(ascendc_emu::core().buffers.size())), site);
        return true;
    }
    template <TPosition position, int depth>
    bool InitBuffer(TQue<position, depth> &queue, uint8_t num, uint32_t bytes, ascendc_emu::Site site = ascendc_emu::Site::here()) {
        using namespace ascendc_emu;
        int &used = queue_buffers[int(position)];
        used += num;
        if (used > 8) reject(Code::QueueBuffers, "InitBuffer", site, "%d queue buffers at one position; there are 8", used);
        queue.bytes = (bytes + 31) / 32 * 32;
        for (int i = 0; i < num; i++) {
            typename TQue<position, depth>::Slot slot;
            slot.begin = take(bytes, text("TQue %d slot %d", queues, i), site);
            queue.slots.push_back(slot);
        }
        queues++;
        return true;
    }

    template <HardEvent event> event_t AllocEventID(ascendc_emu::Site site = ascendc_emu::Site::here()) { return ascendc_emu::free_id("AllocEventID", event, true, site); }
    template <HardEvent event> void ReleaseEventID(int32_t id) { ascendc_emu::release_id(event, id); }
    event_t FetchEventID(HardEvent event, ascendc_emu::Site site = ascendc_emu::Site::here()) { return ascendc_emu::free_id("FetchEventID", event, false, site); }
    template <HardEvent event> event_t FetchEventID(ascendc_emu::Site site = ascendc_emu::Site::here()) { return FetchEventID(event, site); }

  private:
    bool alive = false;
    int queue_buffers[16] = {};
    int queues = 0;

    uint32_t take(uint32_t bytes, std::string name, ascendc_emu::Site site) {
        using namespace ascendc_emu;
        Core &c = core();
        uint32_t size = (bytes + 31) / 32 * 32, begin = c.ub_used;
        if (bytes == 0) reject(Code::UbOverflow, "InitBuffer", site, "a buffer of 0 bytes");
        if (c.buffers.size() >= 64) reject(Code::QueueBuffers, "InitBuffer", site, "more than 64 buffers");
        if (uint64_t(begin) + size > c.usable)
            reject(Code::UbOverflow, "InitBuffer", site, "buffers need %llu bytes; %u are usable", (unsigned long long)(uint64_t(begin) + size), c.usable);
        c.ub_used += size;
        c.buffers.push_back(Buffer{begin, size, name});
        return begin;
    }
};

inline TPipe *GetTPipePtr(ascendc_emu::Site site = ascendc_emu::Site::here()) {
    using namespace ascendc_emu;
    if (!core().pipe) reject(Code::PipeObject, "GetTPipePtr", site, "no TPipe is alive");
    return core().pipe;
}

} // namespace AscendC
