#include "sidecar_copy.h"

#include <stdlib.h>

#include "base/memory.h"
#include "folder_writer.h"
#include "resolve/sidecar.h"

enum { CHUNK_BYTES = 1 << 20 };

static int copy_file(struct sidecars *sidecars, size_t index, struct folder_writer *writer, void *buffer,
                     const struct cancel *cancel, struct error *error)
{
    const struct sidecar *sidecar = &sidecars->files[index];
    uint64_t offset = 0;
    if (folder_writer_begin(writer, sidecar->name, error) < 0)
        return -1;
    do {
        uint64_t left = sidecar->size_bytes - offset, count = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        if (sidecars_read(sidecars, index, offset, buffer, count, cancel, error) < 0 ||
            folder_writer_add(writer, buffer, count, error) < 0)
            return -1;
        offset += count;
    } while (offset < sidecar->size_bytes);
    return folder_writer_commit(writer, error);
}

int sidecar_copy(struct backend *backend, const struct source_options *options, const char *folder,
                 const struct sidecar_taker *taker, struct error *error)
{
    struct folder_writer writer;
    struct sidecars *sidecars = sidecars_open(backend->args->artifact, options, NULL, 0, &backend->cancel, error);
    int failed = sidecars ? folder_writer_open(&writer, folder, error) : -1;
    void *buffer = memory_alloc(CHUNK_BYTES);
    for (size_t i = 0; !failed && i < sidecars->n_files; i++) {
        failed = copy_file(sidecars, i, &writer, buffer, &backend->cancel, error);
        if (!failed)
            taker->take(taker->data, sidecars->files[i].name, sidecars->files[i].size_bytes);
    }
    if (sidecars)
        folder_writer_close(&writer);
    free(buffer);
    sidecars_close(sidecars);
    return failed ? backend_fail(backend, error) : 0;
}
