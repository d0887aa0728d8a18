#include "variant/quantized.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "convert/cast.h"

static const struct {
    const char *weight, *scale;
} endings[] = {
    {"", "_scale_inv"}, /* DeepSeek, transformers */
    {"", "_scale"},     /* compressed-tensors, ModelOpt */
    {"", "_scales"},        {"", "_scale_2"},          {"_packed", "_scale"},  {"_packed", "_global_scale"},
    {"_blocks", "_scales"},                                                    /* gpt-oss */
    {".weight", ".scale"},  {".weight", ".scale_inv"}, {".weight", ".scales"}, /* MLX, which has biases beside them */
    {".weight", ".biases"}, {".qweight", ".scales"},                           /* GPTQ, AWQ */
    {".weight", ".SCB"},                                                       /* bitsandbytes */
    {"", ".absmax"},
};

bool quantized_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F4:
    case DTYPE_F6_E2M3:
    case DTYPE_F6_E3M2:
    case DTYPE_F8_E4M3:
    case DTYPE_F8_E5M2:
    case DTYPE_F8_E4M3FNUZ:
    case DTYPE_F8_E5M2FNUZ:
    case DTYPE_I8:
    case DTYPE_U8:
    case DTYPE_I32:
    case DTYPE_U32:
        return true;
    default:
        return false;
    }
}

static bool each_partner(const char *name, size_t length, bool is_weight, const struct quantized_taker *taker)
{
    bool is_taken = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings && !is_taken; i++) {
        const char *own = is_weight ? endings[i].weight : endings[i].scale;
        if (!text_ends_with(name, length, own))
            continue;
        size_t stem = length - strlen(own);
        char *partner = memory_print("%.*s%s", (int)stem, name, is_weight ? endings[i].scale : endings[i].weight);
        is_taken = taker->take(taker->data, partner, strlen(partner));
        free(partner);
    }
    return is_taken;
}

bool quantized_each_scale(const char *weight, size_t length, const struct quantized_taker *taker)
{
    return each_partner(weight, length, true, taker);
}

bool quantized_each_weight(const char *scale, size_t length, const struct quantized_taker *taker)
{
    return each_partner(scale, length, false, taker);
}

static bool is_there(const void *data, const char *name, size_t length)
{
    const struct artifact *artifact = data;
    return map_find(&artifact->by_name, name, length) != MAP_NONE;
}

bool quantized_artifact(const struct artifact *artifact)
{
    const struct quantized_taker taker = {is_there, artifact};
    for (size_t i = 0; i < artifact->n_tensors; i++) {
        const struct tensor_record *tensor = &artifact->tensors[i];
        bool is_float = dtype_is_float(tensor->dtype) || tensor->dtype == DTYPE_F4 || tensor->dtype == DTYPE_F6_E2M3 ||
                        tensor->dtype == DTYPE_F6_E3M2;
        if (quantized_type(tensor->dtype) && (is_float || quantized_each_scale(tensor->name, tensor->name_length, &taker)))
            return true;
    }
    return false;
}
