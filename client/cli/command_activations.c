/* `tensorcast activations`: opens what its commands need, and the two of them that need nothing but arithmetic. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations_commands.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/operand.h"
#include "base/text.h"
#include "bucket_store.h"
#include "command.h"

static int (*const commands[COMMAND_COUNT])(struct activations_run *run, struct error *error) = {
    [ACTIVATIONS_STATUS] = activations_status,
    [ACTIVATIONS_VERIFY] = activations_verify,
    [ACTIVATIONS_MERGE] = activations_merge,
    [ACTIVATIONS_ESTIMATE] = activations_estimate,
    [ACTIVATIONS_PARTITION] = activations_partition,
    [ACTIVATIONS_CLAIM] = activations_claim,
    [ACTIVATIONS_IMPORT] = activations_import,
    [ACTIVATIONS_EXPORT] = activations_export,
    [ACTIVATIONS_CAT] = activations_cat,
};

void activations_print(struct json_writer *json)
{
    puts(json->text);
    free(json->text);
}

static bool works_in_buckets(int command)
{
    return command == ACTIVATIONS_STATUS || command == ACTIVATIONS_VERIFY || command == ACTIVATIONS_MERGE ||
           command == ACTIVATIONS_CLAIM || command == ACTIVATIONS_EXPORT;
}

static int find_store(struct activations_run *run, struct error *error)
{
    const char *reference = client_reference(run->args->artifact, &run->arena, error);
    if (!reference)
        return -1;
    bool is_on_disk = strncmp(reference, "disk:/", 6) == 0;
    bool is_in_bucket = strncmp(reference, "gs://", 5) == 0 || strncmp(reference, "s3://", 5) == 0;
    if (!is_on_disk && !(is_in_bucket && works_in_buckets(run->args->command)))
        return fail(error, ERROR_UNIMPLEMENTED, "STORE_NOT_ON_DISK", "'activations %s' works on %s, which %s is not",
                    command_table[run->args->command].name,
                    works_in_buckets(run->args->command) ? "folders of this host and on gs:// and s3://"
                                                         : "folders of this host",
                    text_show(reference));
    run->path = memory_copy_text(reference + (is_on_disk ? strlen("disk:") : 0));
    for (size_t length = strlen(run->path); length > 1 && run->path[length - 1] == '/';)
        run->path[--length] = '\0';
    return is_on_disk ? operand_check(run->path, error) : 0;
}

static int run_in_bucket(struct activations_run *run, struct backend *backend, struct error *error)
{
    struct bucket_store store;
    int command = run->args->command;
    bool may_write = command == ACTIVATIONS_MERGE || command == ACTIVATIONS_CLAIM;
    int failed = bucket_store_open(&store, backend, run->path, may_write, error);
    run->bucket = &store;
    if (!failed)
        failed = commands[command](run, error);
    bucket_store_close(&store);
    return failed;
}

int command_activations(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct activations_run run = {.args = args, .objects.backend = backend};
    bool has_store =
        args->command != ACTIVATIONS_PARTITION && args->command != ACTIVATIONS_ESTIMATE && args->command != ACTIVATIONS_CAT;
    int failed = has_store ? find_store(&run, error) : 0;
    if (!failed && run.path && run.path[0] != '/') {
        failed = run_in_bucket(&run, backend, error);
    } else if (!failed) {
        struct tc_error problem = {0};
        run.client = tc_connect(args->socket, &problem);
        failed = run.client ? commands[args->command](&run, error)
                            : fail(error, ERROR_INVALID_ARGUMENT, "BAD_SOCKET", "%s", problem.message);
    }
    bucket_objects_close(&run.objects);
    tc_disconnect(run.client);
    free(run.path);
    arena_fini(&run.arena);
    return failed ? backend_fail(backend, error) : 0;
}

/* --- estimate --- */

int activations_estimate(struct activations_run *run, struct error *error)
{
    const struct args *args = run->args;
    enum dtype dtype = DTYPE_F32;
    uint64_t bits, each, bytes;
    if (args->variant.dtype)
        dtype_read(args->variant.dtype, strlen(args->variant.dtype), &dtype);
    if (!checked_mul(args->estimate.layers, args->estimate.seq, &bits) || !checked_mul(bits, args->estimate.hidden, &bits) ||
        !checked_mul(bits, dtype_bits(dtype), &bits) ||
        !checked_mul(each = bits / 8 + (bits % 8 > 0), args->estimate.samples, &bytes))
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_LARGE", "that is more than 2^64 bytes");
    double ratio = args->estimate.ratio > 0 ? args->estimate.ratio : 1, stored = (double)bytes / ratio;
    if (stored >= 0x1p64)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_LARGE", "that is more than 2^64 bytes");
    bool is_whole = ratio < 0x1p64 && ratio == (double)(uint64_t)ratio;
    uint64_t stored_bytes = is_whole ? bytes / (uint64_t)ratio : (uint64_t)stored;
    if (!args->json) {
        printf("%s a sample, %s in all, %s stored", text_show_amount(each), text_show_amount(bytes),
               text_show_amount(stored_bytes));
        if (args->estimate.price >= 0)
            printf(", %.2f a month", stored / 1e9 * args->estimate.price);
        printf("\n");
        return 0;
    }
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_u64(&json, "bytes_per_sample", each);
    json_put_u64(&json, "bytes", bytes);
    json_put_u64(&json, "stored_bytes", stored_bytes);
    if (args->estimate.price >= 0) {
        char price[64];
        int length = snprintf(price, sizeof price, "%.10g", stored / 1e9 * args->estimate.price);
        json_write_key(&json, "price_per_month");
        json_write_json(&json, price, (size_t)length);
    } else {
        json_put_text_or_null(&json, "price_per_month", "");
    }
    json_write_close(&json, '}');
    activations_print(&json);
    return 0;
}

/* --- partition --- */

/* Of line n, from 0. */
static bool is_mine(const struct args *args, uint64_t n)
{
    if (args->partition.is_flat)
        return n % (args->partition.machines * args->partition.hosts) ==
               args->partition.machine * args->partition.hosts + args->partition.host;
    return n % args->partition.machines == args->partition.machine &&
           n / args->partition.machines % args->partition.hosts == args->partition.host;
}

int activations_partition(struct activations_run *run, struct error *error)
{
    const struct args *args = run->args;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    uint64_t n = 0, left_ms;
    FILE *file = strcmp(args->artifact, "-") == 0 ? stdin : fopen(args->artifact, "r");
    if (!file)
        return fail_errno(error, errno, "cannot open %s", text_show(args->artifact));
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_open(&json, "lines", '[');
    int failed = 0;
    for (; !failed && (length = getline(&line, &room, file)) >= 0; n++) {
        failed = backend_time_left(run->objects.backend, &left_ms, error);
        if (failed || !is_mine(args, n))
            continue;
        if (args->json)
            json_write_u64(&json, n);
        else
            fwrite(line, 1, (size_t)length, stdout);
    }
    if (!failed && ferror(file))
        failed = fail_errno(error, errno, "cannot read %s", text_show(args->artifact));
    free(line);
    if (file != stdin)
        fclose(file);
    json_write_close(&json, ']');
    json_put_u64(&json, "total", n);
    json_write_close(&json, '}');
    if (args->json && !failed)
        activations_print(&json);
    else
        free(json.text);
    return failed;
}
