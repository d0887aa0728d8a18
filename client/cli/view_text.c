/* A hand-written scanner. Bounds beyond 64 bits saturate, which clips to the same elements as in NumPy. What NumPy knows
 * and a view does not (steps, single indexes, '...') is refused with what to write instead. */
#include "view_text.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "resolve/usual_split.h"
#include "summary.h"

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

static int complain_of_slice(const struct slice_text *slice, const char *problem, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SLICE", "slice of '%s': %s", text_show(slice->name), problem);
}

/* Reads an optional integer. Returns false, without moving, when there is none. */
static bool take_bound(const char **at, int64_t *bound)
{
    const char *digit = skip_blanks(*at);
    bool negative = *digit == '-';
    digit += negative;
    if (*digit < '0' || *digit > '9')
        return false;
    int64_t value = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *digit - '0', &value))
            value = INT64_MAX;
    }
    *bound = negative ? -value : value;
    *at = skip_blanks(digit);
    return true;
}

static int take_part(const struct slice_text *slice, const char **at, struct tc_slice *part, struct error *error)
{
    int64_t step = 1;
    *part = (struct tc_slice){0, TC_OPEN_END};
    *at = skip_blanks(*at);
    bool has_start = take_bound(at, &part->start);
    if (**at != ':')
        return complain_of_slice(slice,
                                 has_start ? "a single index would drop a dimension; write START:STOP (3:4 instead of 3)"
                                           : "expected START:STOP, where both may be left out",
                                 error);
    *at = skip_blanks(*at + 1);
    take_bound(at, &part->stop);
    if (**at == ':') { /* a step, of which only 1 means the same without it */
        *at = skip_blanks(*at + 1);
        take_bound(at, &step);
    }
    if (step != 1)
        return complain_of_slice(slice, "only step 1 is possible; load the range and step through it in your program",
                                 error);
    if (**at != ',' && **at != ']')
        return complain_of_slice(slice, "expected START:STOP, then ',' or ']'", error);
    return 0;
}

int slice_text_parse(const char *text, struct arena *arena, struct slice_text *slice, struct error *error)
{
    struct tc_slice parts[TC_MAX_RANK];
    const char *bracket = strrchr(text, '[');
    size_t length = strlen(text);
    *slice = (struct slice_text){.name = arena_text(arena, text, bracket ? (size_t)(bracket - text) : length)};
    if (!bracket)
        return complain_of_slice(slice, "no dimensions given; write 'NAME[2:5, :, -3:]', or --tensor NAME for all of it",
                                 error);
    if (text[length - 1] != ']')
        return complain_of_slice(slice, "must end in ']'; write 'NAME[2:5, :, -3:]'", error);
    if (bracket == text)
        return complain_of_slice(slice, "no tensor is named before '['", error);
    const char *at = bracket;
    do {
        at++;
        if (slice->n_slices == TC_MAX_RANK)
            return complain_of_slice(slice, "more than 64 dimensions", error);
        if (take_part(slice, &at, &parts[slice->n_slices++], error) < 0)
            return -1;
    } while (*at == ',');
    if (at[1])
        return complain_of_slice(slice, "nothing may follow ']'", error);
    struct tc_slice *slices = arena_array(arena, slice->n_slices, sizeof *slices);
    memcpy(slices, parts, slice->n_slices * sizeof *slices);
    slice->slices = slices;
    return 0;
}

/* --- tp rules --- */

enum { REPLICATED = USUAL_SPLIT_NONE };

static const struct tp_rule *find_rule(const struct tp_split *split, const struct catalog_tensor *tensor)
{
    for (size_t i = 0; i < split->n_rules; i++)
        if (text_glob(split->rules[i].glob, tensor->name, tensor->name_length))
            return &split->rules[i];
    return NULL;
}

/* The dimension that the rules split; REPLICATED = none. */
static int find_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient,
                          int64_t *dimension, struct error *error)
{
    const struct tp_rule *rule = find_rule(split, tensor);
    int64_t rank = (int64_t)tensor->rank;
    *dimension = REPLICATED;
    if (!rule || rule->replicate)
        return 0;
    if (rule->dimension >= -rank && rule->dimension < rank)
        *dimension = rule->dimension < 0 ? rule->dimension + rank : rule->dimension;
    if (*dimension != REPLICATED || lenient)
        return 0;
    fail(error, ERROR_INVALID_ARGUMENT, "NO_SUCH_DIMENSION",
         "tensor '%s' %s has no dimension %" PRId64 ", which rule '%s' splits; put a rule for it before this one",
         text_show_bytes(tensor->name, tensor->name_length), text_show_shape(tensor->shape, tensor->rank), rule->dimension,
         text_show(rule->glob));
    return error_note(error, "tensor", "%.*s", (int)tensor->name_length, tensor->name);
}

int tp_rules_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient, int64_t *dimension,
                       struct error *error)
{
    if (split->n_rules)
        return find_dimension(split, tensor, lenient, dimension, error);
    struct usual_split usual = usual_split_find(tensor->name, tensor->name_length, tensor->rank);
    *dimension = usual.unit == USUAL_FUSED ? REPLICATED : usual.dimension;
    return 0;
}

static int find_part(const struct tp_split *split, const struct tp_group *group, const struct catalog_tensor *tensor,
                     struct tp_part *part, struct error *error)
{
    const struct tp_tensor it = {tensor->name, tensor->name_length, tensor->shape, tensor->rank};
    *part = (struct tp_part){.dimension = REPLICATED};
    if (split->n_rules && find_dimension(split, tensor, false, &part->dimension, error) < 0)
        return -1;
    if (split->n_rules && part->dimension == REPLICATED)
        return 0;
    if ((split->n_rules ? tp_part_of_dimension(group, &it, part->dimension, part, error)
                        : tp_part_find(group, &it, part, error)) == 0)
        return 0;
    const char *name = text_show_bytes(tensor->name, tensor->name_length);
    return error_append(error, "; say how with --tp-rule '%s=DIM' or '%s=replicate', or name its parts with --slice", name,
                        name);
}

int tp_rules_apply(const struct tp_split *split, const struct tp_group *group, const struct catalog_tensor *tensor,
                   struct arena *arena, const struct tc_slice **slices, struct error *error)
{
    struct tp_part part;
    *slices = NULL;
    if (find_part(split, group, tensor, &part, error) < 0)
        return -1;
    if (part.dimension == REPLICATED)
        return 0;
    struct tc_slice *parts = arena_array(arena, tensor->rank, sizeof *parts);
    for (size_t d = 0; d < tensor->rank; d++)
        parts[d] = (struct tc_slice){0, TC_OPEN_END};
    parts[part.dimension] = (struct tc_slice){(int64_t)part.start, (int64_t)part.stop};
    *slices = parts;
    return 0;
}

int tp_rule_parse(const char *text, struct arena *arena, struct tp_rule *rule, struct error *error)
{
    const char *equals = strrchr(text, '=');
    *rule = (struct tp_rule){0};
    if (!equals || equals == text)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RULE", "rule '%s' is not GLOB=DIM", text_show(text));
    rule->glob = arena_text(arena, text, (size_t)(equals - text));
    if (strcmp(equals + 1, "replicate") == 0) {
        rule->replicate = true;
        return 0;
    }
    char *end;
    const char *digits = equals[1] == '-' ? equals + 2 : equals + 1;
    long dimension = strtol(equals + 1, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || dimension >= TC_MAX_RANK || dimension < -TC_MAX_RANK)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RULE",
                    "rule '%s': what follows '=' is a dimension from 0 to 63 or 'replicate'", text_show(text));
    rule->dimension = dimension;
    return 0;
}

/* --- view file --- */

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
static bool read_bound(struct json *json, int64_t *bound)
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
        json_next_item(json) && read_bound(json, &slice->start) && json_next_item(json) && read_bound(json, &slice->stop);
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
    char problem[JSON_ERROR_CHARS];
    json_error(&parse->json, problem);
    if (!parse->inside_item)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_VIEW", "%s", problem);
    const char *about = parse->items[parse->n_items - 1].name;
    if (!about)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_VIEW", "tensor number %zu: %s", parse->n_items, problem);
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_VIEW", "tensor '%s': %s", text_show(about), problem);
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
