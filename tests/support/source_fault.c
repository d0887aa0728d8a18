/* See source_fault.h. Files and identities are those of the inner source, so the engine shares reads across wrappers. */
#include "tests/support/source_fault.h"

#include <stdlib.h>
#include <time.h>

#include "base/crc.h"
#include "base/memory.h"

/* Where in the buffers a byte of the file landed; NULL when it was not asked for, or thrown away. */
static unsigned char *find_byte(const struct source_read *read, uint64_t offset)
{
    uint64_t at = read->offset;
    for (int i = 0; i < read->n_iov; at += read->iov[i++].iov_len)
        if (offset >= at && offset < at + read->iov[i].iov_len && read->iov[i].iov_base)
            return (unsigned char *)read->iov[i].iov_base + (offset - at);
    return NULL;
}

/* Before the sum is made, as on a wire. */
static void spoil(struct source_fault *fault, struct source_read *read)
{
    unsigned char *byte = read->file == fault->wrong_file && fault->wrong_byte ? find_byte(read, fault->wrong_byte) : NULL;
    if (!byte || !__atomic_load_n(&fault->wrong_times, __ATOMIC_RELAXED))
        return;
    uint64_t left = __atomic_fetch_sub(&fault->wrong_times, 1, __ATOMIC_RELAXED);
    *byte ^= (unsigned char)(1 << (fault->wrong_differently ? left % 8 : 0));
    read->checksum_value = 0;
    for (int i = 0; i < read->n_iov && read->checksum; i++)
        read->checksum_value = crc_update(read->checksum, read->checksum_value, read->iov[i].iov_base, read->iov[i].iov_len);
}

static int fault_read(struct source *source, struct source_read *read, struct error *error)
{
    struct source_fault *fault = (struct source_fault *)source;
    uint64_t number = __atomic_add_fetch(&fault->n_reads, 1, __ATOMIC_RELAXED), bytes = 0;
    for (int i = 0; i < read->n_iov; i++)
        bytes += read->iov[i].iov_len;
    __atomic_add_fetch(&fault->read_bytes, bytes, __ATOMIC_RELAXED);
    uint64_t longest = __atomic_load_n(&fault->longest_read, __ATOMIC_RELAXED);
    while (bytes > longest &&
           !__atomic_compare_exchange_n(&fault->longest_read, &longest, bytes, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    while (fault->gate && !__atomic_load_n(fault->gate, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (fault->delay_ns)
        nanosleep(&(struct timespec){.tv_sec = (time_t)(fault->delay_ns / 1000000000),
                                     .tv_nsec = (long)(fault->delay_ns % 1000000000)},
                  NULL);
    if (fault->fail_from && number >= fault->fail_from && number < fault->fail_from + fault->fail_count)
        return fail(error, fault->fail_code, "INJECTED", "injected failure of read %llu of file %s at byte %llu",
                    (unsigned long long)number, source->files[read->file].name, (unsigned long long)read->offset);
    struct source_read inner = *read;
    inner.direct = read->direct && fault->inner->caps.direct_reads;
    int result = source_read(fault->inner, &inner, error);
    read->checksum_value = inner.checksum_value;
    __atomic_add_fetch(&fault->n_fresh, read->fresh_connection, __ATOMIC_RELAXED);
    __atomic_add_fetch(&fault->n_summed, read->checksum != CHECKSUM_NONE, __ATOMIC_RELAXED);
    spoil(fault, read);
    return result;
}

static uint64_t fault_resident_bytes(struct source *source, size_t file, const struct source_extent *extents,
                                     size_t n_extents)
{
    const struct source_fault *fault = (const struct source_fault *)source;
    uint64_t bytes = 0;
    (void)file;
    for (size_t i = 0; i < n_extents; i++)
        bytes += extents[i].bytes;
    return (uint64_t)((double)bytes * fault->resident_share);
}

static int fault_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error)
{
    struct source_fault *fault = (struct source_fault *)source;
    if (__atomic_load_n(&fault->is_changed, __ATOMIC_SEQ_CST))
        return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "it was changed");
    return by_name ? source_check_unchanged(fault->inner, file, error) : 0;
}

static void fault_speed(struct source *source, struct source_speed *speed)
{
    source_speed(((struct source_fault *)source)->inner, speed);
}

static void fault_close(struct source *source)
{
    source_unref(((struct source_fault *)source)->inner);
}

static const struct source_ops fault_ops = {
    .name = "fault",
    .source_size = sizeof(struct source_fault),
    .read = fault_read,
    .resident_bytes = fault_resident_bytes,
    .check_unchanged = fault_check_unchanged,
    .speed = fault_speed,
    .close = fault_close,
};

struct source_fault *source_fault_create(struct source *inner)
{
    struct source_fault *fault = memory_alloc(sizeof *fault);
    fault->base = *inner;
    fault->base.ops = &fault_ops;
    fault->base.references = 1;
    fault->base.reference = memory_copy_text(inner->reference);
    fault->base.files = memory_copy(inner->files, inner->n_files * sizeof *inner->files);
    for (size_t i = 0; i < inner->n_files; i++) {
        const struct source_file *file = &inner->files[i];
        fault->base.files[i].name = memory_copy_text(file->name);
        fault->base.files[i].version = file->version ? memory_copy_text(file->version) : NULL;
    }
    fault->base.handles = memory_alloc_array(inner->n_files, sizeof *inner->handles);
    fault->inner = inner;
    fault->fail_code = ERROR_DATA_LOSS;
    fault->fail_count = 1;
    return fault;
}
