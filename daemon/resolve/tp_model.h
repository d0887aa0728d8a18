/* What a model's config.json says about cutting its tensors for tensor-parallel ranks. Pure; any thread. */
#ifndef RESOLVE_TP_MODEL_H
#define RESOLVE_TP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct tp_heads { /* 0 = it does not say */
    uint64_t query, kv;
    bool is_list; /* another number for each layer */
};

enum tp_tower { TP_TEXT, TP_VISION, TP_AUDIO, TP_TOWERS };

struct tp_model { /* zeroed: nothing is known */
    struct tp_heads heads[TP_TOWERS];
    uint64_t block[2]; /* rows and columns that share a scale */
};

/* Knows the names that vLLM knows, at the top, in text_config and its like, in vision_config and audio_config. json NULL: there
 * is no config.json. INVALID_ARGUMENT where it is no JSON. */
int tp_model_read(const char *json, size_t length, struct tp_model *model, struct error *error);

/* Of the tower that the tensor belongs to. */
const struct tp_heads *tp_model_heads(const struct tp_model *model, const char *name, size_t name_length);

#endif
