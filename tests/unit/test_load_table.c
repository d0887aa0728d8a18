/* What the table tells of loads in flight. A load is held in the middle of its run until the test has seen it. */
#include "observe/log.h"
#include "tests/support/group_stage.h"

#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* last: it has a macro called fail */

static bool may_go_on; /* atomic */

static void hold(void)
{
    while (!__atomic_load_n(&may_go_on, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Three ranks, two of them with one view. The first delivery between them waits. */
static void start_two_loads(struct group_stage *group, struct stage_client clients[3])
{
    static const uint32_t views[] = {0, 0, 1};
    may_go_on = false;
    group_script.in_the_middle = hold;
    for (uint32_t rank = 0; rank < 3; rank++) {
        group_prepare(group, &clients[rank], views[rank], rank, 3, NULL);
        stage_submit(&clients[rank]);
    }
    group_await(group, &clients[2], TICKET_WAITING);
}

static void let_them_end(struct group_stage *group, struct stage_client clients[3])
{
    __atomic_store_n(&may_go_on, true, __ATOMIC_RELEASE);
    stage_run(&group->stage);
    for (uint32_t rank = 0; rank < 3; rank++)
        group_assert_loaded(&clients[rank], rank == 2 ? 1 : 0);
}

struct seen {
    unsigned n_loads, n_tickets;
    uint64_t total_bytes;
};

static void see_load(void *data, const struct load_info *info)
{
    struct seen *seen = data;
    assert_string_equal(info->artifact, "memory:m");
    assert_string_equal(info->stage, "read");
    assert_int_equal(strlen(info->id), LOAD_ID_CHARS - 1);
    assert_true(info->done_bytes <= info->total_bytes);
    seen->n_loads++;
    seen->n_tickets += (unsigned)info->n_tickets;
    seen->total_bytes += info->total_bytes;
}

static void every_load_in_flight_is_told_with_those_who_wait_for_it(void **state)
{
    struct group_stage *group = *state;
    struct stage_client clients[3];
    struct seen seen = {0};
    assert_true(load_table_idle(group->stage.loads));
    start_two_loads(group, clients);
    assert_false(load_table_idle(group->stage.loads));
    load_table_each(group->stage.loads, see_load, &seen);
    assert_int_equal(seen.n_loads, 2);
    assert_int_equal(seen.n_tickets, 3);
    assert_int_equal(seen.total_bytes, group_bytes_of(0) + group_bytes_of(1));
    let_them_end(group, clients);
    assert_true(load_table_idle(group->stage.loads));
}

struct watcher {
    struct ticket *ticket;
    unsigned n_told;
    bool is_done;
};

static void on_progress(void *data, const struct load_info *info)
{
    struct watcher *watcher = data;
    assert_int_equal(info->total_bytes, group_bytes_of(1));
    watcher->n_told++;
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct watcher *watcher = data;
    assert_null(error);
    assert_int_equal(result->origin, LOAD_JOINED);
    watcher->is_done = true;
}

static bool was_told_twice(const void *data)
{
    return ((const struct watcher *)data)->n_told >= 2;
}

static bool is_done(const void *data)
{
    return ((const struct watcher *)data)->is_done;
}

static void who_waits_is_told_of_progress_again_and_again(void **state)
{
    static const struct ticket_events events = {.progress = on_progress, .done = on_done};
    struct group_stage *group = *state;
    struct stage_client clients[3], like;
    struct watcher watcher = {0};
    start_two_loads(group, clients);
    group_prepare(group, &like, 1, 2, 3, NULL);
    like.input.request.has_group = false;
    watcher.ticket = ticket_create(group->stage.loads, &like.input);
    ticket_submit(watcher.ticket, GOAL_REPLICA, &events, &watcher);
    stage_run_until(&group->stage, was_told_twice, &watcher);
    let_them_end(group, clients);
    stage_run_until(&group->stage, is_done, &watcher);
    ticket_destroy(watcher.ticket);
    group_assert_nothing_is_left(group);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, group_set_up, group_tear_down)

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(every_load_in_flight_is_told_with_those_who_wait_for_it),
        TEST(who_waits_is_told_of_progress_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
