/* Units of work: STORE/claims/unit_N says who has unit N until when, or that it is done. A claim appears whole by link(), which
 * fails where there is one; taking over one whose lease has passed happens under a lock of the folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "activations_commands.h"
#include "base/memory.h"
#include "base/text.h"

#define FOLDER "claims"
enum { MAX_CLAIM_BYTES = 8192, NAME_CHARS = 48 };
#define MAX_UNITS 100000000ull

struct claim {
    char owner[MAX_CLAIM_BYTES];
    uint64_t until_ms; /* of the wall clock: other hosts are to read it */
    bool is_done;
};

static uint64_t wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void name_unit(uint64_t unit, char name[NAME_CHARS])
{
    snprintf(name, NAME_CHARS, "unit_%08" PRIu64, unit);
}

static int open_claims(const char *store, struct error *error)
{
    char *path = memory_print("%s/" FOLDER, store), text[TEXT_NAME_CHARS];
    if (mkdir(path, 0777) < 0 && errno != EEXIST) {
        int failure = errno;
        free(path);
        return fail_errno(error, failure, "cannot make " FOLDER " in the store %s", text_escape(store, strlen(store), text));
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failure = errno;
    free(path);
    return fd >= 0 ? fd
                   : fail_errno(error, failure, "cannot open " FOLDER " of the store %s",
                                text_escape(store, strlen(store), text));
}

/* -1 with errno. */
static int read_claim(int folder, const char *name, struct claim *claim)
{
    char text[MAX_CLAIM_BYTES];
    struct arena arena = {0};
    struct json json;
    struct json_string key, owner = {0};
    *claim = (struct claim){0};
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : -1;
    int failure = errno;
    if (fd >= 0)
        close(fd);
    errno = failure;
    if (length < 0)
        return -1;
    json_init(&json, text, (size_t)length, &arena);
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
    return 0;
}

/* A file of its own beside the claims, to be linked or renamed to its place. */
static int write_claim(int folder, const struct activations_args *args, bool is_done, char fresh[NAME_CHARS],
                       struct error *error)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_text(&json, "owner", args->owner);
    json_put_u64(&json, "until_ms", wall_clock_ms() + args->lease_ms);
    json_put_bool(&json, "done", is_done);
    json_write_close(&json, '}');
    snprintf(fresh, NAME_CHARS, ".new-%ld-%" PRIx64, (long)getpid(), (uint64_t)random());
    int fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool is_written = fd >= 0 && json.length < MAX_CLAIM_BYTES &&
                      write(fd, json.text, json.length) == (ssize_t)json.length && fsync(fd) == 0;
    int failure = json.length < MAX_CLAIM_BYTES ? errno : ENAMETOOLONG;
    free(json.text);
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
    char same[NAME_CHARS];
    if (!directory) {
        fail_errno(error, errno, "cannot list " FOLDER);
        return NULL;
    }
    bool *claimed = memory_alloc_array(n_units + 1, sizeof *claimed);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strncmp(entry->d_name, "unit_", 5) != 0)
            continue;
        uint64_t unit = strtoull(entry->d_name + 5, NULL, 10);
        name_unit(unit, same);
        if (unit < n_units && strcmp(same, entry->d_name) == 0)
            claimed[unit] = true;
    }
    closedir(directory);
    return claimed;
}

/* 1 = it is ours, 0 = somebody was quicker, -1 = an error. */
static int link_claim(int folder, const char *fresh, uint64_t unit, struct error *error)
{
    char name[NAME_CHARS];
    name_unit(unit, name);
    if (linkat(folder, fresh, folder, name, 0) == 0)
        return fsync(folder) == 0 ? 1 : fail_errno(error, errno, "cannot write " FOLDER " to the disk");
    return errno == EEXIST ? 0 : fail_errno(error, errno, "cannot claim %s", name);
}

/* Under the lock: nobody else takes over, and who has it may only say that it is done, which is seen here. */
static int take_over(int folder, const char *fresh, uint64_t unit, struct error *error)
{
    struct claim claim;
    char name[NAME_CHARS];
    name_unit(unit, name);
    if (read_claim(folder, name, &claim) < 0)
        return errno == ENOENT ? 0 : fail_errno(error, errno, "cannot read %s", name);
    if (claim.is_done || claim.until_ms > wall_clock_ms())
        return 0;
    if (renameat(folder, fresh, folder, name) < 0)
        return fail_errno(error, errno, "cannot claim %s", name);
    return 1;
}

static int take_unit(int folder, const struct activations_args *args, uint64_t *unit, struct error *error)
{
    char fresh[NAME_CHARS];
    bool *claimed = list_claimed(folder, args->units, error);
    if (!claimed || write_claim(folder, args, false, fresh, error) < 0) {
        free(claimed);
        return -1;
    }
    int taken = 0;
    for (*unit = 0; *unit < args->units && !taken; ++*unit)
        taken = claimed[*unit] ? 0 : link_claim(folder, fresh, *unit, error);
    if (!taken) {
        flock(folder, LOCK_EX); /* on a file system without it the moment between reading and renaming is not guarded */
        for (*unit = 0; *unit < args->units && !taken; ++*unit)
            taken = take_over(folder, fresh, *unit, error);
        flock(folder, LOCK_UN);
    }
    --*unit;
    unlinkat(folder, fresh, 0);
    free(claimed);
    return taken;
}

static int finish_unit(int folder, const struct activations_args *args, struct error *error)
{
    struct claim claim;
    char fresh[NAME_CHARS], name[NAME_CHARS], owner[TEXT_NAME_CHARS];
    name_unit(args->done, name);
    flock(folder, LOCK_EX);
    int failed = read_claim(folder, name, &claim) < 0
                     ? fail(error, ERROR_NOT_FOUND, "NOT_CLAIMED", "unit %" PRIu64 " was claimed by nobody", args->done)
                     : 0;
    if (!failed && strcmp(claim.owner, args->owner) != 0)
        failed = fail(error, ERROR_FAILED_PRECONDITION, "NOT_THE_OWNER", "unit %" PRIu64 " is %s's: the lease had passed",
                      args->done, text_escape(claim.owner, strlen(claim.owner), owner));
    if (!failed && !claim.is_done) {
        failed = write_claim(folder, args, true, fresh, error);
        if (!failed && renameat(folder, fresh, folder, name) < 0)
            failed = fail_errno(error, errno, "cannot write %s", name);
    }
    flock(folder, LOCK_UN);
    return failed;
}

int activations_claim(struct activations_run *run, struct error *error)
{
    const struct activations_args *args = run->args;
    uint64_t unit = args->done;
    int taken = 1;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    srandom((unsigned)(now.tv_nsec ^ getpid()));
    if (args->units != ACTIVATIONS_UNSET && args->units > MAX_UNITS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_UNITS", "--units is at most %llu", MAX_UNITS);
    int folder = open_claims(run->path, error);
    if (folder < 0)
        return -1;
    if (args->done != ACTIVATIONS_UNSET)
        taken = finish_unit(folder, args, error) < 0 ? -1 : 1;
    else
        taken = take_unit(folder, args, &unit, error);
    close(folder);
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
