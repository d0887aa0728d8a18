#include "replica/mapped_files.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"

static size_t count_files(const struct mapping *mapping)
{
    size_t n = 0;
    for (size_t f = 0; f < mapping->artifact->source->n_files; f++)
        n += mapping->file_first[f + 1] > mapping->file_first[f];
    return n;
}

/* In the order of the view's files, which are those that have transfers. */
static int open_all(struct mapped_files *files, const struct mapping *mapping, struct error *error)
{
    struct source *source = mapping->artifact->source;
    for (size_t f = 0; f < source->n_files; f++) {
        enum immutability proof;
        if (mapping->file_first[f + 1] == mapping->file_first[f])
            continue;
        int fd = quota_charge_add(&files->descriptors, 1, error) == 0 ? source_open_immutable(source, f, &proof, error) : -1;
        if (fd < 0)
            return -1;
        if (proof > files->proof)
            files->proof = proof;
        files->fds[files->n_fds++] = fd;
    }
    return 0;
}

/* The files first: most are not proven, which costs a few system calls, and a view of millions of rows is never looked at. */
int mapped_files_open(const struct mapping *mapping, struct mapped_files **opened, struct error *error)
{
    struct mapped_files *files = memory_alloc(sizeof *files);
    struct metadata_account account = metadata_current();
    arena_init(&files->arena, 0);
    files->descriptors =
        (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid, .is_bulk = true};
    files->fds = arena_try_array(&files->arena, count_files(mapping), sizeof *files->fds, error);
    if (files->fds && open_all(files, mapping, error) == 0 &&
        (files->view = mapped_view_build(mapping, &files->arena, error)) != NULL) {
        assert(files->view->n_files == files->n_fds);
        *opened = files;
        return 0;
    }
    mapped_files_close(files);
    return -1;
}

void mapped_files_sent(struct mapped_files *files, size_t n_sent)
{
    for (; files->n_sent < n_sent; files->n_sent++) {
        close(files->fds[files->n_sent]);
        files->fds[files->n_sent] = -1;
        quota_charge_subtract(&files->descriptors, 1);
    }
}

void mapped_files_close(struct mapped_files *files)
{
    if (!files)
        return;
    mapped_files_sent(files, files->n_fds);
    metadata_free(files->ranges.list);
    quota_charge_end(&files->descriptors);
    arena_fini(&files->arena);
    free(files);
}
