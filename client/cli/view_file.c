/* One pass over the text with base/json.h; an item's slices are collected on the stack and copied once they are counted. */
#include "view_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

enum { MAX_ALIGN_BYTES = 2 << 20 };

struct parse {
    struct json json;
    struct arena *arena;
    struct view_file *file;
    struct tc_view_item *items;
    size_t n_items, capacity;
    bool inside_item; /* the last item is not finished: errors are about it */
};

/* Claims a key's place: false when it was seen before in the same object. */
static bool first_time(struct json *json, bool *seen)
{
    if (*seen)
        return json_fail(json, "this key occurs twice");
    return *seen = true;
}

/* null or an integer. */
static bool take_bound(struct json *json, int64_t *bound)
{
    if (json_peek(json) == JSON_NULL)
        return json_take_null(json);
    return json_take_i64(json, bound);
}

static bool take_slice(struct json *json, struct tc_slice *slice)
{
    *slice = (struct tc_slice){0, TC_OPEN_END};
    if (json_peek(json) == JSON_NULL)
        return json_take_null(json);
    if (json_peek(json) != JSON_ARRAY)
        return json_fail(json, "a slice is null or [start, stop]");
    json_begin_array(json);
    bool whole =
        json_next_item(json) && take_bound(json, &slice->start) && json_next_item(json) && take_bound(json, &slice->stop);
    if (!whole || json_next_item(json))
        return json_fail(json, "a slice has exactly two bounds, [start, stop]");
    return json_ok(json);
}

static bool take_slices(struct parse *parse, struct tc_view_item *item)
{
    struct json *json = &parse->json;
    struct tc_slice slices[TC_MAX_RANK];
    if (!json_begin_array(json))
        return false;
    while (json_next_item(json)) {
        if (item->n_slices == TC_MAX_RANK)
            return json_fail(json, "more than 64 slices");
        if (!take_slice(json, &slices[item->n_slices++]))
            return false;
    }
    struct tc_slice *copy = arena_array(parse->arena, item->n_slices + 1, sizeof *copy); /* never NULL, also for [] */
    memcpy(copy, slices, item->n_slices * sizeof *copy);
    item->slices = copy;
    parse->file->has_empty_slices |= !item->n_slices;
    return json_ok(json);
}

static bool take_name(struct parse *parse, struct tc_view_item *item)
{
    struct json_string name;
    if (!json_take_string(&parse->json, &name))
        return false;
    if (memchr(name.text, '\0', name.length))
        return json_fail(&parse->json, "a name with a NUL character cannot be asked for");
    item->name = arena_text(parse->arena, name.text, name.length);
    return true;
}

static bool take_item(struct parse *parse)
{
    struct json *json = &parse->json;
    struct json_string key;
    bool has_name = false, has_slices = false;
    ARRAY_RESERVE(parse->items, parse->n_items, parse->capacity);
    struct tc_view_item *item = &parse->items[parse->n_items++];
    *item = (struct tc_view_item){0};
    parse->inside_item = true;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "name")) {
            if (!first_time(json, &has_name) || !take_name(parse, item))
                return false;
        } else if (json_string_is(&key, "slices")) {
            if (!first_time(json, &has_slices) || !take_slices(parse, item))
                return false;
        } else {
            return json_fail(json, "unknown key; a tensor has \"name\" and \"slices\"");
        }
    }
    if (json_ok(json) && !has_name)
        return json_fail(json, "a tensor without \"name\"");
    parse->inside_item = !json_ok(json);
    return json_ok(json);
}

static bool take_tensors(struct parse *parse)
{
    if (!json_begin_array(&parse->json))
        return false;
    while (json_next_item(&parse->json)) {
        if (!take_item(parse))
            return false;
    }
    if (json_ok(&parse->json) && !parse->n_items)
        return json_fail(&parse->json, "\"tensors\" is empty; to load everything, give no view");
    return json_ok(&parse->json);
}

static bool take_align(struct parse *parse)
{
    uint64_t *align = &parse->file->view.align_bytes;
    if (!json_take_u64(&parse->json, align))
        return false;
    if (!*align || *align > MAX_ALIGN_BYTES || (*align & (*align - 1)))
        return json_fail(&parse->json, "\"align\" is a power of two from 1 to 2097152");
    return true;
}

static bool take_placement(struct parse *parse)
{
    struct json_string text;
    if (!json_take_string(&parse->json, &text))
        return false;
    bool is_packed = json_string_is(&text, "packed");
    if (!is_packed && !json_string_is(&text, "source"))
        return json_fail(&parse->json, "\"placement\" is \"packed\" or \"source\"");
    parse->file->placement = is_packed ? TC_PLACEMENT_PACKED : TC_PLACEMENT_SOURCE;
    return true;
}

static bool take_view(struct parse *parse)
{
    struct json *json = &parse->json;
    struct json_string key;
    bool has_tensors = false, has_align = false;
    bool *has_placement = &parse->file->has_placement;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "tensors")) {
            if (!first_time(json, &has_tensors) || !take_tensors(parse))
                return false;
        } else if (json_string_is(&key, "align")) {
            if (!first_time(json, &has_align) || !take_align(parse))
                return false;
        } else if (json_string_is(&key, "placement")) {
            if (!first_time(json, has_placement) || !take_placement(parse))
                return false;
        } else {
            return json_fail(json, "unknown key; a view has \"tensors\", \"align\" and \"placement\"");
        }
    }
    if (json_ok(json) && !has_tensors)
        return json_fail(json, "a view without \"tensors\"");
    return json_end(json);
}

static int complain_of_view(const struct parse *parse, struct error *error)
{
    char problem[JSON_ERROR_CHARS], name[TEXT_NAME_CHARS];
    json_error(&parse->json, problem);
    if (!parse->inside_item)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_VIEW", "%s", problem);
    const char *about = parse->items[parse->n_items - 1].name;
    if (!about)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_VIEW", "tensor number %zu: %s", parse->n_items, problem);
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_VIEW", "tensor '%s': %s", text_escape(about, strlen(about), name),
                problem);
}

int view_file_parse(const char *bytes, size_t count, struct arena *arena, struct view_file *file, struct error *error)
{
    struct parse parse = {.arena = arena, .file = file};
    *file = (struct view_file){0};
    json_init(&parse.json, bytes, count, arena);
    int status = take_view(&parse) ? 0 : complain_of_view(&parse, error);
    if (status == 0) {
        struct tc_view_item *items = arena_array(arena, parse.n_items, sizeof *items);
        memcpy(items, parse.items, parse.n_items * sizeof *items);
        file->view.items = items;
        file->view.n_items = parse.n_items;
    }
    free(parse.items);
    return status;
}
