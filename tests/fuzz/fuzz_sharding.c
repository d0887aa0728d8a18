/* Reaches mesh.c, partition_spec.c, placement.c and best_effort.c: "MESH\nRULE\n" and a byte each for the way, the rank and some
 * extents. An accepted rule gives a block inside the tensor or says why not. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/sharding.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sharding *sharding, const uint64_t *shape, size_t rank, struct arena *arena)
{
    const struct tc_slice *slices;
    struct error error = {0};
    if (sharding_apply(sharding, "w", 1, shape, rank, arena, &slices, &error) < 0) {
        if ((error.code != ERROR_INVALID_ARGUMENT && error.code != ERROR_UNIMPLEMENTED) || !strstr(error.message, "'w'"))
            abort();
        return;
    }
    for (size_t d = 0; slices && d < rank; d++)
        if (slices[d].stop != TC_OPEN_END &&
            (slices[d].start < 0 || slices[d].start > slices[d].stop || (uint64_t)slices[d].stop > shape[d]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct sharding sharding;
    struct error error = {0};
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    char *rule = strchr(text, '\n'), *rest = rule ? strchr(rule + 1, '\n') : NULL;
    if (rest && strlen(rest) > 5) {
        *rule++ = *rest++ = '\0';
        const char *const rules[] = {rule};
        const struct tc_sharding_options options = {.mesh = *text ? text : NULL,
                                                    .mesh_rank = (unsigned char)rest[1],
                                                    .specs = rules,
                                                    .placements = rules,
                                                    .n_specs = rest[0] % 3 == 0,
                                                    .n_placements = rest[0] % 3 == 1,
                                                    .best_effort = rest[0] % 3 == 2 ? (unsigned char)rest[2] : 0};
        const uint64_t shape[] = {(unsigned char)rest[2], (unsigned char)rest[3] * 257ULL, rest[4] == 'x' ? UINT64_MAX : 6};
        if (sharding_build(&options, &arena, &sharding, &error) < 0) {
            if (error.code != ERROR_INVALID_ARGUMENT || !error.message[0])
                abort();
        } else {
            for (size_t rank = 0; rank <= 3; rank++)
                check(&sharding, shape, rank, &arena);
        }
    }
    free(text);
    arena_fini(&arena);
    return 0;
}
