/* The text of the sharding information is read like any other document of a hostile file; the names of files by hand. */
#include "resolve/dcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_mold.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"

/* --- sharding information --- */

struct reader {
    struct json json;
    struct dcp_info *info;
    size_t entry_capacity, n_numbers, number_capacity;
    struct json_mold mold; /* of the last entry that was parsed */
    struct error *error;
};

static int fail_json(struct reader *reader)
{
    char text[JSON_ERROR_CHARS];
    if (reader->json.is_out_of_memory)
        return -1;
    return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_SHARDING_INFO", DCP_SHARDING_INFO " is not what DCP writes: %s",
                json_error(&reader->json, text));
}

static int keep_number(struct reader *reader, uint64_t number)
{
    struct dcp_info *info = reader->info;
    if (METADATA_RESERVE(info->numbers, reader->n_numbers, reader->number_capacity, reader->error) < 0)
        return -1;
    info->numbers[reader->n_numbers++] = number;
    return 0;
}

/* An array of numbers, one per dimension. */
static int read_numbers(struct reader *reader, size_t *at, uint32_t *rank)
{
    uint64_t number;
    *at = reader->n_numbers;
    if (json_begin_array(&reader->json)) {
        while (json_next_item(&reader->json) && json_take_u64(&reader->json, &number)) {
            if (reader->n_numbers - *at == TENSOR_MAX_RANK) {
                json_fail(&reader->json, "more than 64 dimensions");
                break;
            }
            if (keep_number(reader, number) < 0)
                return -1;
        }
    }
    *rank = (uint32_t)(reader->n_numbers - *at);
    return json_ok(&reader->json) ? 0 : fail_json(reader);
}

/* What is known of one tensor. *is_plain: nothing but the offsets, then perhaps the shape. Of a key that occurs twice the last
 * one counts, as for the program that has written it. */
static int read_members(struct reader *reader, struct dcp_entry *entry, bool *is_plain)
{
    struct json *json = &reader->json;
    struct json_string key;
    uint32_t shape_rank = 0, n_offsets = 0;
    *is_plain = true;
    while (json_next_key(json, &key)) {
        bool is_shape = json_string_is(&key, "global_shape") && json_peek(json) == JSON_ARRAY;
        if (json_string_is(&key, "saved_offsets")) {
            if (read_numbers(reader, &entry->offsets_at, &entry->rank) < 0)
                return -1;
            *is_plain = *is_plain && !n_offsets;
            n_offsets++;
        } else if (is_shape) {
            if (read_numbers(reader, &entry->shape_at, &shape_rank) < 0)
                return -1;
            *is_plain = *is_plain && n_offsets && !entry->has_shape;
            entry->has_shape = true;
        } else {
            *is_plain = false;
            json_skip(json);
        }
    }
    if (json_ok(json) && !n_offsets)
        json_fail(json, "a tensor needs saved_offsets");
    if (json_ok(json) && entry->has_shape && shape_rank != entry->rank)
        json_fail(json, "global_shape and saved_offsets differ in their number of dimensions");
    return json_ok(json) ? 0 : fail_json(reader);
}

static int read_entry(struct reader *reader, struct dcp_entry *entry)
{
    struct json *json = &reader->json;
    uint64_t molded[JSON_MOLD_MAX_NUMBERS];
    bool is_plain;
    if (json_mold_take(&reader->mold, json, molded)) { /* it is written like the one before, with its offsets first */
        entry->rank = entry[-1].rank;
        entry->has_shape = entry[-1].has_shape;
        entry->offsets_at = reader->n_numbers;
        entry->shape_at = entry->offsets_at + entry->rank;
        for (size_t i = 0; i < reader->mold.n_numbers; i++)
            if (keep_number(reader, molded[i]) < 0)
                return -1;
        return 0;
    }
    if (!json_begin_object(json))
        return fail_json(reader);
    const char *text = json->at - 1;
    if (read_members(reader, entry, &is_plain) < 0)
        return -1;
    reader->mold.is_set = false;
    if (is_plain)
        json_mold_set(&reader->mold, text, (size_t)(json->at - text), entry->rank * (entry->has_shape ? 2 : 1));
    return 0;
}

static int read_document(struct reader *reader)
{
    struct dcp_info *info = reader->info;
    struct json_string name;
    if (!json_begin_object(&reader->json))
        return fail_json(reader);
    while (json_next_key(&reader->json, &name)) {
        if (METADATA_RESERVE(info->entries, info->n_entries, reader->entry_capacity, reader->error) < 0)
            return -1;
        struct dcp_entry *entry = &info->entries[info->n_entries++];
        *entry = (struct dcp_entry){.name = name.text, .name_length = name.length};
        if (read_entry(reader, entry) < 0)
            return -1;
    }
    return json_end(&reader->json) ? 0 : fail_json(reader);
}

struct dcp_info *dcp_info_parse(const char *json, size_t json_bytes, struct error *error)
{
    struct reader reader = {.info = memory_alloc(sizeof *reader.info), .error = error};
    json_init(&reader.json, json, json_bytes, &reader.info->arena);
    reader.json.memory_error = error;
    reader.json.is_lenient = true;
    if (read_document(&reader) == 0)
        return reader.info;
    dcp_info_destroy(reader.info);
    return NULL;
}

void dcp_info_destroy(struct dcp_info *info)
{
    if (!info)
        return;
    map_fini(&info->by_name);
    metadata_free(info->entries);
    metadata_free(info->numbers);
    arena_fini(&info->arena);
    free(info);
}

/* Names that differ: the caller has found all entries one after the other, and so seen that they do. */
static int map_names(struct dcp_info *info, struct error *error)
{
    if (info->is_mapped)
        return 0;
    if (map_init_charged(&info->by_name, info->n_entries, error) < 0)
        return -1;
    for (size_t i = 0; i < info->n_entries; i++) {
        const struct dcp_entry *entry = &info->entries[i];
        if (map_add(&info->by_name, entry->name, entry->name_length, (uint32_t)i) == MAP_NONE)
            continue;
        map_fini(&info->by_name); /* the next call fails again */
        return fail(error, ERROR_DATA_LOSS, "MALFORMED_SHARDING_INFO", DCP_SHARDING_INFO " names tensor %s twice",
                    text_show_bytes(entry->name, entry->name_length));
    }
    info->is_mapped = true;
    return 0;
}

int dcp_info_find(struct dcp_info *info, const char *name, size_t length, const struct dcp_entry **entry,
                  struct error *error)
{
    const struct dcp_entry *next = info->next < info->n_entries ? &info->entries[info->next] : NULL;
    *entry = next;
    if (next && next->name_length == length && memcmp(next->name, name, length) == 0) {
        info->next++;
        return 0;
    }
    if (map_names(info, error) < 0)
        return -1;
    uint32_t found = map_find(&info->by_name, name, length);
    *entry = found == MAP_NONE ? NULL : &info->entries[found];
    info->next = found == MAP_NONE ? info->next : found + 1;
    return 0;
}

int dcp_info_end(struct dcp_info *info, struct error *error)
{
    return info->next == info->n_entries ? 0 : map_names(info, error);
}

bool dcp_is_shard(const struct part_header *header)
{
    return part_header_find_metadata(header, DCP_SHARDING_INFO) != NULL;
}

/* --- numbers --- */

enum { MIN_DIGITS = 5 };

/* A number of at least five digits behind `before`; moves `at` behind it. */
static bool take_number(const char **at, const char *before, uint32_t *number)
{
    size_t length = strlen(before);
    if (strncmp(*at, before, length) != 0)
        return false;
    const char *from = *at + length, *digit = from;
    for (*number = 0; *digit >= '0' && *digit <= '9' && *number <= DCP_MAX_NUMBER; digit++)
        *number = 10 * *number + (uint32_t)(*digit - '0');
    *at = digit;
    return digit - from >= MIN_DIGITS && *number >= 1 && *number <= DCP_MAX_NUMBER;
}

struct file_numbers {
    uint32_t shard, file, n_files; /* shard 0: of no rank */
};

static bool parse_name(const char *name, struct file_numbers *numbers)
{
    const char *at = name;
    numbers->shard = 0;
    if (strncmp(name, "shard-", strlen("shard-")) == 0 && !take_number(&at, "shard-", &numbers->shard))
        return false;
    return take_number(&at, numbers->shard ? "-model-" : "model-", &numbers->file) &&
           take_number(&at, "-of-", &numbers->n_files) && numbers->file <= numbers->n_files &&
           strcmp(at, ".safetensors") == 0;
}

bool dcp_is_shard_name(const char *file_name)
{
    struct file_numbers numbers;
    return parse_name(file_name, &numbers) && numbers.shard;
}

/* Which of 1 .. n were not seen. */
static const uint32_t *list_missing(const bool *seen, uint32_t n, size_t *n_missing)
{
    uint32_t *missing = memory_alloc_array(n, sizeof *missing);
    for (uint32_t i = 1; i <= n; i++)
        if (!seen[i])
            missing[(*n_missing)++] = i;
    return missing;
}

int dcp_read_numbers(const char *const *file_names, size_t n_names, struct artifact_layout *layout, struct error *error)
{
    bool *shards = memory_alloc(DCP_MAX_NUMBER + 1), *files = memory_alloc(DCP_MAX_NUMBER + 1);
    const char *first = NULL;
    uint32_t n_shards = 0, n_files = 0;
    int failed = 0;
    for (size_t i = 0; i < n_names && !failed; i++) {
        struct file_numbers of;
        const char *name = file_names[i];
        if (!parse_name(name, &of))
            continue;
        if (first && of.n_files != n_files)
            failed = fail(error, ERROR_DATA_LOSS, "SHARD_NUMBERS_DISAGREE", "%s and %s disagree about the number of files",
                          text_show(first), text_show(name));
        first = first ? first : name;
        n_files = of.n_files;
        n_shards = of.shard > n_shards ? of.shard : n_shards;
        shards[of.shard] = files[of.file] = true;
    }
    *layout = (struct artifact_layout){.kind = LAYOUT_DCP, .world_size = n_shards ? n_shards : 1};
    if (!failed) {
        layout->missing_shards = list_missing(shards, n_shards, &layout->n_missing_shards);
        layout->missing_files = list_missing(files, n_files, &layout->n_missing_files);
    }
    free(shards);
    free(files);
    return failed;
}

char **dcp_names_between(const char *const *file_names, size_t n_known, size_t most, size_t *n_names)
{
    uint32_t n_shards = 0, n_files = 0;
    struct map known;
    map_init(&known, n_known);
    for (size_t i = 0; i < n_known; i++) {
        struct file_numbers of;
        map_add(&known, file_names[i], strlen(file_names[i]), 0);
        if (!parse_name(file_names[i], &of))
            continue;
        n_shards = of.shard > n_shards ? of.shard : n_shards;
        n_files = of.n_files > n_files ? of.n_files : n_files;
    }
    uint64_t n_all = (uint64_t)n_shards * n_files;
    char **names = memory_alloc_array(n_all <= most ? n_all : 0, sizeof *names);
    *n_names = 0;
    for (uint64_t i = 0; n_all <= most && i < n_all; i++) {
        char *name = memory_print("shard-%05u-model-%05u-of-%05u.safetensors", (unsigned)(i / n_files + 1),
                                  (unsigned)(i % n_files + 1), n_files);
        if (map_find(&known, name, strlen(name)) == MAP_NONE)
            names[(*n_names)++] = name;
        else
            free(name);
    }
    map_fini(&known);
    return names;
}

int dcp_check_numbers(const struct artifact_layout *layout, struct error *error)
{
    char others[64] = "";
    size_t n_missing = layout->n_missing_shards ? layout->n_missing_shards : layout->n_missing_files;
    if (n_missing > 1)
        snprintf(others, sizeof others, n_missing == 2 ? ", and so is another" : ", and so are %zu others", n_missing - 1);
    if (layout->n_missing_shards)
        return fail(error, ERROR_DATA_LOSS, "SHARD_MISSING",
                    "shard-%05u is missing%s; if rank %u saved nothing, pass --allow-missing-shards",
                    layout->missing_shards[0], others, layout->missing_shards[0]);
    if (layout->n_missing_files)
        return fail(error, ERROR_DATA_LOSS, "SHARD_MISSING",
                    "model-%05u-of-.. is missing%s; if nothing was saved in it, pass --allow-missing-shards",
                    layout->missing_files[0], others);
    return 0;
}
