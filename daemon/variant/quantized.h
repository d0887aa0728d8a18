/* Which tensors are quantized weights, and which their scales, by the names that quantizers give them. Pure; any thread. */
#ifndef VARIANT_QUANTIZED_H
#define VARIANT_QUANTIZED_H

#include "resolve/artifact.h"

/* Elements that mean nothing without scales, where there are some. */
bool quantized_type(enum dtype dtype);

/* Calls `take` with each name that the scales of a weight of that name may have, or the weight of scales, until it returns
 * true. Returns whether it did. */
struct quantized_taker {
    bool (*take)(const void *data, const char *name, size_t length);
    const void *data;
};
bool quantized_each_scale(const char *weight, size_t length, const struct quantized_taker *taker);
bool quantized_each_weight(const char *scale, size_t length, const struct quantized_taker *taker);

/* Whether any of its tensors is quantized: floats of 8 bits and less, integers that have scales. */
bool quantized_artifact(const struct artifact *artifact);

#endif
