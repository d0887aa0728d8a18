#include "api/codec_activations.h"

#include <string.h>

static int fail_columns(struct error *error)
{
    return fail(
        error, ERROR_INVALID_ARGUMENT, "BAD_COLUMNS",
        "the columns of a sample do not fit together: layers, dtypes and ranks have an entry for each array, dims as many "
        "as the ranks say, narrowed positions in layers");
}

/* Of all arrays, one behind the other. */
static int copy_shapes(const Tensorcast__Daemon__V1__AppendActivationsRequest *wire, struct sample_tensor *tensors,
                       struct append_part *part, struct error *error)
{
    uint64_t *dims = arena_try_array(&part->arena, wire->n_dims + 1, sizeof *dims, error);
    size_t at = 0;
    if (!dims)
        return -1;
    for (size_t i = 0; i < wire->n_dims; i++)
        dims[i] = wire->dims[i];
    for (size_t i = 0; i < wire->n_layers; i++) {
        tensors[i] = (struct sample_tensor){.layer = wire->layers[i], .rank = wire->ranks[i], .shape = dims + at};
        if (wire->ranks[i] > wire->n_dims - at || !wire->dtypes[i] || wire->dtypes[i] > DTYPE_COUNT)
            return fail_columns(error);
        tensors[i].dtype = (enum dtype)(wire->dtypes[i] - 1);
        at += wire->ranks[i];
    }
    return at == wire->n_dims ? 0 : fail_columns(error);
}

int codec_append_part(const Tensorcast__Daemon__V1__AppendActivationsRequest *wire, struct append_part *part,
                      struct error *error)
{
    *part = (struct append_part){.has_sample = wire->offset == 0,
                                 .sample = {.id = wire->sample, .n_tensors = wire->n_layers},
                                 .offset = wire->offset,
                                 .memory_offset = wire->memory_offset,
                                 .bytes = wire->bytes};
    if (!part->has_sample)
        return 0;
    if (wire->n_dtypes != wire->n_layers || wire->n_ranks != wire->n_layers)
        return fail_columns(error);
    struct sample_tensor *tensors = arena_try_array(&part->arena, wire->n_layers + 1, sizeof *tensors, error);
    if (!tensors || copy_shapes(wire, tensors, part, error) < 0)
        return -1;
    for (size_t i = 0; i < wire->n_narrowed; i++) {
        if (wire->narrowed[i] >= wire->n_layers)
            return fail_columns(error);
        tensors[wire->narrowed[i]].is_narrowed = true;
    }
    part->sample.info_bytes = strlen(wire->info);
    char *info = arena_try_bytes(&part->arena, part->sample.info_bytes + 1, error);
    if (!info)
        return -1;
    memcpy(info, wire->info, part->sample.info_bytes + 1);
    part->sample.info = info;
    return sample_check(&part->sample, tensors, error);
}

void codec_resume(const struct host_resume *resume, Tensorcast__Daemon__V1__ActivationsResume *wire)
{
    tensorcast__daemon__v1__activations_resume__init(wire);
    wire->has_samples = resume->has_samples;
    wire->last_sample = resume->has_samples ? resume->last_sample : 0;
    wire->next_segment = resume->next_segment;
    wire->samples = resume->n_samples;
    wire->segments = resume->n_segments;
    wire->bytes = resume->bytes;
}
