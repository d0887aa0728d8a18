/* Units of work in a bucket: a claim is an object that is made where there is none, and replaced as the version that was read.
 * Both are conditions that the store keeps; one that only pretends is found out and refused. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "activations_commands.h"
#include "base/error.h"
#include "base/followed_link.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "bucket_store.h"

/* --- activation claim: --- Units of work: STORE/claims/unit_N says who has unit N until when, or that it is done. What such a
 * claim says; pure, except for the clock and chance. */

#define ACTIVATION_CLAIMS "claims" /* the folder */
enum { ACTIVATION_CLAIM_MAX_BYTES = 8192, ACTIVATION_CLAIM_NAME_CHARS = 48 };

struct activation_claim {
    char owner[ACTIVATION_CLAIM_MAX_BYTES];
    uint64_t until_ms; /* of the wall clock: other hosts are to read it */
    bool is_done;
};

static uint64_t activation_claim_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void activation_claim_name(uint64_t unit, char name[ACTIVATION_CLAIM_NAME_CHARS])
{
    snprintf(name, ACTIVATION_CLAIM_NAME_CHARS, "unit_%08" PRIu64, unit);
}

/* False: it is the name of none. */
static bool activation_claim_parse_name(const char *name, uint64_t *unit)
{
    char same[ACTIVATION_CLAIM_NAME_CHARS];
    if (strncmp(name, "unit_", 5) != 0)
        return false;
    *unit = strtoull(name + 5, NULL, 10);
    activation_claim_name(*unit, same);
    return strcmp(same, name) == 0;
}

/* Leaves out what it does not find: a claim that its owner gave up, whose lease has expired. */
static void activation_claim_parse(const char *text, size_t length, struct activation_claim *claim)
{
    struct arena arena = {0};
    struct json json;
    struct json_string key, owner = {0};
    *claim = (struct activation_claim){0};
    json_init(&json, text, length, &arena);
    if (json_begin_object(&json))
        while (json_next_key(&json, &key)) {
            if (json_string_is(&key, "owner"))
                json_take_string(&json, &owner);
            else if (json_string_is(&key, "until_ms"))
                json_take_u64(&json, &claim->until_ms);
            else if (json_string_is(&key, "done"))
                claim->is_done = json_peek(&json) == JSON_TRUE, json_skip(&json);
            else
                json_skip(&json);
        }
    snprintf(claim->owner, sizeof claim->owner, "%.*s", (int)owner.length, owner.length ? owner.text : "");
    arena_fini(&arena);
}

/* Different from every other, so that its writer knows it again. malloced; NULL: the owner's name is too long. */
static char *activation_claim_print(const char *owner, uint64_t lease_ms, bool is_done, size_t *length, struct error *error)
{
    uint64_t chance = 0;
    char mark[20];
    struct json_writer json = {0};
    if (getrandom(&chance, sizeof chance, 0) < 0)
        chance = (uint64_t)getpid();
    snprintf(mark, sizeof mark, "%016" PRIx64, chance);
    json_write_open(&json, '{');
    json_put_text(&json, "owner", owner);
    json_put_u64(&json, "until_ms", activation_claim_now_ms() + lease_ms);
    json_put_bool(&json, "done", is_done);
    json_put_text(&json, "mark", mark);
    json_write_close(&json, '}');
    *length = json.length;
    if (json.length < ACTIVATION_CLAIM_MAX_BYTES)
        return json.text;
    free(json.text);
    fail(error, ERROR_INVALID_ARGUMENT, "OWNER_TOO_LONG", "--owner is too long: a claim has at most %d bytes",
         ACTIVATION_CLAIM_MAX_BYTES - 1);
    return NULL;
}

static int activation_claim_fail_nobody(uint64_t unit, struct error *error)
{
    return fail(error, ERROR_NOT_FOUND, "NOT_CLAIMED", "unit %" PRIu64 " is not claimed", unit);
}

static int activation_claim_fail_owner(const struct activation_claim *claim, uint64_t unit, struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, "NOT_THE_OWNER",
                "unit %" PRIu64 " is %s's; who had it before has let the lease pass", unit, text_show(claim->owner));
}

/* --- activations claim: --- Units of work on a disk: a claim appears whole by link(), which fails where there is one; taking
 * over one whose lease has passed happens under a lock of the folder. */

#define FOLDER ACTIVATION_CLAIMS
enum { NAME_CHARS = ACTIVATION_CLAIM_NAME_CHARS, LOCK_PAUSE_MS = 20, LONGEST_LOCK_MS = 60000 };
#define MAX_UNITS 100000000ull

/* Work is claimed before anything is appended, so the store's folder is made, too; what is done was claimed, so nothing is. */
static int open_claims(const char *store, const struct args *args, struct error *error)
{
    bool is_done = args->claim.done != ACTIVATIONS_UNSET;
    if (!is_done)
        mkdir(store, 0777); /* where it cannot be made, the next one tells why */
    int store_fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    const char *text = text_show(store);
    if (store_fd < 0)
        return fail_errno(error, errno, "cannot open the store %s", text);
    if (is_done && faccessat(store_fd, FOLDER, F_OK, 0) < 0 && errno == ENOENT)
        activation_claim_fail_nobody(args->claim.done, error);
    else if (!is_done && mkdirat(store_fd, FOLDER, 0777) < 0 && errno != EEXIST)
        fail_errno(error, errno, "cannot make " FOLDER " in the store %s", text);
    else
        fd = followed_link_open(store_fd, FOLDER, FOLDER, O_RDONLY | O_DIRECTORY, error);
    close(store_fd);
    return fd >= 0 ? fd : error_prefix(error, "%s", text);
}

/* A user who may read the folder can keep it locked. On a file system without locks the moment between reading and renaming is
 * not guarded. */
static int lock_claims(int folder, const struct args *args, struct error *error)
{
    static const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000};
    uint64_t wait_ms = args->timeout_ms && args->timeout_ms < LONGEST_LOCK_MS ? args->timeout_ms : LONGEST_LOCK_MS;
    for (uint64_t waited_ms = 0; waited_ms <= wait_ms; waited_ms += LOCK_PAUSE_MS) {
        if (flock(folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return 0;
        nanosleep(&pause, NULL);
    }
    return fail(error, ERROR_UNAVAILABLE, "CLAIMS_LOCKED",
                FOLDER " of the store stays locked by another process; see which one has it open");
}

/* -1 with errno. */
static int read_claim(int folder, const char *name, struct activation_claim *claim)
{
    char text[ACTIVATION_CLAIM_MAX_BYTES];
    *claim = (struct activation_claim){0};
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : -1;
    int failure = errno;
    if (fd >= 0)
        close(fd);
    errno = failure;
    if (length < 0)
        return -1;
    activation_claim_parse(text, (size_t)length, claim);
    return 0;
}

/* A file of its own beside the claims, to be linked or renamed to its place. */
static int write_claim(int folder, const struct args *args, bool is_done, char fresh[NAME_CHARS], struct error *error)
{
    size_t length;
    char *text = activation_claim_print(args->claim.owner, args->claim.lease_ms, is_done, &length, error);
    if (!text)
        return -1;
    snprintf(fresh, NAME_CHARS, ".new-%ld-%" PRIx64, (long)getpid(), (uint64_t)random());
    int fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool is_written = fd >= 0 && write(fd, text, length) == (ssize_t)length && fsync(fd) == 0;
    int failure = errno;
    free(text);
    if (fd >= 0)
        close(fd);
    if (is_written)
        return 0;
    unlinkat(folder, fresh, 0);
    return fail_errno(error, failure, "cannot write a claim");
}

/* --- taking --- */

/* Which units have a claim; NULL on error. */
static bool *list_claimed(int folder, uint64_t n_units, struct error *error)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    uint64_t unit;
    if (!directory) {
        fail_errno(error, errno, "cannot list " FOLDER);
        return NULL;
    }
    bool *claimed = memory_alloc_array(n_units + 1, sizeof *claimed);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (activation_claim_parse_name(entry->d_name, &unit) && unit < n_units)
            claimed[unit] = true;
    }
    closedir(directory);
    return claimed;
}

/* 1 = it is ours, 0 = another process claimed it first (a lost race), -1 = an error. */
static int link_claim(int folder, const char *fresh, uint64_t unit, struct error *error)
{
    char name[NAME_CHARS];
    activation_claim_name(unit, name);
    if (linkat(folder, fresh, folder, name, 0) == 0)
        return fsync(folder) == 0 ? 1 : fail_errno(error, errno, "cannot write " FOLDER " to the disk");
    return errno == EEXIST ? 0 : fail_errno(error, errno, "cannot claim %s", name);
}

/* Of this moment: what was written before the lock was waited for may have passed. */
static int replace_claim(int folder, const struct args *args, bool is_done, const char *name, struct error *error)
{
    char fresh[NAME_CHARS];
    if (write_claim(folder, args, is_done, fresh, error) < 0)
        return -1;
    if (renameat(folder, fresh, folder, name) == 0)
        return 0;
    fail_errno(error, errno, "cannot write %s", name);
    unlinkat(folder, fresh, 0);
    return -1;
}

/* Under the lock: no other worker takes over. The owner may only mark the unit as done, which is seen here. */
static int take_over(int folder, const struct args *args, uint64_t unit, struct error *error)
{
    struct activation_claim claim;
    char name[NAME_CHARS];
    activation_claim_name(unit, name);
    if (read_claim(folder, name, &claim) < 0)
        return errno == ENOENT ? 0 : fail_errno(error, errno, "cannot read %s", name);
    if (claim.is_done || claim.until_ms > activation_claim_now_ms())
        return 0;
    return replace_claim(folder, args, false, name, error) < 0 ? -1 : 1;
}

/* 1 = *unit is taken over, 0 = nothing is left. */
static int take_passed(int folder, const struct args *args, uint64_t *unit, struct error *error)
{
    int taken = 0;
    if (lock_claims(folder, args, error) < 0)
        return -1;
    for (uint64_t i = 0; i < args->claim.units && !taken; i++) {
        *unit = i;
        taken = take_over(folder, args, i, error);
    }
    flock(folder, LOCK_UN);
    return taken;
}

static int take_unit(int folder, const struct args *args, uint64_t *unit, struct error *error)
{
    char fresh[NAME_CHARS];
    bool *claimed = list_claimed(folder, args->claim.units, error);
    if (!claimed || write_claim(folder, args, false, fresh, error) < 0) {
        free(claimed);
        return -1;
    }
    int taken = 0;
    for (uint64_t i = 0; i < args->claim.units && !taken; i++) {
        *unit = i;
        taken = claimed[i] ? 0 : link_claim(folder, fresh, i, error);
    }
    unlinkat(folder, fresh, 0);
    free(claimed);
    return taken ? taken : take_passed(folder, args, unit, error);
}

static int finish_unit(int folder, const struct args *args, struct error *error)
{
    struct activation_claim claim;
    char name[NAME_CHARS];
    activation_claim_name(args->claim.done, name);
    if (lock_claims(folder, args, error) < 0)
        return -1;
    int failed = 0;
    if (read_claim(folder, name, &claim) < 0)
        failed = errno == ENOENT ? activation_claim_fail_nobody(args->claim.done, error)
                                 : fail_errno(error, errno, "cannot read %s", name);
    if (!failed && strcmp(claim.owner, args->claim.owner) != 0)
        failed = activation_claim_fail_owner(&claim, args->claim.done, error);
    if (!failed && !claim.is_done)
        failed = replace_claim(folder, args, true, name, error);
    flock(folder, LOCK_UN);
    return failed;
}

static int claim_on_disk(const struct activations_run *run, uint64_t *unit, struct error *error)
{
    const struct args *args = run->args;
    int folder = open_claims(run->path, args, error), taken = 1;
    if (folder < 0)
        return -1;
    if (args->claim.done == ACTIVATIONS_UNSET)
        taken = take_unit(folder, args, unit, error);
    else if (finish_unit(folder, args, error) < 0)
        taken = -1;
    close(folder);
    return taken;
}

/* --- activations claim bucket --- */

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
static bool *list_claims(const struct bucket_store *store, uint64_t n_units, struct error *error)
{
    const struct source_options options = {.stores = store->stores, .cancel = &store->backend->cancel};
    char *folder = bucket_store_below(store, ACTIVATION_CLAIMS), **names = NULL;
    struct source *source = NULL;
    size_t n_names = 0;
    uint64_t unit;
    int failed = source_open(folder, &options, &source, error);
    if (!failed)
        failed = source_list(source, NULL, &names, &n_names, error);
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

/* 1 = it is ours, 0 = another process claimed it first. */
static int put_claim(const struct activations_run *run, uint64_t unit, bool is_done, const char *version,
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

static int get_claim(const struct activations_run *run, uint64_t unit, struct activation_claim *claim,
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
    if (get_claim(looking->run, looking->first + i, &claim, lease->version, &is_there, error) < 0)
        return -1;
    lease->has_passed = is_there && !claim.is_done && claim.until_ms <= activation_claim_now_ms();
    return 0;
}

/* A process that wrote since the look keeps it: compare-and-swap on the version fails. */
static int take_over_object(const struct activations_run *run, uint64_t *unit, struct error *error)
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
            taken = looking->leases[i].has_passed ? put_claim(run, *unit, false, looking->leases[i].version, error) : 0;
        }
    }
    free(looking);
    return taken;
}

static int take_from_bucket(const struct activations_run *run, uint64_t *unit, struct error *error)
{
    int taken = 0;
    if (check_conditions(run->bucket, error) < 0)
        return -1;
    bool *claimed = list_claims(run->bucket, run->args->claim.units, error);
    if (!claimed)
        return -1;
    for (uint64_t i = 0; i < run->args->claim.units && !taken; i++) {
        *unit = i;
        taken = claimed[i] ? 0 : put_claim(run, i, false, NULL, error);
    }
    free(claimed);
    return taken ? taken : take_over_object(run, unit, error);
}

/* --- done --- */

/* 1 = it is done, 0 = another process wrote since it was read. */
static int finish_read(const struct activations_run *run, struct error *error)
{
    struct activation_claim claim;
    char version[SINK_VERSION_CHARS];
    bool is_there;
    uint64_t unit = run->args->claim.done;
    if (get_claim(run, unit, &claim, version, &is_there, error) < 0)
        return -1;
    if (!is_there)
        return activation_claim_fail_nobody(unit, error);
    if (strcmp(claim.owner, run->args->claim.owner) != 0)
        return activation_claim_fail_owner(&claim, unit, error);
    return claim.is_done ? 1 : put_claim(run, unit, true, version, error);
}

static int claim_in_bucket(struct activations_run *run, uint64_t *unit, struct error *error)
{
    int done = 0;
    if (run->args->claim.done == ACTIVATIONS_UNSET)
        return take_from_bucket(run, unit, error);
    for (int n = 0; n < DONE_TRIES && !done; n++)
        done = finish_read(run, error);
    return done
               ? done
               : fail(error, ERROR_ABORTED, REASON(OBJECT_CHANGED), "the claim of unit %" PRIu64 " is being changed", *unit);
}

int activations_claim(struct activations_run *run, struct error *error)
{
    const struct args *args = run->args;
    uint64_t unit = args->claim.done;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    srandom((unsigned)(now.tv_nsec ^ getpid()));
    if (args->claim.units != ACTIVATIONS_UNSET && args->claim.units > MAX_UNITS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_UNITS", "--units is at most %llu", MAX_UNITS);
    int taken = run->bucket ? claim_in_bucket(run, &unit, error) : claim_on_disk(run, &unit, error);
    if (taken < 0)
        return -1;
    if (args->json && taken)
        printf("{\"unit\": %" PRIu64 "}\n", unit);
    else if (args->json)
        printf("{\"unit\": null}\n");
    else if (taken)
        printf("%" PRIu64 "\n", unit);
    return 0;
}
