/* One mark per device that a worker's parts live on; with more devices than there is room for, the oldest lands first. */
#include "execute/flight.h"

#include "device/device.h"
#include "execute/engine_private.h"
#include "transport/transport.h"

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

/* What is on its way to peers of a collective is copied by the device that stages it; an item has one owner. */
static struct device *find_staging_device(const struct worker *worker)
{
    for (size_t i = 0; i < worker->n_parts; i++) {
        const struct part *part = &worker->parts[i];
        if (part->transport)
            return transport_staging_device(part->transport, part->owner);
    }
    return NULL;
}

void flight_begin(struct flight *flight, const struct worker *worker)
{
    struct device *staging = find_staging_device(worker);
    if (staging && staging->ops->queue && !has_device(worker, worker->n_parts, staging))
        add_mark(flight, staging);
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
