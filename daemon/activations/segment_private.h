/* Shared by segment.c and segment_seal.c. */
#ifndef ACTIVATIONS_SEGMENT_PRIVATE_H
#define ACTIVATIONS_SEGMENT_PRIVATE_H

#include "activations/segment.h"
#include "activations/segment_journal.h"

struct segment_builder {
    int folder_fd; /* borrowed */
    uint32_t number;
    int data_fd, journal_fd; /* -1 = not opened */
    bool is_direct;          /* large writes go past the page cache */
    bool is_created;         /* and its folder does not know yet for good */
    bool is_renamed;         /* sealed but for the manifest */
    bool is_broken;          /* the disk has refused bytes that the kernel then forgets: nothing more is believed */
    uint64_t room_bytes;     /* before the data, for the header */
    uint64_t partial_bytes;  /* of the sample that is coming, behind contents.data_bytes */
    bool is_reserved;        /* the disk has taken room for all of it */
    uint64_t journal_bytes;  /* durable */
    uint64_t started_bytes, waited_bytes; /* of the file, whose writing has been begun, and has been waited for */
    struct segment_contents contents;
    struct journal_text pending; /* records of samples that are not durable */
};

int segment_fail(const struct segment_builder *segment, const char *suffix, const char *verb, int errno_value,
                 struct error *error);
/* Writes all of it, wherever the disk takes it. */
int segment_write_all(const struct segment_builder *segment, int fd, const char *suffix, const void *bytes, uint64_t count,
                      uint64_t offset, struct error *error);

#endif
