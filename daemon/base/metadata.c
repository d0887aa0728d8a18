/* Every piece has its charge before it. See metadata.h. */
#include "base/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

struct piece {
    struct quota_charge charge;
    _Alignas(16) unsigned char bytes[];
};

static _Thread_local struct metadata_account current;

struct metadata_account metadata_enter(struct metadata_account account)
{
    struct metadata_account before = current;
    current = account;
    return before;
}

struct metadata_account metadata_current(void)
{
    return current;
}

struct quota_charge metadata_charge(void)
{
    return (struct quota_charge){.quota = current.quota, .kind = QUOTA_METADATA, .uid = current.uid};
}

int metadata_fail_memory(size_t bytes, struct error *error)
{
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "the host has no %zu bytes of memory left for metadata",
                bytes);
}

void *metadata_alloc(size_t bytes, struct error *error)
{
    struct quota_charge charge = metadata_charge();
    if (bytes > SIZE_MAX / 2) {
        metadata_fail_memory(bytes, error);
        return NULL;
    }
    if (quota_charge_add(&charge, bytes, error) != 0)
        return NULL;
    struct piece *piece = memory_try(sizeof *piece + bytes);
    if (!piece) {
        quota_charge_end(&charge);
        metadata_fail_memory(bytes, error);
        return NULL;
    }
    piece->charge = charge;
    return piece->bytes;
}

void *metadata_array(size_t count, size_t size, struct error *error)
{
    uint64_t bytes;
    if (checked_mul(count, size, &bytes))
        return metadata_alloc(bytes, error);
    metadata_fail_memory(SIZE_MAX, error);
    return NULL;
}

static struct piece *piece_of(void *bytes)
{
    return (struct piece *)((unsigned char *)bytes - offsetof(struct piece, bytes));
}

/* The old piece and the new one may both exist while realloc() copies, but it moves large ones without copying. */
void *metadata_grow(void *old, size_t bytes, struct error *error)
{
    if (!old)
        return metadata_alloc(bytes, error);
    struct piece *piece = piece_of(old);
    uint64_t more = bytes - piece->charge.amount;
    bool counted = piece->charge.quota != NULL;
    if (bytes > SIZE_MAX / 2) {
        metadata_fail_memory(bytes, error);
        return NULL;
    }
    if (counted && quota_charge_add(&piece->charge, more, error) != 0)
        return NULL;
    struct piece *grown = realloc(piece, sizeof *piece + bytes);
    if (grown)
        return grown->bytes;
    if (counted)
        quota_charge_subtract(&piece->charge, more);
    metadata_fail_memory(bytes, error);
    return NULL;
}

void metadata_free(void *bytes)
{
    if (!bytes)
        return;
    struct piece *piece = piece_of(bytes);
    quota_charge_end(&piece->charge);
    free(piece);
}

int metadata_reserve(void **items, size_t *capacity, size_t size, struct error *error)
{
    size_t more = *capacity ? *capacity * 2 : 16;
    uint64_t bytes;
    void *grown = NULL;
    if (checked_mul(more, size, &bytes))
        grown = metadata_grow(*items, bytes, error);
    else
        metadata_fail_memory(SIZE_MAX, error);
    if (!grown)
        return -1;
    *items = grown;
    *capacity = more;
    return 0;
}
