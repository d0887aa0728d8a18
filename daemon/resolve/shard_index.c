/* One walk over the JSON; then names are compared, and the files, met in any order, are sorted and the entries renumbered.
 */
#include "resolve/shard_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/format.h"

struct reader {
    struct json json;
    struct shard_index *index;
    struct map file_numbers;
    size_t entry_capacity, file_capacity;
    struct error *error;
};

static int fail_json(struct reader *reader)
{
    char text[JSON_ERROR_CHARS];
    if (reader->json.is_out_of_memory)
        return -1;
    return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_INDEX", "not an index of part files: %s",
                json_error(&reader->json, text));
}

/* The file's number in the order of first appearance. */
static int number_file(struct reader *reader, const struct json_string *file, uint32_t *number)
{
    struct shard_index *index = reader->index;
    *number = map_find(&reader->file_numbers, file->text, file->length);
    if (*number != MAP_NONE)
        return 0;
    if (index->n_files == SHARD_INDEX_MAX_FILES)
        return fail(reader->error, ERROR_UNIMPLEMENTED, "TOO_MANY_FILES", "more than %d part files", SHARD_INDEX_MAX_FILES);
    if (METADATA_RESERVE(index->files, index->n_files, reader->file_capacity, reader->error) < 0)
        return -1;
    char *copy = arena_try_bytes(&index->arena, file->length + 1, reader->error);
    if (!copy)
        return -1;
    memcpy(copy, file->text, file->length);
    *number = (uint32_t)index->n_files;
    map_add(&reader->file_numbers, copy, file->length, *number);
    index->files[index->n_files++] = copy;
    return 0;
}

static int add_entry(struct reader *reader, const struct json_string *name, const struct json_string *file)
{
    struct shard_index *index = reader->index;
    if (!part_name_is_below(file->text, file->length))
        return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_INDEX",
                    "weight_map sends tensor %s to \"%s\"; a part file lies in the same folder or below it",
                    text_show_bytes(name->text, name->length), text_show_bytes(file->text, file->length));
    uint32_t number;
    if (METADATA_RESERVE(index->entries, index->n_entries, reader->entry_capacity, reader->error) < 0 ||
        number_file(reader, file, &number) < 0)
        return -1;
    index->entries[index->n_entries++] =
        (struct shard_entry){.name = name->text, .name_length = name->length, .file = number};
    return 0;
}

static int read_document(struct reader *reader)
{
    struct json_string key, name, file;
    bool seen = false;
    if (!json_begin_object(&reader->json))
        return fail_json(reader);
    while (json_next_key(&reader->json, &key)) {
        if (!json_string_is(&key, "weight_map")) {
            json_skip(&reader->json);
            continue;
        }
        seen = true;
        reader->index->n_entries = 0; /* of an earlier one */
        json_begin_object(&reader->json);
        while (json_next_key(&reader->json, &name) && json_take_string(&reader->json, &file))
            if (add_entry(reader, &name, &file) < 0)
                return -1;
        if (!json_ok(&reader->json))
            return fail_json(reader);
    }
    if (!json_end(&reader->json))
        return fail_json(reader);
    if (!reader->index->n_entries)
        return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_INDEX",
                    seen ? "weight_map is empty" : "there is no weight_map");
    return 0;
}

/* Each name once, at its first place, with its last file. */
static int join_names(const struct reader *reader)
{
    struct shard_index *index = reader->index;
    struct map names;
    size_t n_kept = 0;
    if (map_init_charged(&names, index->n_entries, reader->error) < 0)
        return -1;
    for (size_t i = 0; i < index->n_entries; i++) {
        const struct shard_entry *entry = &index->entries[i];
        uint32_t first = map_add(&names, entry->name, entry->name_length, (uint32_t)n_kept);
        index->entries[first == MAP_NONE ? n_kept++ : first] = *entry;
    }
    map_fini(&names);
    index->n_entries = n_kept;
    return 0;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_files(struct reader *reader)
{
    struct shard_index *index = reader->index;
    uint32_t *sorted = memory_alloc_array(index->n_files, sizeof *sorted); /* old number -> new */
    bool *is_used = memory_alloc_array(index->n_files, sizeof *is_used);
    size_t n_used = 0;
    for (size_t i = 0; i < index->n_entries; i++)
        is_used[index->entries[i].file] = true;
    for (size_t i = 0; i < index->n_files; i++)
        if (is_used[i])
            index->files[n_used++] = index->files[i];
    index->n_files = n_used;
    free(is_used);
    qsort(index->files, index->n_files, sizeof *index->files, compare_files);
    for (size_t i = 0; i < index->n_files; i++)
        sorted[map_find(&reader->file_numbers, index->files[i], strlen(index->files[i]))] = (uint32_t)i;
    for (size_t i = 0; i < index->n_entries; i++)
        index->entries[i].file = sorted[index->entries[i].file];
    free(sorted);
}

struct shard_index *shard_index_parse(const char *json, uint64_t json_bytes, struct error *error)
{
    struct reader reader = {.index = memory_alloc(sizeof *reader.index), .error = error};
    map_init(&reader.file_numbers, 0);
    json_init(&reader.json, json, json_bytes, &reader.index->arena);
    reader.json.memory_error = error;
    reader.json.is_lenient = true;
    reader.index->document = SHARD_INDEX_NAME;
    int failed = read_document(&reader) < 0 || join_names(&reader) < 0;
    if (!failed)
        sort_files(&reader);
    map_fini(&reader.file_numbers);
    if (!failed)
        return reader.index;
    shard_index_destroy(reader.index);
    return NULL;
}

void shard_index_destroy(struct shard_index *index)
{
    if (!index)
        return;
    metadata_free(index->files);
    metadata_free(index->entries);
    arena_fini(&index->arena);
    free(index);
}
