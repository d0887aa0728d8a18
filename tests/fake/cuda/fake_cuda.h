/* What tests may ask of the fake CUDA beside pretending to be CUDA. It consists of a libcuda.so.1 (state, streams, memory,
 * driver functions) and a libcudart.so that calls it. Device memory is a memfd, a stream is a thread.
 *
 * It says on standard error that it is loaded, and does nothing but fail with cudaErrorStubLibrary unless
 * TENSORCAST_TEST_FAKE_CUDA=1 is in the environment. For processes that tests start, the environment sets the rest:
 *   TENSORCAST_TEST_FAKE_CUDA_DEVICES (2), _MEMORY (bytes per device, 1 GiB), _DELAY_US (0, before each queued operation),
 *   _FAIL (FUNCTION:NTH:CODE or FUNCTION:NTH:CODE:sticky, see fake_cuda_fail()). Any thread. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No rule, no broken device, no pause, no delay, call counts at 0. Memory, streams and pins stay. */
void fake_cuda_reset(void);
/* The nth call from now on (1 = the next) of that function, or of any when NULL, returns the code and does nothing. "stream"
 * is an operation when its turn comes in a stream; it always breaks the device. is_sticky: every later call on the device
 * fails the same way, as after a fault on a real one. One rule at a time. */
void fake_cuda_fail(const char *function, uint64_t nth, int code, bool is_sticky);
void fake_cuda_pause(bool paused); /* streams stop before their next operation */
void fake_cuda_delay(uint64_t microseconds);
void fake_cuda_delay_on(int device, uint64_t microseconds); /* only the operations of one device */
uint64_t fake_cuda_calls(const char *function);             /* NULL = all that can fail */

struct fake_cuda_live { /* made and not yet ended */
    size_t handles, mappings, addresses, pins, streams, events;
    uint64_t bytes; /* of device memory */
};
struct fake_cuda_live fake_cuda_live(void);

#endif
