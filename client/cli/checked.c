/* Copies the results of either side; the reading is integrity/scrub.c, with progress told from a thread of its own. */
#include "checked.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "integrity/scrub.h"

static char *keep_text(struct checked *checked, const char *text)
{
    return arena_text(&checked->arena, text, strlen(text));
}

static struct checked *create_checked(size_t n_files)
{
    struct checked *checked = memory_alloc(sizeof *checked);
    arena_init(&checked->arena, 0);
    checked->files = arena_array(&checked->arena, n_files + 1, sizeof *checked->files);
    checked->n_files = n_files;
    return checked;
}

struct checked *checked_from_daemon(struct tc_verification *verification)
{
    struct checked *checked = create_checked(tc_verification_n_files(verification));
    for (size_t i = 0; i < checked->n_files; i++) {
        struct tc_verified_file file;
        tc_verification_file(verification, i, &file);
        checked->files[i] = (struct tc_verified_file){.name = keep_text(checked, file.name),
                                                      .bytes = file.bytes,
                                                      .status = keep_text(checked, file.status),
                                                      .by = keep_text(checked, file.by),
                                                      .damage = keep_text(checked, file.damage),
                                                      .healed = file.healed};
    }
    checked->manifest_json = keep_text(checked, tc_verification_manifest(verification));
    checked->manifest_name = keep_text(checked, tc_verification_manifest_name(verification));
    tc_verification_release(verification);
    return checked;
}

/* --- in this process --- */

static struct checked *from_scrub(const struct scrub *scrub, bool with_manifest, struct error *error)
{
    bool has_manifest = with_manifest && !scrub_damage(scrub);
    char *json = has_manifest ? scrub_manifest_json(scrub, error) : NULL;
    if (has_manifest && !json)
        return NULL;

    struct checked *checked = create_checked(scrub->n_files);
    char by[SCRUB_BY_CHARS];
    for (size_t i = 0; i < scrub->n_files; i++) {
        const struct scrub_file *file = &scrub->files[i];
        checked->files[i] = (struct tc_verified_file){.name = keep_text(checked, file->part->name),
                                                      .bytes = file->part->size_bytes,
                                                      .status = scrub_status(file),
                                                      .by = keep_text(checked, scrub_by(file, by)),
                                                      .damage = keep_text(checked, file->error.message),
                                                      .healed = file->healed};
    }
    char *name = artifact_manifest_name(scrub->artifact);
    checked->manifest_json = keep_text(checked, json ? json : "");
    checked->manifest_name = keep_text(checked, name);
    free(json);
    free(name);
    return checked;
}

struct watch { /* shows how far the reading is, until it is over */
    struct backend *backend;
    uint64_t done_bytes, total_bytes;
    bool is_over; /* atomic */
};

static void *show_progress(void *data)
{
    struct watch *watch = data;
    while (!__atomic_load_n(&watch->is_over, __ATOMIC_RELAXED)) {
        progress_show(&watch->backend->progress, "read", __atomic_load_n(&watch->done_bytes, __ATOMIC_RELAXED),
                      watch->total_bytes);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return NULL;
}

struct checked *checked_here(struct backend *backend, struct artifact *artifact, bool with_manifest, struct error *error)
{
    struct watch watch = {.backend = backend};
    const struct scrub_options options = {artifact, with_manifest, &watch.done_bytes, &backend->cancel, getuid()};
    pthread_t thread;
    if (artifact->manifest_problem.code && !with_manifest) {
        *error = artifact->manifest_problem;
        return NULL;
    }
    watch.total_bytes = scrub_total_bytes(&options);
    bool is_shown = watch.total_bytes > 0 && pthread_create(&thread, NULL, show_progress, &watch) == 0;
    struct scrub *scrub = scrub_run(&options, error);
    __atomic_store_n(&watch.is_over, true, __ATOMIC_RELAXED);
    if (is_shown)
        pthread_join(thread, NULL);
    struct checked *checked = scrub ? from_scrub(scrub, with_manifest, error) : NULL;
    scrub_destroy(scrub);
    if (!checked)
        backend_fail(backend, error);
    return checked;
}

void checked_destroy(struct checked *checked)
{
    if (!checked)
        return;
    arena_fini(&checked->arena);
    free(checked);
}

int checked_damage(const struct checked *checked, struct error *error)
{
    for (size_t i = 0; i < checked->n_files; i++)
        if (checked->files[i].damage[0])
            return fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH", "%s", checked->files[i].damage);
    return 0;
}
