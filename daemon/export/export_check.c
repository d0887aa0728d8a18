/* Headers and documents are made once more and compared. Units are read in batches, several at once, past the page
 * cache where that can be: what is in it would say nothing about the disk. */
#include "export/export_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "export/export_units.h"

enum { BATCH = 16, THREADS = 4, PIECE_BYTES = 1 << 20, BLOCK = OUTPUT_FILE_BLOCK_BYTES };

struct checking {
    const struct export_job *job;
    const struct export_journal *journal;
    struct export_unit units[BATCH];
    uint32_t first; /* of the batch */
    uint64_t done_bytes;
};

static int fail_compare(const struct checking *all, const char *name, struct error *error)
{
    return fail(error, ERROR_DATA_LOSS, "VERIFICATION_FAILED", "%s/%s does not hold what was written to it",
                all->job->target->shown, name);
}

static int open_back(const struct checking *all, const char *name, struct error *error)
{
    int folder = all->job->target->content_fd;
    int fd = openat(folder, name, O_RDONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        fail_errno(error, errno, "cannot read back %s/%s", all->job->target->shown, name);
    else
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return fd;
}

/* Whole blocks around the bytes, into memory of one piece and two blocks. Returns where the bytes are; NULL on error. */
static const unsigned char *read_back(int fd, uint64_t offset, uint64_t count, unsigned char *memory)
{
    uint64_t from = offset / BLOCK * BLOCK, need = offset + count - from, has = 0;
    uint64_t room = (need + BLOCK - 1) / BLOCK * BLOCK;
    while (has < need) {
        ssize_t n = pread(fd, memory + has, room - has, (off_t)(from + has));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return NULL;
        has += (uint64_t)n;
    }
    return memory + (offset - from);
}

static unsigned char *map_piece(void)
{
    void *memory = mmap(NULL, PIECE_BYTES + 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* --- units --- */

struct read_run { /* neighbours in a file: what several puts wrote one behind the other is read as one */
    uint32_t file;
    uint64_t offset, bytes;
};

static int sum_run(const struct checking *all, const struct read_run *run, int fd, unsigned char *memory, uint32_t *sum,
                   struct error *error)
{
    for (uint64_t done = 0; done < run->bytes;) {
        uint64_t count = run->bytes - done < PIECE_BYTES ? run->bytes - done : PIECE_BYTES;
        const unsigned char *at = read_back(fd, run->offset + done, count, memory);
        if (!at)
            return fail_compare(all, all->job->layout->files[run->file].name, error);
        *sum = crc32c_update(*sum, at, count);
        done += count;
    }
    return 0;
}

/* From put `first` on, and how many puts it takes. */
static struct read_run find_run(const struct export_unit *unit, size_t first, size_t *n_puts)
{
    const struct file_put *puts = unit->puts;
    struct read_run run = {puts[first].file, puts[first].offset, file_put_bytes(&puts[first])};
    size_t p = first + 1;
    for (; p < unit->n_puts && puts[p].file == run.file && puts[p].offset == run.offset + run.bytes; p++)
        run.bytes += file_put_bytes(&puts[p]);
    *n_puts = p - first;
    return run;
}

/* The puts' bytes in their order, which is that of the sum. */
static int sum_unit(const struct checking *all, const struct export_unit *unit, unsigned char *memory, uint32_t *sum,
                    struct error *error)
{
    uint32_t open_file = UINT32_MAX;
    int fd = -1, status = 0;
    for (size_t p = 0, n_puts; status == 0 && p < unit->n_puts; p += n_puts) {
        struct read_run run = find_run(unit, p, &n_puts);
        if (run.file != open_file && fd >= 0)
            close(fd);
        if (run.file != open_file)
            fd = open_back(all, all->job->layout->files[run.file].name, error);
        open_file = run.file;
        status = fd < 0 ? -1 : sum_run(all, &run, fd, memory, sum, error);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

static int check_unit(void *data, size_t i, struct error *error)
{
    const struct checking *all = data;
    const struct export_unit *unit = &all->units[i];
    unsigned char *memory = map_piece();
    uint32_t sum = 0;
    if (!memory)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory to read back");
    int status = sum_unit(all, unit, memory, &sum, error);
    munmap(memory, PIECE_BYTES + 2 * BLOCK);
    if (status == 0 && sum != all->journal->sums[all->first + i])
        status = fail_compare(all, all->job->layout->files[unit->puts[0].file].name, error);
    return status;
}

static int check_units(struct checking *all, const struct export_amounts *amounts, struct error *error)
{
    const struct export_job *job = all->job;
    struct export_units units = {.layout = job->layout, .unit_bytes = amounts->unit_bytes};
    uint32_t n_units = all->journal->n_units;
    int status = 0;
    for (all->first = 0; status == 0 && all->first < n_units; all->first += BATCH) {
        uint32_t n = n_units - all->first < BATCH ? n_units - all->first : BATCH;
        for (uint32_t i = 0; i < n && status == 0; i++)
            status = export_units_next(&units, &all->units[i], error) > 0 ? 0 : -1;
        if (status == 0)
            status = parallel_run(n, THREADS, check_unit, all, error);
        for (uint32_t i = 0; i < n && status == 0; i++)
            all->done_bytes += all->units[i].bytes;
        if (job->progress)
            job->progress(job->data, "verify", 0, all->done_bytes, amounts->total_bytes);
        if (status == 0 && cancel_is_set(job->cancel))
            status = fail(error, ERROR_CANCELLED, "INTERRUPTED", "reading back was interrupted; --resume goes on with it");
    }
    for (size_t i = 0; i < BATCH; i++)
        export_unit_fini(&all->units[i]);
    return status;
}

/* --- what is known byte for byte --- */

/* The first bytes of a file are those of that sum. */
static int check_beginning(const struct checking *all, const char *name, uint64_t bytes, uint32_t wanted,
                           struct error *error)
{
    unsigned char *memory = map_piece();
    int fd = memory ? open_back(all, name, error) : -1, status = 0;
    uint32_t sum = 0;
    if (!memory)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory to read back");
    if (fd < 0)
        status = -1;
    for (uint64_t done = 0; status == 0 && done < bytes;) {
        uint64_t count = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        const unsigned char *at = read_back(fd, done, count, memory);
        if (at)
            sum = crc32c_update(sum, at, count);
        else
            status = fail_compare(all, name, error);
        done += count;
    }
    if (fd >= 0)
        close(fd);
    munmap(memory, PIECE_BYTES + 2 * BLOCK);
    return status == 0 && sum != wanted ? fail_compare(all, name, error) : status;
}

static int check_head(const struct checking *all, uint32_t f, struct error *error)
{
    const struct export_file *file = &all->job->layout->files[f];
    char *head = export_layout_head(all->job->layout, f);
    uint32_t sum = crc32c_update(0, head, file->head_bytes);
    free(head);
    return check_beginning(all, file->name, file->head_bytes, sum, error);
}

struct text_sum {
    uint64_t bytes;
    uint32_t sum;
};

static int sum_text(void *data, const char *text, size_t length, struct error *error)
{
    struct text_sum *sum = data;
    (void)error;
    sum->bytes += length;
    sum->sum = crc32c_update(sum->sum, text, length);
    return 0;
}

static int check_document(const struct checking *all, struct error *error)
{
    const struct export_layout *layout = all->job->layout;
    struct text_sum sum = {0};
    const struct export_sink sink = {sum_text, &sum};
    if (export_layout_write_document(layout, &sink, error) < 0)
        return -1;
    return check_beginning(all, layout->document_name, sum.bytes, sum.sum, error);
}

int export_check(const struct export_job *job, const struct export_amounts *amounts, const struct export_journal *journal,
                 struct error *error)
{
    const struct export_layout *layout = job->layout;
    struct checking *all = memory_alloc(sizeof *all);
    int status = 0;
    all->job = job;
    all->journal = journal;
    for (uint32_t f = 0; status == 0 && f < layout->n_files; f++)
        if (layout->files[f].is_written)
            status = check_head(all, f, error);
    if (status == 0 && layout->document_name)
        status = check_document(all, error);
    if (status == 0)
        status = check_units(all, amounts, error);
    free(all);
    return status;
}
