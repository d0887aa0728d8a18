/* A name is taken apart once; names of one set have the same text except for their number, which is the set's key in a map. */
#include "resolve/part_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/text.h"
#include "resolve/safetensors.h"

enum { MOST_DIGITS = 9 };

struct part_name {
    const char *name;
    size_t length;      /* without the suffix */
    size_t stem_length; /* without variant and number */
    size_t variant_at, variant_length;
    size_t number_at, n_digits; /* 0 digits: it is one of no set */
    uint32_t number, of;        /* of 0: of a rank's parts, which do not say how many they are */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The digits that end at `end`; false: there are none, or too many. */
static bool take_digits_back(const char *name, size_t *end, uint32_t *number)
{
    size_t at = *end;
    uint32_t power = 1;
    for (*number = 0; at > 0 && is_digit(name[at - 1]) && *end - at < MOST_DIGITS; at--, power *= 10)
        *number += power * (uint32_t)(name[at - 1] - '0');
    bool found = at < *end && !(at > 0 && is_digit(name[at - 1]));
    *end = at;
    return found;
}

/* Takes such a word off the end. */
static bool take_word_back(const char *name, size_t *end, const char *word)
{
    size_t length = strlen(word);
    if (*end < length || memcmp(name + *end - length, word, length) != 0)
        return false;
    *end -= length;
    return true;
}

/* Takes "-00002-of-00003" off the end. */
static void take_number(struct part_name *part, size_t *end)
{
    size_t at = *end;
    if (!take_digits_back(part->name, &at, &part->of) || !take_word_back(part->name, &at, "-of-"))
        return;
    size_t digits_end = at;
    if (!take_digits_back(part->name, &at, &part->number) || !part->of || part->number > part->of)
        return;
    part->number_at = at;
    part->n_digits = digits_end - at;
    *end = at;
    take_word_back(part->name, end, "-");
}

/* "model-rank-1-part-0" */
static bool take_rank(struct part_name *part, size_t end)
{
    uint32_t rank;
    size_t at = end;
    if (!take_digits_back(part->name, &at, &part->number))
        return false;
    part->number_at = at;
    if (!take_word_back(part->name, &at, "-part-") || !take_digits_back(part->name, &at, &rank) ||
        !take_word_back(part->name, &at, "-rank-"))
        return false;
    part->n_digits = end - part->number_at;
    part->of = 0;
    part->stem_length = at;
    return true;
}

/* Takes ".fp16" off the end: a word with a letter in it. ".1" is no variant but one of many. */
static void take_variant(struct part_name *part, size_t *end)
{
    size_t at = *end;
    bool has_letter = false;
    for (; at > 0; at--) {
        char c = part->name[at - 1];
        bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (!is_letter && !is_digit(c) && c != '_' && c != '-')
            break;
        has_letter = has_letter || is_letter;
    }
    size_t length = *end - at;
    if (!has_letter || at < 2 || part->name[at - 1] != '.' ||
        (length == strlen("safetensors") && memcmp(part->name + at, "safetensors", length) == 0))
        return;
    part->variant_at = at;
    part->variant_length = length;
    *end = at - 1;
}

static struct part_name parse_name(const char *name)
{
    struct part_name part = {.name = name, .length = strlen(name)};
    if (text_ends_with(name, part.length, SAFETENSORS_SUFFIX))
        part.length -= strlen(SAFETENSORS_SUFFIX);
    size_t end = part.length;
    if (take_rank(&part, end))
        return part;
    take_number(&part, &end);
    take_variant(&part, &end);
    if (!part.n_digits)
        take_number(&part, &end);
    part.stem_length = end;
    return part;
}

/* --- sets --- */

/* The name with another number; malloced. */
static char *print_name(const struct part_name *part, uint32_t number)
{
    return memory_print("%.*s%0*u%s", (int)part->number_at, part->name, (int)part->n_digits, number,
                        part->name + part->number_at + part->n_digits);
}

struct member {
    uint32_t set, number;
};

struct sets {
    struct map by_key;
    char **keys;
    struct part_name *firsts; /* by set */
    char **gaps;              /* by set: the first file that it lacks; NULL = none */
    struct member *members;
    uint32_t *set_of; /* by name; MAP_NONE = of no set */
    size_t n_sets, n_members;
};

static int compare_members(const void *a, const void *b)
{
    const struct member *one = a, *two = b;
    return one->set != two->set ? (one->set < two->set ? -1 : 1) : (one->number > two->number) - (one->number < two->number);
}

/* `n` members of one set, ascending. */
static char *find_gap(const struct part_name *first, const struct member *members, size_t n)
{
    uint32_t begin = members[0].number && first->of ? 1 : 0, next = begin;
    for (size_t i = 0; i < n && members[i].number == next; i++)
        next++;
    bool is_complete = first->of ? next >= begin + first->of : next > members[n - 1].number;
    return is_complete ? NULL : print_name(first, next);
}

static void find_gaps(struct sets *sets)
{
    if (sets->n_members)
        qsort(sets->members, sets->n_members, sizeof *sets->members, compare_members);
    for (size_t i = 0, end; i < sets->n_members; i = end) {
        uint32_t set = sets->members[i].set;
        for (end = i; end < sets->n_members && sets->members[end].set == set;)
            end++;
        sets->gaps[set] = find_gap(&sets->firsts[set], &sets->members[i], end - i);
    }
}

static void sets_init(struct sets *sets, const char *const *names, size_t n_names)
{
    *sets = (struct sets){.keys = memory_alloc_array(n_names + 1, sizeof *sets->keys),
                          .firsts = memory_alloc_array(n_names + 1, sizeof *sets->firsts),
                          .gaps = memory_alloc_array(n_names + 1, sizeof *sets->gaps),
                          .members = memory_alloc_array(n_names + 1, sizeof *sets->members),
                          .set_of = memory_alloc_array(n_names + 1, sizeof *sets->set_of)};
    map_init(&sets->by_key, n_names);
    for (size_t i = 0; i < n_names; i++) {
        const struct part_name part = parse_name(names[i]);
        sets->set_of[i] = MAP_NONE;
        if (!part.n_digits)
            continue;
        char *key = print_name(&part, 0);
        uint32_t set = map_add(&sets->by_key, key, strlen(key), (uint32_t)sets->n_sets);
        if (set == MAP_NONE) {
            set = (uint32_t)sets->n_sets++;
            sets->keys[set] = key;
            sets->firsts[set] = part;
        } else {
            free(key);
        }
        sets->set_of[i] = set;
        sets->members[sets->n_members++] = (struct member){set, part.number};
    }
    find_gaps(sets);
}

static void sets_fini(struct sets *sets)
{
    map_fini(&sets->by_key);
    for (size_t i = 0; i < sets->n_sets; i++) {
        free(sets->keys[i]);
        free(sets->gaps[i]);
    }
    free(sets->keys);
    free(sets->firsts);
    free(sets->gaps);
    free(sets->members);
    free(sets->set_of);
}

char *part_names_find_gap(const char *const *names, size_t n_names)
{
    struct sets sets;
    char *gap = NULL;
    sets_init(&sets, names, n_names);
    for (size_t i = 0; i < sets.n_sets && !gap; i++) {
        gap = sets.gaps[i];
        sets.gaps[i] = NULL;
    }
    sets_fini(&sets);
    return gap;
}

/* Which say how many they are. *last is one of them. */
static size_t count_complete(const struct sets *sets, uint32_t *last)
{
    size_t n = 0;
    for (uint32_t i = 0; i < sets->n_sets; i++) {
        if (sets->gaps[i] || !sets->firsts[i].of)
            continue;
        n++;
        *last = i;
    }
    return n;
}

bool part_names_have_set(const char *const *names, size_t n_names)
{
    struct sets sets;
    uint32_t last;
    sets_init(&sets, names, n_names);
    bool have = count_complete(&sets, &last) > 0;
    sets_fini(&sets);
    return have;
}

size_t part_names_keep_set(const char **names, size_t n_names)
{
    struct sets sets;
    uint32_t found = MAP_NONE;
    size_t n_kept = 0;
    sets_init(&sets, names, n_names);
    bool is_one = count_complete(&sets, &found) == 1;
    for (size_t i = 0; is_one && i < n_names; i++)
        if (sets.set_of[i] == found)
            names[n_kept++] = names[i];
    sets_fini(&sets);
    return n_kept;
}

/* --- variants --- */

/* Under this name a variant is any word: the library that writes it names variants so. Under any other one it is one of the words
 * that are known, because NAME.word may as well be another part of NAME. */
static const char stem_of_variants[] = "diffusion_pytorch_model";
static const char *const known_variants[] = {"fp32", "fp16",    "bf16",    "fp8",    "fp4",   "f32",
                                             "f16",  "int8",    "int4",    "8bit",   "4bit",  "fp8_e4m3fn",
                                             "ema",  "non_ema", "non-ema", "no_ema", "pruned"};

static bool is_variant(const struct part_name *part)
{
    const char *word = part->name + part->variant_at;
    bool is_known = part->variant_length && part->stem_length == strlen(stem_of_variants) &&
                    memcmp(part->name, stem_of_variants, part->stem_length) == 0;
    for (size_t i = 0; part->variant_length && i < sizeof known_variants / sizeof *known_variants; i++)
        is_known = is_known || (strlen(known_variants[i]) == part->variant_length &&
                                memcmp(known_variants[i], word, part->variant_length) == 0);
    return is_known;
}

size_t part_names_drop_variants(const char **names, size_t n_names)
{
    struct sets sets;
    struct map stems; /* of what is there whole and without a variant */
    size_t n_kept = 0, n_dropped = 0;
    const char **dropped = memory_alloc_array(n_names + 1, sizeof *dropped);
    sets_init(&sets, names, n_names);
    map_init(&stems, n_names);
    for (size_t i = 0; i < n_names; i++) {
        const struct part_name part = parse_name(names[i]);
        bool is_whole = !part.n_digits || (part.of && !sets.gaps[sets.set_of[i]]);
        if (is_whole && !is_variant(&part))
            map_add(&stems, part.name, part.n_digits ? part.stem_length : part.length, 0);
    }
    for (size_t i = 0; i < n_names; i++) {
        const struct part_name part = parse_name(names[i]);
        bool is_dropped = is_variant(&part) && map_find(&stems, part.name, part.stem_length) != MAP_NONE;
        *(is_dropped ? &dropped[n_dropped++] : &names[n_kept++]) = names[i];
    }
    if (n_dropped)
        memcpy(&names[n_kept], dropped, n_dropped * sizeof *dropped);
    map_fini(&stems);
    sets_fini(&sets);
    free(dropped);
    return n_kept;
}

/* --- ranks --- */

uint32_t part_names_count_ranks(const char *const *names, size_t n_names, const char **first, bool *have_parts)
{
    struct sets sets;
    uint32_t n_ranks = 0;
    *first = NULL;
    *have_parts = false;
    sets_init(&sets, names, n_names);
    for (size_t i = 0; i < sets.n_sets; i++) {
        if (sets.firsts[i].of)
            continue;
        n_ranks++;
        *first = *first ? *first : sets.firsts[i].name;
    }
    for (size_t i = 0; i < n_names; i++)
        *have_parts = *have_parts || (sets.set_of[i] != MAP_NONE && !sets.firsts[sets.set_of[i]].of &&
                                      sets.firsts[sets.set_of[i]].name != names[i]);
    sets_fini(&sets);
    return n_ranks;
}
