/* A page that is gone: in a guarded range an access finds another one and the range is broken, anywhere else it is fatal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bus_guard.h"
#include "base/huge_pages.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { RANGE_BYTES = 3 * HUGE_PAGE_BYTES };

/* A mapping of a memfd at a multiple of HUGE_PAGE_BYTES, without a byte left in the memfd. */
static unsigned char *map_nothing(void)
{
    unsigned char *range =
        mmap(NULL, RANGE_BYTES + HUGE_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = memfd_create("shrinks", MFD_CLOEXEC);
    assert_ptr_not_equal(range, MAP_FAILED);
    range += -(uintptr_t)range & (HUGE_PAGE_BYTES - 1);
    assert_int_equal(ftruncate(fd, RANGE_BYTES), 0);
    assert_ptr_equal(mmap(range, RANGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), range);
    memset(range, 1, RANGE_BYTES);
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    return range;
}

static void a_page_that_is_gone_breaks_its_range_and_no_other(void **state)
{
    unsigned char *ranges[] = {map_nothing(), map_nothing()};
    struct bus_guard *guards[2];
    struct error error;
    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(bus_guard_begin(ranges[i], RANGE_BYTES, &guards[i], &error), 0);
    assert_false(bus_guard_is_broken(guards[0]));
    memset(ranges[0] + HUGE_PAGE_BYTES - 100, 7, 200); /* two pages */
    assert_true(bus_guard_is_broken(guards[0]));
    assert_false(bus_guard_is_broken(guards[1]));
    assert_int_equal(ranges[0][HUGE_PAGE_BYTES], 7);
    for (size_t i = 0; i < 2; i++) {
        bus_guard_end(guards[i]);
        munmap(ranges[i], RANGE_BYTES);
    }
    bus_guard_end(NULL);
}

enum death { INSIDE, OUTSIDE, SENT };

static int how_it_dies(enum death death)
{
    unsigned char *range = map_nothing();
    pid_t child = fork();
    if (child == 0) {
        struct bus_guard *guard;
        struct error error;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGBUS, SIG_DFL); /* what a sanitizer has installed */
        if (bus_guard_begin(range, RANGE_BYTES, &guard, &error))
            _exit(2);
        if (death == OUTSIDE)
            bus_guard_end(guard);
        if (death == SENT)
            raise(SIGBUS);
        else
            ((volatile unsigned char *)range)[5] = 1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    munmap(range, RANGE_BYTES);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void outside_of_every_guard_it_is_as_fatal_as_ever(void **state)
{
    (void)state;
    assert_int_equal(how_it_dies(INSIDE), 0);
    assert_int_equal(how_it_dies(OUTSIDE), SIGBUS);
}

static void one_that_a_process_sends_is_fatal_too(void **state)
{
    (void)state;
    assert_int_equal(how_it_dies(SENT), SIGBUS);
}

static void so_many_ranges_are_guarded_and_one_more_is_refused(void **state)
{
    static struct bus_guard *guards[BUS_GUARD_MAX];
    struct bus_guard *more;
    struct error error;
    (void)state;
    for (size_t i = 0; i < BUS_GUARD_MAX; i++)
        assert_int_equal(bus_guard_begin((void *)(uintptr_t)HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, &guards[i], &error), 0);
    assert_int_equal(bus_guard_begin((void *)(uintptr_t)HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, &more, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    bus_guard_end(guards[7]);
    assert_int_equal(bus_guard_begin((void *)(uintptr_t)HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, &guards[7], &error), 0);
    for (size_t i = 0; i < BUS_GUARD_MAX; i++)
        bus_guard_end(guards[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outside_of_every_guard_it_is_as_fatal_as_ever), /* first: nothing is installed before */
        cmocka_unit_test(one_that_a_process_sends_is_fatal_too),
        cmocka_unit_test(a_page_that_is_gone_breaks_its_range_and_no_other),
        cmocka_unit_test(so_many_ranges_are_guarded_and_one_more_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
