/* Corrections of a config.json, which leave every other byte of it alone. Pure; any thread. */
#ifndef VARIANT_CONFIG_DOCUMENT_H
#define VARIANT_CONFIG_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"

struct config_correction {
    bool drop_quantization; /* quantization_config and its like */
    bool set_dtype;         /* dtype and torch_dtype, also of text_config and its like: what is a type becomes `dtype` */
    enum dtype dtype;
};

struct config_corrected {
    char *text; /* the caller frees; NULL = nothing was to be corrected, or it is no JSON */
    size_t length;
    bool has_dropped;
    bool has_other_dtype; /* other_dtype is what the first one of them said, that is or was not `dtype` */
    enum dtype other_dtype;
};

void config_correct(const char *json, size_t length, const struct config_correction *correction,
                    struct config_corrected *corrected);

#endif
