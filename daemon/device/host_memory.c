/* A sealed memfd: allocation, page by page backing, publication; see host_memory.h.
 *
 * Sealing: SHRINK and GROW are sealed when a load takes the memory, before it is filled. What was filled is sealed for good:
 * F_SEAL_WRITE, no writable mapping is left anywhere, and not even root can write to it through /proc/PID/mem.
 *
 * Chunk states:  RAW --one worker--> BUSY --> READY, or back to RAW when memory ran out. */
#include "device/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26) /* log2 of the page size, in the flags' top bits */
#endif

enum { CHUNK_RAW, CHUNK_BUSY, CHUNK_READY };
enum { FD_PATH_CHARS = 32, UNMAP_BYTES = 512 << 20 };

static uint64_t count_chunks(uint64_t bytes)
{
    return (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES;
}

/* Addresses that begin at a 2 MiB boundary: with room to spare, then the ends go back. */
static unsigned char *reserve_aligned(uint64_t bytes)
{
    uint64_t room = bytes + HUGE_PAGE_BYTES;
    unsigned char *start = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    uint64_t skip = -(uintptr_t)start & (HUGE_PAGE_BYTES - 1);
    if (skip)
        munmap(start, skip);
    munmap(start + skip + bytes, HUGE_PAGE_BYTES - skip);
    return start + skip;
}

static int open_memory(struct host_memory *memory, unsigned int flags, struct error *error)
{
    memory->fd = memfd_create("tensorcast-replica", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (memory->fd < 0)
        return fail_errno(error, errno, "creating memory of %" PRIu64 " bytes for a replica", memory->bytes);
    if (ftruncate(memory->fd, (off_t)memory->bytes))
        fail_errno(error, errno == EINVAL ? ENOMEM : errno, "sizing a replica's memory to %" PRIu64 " bytes", memory->bytes);
    else if (!(memory->address = reserve_aligned(memory->bytes)) ||
             mmap(memory->address, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->fd, 0) ==
                 MAP_FAILED)
        fail_errno(error, errno, "mapping %" PRIu64 " bytes of a replica", memory->bytes);
    else
        return 0;
    if (memory->address)
        munmap(memory->address, memory->bytes);
    memory->address = NULL;
    close(memory->fd);
    memory->fd = -1;
    return -1;
}

static int choose_pages(struct host_memory *memory, struct error *error)
{
    memory->rung = HUGE_RUNG_NONE;
    if (memory->bytes < HUGE_PAGE_BYTES)
        return open_memory(memory, 0, error);
    memory->rung = HUGE_RUNG_RESERVED;
    if (huge_pages_reserved(memory->bytes) && open_memory(memory, MFD_HUGETLB | MFD_HUGE_2MB, error) == 0)
        return 0;
    if (open_memory(memory, 0, error))
        return -1;
    bool is_on_fault = huge_pages_on_fault() && madvise(memory->address, memory->bytes, MADV_HUGEPAGE) == 0;
    memory->rung = is_on_fault ? HUGE_RUNG_FAULT : HUGE_RUNG_COLLAPSE;
    return 0;
}

static struct host_memory *new_memory(uint64_t bytes)
{
    struct host_memory *fresh = memory_alloc(sizeof *fresh);
    fresh->fd = -1;
    fresh->bytes = bytes;
    fresh->page_kind = PAGE_KIND_4K;
    pthread_mutex_init(&fresh->lock, NULL);
    pthread_cond_init(&fresh->backed, NULL);
    return fresh;
}

/* 32 MB of an offer as large as offers get. */
static int make_chunks(struct host_memory *memory, struct error *error)
{
    memory->chunks = memory_try(count_chunks(memory->bytes));
    return memory->chunks ? 0 : metadata_fail_memory(count_chunks(memory->bytes), error);
}

int host_memory_create(uint64_t bytes, struct host_memory **memory, struct error *error)
{
    struct host_memory *fresh = new_memory(bytes);
    if (choose_pages(fresh, error) || make_chunks(fresh, error)) {
        host_memory_destroy(fresh);
        return -1;
    }
    *memory = fresh;
    return 0;
}

int host_memory_lend(int fd, unsigned char *address, uint64_t bytes, bool is_hugetlb, struct host_memory **memory,
                     struct error *error)
{
    struct host_memory *lent = new_memory(bytes);
    lent->rung = is_hugetlb ? HUGE_RUNG_RESERVED : HUGE_RUNG_NONE;
    lent->is_lent = true;
    lent->fd = fd;
    if (make_chunks(lent, error)) {
        host_memory_destroy(lent);
        return -1;
    }
    if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        fail_errno(error, errno, "mapping %" PRIu64 " bytes of a client's memory", bytes);
        host_memory_destroy(lent);
        return -1;
    }
    lent->address = address;
    *memory = lent;
    return 0;
}

enum page_kind host_memory_page_kind(const struct host_memory *memory)
{
    /* nine tenths huge is huge: a last chunk that could not be had does not make a load slow */
    bool is_huge = memory->bytes >= HUGE_PAGE_BYTES && memory->huge_bytes >= memory->bytes / 10 * 9;
    return memory->rung == HUGE_RUNG_RESERVED ? PAGE_KIND_HUGETLB : is_huge ? PAGE_KIND_THP : PAGE_KIND_4K;
}

static int shorten(struct host_memory *memory, uint64_t bytes)
{
    if (munmap(memory->address + bytes, memory->bytes - bytes))
        return -1;
    memory->bytes = bytes;
    memory->huge_bytes = memory->huge_bytes < bytes ? memory->huge_bytes : bytes;
    memory->pool_ready_bytes = memory->pool_ready_bytes < bytes ? memory->pool_ready_bytes : bytes;
    return ftruncate(memory->fd, (off_t)bytes);
}

/* Page tables move along. */
static int lengthen(struct host_memory *memory, uint64_t bytes)
{
    unsigned char *start = ftruncate(memory->fd, (off_t)bytes) == 0 ? reserve_aligned(bytes) : NULL;
    if (!start)
        return -1;
    if (mremap(memory->address, memory->bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED) {
        munmap(start, bytes);
        return -1;
    }
    uint64_t n_old = count_chunks(memory->bytes), n_new = count_chunks(bytes);
    memory->chunks = memory_grow(memory->chunks, n_new, 1);
    memset(memory->chunks + n_old, CHUNK_RAW, n_new - n_old);
    memory->address = start;
    memory->bytes = bytes;
    return 0;
}

int host_memory_fix(struct host_memory *memory, uint64_t bytes, struct error *error)
{
    int failed = 0;
    if (bytes < memory->bytes)
        failed = shorten(memory, bytes);
    else if (bytes > memory->bytes)
        failed = lengthen(memory, bytes);
    if (failed || fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        return fail_errno(error, errno, "sizing a replica's memory to %" PRIu64 " bytes", bytes);
    return 0;
}

void host_memory_destroy(struct host_memory *memory)
{
    if (!memory)
        return;
    /* piece by piece: other threads that map something wait for each */
    for (uint64_t offset = 0; memory->address && !memory->is_lent && offset < memory->bytes; offset += UNMAP_BYTES) {
        uint64_t left = memory->bytes - offset;
        munmap(memory->address + offset, left < UNMAP_BYTES ? left : UNMAP_BYTES);
    }
    if (memory->fd >= 0 && !memory->is_lent)
        close(memory->fd);
    pthread_cond_destroy(&memory->backed);
    pthread_mutex_destroy(&memory->lock);
    free(memory->chunks);
    free(memory);
}

struct chunks { /* [first, end) */
    uint64_t first, end;
};

/* Maps pages that the client has made. A page that is made here would be charged to the daemon's memory control group. */
static int map_lent_pages(struct host_memory *memory, uint64_t offset, uint64_t end, uint64_t *huge_bytes,
                          struct error *error)
{
    unsigned char *address = memory->address + offset;
    int64_t hole = lseek(memory->fd, (off_t)offset, SEEK_HOLE);
    if (hole < 0)
        return fail_errno(error, errno, "looking for holes in a client's memory");
    if ((uint64_t)hole < end)
        return fail(error, ERROR_FAILED_PRECONDITION, "REGION_HAS_HOLES",
                    "the client's memory has no page at byte %" PRId64
                    "; make the pages of every 2 MiB that the targets touch before you lend it (MADV_POPULATE_WRITE)",
                    hole);
    if (huge_pages_back(memory->rung, address, end - offset, huge_bytes, error))
        return -1;
    if (memory->rung == HUGE_RUNG_NONE)
        *huge_bytes = huge_pages_count(address, end - offset);
    return 0;
}

static int back_chunks(struct host_memory *memory, struct chunks chunks, struct error *error)
{
    uint64_t offset = chunks.first * HUGE_PAGE_BYTES, end = chunks.end * HUGE_PAGE_BYTES, huge_bytes = 0;
    end = end < memory->bytes ? end : memory->bytes;
    int result = memory->is_lent ? map_lent_pages(memory, offset, end, &huge_bytes, error)
                                 : huge_pages_back(memory->rung, memory->address + offset, end - offset, &huge_bytes, error);
    __atomic_add_fetch(&memory->huge_bytes, huge_bytes, __ATOMIC_RELAXED);
    pthread_mutex_lock(&memory->lock);
    for (uint64_t chunk = chunks.first; chunk < chunks.end; chunk++)
        __atomic_store_n(&memory->chunks[chunk], result ? CHUNK_RAW : CHUNK_READY, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&memory->backed);
    pthread_mutex_unlock(&memory->lock);
    return result;
}

/* Makes the first raw chunks from `first` on ours to back. False when there are none before `end`. */
static bool claim_chunks(struct host_memory *memory, uint64_t first, uint64_t end, struct chunks *claimed)
{
    pthread_mutex_lock(&memory->lock);
    while (first < end && memory->chunks[first] != CHUNK_RAW)
        first++;
    *claimed = (struct chunks){first, first};
    while (claimed->end < end && memory->chunks[claimed->end] == CHUNK_RAW)
        __atomic_store_n(&memory->chunks[claimed->end++], CHUNK_BUSY, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&memory->lock);
    return claimed->end > claimed->first;
}

/* Waits for the first chunk that another worker is at. False when there is none before `end`. */
static bool wait_for_others(struct host_memory *memory, uint64_t first, uint64_t end)
{
    bool has_waited = false;
    pthread_mutex_lock(&memory->lock);
    while (first < end && memory->chunks[first] != CHUNK_BUSY)
        first++;
    while (first < end && memory->chunks[first] == CHUNK_BUSY) {
        pthread_cond_wait(&memory->backed, &memory->lock);
        has_waited = true;
    }
    pthread_mutex_unlock(&memory->lock);
    return has_waited;
}

int host_memory_prepare(struct host_memory *memory, uint64_t offset, uint64_t bytes, struct error *error)
{
    uint64_t first = offset / HUGE_PAGE_BYTES, end = count_chunks(offset + bytes);
    struct chunks claimed;
    if (memory->freer)
        host_freer_wait(memory->freer, memory->after);
    for (;;) { /* a chunk whose worker failed is raw again */
        while (first < end && __atomic_load_n(&memory->chunks[first], __ATOMIC_ACQUIRE) == CHUNK_READY)
            first++;
        if (first == end)
            return 0;
        while (claim_chunks(memory, first, end, &claimed))
            if (back_chunks(memory, claimed, error))
                return -1;
        while (wait_for_others(memory, first, end))
            ;
    }
}

/* A mapping of a read-only description, which nothing can make writable again, takes the place of our writable one, and only
 * then F_SEAL_WRITE is accepted. In one step: workers may be copying from this memory to other replicas. */
int host_memory_seal(struct host_memory *memory, struct error *error)
{
    if (memory->rung == HUGE_RUNG_FAULT)
        memory->huge_bytes = huge_pages_count(memory->address, memory->bytes);
    memory->page_kind = host_memory_page_kind(memory);
    int reader = host_memory_export_fd(memory, error);
    if (reader < 0)
        return -1;
    void *address = mmap(memory->address, memory->bytes, PROT_READ, MAP_SHARED | MAP_FIXED, reader, 0);
    int failed = address == MAP_FAILED || fcntl(memory->fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) ? errno : 0;
    if (failed) {
        close(reader);
        return fail_errno(error, failed, "sealing a replica of %" PRIu64 " bytes", memory->bytes);
    }
    close(memory->fd); /* the one description that we have left is the mapping's: see host_memory_is_kept() */
    memory->fd = reader;
    return 0;
}

int host_memory_export_fd(const struct host_memory *memory, struct error *error)
{
    char path[FD_PATH_CHARS];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? fd : fail_errno(error, errno, "opening a replica's memory for a client");
}

/* A write lease is only given to the sole opener of a file: by another description, by a mapping of one, and by one that
 * lies in a socket's queue it is refused. Our mapping is of the very description that asks. SIGURG instead of the fatal
 * SIGIO in case another process opens the file between the two calls. */
bool host_memory_is_kept(const struct host_memory *memory)
{
    if (fcntl(memory->fd, F_SETSIG, SIGURG) == 0 && fcntl(memory->fd, F_SETLEASE, F_WRLCK) == 0) {
        fcntl(memory->fd, F_SETLEASE, F_UNLCK);
        return false;
    }
    return errno == EAGAIN;
}

/* --- freeing beside the loads: a queue and the thread that empties it, started with the first large memory ------------ */

enum { LARGE_BYTES = 64 << 20, STACK_BYTES = 256 << 10 };

void host_freer_init(struct host_freer *freer)
{
    *freer = (struct host_freer){.last = &freer->first};
    pthread_mutex_init(&freer->lock, NULL);
    pthread_cond_init(&freer->changed, NULL);
}

static void *free_them(void *data)
{
    struct host_freer *freer = data;
    pthread_mutex_lock(&freer->lock);
    while (freer->first || !freer->is_stopping) {
        struct host_memory *memory = freer->first;
        if (!memory) {
            pthread_cond_wait(&freer->changed, &freer->lock);
            continue;
        }
        freer->first = memory->next;
        if (!freer->first)
            freer->last = &freer->first;
        pthread_mutex_unlock(&freer->lock);
        host_memory_destroy(memory);
        pthread_mutex_lock(&freer->lock);
        __atomic_store_n(&freer->n_freed, freer->n_freed + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&freer->changed);
    }
    pthread_mutex_unlock(&freer->lock);
    return NULL;
}

/* Under the lock. */
static bool start_thread(struct host_freer *freer)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    if (freer->has_thread)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    freer->has_thread = pthread_create(&freer->thread, &attributes, free_them, freer) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return freer->has_thread;
}

void host_freer_give(struct host_freer *freer, struct host_memory *memory)
{
    pthread_mutex_lock(&freer->lock);
    bool is_later = memory->bytes >= LARGE_BYTES && memory->rung != HUGE_RUNG_RESERVED && start_thread(freer);
    if (is_later) {
        memory->next = NULL;
        *freer->last = memory;
        freer->last = &memory->next;
        __atomic_store_n(&freer->n_given, freer->n_given + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&freer->changed);
    }
    pthread_mutex_unlock(&freer->lock);
    if (!is_later)
        host_memory_destroy(memory);
}

uint64_t host_freer_now(const struct host_freer *freer)
{
    return __atomic_load_n(&freer->n_given, __ATOMIC_ACQUIRE);
}

void host_freer_wait(struct host_freer *freer, uint64_t until)
{
    if (__atomic_load_n(&freer->n_freed, __ATOMIC_ACQUIRE) >= until)
        return;
    pthread_mutex_lock(&freer->lock);
    while (freer->n_freed < until)
        pthread_cond_wait(&freer->changed, &freer->lock);
    pthread_mutex_unlock(&freer->lock);
}

void host_freer_fini(struct host_freer *freer)
{
    pthread_mutex_lock(&freer->lock);
    freer->is_stopping = true;
    pthread_cond_broadcast(&freer->changed);
    pthread_mutex_unlock(&freer->lock);
    if (freer->has_thread)
        pthread_join(freer->thread, NULL);
    pthread_cond_destroy(&freer->changed);
    pthread_mutex_destroy(&freer->lock);
}
