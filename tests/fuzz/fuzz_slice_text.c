/* Reaches slice_text.c. An accepted slice has a name and one part per comma, each in memory of its own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/view_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct slice_text slice;
    struct error error = {0};
    char *text = malloc(size + 1); /* exactly as long as the text, so that a sanitizer sees the byte behind it */
    memcpy(text, data, size);
    text[size] = '\0';
    if (slice_text_parse(text, &arena, &slice, &error) < 0) {
        if (error.code != ERROR_INVALID_ARGUMENT || !error.message[0])
            abort();
    } else {
        if (!slice.name[0] || !slice.n_slices || slice.n_slices > TC_MAX_RANK)
            abort();
        for (size_t i = 0; i < slice.n_slices; i++) {
            if (slice.slices[i].start == INT64_MIN ||
                slice.slices[i].stop == INT64_MIN) /* bounds saturate one short of it */
                abort();
        }
    }
    free(text);
    arena_fini(&arena);
    return 0;
}
