/* Endings are a list of what is taken, not of what is left out: a new kind of weight file is then no sidecar. */
#include "base/sidecar_name.h"

#include <string.h>

#include "base/activation_name.h"
#include "base/text.h"

static const char *const endings[] = {".json",  ".jsonl", ".txt", ".model", ".tiktoken",
                                      ".jinja", ".yaml",  ".yml", ".py",    ".md"};

/* What has to go wherever the model goes, and has no ending. */
static const char *const whole_names[] = {"LICENSE", "NOTICE"};

/* Says where tensors are; `inspect` tells the same of what was checked. */
#define INDEX_ENDING ".index.json"
#define TOPOLOGY_NAME "topology.json"
#define TENSORS_ENDING ".safetensors"
#define PICKLED_TENSORS "pytorch_model.bin"

const char *const sidecar_well_known_names[] = {"config.json",
                                                "generation_config.json",
                                                "tokenizer.json",
                                                "tokenizer_config.json",
                                                "tokenizer.model",
                                                "special_tokens_map.json",
                                                "added_tokens.json",
                                                "vocab.json",
                                                "vocab.txt",
                                                "merges.txt",
                                                "chat_template.jinja",
                                                "preprocessor_config.json",
                                                "processor_config.json",
                                                "quantize_config.json",
                                                NULL};

bool sidecar_name_is_valid(const char *name)
{
    size_t length = strlen(name);
    if (length > SIDECAR_MAX_NAME_BYTES || !text_is_plain_name(name, length) || text_ends_with(name, length, INDEX_ENDING) ||
        strcmp(name, TOPOLOGY_NAME) == 0)
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (text_ends_with(name, length, endings[i]))
            return true;
    for (size_t i = 0; i < sizeof whole_names / sizeof whole_names[0]; i++)
        if (strcmp(name, whole_names[i]) == 0)
            return true;
    return false;
}

bool sidecar_name_is_index(const char *name)
{
    size_t length = strlen(name);
    return length <= SIDECAR_MAX_NAME_BYTES && text_is_plain_name(name, length) &&
           text_ends_with(name, length, INDEX_ENDING);
}

bool sidecar_name_is_tensors(const char *name)
{
    size_t length = strlen(name);
    return length <= SIDECAR_MAX_NAME_BYTES && text_is_plain_name(name, length) &&
           (text_ends_with(name, length, TENSORS_ENDING) || strcmp(name, PICKLED_TENSORS) == 0);
}

uint64_t sidecar_max_bytes(const char *name)
{
    return strcmp(name, ACTIVATION_MANIFEST) == 0 ? SIDECAR_MAX_MANIFEST_BYTES : SIDECAR_MAX_BYTES;
}
