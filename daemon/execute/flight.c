/* One mark per device that an item's parts live on; with more devices than there is room for, the oldest lands first. */
#include "execute/flight.h"

#include "device/device.h"
#include "execute/item.h"
#include "device/transport.h"

static void add_mark(struct flight *flight, struct device *device)
{
    struct error error;
    uint64_t mark;
    if (flight->n_marks == FLIGHT_MAX_MARKS)
        flight_land(flight);
    if (device_mark(device, &mark, &error) == 0 && mark)
        flight->marks[flight->n_marks++] = (struct flight_mark){device, mark};
}

static struct device *device_of(const struct part *part)
{
    struct device *device = part->run->destination->device;
    return device && device->ops->queue ? device : NULL;
}

static bool has_device(const struct item *item, size_t n_parts, const struct device *device)
{
    for (size_t i = 0; i < n_parts; i++)
        if (device_of(&item->parts[i]) == device)
            return true;
    return false;
}

/* What is on its way to peers of a collective is copied by the device that stages it; an item has one owner. */
static struct device *find_staging_device(const struct item *item)
{
    for (size_t i = 0; i < item->n_parts; i++) {
        const struct part *part = &item->parts[i];
        if (part->transport)
            return transport_staging_device(part->transport, part->owner);
    }
    return NULL;
}

void flight_begin(struct flight *flight, const struct item *item)
{
    struct device *staging = find_staging_device(item);
    if (staging && staging->ops->queue && !has_device(item, item->n_parts, staging))
        add_mark(flight, staging);
    for (size_t i = 0; i < item->n_parts; i++) {
        struct device *device = device_of(&item->parts[i]);
        if (device && !has_device(item, i, device))
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
