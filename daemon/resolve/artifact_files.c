/* A header that was never in a file says of each that it is one tensor; the table made of them is the same as ever. Failure
 * modes: as of artifact_resolve() and sidecars_open(), a name that leads elsewhere, files that changed since they were listed.
 */
#include "resolve/artifact_files.h"

#include <string.h>

#include "base/memory.h"
#include "base/sidecar_name.h"
#include "base/text.h"
#include "resolve/activation_store.h"
#include "resolve/artifact_table.h"
#include "resolve/safetensors.h"
#include "resolve/sidecar.h"
#include "resolve/topology.h"

static struct part_header *whole_file(const struct source_file *file, struct error *error)
{
    struct part_header *header = memory_alloc(sizeof *header);
    size_t length = strlen(file->name);
    header->references = 1;
    header->file_bytes = file->size_bytes;
    header->n_tensors = 1;
    header->tensors = arena_try_array(&header->arena, 1, sizeof *header->tensors, error);
    uint64_t *shape = header->tensors ? arena_try_array(&header->arena, 1, sizeof *shape, error) : NULL;
    char *name = shape ? arena_try(&header->arena, length + 1, error) : NULL;
    if (!name) {
        part_header_unref(header);
        return NULL;
    }
    memcpy(name, file->name, length);
    *shape = file->size_bytes;
    header->tensors[0] = (struct stored_tensor){.name = name,
                                                .name_length = (uint32_t)length,
                                                .dtype = DTYPE_U8,
                                                .rank = 1,
                                                .shape = shape,
                                                .bytes = file->size_bytes};
    return header;
}

static struct artifact_table *build_table(const struct source *source, struct error *error)
{
    struct part_header **headers = memory_alloc_array(source->n_files + 1, sizeof *headers);
    const char **names = memory_alloc_array(source->n_files + 1, sizeof *names);
    size_t n_made = 0;
    while (n_made < source->n_files && (headers[n_made] = whole_file(&source->files[n_made], error))) {
        names[n_made] = source->files[n_made].name;
        n_made++;
    }
    struct artifact_table *table =
        n_made == source->n_files ? artifact_table_build(headers, names, n_made, NULL, error) : NULL;
    while (n_made)
        part_header_unref(headers[--n_made]);
    free(headers);
    free(names);
    return table;
}

/* Never that of an artifact of tensors: its headers are part of those. */
static void identify_files(const struct source_file *files, size_t n_files, bool with_spans, char key[DIGEST_HEX_CHARS + 1])
{
    unsigned char out[DIGEST_BYTES];
    struct digest *digest = digest_create();
    digest_add_text(digest, "files");
    for (size_t i = 0; i < n_files; i++)
        artifact_add_file_key(digest, &files[i], with_spans);
    digest_finish(digest, out);
    digest_hex(out, sizeof out, key);
}

void artifact_file_identity(const struct artifact *artifact, size_t file, char identity[DIGEST_HEX_CHARS + 1])
{
    identify_files(&artifact->source->files[file], 1, false, identity);
}

/* Takes a reference on the source. */
static struct artifact *assemble_files(struct source *source, struct error *error)
{
    struct artifact_table *table = build_table(source, error);
    if (!table)
        return NULL;
    struct artifact *artifact = artifact_of_table(source_ref(source), table);
    source->cancel = NULL; /* it is shared from here on */
    identify_files(source->files, source->n_files, false, artifact->identity);
    identify_files(source->files, source->n_files, true, artifact->source_key);
    return artifact;
}

static int add_file(struct source *source, const char *name, struct error *error)
{
    size_t file;
    return source_add_file(source, name, &file, error) < 0 ? error_prefix(error, "%s", text_show(name)) : 0;
}

/* --- listing --- */

static int add_parts(struct source *source, const struct artifact *checked, struct error *error)
{
    size_t n_files = checked->source->n_files;
    const char **names = memory_alloc_array(n_files + 1, sizeof *names);
    for (size_t i = 0; i < n_files; i++)
        names[i] = checked->source->files[i].name;
    int failed = source_expect(source, names, n_files, error);
    for (size_t i = 0; i < n_files && !failed; i++)
        failed = add_file(source, names[i], error);
    free(names);
    return failed;
}

static int add_sidecars(struct source *source, const char *reference, const struct source_options *options,
                        struct notes *notes, struct error *error)
{
    struct sidecars *sidecars = sidecars_open(reference, options, NULL, 0, false, options->cancel, error);
    int failed = sidecars ? 0 : -1;
    for (size_t i = 0; !failed && i < sidecars->n_files; i++)
        failed = add_file(source, sidecars->files[i].name, error);
    if (!failed)
        notes_append(notes, &sidecars->notes);
    sidecars_close(sidecars);
    return failed;
}

static int open_source(const char *reference, const struct source_options *options, struct source **source,
                       struct error *error)
{
    struct source_options with_sidecars = *options;
    with_sidecars.format = &source_format_safetensors;
    with_sidecars.for_sidecars = true;
    bool is_run;
    return activation_store_open(reference, &with_sidecars, source, &is_run, NULL, error);
}

int artifact_files_list(const char *reference, const struct source_options *options, struct header_cache *cache,
                        unsigned flags, enum artifact_file_kind kind, struct artifact **artifact, struct error *error)
{
    struct artifact *checked = NULL;
    struct source *source = NULL;
    struct notes notes = {0};
    *artifact = NULL;
    int failed = kind == ARTIFACT_FILES_SIDECARS ? 0 : artifact_resolve(reference, options, cache, flags, &checked, error);
    if (!failed)
        failed = open_source(reference, options, &source, error);
    if (!failed && checked)
        failed = add_parts(source, checked, error);
    if (!failed && checked && checked->document_name) /* that told which files count, and no other */
        failed = add_file(source, checked->document_name, error);
    if (!failed && kind != ARTIFACT_FILES_TENSORS)
        failed = add_sidecars(source, reference, options, &notes, error);
    if (!failed)
        *artifact = assemble_files(source, error);
    if (*artifact)
        notes_append(&(*artifact)->notes, &notes);
    notes_fini(&notes);
    source_unref(source);
    artifact_unref(checked);
    return *artifact ? 0 : -1;
}

/* --- opening what was listed --- */

static int open_names(struct source *source, const struct file_names *wanted, struct error *error)
{
    if (wanted->n > ARTIFACT_MAX_FILES)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_FILES", "at most %d files at a time", ARTIFACT_MAX_FILES);
    for (size_t i = 0; i < wanted->n; i++) {
        const char *name = wanted->names[i];
        bool may_be = strcmp(name, TOPOLOGY_NAME) == 0 || sidecar_name_is_valid(name) ||
                      (part_name_is_below(name, strlen(name)) && source_is_part(source, name));
        for (const char *const *index = safetensors_index_names; *index; index++)
            may_be = may_be || strcmp(name, *index) == 0;
        if (!may_be)
            return fail(error, ERROR_INVALID_ARGUMENT, "NO_FILE_NAME", "%s is no name of a file of an artifact",
                        text_show(name));
    }
    if (source_expect(source, wanted->names, wanted->n, error) < 0)
        return -1;
    for (size_t i = 0; i < wanted->n; i++)
        if (add_file(source, wanted->names[i], error) < 0)
            return -1;
    return 0;
}

int artifact_files_open(const char *reference, const struct source_options *options, const struct file_names *wanted,
                        struct artifact **artifact, struct error *error)
{
    struct source *source = NULL;
    *artifact = NULL;
    if (open_source(reference, options, &source, error) == 0 && open_names(source, wanted, error) == 0)
        *artifact = assemble_files(source, error);
    source_unref(source);
    if (!*artifact)
        return -1;
    if (!wanted->identity[0] || strcmp((*artifact)->identity, wanted->identity) == 0)
        return 0;
    fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "%s has changed since its files were listed; try again",
         text_show((*artifact)->reference));
    artifact_unref(*artifact);
    *artifact = NULL;
    return -1;
}
