#include "export/export_mapping.h"

#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "resolve/safetensors.h"

enum { MAX_FILE_NAME_BYTES = 255 }; /* what file systems take */

struct mapping_reader {
    struct json json;
    const struct export_tensor *tensors;
    struct map by_name;
    struct arena *arena;
    const char **file_of;
    struct error *error;
};

static int fail_tensor_of_mapping(struct mapping_reader *reader, const struct json_string *tensor, const char *complaint)
{
    char name[TEXT_NAME_CHARS];
    fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING", "mapping: tensor '%s' %s",
         text_escape(tensor->text, tensor->length, name), complaint);
    return error_note(reader->error, "tensor", "%.*s", (int)tensor->length, tensor->text);
}

static bool is_file_name(const struct json_string *file)
{
    return file->length <= MAX_FILE_NAME_BYTES && text_is_plain_name(file->text, file->length) &&
           text_ends_with(file->text, file->length, SAFETENSORS_SUFFIX);
}

static int take_pair(struct mapping_reader *reader, const struct json_string *tensor)
{
    struct json_string file;
    char name[TEXT_NAME_CHARS], shown[TEXT_NAME_CHARS];
    if (json_peek(&reader->json) != JSON_STRING)
        return fail_tensor_of_mapping(reader, tensor, "is mapped to something that is no file name");
    if (!json_take_string(&reader->json, &file))
        return 0; /* told at the end */
    if (!is_file_name(&file))
        return fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING",
                    "mapping: tensor '%s' is mapped to '%s'; files are plain names that end in .safetensors",
                    text_escape(tensor->text, tensor->length, name), text_escape(file.text, file.length, shown));
    uint32_t index = map_find(&reader->by_name, tensor->text, tensor->length);
    if (index == MAP_NONE)
        return fail_tensor_of_mapping(reader, tensor, "is not among those that are exported");
    if (reader->file_of[index])
        return fail_tensor_of_mapping(reader, tensor, "occurs twice");
    reader->file_of[index] = arena_text(reader->arena, file.text, file.length);
    return 0;
}

static int read_weight_map(struct mapping_reader *reader)
{
    struct json_string key;
    if (json_begin_object(&reader->json))
        while (json_next_key(&reader->json, &key))
            if (take_pair(reader, &key) < 0)
                return -1;
    return 0;
}

static int read_mapping(struct mapping_reader *reader)
{
    struct json_string key;
    char text[JSON_ERROR_CHARS];
    bool has_map = false;
    if (json_begin_object(&reader->json))
        while (json_next_key(&reader->json, &key)) {
            bool is_map = json_string_is(&key, "weight_map");
            if (!is_map) {
                json_skip(&reader->json);
                continue;
            }
            if (has_map)
                json_fail(&reader->json, "weight_map occurs twice");
            has_map = true;
            if (read_weight_map(reader) < 0)
                return -1;
        }
    if (!json_end(&reader->json))
        return fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING", "mapping: %s", json_error(&reader->json, text));
    return has_map ? 0 : fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING", "mapping: there is no weight_map");
}

int export_mapping_parse(const char *text, size_t length, const struct export_tensor *tensors, size_t n_tensors,
                         struct arena *arena, const char **file_of, struct error *error)
{
    struct mapping_reader reader = {.tensors = tensors, .arena = arena, .file_of = file_of, .error = error};
    json_init(&reader.json, text, length, arena);
    map_init(&reader.by_name, n_tensors);
    for (size_t i = 0; i < n_tensors; i++)
        map_add(&reader.by_name, tensors[i].record->name, tensors[i].record->name_length, (uint32_t)i);
    int status = read_mapping(&reader);
    if (status == 0 && n_tensors == 0)
        status = fail(error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING",
                      "mapping: there is no tensor to name, so no file would be written; leave --mapping out");
    for (size_t i = 0; status == 0 && i < n_tensors; i++)
        if (!file_of[i])
            status = fail_tensor_of_mapping(
                &reader, &(struct json_string){tensors[i].record->name, tensors[i].record->name_length}, "is missing");
    map_fini(&reader.by_name);
    return status;
}
