/* Who finds no descriptors waits for those who have them, in order, and never for nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "load/descriptor_queue.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static time_t ahead_s;

/* Instead of libc's, for everything that the test is linked from. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += ahead_s;
    return failed;
}

enum { LIMIT = 100, SPARED = 10 };

static struct loop *loop;
static struct quota *quota;
static struct descriptor_queue *queue;
static struct quota_charge files, small;

struct work {
    struct descriptor_wait wait; /* first */
    struct quota_charge charge;
    uint64_t wants;
    int n_tried, order; /* order: of those who got it; -1 = it gave up */
};
static int n_ended, n_to_end;

static int set_up(void **state)
{
    (void)state;
    loop = loop_create();
    quota = quota_create();
    quota_set_limits(quota, QUOTA_DESCRIPTORS, LIMIT, 0);
    quota_set_spared(quota, QUOTA_DESCRIPTORS, SPARED);
    queue = descriptor_queue_create(loop, quota);
    files = (struct quota_charge){.quota = quota, .kind = QUOTA_DESCRIPTORS, .is_bulk = true};
    small = (struct quota_charge){.quota = quota, .kind = QUOTA_DESCRIPTORS};
    n_ended = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    quota_charge_end(&files);
    quota_charge_end(&small);
    descriptor_queue_destroy(queue);
    loop_destroy(loop);
    quota_destroy(quota);
    return 0;
}

/* Takes one after the other, as files are opened, and keeps none when it cannot have all. */
static void try_work(struct descriptor_wait *wait)
{
    struct work *work = (struct work *)wait;
    struct error error;
    work->n_tried++;
    for (uint64_t i = 0; i < work->wants; i++) {
        if (quota_charge_add(&work->charge, 1, &error) == 0)
            continue;
        quota_charge_end(&work->charge);
        if (descriptor_queue_wait(queue, wait, &error))
            return;
        work->order = -1;
    }
    descriptor_queue_leave(queue, wait);
    work->order = work->order < 0 ? -1 : ++n_ended;
    quota_charge_end(&work->charge);
    if (n_ended == n_to_end || work->order < 0)
        loop_stop(loop);
}

static struct work work_of(uint64_t wants)
{
    struct quota_charge charge = {.quota = quota, .kind = QUOTA_DESCRIPTORS, .is_bulk = true};
    return (struct work){.wait.retry = try_work, .charge = charge, .wants = wants};
}

static void give_back(void *data)
{
    (void)data;
    quota_charge_end(&files);
}

static void those_who_wait_are_served_in_order(void **state)
{
    struct error error;
    (void)state;
    assert_int_equal(quota_charge_add(&files, 50, &error), 0);
    struct work works[] = {work_of(60), work_of(90), work_of(45), work_of(41)};
    n_to_end = 4;
    for (int i = 0; i < 4; i++)
        try_work(&works[i].wait);
    assert_int_equal(n_ended, 0);
    struct loop_timer *timer = loop_timer_create(loop, give_back, NULL);
    loop_timer_start(timer, 500, 0);
    loop_run(loop);
    loop_timer_destroy(timer);
    for (int i = 0; i < 4; i++)
        assert_int_equal(works[i].order, i + 1);
    assert_true(works[0].n_tried > 1 && works[1].n_tried == 2 && works[3].n_tried == 2);
}

static void files_leave_some_for_what_a_load_needs_besides(void **state)
{
    struct error error;
    (void)state;
    assert_int_equal(quota_charge_add(&files, LIMIT - SPARED, &error), 0);
    assert_int_equal(quota_charge_add(&files, 1, &error), -1);
    assert_int_equal(quota_charge_add(&small, SPARED, &error), 0);
    assert_int_equal(quota_bulk(quota, QUOTA_DESCRIPTORS), LIMIT - SPARED);
    assert_int_equal(quota_charge_add(&small, 1, &error), -1);
}

static void what_does_not_fit_alone_fails_soon(void **state)
{
    struct error error;
    struct work work = work_of(LIMIT), other = work_of(LIMIT);
    (void)state;
    assert_int_equal(quota_charge_add(&small, 20, &error), 0);
    n_to_end = 1;
    try_work(&work.wait);
    loop_run(loop);
    assert_true(work.order == -1 && work.n_tried == 4);
    assert_int_equal(quota_charge_add(&files, 5, &error), 0);
    work = other;
    error.kind = ERROR_KIND_METADATA_EXCEEDED;
    assert_false(descriptor_queue_wait(queue, &work.wait, &error));
}

static void who_leaves_is_not_called(void **state)
{
    struct error error;
    (void)state;
    assert_int_equal(quota_charge_add(&files, LIMIT - SPARED, &error), 0);
    struct work leaver = work_of(1), other = work_of(2);
    n_to_end = 1;
    try_work(&leaver.wait);
    try_work(&other.wait);
    assert_true(descriptor_queue_leave(queue, &leaver.wait));
    assert_false(descriptor_queue_leave(queue, &leaver.wait));
    quota_charge_end(&files);
    loop_run(loop);
    assert_true(leaver.n_tried == 1 && other.order == 1);
}

static void after_half_a_minute_in_vain_it_fails(void **state)
{
    struct error error;
    (void)state;
    assert_int_equal(quota_charge_add(&files, LIMIT - SPARED, &error), 0);
    struct work work = work_of(1);
    n_to_end = 1;
    try_work(&work.wait);
    ahead_s += 31;
    loop_run(loop);
    assert_true(work.n_tried == 2 && work.order == -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(those_who_wait_are_served_in_order),   TEST(files_leave_some_for_what_a_load_needs_besides),
        TEST(what_does_not_fit_alone_fails_soon),   TEST(who_leaves_is_not_called),
        TEST(after_half_a_minute_in_vain_it_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
