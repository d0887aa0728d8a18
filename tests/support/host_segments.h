/* Host memory that is filled, sealed and handed out, and attempts of a client that gets its descriptor. */
#ifndef TESTS_SUPPORT_HOST_SEGMENTS_H
#define TESTS_SUPPORT_HOST_SEGMENTS_H

#include "device/device.h"

#define MIB ((uint64_t)1 << 20)
struct segment *host_segment_allocate(struct device *device, uint64_t bytes);
void host_segment_fill(struct segment *segment, int byte);
int host_segment_export(struct segment *segment);
bool host_segment_is_all(const void *memory, uint64_t bytes, unsigned char byte);
void host_segment_assert_refused(int result, int why);
void host_segment_attack(int fd, uint64_t bytes, bool is_open_for_writing);

#endif
