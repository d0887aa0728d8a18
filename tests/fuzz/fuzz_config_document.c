/* A config.json: what is corrected is JSON again, and nothing is left to be corrected; and what is read of it for ranks. Reaches
 * documents.c and tp_model.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "resolve/tp_model.h"
#include "variant/documents.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_json(const char *text, size_t length)
{
    struct json json;
    struct arena arena;
    arena_init(&arena, 0);
    json_init(&json, text, length, &arena);
    bool is_sound = json_skip(&json) && json_end(&json);
    arena_fini(&arena);
    return is_sound;
}

static void correct_twice(const char *text, size_t length, const struct config_correction *correction)
{
    struct config_corrected once, twice;
    config_correct(text, length, correction, &once);
    if (!once.text)
        return;
    config_correct(once.text, once.length, correction, &twice);
    if (!is_json(once.text, once.length) || twice.text)
        abort();
    free(once.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_model model;
    struct error error;
    const char *text = (const char *)data;
    for (int i = 0; i < 4; i++) {
        const struct config_correction correction = {.drop_quantization = i & 1, .set_dtype = i & 2, .dtype = DTYPE_BF16};
        correct_twice(text, size, &correction);
    }
    if (tp_model_read(text, size, &model, &error) == 0 && !is_json(text, size))
        abort();
    return 0;
}
