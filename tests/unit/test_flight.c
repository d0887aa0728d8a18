/* A buffer that devices still copy from: however many devices there are, all of them are waited for. */
#include "tests/support/unit.h"

#include "execute/item.h"
#include "execute/flight.h"

#undef fail /* ours is in base/error.h */

enum { DEVICES = FLIGHT_MAX_MARKS + 1 };

struct fake { /* a device with a queue */
    struct device base;
    uint64_t n_marked, waited_for;
};

static int mark(struct device *device, uint64_t *mark, struct error *error)
{
    (void)error;
    *mark = ++((struct fake *)device)->n_marked;
    return 0;
}

static int wait_for(struct device *device, uint64_t mark, struct error *error)
{
    (void)error;
    ((struct fake *)device)->waited_for = mark;
    return 0;
}

static const struct device_queue_ops queue = {.mark = mark, .wait = wait_for};
static const struct device_ops ops = {.name = "fake", .queue = &queue};

static struct fake devices[DEVICES];
static struct segment segments[DEVICES];
static struct run runs[DEVICES];
static struct part parts[DEVICES];

static struct item item_of(size_t n_devices)
{
    memset(devices, 0, sizeof devices);
    for (size_t i = 0; i < n_devices; i++) {
        devices[i].base.ops = &ops;
        segments[i].device = &devices[i].base;
        runs[i].memory = destination_of_segment(&segments[i]);
        runs[i].destination = &runs[i].memory;
        parts[i].run = &runs[i];
    }
    return (struct item){.parts = parts, .n_parts = n_devices};
}

static void assert_all_are_waited_for(size_t n_devices)
{
    struct item item = item_of(n_devices);
    struct flight flight = {0};
    flight_begin(&flight, &item);
    for (size_t i = 0; i < n_devices; i++)
        assert_int_equal(devices[i].n_marked, 1);
    flight_land(&flight);
    for (size_t i = 0; i < n_devices; i++)
        assert_int_equal(devices[i].waited_for, 1);
    assert_int_equal(flight.n_marks, 0);
}

TEST(every_device_that_copies_is_waited_for)
{
    assert_all_are_waited_for(FLIGHT_MAX_MARKS);
    assert_all_are_waited_for(FLIGHT_MAX_MARKS + 1);
}

TEST(a_device_with_several_parts_is_marked_once)
{
    struct item item = item_of(2);
    struct flight flight = {0};
    runs[1].memory.device = &devices[0].base;
    flight_begin(&flight, &item);
    assert_int_equal(devices[0].n_marked, 1);
    assert_int_equal(flight.n_marks, 1);
}
