/* A hand-written scanner. Bounds beyond 64 bits saturate, which clips to the same elements as in NumPy. What NumPy knows
 * and a view does not (steps, single indexes, '...') is refused with what to write instead. */
#include "slice_text.h"

#include <stdint.h>
#include <string.h>

#include "base/text.h"

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

static int complain_of_slice(const struct slice_text *slice, const char *problem, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SLICE", "slice of '%s': %s",
                text_escape(slice->name, strlen(slice->name), name), problem);
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
