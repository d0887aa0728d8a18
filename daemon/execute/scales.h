/* The scales of a mapping's quantized tensors: a few bytes here and there of its files, read before the first element is
 * converted. They never pass through the engine, whose blocks would be needed twice. */
#ifndef EXECUTE_SCALES_H
#define EXECUTE_SCALES_H

#include <stdbool.h>

#include "base/cancel.h"
#include "base/error.h"
#include "resolve/mapping.h"

struct scales_options {
    const struct cancel *cancel; /* may be NULL */
    uid_t uid;                   /* who reads */
    bool verifies;               /* holds them against the manifest, as far as it has them */
};

/* Fills in the values of all grids; memory meanwhile is charged to the account of the thread. Does nothing for a mapping
 * without scales, or whose scales were read. Blocks; a helper's. DATA_LOSS for bytes that are wrong twice. */
int scales_read(struct mapping *mapping, const struct scales_options *options, struct error *error);

#endif
