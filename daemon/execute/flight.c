/* One mark per device that a worker's parts live on; with more devices than there is room for, the oldest lands first. */
#include "execute/flight.h"

#include "device/device.h"
#include "execute/engine_private.h"

static void add_mark(struct flight *flight, struct device *device)
{
    struct error error;
    uint64_t mark;
    if (flight->n_marks == FLIGHT_MAX_MARKS)
        flight_land(flight);
    if (device_mark(device, &mark, &error) == 0 && mark)
        flight->marks[flight->n_marks++] = (struct flight_mark){device, mark};
}

static bool has_device(const struct worker *worker, size_t n_parts, const struct device *device)
{
    for (size_t i = 0; i < n_parts; i++)
        if (worker->parts[i].run->options.segment->device == device)
            return true;
    return false;
}

void flight_begin(struct flight *flight, const struct worker *worker)
{
    for (size_t i = 0; i < worker->n_parts; i++) {
        struct device *device = worker->parts[i].run->options.segment->device;
        if (device->ops->queue && !has_device(worker, i, device))
            add_mark(flight, device);
    }
}

void flight_land(struct flight *flight)
{
    struct error error;
    for (size_t i = 0; i < flight->n_marks; i++)
        device_wait(flight->marks[i].device, flight->marks[i].mark, &error);
    flight->n_marks = 0;
}
