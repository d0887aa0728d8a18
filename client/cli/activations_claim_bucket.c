/* Units of work in a bucket: a claim is an object that is made where there is none, and replaced as the version that was read. Both
 * are conditions that the store keeps; one that only pretends is found out and refused. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "activation_claim.h"
#include "activations_commands.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "bucket_store.h"

enum { READS_AT_ONCE = 16, UNITS_A_ROUND = 256, DONE_TRIES = 4 };
#define PROBE ACTIVATION_CLAIMS "/conditions" /* written to see whether the store refuses it */

static int check_conditions(const struct bucket_store *store, struct error *error)
{
    char *reference = bucket_store_below(store, PROBE);
    const struct sink_upload where = {.reference = reference, .cancel = &store->backend->cancel};
    int failed = sink_document_check_conditions(store->stores, &where, error);
    free(reference);
    return failed;
}

static void name_claim(uint64_t unit, char name[2 * ACTIVATION_CLAIM_NAME_CHARS])
{
    char last[ACTIVATION_CLAIM_NAME_CHARS];
    activation_claim_name(unit, last);
    snprintf(name, 2 * ACTIVATION_CLAIM_NAME_CHARS, ACTIVATION_CLAIMS "/%s", last);
}

/* Which units have a claim; NULL on error. */
static bool *list_claimed(const struct bucket_store *store, uint64_t n_units, struct error *error)
{
    const struct source_options options = {.stores = store->stores, .cancel = &store->backend->cancel};
    char *folder = bucket_store_below(store, ACTIVATION_CLAIMS), **names = NULL;
    struct source *source = NULL;
    size_t n_names = 0;
    uint64_t unit;
    int failed = source_open(folder, &options, &source, error);
    if (!failed)
        failed = source_list(source, &names, &n_names, error);
    source_unref(source);
    free(folder);
    bool *claimed = !failed ? memory_alloc_array(n_units + 1, sizeof *claimed) : NULL;
    for (size_t i = 0; i < n_names; i++) {
        if (claimed && activation_claim_parse_name(names[i], &unit) && unit < n_units)
            claimed[unit] = true;
        free(names[i]);
    }
    free(names);
    return claimed;
}

/* 1 = it is ours, 0 = somebody was quicker. */
static int write_claim(const struct activations_run *run, uint64_t unit, bool is_done, const char *version,
                       struct error *error)
{
    char name[2 * ACTIVATION_CLAIM_NAME_CHARS];
    size_t length;
    char *text = activation_claim_print(run->args->claim.owner, run->args->claim.lease_ms, is_done, &length, error);
    name_claim(unit, name);
    int written = text ? bucket_store_write(run->bucket, name, text, length, version, true, error) : -1;
    free(text);
    return written;
}

static int read_claim(const struct activations_run *run, uint64_t unit, struct activation_claim *claim,
                      char version[SINK_VERSION_CHARS], bool *is_there, struct error *error)
{
    char name[2 * ACTIVATION_CLAIM_NAME_CHARS];
    struct sink_document document = {0};
    name_claim(unit, name);
    if (bucket_store_read(run->bucket, name, ACTIVATION_CLAIM_MAX_BYTES, &document, is_there, error) < 0)
        return -1;
    activation_claim_parse(document.bytes ? document.bytes : "", document.count, claim);
    memcpy(version, document.version, SINK_VERSION_CHARS);
    sink_document_fini(&document);
    return 0;
}

/* --- taking --- */

struct lease {
    bool has_passed;
    char version[SINK_VERSION_CHARS];
};

struct looking { /* at the claims of some units */
    const struct activations_run *run;
    uint64_t first;
    struct lease leases[UNITS_A_ROUND];
};

static int look_at_lease(void *data, size_t i, struct error *error)
{
    struct looking *looking = data;
    struct lease *lease = &looking->leases[i];
    struct activation_claim claim;
    bool is_there;
    if (read_claim(looking->run, looking->first + i, &claim, lease->version, &is_there, error) < 0)
        return -1;
    lease->has_passed = is_there && !claim.is_done && claim.until_ms <= activation_claim_now_ms();
    return 0;
}

/* Whoever wrote since the look keeps it: the version is another one. */
static int take_over(const struct activations_run *run, uint64_t *unit, struct error *error)
{
    struct looking *looking = memory_alloc(sizeof *looking);
    int taken = 0;
    looking->run = run;
    for (looking->first = 0; looking->first < run->args->claim.units && !taken; looking->first += UNITS_A_ROUND) {
        uint64_t left = run->args->claim.units - looking->first;
        size_t n = left < UNITS_A_ROUND ? (size_t)left : UNITS_A_ROUND;
        taken = parallel_run(n, READS_AT_ONCE, look_at_lease, looking, error) < 0 ? -1 : 0;
        for (size_t i = 0; i < n && !taken; i++) {
            *unit = looking->first + i;
            taken = looking->leases[i].has_passed ? write_claim(run, *unit, false, looking->leases[i].version, error) : 0;
        }
    }
    free(looking);
    return taken;
}

static int take_unit(const struct activations_run *run, uint64_t *unit, struct error *error)
{
    int taken = 0;
    if (check_conditions(run->bucket, error) < 0)
        return -1;
    bool *claimed = list_claimed(run->bucket, run->args->claim.units, error);
    if (!claimed)
        return -1;
    for (uint64_t i = 0; i < run->args->claim.units && !taken; i++) {
        *unit = i;
        taken = claimed[i] ? 0 : write_claim(run, i, false, NULL, error);
    }
    free(claimed);
    return taken ? taken : take_over(run, unit, error);
}

/* --- done --- */

/* 1 = it is done, 0 = somebody wrote since it was read. */
static int finish_read(const struct activations_run *run, struct error *error)
{
    struct activation_claim claim;
    char version[SINK_VERSION_CHARS];
    bool is_there;
    uint64_t unit = run->args->claim.done;
    if (read_claim(run, unit, &claim, version, &is_there, error) < 0)
        return -1;
    if (!is_there)
        return activation_claim_fail_nobody(unit, error);
    if (strcmp(claim.owner, run->args->claim.owner) != 0)
        return activation_claim_fail_owner(&claim, unit, error);
    return claim.is_done ? 1 : write_claim(run, unit, true, version, error);
}

int activations_claim_in_bucket(struct activations_run *run, uint64_t *unit, struct error *error)
{
    int done = 0;
    if (run->args->claim.done == ACTIVATIONS_UNSET)
        return take_unit(run, unit, error);
    for (int n = 0; n < DONE_TRIES && !done; n++)
        done = finish_read(run, error);
    return done
               ? done
               : fail(error, ERROR_ABORTED, REASON(OBJECT_CHANGED), "the claim of unit %" PRIu64 " is being changed", *unit);
}
