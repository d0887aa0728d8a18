/* model.manifest.json and the manifests of activation stores as input. What is accepted names plain files, or segments, and tensors
 * once each, and has as many blocks as the sizes say. Reaches manifest.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/activation_name.h"
#include "resolve/activation_manifest.h"

static void check(int truth)
{
    if (!truth)
        abort();
}

static void check_manifest(const struct manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_files; i++) {
        const struct manifest_file *file = &manifest->files[i];
        check(file->name[0] && file->name[0] != '.' && file->name[0] != '/' && !strstr(file->name, "/.") && file->version);
        check(manifest_find_file(manifest, file->name) == file);
        check(!file->blocks || (file->n_blocks >= file->bytes / MANIFEST_MAX_BLOCK_BYTES &&
                                file->n_blocks <= file->bytes / MANIFEST_MIN_BLOCK_BYTES + 1));
        for (uint64_t b = 0; file->blocks && b < file->n_blocks; b++)
            check(file->blocks[b] <= UINT32_MAX);
    }
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const struct manifest_tensor *tensor = &manifest->tensors[i];
        check(tensor->file < manifest->n_files);
        check(manifest_find_tensor(manifest, tensor->name, tensor->name_length) == tensor);
    }
}

static void try_as_activations(const char *text, size_t size)
{
    struct error error;
    struct manifest *manifest = manifest_create();
    size_t room = 0;
    if (manifest_add_segments(manifest, &room, "host_003", text, size, &error) < 0) {
        check(error.code == ERROR_DATA_LOSS && error.message[0]);
    } else if (manifest_index(manifest, &error) == 0) {
        for (size_t i = 0; i < manifest->n_files; i++) {
            const struct manifest_file *file = &manifest->files[i];
            check(activation_is_segment(file->name) && manifest_find_file(manifest, file->name) == file);
            check(!file->arrays || strlen(file->arrays) == 8 * file->n_arrays);
        }
    }
    manifest_unref(manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    try_as_activations((const char *)data, size);
    struct manifest *manifest = manifest_parse((const char *)data, size, &error);
    if (manifest)
        check_manifest(manifest);
    else
        check((error.code == ERROR_DATA_LOSS || error.code == ERROR_UNIMPLEMENTED) && error.message[0]);
    manifest_unref(manifest);
    return 0;
}
