/* One memfd with our mapping of it: the memory behind a host segment.
 *
 *   created --[prepared by the pool]--> filled --seal--> published --> destroyed with its segment
 *
 * Owned by the pool or by one segment, never by both. prepare() may be called by several workers at once; everything
 * else by the owner alone. */
#ifndef DEVICE_HOST_MEMORY_H
#define DEVICE_HOST_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/huge_pages.h"
#include "device/device.h"

struct host_memory;

/* Gives large memory back to the kernel on a thread of its own: 5 ms per GiB, during which the loop, which drops replicas,
 * would do nothing else. Memory that is to take its place is not backed before that is done (host_freer_wait()), so the host
 * never has both. Reserved huge pages go back at once, since the next load has to find them when it is set up. Any thread.
 */
struct host_freer {
    pthread_mutex_t lock; /* for all of it */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping;
    struct host_memory *first, **last;
    uint64_t n_given, n_freed; /* atomic to read */
};

void host_freer_init(struct host_freer *freer);
void host_freer_fini(struct host_freer *freer);                             /* when everything is freed */
void host_freer_give(struct host_freer *freer, struct host_memory *memory); /* takes it */
uint64_t host_freer_now(const struct host_freer *freer);                    /* to wait for what was given so far */
void host_freer_wait(struct host_freer *freer, uint64_t until);

struct host_memory {
    struct host_memory *next;  /* the pool's, as are is_pooled and pool_ready_bytes, under its lock */
    uint64_t pool_ready_bytes; /* backed while it was in the pool */
    bool is_wanted;            /* the pool would have it, of this size */
    bool is_pooled, is_lent;   /* lent: a client's; neither mapped nor closed here */
    int fd;                    /* read-only from the seal on; lent: borrowed */
    unsigned char *address;    /* 2 MiB aligned; readable, and writable until it is sealed */
    uint64_t bytes;
    enum huge_rung rung;
    enum page_kind page_kind; /* known from seal() on */
    unsigned char *chunks;    /* one state per HUGE_PAGE_BYTES, atomic: see host_memory.c */
    uint64_t huge_bytes;      /* atomic: in chunks that are known to be huge */
    struct host_freer *freer; /* of memory whose place this takes: no page before it is gone; NULL = of nothing */
    uint64_t after;           /* what to wait for there */
    pthread_mutex_t lock;     /* for waiting until another worker has backed a chunk */
    pthread_cond_t backed;
};

/* bytes is a multiple of the page size, of HUGE_PAGE_BYTES from there on. Of this size until host_memory_fix(). */
int host_memory_create(uint64_t bytes, struct host_memory **memory, struct error *error);
/* The same for the memfd of a client, which is mapped at `address`, a multiple of HUGE_PAGE_BYTES in a range that the caller
 * has reserved and unmaps after host_memory_destroy(). Any size. Borrows fd until then, and moves its file offset. Never
 * sealed. Preparing it maps the client's pages and makes none: FAILED_PRECONDITION where there is a hole. */
int host_memory_lend(int fd, unsigned char *address, uint64_t bytes, bool is_hugetlb, struct host_memory **memory,
                     struct error *error);
void host_memory_destroy(struct host_memory *memory); /* accepts NULL and half-built; clients keep what they have mapped */

/* Of this size for good, the same multiple as above, before it is filled: no process can shorten it any more. What was backed
 * and is still inside stays so; the address may be another. Memory of at least HUGE_PAGE_BYTES may be made shorter, and longer
 * unless it is of reserved pages. When it fails it can only be destroyed. No thread prepares pages meanwhile. */
int host_memory_fix(struct host_memory *memory, uint64_t bytes, struct error *error);
/* Backs every chunk of [offset, offset + bytes), each exactly once; waits for those that another worker is at. */
int host_memory_prepare(struct host_memory *memory, uint64_t offset, uint64_t bytes, struct error *error);
enum page_kind host_memory_page_kind(const struct host_memory *memory); /* as far as it is backed */
/* From here on it is never written again, not by us either. UNAVAILABLE when a write to it was given up: it may still come. */
int host_memory_seal(struct host_memory *memory, struct error *error);
int host_memory_export_fd(const struct host_memory *memory, struct error *error);
/* Of sealed memory: another open file description or a mapping of one is left, in any process or on its way to one. False
 * as well when the kernel cannot tell. */
bool host_memory_is_kept(const struct host_memory *memory);

#endif
