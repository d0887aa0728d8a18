/* Listing: names by the rule, of these the files that can be opened, of these the small files. A listed name that is
 * no file is left out; a dangling link is noted. A file outside the trusted roots is an error, since a model that loads
 * without its configuration fails later and less clearly. */
#include "resolve/sidecar.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/sidecar_name.h"
#include "base/text.h"
#include "resolve/activation_store.h"
#include "resolve/format.h"

struct sidecar_search {
    struct sidecars *found;
    const struct cancel *cancel;
    struct error *error;
    bool is_listed; /* the names are those of the folder */
    size_t capacity;
    bool only_listed; /* tensors, too */
};

static int check_cancelled(const struct cancel *cancel, struct error *error)
{
    return cancel_is_set(cancel) ? fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled by the client") : 0;
}

/* 1 = taken, 0 = not a small file, -1 = an error. */
static int add_sidecar(struct sidecar_search *search, const char *name)
{
    struct sidecars *found = search->found;
    size_t file;
    if (check_cancelled(search->cancel, search->error) < 0)
        return -1;
    if (found->n_files == SIDECAR_MAX_FILES)
        return fail(search->error, ERROR_UNIMPLEMENTED, "TOO_MANY_SIDECARS",
                    "more than %d sidecars; ask for those that are needed by name", SIDECAR_MAX_FILES);
    if (source_add_file(found->source, name, &file, search->error) < 0) {
        enum error_kind kind = search->error->kind;
        if (search->error->code == ERROR_NOT_FOUND && search->is_listed)
            notes_add(&found->notes, "%s leads to no file and is left out", text_show(name));
        bool no_file = search->error->code == ERROR_NOT_FOUND || kind == ERROR_KIND_NOT_A_REGULAR_FILE ||
                       kind == ERROR_KIND_IS_A_FOLDER;
        return no_file ? 0 : error_prefix(search->error, "%s", text_show(name));
    }
    const struct source_file *opened = &found->source->files[file];
    if (opened->size_bytes > sidecar_max_bytes(name) && !(search->only_listed && sidecar_name_is_tensors(name)))
        return 0;
    ARRAY_RESERVE(found->files, found->n_files, search->capacity);
    found->files[found->n_files++] = (struct sidecar){.size_bytes = opened->size_bytes, .file = file};
    return 1;
}

static int add_all(struct sidecar_search *search)
{
    char **names;
    size_t n_names;
    int failed = 0;
    if (search->found->source->is_single_file)
        return 0;
    if (source_list(search->found->source, NULL, &names, &n_names, search->error) < 0) {
        struct error denied = {0};
        free(names);
        if (search->error->code != ERROR_UNIMPLEMENTED)
            return -1;
        for (const char *const *name = sidecar_well_known_names; *name; name++) {
            if (add_sidecar(search, *name) >= 0)
                continue;
            if (!source_may_be_absent(search->found->source, search->error))
                return -1;
            denied = *search->error;
        }
        /* a server that hides what is not there behind "forbidden" is believed when it shows anything at all */
        if (search->found->n_files || !denied.code)
            return 0;
        *search->error = denied;
        return -1;
    }
    search->is_listed = true;
    for (size_t i = 0; i < n_names; i++) {
        if (!failed && sidecar_name_is_valid(names[i]))
            failed = add_sidecar(search, names[i]) < 0;
        free(names[i]);
    }
    free(names);
    return failed ? -1 : 0;
}

struct sidecars *sidecars_open(const char *reference, const struct source_options *options, const char *const *names,
                               size_t n_names, bool only_listed, const struct cancel *cancel, struct error *error)
{
    struct sidecars *sidecars = memory_alloc(sizeof *sidecars);
    struct sidecar_search search = {.found = sidecars, .cancel = cancel, .error = error, .only_listed = only_listed};
    struct source_options with_sidecars = *options;
    with_sidecars.format = &source_format_safetensors;
    with_sidecars.for_sidecars = true;
    with_sidecars.cancel = cancel;
    bool is_run;
    int failed = activation_store_open(reference, &with_sidecars, &sidecars->source, &is_run, NULL, error);
    if (!failed)
        failed = n_names ? 0 : add_all(&search);
    for (size_t i = 0; i < n_names && !failed; i++) {
        bool is_served = sidecar_name_is_valid(names[i]) || sidecar_name_is_index(names[i]) ||
                         (only_listed && sidecar_name_is_tensors(names[i]));
        bool possible = is_served && !sidecars->source->is_single_file;
        int added = possible ? add_sidecar(&search, names[i]) : 0;
        char limit[TEXT_SIZE_CHARS];
        failed = added < 0 ? -1 : 0;
        if (added == 0)
            failed = fail(error, ERROR_NOT_FOUND, "NO_SUCH_SIDECAR",
                          "%s has no sidecar %s; sidecars are configuration, tokenizer and template files of at most %s",
                          text_show(sidecars->source->reference), text_show(names[i]),
                          text_format_bytes(sidecar_max_bytes(names[i]), limit));
    }
    if (failed) {
        sidecars_close(sidecars);
        return NULL;
    }
    for (size_t i = 0; i < sidecars->n_files; i++) /* only now does the source's table of files stay where it is */
        sidecars->files[i].name = sidecars->source->files[sidecars->files[i].file].name;
    return sidecars;
}

static void drop_sum(struct sidecars *sidecars)
{
    if (sidecars->is_summing)
        checksum_finish(&sidecars->sum);
    sidecars->is_summing = false;
}

void sidecars_close(struct sidecars *sidecars)
{
    if (!sidecars)
        return;
    drop_sum(sidecars);
    for (size_t i = 0; i < sidecars->n_files; i++)
        metadata_free(sidecars->files[i].bytes);
    source_unref(sidecars->source);
    notes_fini(&sidecars->notes);
    notes_fini(&sidecars->changes);
    free(sidecars->files);
    free(sidecars);
}

int sidecars_read(struct sidecars *sidecars, size_t index, uint64_t offset, void *bytes, uint64_t count,
                  const struct cancel *cancel, struct error *error)
{
    const struct sidecar *sidecar = &sidecars->files[index];
    struct iovec iov = {.iov_base = bytes, .iov_len = count};
    struct source_read read = {
        .file = sidecar->file, .offset = offset, .iov = &iov, .n_iov = 1, .cancel = cancel, .uid = sidecars->source->uid};
    if (check_cancelled(cancel, error) < 0)
        return -1;
    if (sidecar->bytes) {
        memcpy(bytes, sidecar->bytes + offset, count);
        return 0;
    }
    int failed = count ? source_read(sidecars->source, &read, error) : 0;
    const struct checksum *expected = &sidecars->source->files[sidecar->file].checksums[0];
    if (failed)
        return error_prefix(error, "%s", text_show(sidecar->name));
    if (offset == 0 || offset != sidecars->summed_bytes) /* a read from elsewhere gives the sum up */
        drop_sum(sidecars);
    if (offset == 0)
        sidecars->is_summing = checksum_start(&sidecars->sum, expected->kind);
    if (sidecars->is_summing)
        checksum_add(&sidecars->sum, bytes, count);
    sidecars->summed_bytes = offset + count;
    if (sidecars->summed_bytes == sidecar->size_bytes)
        failed = source_check_unchanged(sidecars->source, sidecar->file, error);
    if (!failed && sidecars->summed_bytes == sidecar->size_bytes && sidecars->is_summing) {
        char found_text[CHECKSUM_TEXT_CHARS], text[CHECKSUM_TEXT_CHARS];
        struct checksum found = checksum_finish(&sidecars->sum);
        sidecars->is_summing = false;
        if (!checksum_equal(&found, expected))
            failed =
                fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH", "its bytes have %s, the store says %s; fetch it again",
                     checksum_print(&found, found_text), checksum_print(expected, text));
    }
    return failed ? error_prefix(error, "%s", text_show(sidecar->name)) : 0;
}

int sidecar_read_config(const char *reference, const struct source_options *options, const struct cancel *cancel,
                        char **json, size_t *length, struct error *error)
{
    static const char *const name = "config.json";
    struct sidecars *sidecars = sidecars_open(reference, options, &name, 1, false, cancel, error);
    *json = NULL;
    *length = 0;
    if (!sidecars)
        return error->code == ERROR_NOT_FOUND ? 0 : -1;
    *length = sidecars->files[0].size_bytes;
    *json = memory_alloc(*length + 1);
    int failed = sidecars_read(sidecars, 0, 0, *json, *length, cancel, error);
    sidecars_close(sidecars);
    if (!failed)
        return 0;
    free(*json);
    *json = NULL;
    return -1;
}
