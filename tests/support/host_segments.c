/* See host_segments.h. */
#include "tests/support/host_segments.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"

#include <cmocka.h> /* last: it makes a macro of fail */

struct segment *host_segment_allocate(struct device *device, uint64_t bytes)
{
    struct segment *segment = NULL;
    struct error error;
    assert_int_equal(device_allocate(device, bytes, &segment, &error), 0);
    assert_non_null(segment);
    return segment;
}

void host_segment_fill(struct segment *segment, int byte)
{
    struct error error;
    assert_int_equal(device_prepare(segment, 0, segment->allocated_bytes, &error), 0);
    memset(segment->host_address, byte, segment->allocated_bytes);
}

int host_segment_export(struct segment *segment)
{
    struct error error;
    assert_int_equal(device_seal(segment, &error), 0);
    int fd = device_export_fd(segment, &error);
    assert_true(fd >= 0);
    return fd;
}

bool host_segment_is_all(const void *memory, uint64_t bytes, unsigned char byte)
{
    const unsigned char *at = memory;
    return bytes == 0 || (*at == byte && memcmp(at, at + 1, bytes - 1) == 0);
}

void host_segment_assert_refused(int result, int why)
{
    assert_int_equal(result, -1);
    if (why)
        assert_int_equal(errno, why);
}

void host_segment_attack(int fd, uint64_t bytes, bool is_open_for_writing)
{
    host_segment_assert_refused(write(fd, "x", 1) == 1 ? 0 : -1, is_open_for_writing ? 0 : EBADF);
    host_segment_assert_refused(pwrite(fd, "x", 1, 0) == 1 ? 0 : -1, is_open_for_writing ? 0 : EBADF);
    host_segment_assert_refused(ftruncate(fd, 0), 0);
    host_segment_assert_refused(ftruncate(fd, (off_t)bytes * 2), 0);
    host_segment_assert_refused(fallocate(fd, 0, 0, (off_t)bytes * 2), 0);
    host_segment_assert_refused(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes), 0);
    host_segment_assert_refused(fcntl(fd, F_ADD_SEALS, 0), EPERM);
    assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    host_segment_assert_refused(mprotect(memory, bytes, PROT_READ | PROT_WRITE), EACCES);
    munmap(memory, bytes);
    unsigned char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(copy, MAP_FAILED);
    copy[0] = 99; /* one's own page from here on */
    munmap(copy, bytes);
}
