/* Keys "sources.hf.*" of the configuration. */
#ifndef SOURCE_HF_SETTINGS_H
#define SOURCE_HF_SETTINGS_H

#include "source/store.h"

struct hf_settings {
    struct store_settings base;
    const char *cache_dir;
    const char *token_file; /* "": HF_TOKEN is used */
    bool is_offline;
};

extern const struct config_section hf_settings_section;
void hf_settings_complete(const void *configured, void *settings, struct arena *arena);

#endif
