/* What the plugin's own files share: one device, its queues, its segments, and the errors of all three.
 *
 *   plugin_cuda.c   finds the devices            cuda_queue.c    streams, events, marks
 *   device_cuda.c   the backend's tables         cuda_memory.c   physical memory, its address and its descriptor
 *   cuda_driver.c   driver functions             cuda_region.c   memory that a client lends
 *   cuda_error.c    what went wrong, and whether for good
 *
 * The CUDA runtime is linked; the few driver functions without a counterpart there (virtual memory management) come from it,
 * too, so nothing links the driver. A device costs no GPU memory before its first load: then its context is made, on the
 * worker that needs it. Functions run on any thread unless they say otherwise. */
#ifndef CUDA_PRIVATE_H
#define CUDA_PRIVATE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "device/device.h"
#include "device/plugin.h"

enum { N_QUEUES = 4, N_EVENTS = 16 }; /* threads share queues; a mark that fell out of the ring waits for a later one */

struct cuda_queue { /* a stream, and the marks set in it */
    pthread_mutex_t lock;
    cudaStream_t stream;
    cudaEvent_t events[N_EVENTS];
    uint64_t n_marks;  /* under the lock; mark k is events[k % N_EVENTS] until k + N_EVENTS is set */
    uint64_t n_landed; /* atomic: marks up to this one are behind us */
};

struct cuda_device {
    struct device base; /* first */
    const struct device_plugin_host *host;
    int number;           /* of the CUDA runtime in this process */
    pthread_mutex_t lock; /* for opening */
    bool is_open;         /* atomic: the queues can be used */
    bool is_stuck;        /* atomic: copies or transfers that did not end may still write */
    struct cuda_queue queues[N_QUEUES];
    uint64_t granularity_bytes; /* of physical memory; 2 MiB so far */
};

struct cuda_segment {
    struct segment base; /* first */
    pthread_mutex_t lock;
    bool is_backed; /* atomic: it has memory. By the first writer: allocate() runs on the loop and must not wait */
    bool is_landed; /* sealed: no copy is under way */
    CUmemGenericAllocationHandle handle; /* not of a region by IPC handle */
    CUdeviceptr mapped;                  /* where the allocation is: all of it, also when a region is only a part */
    uint64_t mapped_bytes;
    CUdeviceptr address; /* of the segment, in there */
};

extern struct cuda_driver { /* see cuda_driver.c */
    CUresult (*init)(unsigned flags);
    CUresult (*device_get)(CUdevice *device, int number);
    CUresult (*device_name)(char *name, int chars, CUdevice device);
    CUresult (*device_uuid)(CUuuid *uuid, CUdevice device);
    CUresult (*device_memory)(size_t *bytes, CUdevice device);
    CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*granularity)(size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags which);
    CUresult (*create)(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                       unsigned long long flags);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*reserve)(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags);
    CUresult (*free_address)(CUdeviceptr address, size_t bytes);
    CUresult (*map)(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr address, size_t bytes);
    CUresult (*import_handle)(CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType type);
    CUresult (*properties)(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle);
    CUresult (*range)(CUdeviceptr *start, size_t *bytes, CUdeviceptr address);
    CUresult (*set_access)(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t n);
    CUresult (*export_handle)(void *handle_out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags);
    CUresult (*error_name)(CUresult result, const char **name);
} cuda_driver;
int cuda_driver_open(struct error *error); /* once, before everything else */

/* Queues one copy of rows, whatever their strides. */
cudaError_t cuda_copy_rows(void *dst, const void *src, const struct device_rows *rows, enum cudaMemcpyKind kind,
                           cudaStream_t stream);

/* After a failed call: 0 is never returned. An error that stays takes the device out of service. `what` is "doing so". */
int cuda_fail(struct cuda_device *device, cudaError_t code, struct error *error, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
int cuda_fail_driver(struct cuda_device *device, CUresult code, struct error *error, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
/* The device cannot be trusted any more, whatever the code says. */
int cuda_retire(struct cuda_device *device, struct error *error, const char *why, ...) __attribute__((format(printf, 3, 4)));

/* Makes the device the calling thread's current one, and its queues on first use. Fails when it is out of service. */
int cuda_enter(struct cuda_device *device, struct error *error);
struct cuda_queue *cuda_queue_own(struct cuda_device *device); /* the calling thread's */
int cuda_queue_mark(struct cuda_device *device, struct cuda_queue *queue, uint64_t *mark, struct error *error);
int cuda_queue_wait(struct cuda_device *device, uint64_t mark, struct error *error);
int cuda_queue_land_all(struct cuda_device *device, struct error *error); /* everything queued so far */

/* Waiting by polling, for so long at most. Time in which the whole process was stopped hardly counts. */
struct cuda_patience {
    uint64_t deadline_ns, waited_ns, last_ns;
    unsigned n_polls;
};
struct cuda_patience cuda_patience_begin(uint64_t deadline_ns);
bool cuda_patience_pause(struct cuda_patience *patience); /* between two polls; false when the time is over */
void cuda_queues_close(struct cuda_device *device);       /* nothing is queued any more */

/* Physical memory that can be exported, at an address in this process. After cuda_enter(). */
int cuda_memory_back(struct cuda_segment *segment, struct error *error);
int cuda_memory_export(struct cuda_segment *segment, struct error *error);
void cuda_memory_free(struct cuda_segment *segment);
/* An address for all mapped_bytes of the segment's handle. */
int cuda_memory_map(struct cuda_segment *segment, struct error *error);
/* The two ends of memory that a client lends: INVALID_ARGUMENT when it is not what the client says. After cuda_enter(). */
int cuda_region_open(struct cuda_segment *segment, struct error *error);
void cuda_region_close(struct cuda_segment *segment); /* no copy into it is under way */
/* The end of a use: it may only fail when nothing works any more, so the device goes out of service then. */
int cuda_undo(struct cuda_device *device, int code, const char *what);

struct device *cuda_device_create(const struct device_plugin_host *host, int number, struct error *error);

#endif
