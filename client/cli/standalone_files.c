/* `fetch --standalone`: the list of an artifact's files, and their bytes by reads of its source, several at once. */
#include <string.h>

#include "interrupt.h"
#include "resolve/artifact_files.h"
#include "standalone.h"

#define READ_BYTES ((uint64_t)8 << 20) /* a look at the clock and the signals between two */

static const char *copy_text(struct arena *arena, const char *text)
{
    return arena_text(arena, text ? text : "", text ? strlen(text) : 0);
}

static void fill_set(const struct artifact *artifact, struct file_set *set)
{
    const struct source *source = artifact->source;
    set->files = arena_array(&set->arena, source->n_files + 1, sizeof *set->files);
    set->n_files = source->n_files;
    set->notes = arena_array(&set->arena, artifact->notes.n + 1, sizeof *set->notes);
    for (size_t i = 0; i < artifact->notes.n; i++)
        set->notes[set->n_notes++] = copy_text(&set->arena, artifact->notes.texts[i]);
    set->identity = copy_text(&set->arena, artifact->identity);
    for (size_t i = 0; i < source->n_files; i++) {
        struct set_file *file = &set->files[i];
        char *identity = arena_alloc(&set->arena, DIGEST_HEX_CHARS + 1);
        artifact_file_identity(artifact, i, identity);
        *file = (struct set_file){.name = copy_text(&set->arena, source->files[i].name),
                                  .identity = identity,
                                  .bytes = source->files[i].size_bytes};
        memcpy(file->sums, source->files[i].checksums, sizeof file->sums);
        set->total_bytes += file->bytes;
    }
}

int standalone_list_files(struct backend *backend, enum file_set_kind kind, struct file_set *set, struct error *error)
{
    static const enum artifact_file_kind kinds[] = {[FILE_SET_SIDECARS] = ARTIFACT_FILES_SIDECARS,
                                                    [FILE_SET_TENSORS] = ARTIFACT_FILES_TENSORS,
                                                    [FILE_SET_ALL] = ARTIFACT_FILES_ALL};
    struct artifact **listed = standalone_listed(backend);
    struct source_options options;
    unsigned flags = RESOLVE_FRESH | (backend->args->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0);
    *set = (struct file_set){.artifact = backend->args->artifact};
    arena_init(&set->arena, 0);
    interrupt_defer(NULL);
    if (standalone_source_options(backend, &options, error) < 0)
        return -1;
    options.cancel = &backend->cancel;
    if (artifact_files_list(backend->args->artifact, &options, NULL, flags, kinds[kind], listed, error) < 0)
        return backend_fail(backend, error);
    fill_set(*listed, set);
    return 0;
}

static int read_bytes(void *data, size_t file, uint64_t offset, void *memory, uint64_t count, struct error *error)
{
    struct backend *backend = data;
    struct source *source = (*standalone_listed(backend))->source;
    struct iovec iov = {.iov_base = memory, .iov_len = count};
    struct source_read read = {
        .file = file, .offset = offset, .iov = &iov, .n_iov = 1, .cancel = &backend->cancel, .uid = source->uid};
    if (cancel_is_set(&backend->cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
    if (count && source_read(source, &read, error) < 0)
        return -1;
    return offset + count == source->files[file].size_bytes ? source_check_unchanged(source, file, &backend->cancel, error)
                                                            : 0;
}

static int on_progress(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    struct backend *backend = data;
    progress_show(&backend->progress, stage, done_bytes, total_bytes);
    return 0;
}

int standalone_fetch_files(struct backend *backend, const struct file_set *set, const struct file_sink *sink,
                           struct error *error)
{
    const struct file_reader reader = {read_bytes, READ_BYTES, backend};
    struct tc_options options = {.progress = on_progress, .data = backend};
    return file_set_read(set, &reader, sink, &options, error) < 0 ? backend_fail(backend, error) : 0;
}
