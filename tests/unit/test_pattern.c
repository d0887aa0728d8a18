/* Patterns of names, and templates that are filled with what their wildcards stood for. */
#include "tests/support/unit.h"

#include "recipe/pattern.h"

static struct pattern pattern_of(const char *text)
{
    struct pattern pattern;
    assert_true(pattern_init(&pattern, text, strlen(text)));
    return pattern;
}

/* NULL = no match. */
static const char *renamed(const char *from, const char *to, const char *name)
{
    static char out[200];
    struct pattern pattern = pattern_of(from), template = pattern_of(to);
    struct pattern_match match;
    uint64_t steps = UINT64_MAX;
    struct error error;
    if (!pattern_match(&pattern, name, strlen(name), &match, &steps, &error))
        return NULL;
    assert_true(pattern_can_fill(&pattern, &template));
    assert_true(pattern_filled_length(&template, &match) < sizeof out);
    pattern_fill(&template, &match, out);
    assert_int_equal(strlen(out), pattern_filled_length(&template, &match));
    return out;
}

TEST(wildcards_are_numbers_and_runs)
{
    assert_string_equal(renamed("l.{}.q", "layers.{}.wq", "l.11.q"), "layers.11.wq");
    assert_null(renamed("l.{}.q", "x", "l.x.q"));
    assert_null(renamed("l.{}.q", "x", "l..q"));
    assert_null(renamed("l.{}.q", "x", "l.1.qq"));
    assert_string_equal(renamed("*", "all", ""), "all");
    assert_string_equal(renamed("a*b", "*", "axxb"), "xx");
    assert_null(renamed("a*b", "*", "ax"));
    assert_string_equal(renamed("{", "x", "{"), "x");
    assert_string_equal(renamed("a{b}", "x", "a{b}"), "x");
}

TEST(the_kth_of_a_template_is_the_kth_of_the_pattern)
{
    assert_string_equal(renamed("m.{}.e.{}.*.w", "x.{}.{}.*", "m.2.e.7.up.w"), "x.2.7.up");
    assert_string_equal(renamed("*.{}.*", "*-*-{}", "a.1.b"), "a-b-1");
    assert_string_equal(renamed("{}{}", "{} {}", "123"), "12 3");
    assert_string_equal(renamed("*.*", "* *", "a.b.c"), "a.b c");
    struct pattern few = pattern_of("a.{}"), many = pattern_of("{}.{}"), run = pattern_of("*");
    assert_false(pattern_can_fill(&few, &many));
    assert_false(pattern_can_fill(&few, &run));
    assert_true(pattern_can_fill(&many, &few));
}

TEST(sixteen_wildcards_are_taken_and_one_more_is_not)
{
    struct pattern pattern;
    char text[40];
    memset(text, '*', sizeof text);
    assert_true(pattern_init(&pattern, text, PATTERN_MAX_WILDCARDS));
    assert_false(pattern_init(&pattern, text, PATTERN_MAX_WILDCARDS + 1));
}

/* Without a note of what failed before, this would take years. */
TEST(a_pattern_that_nearly_matches_is_refused_at_once)
{
    char *name = malloc(4001);
    struct pattern pattern = pattern_of("*a*a*a*a*a*a*a*a*b");
    uint64_t steps = UINT64_MAX;
    struct error error;
    memset(name, 'a', 4000);
    assert_int_equal(pattern_match(&pattern, name, 4000, NULL, &steps, &error), 0);
    name[3999] = 'b';
    assert_int_equal(pattern_match(&pattern, name, 4000, NULL, &steps, &error), 1);
    free(name);
}

/* Names may have megabytes, and what is tried grows with their square. */
TEST(steps_are_counted_and_end_at_none)
{
    enum { NAME_BYTES = 1 << 20 };
    char *name = malloc(NAME_BYTES);
    struct pattern pattern = pattern_of("*x*y");
    struct error error;
    uint64_t steps = 3;
    assert_int_equal(pattern_match(&pattern, "xy", 2, NULL, &steps, &error), -1);
    assert_true(steps == 0 && strcmp(error.reason, "TOO_MANY_PATTERNS") == 0);
    for (steps = 3; pattern_match(&pattern, "xy", 2, NULL, &steps, &error) < 0;)
        steps = 100;
    assert_in_range(steps, 90, 99);
    memset(name, 'x', NAME_BYTES);
    steps = 10 * NAME_BYTES;
    assert_int_equal(pattern_match(&pattern, name, NAME_BYTES, NULL, &steps, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    free(name);
}

TEST(a_name_without_memory_for_notes_is_an_error)
{
    struct pattern pattern = pattern_of("*x*y");
    struct error error;
    uint64_t steps = UINT64_MAX;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they end the process where they get no memory */
#endif
    assert_int_equal(pattern_match(&pattern, "", (size_t)1 << 60, NULL, &steps, &error), -1); /* it is not looked at */
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
}
