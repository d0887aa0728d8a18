#include "resolve/usual_split.h"

#include <string.h>

/* Module name (the component before "weight" or "bias") -> where vLLM's linear and embedding layers split it. Layers that
 * split their output split their bias with it; layers that split their input add their bias once, after the sum. */
static const struct usual_split {
    const char *module;
    int weight_dimension, bias_dimension;
} usual_splits[] = {
    {"q_proj", 0, 0},
    {"k_proj", 0, 0},
    {"v_proj", 0, 0},
    {"o_proj", 1, USUAL_SPLIT_NONE},
    {"gate_proj", 0, 0},
    {"up_proj", 0, 0},
    {"w1", 0, 0},
    {"down_proj", 1, USUAL_SPLIT_NONE},
    {"w3", 0, 0},
    {"w2", 1, USUAL_SPLIT_NONE},
    {"fc1", 0, 0},
    {"fc2", 1, USUAL_SPLIT_NONE},
    {"q_b_proj", 0, 0},
    {"kv_b_proj", 0, 0},
    {"lm_head", 0, 0},
    {"out_proj", 1, USUAL_SPLIT_NONE},
    {"embed_tokens", 0, USUAL_SPLIT_NONE},
};

static int64_t find_dimension(const char *name, size_t name_length)
{
    const char *dot = memrchr(name, '.', name_length); /* "a.b.q_proj.weight" */
    if (!dot)
        return USUAL_SPLIT_NONE;
    const char *before = memrchr(name, '.', (size_t)(dot - name)), *parameter = dot + 1;
    const char *module = before ? before + 1 : name;
    size_t length = (size_t)(dot - module);
    for (size_t i = 0; i < sizeof usual_splits / sizeof usual_splits[0]; i++) {
        const struct usual_split *usual = &usual_splits[i];
        if (strlen(usual->module) != length || memcmp(usual->module, module, length) != 0)
            continue;
        /* weight_scale_inv holds one factor per 128 x 128 block of its weight, in the same order */
        if (strcmp(parameter, "weight") == 0 || strcmp(parameter, "weight_scale_inv") == 0)
            return usual->weight_dimension;
        return strcmp(parameter, "bias") == 0 ? usual->bias_dimension : USUAL_SPLIT_NONE;
    }
    return USUAL_SPLIT_NONE;
}

int64_t usual_split_dimension(const char *name, size_t name_length, size_t n_dimensions)
{
    int64_t dimension = find_dimension(name, name_length);
    return dimension < (int64_t)n_dimensions ? dimension : USUAL_SPLIT_NONE; /* one that only shares the name */
}
