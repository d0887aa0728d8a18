#include "variant/tensor_set.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/metadata.h"
#include "base/text.h"

int set_init(struct tensor_set *set, const struct artifact *artifact, struct arena *arena, const struct cancel *cancel,
             struct error *error)
{
    *set = (struct tensor_set){.artifact = artifact,
                               .match_steps_left = SET_MAX_MATCH_STEPS,
                               .work = {arena, 0, error},
                               .arena = arena,
                               .cancel = cancel,
                               .error = error};
    set->tensors = metadata_array(artifact->n_tensors, sizeof *set->tensors, error);
    if (!set->tensors)
        return -1;
    set->n = set->capacity = artifact->n_tensors;
    for (size_t i = 0; i < artifact->n_tensors; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        set->tensors[i] = (struct set_tensor){.name = record->name,
                                              .name_length = record->name_length,
                                              .array = {.rank = record->rank, .shape = record->shape},
                                              .dtype = record->dtype,
                                              .is_stored = true,
                                              .source = (uint32_t)i};
    }
    return 0;
}

void set_fini(struct tensor_set *set)
{
    metadata_free(set->tensors);
    metadata_free(set->next);
    metadata_free(set->chains);
    metadata_free(set->scalings);
}

/* --- errors --------------------------------------------------------------------------------------------------------- */

int set_fail(const struct tensor_set *set, const struct set_tensor *tensor, const char *format, ...)
{
    char message[ERROR_MESSAGE_CHARS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fail(set->error, ERROR_INVALID_ARGUMENT, "VARIANT_DOES_NOT_FIT", "tensor %s: %s",
         text_show_bytes(tensor->name, tensor->name_length), message);
    return error_note_tensor(set->error, tensor->name, tensor->name_length);
}

int set_fail_name(const struct tensor_set *set, const char *name, size_t length, const char *complaint)
{
    fail(set->error, ERROR_INVALID_ARGUMENT, "VARIANT_DOES_NOT_FIT", "tensor %s %s", text_show_bytes(name, length),
         complaint);
    return error_note_tensor(set->error, name, length);
}

const char *set_show_shape(uint32_t rank, const uint64_t *shape, char out[SET_SHAPE_CHARS])
{
    size_t used = (size_t)snprintf(out, SET_SHAPE_CHARS, "(");
    for (uint32_t i = 0; i < rank && used + 24 < SET_SHAPE_CHARS; i++)
        used += (size_t)snprintf(out + used, SET_SHAPE_CHARS - used, "%s%" PRIu64, i ? ", " : "", shape[i]);
    snprintf(out + used, SET_SHAPE_CHARS - used, rank == 1 ? ",)" : ")");
    return out;
}

size_t set_number(uint64_t number, char out[SET_NUMBER_CHARS])
{
    return (size_t)snprintf(out, SET_NUMBER_CHARS, "%" PRIu64, number);
}

bool set_bytes(uint32_t rank, const uint64_t *shape, enum dtype dtype, uint64_t *bytes)
{
    uint64_t bits = dtype_bits(dtype);
    bool fits = true, is_empty = false;
    for (uint32_t i = 0; i < rank; i++) {
        is_empty = is_empty || shape[i] == 0;
        fits = fits && checked_mul(bits, shape[i], &bits);
    }
    *bytes = is_empty ? 0 : bits / 8;
    return is_empty || (fits && bits % 8 == 0);
}

uint64_t set_elements(const struct index_array *array)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < array->rank; i++)
        n *= array->shape[i];
    return n;
}

/* --- the next set --------------------------------------------------------------------------------------------------- */

struct set_tensor *set_add(struct tensor_set *set, const struct set_tensor *tensor)
{
    if (set->n_next >= SET_MAX_TENSORS) {
        fail(set->error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_TENSORS", "the variant has more than %d tensors",
             SET_MAX_TENSORS);
        return NULL;
    }
    if (METADATA_RESERVE(set->next, set->n_next, set->next_capacity, set->error) < 0)
        return NULL;
    set->next[set->n_next] = *tensor;
    return &set->next[set->n_next++];
}

int set_add_array(struct tensor_set *set, const struct set_tensor *tensor, const struct index_array *array)
{
    struct set_tensor *added = set_add(set, tensor);
    if (!added)
        return -1;
    added->array = *array;
    added->is_stored = false;
    return 0;
}

static int check_names(const struct tensor_set *set)
{
    struct map names;
    int failed = 0;
    if (map_init_charged(&names, set->n_next, set->error) < 0)
        return -1;
    for (size_t i = 0; i < set->n_next && !failed; i++) {
        if (map_add(&names, set->next[i].name, set->next[i].name_length, (uint32_t)i) != MAP_NONE)
            failed = set_fail_name(set, set->next[i].name, set->next[i].name_length,
                                   "would be there twice: two tensors get this name");
    }
    map_fini(&names);
    return failed;
}

int set_next(struct tensor_set *set)
{
    if (check_names(set) < 0)
        return -1;
    struct set_tensor *old = set->tensors;
    size_t old_capacity = set->capacity;
    set->tensors = set->next;
    set->n = set->n_next;
    set->capacity = set->next_capacity;
    set->next = old;
    set->next_capacity = old_capacity;
    set->n_next = 0;
    return 0;
}

char *set_text(struct tensor_set *set, const char *text, size_t length)
{
    char *copy = arena_try_bytes(set->arena, length + 1, set->error);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

const char *set_fill(struct tensor_set *set, const struct pattern *template, const struct pattern_match *match,
                     size_t *length)
{
    *length = pattern_filled_length(template, match);
    char *name = arena_try_bytes(set->arena, *length + 1, set->error);
    if (name)
        pattern_fill(template, match, name);
    return name;
}

/* --- patterns ------------------------------------------------------------------------------------------------------- */

static bool is_exact(const struct pattern *pattern)
{
    return pattern->n_numbers + pattern->n_runs == 0;
}

int set_patterns_init(struct tensor_set *set, const struct recipe_patterns *patterns, struct set_patterns *found)
{
    *found = (struct set_patterns){.patterns = patterns};
    found->wild = metadata_array(patterns->n, sizeof *found->wild, set->error);
    found->seen = metadata_array(patterns->n, sizeof *found->seen, set->error);
    if (!found->wild || !found->seen || map_init_charged(&found->exact, patterns->n, set->error) < 0)
        return -1;
    for (size_t i = 0; i < patterns->n; i++) {
        const struct pattern *pattern = &patterns->list[i];
        if (!is_exact(pattern))
            found->wild[found->n_wild++] = i;
        else if (map_add(&found->exact, pattern->text, pattern->length, (uint32_t)i) != MAP_NONE)
            found->seen[i] = true; /* a repetition */
    }
    return 0;
}

void set_patterns_fini(struct set_patterns *found)
{
    map_fini(&found->exact);
    metadata_free(found->wild);
    metadata_free(found->seen);
}

int set_match(struct tensor_set *set, const struct pattern *pattern, const struct set_tensor *tensor,
              struct pattern_match *match)
{
    uint64_t most = set->match_steps_left < SET_MAX_ONE_MATCH_STEPS ? set->match_steps_left : SET_MAX_ONE_MATCH_STEPS,
             left = most;
    if (cancel_is_set(set->cancel))
        return fail(set->error, ERROR_CANCELLED, "CANCELLED", "cancelled while the steps of the variant were applied");
    int matches = pattern_match(pattern, tensor->name, tensor->name_length, match, &left, set->error);
    set->match_steps_left -= most - left;
    return matches;
}

int set_find(struct tensor_set *set, struct set_patterns *found, const struct set_tensor *tensor, size_t *pattern,
             struct pattern_match *match)
{
    uint32_t exact = map_find(&found->exact, tensor->name, tensor->name_length);
    *pattern = exact == MAP_NONE ? found->patterns->n : exact;
    match->n_numbers = match->n_runs = 0;
    if (exact != MAP_NONE)
        found->seen[exact] = true;
    set->n_matches += found->n_wild;
    if (set->n_matches > SET_MAX_MATCHES)
        return fail(
            set->error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_PATTERNS",
            "the steps hold too many patterns against too many tensors; use fewer patterns, or names without * and {}");
    for (size_t k = 0; k < found->n_wild; k++) {
        size_t i = found->wild[k];
        bool is_better = i < *pattern;
        if (found->seen[i] && !is_better)
            continue;
        int matches = set_match(set, &found->patterns->list[i], tensor, is_better ? match : NULL);
        if (matches < 0)
            return -1;
        if (!matches)
            continue;
        found->seen[i] = true;
        *pattern = is_better ? i : *pattern;
    }
    if (*pattern < found->patterns->n && is_exact(&found->patterns->list[*pattern]))
        match->n_numbers = match->n_runs = 0;
    return 0;
}

int set_check_seen(struct tensor_set *set, const struct set_patterns *found)
{
    for (size_t i = 0; i < found->patterns->n && !set->step->optional; i++) {
        const struct pattern *pattern = &found->patterns->list[i];
        if (!found->seen[i])
            return fail(set->error, ERROR_INVALID_ARGUMENT, "PATTERN_MATCHES_NOTHING",
                        "no tensor is called %s; with `optional: true` there need be none",
                        text_show_bytes(pattern->text, pattern->length));
    }
    return 0;
}

int set_each(struct tensor_set *set, const struct recipe_patterns *patterns,
             int (*change)(struct tensor_set *set, const struct set_tensor *tensor))
{
    struct set_patterns found;
    int failed = set_patterns_init(set, patterns, &found);
    for (size_t i = 0; i < set->n && !failed; i++) {
        failed = set_find(set, &found, &set->tensors[i], &set->pattern, &set->match);
        if (!failed && set->pattern < patterns->n)
            failed = change(set, &set->tensors[i]);
        else if (!failed)
            failed = set_add(set, &set->tensors[i]) ? 0 : -1;
    }
    failed = failed ? failed : set_check_seen(set, &found);
    set_patterns_fini(&found);
    return failed ? failed : set_next(set);
}

/* --- maps ----------------------------------------------------------------------------------------------------------- */

int set_maps(struct tensor_set *set, const struct set_tensor *tensor, struct index_array *array)
{
    const struct tensor_record *stored = &set->artifact->tensors[tensor->source];
    *array = tensor->array;
    if (!tensor->is_stored)
        return 0;
    bool is_flat = stored->n_pieces == 1 && !artifact_piece(set->artifact, stored, 0)->box;
    return index_identity(&set->work, tensor->source, stored->rank, stored->shape, is_flat, array);
}
