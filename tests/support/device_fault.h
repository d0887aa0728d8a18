/* A device in front of another one: counts calls, fails the n-th, and can hide that its memory has a host address, or
 * give out memory with old bytes in it, as GPUs do.
 * Wrappers stack. Thread-safe. */
#ifndef SUPPORT_DEVICE_FAULT_H
#define SUPPORT_DEVICE_FAULT_H

#include "device/device.h"

struct device_fault {
    struct device base;
    struct device *inner;
    uint64_t n_calls;   /* atomic: allocate, prepare, copy, seal, export_fd */
    uint64_t fail_from; /* this call (1 = the first) fails; 0 = none */
    uint64_t delay_ns;  /* before each call */
    int64_t n_segments; /* atomic: alive */
    bool hides_address;
    bool gives_dirty_memory;
};

struct device_fault *device_fault_create(struct device *inner); /* inner stays the caller's; free with device_destroy() */
struct segment *device_fault_inner(struct segment *segment);    /* the inner device's segment behind a wrapped one */

#endif
