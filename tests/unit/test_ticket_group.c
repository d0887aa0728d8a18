/* What a group refuses a ticket, and who goes on without one. The other ways through a group are in test_ticket.c, which takes
 * every transition. */
#include "observe/log.h"
#include "tests/support/group_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h> /* last: it has a macro called fail */

static bool is_done(const void *data)
{
    return ((const struct stage_client *)data)->is_done;
}

static void whoever_else_claims_the_rank_is_refused(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, other;
    static const char *const attempts[] = {"b", "", NULL};
    group_send(group, &first, 0, 2, "a");
    group_await(group, &first, TICKET_ASSEMBLING);
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        group_send(group, &other, 0, 2, attempts[i]);
        stage_run_until(&group->stage, is_done, &other);
        assert_int_equal(other.code, ERROR_ALREADY_EXISTS);
        assert_non_null(strstr(other.message, ticket_result(first.ticket)->load_id));
    }
    ticket_cancel(first.ticket);
    assert_int_equal(first.code, ERROR_CANCELLED);
}

static void a_retry_that_is_cancelled_hurts_nobody(void **state)
{
    struct group_stage *group = *state;
    struct stage_client first, again, other;
    group_send(group, &first, 0, 2, "a");
    group_await(group, &first, TICKET_ASSEMBLING);
    group_send(group, &again, 0, 2, "a");
    group_await(group, &again, TICKET_ECHO);
    ticket_cancel(again.ticket);
    assert_int_equal(again.code, ERROR_CANCELLED);
    group_send(group, &other, 1, 2, "b");
    stage_run(&group->stage);
    group_assert_loaded(&first, 0);
    group_assert_loaded(&other, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, group_set_up, group_tear_down)

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(whoever_else_claims_the_rank_is_refused),
        TEST(a_retry_that_is_cancelled_hurts_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
