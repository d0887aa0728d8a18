/* Zeroes what no tensor covers in memory that was used before. */
#ifndef EXECUTE_PADDING_H
#define EXECUTE_PADDING_H

#include "device/device.h"
#include "resolve/mapping.h"

/* Nothing of the replica before may be left where the tensors of this one are not: between them and behind the last. */
int padding_zero(const struct mapping *mapping, struct segment *segment, struct error *error);

#endif
