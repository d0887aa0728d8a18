/* What is a traceparent, and what is ignored as a whole. */
#include "tests/support/unit.h"

#include "base/traceparent.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static struct traceparent parse(const char *text)
{
    return traceparent_parse(text, strlen(text));
}

TEST(ids_and_flags_are_read)
{
    const struct traceparent parent = parse("00-" TRACE "-" SPAN "-01");
    assert_true(parent.is_given && parent.is_sampled);
    assert_int_equal(parent.trace_id[0], 0x4b);
    assert_int_equal(parent.trace_id[15], 0x36);
    assert_int_equal(parent.span_id[1], 0xf0);
    assert_int_equal(parent.span_id[7], 0xb7);
}

TEST(sampled_is_one_bit_of_the_flags)
{
    assert_false(parse("00-" TRACE "-" SPAN "-00").is_sampled);
    assert_true(parse("00-" TRACE "-" SPAN "-00").is_given);
    assert_true(parse("00-" TRACE "-" SPAN "-03").is_sampled);
    assert_false(parse("00-" TRACE "-" SPAN "-02").is_sampled);
}

TEST(of_a_later_version_the_known_part_counts)
{
    assert_true(parse("cc-" TRACE "-" SPAN "-01").is_sampled);
    assert_true(parse("cc-" TRACE "-" SPAN "-01-what-will-be").is_sampled);
    assert_false(parse("cc-" TRACE "-" SPAN "-01.what").is_given);
}

TEST(anything_else_is_ignored)
{
    static const char *const texts[] = {"",
                                        "00",
                                        "ff-" TRACE "-" SPAN "-01",
                                        "00-" TRACE "-" SPAN "-01-more",
                                        "00-" TRACE "-" SPAN "-0",
                                        "00-" TRACE "-" SPAN "-0x",
                                        "0g-" TRACE "-" SPAN "-01",
                                        "00-00000000000000000000000000000000-" SPAN "-01",
                                        "00-" TRACE "-0000000000000000-01",
                                        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
                                        "00_" TRACE "-" SPAN "-01",
                                        "00-" TRACE "_" SPAN "-01",
                                        "00-" TRACE "-" SPAN "_01"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_false(parse(texts[i]).is_given);
}
