#include "source/hf/hf_settings.h"

#include <stdlib.h>

#include "source/stores.h"

/* clang-format off */
static const struct config_key keys[] = {
    {"sources.hf.enabled", CONFIG_BOOL, CONFIG_FIELD(hf_settings, base.is_enabled), .fallback = "true",
     .help = "Lets artifacts be loaded from hf:// references."},
    {"sources.hf.endpoint", CONFIG_TEXT, CONFIG_FIELD(hf_settings, base.endpoint), .fallback = "", .may_be_empty = true,
     .environment = "HF_ENDPOINT", .otherwise = "https://huggingface.co",
     .help = "Server of hf:// references. Empty: HF_ENDPOINT, else https://huggingface.co."},
    {"sources.hf.token_file", CONFIG_PATH, CONFIG_FIELD(hf_settings, token_file), .fallback = "", .may_be_empty = true,
     .environment = "HF_TOKEN_PATH HF_HOME/token XDG_CACHE_HOME/huggingface/token HOME/.cache/huggingface/token",
     .help = "File with the token. Empty: HF_TOKEN itself, HF_TOKEN_PATH, then token in HF_HOME."},
    {"sources.hf.cache_dir", CONFIG_PATH, CONFIG_FIELD(hf_settings, cache_dir), .fallback = "", .may_be_empty = true,
     .environment = "HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME/hub XDG_CACHE_HOME/huggingface/hub HOME/.cache/huggingface/hub",
     .help = "The hub's cache on this host, which is read where it holds the whole checkpoint and never written. Empty: "
             "HF_HUB_CACHE, then hub in HF_HOME."},
    {"sources.hf.offline", CONFIG_BOOL, CONFIG_FIELD(hf_settings, is_offline), .fallback = "false",
     .environment = "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE",
     .help = "Asks nothing of the hub and uses the cache alone, as HF_HUB_OFFLINE=1 does."},
};
/* clang-format on */

const struct config_section hf_settings_section = {keys, sizeof keys / sizeof keys[0], sizeof(struct hf_settings)};

void hf_settings_complete(const void *configured, void *settings, struct arena *arena)
{
    const struct hf_settings *was = configured;
    struct hf_settings *hf = settings;
    const char *token = getenv("HF_TOKEN");
    hf->base.endpoint = stores_endpoint_url(hf->base.endpoint, arena);
    if (token && *token && !*was->token_file)
        hf->token_file = ""; /* it is used instead of any file but the configuration's */
}
