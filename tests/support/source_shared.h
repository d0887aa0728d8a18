/* "shared:NAME": files that hosts can share, as those of a store: each has a version, and may change, be slow, or fail. A row of
 * store_table.c in tests that use it. Thread-safe. */
#ifndef SUPPORT_SOURCE_SHARED_H
#define SUPPORT_SOURCE_SHARED_H

#include "source/source.h"
#include "source/store.h"

extern const struct store store_of_tests;

struct source_shared { /* of every file and reference; all atomic */
    const unsigned char *bytes;
    uint64_t n_bytes, version;
    bool opens_wait, reads_wait; /* until they are false, or cancelled */
    uint64_t waiting_uids;       /* bits: reads of these users wait, too, and ... */
    uint64_t denied_uids;        /* ... these may open nothing; below 64 */
    enum error_code open_code;   /* with which opening fails; "absent" is never found */
    enum error_code read_code;   /* with which reading fails, for ... */
    const char *read_reason;
    bool is_weak;               /* no version tells that a file has changed */
    uint64_t n_opens, n_closes; /* of references, so far */
    uint64_t n_files, n_reads;  /* opened, and done, so far */
    uint64_t read_bytes;        /* asked for, so far */
};
extern struct source_shared source_shared;

#endif
