/* Which file system a path leads to, without asking that file system, which may be one that does not answer any more: the
 * kernel's mount table, and the path as text. Links are not followed. Any thread. */
#ifndef SOURCE_MOUNTS_H
#define SOURCE_MOUNTS_H

#include <stdint.h>

/* A number for the mounts that the absolute path passes through: the OR of a few bits for each, so that sets of them are
 * numbers, too. 0 = not known. */
uint64_t mounts_find(const char *path);

static inline uint64_t mounts_bits_of(uint64_t device_id)
{
    uint64_t hash = (device_id + 1) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
}

#endif
