/* A question that long waits ask now and then: may they stop? Plain values; is_set runs on any thread and never blocks. */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <stdbool.h>
#include <stddef.h>

struct cancel {
    bool (*is_set)(void *data);
    void *data;
};

static inline bool cancel_is_set(const struct cancel *cancel) /* NULL = never */
{
    return cancel && cancel->is_set(cancel->data);
}

#endif
