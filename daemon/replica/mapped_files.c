#include "replica/mapped_files.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"

static int open_all(struct mapped_files *files, struct source *source, struct error *error)
{
    const struct mapped_view *view = files->view;
    for (size_t i = 0; i < view->n_files; i++)
        files->fds[i] = -1;
    if (quota_charge_add(&files->descriptors, view->n_files, error) != 0)
        return -1;
    for (size_t i = 0; i < view->n_files; i++) {
        enum immutability proof;
        files->fds[i] = source_open_immutable(source, view->files[i], &proof, error);
        if (files->fds[i] < 0)
            return -1;
        if (i == 0 || proof > files->proof)
            files->proof = proof;
    }
    return 0;
}

int mapped_files_open(const struct mapping *mapping, struct mapped_files **opened, struct error *error)
{
    struct mapped_files *files = memory_alloc(sizeof *files);
    struct metadata_account account = metadata_current();
    arena_init(&files->arena, 0);
    files->descriptors = (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid};
    files->view = mapped_view_build(mapping, &files->arena, error);
    files->fds = files->view ? arena_try_array(&files->arena, files->view->n_files, sizeof *files->fds, error) : NULL;
    if (files->fds && open_all(files, mapping->artifact->source, error) == 0) {
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
    for (size_t i = files->n_sent; files->fds && i < files->view->n_files; i++)
        if (files->fds[i] >= 0)
            close(files->fds[i]);
    metadata_free(files->ranges.list);
    quota_charge_end(&files->descriptors);
    arena_fini(&files->arena);
    free(files);
}
