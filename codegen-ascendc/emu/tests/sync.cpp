// Faults in synchronisation: missing, unpaired or too many flags, missing barriers, races between blocks, queue misuse.
#include "cases.h"
using namespace AscendC;

/// y = 2·x through two slots, written with explicit flags; `LEAVE_OUT` names the one synchronisation that is missing.
enum Leave { NOTHING, LOAD_READY, LOAD_FREE, STORE_READY, STORE_FREE, BARRIER };
template <Leave LEAVE_OUT> void doubled(GM_ADDR gx, GM_ADDR gy) {
    TPipe pipe;
    TBuf<TPosition::VECIN> in;
    TBuf<TPosition::VECOUT> out;
    pipe.InitBuffer(in, 2 * 256);
    pipe.InitBuffer(out, 2 * 256);
    GlobalTensor<float> x, y;
    x.SetGlobalBuffer((float *)gx, N);
    y.SetGlobalBuffer((float *)gy, N);
    int32_t ready[2], free[2], done[2], left[2];
    for (int k = 0; k < 2; k++) {
        ready[k] = pipe.AllocEventID<HardEvent::MTE2_V>();
        free[k] = pipe.AllocEventID<HardEvent::V_MTE2>();
        done[k] = pipe.AllocEventID<HardEvent::V_MTE3>();
        left[k] = pipe.AllocEventID<HardEvent::MTE3_V>();
        if (LEAVE_OUT != LOAD_FREE) SetFlag<HardEvent::V_MTE2>(free[k]);
        if (LEAVE_OUT != STORE_FREE) SetFlag<HardEvent::MTE3_V>(left[k]);
    }
    for (uint32_t n = 0; n < 8; n++) {
        uint32_t k = n % 2;
        LocalTensor<float> a = in.Get<float>()[k * 64], b = out.Get<float>()[k * 64];
        if (LEAVE_OUT != LOAD_FREE) WaitFlag<HardEvent::V_MTE2>(free[k]);
        DataCopy(a, x[n * 64], 64);
        if (LEAVE_OUT != LOAD_READY) SetFlag<HardEvent::MTE2_V>(ready[k]), WaitFlag<HardEvent::MTE2_V>(ready[k]);
        if (LEAVE_OUT != STORE_FREE) WaitFlag<HardEvent::MTE3_V>(left[k]);
        Muls(b, a, 2.0f, 64);
        if (LEAVE_OUT != LOAD_FREE) SetFlag<HardEvent::V_MTE2>(free[k]);
        if (LEAVE_OUT != BARRIER) PipeBarrier<PIPE_V>();
        Adds(b, b, 0.0f, 64);
        if (LEAVE_OUT != STORE_READY) SetFlag<HardEvent::V_MTE3>(done[k]), WaitFlag<HardEvent::V_MTE3>(done[k]);
        DataCopy(y[n * 64], b, 64);
        if (LEAVE_OUT != STORE_FREE) SetFlag<HardEvent::MTE3_V>(left[k]);
    }
    for (int k = 0; k < 2; k++) {
        if (LEAVE_OUT != LOAD_FREE) WaitFlag<HardEvent::V_MTE2>(free[k]);
        if (LEAVE_OUT != STORE_FREE) WaitFlag<HardEvent::MTE3_V>(left[k]);
    }
}
template <bool FAULT> void compute_before_load(GM_ADDR x, GM_ADDR y) { doubled<FAULT ? LOAD_READY : NOTHING>(x, y); }
template <bool FAULT> void load_over_what_is_read(GM_ADDR x, GM_ADDR y) { doubled<FAULT ? LOAD_FREE : NOTHING>(x, y); }
template <bool FAULT> void store_before_compute(GM_ADDR x, GM_ADDR y) { doubled<FAULT ? STORE_READY : NOTHING>(x, y); }
template <bool FAULT> void compute_over_what_is_stored(GM_ADDR x, GM_ADDR y) { doubled<FAULT ? STORE_FREE : NOTHING>(x, y); }
template <bool FAULT> void vector_without_barrier(GM_ADDR x, GM_ADDR y) { doubled<FAULT ? BARRIER : NOTHING>(x, y); }

template <bool FAULT> void scalar_read_before_vector(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> a = buffer.Get<float>();
    Duplicate(a, 3.0f, 64);
    int32_t id = GetTPipePtr()->FetchEventID(HardEvent::V_S);
    if (!FAULT) SetFlag<HardEvent::V_S>(id), WaitFlag<HardEvent::V_S>(id);
    float v = a.GetValue(5);
    if (v != 3.0f) throw std::runtime_error("wrong value");
}

template <bool FAULT> void vector_read_before_scalar(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> a = buffer.Get<float>();
    for (uint32_t i = 0; i < 8; i++) a.SetValue(i, float(i));
    int32_t id = GetTPipePtr()->FetchEventID(HardEvent::S_V);
    if (!FAULT) SetFlag<HardEvent::S_V>(id), WaitFlag<HardEvent::S_V>(id);
    Adds(a[64], a, 1.0f, 8);
}

/// Stores to global memory and loads the same bytes again.
template <bool FAULT> void global_read_before_write(GM_ADDR, GM_ADDR gy) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 512);
    GlobalTensor<float> y;
    y.SetGlobalBuffer((float *)gy, N);
    LocalTensor<float> a = buffer.Get<float>();
    Duplicate(a, 3.0f, 64);
    int32_t done = pipe.AllocEventID<HardEvent::V_MTE3>(), again = pipe.AllocEventID<HardEvent::MTE3_MTE2>();
    SetFlag<HardEvent::V_MTE3>(done);
    WaitFlag<HardEvent::V_MTE3>(done);
    DataCopy(y, a, 64);
    if (!FAULT) SetFlag<HardEvent::MTE3_MTE2>(again), WaitFlag<HardEvent::MTE3_MTE2>(again);
    DataCopy(a[64], y, 64);
}

template <bool FAULT> void wait_without_set(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    int32_t id = pipe.AllocEventID<HardEvent::V_MTE2>();
    if (!FAULT) SetFlag<HardEvent::V_MTE2>(id);
    WaitFlag<HardEvent::V_MTE2>(id);
}
template <bool FAULT> void set_twice(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    int32_t id = pipe.AllocEventID<HardEvent::V_MTE2>();
    SetFlag<HardEvent::V_MTE2>(id);
    if (FAULT) SetFlag<HardEvent::V_MTE2>(id);
    WaitFlag<HardEvent::V_MTE2>(id);
}
template <bool FAULT> void flag_left_set(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    int32_t id = pipe.AllocEventID<HardEvent::V_MTE2>();
    SetFlag<HardEvent::V_MTE2>(id);
    if (!FAULT) WaitFlag<HardEvent::V_MTE2>(id);
}
template <bool FAULT> void ninth_event_id(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    for (int i = 0; i < (FAULT ? 9 : 8); i++) pipe.AllocEventID<HardEvent::MTE2_V>();
}
template <bool FAULT> void event_id_out_of_range(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    int32_t id = FAULT ? 8 : pipe.AllocEventID<HardEvent::MTE2_V>();
    SetFlag<HardEvent::MTE2_V>(id);
    WaitFlag<HardEvent::MTE2_V>(id);
}
template <bool FAULT> void event_id_not_allocated(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    int32_t id = FAULT ? int(EVENT_ID3) : int(pipe.AllocEventID<HardEvent::MTE2_V>());
    SetFlag<HardEvent::MTE2_V>(id);
    WaitFlag<HardEvent::MTE2_V>(id);
}
template <bool FAULT> void nine_queue_buffers(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q[5];
    for (int i = 0; i < (FAULT ? 5 : 4); i++) pipe.InitBuffer(q[i], 2, 64);
}
template <bool FAULT> void sixty_five_buffers(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> b[65];
    for (int i = 0; i < (FAULT ? 65 : 64); i++) pipe.InitBuffer(b[i], 32);
}
template <bool FAULT> void dequeue_of_empty_queue(GM_ADDR gx, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 256);
    GlobalTensor<float> x;
    x.SetGlobalBuffer((float *)gx, N);
    LocalTensor<float> a = q.AllocTensor<float>();
    DataCopy(a, x, 64);
    if (!FAULT) q.EnQue(a);
    LocalTensor<float> b = q.DeQue<float>();
    q.FreeTensor(b);
}
template <bool FAULT> void queue_without_free_buffer(GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, FAULT ? 1 : 2, 256);
    q.AllocTensor<float>();
    q.AllocTensor<float>();
}
/// The queue orders MTE2 after V of the last use by itself; without EnQue/DeQue the load is not ordered before the compute.
template <bool FAULT> void queue_bypassed(GM_ADDR gx, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    TBuf<TPosition::VECCALC> t;
    pipe.InitBuffer(q, 1, 256);
    pipe.InitBuffer(t, 256);
    GlobalTensor<float> x;
    x.SetGlobalBuffer((float *)gx, N);
    for (int n = 0; n < 3; n++) {
        LocalTensor<float> a = q.AllocTensor<float>();
        DataCopy(a, x[n * 64], 64);
        if (!FAULT) q.EnQue(a), a = q.DeQue<float>();
        PipeBarrier<PIPE_V>();
        Muls(t.Get<float>(), a, 2.0f, 64);
        q.FreeTensor(a);
    }
}

/// Every block adds to the same 64 values.
template <bool FAULT> void blocks_without_atomics(GM_ADDR, GM_ADDR gy) {
    TPipe pipe;
    TBuf<TPosition::VECOUT> buffer;
    pipe.InitBuffer(buffer, 256);
    GlobalTensor<float> y;
    y.SetGlobalBuffer((float *)gy, N);
    LocalTensor<float> a = buffer.Get<float>();
    Duplicate(a, 1.0f, 64);
    int32_t done = pipe.AllocEventID<HardEvent::V_MTE3>();
    SetFlag<HardEvent::V_MTE3>(done);
    WaitFlag<HardEvent::V_MTE3>(done);
    if (!FAULT) SetAtomicAdd<float>();
    DataCopy(y, a, 64);
    SetAtomicNone();
}
/// Each block reads what its neighbour wrote, or its own.
template <bool FAULT> void block_reads_another(GM_ADDR, GM_ADDR gy) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 512);
    GlobalTensor<float> y;
    y.SetGlobalBuffer((float *)gy, N);
    LocalTensor<float> a = buffer.Get<float>();
    uint32_t me = uint32_t(GetBlockIdx()), other = FAULT ? 0 : me;
    Duplicate(a, 1.0f, 64);
    PipeBarrier<PIPE_ALL>();
    DataCopy(y[me * 64], a, 64);
    PipeBarrier<PIPE_ALL>();
    DataCopy(a[64], y[other * 64], 64);
}

static const Case CASES[] = {
    CASE(compute_before_load, 8, "read after write of TBuf 0 bytes 0..256 on pipe V is not ordered after DataCopy"),
    CASE(load_over_what_is_read, 8, "write after read of TBuf 0"),
    CASE(store_before_compute, 8, "read after write of TBuf 1 bytes 0..256 on pipe MTE3 is not ordered after Adds"),
    CASE(compute_over_what_is_stored, 8, "write after read of TBuf 1"),
    CASE(vector_without_barrier, 8, "is not ordered after Muls"),
    CASE(scalar_read_before_vector, 8, "GetValue"),
    CASE(vector_read_before_scalar, 8, "SetValue"),
    CASE(global_read_before_write, 8, "argument 1"),
    CASE(wait_without_set, 10, "V_MTE2 0 is not set"),
    CASE(set_twice, 10, "set already"),
    CASE(flag_left_set, 10, "still set"),
    CASE(ninth_event_id, 6, "all 8"),
    CASE(event_id_out_of_range, 6, "0..7"),
    CASE(event_id_not_allocated, 6, "AllocEventID"),
    CASE(nine_queue_buffers, 7, "queue buffers"),
    CASE(sixty_five_buffers, 7, "64"),
    CASE(dequeue_of_empty_queue, 14, "empty"),
    CASE(queue_without_free_buffer, 14, "in use"),
    CASE(queue_bypassed, 8, "read after write of TQue 0"),
    CASE_ON(blocks_without_atomics, 11, "block 0 wrote", 3),
    CASE_ON(block_reads_another, 11, "block 0 wrote", 3),
};

int main() { return run_cases(CASES); }
