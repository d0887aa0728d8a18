/* The two text formats, byte by byte: what differs between them, and what no label can break. */
#include "tests/support/unit.h"

#include <math.h>
#include <stdlib.h>

#include "operators/exposition.h"

#define LABELS(...) ((const struct exposition_label[]){__VA_ARGS__, {0}})

static void assert_text(struct exposition *exposition, const char *want)
{
    size_t length;
    char *text = exposition_end(exposition, &length);
    assert_string_equal(text, want);
    assert_int_equal(length, strlen(want));
    free(text);
}

static void write_some(struct exposition *out, bool is_openmetrics)
{
    exposition_begin(out, is_openmetrics);
    exposition_family(out, "a", EXPOSITION_COUNTER, "Say \"a\\b\"\nand more.");
    exposition_u64(out, "a", UINT64_MAX, LABELS({"k", "v"}, {"l", ""}));
    exposition_family(out, "b", EXPOSITION_GAUGE, "B.");
    exposition_real(out, "b", 0.25, NULL);
}

TEST(a_counter_is_named_with_total_in_plain_text)
{
    struct exposition out;
    write_some(&out, false);
    assert_text(&out, "# HELP a_total Say \"a\\\\b\"\\nand more.\n# TYPE a_total counter\na_total{k=\"v\",l=\"\"} "
                      "18446744073709551615\n# HELP b B.\n# TYPE b gauge\nb 0.25\n");
}

TEST(its_family_is_named_without_it_in_openmetrics_which_has_an_end)
{
    struct exposition out;
    write_some(&out, true);
    assert_text(&out, "# HELP a Say \\\"a\\\\b\\\"\\nand more.\n# TYPE a counter\na_total{k=\"v\",l=\"\"} "
                      "18446744073709551615\n# HELP b B.\n# TYPE b gauge\nb 0.25\n# EOF\n");
}

TEST(values_of_labels_are_escaped_and_are_utf_8)
{
    struct exposition out;
    exposition_begin(&out, false);
    exposition_family(&out, "b", EXPOSITION_GAUGE, "B.");
    exposition_u64(&out, "b", 1, LABELS({"k", "a\"b\\c\n{x=\"y\"} \t\xc3\xbc\xff\xc3"}));
    assert_text(&out,
                "# HELP b B.\n# TYPE b gauge\nb{k=\"a\\\"b\\\\c\\n{x=\\\"y\\\"} \t\xc3\xbc\xef\xbf\xbd\xef\xbf\xbd\"} 1\n");
}

TEST(a_histogram_is_cumulative_and_ends_in_infinity)
{
    static const double bounds[] = {0.5, 1, 60};
    static const uint64_t numbers[] = {2, 0, 3, 1};
    struct exposition out;
    exposition_begin(&out, true);
    exposition_family(&out, "h", EXPOSITION_HISTOGRAM, "H.");
    exposition_histogram(&out, "h",
                         &(struct exposition_histogram){.bounds = bounds, .numbers = numbers, .n_bounds = 3, .sum = 99.5},
                         LABELS({"s", "d"}));
    assert_text(&out, "# HELP h H.\n# TYPE h histogram\nh_bucket{s=\"d\",le=\"0.5\"} 2\nh_bucket{s=\"d\",le=\"1.0\"} 2\n"
                      "h_bucket{s=\"d\",le=\"60.0\"} 5\nh_bucket{s=\"d\",le=\"+Inf\"} 6\nh_sum{s=\"d\"} 99.5\n"
                      "h_count{s=\"d\"} 6\n# EOF\n");
}

TEST(what_is_no_number_is_zero)
{
    struct exposition out;
    exposition_begin(&out, false);
    exposition_family(&out, "b", EXPOSITION_GAUGE, "B.");
    exposition_real(&out, "b", NAN, NULL);
    exposition_real(&out, "b", INFINITY, LABELS({"k", "v"}));
    assert_text(&out, "# HELP b B.\n# TYPE b gauge\nb 0\nb{k=\"v\"} 0\n");
}
