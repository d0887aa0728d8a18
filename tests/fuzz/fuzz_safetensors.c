/* A whole safetensors file as input. What is accepted keeps every promise of the table: tensors lie one behind the other
 * from the header to the end of the file, sizes follow from shapes, names occur once. Reaches safetensors.c, dtype.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "resolve/safetensors.h"

static void check(bool truth)
{
    if (!truth)
        abort();
}

static void check_tensor(const struct stored_tensor *tensor)
{
    unsigned __int128 bits = dtype_bits(tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank; i++)
        bits *= tensor->shape[i]; /* each product was checked to fit into 64 bits */
    check(bits == (unsigned __int128)tensor->bytes * 8);
    check(strlen(tensor->name) == tensor->name_length);
}

static void check_header(struct part_header *header)
{
    uint64_t end = header->data_offset;
    for (size_t i = 0; i < header->n_tensors; i++) {
        const struct stored_tensor *tensor = &header->tensors[i];
        check_tensor(tensor);
        check(tensor->offset == end);
        end += tensor->bytes;
        for (size_t other = 0; other < i && i < 100; other++)
            check(header->tensors[other].name_length != tensor->name_length ||
                  memcmp(header->tensors[other].name, tensor->name, tensor->name_length) != 0);
    }
    check(end == header->file_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t json_bytes;
    struct error error;
    if (size < 8)
        return 0;
    struct part_header *header = NULL;
    if (safetensors_header_length(data, size, &json_bytes, &error) == 0)
        header = safetensors_parse((const char *)data + 8, json_bytes, size, &error);
    if (header)
        check_header(header);
    else
        check((error.code == ERROR_DATA_LOSS || error.code == ERROR_UNIMPLEMENTED) && error.reason[0] && error.message[0]);
    part_header_unref(header);
    return 0;
}
