/* A step on a helper that lacks descriptors waits for those that have them, in order, and never in vain. */
#include "tests/support/unit.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "load/helper_step.h"

static time_t ahead_s;

/* Instead of libc's, for everything that the test is linked from. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += ahead_s;
    return failed;
}

enum { LIMIT = 100, SPARED = 10 };

static struct load_services services;
static struct replica_table *replicas;
static struct quota_charge files, small; /* of other work */
static int n_ended;

struct work {
    struct loop_work work; /* first */
    struct helper_step step;
    struct waiting waiting;
    struct quota_charge own;
    uint64_t wants;
    struct error error;
    bool has_failed, waits_for_others;
    int n_tried, order; /* order: of those that got it; 0 = not yet, -1 = it gave up */
};

/* Takes one after the other, as files are opened, and keeps none when it cannot have all. */
static void take_descriptors(struct loop_work *loop_work)
{
    struct work *work = (struct work *)loop_work;
    waiting_end(&work->waiting);
    work->n_tried++;
    work->has_failed = false;
    for (uint64_t i = 0; i < work->wants && !work->has_failed; i++)
        work->has_failed = quota_charge_add(&work->own, 1, &work->error) != 0;
    if (work->has_failed)
        quota_charge_end(&work->own);
}

static void on_tried(struct loop_work *loop_work)
{
    struct work *work = (struct work *)loop_work;
    bool goes_on =
        work->has_failed && (work->waits_for_others ? helper_step_again_or_wait(&work->step, replicas, &work->error)
                                                    : helper_step_again(&work->step, replicas, &work->error));
    if (!goes_on) {
        helper_step_end(&work->step);
        work->order = work->has_failed ? -1 : ++n_ended;
        quota_charge_end(&work->own);
    }
    loop_stop(services.loop);
}

static struct quota_charge charge_of(bool is_bulk)
{
    return (struct quota_charge){.quota = services.quota, .kind = QUOTA_DESCRIPTORS, .is_bulk = is_bulk};
}

static int set_up(void **state)
{
    const struct replica_limits limits = {.budget_bytes = 1 << 20};
    (void)state;
    services = (struct load_services){.loop = loop_create(), .quota = quota_create()};
    quota_set_limits(services.quota, QUOTA_DESCRIPTORS, LIMIT, 0);
    quota_set_reserve(services.quota, QUOTA_DESCRIPTORS, 0, SPARED);
    services.descriptors = descriptor_queue_create(services.loop, services.quota);
    replicas = replica_table_create(services.loop, REPLICA_MEMORY_HOST, &limits);
    files = charge_of(true);
    small = charge_of(false);
    n_ended = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    quota_charge_end(&files);
    quota_charge_end(&small);
    replica_table_destroy(replicas);
    descriptor_queue_destroy(services.descriptors);
    loop_destroy(services.loop);
    quota_destroy(services.quota);
    return 0;
}

static void take_others(struct quota_charge *charge, uint64_t n)
{
    struct error error;
    assert_int_equal(quota_charge_add(charge, n, &error), 0);
}

/* Returns once it was tried for the first time. */
static void begin(struct work *work, uint64_t wants)
{
    *work = (struct work){.work = {.do_work = take_descriptors, .done = on_tried},
                          .own = charge_of(true),
                          .wants = wants,
                          .waits_for_others = true};
    waiting_init(&work->waiting);
    helper_step_init(&work->step, &services, &work->work, &work->waiting);
    assert_int_equal(helper_step_submit(&work->step, &work->error), 0);
    loop_run(services.loop);
    assert_int_equal(work->n_tried, 1);
}

static void await_end(struct work *work)
{
    while (!work->order)
        loop_run(services.loop);
    assert_int_equal(work->waiting.n_waits, 0);
    waiting_fini(&work->waiting);
}

static void give_back(void *data)
{
    quota_charge_end(data);
}

TEST_IN(steps_that_wait_are_served_in_order_when_others_give_back, set_up, tear_down)
{
    static const uint64_t wants[] = {60, 90, 45, 41};
    struct work works[4];
    take_others(&files, 60);
    for (int i = 0; i < 4; i++)
        begin(&works[i], wants[i]);
    assert_int_equal(n_ended, 0);
    struct loop_timer *timer = loop_timer_create(services.loop, give_back, &files);
    loop_timer_start(timer, 500, 0);
    for (int i = 0; i < 4; i++) {
        await_end(&works[i]);
        assert_int_equal(works[i].order, i + 1);
    }
    loop_timer_destroy(timer);
    assert_true(works[0].n_tried > 1 && works[1].n_tried == 2 && works[3].n_tried == 2);
}

TEST_IN(files_leave_some_for_what_a_load_needs_besides, set_up, tear_down)
{
    struct error error;
    take_others(&files, LIMIT - SPARED);
    assert_int_equal(quota_charge_add(&files, 1, &error), -1);
    take_others(&small, SPARED);
    assert_int_equal(quota_bulk(services.quota, QUOTA_DESCRIPTORS), LIMIT - SPARED);
    assert_int_equal(quota_charge_add(&small, 1, &error), -1);
}

TEST_IN(what_does_not_fit_alone_fails_soon, set_up, tear_down)
{
    struct work work;
    take_others(&small, 20);
    begin(&work, LIMIT);
    await_end(&work);
    assert_true(work.order == -1 && work.n_tried == 4);
}

TEST_IN(a_step_that_must_not_wait_or_has_another_error_fails_at_once, set_up, tear_down)
{
    struct work work;
    take_others(&files, LIMIT - SPARED);
    begin(&work, 1);
    assert_true(helper_step_end(&work.step));
    assert_false(helper_step_again(&work.step, replicas, &work.error));
    (fail)(&work.error, ERROR_INVALID_ARGUMENT, "OTHER", "something else");
    assert_false(helper_step_again_or_wait(&work.step, replicas, &work.error));
    waiting_fini(&work.waiting);
}

TEST_IN(a_step_that_leaves_is_not_tried_again, set_up, tear_down)
{
    struct work leaver, other;
    take_others(&files, LIMIT - SPARED);
    begin(&leaver, 1);
    begin(&other, 2);
    assert_true(helper_step_end(&leaver.step));
    assert_false(helper_step_end(&leaver.step));
    quota_charge_end(&files);
    await_end(&other);
    assert_true(leaver.n_tried == 1 && other.order == 1);
    waiting_fini(&leaver.waiting);
}

TEST_IN(after_half_a_minute_in_vain_it_fails, set_up, tear_down)
{
    struct work work;
    take_others(&files, LIMIT - SPARED);
    begin(&work, 1);
    ahead_s += 31;
    await_end(&work);
    assert_true(work.n_tried == 2 && work.order == -1);
}
