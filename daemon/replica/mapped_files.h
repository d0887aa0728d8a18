/* The part files of a view, opened to be handed out as they are: a read-only descriptor of each, of files whose bytes
 * provably cannot change, and where the tensors lie in them.
 *
 * Made by a helper, which the system calls may keep waiting; const afterwards except for the descriptors, which are the loop
 * thread's and closed as soon as they were sent. */
#ifndef REPLICA_MAPPED_FILES_H
#define REPLICA_MAPPED_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/quota.h"
#include "plan/plan.h"
#include "resolve/mapped_view.h"
#include "source/source.h"

struct page_range {
    uint64_t offset, bytes;
    uint32_t file; /* of the source */
};

struct page_ranges {
    struct page_range *list; /* by file, then offset; metadata_free() */
    size_t n;
    uint64_t bytes;
};

struct mapped_files {
    const struct mapped_view *view;
    enum immutability proof; /* the weakest of the files', by nothing when there are none */
    int *fds;                /* of each of view->files; -1 once it was sent */
    size_t n_fds, n_sent;
    struct page_ranges ranges; /* what of them is touched; empty once a reader has them */
    double cached_share;       /* of that, when they were opened */
    struct quota_charge descriptors;
    struct arena arena;
};

/* Charged to the account that the thread is in. FAILED_PRECONDITION: a tensor cannot be viewed, or a file may change (it is
 * named); others when there are too few descriptors or too little memory. */
int mapped_files_open(const struct mapping *mapping, struct mapped_files **files, struct error *error);
/* They were sent, up to this one: this process does not need them any more. */
void mapped_files_sent(struct mapped_files *files, size_t n_sent);
void mapped_files_close(struct mapped_files *files); /* accepts NULL */

/* Of a plan's steps; charged to the account that the thread is in. -1: there is no memory for the list. */
int page_ranges_build(const struct plan *plan, struct page_ranges *ranges, struct error *error);

#endif
