/* Everything goes through one buffer: 100,000 tensors would be half a million small calls into libcrypto. Hashing is half of
 * what a large view costs, so nothing is said at length. */
#include "resolve/view_digest.h"

#include <string.h>

#include "resolve/derivation.h"
#include "resolve/target.h"

enum { BUFFER_BYTES = 1 << 16 };

struct sink {
    struct digest *digest;
    size_t used;
    unsigned char bytes[BUFFER_BYTES];
};

static void flush(struct sink *sink)
{
    digest_add(sink->digest, sink->bytes, sink->used);
    sink->used = 0;
}

static void add_bytes(struct sink *sink, const void *bytes, size_t count)
{
    if (count > sizeof sink->bytes - sink->used)
        flush(sink);
    if (count > sizeof sink->bytes) {
        digest_add(sink->digest, bytes, count);
        return;
    }
    memcpy(sink->bytes + sink->used, bytes, count);
    sink->used += count;
}

static void add_u64(struct sink *sink, uint64_t value)
{
    add_bytes(sink, &value, sizeof value); /* digests never leave the host: its byte order will do */
}

static void add_target(struct sink *sink, const struct target *target)
{
    add_u64(sink, (uint64_t)target->region << 32 | (uint64_t)target->dtype << 16 | target->rank);
    add_u64(sink, target->offset);
    if (!target->rank)
        return;
    add_bytes(sink, target->dims, target->rank * sizeof *target->dims);
    add_bytes(sink, target->strides, target->rank * sizeof *target->strides);
}

static void add_targets(struct sink *sink, const struct target_list *targets)
{
    add_u64(sink, UINT64_MAX); /* no alignment, which others begin with */
    add_u64(sink, targets->n_regions);
    for (size_t i = 0; i < targets->n_regions; i++)
        add_u64(sink, targets->regions[i].bytes);
    add_u64(sink, targets->n_tensors);
    for (size_t i = 0; i < targets->n_tensors; i++)
        add_target(sink, &targets->tensors[i]);
    add_u64(sink, targets->n_fills);
    for (size_t i = 0; i < targets->n_fills; i++) {
        add_target(sink, &targets->fills[i].target);
        add_u64(sink, targets->fills[i].value_bytes);
        add_bytes(sink, targets->fills[i].value, targets->fills[i].value_bytes);
    }
}

void view_digest(const struct mapping *mapping, const uint64_t *const *starts, const struct target_list *targets,
                 char hex[DIGEST_HEX_CHARS + 1])
{
    unsigned char out[DIGEST_BYTES];
    struct sink sink = {.digest = digest_create(), .used = 0};
    if (targets)
        add_targets(&sink, targets);
    add_u64(&sink, mapping->align_bytes);
    add_u64(&sink, mapping->placement);
    add_u64(&sink, mapping->n_tensors);
    if (mapping->artifact->derivation)
        add_bytes(&sink, mapping->artifact->derivation->digest, DIGEST_HEX_CHARS);
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        const struct tensor_record *record = tensor->record;
        bool at_origin = true; /* or nothing is taken: then the box begins nowhere in particular */
        for (uint32_t d = 0; tensor->bytes && d < record->rank; d++)
            at_origin = at_origin && !starts[i][d];
        add_u64(&sink, (uint64_t)record->name_length << 32 | (uint64_t)record->dtype << 16 | record->rank << 1 | at_origin);
        add_bytes(&sink, record->name, record->name_length);
        add_bytes(&sink, tensor->shape, record->rank * sizeof *tensor->shape);
        if (!at_origin)
            add_bytes(&sink, starts[i], record->rank * sizeof *starts[i]);
    }
    flush(&sink);
    digest_finish(sink.digest, out);
    digest_hex(out, sizeof out, hex);
}
