/* Notes of waits: whose they are, what they say and when. */
#include "tests/support/unit.h"

#include "base/waiting.h"

#include "base/clock.h"
#include "base/parallel.h"

static struct waiting note;
static char text[WAITING_TEXT_CHARS];

static int open_note(void **state)
{
    (void)state;
    waiting_init(&note);
    return 0;
}

static int close_note(void **state)
{
    (void)state;
    waiting_enter(NULL);
    waiting_fini(&note);
    return 0;
}

static void make_old(struct waiting *waiting)
{
    waiting->since_ns -= 1000 * (uint64_t)NS_PER_MS;
}

TEST_IN(a_wait_is_told_when_it_has_lasted, open_note, close_note)
{
    assert_false(waiting_read(&note, text));
    waiting_begin(&note, "https://host to answer", 0);
    assert_false(waiting_read(&note, text));
    make_old(&note);
    assert_true(waiting_read(&note, text));
    assert_string_equal(text, "https://host to answer");
    waiting_end(&note);
    assert_false(waiting_read(&note, text));
}

TEST_IN(a_far_next_try_is_told_at_once_and_in_seconds, open_note, close_note)
{
    waiting_begin(&note, "https://host: busy, try 2 of 8", clock_now_ns() + 3900 * (uint64_t)NS_PER_MS);
    assert_true(waiting_read(&note, text));
    assert_string_equal(text, "https://host: busy, try 2 of 8 in 4 s");
}

TEST_IN(it_waits_until_the_last_of_its_waits_has_ended, open_note, close_note)
{
    waiting_begin(&note, "one", 0);
    waiting_begin(&note, "two", 0);
    make_old(&note);
    waiting_end(&note);
    assert_true(waiting_read(&note, text));
    waiting_end(&note);
    waiting_end(&note); /* one too many is no wait that is owed */
    waiting_begin(&note, "three", 0);
    make_old(&note);
    assert_true(waiting_read(&note, text));
    assert_string_equal(text, "three");
}

TEST_IN(a_long_text_is_cut, open_note, close_note)
{
    char longer[2 * WAITING_TEXT_CHARS];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    waiting_begin(&note, longer, clock_now_ns() + UINT64_MAX / 4);
    assert_true(waiting_read(&note, text));
    assert_true(strlen(text) < sizeof text);
}

static int wait_once(void *data, size_t i, struct error *error)
{
    (void)data, (void)i, (void)error;
    waiting_begin(waiting_current(), "a try", 0);
    return 0;
}

TEST_IN(a_thread_tells_whoever_it_works_for_and_so_do_its_helpers, open_note, close_note)
{
    struct error error;
    waiting_begin(waiting_current(), "nobody", 0);
    assert_int_equal(note.n_waits, 0);
    assert_null(waiting_enter(&note));
    assert_int_equal(parallel_run(3, 3, wait_once, NULL, &error), 0);
    assert_int_equal(note.n_waits, 3);
    assert_ptr_equal(waiting_enter(NULL), &note);
}

TEST_IN(who_waits_for_another_request_shows_its_wait, open_note, close_note)
{
    struct waiting follower;
    waiting_init(&follower);
    waiting_begin(&note, "https://host to answer", 0);
    make_old(&note);
    waiting_follow(&follower, &note);
    assert_true(waiting_read(&follower, text));
    assert_string_equal(text, "https://host to answer");
    waiting_follow(&follower, NULL);
    assert_false(waiting_read(&follower, text));
    waiting_follow(NULL, &note);
    waiting_fini(&follower);
}
