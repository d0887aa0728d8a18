/* Loads one tensor of a checkpoint through the daemon and prints what it is and its first bytes.
 *
 *     build/examples/load_tensor disk:/models/llama model.norm.weight
 *
 * Compile your own with: cc program.c $(pkg-config --cflags --libs tensorcast) */
#include <stdio.h>

#include "tensorcast.h"

static int complain(const struct tc_error *error)
{
    fprintf(stderr, "load_tensor: %s: %s\n", tc_code_name(error->code), error->message);
    return 1;
}

static void print_tensor(const struct tc_tensor *tensor)
{
    const unsigned char *bytes = tensor->data;

    printf("%s: %s [", tensor->name, tensor->dtype);
    for (size_t i = 0; i < tensor->rank; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)tensor->shape[i]);
    printf("], %llu bytes:", (unsigned long long)tensor->bytes);
    for (size_t i = 0; i < tensor->bytes && i < 16; i++)
        printf(" %02x", bytes[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: load_tensor ARTIFACT TENSOR\n");
        return 2;
    }
    struct tc_error error;
    struct tc_client *client = tc_connect(NULL, &error);
    if (!client)
        return complain(&error);

    const struct tc_view_item item = {.name = argv[2]};
    const struct tc_view view = {.items = &item, .n_items = 1};
    struct tc_load *load = tc_load_view(client, argv[1], &view, NULL, &error);
    tc_disconnect(client); /* a load outlives its client */
    if (!load)
        return complain(&error);

    struct tc_tensor tensor;
    tc_load_tensor(load, 0, &tensor);
    print_tensor(&tensor); /* tensor.data points into memory shared with the daemon: nothing was copied */
    tc_load_release(load);
    return 0;
}
