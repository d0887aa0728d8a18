/* Loads tensors into one array that this program owns, one below the other, as query, key and value are fused.
 *
 *     build/examples/load_into disk:/models/llama l.q_proj.weight l.k_proj.weight l.v_proj.weight
 *
 * Compile your own with: cc program.c $(pkg-config --cflags --libs tensorcast) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorcast.h"

static int complain(const struct tc_error *error)
{
    fprintf(stderr, "load_into: %s: %s\n", tc_code_name(error->code), error->message);
    return 1;
}

static bool find_tensor(const struct tc_artifact *artifact, const char *name, struct tc_tensor_info *info)
{
    for (size_t i = 0; i < tc_artifact_n_tensors(artifact); i++) {
        tc_artifact_tensor(artifact, i, info);
        if (strcmp(info->name, name) == 0)
            return true;
    }
    fprintf(stderr, "load_into: there is no tensor %s\n", name);
    return false;
}

/* Whole tensors in C order, each behind the one before it. `fused` is the array that they make together. */
static bool place_tensors(const struct tc_artifact *artifact, char **names, size_t n, struct tc_target *targets,
                          struct tc_target *fused, uint64_t shape[TC_MAX_RANK])
{
    uint64_t end = 0, rows = 0;
    for (size_t i = 0; i < n; i++) {
        struct tc_tensor_info info;
        if (!find_tensor(artifact, names[i], &info))
            return false;
        if (i == 0)
            *fused = (struct tc_target){.name = "fused", .dtype = info.dtype, .shape = shape, .rank = info.rank};
        if (i == 0 && info.rank)
            memcpy(shape, info.shape, info.rank * sizeof *shape);
        if (!info.rank || info.rank != fused->rank || strcmp(info.dtype, fused->dtype) != 0 ||
            memcmp(info.shape + 1, shape + 1, (info.rank - 1) * sizeof *shape) != 0) {
            fprintf(stderr, "load_into: %s does not fit below %s\n", names[i], names[0]);
            return false;
        }
        targets[i] =
            (struct tc_target){.name = names[i], .dtype = info.dtype, .shape = info.shape, .rank = info.rank, .offset = end};
        end += info.bytes;
        rows += info.shape[0];
    }
    shape[0] = rows;
    fused->offset = end; /* its size, until it gets its place */
    return true;
}

static int load(struct tc_client *client, const char *reference, const struct tc_artifact *artifact, char **names, size_t n)
{
    struct tc_error error;
    uint64_t shape[TC_MAX_RANK], bytes;
    struct tc_target fused, *targets = calloc(n, sizeof *targets);
    if (!place_tensors(artifact, names, n, targets, &fused, shape)) {
        free(targets);
        return 1;
    }
    struct tc_region *region = tc_region_create(fused.offset, &error);
    for (size_t i = 0; region && i < n; i++)
        targets[i].region = region;
    fused.region = region;
    fused.offset = 0;
    const struct tc_targets all = {targets, n, &fused, 1}; /* nothing of the fused array may be left out */
    int failed = !region || tc_load_targets(client, reference, NULL, &all, NULL, NULL, &error) ? complain(&error) : 0;
    free(targets);
    if (failed) {
        tc_region_destroy(region);
        return failed;
    }
    const unsigned char *memory = tc_region_memory(region, &bytes);
    printf("%zu tensors, %llu rows of %s, %llu bytes:", n, (unsigned long long)shape[0], fused.dtype,
           (unsigned long long)bytes);
    for (size_t i = 0; i < bytes && i < 16; i++)
        printf(" %02x", memory[i]);
    printf("\n");
    tc_region_destroy(region);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: load_into ARTIFACT TENSOR ...\n");
        return 2;
    }
    struct tc_error error;
    struct tc_client *client = tc_connect(NULL, &error);
    if (!client)
        return complain(&error);
    struct tc_artifact *artifact = tc_resolve(client, argv[1], 0, 0, &error);
    int failed = artifact ? load(client, argv[1], artifact, argv + 2, (size_t)argc - 2) : complain(&error);
    tc_artifact_release(artifact);
    tc_disconnect(client);
    return failed;
}
