/* What the parts of the fake share: fake_state.c (rules, broken devices), fake_stream.c (threads), fake_memory.c (memfds),
 * fake_driver.c and fake_runtime.c (the functions themselves). One lock for everything but the work of a stream. */
#ifndef FAKE_PRIVATE_H
#define FAKE_PRIVATE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "fake_cuda.h"

enum { FAKE_MAX_DEVICES = 8, FAKE_GRANULARITY = 2 << 20 };

extern pthread_mutex_t fake_lock;
extern _Thread_local int fake_device; /* the thread's current one */

/* Every function that may fail begins with it: 0, or the code that it has to return. Driver and runtime number alike. */
int fake_call(const char *function); /* about the current device */
int fake_call_on(int device, const char *function);
int fake_event_device(cudaEvent_t event);
void fake_break(int device, int code); /* from now on every call on it fails with the code */
int fake_broken(int device);           /* 0, or the code */
int fake_n_devices(void);
uint64_t fake_device_bytes(void);
void fake_stream_step(int device); /* pause, delay and rules of one operation in a stream */
bool fake_work_begins(int device); /* false: it is broken */
void fake_work_ends(int device);
uint64_t fake_free_bytes(int device);

/* --- memory --- */
int fake_create(int device, uint64_t bytes, bool is_plain, CUmemGenericAllocationHandle *handle);
int fake_release(CUmemGenericAllocationHandle handle);
int fake_export(CUmemGenericAllocationHandle handle); /* a descriptor, -1 */
int fake_import(int fd, CUmemGenericAllocationHandle *handle);
int fake_reserve(uint64_t bytes, CUdeviceptr *address);
int fake_free_address(CUdeviceptr address, uint64_t bytes);
int fake_map(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);
int fake_unmap(CUdeviceptr address, uint64_t bytes);
int fake_allow(CUdeviceptr address, uint64_t bytes, int device);
/* What device memory an address is in; under the lock. */
struct fake_place {
    uint64_t start, bytes;
    CUmemGenericAllocationHandle handle;
    int device, fd;
    bool is_plain; /* of cudaMalloc */
};
bool fake_find(uint64_t address, struct fake_place *place);
int fake_device_of(CUmemGenericAllocationHandle handle); /* -1: there is no such handle */
void fake_retain(CUmemGenericAllocationHandle handle);   /* under the lock */
int fake_malloc(int device, uint64_t bytes, CUdeviceptr *address);
int fake_free(CUdeviceptr address);
/* The memory of a descriptor that names device memory of that kind, as one more handle. */
int fake_import_kind(int fd, bool is_plain, CUmemGenericAllocationHandle *handle);
int fake_ipc_open(const CUipcMemHandle *handle, CUdeviceptr *address);
/* Whether [address, +bytes) may be written to by the device. */
bool fake_is_device_memory(uint64_t address, uint64_t bytes, int device);
int fake_pin(void *memory, uint64_t bytes);
int fake_unpin(void *memory);
bool fake_is_pinned(const void *memory, uint64_t bytes);
void fake_count_memory(struct fake_cuda_live *live);

/* --- streams --- */
struct fake_copy {
    char *dst;
    const char *src; /* NULL: zeroes */
    uint64_t row_bytes, n_rows, dst_stride, src_stride;
};
struct fake_kernel {                                                                  /* an operation of another program */
    void (*run)(struct fake_kernel *kernel);                                          /* in its turn, without the lock */
    void (*destroy)(struct fake_kernel *kernel);                                      /* after that, under the lock */
    bool (*uses)(const struct fake_kernel *kernel, uint64_t address, uint64_t bytes); /* under the lock */
};
cudaStream_t fake_stream_create(void);
void fake_stream_launch(cudaStream_t stream, struct fake_kernel *kernel);
int fake_stream_device(cudaStream_t stream);
void fake_stream_destroy(cudaStream_t stream);
int fake_stream_copy(cudaStream_t stream, const struct fake_copy *copy);
cudaEvent_t fake_event_create(void);
void fake_event_destroy(cudaEvent_t event);
int fake_event_record(cudaEvent_t event, cudaStream_t stream);
int fake_event_query(cudaEvent_t event);
bool fake_is_in_use(uint64_t address, uint64_t bytes); /* a queued operation reads or writes it; under the lock */
void fake_streams_drain(void);                         /* what a broken device left behind */
void fake_count_streams(struct fake_cuda_live *live);

#endif
